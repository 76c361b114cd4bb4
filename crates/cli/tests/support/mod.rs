//! Shared parts of the end-to-end tests: private places, runs of the real binary, trees to copy,
//! independent comparison, and volumes that are always unmounted.
//!
//! Nothing here depends on the program's internals, only on its command line, its output and its
//! exit codes. A test that lacks something (root, a program, a file system) prints a line that
//! begins with `skipped:` and returns.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unused_imports, unused_macros, reason = "each test binary uses its part")]

mod compare;
mod ground;
mod linked;
mod mounted;
mod run;
mod served;
mod snapshot;
mod tmux;
mod tree;
mod volume;
mod watching;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use compare::{Compare, content_same, no_temporaries, same};
pub(crate) use ground::{
    Ground, PASSWORD, at_the_usual_port, has_xattrs, lost, no_secret, one_line_and_a_hint, set_xattr, xattr,
};
pub(crate) use linked::{beside_far_server, linked};
pub(crate) use mounted::{Mounted, MountedShare, can_mount, detach, is_mounted, unmount};
pub(crate) use ropeway_peers::program;
pub(crate) use run::{Finished, NOBODY, Place, Run, Running, binary};
pub(crate) use served::{
    Served, assert_listing, case_twins, credentials, odd_tree, same_as_seen, seen_listing, seen_name,
};
pub(crate) use snapshot::{Entry, Snapshot, snapshot};
pub(crate) use tmux::Tmux;
pub(crate) use tree::{
    byte_at, file, mixed, name_bytes, odd_names, patterned, set_times, small_files, text, write_at,
};
pub(crate) use volume::{Volume, power_cut};
pub(crate) use watching::{Watching, holds};

/// Returns what `cargo xtask ci` installs below `target/interop`.
pub(crate) fn interop(path: &str) -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let found = target.join("interop").join(path);
    match found.exists() {
        true => Ok(found),
        false => Err(format!(
            "there is no interop/{path} in the target folder; `cargo xtask ci --only tools` puts it there"
        )),
    }
}

/// Returns from the test and prints the reason.
macro_rules! skip {
    ($($why:tt)*) => {{
        println!("skipped: {}", format_args!($($why)*));
        return;
    }};
}
pub(crate) use skip;

/// Returns the value, or returns from the test with the reason.
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(why) => $crate::support::skip!("{why}"),
        }
    };
}
pub(crate) use or_skip;

/// Returns whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts a folder at a second path, to be unmounted by the caller. Prints a line and returns `false` where that
/// is not possible.
pub(crate) fn bind_mounted(from: &Path, to: &Path) -> bool {
    if !is_root() || program("mount").is_none() {
        println!("skipped: bind mounts need root");
        return false;
    }
    let mounted = std::process::Command::new("mount")
        .arg("--bind")
        .args([from, to])
        .status();
    let is_mounted = mounted.is_ok_and(|status| status.success());
    if !is_mounted {
        println!("skipped: bind mounts are not allowed");
    }
    is_mounted
}

/// Checks for root and for programs; an error names what is missing.
pub(crate) fn needs(root: bool, programs: &[&str]) -> Result<(), String> {
    if root && !is_root() {
        return Err("needs root".to_owned());
    }
    match programs.iter().find(|name| program(name).is_none()) {
        Some(missing) => Err(format!("{missing} is not installed")),
        None => Ok(()),
    }
}

/// Runs another program; returns its standard output, or the reason for the failure.
pub(crate) fn tool<S: AsRef<std::ffi::OsStr>>(name: &str, arguments: &[S]) -> Result<String, String> {
    let found = program(name).ok_or_else(|| format!("{name} is not installed"))?;
    let output = Command::new(found)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{name} failed ({}): {said}", output.status))
}

/// Polls until `done` is true; returns whether it was before the deadline.
pub(crate) fn wait_until(deadline: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns all nodes below `root`, without `root`; links are not followed. A file has no nodes
/// below it.
pub(crate) fn walk(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if !root.is_dir() {
        return found;
    }
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}
