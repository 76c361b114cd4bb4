//! `cargo xtask bench eta`: the estimated end of copies to a slow device, compared with the true end.
//!
//! The block layer throttles all writes to the target's loop device (cgroup v1, `blkio.throttle`),
//! including write-back. Each progress line of `ropeway copy --json` holds an estimate. The
//! benchmark judges the first one after a tenth of the bytes are durable.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use ropeway_lab::local::volume::{FileSystem, Volumes};
use ropeway_lab::work::{SEED, Work};

use super::local::{WORKS, install, parse_work, publish};
use super::tables;
use crate::process::{check_interrupt, interrupt_flag};
use crate::workspace::Workspace;

/// Durable part of the work from which estimates are judged.
const FROM: f64 = 0.1;

/// Error of the estimate above which a work is listed, as a part of the whole time.
const ERROR_MAX: f64 = 0.1;

/// Options of `bench eta`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Works: small, big, mixed [default: all]
    #[arg(long, value_delimiter = ',', value_parser = parse_work)]
    work: Vec<Work>,
    /// Speed of the device, in MB/s
    #[arg(long, default_value_t = 40)]
    rate: u32,
    /// Multiplies the size of the work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Measure this build of ropeway instead of a release build, and do not touch docs/benchmarks.md
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// One progress line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Progress {
    seconds: f64,
    /// Part of all bytes that is durable.
    done: f64,
    /// Remaining seconds: the estimate and its range.
    eta: Option<(f64, f64, f64)>,
}

/// Quality of the estimates of one copy.
#[derive(Debug, PartialEq)]
struct Judged {
    total_s: f64,
    /// Time of the judged estimate, and the error of its total.
    at_s: f64,
    error: f64,
    /// Worst error from there on.
    worst: f64,
    /// Part of the ranges from there on that contained the true end.
    held: f64,
}

/// Measures and writes the section.
///
/// # Errors
/// This is not root, a copy fails, or an interrupt came.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    tables::check_scale(arguments.scale)?;
    ensure!(arguments.rate > 0, "--rate must be at least 1");
    let volumes = Volumes::new(folder, FileSystem::Ext4, false, arguments.scale)?;
    ensure!(volumes.are_real(), "this benchmark needs root, for loop devices");
    let ropeway = install(workspace, "ropeway", arguments.binary.as_deref())?.program;
    let mut text = format!(
        "## Estimates on a slow device: {} MB/s, {}\n\n{}\nThe estimate is the first after a tenth \
         of the bytes were durable; errors are parts of the whole time.\n\n| work | took s | estimate made at s | its \
         error | worst later | ranges that held |\n|---|--:|--:|--:|--:|--:|\n",
        arguments.rate,
        volumes.describe(),
        tables::machine_line("cargo xtask bench eta"),
    );
    let mut missed = Vec::new();
    let wanted = |work| arguments.work.is_empty() || arguments.work.contains(&work);
    for (name, work) in WORKS.into_iter().filter(|(_, work)| wanted(*work)) {
        let (files, bytes, said) = copy(&ropeway, &volumes, work, arguments)?;
        let judged = judge(&said).with_context(|| format!("{name}: no estimate was made"))?;
        let _ = writeln!(
            text,
            "| {} ({} files, {:.2} GiB) | {:.1} | {:.1} | {:+.1} % | {:.1} % | {:.0} % |",
            name,
            files,
            bytes as f64 / (1u64 << 30) as f64,
            judged.total_s,
            judged.at_s,
            judged.error * 100.0,
            judged.worst * 100.0,
            judged.held * 100.0,
        );
        if judged.error.abs() > ERROR_MAX {
            missed.push(name);
        }
    }
    if !missed.is_empty() {
        let _ = writeln!(text, "\n> more than a tenth off: {}", missed.join(", "));
    }
    println!("\n{text}");
    publish(
        workspace,
        "bench eta",
        &text,
        arguments.scale >= 1.0 && arguments.binary.is_none(),
    )
}

/// Copies one work to a throttled volume. Returns its files and bytes, and the progress lines.
fn copy(
    ropeway: &Path,
    volumes: &Volumes,
    work: Work,
    arguments: &Arguments,
) -> Result<(u64, u64, Vec<Progress>)> {
    check_interrupt()?;
    let source = volumes.create("source")?;
    let plan = work.plan(SEED, arguments.scale);
    let stop = || interrupt_flag().load(Ordering::SeqCst);
    plan.write(&source.root().join("tree"), &stop)?;
    source.make_read_only()?;
    let target = volumes.create("target")?;
    let state = tempfile::tempdir()?;
    let _throttle = target.throttle(u64::from(arguments.rate) * 1_000_000)?;
    println!("copying {} at {} MB/s", work.name(), arguments.rate);
    let mut child = Command::new(ropeway)
        .args(["copy", "--json"])
        .arg(source.root().join("tree"))
        .arg(target.root().join("tree"))
        .env("XDG_STATE_HOME", state.path())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start ropeway")?;
    let output = child.stdout.take().context("ropeway has no output")?;
    let mut said = Vec::new();
    for line in BufReader::new(output).lines() {
        said.extend(progress(&line?, plan.bytes()));
    }
    ensure!(child.wait()?.success(), "ropeway failed on {}", work.name());
    Ok((plan.files(), plan.bytes(), said))
}

fn progress(line: &str, bytes: u64) -> Option<Progress> {
    let line: Value = serde_json::from_str(line).ok()?;
    let number = |value: &Value| value.as_f64();
    match line["type"].as_str()? {
        "progress" => {
            let eta = &line["eta"];
            let eta = number(&eta["seconds"])
                .and_then(|seconds| Some((seconds, number(&eta["low"])?, number(&eta["high"])?)));
            Some(Progress {
                seconds: number(&line["seconds"])?,
                done: number(&line["bytes_durable"])? / bytes.max(1) as f64,
                eta,
            })
        }
        "summary" => Some(Progress {
            seconds: number(&line["seconds_durable"])?,
            done: 1.0,
            eta: None,
        }),
        _ => None,
    }
}

/// Compares the estimates with the true end, which the last line holds.
fn judge(said: &[Progress]) -> Option<Judged> {
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
        let said = |seconds, done, eta| Progress { seconds, done, eta };
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
