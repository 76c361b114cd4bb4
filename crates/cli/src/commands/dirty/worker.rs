//! The process that flushes for `dirty drain`.
//!
//! syncfs(2) waits in the kernel and no signal ends it. In a process of its own it keeps nobody: if the
//! user gives up, that process is killed and ends when the kernel lets it.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ropeway_dirty::Target;
use ropeway_dirty::flush::{CacheFlush, FlushError, flush};
use serde::{Deserialize, Serialize};

use crate::args::FlushWorkerArgs;
use crate::failure::code;
use crate::ui::messages::print_line;

/// The program itself, even if its file was replaced (proc_pid_exe(5)).
const SELF: &str = "/proc/self/exe";

/// What the worker prints.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// Everything is on the device.
    Flushed(CacheFlush),
    /// Something failed.
    Failed {
        /// What, and why.
        message: String,
        /// Error number of the system.
        errno: Option<i32>,
    },
}

/// Flushes, and prints a [`Report`].
pub(super) fn run(args: &FlushWorkerArgs) -> u8 {
    let done = Target::of(&args.path)
        .map_err(|source| FlushError {
            what: format!("cannot look at {}", args.path.display()),
            source,
        })
        .and_then(|target| flush(&target, args.whole));
    let report = match done {
        Ok(how) => Report::Flushed(how),
        Err(error) => Report::Failed {
            errno: error.source.raw_os_error(),
            message: error.to_string(),
        },
    };
    match serde_json::to_string(&report) {
        Ok(text) => print_line(&text),
        Err(error) => tracing::error!(%error, "a report cannot be written"),
    }
    code::DONE
}

/// A running worker. On drop it is killed, and not waited for.
pub(super) struct Worker {
    child: Child,
}

impl Worker {
    /// Starts a worker.
    ///
    /// # Errors
    /// The system cannot start it.
    pub(super) fn start(path: &Path, whole: bool) -> io::Result<Self> {
        let mut command = Command::new(SELF);
        command.args(["dirty", "flush-worker"]);
        if whole {
            command.arg("--whole");
        }
        let child = command
            .arg("--")
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child })
    }

    /// Returns the report, once there is one.
    pub(super) fn report(&mut self) -> Option<Report> {
        use io::Read;
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        // A report has some hundred bytes, which fit into the pipe.
        let mut text = String::new();
        if let Some(out) = self.child.stdout.as_mut() {
            _ = out.take(1 << 16).read_to_string(&mut text);
        }
        let report = serde_json::from_str(&text).unwrap_or_else(|_| Report::Failed {
            message: format!("the flush ended without a result: {status}"),
            errno: None,
        });
        Some(report)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended already, or ends when the device answers.
        _ = self.child.kill();
    }
}
