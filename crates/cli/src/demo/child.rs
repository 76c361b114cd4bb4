//! Runs this program as a child process, with its own state and configuration folders.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Starts child processes; another thread may stop them.
pub(crate) struct Children {
    program: PathBuf,
    /// Folder for the state and the configuration.
    private: PathBuf,
    /// Process id of the running child; 0 if there is none.
    running: AtomicI32,
    stopped: AtomicBool,
}

/// Result of a child.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildResult {
    /// Exit code; `None` if a signal killed it.
    pub(crate) code: Option<i32>,
    /// The last line with counters.
    pub(crate) last: Value,
    /// Its other messages.
    pub(crate) messages: String,
}

impl ChildResult {
    /// Returns a whole number of the last line.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.last.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns a number of seconds of the last line.
    pub(crate) fn seconds(&self, name: &str) -> Option<f64> {
        self.last.get(name).and_then(Value::as_f64)
    }
}

impl Children {
    /// Prepares to run this program as a child.
    ///
    /// # Errors
    /// The program's file cannot be found.
    pub(crate) fn new(private: &Path) -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            private: private.to_path_buf(),
            running: AtomicI32::new(0),
            stopped: AtomicBool::new(false),
        })
    }

    /// Stops the running child and prevents further ones.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(pid) = Pid::from_raw(self.running.load(Ordering::SeqCst)) {
            // The child may have ended already.
            _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Runs `ropeway ARGUMENTS --json`. Kills it (SIGKILL) as soon as `kill` returns true for a
    /// line with counters.
    ///
    /// # Errors
    /// The child cannot be started, or its output cannot be read.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        mut kill: impl FnMut(&Value) -> bool,
    ) -> io::Result<ChildResult> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--json");
        for (name, _) in std::env::vars_os() {
            let ours = name.as_encoded_bytes().starts_with(b"ROPEWAY_");
            if ours && name != "ROPEWAY_IO" && name != "ROPEWAY_DEBUG" {
                command.env_remove(name);
            }
        }
        command.env("XDG_STATE_HOME", self.private.join("state"));
        command.env("XDG_CONFIG_HOME", self.private.join("config"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut child = KillOnDrop(child);
        self.running.store(child.0.id().cast_signed(), Ordering::SeqCst);
        if self.is_stopped() {
            self.stop();
        }
        let result = follow(&mut child.0, &mut kill);
        let status = child.0.wait();
        self.running.store(0, Ordering::SeqCst);
        let mut ended = result?;
        ended.code = status?.code();
        Ok(ended)
    }
}

/// Reads the child's output to its end.
fn follow(child: &mut Child, kill: &mut impl FnMut(&Value) -> bool) -> io::Result<ChildResult> {
    let mut ended = ChildResult::default();
    let Some(output) = child.stdout.take() else {
        return Ok(ended);
    };
    let mut killed = false;
    for line in BufReader::new(output).lines() {
        let Ok(value) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        match value.get("type").and_then(Value::as_str) {
            Some("progress" | "summary") => {
                if !killed && kill(&value) {
                    child.kill()?;
                    killed = true;
                }
                ended.last = value;
            }
            Some("phase") | None => {}
            Some(_) => {
                if let Some(message) = value.get("message").and_then(Value::as_str)
                    && ended.messages.len() < 2000
                {
                    ended.messages.push_str(message);
                    ended.messages.push('\n');
                }
            }
        }
    }
    Ok(ended)
}

/// Kills the child on drop, so that none is left behind.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }
}
