//! `cargo xtask bench local`: runs the lab's local copies and writes their sections.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ropeway_lab::local::copies::{self, Cache, GENTLE, Tool};
use ropeway_lab::local::volume::{FileSystem, Volumes};
use ropeway_lab::report::{Cell, Document, Outcome, Run};
use ropeway_lab::work::Work;

use super::network;
use super::tables::{self, client_mib, client_name, factor, numbers, provenance, ratio, whole};
use crate::process::{find_program, interrupt_flag};
use crate::suites::install_crate;
use crate::workspace::Workspace;

/// Names of works on the command line and in section names.
pub(super) const WORKS: [(&str, Work); 3] = [
    ("small", Work::Small100k),
    ("big", Work::File4gib),
    ("mixed", Work::Mixed3000),
];
/// The tools, in the order of the tables.
const TOOLS: [&str; 5] = ["ropeway", "cp", "rsync", "xcp", "cpz"];

/// Options of `bench local`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Works: small, big, mixed [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_work)]
    work: Vec<Work>,
    /// Tools to compare: ropeway, cp, rsync, xcp, cpz [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_tool)]
    clients: Vec<&'static str>,
    /// Only with an empty page cache
    #[arg(long)]
    cold: bool,
    /// Only with the source in the page cache
    #[arg(long)]
    warm: bool,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    options: LocalOptions,
}

/// Options of all local benchmarks.
#[derive(Debug, clap::Args)]
pub(super) struct LocalOptions {
    /// Counted rounds; one more goes first and is not counted, unless this is 1
    #[arg(long, default_value_t = 5)]
    pub(super) runs: u32,
    /// Multiplies the size of the work
    #[arg(long, default_value_t = 1.0)]
    pub(super) scale: f64,
    /// File system of source and target: ext4, xfs, btrfs
    #[arg(long, default_value = "ext4")]
    fs: FileSystem,
    /// Loop devices bypass the page cache of their images
    #[arg(long)]
    loop_direct: bool,
    /// Measure this build of ropeway instead of a release build, and do not touch docs/benchmarks.md
    #[arg(long, value_name = "FILE")]
    pub(super) binary: Option<PathBuf>,
}

impl LocalOptions {
    /// Whether the results are published: only those of the whole work by a release build are.
    pub(super) fn published(&self, scale: f64) -> bool {
        scale >= 1.0 && self.binary.is_none()
    }

    /// Prepares the volumes.
    ///
    /// # Errors
    /// An option is out of bounds, or leftovers cannot be removed.
    pub(super) fn volumes(&self, folder: &Path) -> Result<Volumes> {
        ensure!(self.runs > 0, "--runs must be at least 1");
        tables::check_scale(self.scale)?;
        let volumes = Volumes::new(folder, self.fs, self.loop_direct, self.scale);
        let volumes = volumes.context("cannot prepare file systems")?;
        if !volumes.are_real() {
            println!(
                "warning: without root all runs share one plain folder and slow each other down, and caches cannot \
                 be dropped. Such figures must not be published."
            );
        }
        Ok(volumes)
    }
}

/// Parses the name of a work.
pub(super) fn parse_work(text: &str) -> Result<Work, String> {
    network::parse_work(&WORKS, text)
}

/// Parses the name of a tool.
pub(super) fn parse_tool(text: &str) -> Result<&'static str, String> {
    let found = TOOLS.into_iter().find(|name| *name == text);
    found.ok_or_else(|| format!("there are {}", TOOLS.join(", ")))
}

/// Finds a tool; builds ropeway, and installs a crate that is missing.
///
/// # Errors
/// The tool is not available.
pub(super) fn install(workspace: &Workspace, name: &'static str, binary: Option<&Path>) -> Result<Tool> {
    let program = match name {
        "ropeway" | GENTLE => crate::step::shipped(workspace, binary)?,
        "xcp" | "cpz" => install_crate(
            workspace,
            &workspace.target().join("tools"),
            name,
            None,
            "release",
        )?,
        name => find_program(name).with_context(|| format!("{name} is not installed"))?,
    };
    Ok(Tool {
        name,
        version: tables::version(&program)?,
        program,
    })
}

/// Measures the chosen works and writes a section for each.
///
/// # Errors
/// ropeway fails or copies wrongly, the volumes cannot be created, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    let options = &arguments.options;
    let volumes = options.volumes(folder)?;
    let (runs, scale) = match arguments.quick {
        true => (1, options.scale / 20.0),
        false => (options.runs, options.scale),
    };
    let mut caches = vec![Cache::Warm, Cache::Cold];
    caches.retain(|cache| arguments.cold == arguments.warm || (*cache == Cache::Cold) == arguments.cold);
    if !volumes.are_real() {
        caches.retain(|cache| *cache == Cache::Warm);
        ensure!(!caches.is_empty(), "--cold needs root, to drop the page cache");
    }
    let mut notes = Vec::new();
    let mut tools = Vec::new();
    for name in TOOLS {
        if !arguments.clients.is_empty() && !arguments.clients.contains(&name) {
            continue;
        }
        match install(workspace, name, options.binary.as_deref()) {
            Ok(tool) => tools.push(tool),
            Err(error) if name == "ropeway" => return Err(error),
            Err(error) => notes.push(format!("{name} was left out: {error:#}")),
        }
    }
    for (name, work) in WORKS {
        if !arguments.work.is_empty() && !arguments.work.contains(&work) {
            continue;
        }
        let lab = copies::Options {
            volumes: &volumes,
            work,
            scale,
            tools: tools.clone(),
            caches: caches.clone(),
            runs,
            reader: false,
            out: folder.join(format!("local-{name}-{}.json", volumes.name())),
        };
        let document = copies::run(&lab, interrupt_flag(), &|line| println!("{line}"))?;
        let text = section(name, &document, &volumes.describe(), &notes);
        println!("\n{text}");
        let section = format!("bench local {name} {}", volumes.name());
        publish(workspace, &section, &text, options.published(scale))?;
        verdict(&document)?;
    }
    Ok(())
}

/// Writes a section of `docs/benchmarks.md` if the results are published.
///
/// # Errors
/// The file cannot be written.
pub(super) fn publish(workspace: &Workspace, section: &str, text: &str, published: bool) -> Result<()> {
    if !published {
        println!("docs/benchmarks.md is not changed: the work was scaled down, or --binary was given");
        return Ok(());
    }
    tables::write(workspace, section, text)
}

/// Checks that ropeway succeeded.
///
/// # Errors
/// A run of ropeway failed.
pub(super) fn verdict(document: &Document) -> Result<()> {
    let own = document.cells.iter().filter(|cell| cell.key.client == "ropeway");
    for run in own.flat_map(|cell| &cell.runs) {
        if let Outcome::Failed(why) | Outcome::TimedOut(why) = &run.outcome {
            anyhow::bail!("ropeway failed: {why}");
        }
    }
    Ok(())
}

fn section(name: &str, document: &Document, volume: &str, notes: &[String]) -> String {
    let (files, bytes) = document
        .works
        .first()
        .map_or((0, 0), |work| (work.files, work.bytes));
    let mut text = format!(
        "## Local copy: {name} ({files} files, {:.2} GiB), {volume}\n\n{}",
        bytes as f64 / (1u64 << 30) as f64,
        provenance(document, "cargo xtask bench local")
    );
    for note in notes {
        let _ = writeln!(text, "\n> {note}");
    }
    for cache in ["warm", "cold"] {
        let cells: Vec<&Cell> = document
            .cells
            .iter()
            .filter(|cell| cell.key.variant == cache)
            .collect();
        if !cells.is_empty() {
            table(&mut text, cache, &cells);
        }
    }
    text
}

fn durable(run: &Run) -> Option<f64> {
    run.durable_seconds
}

fn table(text: &mut String, cache: &str, cells: &[&Cell]) {
    let runs = cells.iter().map(|cell| cell.counted().count()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n**{cache}**, median (min-max) of {runs} interleaved runs:\n\n\
         | tool | perceived s | durable s | durable vs cp | user+sys s | peak MiB |\n|---|--:|--:|--:|--:|--:|"
    );
    let cp = cells.iter().find(|cell| cell.key.client == "cp").copied();
    for cell in cells {
        let name = client_label(&cell.key.client);
        let failed = cell.runs.iter().find_map(|run| match &run.outcome {
            Outcome::Done => None,
            Outcome::Failed(why) | Outcome::TimedOut(why) => Some(why.replace('|', "/")),
        });
        if let Some(why) = failed {
            let _ = writeln!(text, "| {name} | left out: {why} | | | | |");
            continue;
        }
        let factor = factor(ratio(cp, Some(cell), durable), |_| false);
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {factor} | {} | {} |",
            numbers(Some(cell), 2, whole),
            numbers(Some(cell), 2, durable),
            numbers(Some(cell), 2, |run| run.client_cpu_seconds),
            numbers(Some(cell), 1, client_mib),
        );
    }
    for cell in cells {
        let spreads = [
            ("perceived", cell.median(whole)),
            ("durable", cell.median(durable)),
        ];
        let noisy: Vec<String> = spreads
            .into_iter()
            .filter_map(|(what, median)| Some((what, median?.spread())))
            .filter(|(_, spread)| *spread > tables::SPREAD_MAX)
            .map(|(what, spread)| format!("{what} {:.0} %", spread * 100.0))
            .collect();
        if !noisy.is_empty() {
            let name = client_label(&cell.key.client);
            let _ = writeln!(text, "\n> noisy: {name}: spread {}", noisy.join(", "));
        }
    }
}

/// Returns the name of a local tool in the tables.
pub(super) fn client_label(client: &str) -> &str {
    match client {
        "rsync" => "rsync -a",
        GENTLE => "ropeway --gentle",
        name => client_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tables::testing::{cell, document};

    #[test]
    fn a_table_compares_with_cp_and_names_failed_tools() {
        let of = |client, seconds: &[f64]| {
            let mut cell = cell(["none", "small100k", "write", client, "ext4"], seconds);
            cell.key.variant = "warm".to_owned();
            cell.runs
                .iter_mut()
                .for_each(|run| run.durable_seconds = Some(run.whole_seconds * 2.0));
            cell
        };
        let document = document(vec![of("ropeway", &[1.0]), of("cp", &[2.0, 3.0]), of("xcp", &[])]);
        let text = section("small", &document, "ext4 on loop", &["a note".to_owned()]);
        for line in [
            "| ropeway | 1.00 | 2.00 | 2.50 x | 0.50 | 10.0 |",
            "| cp -a | 2.50 (2.00-3.00) | 5.00 (4.00-6.00) | 1.00 x |",
            "| xcp | left out: ended after 300 s |",
            "> noisy: cp -a: spread perceived 40 %, durable 40 %",
            "> a note",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }
}
