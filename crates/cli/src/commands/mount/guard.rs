//! A second process that takes a dead mount away.
//!
//! If the process that serves is killed, its mount would stay and answer every call with ENOTCONN.
//! The guard waits for the end of that process (the end of a pipe) and detaches the mount, if it is
//! dead.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use ropeway_mount::mountpoint;
use rustix::process::setsid;

use super::background::SELF;

/// Name under which the program is a guard.
const NAME: &str = "ropeway-mount-guard";

/// Ends when the process that serves ends; then the guard acts.
pub(super) struct Guarded {
    _pipe: Option<ChildStdin>,
}

/// Starts a guard for the mount of a device on a path.
pub(super) fn start(path: &Path, device: &str) -> io::Result<Guarded> {
    let mut child = Command::new(SELF)
        .arg0(NAME)
        .arg(path)
        .arg(device)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(Guarded {
        _pipe: child.stdin.take(),
    })
}

/// Acts as a guard if the program was started as one; returns whether it was.
pub(crate) fn guard(arguments: &[OsString]) -> bool {
    let [name, path, device] = arguments else {
        return false;
    };
    if name != NAME {
        return false;
    }
    // Signals to the session of the process that serves must not reach the guard.
    let _ = setsid();
    let _ = std::env::set_current_dir("/");
    let mut nothing = [0];
    // A failure is the end too.
    while io::stdin().read(&mut nothing).is_ok_and(|count| count > 0) {}
    mountpoint::detach_dead(Path::new(path), &device.to_string_lossy());
    true
}
