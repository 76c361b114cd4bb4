//! Tables about lossy lines: bare TCP by its number of connections, and the connections of each cell.

use super::model::{Document, SocketEnd};
use super::numbers;
use super::text::{self, LINES_MAX, Table};

/// What the tables mean, for people.
pub(super) const MEANING: &str = "Bare TCP carries the bytes under the same loss, over as many connections as the head \
                                  says; `>` was ended there, since another number is far better. Below, what the kernel \
                                  said of the connections in the first run of each cell, near (client) and far (server).";

/// Returns the times of bare TCP by number of connections; `None` if no link loses anything.
pub(super) fn floors(doc: &Document) -> Option<Table> {
    if !doc.links.iter().any(|link| link.loss > 0.0) || doc.floors.is_empty() {
        return None;
    }
    let mut counts: Vec<usize> = doc.floors.iter().map(|floor| floor.connections).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut heads = vec!["link, work, direction"];
    // Three in every lab.
    heads.extend(counts.iter().map(|count| match count {
        1 => "1 connection, s",
        4 => "4 connections, s",
        16 => "16 connections, s",
        _ => "more, s",
    }));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for floor in doc.floors.iter().take(LINES_MAX) {
        let name = numbers::name(&format!("{}, {}, {}", floor.link, floor.work, floor.direction));
        let at = rows.iter().position(|row| row[0] == name).unwrap_or_else(|| {
            rows.push([vec![name], vec!["–".to_owned(); counts.len()]].concat());
            rows.len() - 1
        });
        let Some(column) = counts.iter().position(|count| *count == floor.connections) else {
            continue;
        };
        let mark = if floor.ended { "> " } else { "" };
        rows[at][column + 1] = format!("{mark}{}", text::exact(floor.seconds));
    }
    rows.sort();
    Some((heads, rows))
}

/// Returns the connections of each cell; `None` if no link loses anything or none were seen.
pub(super) fn sockets(doc: &Document) -> Option<Table> {
    if !doc.links.iter().any(|link| link.loss > 0.0) {
        return None;
    }
    let heads = "cell|near|connections|sent again|far|connections|sent again".split('|');
    let rows = doc.cells.iter().take(LINES_MAX).filter_map(|cell| {
        let sockets = cell.runs.iter().find_map(|run| run.sockets.as_ref())?;
        let ends = [end(&sockets.near), end(&sockets.far)].concat();
        Some([vec![text::named(cell)], ends].concat())
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| (heads.collect(), rows))
}

fn end(end: &SocketEnd) -> Vec<String> {
    let share = match end.segments {
        // Too few to tell.
        0..1000 => "–".to_owned(),
        segments => numbers::percent(end.sent_again as f64 / segments as f64),
    };
    vec![
        numbers::name(&end.congestion),
        numbers::count(end.connections),
        share,
    ]
}

#[cfg(test)]
mod tests {
    use super::super::model::{Cell, CellKey, FloorTime, LinkSummary, Run, Sockets};
    use super::*;

    fn lossy() -> Document {
        let floor = |connections, seconds, ended| FloorTime {
            link: "bbr-1".to_owned(),
            work: "file1gib".to_owned(),
            direction: "read".to_owned(),
            connections,
            seconds,
            ended,
        };
        let far = SocketEnd {
            congestion: "cubic".to_owned(),
            connections: 4,
            segments: 10_000,
            sent_again: 100,
        };
        let run = Run {
            sockets: Some(Sockets {
                near: SocketEnd::default(),
                far,
            }),
            ..Run::default()
        };
        Document {
            links: vec![LinkSummary {
                name: "bbr-1".to_owned(),
                loss: 0.01,
                ..LinkSummary::of_this_machine("bbr-1", "bbr", String::new())
            }],
            floors: vec![floor(16, 8.0, false), floor(1, 32.0, true)],
            cells: vec![Cell {
                key: CellKey::new(["bbr-1", "file1gib", "read", "ropeway", "smbd"]),
                runs: vec![Run::default(), run],
                ..Cell::default()
            }],
            ..Document::default()
        }
    }

    #[test]
    fn floors_stand_by_their_connections() {
        let (heads, rows) = floors(&lossy()).unwrap();
        assert_eq!(heads[1..], ["1 connection, s", "16 connections, s"]);
        assert_eq!(rows.len(), 1);
        assert!(rows[0][1].starts_with("> 32"), "{rows:?}");
    }

    #[test]
    fn both_ends_are_shown() {
        let (heads, rows) = sockets(&lossy()).unwrap();
        assert_eq!(heads.len(), rows[0].len());
        assert_eq!(rows[0][4..6], ["cubic", "4"]);
        assert!(
            rows[0][6].starts_with('1') && rows[0][6].contains('%'),
            "{rows:?}"
        );
        let mut whole = lossy();
        whole.links[0].loss = 0.0;
        assert!(floors(&whole).is_none() && sockets(&whole).is_none());
    }
}
