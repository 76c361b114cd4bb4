//! The mount in a process of its own, which outlives the command.
//!
//! The command runs the program again with the same arguments, passes on its messages, and ends
//! when that process has mounted.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::failure::{Failure, code};
use crate::ui::messages;

/// Environment variable that tells the process that it is the second one.
const STAGE: &str = "_ROPEWAY_MOUNT_STAGE";

/// What the second process writes when files can be used.
const READY: &str = "mounted\n";

/// This program, even if its file was replaced since (proc(5)).
pub(super) const SELF: &str = "/proc/self/exe";

/// Whether this is the process that serves.
pub(super) fn is_child() -> bool {
    std::env::var_os(STAGE).is_some()
}

/// Starts the process that serves, and waits until it has mounted.
///
/// # Errors
/// The process cannot be started. Its own failures become its exit code; it reports them itself.
pub(super) fn start() -> Result<u8, Failure> {
    let fault = |error: io::Error| Failure::new(code::TARGET, format!("cannot start a process: {error}"));
    let arguments = super::as_command(std::env::args_os().collect());
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    let mut child = Command::new(SELF)
        .arg0("ropeway")
        .args(arguments)
        .env(STAGE, "serve")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fault)?;
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said).map_err(fault)?;
    }
    if let Some(before) = said.strip_suffix(READY) {
        messages::print(before);
        return Ok(code::DONE);
    }
    messages::print(&said);
    let status = child.wait().map_err(fault)?;
    let status = status.code().and_then(|code| u8::try_from(code).ok());
    status.filter(|status| *status != code::DONE).map_or_else(
        || {
            Err(Failure::new(
                code::TARGET,
                "the process that should serve the mount ended early",
            ))
        },
        Ok,
    )
}

/// Tells the command that files can be used, and leaves its terminal, session and folder.
pub(super) fn detach() {
    messages::print(READY);
    // Fails for the leader of a process group, which then stays in its session.
    let _ = setsid();
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()) {
        let _ = dup2_stdin(&null);
        let _ = dup2_stderr(&null);
        // Last: the command waits for the end of this one.
        let _ = dup2_stdout(&null);
    }
}
