//! The section of `bench server` in `docs/benchmarks.md`.

use std::fmt::Write as _;

use super::far::Server;
use super::remote_client::{Client, Direction};
use super::report::{SPREAD_MAX, Stats, cell, own_command};
use super::server::{Work, key};
use super::server_record::{Cell, Row, Sample, Store};
use super::smb::Protection;

/// Processors that others used on average, above which a result is doubted. A guess, as in the other tables.
const OTHERS_MAX: f64 = 0.25;
/// Our server's processor time as part of smbd's.
const CPU_GOAL: f64 = 1.0;

/// Our server's speed as part of smbd's.
fn speed_goal(work: Work) -> f64 {
    match work {
        Work::Bulk | Work::List => 1.0,
        Work::Small => 1.5,
    }
}

/// The section; nothing if nothing is known. `whole`: the work was not scaled, so that there is something to reach.
pub(super) fn section(store: &Store, notes: &[String], whole: bool) -> Option<String> {
    let mut rows: Vec<(Work, Direction, Protection, &Row)> = Vec::new();
    for protection in Protection::ALL {
        for work in Work::ALL {
            for &direction in work.directions() {
                if let Some(row) = store.get(&key(work, direction, protection)) {
                    rows.push((work, direction, protection, row));
                }
            }
        }
    }
    if rows
        .iter()
        .all(|(.., row)| row.cells.iter().all(|cell| cell.samples.is_empty()))
    {
        return None;
    }
    let mut text = String::from("## The server beside others: one folder in memory, two clients\n\n");
    provenance(&mut text, &rows, notes);
    text.push_str(
        "\nAll servers run at the same time on this machine and serve the same folder in memory; clients and servers take turns. \
         *Bulk*: one file of 1 GiB; *small*: 3,000 files of 1 to 64 KB; *list*: one folder of 100,000 entries. *Server s*: \
         user+sys of all its processes meanwhile; *peak*: the most memory they had, what processes share counted once. \
         **Bold**: reached; to reach are smbd's speed (small files: 1.5 times) and no more than its processor time.\n",
    );
    for protection in Protection::ALL {
        let own: Vec<_> = rows.iter().filter(|row| row.2 == protection).collect();
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n**{}**, median (min-max) of interleaved runs:\n\n\
             | work | | client | server | time s | rate | speed of smbd's | server s | of smbd's | peak MiB | runs |\n\
             |---|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
            protection.name()
        );
        for (work, direction, _, row) in own {
            table(&mut text, *work, *direction, row, whole);
        }
    }
    for (work, direction, protection, row) in &rows {
        for note in doubts(&key(*work, *direction, *protection), row) {
            let _ = writeln!(text, "\n> {note}");
        }
    }
    Some(text)
}

fn provenance(text: &mut String, rows: &[(Work, Direction, Protection, &Row)], notes: &[String]) {
    let sorted = |mut words: Vec<String>| {
        words.sort_unstable();
        words.dedup();
        words
    };
    let visits = || rows.iter().flat_map(|(.., row)| &row.visits);
    let machines = sorted(visits().map(|visit| visit.machine.clone()).collect());
    let programs = rows
        .iter()
        .flat_map(|(.., row)| &row.cells)
        .filter(|cell| !cell.samples.is_empty())
        .flat_map(|cell| &cell.programs)
        .map(|program| {
            format!(
                "{} (build {})",
                program.version,
                program.build.get(..8).unwrap_or_default()
            )
        });
    let _ = writeln!(
        text,
        "{}. Made by `{}`.\nVersions: {}.",
        machines.join("; "),
        own_command(),
        sorted(programs.collect()).join("; ")
    );
    let busy = sorted(visits().filter_map(|visit| visit.busy.clone()).collect());
    for note in notes.iter().chain(&busy) {
        let _ = writeln!(text, "\n> {note}");
    }
}

fn table(text: &mut String, work: Work, direction: Direction, row: &Row, whole: bool) {
    for client in [Client::Ropeway, Client::Smbclient] {
        let base = row.get(client, Server::Smbd);
        for server in Server::ALL {
            let Some(own) = row.get(client, server) else {
                continue;
            };
            let start = format!(
                "| {} | {} | {} | {} |",
                work.name(),
                direction.name(),
                client.name(),
                server.name()
            );
            if own.samples.is_empty() {
                let why = own.failed.as_deref().unwrap_or("not measured").replace('|', "/");
                let _ = writeln!(text, "{start} failed: {why} | | | | | | 0 |");
                continue;
            }
            let is_ours = whole && server == Server::Ropeway;
            let speed = part(own, base, |sample| 1.0 / sample.seconds.max(f64::MIN_POSITIVE));
            let cpu = part(own, base, |sample| sample.server_cpu);
            let _ = writeln!(
                text,
                "{start} {} | {} | {} | {} | {} | {} | {} |",
                cell(&own.values(|sample| sample.seconds), 2),
                rate(work, row, own),
                times(speed, is_ours, |speed| speed >= speed_goal(work)),
                cell(&own.values(|sample| sample.server_cpu), 2),
                times(cpu, is_ours, |cpu| cpu <= CPU_GOAL),
                cell(&own.values(|sample| sample.server_mib), 0),
                own.samples.len()
            );
        }
    }
}

fn middle(cell: &Cell, of: impl Fn(&Sample) -> f64) -> Option<f64> {
    Stats::of(&cell.values(of)).map(|stats| stats.median)
}

/// MB/s, files or entries a second.
fn rate(work: Work, row: &Row, own: &Cell) -> String {
    let seconds = middle(own, |sample| sample.seconds).unwrap_or(f64::INFINITY);
    let (amount, unit) = match work {
        Work::Bulk => (row.content.bytes as f64 / 1e6, "MB/s"),
        Work::Small => (row.content.files as f64, "files/s"),
        Work::List => (row.content.files as f64, "entries/s"),
    };
    format!("{:.0} {unit}", amount / seconds.max(f64::MIN_POSITIVE))
}

fn part(own: &Cell, base: Option<&Cell>, of: impl Fn(&Sample) -> f64 + Copy) -> Option<f64> {
    let (own, base) = (middle(own, of)?, middle(base?, of)?);
    (base > 0.0).then(|| own / base)
}

fn times(value: Option<f64>, is_judged: bool, reached: impl Fn(f64) -> bool) -> String {
    match value {
        None => "-".to_owned(),
        // What is shown is judged: 0.996 is 1.00.
        Some(value) if is_judged && reached((value * 100.0).round() / 100.0) => format!("**{value:.2} x**"),
        Some(value) => format!("{value:.2} x"),
    }
}

/// Doubts and failures of a row's cells, a line each kind.
fn doubts(title: &str, row: &Row) -> Vec<String> {
    let (mut noisy, mut disturbed, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for cell in &row.cells {
        let who = format!("{} with {}", cell.client.name(), cell.server.name());
        let spread = Stats::of(&cell.values(|sample| sample.seconds)).map_or(0.0, Stats::spread);
        if spread > SPREAD_MAX {
            noisy.push(format!("{who}: {:.0} %", spread * 100.0));
        }
        let others = middle(cell, |sample| sample.others).unwrap_or(0.0);
        if others > OTHERS_MAX {
            disturbed.push(format!("{who}: {others:.2}"));
        }
        if let Some(reason) = &cell.failed {
            failed.push(format!("{who}: {reason}"));
        }
    }
    let kinds = [
        ("noisy, spread of the runs", noisy),
        ("disturbed, processors that others kept busy meanwhile", disturbed),
        ("failed", failed),
    ];
    let told = kinds.into_iter().filter(|(_, cells)| !cells.is_empty());
    told.map(|(kind, cells)| format!("{title}: {kind}: {}", cells.join("; ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::Program;
    use crate::worksets::Content;

    fn measured(row: &mut Row, server: Server, seconds: f64, server_cpu: f64) {
        let program = Program::default();
        let cell = row.cell(Client::Smbclient, server, [&program, &program], false);
        cell.samples.push(Sample {
            seconds,
            client_cpu: 0.1,
            server_cpu,
            server_mib: 20.0,
            others: 0.0,
        });
    }

    #[test]
    fn a_section_compares_with_smbd() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), "server").unwrap();
        assert!(section(&store, &[], true).is_none());
        let row = store.row(&key(Work::Small, Direction::Read, Protection::Signed));
        row.prepare(
            "here",
            Content {
                files: 3000,
                bytes: 98_000_000,
            },
        );
        measured(row, Server::Ropeway, 2.0, 0.5);
        measured(row, Server::Smbd, 3.0, 1.0);
        let program = Program::default();
        row.cell(Client::Smbclient, Server::Crate, [&program, &program], false)
            .failed = Some("no|thing".into());
        let text = section(&store, &["a note".into()], true).unwrap();
        for line in [
            "| small | read | smbclient | ropeway serve | 2.00 | 1500 files/s | **1.50 x** | 0.50 | **0.50 x** | 20 | 1 |",
            "| small | read | smbclient | smbd | 3.00 | 1000 files/s | 1.00 x | 1.00 | 1.00 x | 20 | 1 |",
            "| small | read | smbclient | smb-server 0.8 | failed: no/thing |",
            "> a note",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert!(section(&store, &[], false).unwrap().contains("| 1.50 x |"));
    }
}
