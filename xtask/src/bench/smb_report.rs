//! The sections of `bench smb` in `docs/benchmarks.md`.

use std::fmt::Write as _;

use super::record::{Cell, Record, Sample, Store};
use super::remote::described;
use super::remote_client::{Client, Direction};
use super::remote_report::{CLIENTS, doubts, middle, numbers, provenance, seconds, times};
use super::smb::{Protection, goals, key};
use crate::worksets::Cargo;

/// The section of one work; `None` if nothing is known of it. `whole`: the work is not scaled, so that there is something
/// to reach.
pub(super) fn section(store: &Store, cargo: Cargo, whole: bool, notes: &[String]) -> Option<String> {
    let rows: Vec<(Protection, &Record)> = Protection::ALL
        .into_iter()
        .filter_map(|protection| Some((protection, store.get(&key(cargo, protection))?)))
        .filter(|(_, row)| row.cells.iter().any(|cell| !cell.samples.is_empty()))
        .collect();
    let records: Vec<&Record> = rows.iter().map(|(_, row)| *row).collect();
    let content = records.first()?.content;
    let mut text = format!(
        "## A server on the same machine: {} ({})\n\n{}",
        cargo.title(),
        described(content),
        provenance(&records, "cargo xtask bench smb", notes)
    );
    text.push_str(
        "\nThe server is smbd, files are in memory, two connections are allowed to ropeway; *smbd s* is the server's own \
         user+sys.\n",
    );
    for (protection, row) in rows {
        table(
            &mut text,
            protection,
            row,
            whole.then(|| goals(cargo, protection)),
        );
    }
    Some(text)
}

fn table(text: &mut String, protection: Protection, row: &Record, goals: Option<[Option<f64>; 2]>) {
    let _ = writeln!(
        text,
        "\n**{}**, median (min-max) of interleaved runs; **bold**: reached:\n\n\
         | tool | | time s | of smbclient's | user+sys s | of smbclient's | smbd s | peak MiB | runs |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|",
        protection.name(),
    );
    let [time, cpu] = goals.unwrap_or_default();
    if goals.is_some() {
        let shown = |goal: Option<f64>| goal.map_or_else(String::new, |goal| format!("*{goal:.2} x*"));
        let _ = writeln!(
            text,
            "| *to reach* | | | {} | | {} | | | |",
            shown(time),
            shown(cpu)
        );
    }
    for direction in Direction::ALL {
        let base = row.cell(Client::Smbclient, direction);
        for client in CLIENTS {
            let Some(own) = row.cell(client, direction) else {
                continue;
            };
            let goal = |goal: Option<f64>| goal.filter(|_| client == Client::Ropeway);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                client.name(),
                direction.name(),
                seconds(Some(own)),
                part(own, base, goal(time), |sample| sample.seconds),
                numbers(Some(own), 2, |sample| sample.cpu),
                part(own, base, goal(cpu), |sample| sample.cpu),
                numbers(Some(own), 2, |sample| sample.server_cpu),
                numbers(Some(own), 1, |sample| sample.peak_mib),
                own.samples.len(),
            );
        }
    }
    for note in doubts(protection.name(), row) {
        let _ = writeln!(text, "\n> {note}");
    }
}

fn part(own: &Cell, base: Option<&Cell>, goal: Option<f64>, of: impl Fn(&Sample) -> f64 + Copy) -> String {
    let (own, base) = (middle(Some(own), of), middle(base, of));
    let text = times(own, base);
    match (own, base, goal) {
        _ if text == "-" => text,
        (Some(own), Some(base), Some(goal)) if own <= goal * base => format!("**{text} x**"),
        _ => format!("{text} x"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::remote_report::testing::{ran, row};

    #[test]
    fn a_section_compares_with_smbclient() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), "smb").unwrap();
        assert!(section(&store, Cargo::Bulk, true, &[]).is_none());
        *store.row(&key(Cargo::Bulk, Protection::Signed)) = row(vec![
            ran(Client::Ropeway, Direction::Read, &[0.75, 0.75]),
            ran(Client::Smbclient, Direction::Read, &[1.0, 1.0]),
            ran(Client::Ropeway, Direction::Write, &[0.8]),
            ran(Client::Smbclient, Direction::Write, &[1.0]),
            ran(Client::Rclone4, Direction::Write, &[2.0]),
        ]);
        let text = section(&store, Cargo::Bulk, true, &[]).unwrap();
        for line in [
            "| *to reach* | | | *0.75 x* | | *0.75 x* | | | |",
            "| ropeway | read | 0.75 (0.75-0.75) | **0.75 x** | 0.38 (0.38-0.38) | **0.75 x** |",
            "| ropeway | write | 0.80 | 0.80 x | 0.40 | 0.80 x | 0.25 | 10.0 | 1 |",
            "| rclone -4 | write | 2.00 | 2.00 x |",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        let text = section(&store, Cargo::Bulk, false, &[]).unwrap();
        assert!(
            !text.contains("*to reach*") && text.contains("| 0.75 x |"),
            "{text}"
        );
    }
}
