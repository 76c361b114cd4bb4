//! `cargo xtask bench check`: two equal trees of small files compared by content, beside `rsync -n` and `diff -r`.
//!
//! Rounds are interleaved and their order rotates; the first one warms up and is not counted. Every tool must say that the
//! trees are equal.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::client::Client;
use super::ground::{FileSystem, Ground, drop_caches, settle};
use super::report::{self, Machine, SPREAD_MAX, Stats, own_command, rotated};
use crate::process::{check_interrupt, find_program};
use crate::rng::Rng;
use crate::worksets::read_all;
use crate::workspace::Workspace;

/// Options of `bench check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Counted rounds; one more goes first and is not counted
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Multiplies the number of files
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// File system of the trees
    #[arg(long, value_enum, default_value_t = FileSystem::Ext4)]
    fs: FileSystem,
}

/// Two trees to compare.
struct Trees {
    title: &'static str,
    files: u64,
    bytes_each: usize,
}

/// As the issue of the comparison has them.
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
/// If a tool fails or finds a difference, the ground cannot be prepared, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 10.0,
        "--scale must be above 0 and at most 10"
    );
    Client::Ropeway.install(workspace)?;
    let ground = Ground::new(folder, arguments.fs, false, arguments.scale)?;
    let machine = Machine::look();
    let mut text = format!(
        "## Comparing by content, {}\n\n{}. Made by `{}`.\n",
        ground.describe(),
        machine.describe(),
        own_command()
    );
    if let Some(note) = machine.busy() {
        let _ = writeln!(text, "\n> {note}");
    }
    text.push_str("\nSeconds, median (min-max) of interleaved runs; every tool finds both trees equal.\n\n");
    let _ = writeln!(
        text,
        "| trees | cache | {} |\n|---|---|--:|--:|--:|",
        TOOLS.join(" | ")
    );
    let mut notes = Vec::new();
    for trees in &TREES {
        let volume = ground.volume("trees")?;
        let files = ((trees.files as f64 * arguments.scale) as u64).max(FOLDERS);
        println!("making 2 x {files} {}", trees.title);
        trees.make(volume.place(), files)?;
        for is_cold in [false, true] {
            if is_cold && !ground.can_be_cold() {
                continue;
            }
            let measured = measure(workspace, volume.place(), arguments.runs, is_cold)?;
            let cache = if is_cold { "cold" } else { "warm" };
            let cells: Vec<String> = measured.iter().map(|values| report::cell(values, 3)).collect();
            let _ = writeln!(
                text,
                "| {files} {} | {cache} | {} |",
                trees.title,
                cells.join(" | ")
            );
            for (tool, values) in TOOLS.iter().zip(&measured) {
                if let Some(spread) = Stats::of(values)
                    .map(Stats::spread)
                    .filter(|spread| *spread > SPREAD_MAX)
                {
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
    report::write(workspace, "bench check", &text, arguments.scale)
}

impl Trees {
    fn make(&self, place: &Path, files: u64) -> Result<()> {
        let mut content = vec![0; self.bytes_each];
        let one = place.join("one");
        for number in 0..files {
            let folder = one.join(format!("d{:02}", number % FOLDERS));
            if number < FOLDERS {
                fs::create_dir_all(&folder)?;
            }
            Rng::new(number).fill(&mut content);
            fs::write(folder.join(format!("f{number}")), &content)?;
        }
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&one)
            .arg(place.join("two"))
            .status()?;
        ensure!(copied.success(), "cp failed");
        Ok(())
    }
}

/// Seconds of each run of each tool.
fn measure(workspace: &Workspace, place: &Path, runs: usize, is_cold: bool) -> Result<[Vec<f64>; 3]> {
    let mut measured: [Vec<f64>; 3] = Default::default();
    for round in 0..=runs {
        for tool in rotated(&[0, 1, 2], round) {
            check_interrupt()?;
            if is_cold {
                drop_caches()?;
            } else {
                settle()?;
                read_all(place)?;
            }
            let mut command = command(workspace, tool, place)?;
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

fn command(workspace: &Workspace, tool: usize, place: &Path) -> Result<Command> {
    let (one, two) = (place.join("one"), place.join("two"));
    let found = |name: &str| find_program(name).with_context(|| format!("{name} is missing"));
    let mut command = match tool {
        0 => Command::new(workspace.ropeway()),
        1 => Command::new(found("rsync")?),
        _ => Command::new(found("diff")?),
    };
    match tool {
        0 => command.args(["check", "-c"]).arg(one).arg(two),
        1 => command
            .args(["-anc", "--out-format=%n"])
            .arg(one.join(""))
            .arg(two.join("")),
        _ => command.arg("-rq").arg(one).arg(two),
    };
    Ok(command)
}
