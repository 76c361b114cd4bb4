//! `cargo xtask bench storage`: `ropeway bench` beside fio and iozone on one file system.
//!
//! Each row is one pass over a file, made by each tool in turns: the file is new for each, lies on the
//! same fresh file system, and is removed afterwards. Only one process runs at a time. Passes take about
//! a second and there are many rounds: so the tools share whatever else the machine does.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ropeway_lab::local::volume::{FileSystem, Volumes, drop_caches, settle};
use ropeway_lab::report::Median;
use serde_json::Value;

use super::tables::{self, machine_line};
use crate::process::{capture, check_interrupt, find_program};
use crate::workspace::Workspace;

/// What the figures of both tools may differ by.
const WITHIN: f64 = 0.10;
const MIB: u64 = 1 << 20;

/// Options of `bench storage`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Counted rounds; one more goes first and is not counted, unless this is 1
    #[arg(long, default_value_t = 7)]
    runs: u32,
    /// File system: ext4, xfs, btrfs
    #[arg(long, default_value = "ext4")]
    fs: FileSystem,
    /// Only these rows, by their numbers from 1
    #[arg(long, value_delimiter = ',')]
    rows: Vec<usize>,
    /// A sixteenth of the file sizes, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Program iozone, where it is not in PATH (it is not free software)
    #[arg(long, value_name = "FILE")]
    iozone: Option<PathBuf>,
    /// Measure this build of ropeway instead of a release build, and do not touch docs/bench.md
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// A pass that all tools can make.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    /// Pattern and mode of `ropeway bench`.
    ours: [&'static str; 2],
    /// Options of fio.
    fio: &'static [&'static str],
    /// Options of iozone and the column of its result, if it has such a pass.
    iozone: Option<(&'static [&'static str], usize)>,
    record: u64,
    file: u64,
    depth: u32,
}

/// Columns of iozone's last line after size and record: write, rewrite, read, reread, random read and
/// write.
const WRITE: usize = 2;
const READ: usize = 4;
const REREAD: usize = 5;
const RANDOM_READ: usize = 6;
const RANDOM_WRITE: usize = 7;

const ROWS: [Row; 6] = [
    Row {
        name: "write in a row, fsync included, 1 MiB",
        ours: ["write", "fsync"],
        fio: &["--rw=write", "--ioengine=psync", "--end_fsync=1"],
        iozone: Some((&["-i", "0", "-e"], WRITE)),
        record: MIB,
        file: 256 * MIB,
        depth: 1,
    },
    Row {
        name: "read in a row, direct, 1 MiB",
        ours: ["read", "direct"],
        fio: &["--rw=read", "--ioengine=psync", "--direct=1"],
        iozone: Some((&["-i", "0", "-i", "1", "-I"], READ)),
        record: MIB,
        file: 256 * MIB,
        depth: 1,
    },
    Row {
        name: "random read, direct, 4 KiB, one in flight",
        ours: ["random-read", "direct"],
        fio: &["--rw=randread", "--ioengine=psync", "--direct=1"],
        iozone: Some((&["-i", "0", "-i", "2", "-I"], RANDOM_READ)),
        record: 4096,
        file: 64 * MIB,
        depth: 1,
    },
    Row {
        name: "random read, direct, 4 KiB, 16 in flight",
        ours: ["random-read", "direct"],
        fio: &[
            "--rw=randread",
            "--ioengine=io_uring",
            "--iodepth=16",
            "--direct=1",
        ],
        iozone: None,
        record: 4096,
        file: 64 * MIB,
        depth: 16,
    },
    Row {
        name: "random write, direct, 4 KiB, one in flight",
        ours: ["random-write", "direct"],
        fio: &[
            "--rw=randwrite",
            "--ioengine=psync",
            "--direct=1",
            "--overwrite=1",
        ],
        iozone: Some((&["-i", "0", "-i", "2", "-I"], RANDOM_WRITE)),
        record: 4096,
        file: 64 * MIB,
        depth: 1,
    },
    Row {
        name: "reread from the page cache, 64 KiB",
        ours: ["reread", "cached"],
        fio: &["--rw=read", "--ioengine=psync", "--pre_read=1", "--invalidate=0"],
        iozone: Some((&["-i", "0", "-i", "1"], REREAD)),
        record: 65536,
        file: 512 * MIB,
        depth: 1,
    },
];

/// Bytes a second of each tool in each counted round.
#[derive(Debug, Default)]
struct Rates {
    ours: Vec<f64>,
    fio: Vec<f64>,
    iozone: Vec<f64>,
}

/// The programs.
struct Tools {
    ropeway: PathBuf,
    fio: PathBuf,
    iozone: Option<PathBuf>,
}

/// Measures all rows and writes the table.
///
/// # Errors
/// fio is missing, the file system cannot be made, a tool fails, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    let tools = Tools {
        ropeway: crate::step::ropeway(workspace, arguments.binary.as_deref())?,
        fio: crate::tools::require("fio")?,
        iozone: arguments.iozone.clone().or_else(|| find_program("iozone")),
    };
    let volumes = Volumes::new(folder, arguments.fs, true, 1.0).context("cannot prepare file systems")?;
    ensure!(
        volumes.are_real(),
        "this benchmark needs root, for a file system of its own"
    );
    let volume = volumes.create("storage").context("cannot make a file system")?;
    let rounds = if arguments.quick { 1 } else { arguments.runs };
    let part = if arguments.quick { 16 } else { 1 };
    let rows: Vec<Row> = (1..)
        .zip(ROWS)
        .filter(|(number, _)| arguments.rows.is_empty() || arguments.rows.contains(number))
        .map(|(_, row)| Row {
            file: row.file / part,
            ..row
        })
        .collect();
    let mut all: Vec<Rates> = rows.iter().map(|_| Rates::default()).collect();
    // The first round only warms up.
    let first = u32::from(rounds == 1);
    for round in first..=rounds {
        for (row, rates) in rows.iter().zip(&mut all) {
            measure(&tools, volume.root(), row, round, rates)?;
            let shown = |rates: &[f64]| {
                rates
                    .last()
                    .map_or("-".to_owned(), |rate| format!("{:.1}", rate / 1e6))
            };
            println!(
                "  round {round}  {:45} ropeway {:>8}  fio {:>8}  iozone {:>8} MB/s",
                row.name,
                shown(&rates.ours),
                shown(&rates.fio),
                shown(&rates.iozone)
            );
            if round == 0 {
                *rates = Rates::default();
            }
        }
    }
    let text = section(&tools, &volumes.describe(), &rows, &all)?;
    println!("\n{text}");
    if arguments.quick || !arguments.rows.is_empty() || arguments.binary.is_some() {
        println!("docs/bench.md is not changed: only a part was measured, or --binary was given");
        return Ok(());
    }
    tables::write_to(workspace, "docs/bench.md", "bench storage", &text)
}

/// Makes one pass with each tool, another one first in each round.
fn measure(tools: &Tools, root: &Path, row: &Row, round: u32, rates: &mut Rates) -> Result<()> {
    for turn in 0..3 {
        check_interrupt()?;
        settle();
        drop_caches().context("cannot drop the page cache")?;
        match (turn + round) % 3 {
            0 => rates.ours.push(ours(tools, root, row)?),
            1 => rates.fio.push(fio(tools, root, row)?),
            _ => {
                if let (Some(program), Some((options, column))) = (&tools.iozone, row.iozone) {
                    rates.iozone.push(iozone(program, root, row, (options, column))?);
                }
            }
        }
    }
    Ok(())
}

fn ours(tools: &Tools, root: &Path, row: &Row) -> Result<f64> {
    let [pattern, mode] = row.ours;
    let mut command = Command::new(&tools.ropeway);
    command.env_clear().arg("bench").arg(root);
    command.args(["--json", "--runs=1", "--files=0", "--budget=1h", "--pass-time=1h"]);
    command.args([format!("--patterns={pattern}"), format!("--modes={mode}")]);
    command.args([
        format!("--sizes={}", row.file),
        format!("--records={}", row.record),
        format!("--depth={}", row.depth),
    ]);
    let text = capture(&mut command)?;
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut cells = lines.filter(|line| line["type"] == "cell");
    let rate = cells.next().and_then(|cell| cell["bytes_per_s"].as_f64());
    rate.with_context(|| format!("ropeway bench gave no figure:\n{text}"))
}

fn fio(tools: &Tools, root: &Path, row: &Row) -> Result<f64> {
    let mut command = Command::new(&tools.fio);
    command.env_clear().args([
        "--name=row",
        "--output-format=json",
        "--thread",
        "--fallocate=none",
    ]);
    command.args(row.fio);
    command.args([
        format!("--directory={}", root.display()),
        format!("--bs={}", row.record),
        format!("--size={}", row.file),
    ]);
    let text = capture(&mut command)?;
    remove_files(root)?;
    // Notes may come before the object.
    let json = text.find('{').map_or("", |start| &text[start..]);
    let found: Value = serde_json::from_str(json).with_context(|| format!("fio wrote no JSON:\n{text}"))?;
    let job = &found["jobs"][0];
    let side = if row.ours[0].contains("read") {
        "read"
    } else {
        "write"
    };
    let rate = job[side]["bw_bytes"].as_f64().filter(|rate| *rate > 0.0);
    rate.with_context(|| format!("fio gave no figure:\n{text}"))
}

fn iozone(program: &Path, root: &Path, row: &Row, (options, column): (&[&str], usize)) -> Result<f64> {
    let file = root.join("iozone");
    let mut command = Command::new(program);
    command.env_clear().args(options).arg("-f").arg(&file);
    command.args([
        "-r",
        &format!("{}k", row.record >> 10),
        "-s",
        &format!("{}k", row.file >> 10),
    ]);
    let text = capture(&mut command)?;
    remove_files(root)?;
    let wanted = [(row.file >> 10).to_string(), (row.record >> 10).to_string()];
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut results = lines.filter(|words| words.len() > 2 && words[0] == wanted[0] && words[1] == wanted[1]);
    // Passes that were not asked for have no column.
    let words = results
        .next()
        .with_context(|| format!("iozone gave no figure:\n{text}"))?;
    let place = match options.contains(&"1") || options.contains(&"2") {
        true if options.contains(&"2") => column - 2,
        _ => column,
    };
    let kib: f64 = words
        .get(place)
        .and_then(|word| word.parse().ok())
        .context("iozone gave no figure")?;
    Ok(kib * 1024.0)
}

/// Removes the files that a tool has left.
fn remove_files(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_file() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn section(tools: &Tools, volume: &str, rows: &[Row], all: &[Rates]) -> Result<String> {
    let mut text = machine_line("cargo xtask bench storage");
    let fio = tables::version(&tools.fio)?;
    let iozone = match &tools.iozone {
        Some(program) => {
            let text = capture(Command::new(program).arg("-v"))?;
            // `Version $Revision: 3.489 $`
            let revision = text.split_once("Revision:").map_or("", |(_, rest)| rest);
            let number = revision.split_whitespace().next().unwrap_or_default();
            format!("iozone {number}")
        }
        None => "iozone is not installed".to_owned(),
    };
    let runs = all.iter().map(|rates| rates.ours.len()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\nOne {volume}; {fio}; {iozone}. MB/s, median (least-most) of {runs} interleaved runs; each tool has a new \
         file.\n\n| pass | ropeway bench | fio | ropeway : fio | iozone | ropeway : iozone |\n|---|--:|--:|--:|--:|--:|"
    );
    for (row, rates) in rows.iter().zip(all) {
        let median = |rates: &[f64]| Median::of(rates.iter().map(|rate| rate / 1e6).collect());
        let (ours, fio, iozone) = (median(&rates.ours), median(&rates.fio), median(&rates.iozone));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            row.name,
            tables::spread(ours, 1),
            tables::spread(fio, 1),
            compared(ours, fio),
            tables::spread(iozone, 1),
            compared(ours, iozone)
        );
    }
    Ok(text)
}

/// Formats the ratio of two medians, in bold type if they are within [`WITHIN`].
fn compared(ours: Option<Median>, other: Option<Median>) -> String {
    let ratio = ours.zip(other).map(|(ours, other)| ours.value / other.value);
    tables::factor(ratio, |ratio| (1.0 - WITHIN..=1.0 + WITHIN).contains(&ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_bold_within_a_tenth() {
        let of = |value: f64| Median::of(vec![value]);
        assert_eq!(compared(of(109.0), of(100.0)), "**1.09 x**");
        assert_eq!(compared(of(89.0), of(100.0)), "0.89 x");
        assert_eq!(compared(of(89.0), None), "-");
    }

    #[test]
    fn every_row_is_a_pass_of_both() {
        for row in ROWS {
            assert!(
                row.ours[0].parse::<ropeway_lab::bench::cell::Pattern>().is_ok(),
                "{}",
                row.name
            );
            assert!(
                row.ours[1].parse::<ropeway_lab::bench::cell::Mode>().is_ok(),
                "{}",
                row.name
            );
            assert!(
                row.fio.iter().all(|option| option.starts_with("--")),
                "{}",
                row.name
            );
        }
    }
}
