//! `cargo xtask bench eta`: what a copy to a slow device says about its own end, beside when it ended.
//!
//! The target is a loop device whose writes the block layer throttles (cgroup v1, `blkio.throttle`), which holds
//! write-back too. Each progress line of `ropeway copy --json` is an estimate; the one that counts is the first after
//! a tenth of the bytes are durable.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::ground::{FileSystem, Ground};
use super::report::{self, Machine, own_command};
use crate::process::check_interrupt;
use crate::worksets::{Content, Work};
use crate::workspace::Workspace;

/// Estimates are judged from this part of the work on.
const FROM: f64 = 0.1;

/// The error that the estimate may have, as part of the whole time.
const ERROR_MAX: f64 = 0.1;

/// Options of `bench eta`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to copy
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Work::Small, Work::Big, Work::Mixed])]
    work: Vec<Work>,
    /// What the device takes, in MB/s
    #[arg(long, default_value_t = 40)]
    rate: u32,
    /// Multiplies the work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

/// One progress line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    seconds: f64,
    /// Part of all bytes that is durable.
    done: f64,
    /// Seconds to go: the estimate and its range.
    eta: Option<(f64, f64, f64)>,
}

/// How the estimates of one copy turned out.
#[derive(Debug, PartialEq)]
struct Judged {
    total_s: f64,
    /// When the estimate that counts was made, and the error of its total.
    at_s: f64,
    error: f64,
    /// The worst error from there on.
    worst: f64,
    /// The part of the ranges from there on that held the truth.
    held: f64,
}

/// Measures and writes the section.
///
/// # Errors
/// If this is not root, a copy fails, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 10.0,
        "--scale must be above 0 and at most 10"
    );
    ensure!(arguments.rate > 0, "--rate must be at least 1");
    let ground = Ground::new(folder, FileSystem::Ext4, false, arguments.scale)?;
    ensure!(
        ground.can_be_cold(),
        "this benchmark needs root, for loop devices"
    );
    crate::ci::build(workspace)?;
    let machine = Machine::look();
    let mut text = format!(
        "## Estimates on a slow device: {} MB/s, {}\n\n{}. Made by `{}`.\n\nThe estimate is the first after a tenth \
         of the bytes were durable; errors are parts of the whole time.\n\n| work | took s | estimate made at s | its \
         error | worst later | ranges that held |\n|---|--:|--:|--:|--:|--:|\n",
        arguments.rate,
        ground.describe(),
        machine.describe(),
        own_command(),
    );
    let mut missed = Vec::new();
    for &work in &arguments.work {
        let (content, said) = copy(workspace, &ground, work, arguments)?;
        let judged = judge(&said).with_context(|| format!("{}: no estimate was made", work.name()))?;
        let _ = writeln!(
            text,
            "| {} ({} files, {:.2} GiB) | {:.1} | {:.1} | {:+.1} % | {:.1} % | {:.0} % |",
            work.name(),
            content.files,
            content.bytes as f64 / (1u64 << 30) as f64,
            judged.total_s,
            judged.at_s,
            judged.error * 100.0,
            judged.worst * 100.0,
            judged.held * 100.0,
        );
        if judged.error.abs() > ERROR_MAX {
            missed.push(work.name());
        }
    }
    if let Some(note) = machine.busy() {
        let _ = writeln!(text, "\n> {note}");
    }
    if !missed.is_empty() {
        let _ = writeln!(text, "\n> more than a tenth off: {}", missed.join(", "));
    }
    println!("\n{text}");
    report::write(workspace, "bench eta", &text, arguments.scale)
}

/// Copies one work set to a throttled volume and keeps what the copy said meanwhile.
fn copy(
    workspace: &Workspace,
    ground: &Ground,
    work: Work,
    arguments: &Arguments,
) -> Result<(Content, Vec<Said>)> {
    check_interrupt()?;
    let source = ground.volume("source")?;
    let content = work.generate(&source.place().join("tree"), arguments.scale)?;
    source.freeze()?;
    let target = ground.volume("target")?;
    let state = tempfile::tempdir()?;
    let _throttle = target.throttle(u64::from(arguments.rate) * 1_000_000)?;
    println!("copying {} at {} MB/s", work.name(), arguments.rate);
    let mut child = Command::new(workspace.ropeway())
        .args(["copy", "--json"])
        .arg(source.place().join("tree"))
        .arg(target.place().join("tree"))
        .env("XDG_STATE_HOME", state.path())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start ropeway")?;
    let output = child.stdout.take().context("ropeway has no output")?;
    let mut said = Vec::new();
    for line in BufReader::new(output).lines() {
        said.extend(progress(&line?, content.bytes));
    }
    ensure!(child.wait()?.success(), "ropeway failed on {}", work.name());
    Ok((content, said))
}

fn progress(line: &str, bytes: u64) -> Option<Said> {
    let line: Value = serde_json::from_str(line).ok()?;
    let number = |value: &Value| value.as_f64();
    match line["type"].as_str()? {
        "progress" => {
            let eta = &line["eta"];
            let eta = number(&eta["seconds"])
                .and_then(|seconds| Some((seconds, number(&eta["low"])?, number(&eta["high"])?)));
            Some(Said {
                seconds: number(&line["seconds"])?,
                done: number(&line["bytes_durable"])? / bytes.max(1) as f64,
                eta,
            })
        }
        "summary" => Some(Said {
            seconds: number(&line["seconds_durable"])?,
            done: 1.0,
            eta: None,
        }),
        _ => None,
    }
}

/// Compares the estimates with the end, which the last line tells.
fn judge(said: &[Said]) -> Option<Judged> {
    let total_s = said.last()?.seconds;
    let mut later = said
        .iter()
        .filter(|said| said.done >= FROM)
        .filter_map(|said| Some((said.seconds, said.eta?)));
    let error = |(at, (eta, ..)): (f64, (f64, f64, f64))| (at + eta - total_s) / total_s;
    let first = later.clone().next()?;
    let (mut count, mut held) = (0u32, 0u32);
    for (at, (_, low, high)) in later.clone() {
        count += 1;
        held += u32::from((low..=high).contains(&(total_s - at)));
    }
    Some(Judged {
        total_s,
        at_s: first.0,
        error: error(first),
        worst: later.try_fold(0.0f64, |worst, one| Some(worst.max(error(one).abs())))?,
        held: f64::from(held) / f64::from(count),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_judged_from_a_tenth_on() {
        let said = |seconds, done, eta| Said { seconds, done, eta };
        let judged = judge(&[
            said(0.0, 0.0, None),
            said(1.0, 0.05, Some((50.0, 40.0, 60.0))),
            said(2.0, 0.2, Some((9.0, 7.5, 12.0))),
            said(5.0, 0.5, Some((3.0, 2.0, 4.0))),
            said(10.0, 1.0, None),
        ])
        .unwrap();
        assert_eq!((judged.total_s, judged.at_s), (10.0, 2.0));
        assert!((judged.error - 0.1).abs() < 1e-9, "{judged:?}");
        assert!((judged.worst - 0.2).abs() < 1e-9, "{judged:?}");
        assert!((judged.held - 0.5).abs() < 1e-9, "{judged:?}");
        assert_eq!(judge(&[said(1.0, 1.0, None)]), None);
    }

    #[test]
    fn lines_of_a_copy_are_read() {
        let line =
            r#"{"type":"progress","seconds":1.5,"bytes_durable":25,"eta":{"seconds":4.0,"low":3,"high":5}}"#;
        let said = progress(line, 100).unwrap();
        assert_eq!(
            (said.seconds, said.done, said.eta),
            (1.5, 0.25, Some((4.0, 3.0, 5.0)))
        );
        let line = r#"{"type":"progress","seconds":0.1,"bytes_durable":0,"eta":null}"#;
        assert_eq!(progress(line, 100).unwrap().eta, None);
        assert_eq!(progress(r#"{"type":"phase","phase":"done"}"#, 100), None);
        let line = r#"{"type":"summary","seconds_durable":7.0}"#;
        assert_eq!(progress(line, 100).unwrap().seconds, 7.0);
    }
}
