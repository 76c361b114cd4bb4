//! `cargo xtask bench smb`: the lab's scenario `smb`, and its sections. A server on this machine
//! shows what the client itself costs.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ropeway_lab::report::{Cell, Document, Run};
use ropeway_lab::scenario::{Client, Direction, Pair, Protection, Scenario, Server};
use ropeway_lab::work::Work;

use super::network::{self, Call, Options, parse_client, verdict};
use super::tables::{self, client_mib, find, middle, numbers, provenance, seconds, times, whole};
use crate::workspace::Workspace;

/// Names of works on the command line and in section names.
const WORKS: [(&str, Work); 2] = [("bulk", Work::File1gib), ("small", Work::Small3000)];

/// Options of `bench smb`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Works: bulk, small [default: both]
    #[arg(long, value_delimiter = ',', value_parser = parse_work)]
    work: Vec<Work>,
    /// Protections: signed, sealed [default: both]
    #[arg(long, value_delimiter = ',')]
    protection: Vec<Protection>,
    /// Tools to compare: ropeway, smbclient, rclone4, rclone32 [default: ropeway, smbclient]
    #[arg(long, value_delimiter = ',', value_parser = parse_client)]
    clients: Vec<Client>,
    /// Most connections of ropeway [default: 2]
    #[arg(long)]
    channels: Option<u16>,
    #[command(flatten)]
    options: Options,
}

fn parse_work(text: &str) -> Result<Work, String> {
    network::parse_work(&WORKS, text)
}

/// Sets the connections of ropeway in a scenario. Returns what makes the results a variant.
pub(super) fn set_channels(scenario: &mut Scenario, channels: Option<u16>) -> Vec<String> {
    let Some(channels) = channels else {
        return Vec::new();
    };
    let flags = vec!["--channels".to_owned(), channels.to_string()];
    let plain = scenario.ropeway_flags == flags;
    scenario.ropeway_flags.clone_from(&flags);
    if plain { Vec::new() } else { flags }
}

/// Keeps the links of these protections, and these works.
pub(super) fn choose(scenario: &mut Scenario, protections: &[Protection], works: &[Work]) {
    scenario.links.retain(|link| {
        protections.is_empty() || link.protection.is_some_and(|known| protections.contains(&known))
    });
    scenario
        .works
        .retain(|work| works.is_empty() || works.contains(work));
}

/// Measures what is asked for and writes the sections.
///
/// # Errors
/// The lab cannot go on, ropeway fails or copies wrongly, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(
        !arguments.clients.contains(&Client::Rsync),
        "an rsync daemon does not sign; `bench wan` has it"
    );
    let mut scenario = Scenario::shipped("smb").context("the scenario is missing")??;
    choose(&mut scenario, &arguments.protection, &arguments.work);
    if !arguments.clients.is_empty() {
        let server = Server::Smbd;
        scenario.pairs = arguments
            .clients
            .iter()
            .map(|&client| Pair { client, server })
            .collect();
    }
    let variant = set_channels(&mut scenario, arguments.channels);
    let call = Call {
        workspace,
        folder,
        options: &arguments.options,
        variant,
        smb_server: None,
    };
    let Some(document) = call.measure(scenario)? else {
        return Ok(());
    };
    for (name, work) in WORKS {
        if let Some(text) = section(&document, work, arguments.options.is_whole()) {
            call.publish(&format!("bench smb {name}"), &text)?;
        }
    }
    verdict(&document)
}

/// Targets: parts of smbclient's time and of its processor time.
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
            let goal = |goal: Option<f64>| goal.filter(|_| client == "ropeway");
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                tables::client_name(client),
                direction.name(),
                seconds(Some(own)),
                part(own, base, goal(time), whole),
                numbers(Some(own), 2, |run| run.client_cpu_seconds),
                part(own, base, goal(cpu), |run| run.client_cpu_seconds),
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

fn part(
    own: &Cell,
    base: Option<&Cell>,
    goal: Option<f64>,
    of: impl Fn(&Run) -> Option<f64> + Copy,
) -> String {
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
        choose(&mut scenario, &[Protection::Sealed], &[Work::Small3000]);
        assert_eq!((scenario.links.len(), scenario.works.len()), (1, 1));
    }
}
