//! `cargo xtask killtest`: `kill -9` at random moments of a copy, then the same command again.
//!
//! After each resume the trees must be equal (diff, rsync), no temporary name may be left, and the second run may
//! send no more than what the first had not yet called durable. Moments are seeded: a failure can be repeated.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::ci::Outcome;
use crate::compare::trees_equal;
use crate::process::{catch_interrupts, check_interrupt, tail};
use crate::rng::Rng;
use crate::worksets;
use crate::workspace::Workspace;

/// Runs after the kill that may be needed; one must do.
const RESUMES_MAX: usize = 1;

/// A copy that takes longer than this many times the undisturbed one hangs; at least [`HANG_SECONDS_MIN`].
const HANG_FACTOR: u32 = 20;

/// See [`HANG_FACTOR`].
const HANG_SECONDS_MIN: u64 = 60;

/// Options of `killtest`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Kills
    #[arg(long, default_value_t = 100)]
    times: usize,
    /// Multiplies the tree (2 files of 100 MiB, 3,000 small ones)
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder to work in; both trees lie there [default: target/killtest]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Further arguments of `ropeway copy`, after `--`
    #[arg(last = true)]
    copy: Vec<String>,
}

/// Kills and resumes.
///
/// # Errors
/// The first broken promise, with the moment that broke it.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    catch_interrupts()?;
    crate::ci::build(workspace)?;
    let statistics = kill_all(workspace.ropeway(), &base(workspace, arguments), arguments)?;
    println!("{}", statistics.describe());
    Ok(())
}

/// A short run as a step of `ci`.
///
/// # Errors
/// As [`run`].
pub(crate) fn step(workspace: &Workspace) -> Result<Outcome> {
    crate::ci::build(workspace)?;
    let arguments = Arguments {
        times: 5,
        scale: 0.3,
        seed: 1,
        dir: None,
        copy: Vec::new(),
    };
    let statistics = kill_all(workspace.ropeway(), &base(workspace, &arguments), &arguments)?;
    Ok(Outcome::passed(statistics.describe()))
}

/// What was seen, over all kills.
#[derive(Debug, Default)]
struct Statistics {
    kills: usize,
    finished_first: usize,
    total_bytes: u64,
    recopied: Vec<u64>,
    not_durable: Vec<u64>,
    compared: Option<&'static str>,
}

impl Statistics {
    fn describe(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / (1u64 << 20) as f64;
        let mean = |values: &[u64]| mib(values.iter().sum::<u64>()) / values.len().max(1) as f64;
        let max = |values: &[u64]| mib(values.iter().copied().max().unwrap_or(0));
        let mut text = format!(
            "{} kills ({} copies ended first), {:.0} MiB each; sent again: mean {:.1}, max {:.1} MiB; not yet durable \
             at the kill: mean {:.1}, max {:.1} MiB; trees equal, no temporary name left",
            self.kills,
            self.finished_first,
            mib(self.total_bytes),
            mean(&self.recopied),
            max(&self.recopied),
            mean(&self.not_durable),
            max(&self.not_durable),
        );
        if let Some(note) = self.compared {
            text.push_str("; ");
            text.push_str(note);
        }
        text
    }
}

/// One folder with both trees.
struct Trial<'a> {
    program: PathBuf,
    source: PathBuf,
    /// Holds the target, the state and the logs of one trial.
    folder: PathBuf,
    extra: &'a [String],
    hang: Duration,
}

fn base(workspace: &Workspace, arguments: &Arguments) -> PathBuf {
    arguments
        .dir
        .clone()
        .unwrap_or_else(|| workspace.target().join("killtest"))
}

fn kill_all(program: PathBuf, base: &Path, arguments: &Arguments) -> Result<Statistics> {
    ensure!(arguments.times > 0, "--times must be at least 1");
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 100.0,
        "--scale must be above 0 and at most 100"
    );
    fs::create_dir_all(base).with_context(|| format!("cannot make {}", base.display()))?;
    let base = tempfile::Builder::new().prefix("run-").tempdir_in(base)?;
    let source = base.path().join("source");
    worksets::kill_tree(&source, arguments.scale)?;
    let mut trial = Trial {
        program,
        source,
        folder: base.path().join("trial"),
        extra: &arguments.copy,
        hang: Duration::from_secs(HANG_SECONDS_MIN),
    };
    let (whole, took) = trial.undisturbed()?;
    trial.hang = trial.hang.max(took * HANG_FACTOR);
    println!(
        "undisturbed: {:.2} s, {} bytes, {} sent; seed {}",
        took.as_secs_f64(),
        whole.bytes,
        whole.sent,
        arguments.seed
    );
    let mut statistics = Statistics {
        total_bytes: whole.bytes,
        ..Statistics::default()
    };
    let mut rng = Rng::new(arguments.seed);
    while statistics.kills < arguments.times {
        check_interrupt()?;
        ensure!(
            statistics.finished_first <= arguments.times * 4 + 20,
            "copies end before they can be killed: use a larger --scale"
        );
        let moment = took.mul_f64(rng.fraction());
        let number = statistics.kills + 1;
        trial.kill_once(moment, whole, &mut statistics).with_context(|| {
            format!(
                "kill {number} at {:.3} s (seed {})",
                moment.as_secs_f64(),
                arguments.seed
            )
        })?;
    }
    Ok(statistics)
}

/// What the last JSON line of a run said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    summary: bool,
    bytes: u64,
    sent: u64,
    durable: u64,
    errors: u64,
}

impl Trial<'_> {
    fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    fn renew(&self) -> Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .with_context(|| format!("cannot clear {}", self.folder.display()))?;
        }
        fs::create_dir(&self.folder)?;
        Ok(())
    }

    fn start(&self, log: &Path) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command
            // -T: one that was killed when it had finished is not gone into by the next.
            .args(["copy", "--json", "-T"])
            .args(self.extra)
            .arg(&self.source)
            .arg(self.target());
        command.env("XDG_STATE_HOME", self.folder.join("state"));
        command.env("XDG_CONFIG_HOME", self.folder.join("config"));
        command.stdin(Stdio::null()).stdout(File::create(log)?);
        command.stderr(File::create(log.with_extension("errors"))?);
        command.spawn().context("cannot start ropeway")
    }

    /// Waits for the end, up to a deadline.
    fn wait(&self, child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            if let Err(error) = check_interrupt() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
            thread::sleep((deadline - now).min(Duration::from_millis(1)));
        }
    }

    /// Runs to the end, which must be good.
    fn finish(&self, log: &Path) -> Result<Said> {
        let mut child = self.start(log)?;
        let Some(status) = self.wait(&mut child, Instant::now() + self.hang)? else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the copy hangs: {} s and not done", self.hang.as_secs());
        };
        let errors = tail(&log.with_extension("errors"), 10);
        ensure!(
            status.success(),
            "the copy failed: {status}\n{}\n{errors}",
            tail(log, 5)
        );
        let said = last_said(&fs::read_to_string(log)?);
        ensure!(said.summary, "the last line is no summary:\n{}", tail(log, 1));
        ensure!(
            said.errors == 0,
            "exit 0, but the summary counts {} errors",
            said.errors
        );
        Ok(said)
    }

    /// The copy without a kill: what it sends and how long it takes (the second of two, like those to come).
    fn undisturbed(&self) -> Result<(Said, Duration)> {
        let mut last = None;
        for _ in 0..2 {
            self.renew()?;
            let start = Instant::now();
            let said = self.finish(&self.folder.join("whole.json"))?;
            last = Some((said, start.elapsed()));
        }
        trees_equal(&self.source, &self.target())?;
        last.context("no run")
    }

    fn kill_once(&self, moment: Duration, whole: Said, statistics: &mut Statistics) -> Result<()> {
        self.renew()?;
        let log = self.folder.join("killed.json");
        let mut child = self.start(&log)?;
        if let Some(status) = self.wait(&mut child, Instant::now() + moment)? {
            ensure!(
                status.success(),
                "the copy failed by itself: {status}\n{}",
                tail(&log, 5)
            );
            statistics.finished_first += 1;
            return Ok(());
        }
        child.kill()?;
        child.wait()?;
        let before = last_said(&fs::read_to_string(&log)?);
        let mut after = None;
        for number in 0..RESUMES_MAX {
            after = Some(self.finish(&self.folder.join(format!("resumed{number}.json")))?);
        }
        let after = after.context("no resume")?;
        statistics.compared = trees_equal(&self.source, &self.target())?;
        no_temporary_left(&self.folder)?;
        let not_durable = whole.bytes.saturating_sub(before.durable);
        ensure!(
            after.sent <= not_durable,
            "{} bytes were sent after the kill, but only {not_durable} were not yet durable",
            after.sent
        );
        statistics.kills += 1;
        statistics
            .recopied
            .push((before.sent + after.sent).saturating_sub(whole.sent));
        statistics
            .not_durable
            .push(before.sent.saturating_sub(before.durable));
        Ok(())
    }
}

/// Reads the counters of the last whole JSON line that has any; nothing was said yet: zeroes.
fn last_said(text: &str) -> Said {
    let whole_lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    for line in whole_lines.rev() {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
        let kind = value.get("type").and_then(Value::as_str);
        if matches!(kind, Some("summary" | "progress")) {
            return Said {
                summary: kind == Some("summary"),
                bytes: number("bytes"),
                sent: number("bytes_sent"),
                durable: number("bytes_durable"),
                errors: number("errors"),
            };
        }
    }
    Said::default()
}

fn no_temporary_left(folder: &Path) -> Result<()> {
    worksets::visit(folder, &mut |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(!name.starts_with(".ropeway-"), "left behind: {}", path.display());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_with_counters_counts() {
        let text = "{\"type\":\"phase\",\"phase\":\"copying\"}\n\
                    {\"type\":\"progress\",\"bytes_sent\":5,\"bytes_durable\":3}\n\
                    {\"type\":\"note\",\"message\":\"m\"}\n{\"type\":\"progress\",\"bytes_sent\":9";
        let said = last_said(text);
        assert_eq!((said.summary, said.sent, said.durable), (false, 5, 3));
        assert_eq!(last_said(""), Said::default());
        let summary =
            "{\"type\":\"summary\",\"bytes\":7,\"bytes_sent\":6,\"bytes_durable\":7,\"errors\":1}\n";
        let said = last_said(summary);
        assert!(said.summary);
        assert_eq!((said.bytes, said.sent, said.errors), (7, 6, 1));
    }

    #[test]
    fn temporary_names_are_found_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/.ropewayish"), "").unwrap();
        no_temporary_left(folder.path()).unwrap();
        fs::write(folder.path().join("a/.ropeway-1-2"), "").unwrap();
        assert!(no_temporary_left(folder.path()).is_err());
    }

    /// A stand-in for the binary: rsync with a pause, then what a summary says. `last` is run at the end.
    fn stand_in(folder: &Path, last: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let program = folder.join("stand-in");
        let text = format!(
            "#!/bin/sh\nset -e\nshift 3\nmkdir -p \"$2\"\nsleep 0.2\nrsync -aH --delete \"$1/\" \"$2/\"\n{last}\n\
             echo '{{\"type\":\"summary\",\"bytes\":9,\"bytes_sent\":9,\"bytes_durable\":9,\"errors\":0}}'\n"
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        program
    }

    fn kill_stand_in(last: &str) -> Result<Statistics> {
        let folder = tempfile::tempdir().unwrap();
        let arguments = Arguments {
            times: 3,
            scale: 0.001,
            seed: 1,
            dir: None,
            copy: Vec::new(),
        };
        let program = stand_in(folder.path(), last);
        kill_all(program, &folder.path().join("base"), &arguments)
    }

    #[test]
    fn a_copy_that_keeps_its_promises_passes_and_one_that_does_not_is_caught() {
        if crate::process::find_program("rsync").is_none() {
            println!("skipped: rsync is missing");
            return;
        }
        let statistics = kill_stand_in("").unwrap();
        assert_eq!((statistics.kills, statistics.total_bytes), (3, 9));
        for (last, complaint) in [
            ("touch \"$2/../.ropeway-left\"", "left behind"),
            ("echo other >\"$2/one.bin\"", "differ"),
            ("exit 2", "the copy failed"),
        ] {
            let error = format!("{:#}", kill_stand_in(last).unwrap_err());
            assert!(error.contains(complaint), "{last}: {error}");
        }
    }
}
