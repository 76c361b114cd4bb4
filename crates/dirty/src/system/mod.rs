//! What is read from the system. Everything that it says is parsed by [`crate::parse`]; a file that is
//! missing, forbidden or damaged costs its figure and nothing else.

pub(crate) mod debug;
pub(crate) mod disk;
pub(crate) mod groups;
pub(crate) mod limits;
pub(crate) mod looker;
pub(crate) mod open_files;
pub(crate) mod processes;
pub(crate) mod table;
pub(crate) mod target;
pub(crate) mod tracing;
pub(crate) mod walk;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};

/// Longest text of one file that is read; what follows is ignored. `/proc/zoneinfo` of a machine with
/// 64 nodes has a third of it.
const TEXT_MAX: u64 = 4 << 20;

/// Reads a file of /proc or /sys.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    whole(File::open(path)?)
}

/// Reads a file below an open folder; no part of the name may be a link.
pub(crate) fn text_in(folder: &OwnedFd, name: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    whole(File::from(openat(folder, name, flags, Mode::empty())?))
}

fn whole(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(TEXT_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a file that holds one number.
pub(crate) fn value(path: impl AsRef<Path>) -> Option<u64> {
    text(path).ok()?.trim().parse().ok()
}

/// Returns the last part of a link's target.
pub(crate) fn link_name(path: impl AsRef<Path>) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}
