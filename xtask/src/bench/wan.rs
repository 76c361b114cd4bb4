//! `cargo xtask bench wan`: runs the lab's scenario `wan` and writes its section.

use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Result, ensure};
use ropeway_lab::link::Congestion;
use ropeway_lab::report::{Cell, Document};
use ropeway_lab::scenario::{Changes, Client, Direction, Scenario};
use ropeway_lab::work::Work;

use super::network::{Call, Options, choose, parse_client};
use super::tables::{self, client_mib, find, median, middle, numbers, provenance, seconds, times, whole};
use crate::process::is_root;
use crate::workspace::Workspace;

/// Congestion control of the published table.
const CONGESTION: &str = "bbr";
/// Clients with their servers, in the order of the table.
const CLIENTS: [(&str, &str); 5] = [
    ("ropeway", "smbd"),
    ("smbclient", "smbd"),
    ("rclone", "smbd"),
    ("rclone-32", "smbd"),
    ("rsync", "rsyncd"),
];
/// Names of works in `--rows`.
const WORKS: [(&str, Work); 4] = [
    ("one", Work::File100mb),
    ("office", Work::Dirset1gb),
    ("small", Work::Small3000),
    ("bulk", Work::File1gib),
];

/// Options of `bench wan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rows: `one-75ms-622mbit` and so on, or a work (`one`, `office`, `small`) for all its rows [default: the five of the
    /// table; other works and links make rows of your own]
    #[arg(long, value_delimiter = ',', value_name = "ROW")]
    rows: Vec<Rows>,
    /// Tools to compare: ropeway, smbclient, rclone4, rclone32, rsync [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_client)]
    clients: Vec<Client>,
    /// Congestion control of both ends
    #[arg(long, default_value = CONGESTION)]
    congestion: Congestion,
    #[command(flatten)]
    options: Options,
}

/// A word of `--rows`: a work, and a link or all links of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rows {
    work: Work,
    link: Option<String>,
}

impl FromStr for Rows {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (work, link) = match word.split_once('-') {
            Some((work, link)) => (work, Some(link.to_owned())),
            None => (word, None),
        };
        let scenario = shipped();
        let is_link = |link: &String| scenario.links.iter().any(|known| known.name == *link);
        let in_table = |work: &Work| link.is_some() || scenario.works.contains(work);
        let found = WORKS
            .iter()
            .find(|(name, known)| *name == work && in_table(known));
        match found {
            Some((_, work)) if link.as_ref().is_none_or(is_link) => Ok(Self { work: *work, link }),
            _ => Err(format!(
                "there is no row {word:?}; a row is WORK or WORK-LINK with the works one, office, small, bulk and the links {}",
                scenario
                    .links
                    .iter()
                    .map(|link| link.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }
}

fn shipped() -> Scenario {
    match Scenario::shipped("wan") {
        Some(Ok(scenario)) => scenario,
        _ => unreachable!("the lab's tests read every shipped scenario"),
    }
}

/// Returns the scenario with only these rows; without any, all rows of the table.
fn chosen(rows: &[Rows]) -> Scenario {
    let mut scenario = shipped();
    if rows.is_empty() {
        return scenario;
    }
    scenario.works.clear();
    for row in rows {
        if !scenario.works.contains(&row.work) {
            scenario.works.push(row.work);
        }
    }
    for link in &mut scenario.links {
        let table = link.works.take().unwrap_or_default();
        let mut works = Vec::new();
        for row in rows {
            let wanted = match &row.link {
                Some(name) => *name == link.name,
                None => table.contains(&row.work),
            };
            if wanted && !works.contains(&row.work) {
                works.push(row.work);
            }
        }
        link.works = Some(works);
    }
    scenario
        .links
        .retain(|link| link.works.as_ref().is_some_and(|works| !works.is_empty()));
    scenario
}

/// Measures the chosen part and writes the section.
///
/// # Errors
/// This is not root, the lab cannot go on, ropeway fails or copies wrongly, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(
        is_root(),
        "this benchmark needs root, for servers in another network namespace"
    );
    let changes = Changes {
        clients: arguments.clients.clone(),
        ..Changes::default()
    };
    let mut scenario = choose(chosen(&arguments.rows), &[], &changes)?;
    for link in &mut scenario.links {
        link.spec.tcp.congestion = Some(arguments.congestion.clone());
    }
    let name = arguments.congestion.name();
    let call = Call {
        workspace,
        folder,
        options: &arguments.options,
        variant: (name != CONGESTION)
            .then(|| name.to_owned())
            .into_iter()
            .collect(),
        smb_server: None,
    };
    call.run(scenario, |document, whole_work| {
        vec![("bench wan".to_owned(), section(document, whole_work, name))]
    })
}

/// One row of the tables.
struct Row<'a> {
    document: &'a Document,
    link: &'a str,
    work: &'a str,
    title: String,
    /// Best floor and target, read and write.
    floors: [Option<f64>; 2],
    targets: [Option<f64>; 2],
}

/// Returns the cells of a link and a work.
fn cells_of<'a>(document: &'a Document, link: &'a str, work: &'a str) -> impl Iterator<Item = &'a Cell> {
    let cells = document.cells.iter();
    cells.filter(move |cell| cell.key.link == link && cell.key.work == work)
}

fn rows(document: &Document, whole_work: bool) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for work in WORKS.map(|(_, work)| work) {
        for link in &document.links {
            let cells = || cells_of(document, &link.name, work.name());
            if cells().all(|cell| cell.runs.is_empty()) {
                continue;
            }
            let floors = Direction::ALL.map(|direction| {
                let mut own = cells().filter(|cell| cell.key.direction == direction.name());
                own.find_map(|cell| cell.floor_seconds)
            });
            let mut targets = [None; 2];
            for ((target, floor), direction) in targets.iter_mut().zip(floors).zip(Direction::ALL) {
                *target = floor
                    .filter(|_| whole_work)
                    .and_then(|floor| goal(work, &link.name, direction, floor, link.rtt_ms / 1e3));
            }
            rows.push(Row {
                document,
                link: &link.name,
                work: work.name(),
                title: format!(
                    "{}, {:.0} ms, {} Mbit/s",
                    title(work),
                    link.rtt_ms,
                    link.up_bps.unwrap_or(0) / 1_000_000
                ),
                floors,
                targets,
            });
        }
    }
    rows
}

fn title(work: Work) -> &'static str {
    match work {
        Work::File100mb => "one file of 100 MB",
        Work::Dirset1gb => "1 GB in 300 files of 50 KB to 5 MB",
        work => work.title(),
    }
}

/// Returns the target in seconds: a factor of the floor and two round trips, or a fixed time for
/// the small files.
fn goal(work: Work, link: &str, direction: Direction, floor: f64, rtt: f64) -> Option<f64> {
    match (work, link, direction) {
        (Work::File100mb, ..) => Some(1.05 * floor + 2.0 * rtt),
        (Work::Dirset1gb, ..) => Some(1.04 * floor + 2.0 * rtt),
        (Work::Small3000, "32ms-622mbit", Direction::Read) => Some(2.0),
        (Work::Small3000, "32ms-622mbit", Direction::Write) => Some(2.6),
        _ => None,
    }
}

impl Row<'_> {
    fn cells(&self, client: &str, server: &str) -> [Option<&Cell>; 2] {
        Direction::ALL.map(|direction| {
            find(
                self.document,
                [self.link, self.work, direction.name(), client, server],
            )
        })
    }

    /// Returns the row of the first table.
    fn main(&self) -> String {
        let two = |values: [Option<f64>; 2]| {
            let [read, write] =
                values.map(|value| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")));
            format!("{read} / {write}")
        };
        let mut columns = vec![self.title.clone(), two(self.floors), two(self.targets)];
        for (client, server) in CLIENTS {
            let cells = self.cells(client, server);
            let [read, write] = [0, 1].map(|index| {
                let text = median(cells[index]);
                let reached = middle(cells[index], whole)
                    .zip(self.targets[index])
                    .is_some_and(|(own, target)| own <= target);
                match client == "ropeway" && reached {
                    true => format!("**{text}**"),
                    false => text,
                }
            });
            columns.push(format!("{read} / {write}"));
        }
        format!("| {} |\n", columns.join(" | "))
    }

    /// Returns the rows of the second table.
    fn details(&self) -> String {
        let mut text = String::new();
        for (client, server) in CLIENTS {
            let [read, write] = self.cells(client, server);
            if read.is_none() && write.is_none() {
                continue;
            }
            let runs = [read, write].map(|cell| cell.map_or(0, |cell| cell.counted().count()));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}, {} |",
                self.title,
                tables::client_name(client),
                seconds(read),
                times(middle(read, whole), self.floors[0]),
                seconds(write),
                times(middle(write, whole), self.floors[1]),
                numbers(read, 2, |run| run.client_cpu_seconds),
                numbers(write, 2, |run| run.client_cpu_seconds),
                numbers(read, 1, client_mib),
                numbers(write, 1, client_mib),
                runs[0],
                runs[1],
            );
        }
        text
    }

    /// Formats the times of bare TCP by number of connections.
    fn floor(&self, direction: Direction) -> String {
        let those = self.document.floors.iter().filter(|floor| {
            floor.link == self.link && floor.work == self.work && floor.direction == direction.name()
        });
        let mut those: Vec<_> = those.map(|floor| (floor.connections, floor.seconds)).collect();
        those.sort_by_key(|(connections, _)| *connections);
        let shown: Vec<String> = those
            .iter()
            .map(|(connections, seconds)| format!("{connections}: {seconds:.2}"))
            .collect();
        shown.join(", ")
    }

    fn notes(&self) -> Vec<String> {
        tables::doubts(&self.title, cells_of(self.document, self.link, self.work))
    }
}

/// Returns the section. `whole_work`: the work has its full size, so that targets apply.
fn section(document: &Document, whole_work: bool, congestion: &str) -> String {
    let rows = rows(document, whole_work);
    let mut text = format!(
        "## Over a WAN: copies from and to a server\n\n{}",
        provenance(document, "cargo xtask bench wan")
    );
    let _ = writeln!(
        text,
        "\nThe link is emulated between two network namespaces, its queue one round trip long; both ends use {congestion} and \
         `tcp_no_metrics_save=1`, with TCP buffers of at most 64 MiB where the link has 622 Mbit/s and the system's own \
         elsewhere. The server is smbd, for rsync its own daemon; files are in memory; each tool has its defaults, \
         rclone with `--transfers` and `--checkers` of 4 and 32. *Floor*: bare TCP moving the same bytes after four \
         set-up round trips, the best of 1, 4 and 16 connections; a number that cannot be better is not tried. *To reach*: \
         1.05 x floor + 2 round trips for one file, 1.04 x for 300, two fixed times for 3,000.\n\n\
         Seconds, read / write, medians of interleaved runs; **bold**: reached; \\*: one run only, for it took more \
         than 60 s; `>`: ended at that time.\n"
    );
    let names: Vec<&str> = CLIENTS
        .iter()
        .map(|(client, _)| tables::client_name(client))
        .collect();
    let _ = writeln!(text, "| work, link | floor | to reach | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|--:|--:|{}", "--:|".repeat(names.len()));
    text.extend(rows.iter().map(Row::main));
    text.push_str(
        "\nThe same with the range of the runs, times the floor, processor time (user+sys) and peak resident memory of \
         the tool:\n\n\
         | work, link | tool | read s | x floor | write s | x floor | user+sys s, read | write | peak MiB, read | write | runs |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    text.extend(rows.iter().map(Row::details));
    text.push_str(
        "\nBare TCP by number of connections, seconds:\n\n| work, link | read | write |\n|---|---|---|\n",
    );
    for row in &rows {
        let [read, write] = Direction::ALL.map(|direction| row.floor(direction));
        let _ = writeln!(text, "| {} | {read} | {write} |", row.title);
    }
    for note in rows.iter().flat_map(Row::notes) {
        let _ = writeln!(text, "\n> {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tables::testing::{cell, document};

    fn parse(word: &str) -> Result<Rows, String> {
        word.parse()
    }

    #[test]
    fn rows_have_names_and_a_work_names_all_its_rows() {
        assert_eq!(parse("small").unwrap().link, None);
        assert_eq!(parse("bulk-32ms-155mbit").unwrap().work, Work::File1gib);
        assert!(parse("bulk").is_err() && parse("32ms-155mbit").is_err() && parse("one-9ms").is_err());
        let rows = |words: &[&str]| {
            let words: Vec<Rows> = words.iter().map(|word| parse(word).unwrap()).collect();
            let scenario = chosen(&words);
            let works =
                |link: &ropeway_lab::scenario::NamedLink| link.works.clone().unwrap_or_default().len();
            scenario.links.iter().map(works).sum::<usize>()
        };
        assert_eq!(rows(&[]), 5);
        assert_eq!(rows(&["office"]), 2);
        assert_eq!(rows(&["one-32ms-155mbit", "bulk-32ms-155mbit", "small"]), 3);
    }

    #[test]
    fn the_target_is_the_floor_and_a_little() {
        let found = goal(Work::File100mb, "75ms-622mbit", Direction::Read, 2.0, 0.075).unwrap();
        assert!((found - 2.25).abs() < 1e-9, "{found}");
        assert_eq!(
            goal(Work::Small3000, "32ms-622mbit", Direction::Write, 9.0, 0.032),
            Some(2.6)
        );
        assert_eq!(
            goal(Work::Small3000, "75ms-622mbit", Direction::Read, 1.0, 0.075),
            None
        );
    }

    #[test]
    fn a_section_has_every_measured_row() {
        let key = |direction, client| ["75ms-622mbit", "file100mb", direction, client, "smbd"];
        let mut cells = vec![
            cell(key("read", "ropeway"), &[2.0, 2.2, 2.1]),
            cell(key("write", "ropeway"), &[9.0]),
            cell(key("read", "smbclient"), &[]),
        ];
        cells.iter_mut().for_each(|cell| cell.floor_seconds = Some(2.0));
        let mut document = document(cells);
        let link = r#"{"name":"75ms-622mbit","kind":"packets","rtt_ms":75,"up_bps":622000000,"loss":0,
            "congestion":"bbr","described":""}"#;
        document.links.push(serde_json::from_str(link).unwrap());
        let text = section(&document, true, "bbr");
        for line in [
            "| one file of 100 MB, 75 ms, 622 Mbit/s | 2.00 / 2.00 | 2.25 / 2.25 | **2.10** / 9.00 | > 300 / - |",
            "| ropeway | 2.10 (2.00-2.20) | 1.05 | 9.00 | 4.50 |",
            "> one file of 100 MB, 75 ms, 622 Mbit/s: ended: smbclient with smbd, read: ended after 300 s",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert!(!section(&document, false, "bbr").contains("2.25 / 2.25"));
    }
}
