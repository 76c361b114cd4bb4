//! What /proc says of running processes. Everything can be missing: processes end at any time.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;

use crate::decode::System;

/// Longest text that is read from a file of /proc, in bytes.
const TEXT_MAX: u64 = 64 << 10;
/// Number of the initial process namespace (PROC_PID_INIT_INO of linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The system's /proc.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Procfs;

fn link(path: String) -> Option<Vec<u8>> {
    Some(fs::read_link(path).ok()?.into_os_string().into_vec())
}

fn text(path: String) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)
        .ok()?
        .take(TEXT_MAX)
        .read_to_end(&mut text)
        .ok()?;
    Some(text)
}

/// Returns a number of a file of lines `name:<tab>number`.
fn field(text: &str, name: &str, radix: u32) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    u64::from_str_radix(line?.strip_prefix(':')?.trim(), radix).ok()
}

impl System for Procfs {
    fn descriptor(&self, process: u32, descriptor: i32) -> Option<Vec<u8>> {
        link(format!("/proc/{process}/fd/{descriptor}"))
    }

    fn position(&self, process: u32, descriptor: i32) -> Option<(u64, u32)> {
        let text = text(format!("/proc/{process}/fdinfo/{descriptor}"))?;
        let text = str::from_utf8(&text).ok()?;
        let flags = field(text, "flags", 8)?;
        Some((field(text, "pos", 10)?, u32::try_from(flags).ok()?))
    }

    fn folder(&self, process: u32) -> Option<Vec<u8>> {
        link(format!("/proc/{process}/cwd"))
    }

    fn program(&self, process: u32) -> Option<Vec<u8>> {
        let mut name = text(format!("/proc/{process}/comm"))?;
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        Some(name)
    }
}

/// Returns the numbers that are names in a folder.
fn numbers(folder: String) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Returns the open descriptors of a process.
pub(crate) fn descriptors(process: u32) -> Vec<i32> {
    let found = numbers(format!("/proc/{process}/fd"));
    found
        .into_iter()
        .filter_map(|number| i32::try_from(number).ok())
        .collect()
}

/// Returns the threads of a process; none if it has ended.
pub(crate) fn threads(process: u32) -> Vec<u32> {
    numbers(format!("/proc/{process}/task"))
}

/// Returns the process that a thread belongs to.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    let status = text(format!("/proc/{thread}/status"))?;
    let status = String::from_utf8_lossy(&status);
    u32::try_from(field(&status, "Tgid", 10)?).ok()
}

/// Whether a thread has ended, or is traced by this process.
pub(crate) fn is_ended_or_ours(thread: u32) -> bool {
    let Some(status) = text(format!("/proc/{thread}/status")) else {
        return true;
    };
    let status = String::from_utf8_lossy(&status);
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    let has_ended = state.is_none_or(|state| state.trim_start().starts_with(['Z', 'X']));
    has_ended || field(&status, "TracerPid", 10) == Some(u64::from(std::process::id()))
}

/// Returns a process and all processes that descend from it, at most `most`.
pub(crate) fn family(process: u32, most: usize) -> Vec<u32> {
    let mut family = vec![process];
    let mut at = 0;
    while at < family.len() && family.len() < most {
        for thread in threads(family[at]) {
            let children = text(format!("/proc/{}/task/{thread}/children", family[at]));
            let children = String::from_utf8(children.unwrap_or_default()).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                if !family.contains(&child) {
                    family.push(child);
                }
            }
        }
        at += 1;
    }
    family.truncate(most);
    family
}

/// Whether this process sees the same numbers of processes as the kernel's tracing.
pub(crate) fn numbers_are_the_kernels() -> bool {
    link("/proc/self/ns/pid".to_owned()).is_some_and(|name| name == INITIAL_PID_NAMESPACE.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek as _, SeekFrom};
    use std::os::fd::AsRawFd as _;

    #[test]
    fn this_process_is_described() {
        let own = std::process::id();
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        file.seek(SeekFrom::Start(7)).unwrap();
        let number = file.as_raw_fd();
        assert!(descriptors(own).contains(&number));
        let (position, flags) = Procfs.position(own, number).unwrap();
        assert_eq!(position, 7);
        assert!(flags.cast_signed() & libc::O_RDWR != 0);
        assert!(Procfs.descriptor(own, number).unwrap().starts_with(b"/"));
        assert!(Procfs.folder(own).unwrap().starts_with(b"/"));
        assert!(!Procfs.program(own).unwrap().is_empty());
        assert!(threads(own).contains(&own));
        assert_eq!(process_of(own), Some(own));
        assert!(!is_ended_or_ours(own));
        assert_eq!(family(own, 100)[0], own);
    }

    #[test]
    fn processes_that_are_gone_have_nothing() {
        let gone = u32::MAX;
        assert!(Procfs.descriptor(gone, 0).is_none() && Procfs.folder(gone).is_none());
        assert!(threads(gone).is_empty() && descriptors(gone).is_empty());
        assert_eq!(process_of(gone), None);
        assert!(is_ended_or_ours(gone));
    }
}
