//! The section of `bench wan` in `docs/benchmarks.md`.

use std::fmt::Write as _;

use super::floor::Floor;
use super::record::{Record, Store};
use super::remote_client::{Client, Direction};
use super::remote_report::{CLIENTS, doubts, median, middle, numbers, provenance, seconds, times};
use super::wan::{Line, Pair, goal};

/// How a call without options begins.
const COMMAND: &str = "cargo xtask bench wan";

/// One row and its floors.
struct Row<'a> {
    pair: Pair,
    record: &'a Record,
    floors: [Floor; 2],
    goals: [Option<f64>; 2],
}

impl<'a> Row<'a> {
    fn of(pair: Pair, store: &'a Store, whole: bool) -> Option<Self> {
        let record = store.get(&pair.key())?;
        let measured = record.cells.iter().any(|cell| !cell.samples.is_empty());
        if !measured {
            return None;
        }
        let floors = Direction::ALL.map(|direction| Floor::of(&record.floors, direction));
        let mut goals = [None; 2];
        for ((goal_s, floor), direction) in goals.iter_mut().zip(&floors).zip(Direction::ALL) {
            let best = floor.best().filter(|_| whole);
            *goal_s = best.and_then(|best| goal(pair, direction, best));
        }
        Some(Self {
            pair,
            record,
            floors,
            goals,
        })
    }

    fn title(&self) -> String {
        format!("{}, {}", self.pair.cargo.title(), self.pair.line.title())
    }

    /// The row of the first table.
    fn main(&self) -> String {
        let two = |values: [Option<f64>; 2]| {
            let [read, write] =
                values.map(|value| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")));
            format!("{read} / {write}")
        };
        let mut cells = vec![
            self.title(),
            two(self.floors.each_ref().map(Floor::best)),
            two(self.goals),
        ];
        for client in CLIENTS {
            let [read, write] = [0, 1].map(|index| {
                let cell = self.record.cell(client, Direction::ALL[index]);
                let text = median(cell);
                let reached = match (middle(cell, |sample| sample.seconds), self.goals[index]) {
                    (Some(own), Some(goal)) => own <= goal,
                    _ => false,
                };
                match client == Client::Ropeway && reached {
                    true => format!("**{text}**"),
                    false => text,
                }
            });
            cells.push(format!("{read} / {write}"));
        }
        format!("| {} |\n", cells.join(" | "))
    }

    /// Its rows of the second table.
    fn details(&self) -> String {
        let mut text = String::new();
        let best = self.floors.each_ref().map(Floor::best);
        let title = self.title();
        for client in CLIENTS {
            let [read, write] = Direction::ALL.map(|direction| self.record.cell(client, direction));
            if read.is_none() && write.is_none() {
                continue;
            }
            let runs = [read, write].map(|cell| cell.map_or(0, |cell| cell.samples.len()));
            let _ = writeln!(
                text,
                "| {title} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}, {} |",
                client.name(),
                seconds(read),
                times(middle(read, |sample| sample.seconds), best[0]),
                seconds(write),
                times(middle(write, |sample| sample.seconds), best[1]),
                numbers(read, 2, |sample| sample.cpu),
                numbers(write, 2, |sample| sample.cpu),
                numbers(read, 1, |sample| sample.peak_mib),
                numbers(write, 1, |sample| sample.peak_mib),
                runs[0],
                runs[1],
            );
        }
        text
    }

    fn notes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (floor, direction) in self.floors.iter().zip(Direction::ALL) {
            if let Some(spread) = floor.noisy() {
                lines.push(format!(
                    "{}: noisy, spread of the runs: bare TCP, {}: {:.0} %",
                    self.title(),
                    direction.name(),
                    spread * 100.0
                ));
            }
        }
        lines.extend(doubts(&self.title(), self.record));
        lines
    }
}

/// The section: everything that is kept of these rows. `whole`: the work is not scaled, so that there is something to
/// reach.
pub(super) fn section(
    store: &Store,
    pairs: &[Pair],
    whole: bool,
    congestion: &str,
    notes: &[String],
) -> String {
    let rows: Vec<Row<'_>> = pairs
        .iter()
        .filter_map(|&pair| Row::of(pair, store, whole))
        .collect();
    let records: Vec<&Record> = rows.iter().map(|row| row.record).collect();
    let mut text = format!(
        "## Over a WAN: copies from and to a server\n\n{}",
        provenance(&records, COMMAND, notes)
    );
    let _ = writeln!(
        text,
        "\nThe link is emulated between two network namespaces, its queue one round trip long; both ends use {congestion} and \
         `tcp_no_metrics_save=1`, with TCP buffers of at most {} MiB where the link has 622 Mbit/s and the system's own \
         elsewhere. The server is smbd, for rsync its own daemon; files are in memory; each tool has its defaults, \
         rclone with `--transfers` and `--checkers` of 4 and 32. *Floor*: bare TCP moving the same bytes after four \
         set-up round trips, the best of 1, 4 and 16 connections, measured between the rounds. *To reach*: 1.05 x \
         floor + 2 round trips for one file, 1.04 x for 300, two fixed times for 3,000.",
        Line::BUFFER_MAX_BYTES >> 20
    );
    text.push_str(
        "\nSeconds, read / write, medians of interleaved runs; **bold**: reached; \\*: one run only, for it took more \
         than 60 s; `>`: ended at that time.\n\n",
    );
    let names: Vec<&str> = CLIENTS.iter().map(|client| client.name()).collect();
    let _ = writeln!(text, "| work, link | floor | to reach | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|--:|--:|{}", "--:|".repeat(names.len()));
    for row in &rows {
        text.push_str(&row.main());
    }
    text.push_str(
        "\nThe same with the range of the runs, times the floor, processor time (user+sys) and peak resident memory of \
         the tool:\n\n\
         | work, link | tool | read s | x floor | write s | x floor | user+sys s, read | write | peak MiB, read | write | runs |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &rows {
        text.push_str(&row.details());
    }
    text.push_str(
        "\nBare TCP by number of connections, seconds:\n\n| work, link | read | write |\n|---|---|---|\n",
    );
    for row in &rows {
        let [read, write] = row.floors.each_ref().map(Floor::describe);
        let _ = writeln!(text, "| {} | {read} | {write} |", row.title());
    }
    for note in rows.iter().flat_map(Row::notes) {
        let _ = writeln!(text, "\n> {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::floor::FloorSample;
    use crate::bench::record::Ending;
    use crate::bench::remote_report::testing::{ran, row};
    use crate::worksets::{Cargo, Content};

    const PAIR: Pair = Pair {
        cargo: Cargo::One,
        line: Line::FarFast,
    };

    fn store(folder: &std::path::Path) -> Store {
        let mut store = Store::open(folder, "wan").unwrap();
        let mut slow = ran(Client::Smbclient, Direction::Read, &[]);
        slow.ending = Some(Ending::Over {
            seconds: 300.0,
            done: Content::default(),
        });
        let mut record = row(vec![
            ran(Client::Ropeway, Direction::Read, &[2.0, 2.2, 2.1]),
            ran(Client::Ropeway, Direction::Write, &[3.0, 3.0, 3.0]),
            slow,
            ran(Client::Smbclient, Direction::Write, &[61.0]),
        ]);
        for direction in Direction::ALL {
            record.floors.push(FloorSample {
                direction,
                connections: 4,
                seconds: 2.0,
            });
        }
        *store.row(&PAIR.key()) = record;
        store
    }

    #[test]
    fn the_table_is_that_of_the_issue() {
        let folder = tempfile::tempdir().unwrap();
        let text = section(&store(folder.path()), &[PAIR], true, "bbr", &[]);
        let line = "| one file of 100 MB, 75 ms, 622 Mbit/s | 2.00 / 2.00 | 2.25 / 2.25 | **2.10** / 3.00 | > 300 / \
                    61.00\\* | - / - | - / - | - / - |";
        assert!(text.contains(line), "{text}");
        let line = "| one file of 100 MB, 75 ms, 622 Mbit/s | ropeway | 2.10 (2.00-2.20) | 1.05 | 3.00 (3.00-3.00) | 1.50 \
                    | 1.05 (1.00-1.10) | 1.50 (1.50-1.50) | 10.0 (10.0-10.0) | 10.0 (10.0-10.0) | 3, 3 |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| 1: -, 4: 2.00, 16: - |"), "{text}");
        assert!(
            text.contains("smbclient, read: after 300 s with 0 of 1 files"),
            "{text}"
        );
    }

    #[test]
    fn less_than_the_whole_work_has_nothing_to_reach_and_unmeasured_rows_are_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path());
        let other = Pair {
            cargo: Cargo::Office,
            ..PAIR
        };
        *store.row(&other.key()) = row(Vec::new());
        let text = section(&store, &[PAIR, other], false, "bbr", &[]);
        assert!(text.contains("| 2.00 / 2.00 | - / - | 2.10 / 3.00 |"), "{text}");
        assert!(!text.contains("300 files of 50 KB"), "{text}");
    }
}
