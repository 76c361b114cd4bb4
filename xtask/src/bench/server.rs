//! `cargo xtask bench server`: runs the lab's scenario `server` and writes its section, which
//! compares `ropeway serve` with smbd and the crate smb-server.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ropeway_lab::report::{Cell, Document, Run};
use ropeway_lab::scenario::{Changes, Client, Direction, Protection, Scenario, Server};
use ropeway_lab::work::Work;

use super::network::{self, Call, Options, choose, parse_client, set_channels};
use super::tables::{doubts, factor, find, middle, numbers, provenance, ratio, seconds, server_mib, whole};
use crate::process::run as run_command;
use crate::workspace::Workspace;

/// Manifest of the program that serves with the crate smb-server; it is built outside the
/// workspace.
const CRATE_MANIFEST: &str = include_str!("../../peers/smb_server.toml");
/// Source of that program.
const CRATE_SOURCE: &str = include_str!("../../peers/smb_server.rs");
/// Target for our server's processor time, as a part of smbd's.
const CPU_GOAL: f64 = 0.7;
/// Names of works on the command line and in the table.
const WORKS: [(&str, Work); 3] = [
    ("bulk", Work::File1gib),
    ("small", Work::Small3000),
    ("list", Work::List100k),
];

/// Options of `bench server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Works: bulk, small, list [default: all]
    #[arg(long, value_delimiter = ',', value_parser = |text: &str| network::parse_work(&WORKS, text))]
    work: Vec<Work>,
    /// Protections: signed, sealed [default: both]
    #[arg(long, value_delimiter = ',')]
    protection: Vec<Protection>,
    /// Servers: ropeway, smbd, crate [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_server)]
    servers: Vec<Server>,
    /// Clients: ropeway, smbclient [default: both]
    #[arg(long, value_delimiter = ',', value_parser = parse_client)]
    clients: Vec<Client>,
    /// Largest number of connections of ropeway's client [default: 2]
    #[arg(long)]
    channels: Option<u16>,
    #[command(flatten)]
    options: Options,
}

fn parse_server(text: &str) -> Result<Server, String> {
    match text {
        "crate" => Ok(Server::SmbServer),
        text => text.parse(),
    }
}

/// Measures the chosen part and writes the section.
///
/// # Errors
/// The lab cannot go on, ropeway fails or copies wrongly, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    let scenario = Scenario::shipped("server").context("the scenario is missing")??;
    let changes = Changes {
        works: arguments.work.clone(),
        clients: arguments.clients.clone(),
        servers: arguments.servers.clone(),
        ..Changes::default()
    };
    let mut scenario = choose(scenario, &arguments.protection, &changes)?;
    let wanted = scenario.pairs.iter().any(|pair| pair.server == Server::SmbServer);
    let measures = wanted && !arguments.options.only_reports();
    let call = Call {
        workspace,
        folder,
        options: &arguments.options,
        variant: set_channels(&mut scenario, arguments.channels),
        smb_server: measures.then(|| build_crate(workspace)).and_then(|built| {
            built
                .map_err(|error| println!("left out: smb-server: {error:#}"))
                .ok()
        }),
    };
    call.run(scenario, |document, whole_work| {
        let section = section(document, whole_work);
        section
            .map(|text| ("bench server".to_owned(), text))
            .into_iter()
            .collect()
    })
}

fn build_crate(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("bench/smb-server");
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), CRATE_MANIFEST)?;
    fs::write(folder.join("src/main.rs"), CRATE_SOURCE)?;
    let mut build = workspace.cargo(["build", "--release", "--quiet"]);
    build
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"));
    run_command(&mut build).context("the crate smb-server does not build")?;
    Ok(folder.join("target/release/far"))
}

/// Returns the target for our server's speed, as part of smbd's.
fn speed_goal(work: Work) -> f64 {
    if work == Work::Small3000 { 1.5 } else { 1.0 }
}

fn server_name(server: &str) -> &str {
    match server {
        "ropeway" => "ropeway serve",
        "smb-server" => "smb-server 0.8",
        name => name,
    }
}

/// Returns the section; `None` without results. `whole_work`: the work has its full size, so that
/// targets apply.
fn section(document: &Document, whole_work: bool) -> Option<String> {
    document.cells.iter().find(|cell| cell.counted().count() > 0)?;
    let mut text = format!(
        "## The server beside others: one folder in memory, two clients\n\n{}",
        provenance(document, "cargo xtask bench server")
    );
    text.push_str(
        "\nAll servers run at the same time on this machine and serve the same folder in memory; clients and servers take turns. \
         *Bulk*: one file of 1 GiB; *small*: 3,000 files of 1 to 64 KB; *list*: one folder of 100,000 entries. *Server s*: \
         user+sys of all its processes meanwhile; *peak*: the most memory they had, what processes share counted once. \
         **Bold**: reached; to reach are smbd's speed (small files: 1.5 times) and at most 0.7 of its processor time.\n",
    );
    for protection in Protection::ALL {
        let own = document
            .cells
            .iter()
            .filter(|cell| cell.key.link == protection.name());
        if own.clone().next().is_none() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n**{}**, median (min-max) of interleaved runs:\n\n\
             | work | | client | server | time s | rate | speed of smbd's | server s | of smbd's | peak MiB | runs |\n\
             |---|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
            protection.name()
        );
        for (name, work) in WORKS {
            for direction in Direction::ALL {
                for client in ["ropeway", "smbclient"] {
                    let key = [protection.name(), work.name(), direction.name(), client];
                    table(&mut text, document, (name, work), key, whole_work);
                }
            }
        }
        for (name, work) in WORKS {
            let cells = own.clone().filter(|cell| cell.key.work == work.name());
            for note in doubts(&format!("{name}, {}", protection.name()), cells) {
                let _ = writeln!(text, "\n> {note}");
            }
        }
    }
    Some(text)
}

fn table(
    text: &mut String,
    document: &Document,
    (name, work): (&str, Work),
    [link, of, direction, client]: [&str; 4],
    whole_work: bool,
) {
    let find = |server| find(document, [link, of, direction, client, server]);
    let base = find("smbd");
    for server in ["ropeway", "smbd", "smb-server"] {
        let Some(own) = find(server) else { continue };
        let start = format!("| {name} | {direction} | {client} | {} |", server_name(server));
        let Some(time) = middle(Some(own), whole) else {
            let _ = writeln!(text, "{start} {} | | | | | | 0 |", seconds(Some(own)));
            continue;
        };
        let is_ours = whole_work && server == "ropeway";
        let speed = ratio(Some(own), base, |run| {
            Some(1.0 / run.whole_seconds.max(f64::MIN_POSITIVE))
        });
        let server_cpu = |run: &Run| run.server_cpu_seconds;
        let cpu = ratio(Some(own), base, server_cpu);
        let _ = writeln!(
            text,
            "{start} {} | {} | {} | {} | {} | {} | {} |",
            seconds(Some(own)),
            rate(work, own, time),
            factor(speed, |speed| is_ours && speed >= speed_goal(work)),
            numbers(Some(own), 2, server_cpu),
            factor(cpu, |cpu| is_ours && cpu <= CPU_GOAL),
            numbers(Some(own), 0, server_mib),
            own.counted().count()
        );
    }
}

/// Formats MB/s, files/s or entries/s.
fn rate(work: Work, own: &Cell, seconds: f64) -> String {
    let (amount, unit) = match work {
        Work::File1gib => (own.payload_bytes as f64 / 1e6, "MB/s"),
        Work::List100k => (own.files as f64, "entries/s"),
        _ => (own.files as f64, "files/s"),
    };
    format!("{:.0} {unit}", amount / seconds.max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tables::testing::{cell, document};

    #[test]
    fn a_section_compares_with_smbd() {
        assert!(section(&document(Vec::new()), true).is_none());
        let key = |server| ["signed", "small3000", "read", "smbclient", server];
        let document = document(vec![
            cell(key("ropeway"), &[2.0]),
            cell(key("smbd"), &[3.0]),
            cell(key("smb-server"), &[]),
        ]);
        let text = section(&document, true).unwrap();
        for line in [
            "| small | read | smbclient | ropeway serve | 2.00 | 1500 files/s | **1.50 x** | 0.25 | 1.00 x | 20 | 1 |",
            "| small | read | smbclient | smbd | 3.00 | 1000 files/s | 1.00 x | 0.25 | 1.00 x | 20 | 1 |",
            "| small | read | smbclient | smb-server 0.8 | > 300 | | |",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert!(section(&document, false).unwrap().contains("| 1.50 x |"));
    }
}
