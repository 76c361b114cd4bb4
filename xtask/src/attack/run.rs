//! One run of the program, stopped as planned, and its output.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::plan::Stop;
use crate::process::{find_program, tail};

/// Time after which a run counts as hanging. A server may keep the durable opens of a killed client
/// for a minute, in which other clients wait for these files.
const HANG: Duration = Duration::from_secs(180);

/// Command line and environment of a run.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) program: PathBuf,
    pub(crate) words: Vec<String>,
    /// `XDG_STATE_HOME`.
    pub(crate) state: PathBuf,
    /// Folder for its output.
    pub(crate) scratch: PathBuf,
    /// Offset of the program's clock in seconds.
    pub(crate) clock: i64,
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// Its exit code; `None` after a signal.
    pub(crate) code: Option<i32>,
    /// Bytes sent to the target, by its summary.
    pub(crate) sent: u64,
    /// Bytes sent and not yet durable when it was killed, as it reported just before.
    pub(crate) in_flight: Option<u64>,
    /// The end of its output.
    pub(crate) said: String,
    pub(crate) took: Duration,
}

impl Setting {
    fn command(&self, before: &[&str]) -> Result<Command> {
        let mut command = match before.split_first() {
            Some((program, flags)) => {
                let found = find_program(program).with_context(|| format!("{program} is missing"))?;
                let mut command = Command::new(found);
                command.args(flags).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(&self.words);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.scratch)
            .env("XDG_STATE_HOME", &self.state)
            .env("XDG_CONFIG_HOME", self.scratch.join("config"))
            .env("ROPEWAY_PASSWORD", super::testbed::PASSWORD);
        if self.clock != 0
            && let Some(library) = clock_library()
        {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME", format!("{:+}s", self.clock))
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("NO_FAKE_STAT", "1");
        }
        Ok(command)
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// It hangs.
    pub(crate) fn finish(&self, name: &str) -> Result<Ended> {
        self.start(&[], name)?.end()
    }

    fn start(&self, before: &[&str], name: &str) -> Result<Running> {
        Running::start(self.command(before)?, &self.scratch, name)
    }

    /// Runs and stops as planned. `usual` is the usual time of such a run.
    ///
    /// # Errors
    /// It hangs.
    pub(crate) fn stopped(&self, name: &str, stop: &Stop, usual: Duration) -> Result<Ended> {
        match stop {
            Stop::Kill(part) => self.signalled(name, usual.mul_f64(*part), Signal::KILL),
            Stop::Interrupt(part) => self.signalled(name, usual.mul_f64(*part), Signal::INT),
            Stop::KillAt(call, nth) => self.injected(name, call, &format!("signal=KILL:when={nth}")),
            Stop::Fails(call, error, nth) => {
                self.injected(name, call, &format!("error={error}:when={nth}..{}", nth + 2))
            }
            Stop::Beside(part) => {
                let mut other = self.clone();
                other.state = self.scratch.join("state of another");
                other.scratch = self.scratch.join("another");
                fs::create_dir_all(&other.scratch)?;
                let beside = other.start(&[], name)?;
                let running = self.start(&[], name)?;
                thread::sleep(usual.mul_f64(*part));
                beside.signal(Signal::KILL);
                beside.end()?;
                running.end()
            }
        }
    }

    fn signalled(&self, name: &str, after: Duration, signal: Signal) -> Result<Ended> {
        let mut running = self.start(&[], name)?;
        if !running.has_ended_within(after)? {
            // The program prints its state, which takes about a millisecond.
            running.signal(Signal::USR1);
            if !running.has_ended_within(Duration::from_millis(3))? {
                running.signal(signal);
            }
        }
        running.end()
    }

    fn injected(&self, name: &str, call: &str, what: &str) -> Result<Ended> {
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{what}"));
        let strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"];
        let flags = [&strace[..], &["-e", &trace, "-e", &inject]].concat();
        self.start(&flags, name)?.end()
    }
}

/// Returns the library that changes a program's clock, if it is installed.
fn clock_library() -> Option<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu/faketime",
        "/usr/lib/aarch64-linux-gnu/faketime",
    ];
    folders
        .iter()
        .map(|folder| Path::new(folder).join("libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}

struct Running {
    child: Child,
    output: PathBuf,
    errors: PathBuf,
    begun: Instant,
}

impl Running {
    fn start(mut command: Command, scratch: &Path, name: &str) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let (output, errors) = (scratch.join(name), scratch.join(format!("{name}.errors")));
        command
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .stderr(File::create(&errors)?)
            .process_group(0);
        let child = command.spawn().context("cannot start the program")?;
        Ok(Self {
            child,
            output,
            errors,
            begun: Instant::now(),
        })
    }

    fn has_ended_within(&mut self, span: Duration) -> Result<bool> {
        let end = Instant::now() + span;
        while self.child.try_wait()?.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(left.min(Duration::from_micros(500)));
        }
        Ok(true)
    }

    fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for the end and reads the output.
    fn end(mut self) -> Result<Ended> {
        if !self.has_ended_within(HANG)? {
            // Also ends the program that strace runs.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
            let (limit, said) = (HANG.as_secs(), tail(&self.errors, 5));
            bail!("the run hangs: {limit} s and not done\n{said}");
        }
        let took = self.begun.elapsed();
        let code = self.child.wait()?.code();
        let output = fs::read_to_string(&self.output).unwrap_or_default();
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        let summary: Value = output
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok())
            .unwrap_or_default();
        let lines: Vec<&str> = output
            .lines()
            .filter(|line| line.contains("\"item_error\"") || line.contains("\"summary\""))
            .take(6)
            .collect();
        let text = format!("{}\n{}", tail(&self.errors, 12), lines.join("\n"));
        Ok(Ended {
            code,
            sent: summary.get("bytes_sent").and_then(Value::as_u64).unwrap_or(0),
            in_flight: code.is_none().then(|| in_flight(&errors)).flatten(),
            said: text,
            took,
        })
    }
}

/// Reads `… sent 59.0 MiB  durable 0 B …`.
fn in_flight(errors: &str) -> Option<u64> {
    let line = errors
        .lines()
        .rev()
        .find(|line| line.contains(" sent ") && line.contains("durable "))?;
    let sent = amount_after(line, "sent ")?;
    Some(sent.saturating_sub(amount_after(line, "durable ")?))
}

fn amount_after(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    let mut words = rest.split_whitespace();
    let number: f64 = words.next()?.replace(',', "").parse().ok()?;
    let factor = match words.next()? {
        "B" => 1u64,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    Some((number * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_status_tells_what_is_in_flight() {
        let line = "read 82.0 MiB  sent 59.0 MiB  durable 9.0 MiB / 161.3 MiB   0 B/s to device";
        assert_eq!(in_flight(line), Some(50 << 20));
        assert_eq!(in_flight("read 1 B  sent 3 B  durable 1.0 KiB / 1 B"), Some(0));
        assert_eq!(in_flight("nothing"), None);
    }
}
