//! `cargo xtask bench responsiveness`: reads of another thread while a big file is copied.
//!
//! The reader's file is on the target's file system and is read with direct I/O. The row `nothing`
//! shows the idle machine.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ropeway_lab::local::copies::{self, Cache, GENTLE, Tool};
use ropeway_lab::report::Document;
use ropeway_lab::work::Work;

use super::local::{LocalOptions, client_label, install, parse_tool, publish, verdict};
use super::tables::{numbers, provenance};
use crate::process::interrupt_flag;
use crate::workspace::Workspace;

/// Options of `bench responsiveness`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Tools to compare: ropeway, gentle (ropeway with --gentle), cp, rsync, xcp, cpz
    #[arg(long, value_delimiter = ',', value_parser = parse_copy, default_value = "ropeway,gentle,cp")]
    clients: Vec<&'static str>,
    #[command(flatten)]
    options: LocalOptions,
}

fn parse_copy(text: &str) -> Result<&'static str, String> {
    match text {
        GENTLE => Ok(GENTLE),
        text => parse_tool(text),
    }
}

/// Measures and writes the section.
///
/// # Errors
/// This is not root, ropeway fails, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    let volumes = arguments.options.volumes(folder)?;
    ensure!(
        volumes.are_real(),
        "this benchmark needs root, to drop the page cache"
    );
    let mut tools = vec![Tool {
        name: "nothing",
        program: Path::new("").to_owned(),
        version: String::new(),
    }];
    for name in &arguments.clients {
        tools.push(
            install(workspace, name, arguments.options.binary.as_deref())
                .with_context(|| (*name).to_owned())?,
        );
    }
    let lab = copies::Options {
        volumes: &volumes,
        work: Work::File4gib,
        scale: arguments.options.scale,
        tools,
        caches: vec![Cache::Cold],
        runs: arguments.options.runs,
        reader: true,
        out: folder.join(format!("responsiveness-{}.json", volumes.name())),
    };
    let document = copies::run(&lab, interrupt_flag(), &|line| println!("{line}"))?;
    let text = section(&document, &volumes.describe());
    println!("\n{text}");
    let name = format!("bench responsiveness {}", volumes.name());
    let options = &arguments.options;
    publish(workspace, &name, &text, options.published(options.scale))?;
    verdict(&document)
}

fn section(document: &Document, volume: &str) -> String {
    let bytes = document.works.first().map_or(0, |work| work.bytes);
    let mut text = format!(
        "## Another process's 4 KiB reads while {:.2} GiB are copied, {volume}\n\n{}",
        bytes as f64 / (1u64 << 30) as f64,
        provenance(document, "cargo xtask bench responsiveness")
    );
    text.push_str(
        "\nThe reader reads a file on the target's file system past the page cache, one block each 2 ms; a read that \
         stalls counts as all reads that would have waited for it.\n\n\
         | beside | p50 ms | p99 ms | slowest ms | copy, until durable s |\n|---|--:|--:|--:|--:|\n",
    );
    for cell in &document.cells {
        let cell = Some(cell);
        let name = cell.map_or("", |cell| client_label(&cell.key.client));
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} |",
            numbers(cell, 2, |run| run.reads_p50_ms),
            numbers(cell, 2, |run| run.reads_p99_ms),
            numbers(cell, 1, |run| run.reads_max_ms),
            numbers(cell, 2, |run| run.durable_seconds),
        );
    }
    text
}
