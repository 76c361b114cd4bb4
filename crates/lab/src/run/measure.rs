//! One run of a program: timed, limited, observed while it runs, and ended with all its children.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use serde_json::Value;

use super::process::peak_bytes;
use crate::link::sys::wait_with_usage;
use crate::report::Outcome;

/// Field of a program's JSON line that tells the seconds of its transfer.
pub(crate) const REPORTED: &str = "seconds_perceived";
/// Interval of the observations.
const LOOK: Duration = Duration::from_millis(20);
/// Time for a program to end after SIGTERM (a guess).
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Largest part of a log that is read, in bytes.
const LOG_MAX: u64 = 1 << 20;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The program ended by itself.
    Exited(ExitStatus),
    /// The limit was reached.
    TimedOut,
    /// The lab was stopped.
    Stopped,
}

/// Resources of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// How the program ended.
    pub(crate) end: End,
    /// Time from its start to its end.
    pub(crate) whole: Duration,
    /// User and system time of the process and of the children that it waited for.
    pub(crate) cpu: Duration,
    /// Peak resident memory of the process or of one of its children, sampled fifty times a second.
    pub(crate) peak_bytes: u64,
}

impl Measured {
    /// Returns the outcome of a run with this limit. `reports`: whether the program printed the
    /// result that a successful run must have.
    pub(crate) fn outcome(&self, output: &Path, limit: Duration, reports: bool) -> Outcome {
        match self.end {
            End::Exited(status) if status.success() && reports => Outcome::Done,
            End::Exited(status) => Outcome::Failed(format!("{status}: {}", last_words(output))),
            End::TimedOut | End::Stopped => {
                Outcome::TimedOut(format!("ended after {:.0} s", limit.as_secs_f64()))
            }
        }
    }
}

/// Limits of a run.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// Time after which it is ended.
    pub(crate) limit: Duration,
    /// Ends it when this returns true.
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
}

/// Runs a command in its own process group. Calls `tick` fifty times a second with the time since
/// the start.
///
/// # Errors
/// The command cannot be started.
pub(crate) fn measure(
    mut command: Command,
    output: &Path,
    bounds: Bounds<'_>,
    spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    tick: &mut dyn FnMut(Duration),
) -> io::Result<Measured> {
    command
        .stdin(Stdio::null())
        .stdout(File::create(output)?)
        .stderr(File::create(output.with_extension("err"))?);
    command.process_group(0);
    let begun = Instant::now();
    let child = spawn(&mut command)?;
    let id = child.id();
    let pid = i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::NotFound)?;
    // The loop below waits for it and reads its usage.
    drop(child);
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    let mut signalled: Option<(End, Instant)> = None;
    let mut peak = 0;
    loop {
        let mut waiting = [PollFd::new(&descriptor, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(LOOK.subsec_nanos()),
        };
        // An error is an interruption by a signal.
        let readable = poll(&mut waiting, Some(&timeout)).unwrap_or(0) > 0;
        let whole = begun.elapsed();
        peak = peak.max(peak_bytes(id));
        if readable && let Some((status, cpu)) = wait_with_usage(id)? {
            // Children that it left in its group.
            _ = kill_process_group(pid, Signal::KILL);
            let end = signalled.map_or(End::Exited(status), |(end, _)| end);
            return Ok(Measured {
                end,
                whole,
                cpu,
                peak_bytes: peak,
            });
        }
        match &signalled {
            None if (bounds.stop)() => {
                _ = kill_process_group(pid, Signal::TERM);
                signalled = Some((End::Stopped, Instant::now()));
            }
            None if whole > bounds.limit => {
                _ = kill_process_group(pid, Signal::TERM);
                signalled = Some((End::TimedOut, Instant::now()));
            }
            Some((_, since)) if since.elapsed() > END_PATIENCE => {
                _ = kill_process_group(pid, Signal::KILL);
                thread::sleep(LOOK);
            }
            _ => tick(whole),
        }
    }
}

/// Returns the last line that a program wrote, of its standard error if there is one.
pub(crate) fn last_words(output: &Path) -> String {
    for path in [output.with_extension("err"), output.to_owned()] {
        let text = read(&path);
        if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
            return line.trim().chars().take(300).collect();
        }
    }
    "it printed nothing".to_owned()
}

/// Returns the last JSON line of a program's output that has this field.
pub(crate) fn json_line(output: &Path, field: &str) -> Option<Value> {
    let text = read(output);
    let mut lines = text
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find(|line| line.get(field).is_some())
}

/// Returns what a program wrote, at most the last [`LOG_MAX`] bytes.
pub(crate) fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let from = bytes.len().saturating_sub(LOG_MAX as usize);
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(script: &str, limit: Duration, stop: &(dyn Fn() -> bool + Sync)) -> (Measured, String, usize) {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let mut ticks = 0;
        let bounds = Bounds { limit, stop };
        let measured = measure(
            sh(script),
            &output,
            bounds,
            |command| command.spawn(),
            &mut |_| ticks += 1,
        )
        .unwrap();
        (measured, last_words(&output), ticks)
    }

    #[test]
    fn time_and_words_are_those_of_the_program() {
        let (measured, words, ticks) = run("echo one; sleep 0.3; echo two >&2; exit 4", GENEROUS, &|| false);
        assert!(matches!(measured.end, End::Exited(status) if status.code() == Some(4)));
        assert!((0.3..5.0).contains(&measured.whole.as_secs_f64()) && ticks >= 2);
        assert_eq!(words, "two");
        assert!((1..100 << 20).contains(&measured.peak_bytes));
    }

    const GENEROUS: Duration = Duration::from_secs(60);

    #[test]
    fn who_takes_too_long_or_is_not_wanted_any_more_is_ended() {
        let (measured, ..) = run(
            "trap '' TERM; sleep 100 & wait; sleep 100",
            Duration::from_millis(100),
            &|| false,
        );
        assert_eq!(measured.end, End::TimedOut);
        assert!(measured.whole < Duration::from_secs(20));
        let (measured, ..) = run("sleep 100", GENEROUS, &|| true);
        assert_eq!(measured.end, End::Stopped);
    }
}
