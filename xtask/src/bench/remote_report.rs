//! What the sections of `bench wan` and `bench smb` in `docs/benchmarks.md` share.

use std::fmt::Write as _;

use super::record::{Cell, Ending, Record, Sample};
use super::remote_client::{Client, Direction};
use super::report::{SPREAD_MAX, Stats, cell, own_command};

/// Processors that others used on average, above which a result is doubted. A guess: the emulated link and both ends
/// share what is left.
const OTHERS_MAX: f64 = 0.25;
/// Tools in the order of the tables.
pub(super) const CLIENTS: [Client; 5] = [
    Client::Ropeway,
    Client::Smbclient,
    Client::Rclone4,
    Client::Rclone32,
    Client::Rsync,
];

/// Where, when and with what some rows were measured, and who was left out of this call.
pub(super) fn provenance(rows: &[&Record], base: &str, notes: &[String]) -> String {
    let mut machines: Vec<&str> = rows
        .iter()
        .flat_map(|row| &row.visits)
        .map(|visit| visit.machine.as_str())
        .collect();
    machines.sort_unstable();
    machines.dedup();
    let mut text = format!("{}. Made by `{base}`", machines.join("; "));
    let own = own_command();
    if own != base {
        let _ = write!(text, ", in the end `{own}`");
    }
    text.push_str(".\n");
    let mut programs: Vec<(Client, String)> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells) {
        let build = cell.program.build.get(..8).unwrap_or_default();
        let program = (cell.client, format!("{} (build {build})", cell.program.version));
        if !cell.samples.is_empty() && !programs.contains(&program) {
            programs.push(program);
        }
    }
    let mut names: Vec<&str> = programs.iter().map(|(_, name)| name.as_str()).collect();
    names.dedup();
    let _ = writeln!(text, "Versions: {}.", names.join("; "));
    for client in CLIENTS {
        if programs.iter().filter(|(of, _)| *of == client).count() > 1 {
            let _ = writeln!(
                text,
                "\n> {}: not all rows are of the same build; measure the older ones again",
                client.name()
            );
        }
    }
    let mut busy: Vec<&String> = rows
        .iter()
        .flat_map(|row| &row.visits)
        .filter_map(|visit| visit.busy.as_ref())
        .collect();
    busy.sort_unstable();
    busy.dedup();
    for note in notes.iter().chain(busy) {
        let _ = writeln!(text, "\n> {note}");
    }
    text
}

/// Median seconds, with a mark if it is of one run for being slow; else why there are none.
pub(super) fn median(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else {
        return "-".to_owned();
    };
    match (Stats::of(&cell.values(|sample| sample.seconds)), &cell.ending) {
        (Some(stats), _) => {
            let mark = if cell.is_slow() { "\\*" } else { "" };
            format!("{:.2}{mark}", stats.median)
        }
        (None, Some(Ending::Over { seconds, .. })) => format!("> {seconds:.0}"),
        (None, Some(Ending::Failed(_))) => "failed".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

/// Median and range of one value.
pub(super) fn numbers(own: Option<&Cell>, decimals: usize, of: impl Fn(&Sample) -> f64) -> String {
    own.map_or_else(|| "-".to_owned(), |own| cell(&own.values(of), decimals))
}

/// Median and range of the seconds, else why there are none.
pub(super) fn seconds(own: Option<&Cell>) -> String {
    match own.is_some_and(|own| !own.samples.is_empty()) {
        true => numbers(own, 2, |sample| sample.seconds),
        false => median(own),
    }
}

/// Median of one value.
pub(super) fn middle(own: Option<&Cell>, of: impl Fn(&Sample) -> f64) -> Option<f64> {
    Stats::of(&own?.values(of)).map(|stats| stats.median)
}

/// How many times as much.
pub(super) fn times(own: Option<f64>, base: Option<f64>) -> String {
    match (own, base) {
        (Some(own), Some(base)) if base > 0.0 => format!("{:.2}", own / base),
        _ => "-".to_owned(),
    }
}

/// Doubts and losses of a row's cells, a line each kind.
pub(super) fn doubts(title: &str, row: &Record) -> Vec<String> {
    let (mut noisy, mut disturbed, mut ended, mut failed) = (vec![], vec![], vec![], vec![]);
    for client in CLIENTS {
        for direction in Direction::ALL {
            let Some(cell) = row.cell(client, direction) else {
                continue;
            };
            let who = format!("{}, {}", client.name(), direction.name());
            let spread = Stats::of(&cell.values(|sample| sample.seconds)).map_or(0.0, Stats::spread);
            if spread > SPREAD_MAX {
                noisy.push(format!("{who}: {:.0} %", spread * 100.0));
            }
            let others = middle(Some(cell), |sample| sample.others).unwrap_or(0.0);
            if others > OTHERS_MAX {
                disturbed.push(format!("{who}: {others:.2}"));
            }
            match &cell.ending {
                Some(Ending::Over { seconds, done }) => ended.push(format!(
                    "{who}: after {seconds:.0} s with {} of {} files, {:.1} of {:.1} MB",
                    done.files,
                    row.content.files,
                    done.bytes as f64 / 1e6,
                    row.content.bytes as f64 / 1e6
                )),
                Some(Ending::Failed(reason)) => failed.push(format!("{who}: {reason}")),
                None => {}
            }
        }
    }
    let kinds = [
        ("noisy, spread of the runs", noisy),
        ("disturbed, processors that others kept busy meanwhile", disturbed),
        ("ended, unfinished files included", ended),
        ("failed", failed),
    ];
    let told = kinds.into_iter().filter(|(_, cells)| !cells.is_empty());
    told.map(|(kind, cells)| format!("{title}: {kind}: {}", cells.join("; ")))
        .collect()
}

/// Rows for the tests of the tables.
#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::bench::record::{Program, Visit};
    use crate::worksets::Content;

    /// A run of some seconds.
    pub(in crate::bench) fn sample(seconds: f64) -> Sample {
        Sample {
            seconds,
            cpu: seconds / 2.0,
            server_cpu: 0.25,
            peak_mib: 10.0,
            others: 0.0,
        }
    }

    /// A tool with such runs.
    pub(in crate::bench) fn ran(client: Client, direction: Direction, seconds: &[f64]) -> Cell {
        let program = Program {
            version: client.name().to_owned(),
            build: "0123456789abcdef".to_owned(),
        };
        let mut cell = Cell::new(client, direction, program);
        cell.samples = seconds.iter().copied().map(sample).collect();
        cell
    }

    /// A row with some tools.
    pub(in crate::bench) fn row(cells: Vec<Cell>) -> Record {
        Record {
            content: Content {
                files: 1,
                bytes: 100_000_000,
            },
            visits: vec![Visit {
                at: 0,
                machine: "here, today".to_owned(),
                busy: Some("**busy**".to_owned()),
            }],
            cells,
            ..Record::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{ran, row};
    use super::*;
    use crate::worksets::Content;

    #[test]
    fn a_cell_says_what_it_is_or_why_it_is_empty() {
        let cell = ran(Client::Rsync, Direction::Read, &[3.0, 1.0, 2.0]);
        assert_eq!(median(Some(&cell)), "2.00");
        assert_eq!(seconds(Some(&cell)), "2.00 (1.00-3.00)");
        assert_eq!(times(middle(Some(&cell), |sample| sample.cpu), Some(2.0)), "0.50");
        assert_eq!(
            median(Some(&ran(Client::Rsync, Direction::Read, &[99.0]))),
            "99.00\\*"
        );
        let mut none = ran(Client::Rsync, Direction::Read, &[]);
        assert_eq!((median(Some(&none)), median(None)), ("-".into(), "-".into()));
        none.ending = Some(Ending::Failed("x".into()));
        assert_eq!(seconds(Some(&none)), "failed");
        none.ending = Some(Ending::Over {
            seconds: 300.0,
            done: Content::default(),
        });
        assert_eq!(seconds(Some(&none)), "> 300");
        assert_eq!(
            times(middle(Some(&none), |sample| sample.seconds), Some(1.0)),
            "-"
        );
    }

    #[test]
    fn noise_disturbance_and_lost_runs_are_told() {
        let mut noisy = ran(Client::Rsync, Direction::Read, &[1.0, 2.0]);
        noisy.samples[0].others = 1.0;
        noisy.ending = Some(Ending::Failed("gone".into()));
        let mut slow = ran(Client::Smbclient, Direction::Write, &[]);
        slow.ending = Some(Ending::Over {
            seconds: 300.0,
            done: Content {
                files: 0,
                bytes: 2_500_000,
            },
        });
        assert_eq!(
            doubts("one", &row(vec![noisy, slow])),
            [
                "one: noisy, spread of the runs: rsync daemon, read: 67 %",
                "one: disturbed, processors that others kept busy meanwhile: rsync daemon, read: 0.50",
                "one: ended, unfinished files included: smbclient, write: after 300 s with 0 of 1 files, 2.5 of 100.0 MB",
                "one: failed: rsync daemon, read: gone",
            ]
        );
    }

    #[test]
    fn places_builds_and_busy_machines_are_named() {
        let one = row(vec![ran(Client::Rsync, Direction::Read, &[1.0])]);
        let text = provenance(&[&one, &one], "cargo xtask bench x", &["left out".to_owned()]);
        assert!(
            text.starts_with("here, today. Made by `cargo xtask bench x`"),
            "{text}"
        );
        assert!(
            text.contains("Versions: rsync daemon (build 01234567).\n"),
            "{text}"
        );
        assert!(text.ends_with("\n> left out\n\n> **busy**\n"), "{text}");
        assert!(!text.contains("same build"), "{text}");
        let mut other = one.clone();
        other.cells[0].program.build = "fedcba9876543210".to_owned();
        let text = provenance(&[&one, &other], "cargo xtask bench x", &[]);
        assert!(
            text.contains("> rsync daemon: not all rows are of the same build"),
            "{text}"
        );
    }
}
