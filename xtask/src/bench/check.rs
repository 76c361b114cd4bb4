//! `cargo xtask bench check`: times the comparison of two equal trees of small files by content,
//! also with `rsync -n` and `diff -r`.
//!
//! Rounds are interleaved, and each begins with another tool. The first round warms up and is not
//! counted. Every tool must find the trees equal.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use ropeway_lab::local::volume::{drop_caches, read_all, settle};
use ropeway_lab::report::Median;

use super::local::{LocalOptions, install, publish};
use super::tables::{self, SPREAD_MAX};
use crate::process::{check_interrupt, find_program};
use crate::workspace::Workspace;

/// Options of `bench check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: LocalOptions,
}

/// A pair of equal trees.
struct Trees {
    title: &'static str,
    files: u64,
    bytes_each: usize,
}

/// The pairs of trees of the table.
const TREES: [Trees; 2] = [
    Trees {
        title: "files of 2 KiB",
        files: 20_000,
        bytes_each: 2_048,
    },
    Trees {
        title: "empty files",
        files: 200_000,
        bytes_each: 0,
    },
];
const FOLDERS: u64 = 100;
const TOOLS: [&str; 3] = ["ropeway check -c", "rsync -anc", "diff -rq"];

/// Measures both pairs of trees, warm and cold.
///
/// # Errors
/// A tool fails or finds a difference, the volumes cannot be prepared, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    let options = &arguments.options;
    let volumes = options.volumes(folder)?;
    let ropeway = install(workspace, "ropeway", options.binary.as_deref())?.program;
    let mut text = format!(
        "## Comparing by content, {}\n\n{}",
        volumes.describe(),
        tables::machine_line("cargo xtask bench check")
    );
    text.push_str("\nSeconds, median (min-max) of interleaved runs; every tool finds both trees equal.\n\n");
    let _ = writeln!(
        text,
        "| trees | cache | {} |\n|---|---|--:|--:|--:|",
        TOOLS.join(" | ")
    );
    let mut notes = Vec::new();
    for trees in &TREES {
        let volume = volumes.create("trees")?;
        let files = ((trees.files as f64 * options.scale) as u64).max(FOLDERS);
        println!("making 2 x {files} {}", trees.title);
        trees.make(volume.root(), files)?;
        for is_cold in [false, true] {
            if is_cold && !volumes.are_real() {
                continue;
            }
            let measured = measure(&ropeway, volume.root(), options.runs, is_cold)?;
            let cache = if is_cold { "cold" } else { "warm" };
            let measured = measured.map(Median::of);
            let cells = measured.map(|median| tables::spread(median, 3));
            let _ = writeln!(
                text,
                "| {files} {} | {cache} | {} |",
                trees.title,
                cells.join(" | ")
            );
            for (tool, median) in TOOLS.iter().zip(measured) {
                let spread = median.map_or(0.0, |median| median.spread());
                if spread > SPREAD_MAX {
                    notes.push(format!(
                        "noisy: {tool}, {}, {cache}: spread {:.0} %",
                        trees.title,
                        spread * 100.0
                    ));
                }
            }
        }
    }
    for note in notes {
        let _ = writeln!(text, "\n> {note}");
    }
    println!("\n{text}");
    publish(workspace, "bench check", &text, options.published(options.scale))
}

impl Trees {
    fn make(&self, root: &Path, files: u64) -> Result<()> {
        let mut content = vec![0; self.bytes_each];
        let one = root.join("one");
        for number in 0..files {
            let folder = one.join(format!("d{:02}", number % FOLDERS));
            if number < FOLDERS {
                fs::create_dir_all(&folder)?;
            }
            fastrand::Rng::with_seed(number).fill(&mut content);
            fs::write(folder.join(format!("f{number}")), &content)?;
        }
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&one)
            .arg(root.join("two"))
            .status()?;
        ensure!(copied.success(), "cp failed");
        Ok(())
    }
}

/// Returns the seconds of each run of each tool.
fn measure(ropeway: &Path, root: &Path, runs: u32, is_cold: bool) -> Result<[Vec<f64>; 3]> {
    let mut measured: [Vec<f64>; 3] = Default::default();
    for round in 0..=runs {
        for turn in 0..TOOLS.len() {
            let tool = (turn + round as usize) % TOOLS.len();
            check_interrupt()?;
            if is_cold {
                drop_caches()?;
            } else {
                settle();
                read_all(root)?;
            }
            let mut command = command(ropeway, tool, root)?;
            let begun = Instant::now();
            let output = command.stderr(Stdio::inherit()).output()?;
            let took = begun.elapsed().as_secs_f64();
            let said = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() || tool != 0 && !said.trim().is_empty() {
                bail!("{} finds differences: {said}", TOOLS[tool]);
            }
            if round > 0 {
                measured[tool].push(took);
            }
        }
    }
    Ok(measured)
}

fn command(ropeway: &Path, tool: usize, root: &Path) -> Result<Command> {
    let (one, two) = (root.join("one"), root.join("two"));
    let found = |name: &str| find_program(name).with_context(|| format!("{name} is missing"));
    let (program, flags, ends) = match tool {
        0 => (ropeway.to_owned(), &["check", "-c"][..], [one, two]),
        1 => (
            found("rsync")?,
            &["-anc", "--out-format=%n"][..],
            [one.join(""), two.join("")],
        ),
        _ => (found("diff")?, &["-rq"][..], [one, two]),
    };
    let mut command = Command::new(program);
    command.args(flags).args(ends);
    Ok(command)
}
