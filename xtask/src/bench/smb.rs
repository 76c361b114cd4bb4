//! `cargo xtask bench smb`: runs the lab's scenario `smb` and writes its sections. The server is on
//! this machine, so that the client itself is measured.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ropeway_lab::report::{Cell, Document, Run};
use ropeway_lab::scenario::{Changes, Client, Direction, Pair, Protection, Scenario, Server};
use ropeway_lab::work::Work;

use super::network::{self, Call, Options, choose, parse_client, set_channels};
use super::tables::{self, client_mib, factor, find, numbers, provenance, ratio, seconds, whole};
use crate::workspace::Workspace;

/// Names of works on the command line and in section names.
const WORKS: [(&str, Work); 2] = [("bulk", Work::File1gib), ("small", Work::Small3000)];

/// Options of `bench smb`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Works: bulk, small [default: both]
    #[arg(long, value_delimiter = ',', value_parser = |text: &str| network::parse_work(&WORKS, text))]
    work: Vec<Work>,
    /// Protections: signed, sealed [default: both]
    #[arg(long, value_delimiter = ',')]
    protection: Vec<Protection>,
    /// Tools to compare: ropeway, smbclient, rclone4, rclone32 [default: ropeway, smbclient]
    #[arg(long, value_delimiter = ',', value_parser = parse_client)]
    clients: Vec<Client>,
    /// Largest number of connections of ropeway [default: 2]
    #[arg(long)]
    channels: Option<u16>,
    #[command(flatten)]
    options: Options,
}

/// Measures the chosen part and writes the sections.
///
/// # Errors
/// The lab cannot go on, ropeway fails or copies wrongly, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(
        !arguments.clients.contains(&Client::Rsync),
        "an rsync daemon does not sign; `bench wan` has it"
    );
    let mut scenario = Scenario::shipped("smb").context("the scenario is missing")??;
    if !arguments.clients.is_empty() {
        let server = Server::Smbd;
        scenario.pairs = arguments
            .clients
            .iter()
            .map(|&client| Pair { client, server })
            .collect();
    }
    let works = arguments.work.clone();
    let changes = Changes {
        works,
        ..Changes::default()
    };
    let mut scenario = choose(scenario, &arguments.protection, &changes)?;
    let call = Call {
        workspace,
        folder,
        options: &arguments.options,
        variant: set_channels(&mut scenario, arguments.channels),
        smb_server: None,
    };
    call.run(scenario, |document, whole_work| {
        let sections = WORKS.into_iter().filter_map(|(name, work)| {
            Some((format!("bench smb {name}"), section(document, work, whole_work)?))
        });
        sections.collect()
    })
}

/// Returns the targets, as parts of smbclient's time and of its processor time.
fn goals(work: Work, protection: Protection) -> [Option<f64>; 2] {
    match (work, protection) {
        (Work::File1gib, Protection::Signed) => [Some(0.75), Some(0.75)],
        (Work::File1gib, Protection::Sealed) => [Some(0.65), Some(0.65)],
        (Work::Small3000, _) => [Some(0.6), None],
        _ => [None, None],
    }
}

/// Returns the section of one work; `None` without results. `whole_work`: the work has its full
/// size, so that targets apply.
fn section(document: &Document, work: Work, whole_work: bool) -> Option<String> {
    let of_work = |cell: &&Cell| cell.key.work == work.name() && cell.counted().count() > 0;
    let first = document.cells.iter().find(of_work)?;
    let files = match first.files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    let mut text = format!(
        "## A server on the same machine: {} ({files}, {:.1} MB)\n\n{}\n\
         The server is smbd, files are in memory, two connections are allowed to ropeway; *smbd s* is the server's own \
         user+sys.\n",
        work.title(),
        first.payload_bytes as f64 / 1e6,
        provenance(document, "cargo xtask bench smb")
    );
    for protection in Protection::ALL {
        let there = document.cells.iter().filter(of_work);
        if there.clone().any(|cell| cell.key.link == protection.name()) {
            table(
                &mut text,
                document,
                work,
                protection,
                whole_work.then(|| goals(work, protection)),
            );
        }
    }
    Some(text)
}

fn table(
    text: &mut String,
    document: &Document,
    work: Work,
    protection: Protection,
    goals: Option<[Option<f64>; 2]>,
) {
    let _ = writeln!(
        text,
        "\n**{}**, median (min-max) of interleaved runs; **bold**: reached:\n\n\
         | tool | | time s | of smbclient's | user+sys s | of smbclient's | smbd s | peak MiB | runs |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|",
        protection.name(),
    );
    let client_cpu = |run: &Run| run.client_cpu_seconds;
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
        let of = |client| {
            find(
                document,
                [protection.name(), work.name(), direction.name(), client, "smbd"],
            )
        };
        let base = of("smbclient");
        for client in ["ropeway", "smbclient", "rclone", "rclone-32"] {
            let Some(own) = of(client) else { continue };
            let is_ours = client == "ropeway";
            let meets = |ratio, goal: Option<f64>| is_ours && goal.is_some_and(|goal| ratio <= goal);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                tables::client_name(client),
                direction.name(),
                seconds(Some(own)),
                factor(ratio(Some(own), base, whole), |ratio| meets(ratio, time)),
                numbers(Some(own), 2, client_cpu),
                factor(ratio(Some(own), base, client_cpu), |ratio| meets(ratio, cpu)),
                numbers(Some(own), 2, |run| run.server_cpu_seconds),
                numbers(Some(own), 1, client_mib),
                own.counted().count(),
            );
        }
    }
    let own = document.cells.iter();
    let own = own.filter(|cell| cell.key.link == protection.name() && cell.key.work == work.name());
    for note in tables::doubts(protection.name(), own) {
        let _ = writeln!(text, "\n> {note}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tables::testing::{cell, document};

    #[test]
    fn a_section_compares_with_smbclient() {
        let key = |direction, client| ["signed", "file1gib", direction, client, "smbd"];
        let document = document(vec![
            cell(key("read", "ropeway"), &[0.75, 0.75]),
            cell(key("read", "smbclient"), &[1.0, 1.0]),
            cell(key("write", "ropeway"), &[0.8]),
            cell(key("write", "smbclient"), &[1.0]),
            cell(key("write", "rclone"), &[2.0]),
        ]);
        assert!(section(&document, Work::Small3000, true).is_none());
        let text = section(&document, Work::File1gib, true).unwrap();
        for line in [
            "| *to reach* | | | *0.75 x* | | *0.75 x* | | | |",
            "| ropeway | read | 0.75 (0.75-0.75) | **0.75 x** | 0.38 (0.38-0.38) | **0.75 x** |",
            "| ropeway | write | 0.80 | 0.80 x | 0.40 | 0.80 x | 0.25 | 10.0 | 1 |",
            "| rclone -4 | write | 2.00 | 2.00 x |",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        let text = section(&document, Work::File1gib, false).unwrap();
        assert!(
            !text.contains("*to reach*") && text.contains("| 0.75 x |"),
            "{text}"
        );
    }

    #[test]
    fn other_channels_are_a_variant() {
        let mut scenario = Scenario::shipped("smb").unwrap().unwrap();
        assert!(set_channels(&mut scenario, Some(2)).is_empty());
        assert_eq!(set_channels(&mut scenario, Some(4)), ["--channels", "4"]);
        assert_eq!(scenario.ropeway_flags, ["--channels", "4"]);
        let changes = Changes {
            works: vec![Work::Small3000],
            ..Changes::default()
        };
        let scenario = choose(scenario, &[Protection::Sealed], &changes).unwrap();
        assert_eq!((scenario.links.len(), scenario.works.len()), (1, 1));
    }
}
