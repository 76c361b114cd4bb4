//! Where tracefs is, and an instance of the tracer for this process.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where tracefs usually is; the second place is that of older systems.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Begin of the names of our instances; then the number of the process and when it was started.
const PREFIX: &str = "ropeway-";

/// An instance, removed at the end.
#[derive(Debug)]
pub(super) struct Instance {
    folder: PathBuf,
    /// A mount of our own, where nobody else has mounted tracefs.
    _mount: Option<OwnedFd>,
}

impl Instance {
    /// Makes an instance, and removes those of processes that were killed.
    ///
    /// # Errors
    /// There is no tracefs, or no permission.
    pub(super) fn new() -> io::Result<Self> {
        let (root, mount) = find()?;
        let instances = root.join("instances");
        sweep(&instances);
        let own = std::process::id();
        let folder = instances.join(format!("{PREFIX}{own}-{}", started(own).unwrap_or(0)));
        fs::create_dir(&folder)?;
        Ok(Self {
            folder,
            _mount: mount,
        })
    }

    /// Returns its folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Removing an instance turns its events off. The next run tries again.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Finds tracefs, or mounts it where only this process sees it.
fn find() -> io::Result<(PathBuf, Option<OwnedFd>)> {
    let mut denied = None;
    for place in PLACES.map(PathBuf::from) {
        match fs::metadata(place.join("instances")) {
            Ok(_) => return Ok((place, None)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = Some(error),
            Err(_) => {}
        }
    }
    if let Some(denied) = denied {
        return Err(denied);
    }
    let opened = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&opened)?;
    let mount = fsmount(&opened, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    // The folder of the mount, which is attached nowhere.
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    rustix::fs::openat(CWD, path.join("instances"), flags, rustix::fs::Mode::empty())?;
    Ok((path, Some(mount)))
}

/// Removes instances whose process has ended.
fn sweep(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|(process, start)| started(process) != Some(start)) {
            // In use by somebody who reads it: it stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns process and start time of an instance's name.
fn owner(name: &str) -> Option<(u32, u64)> {
    let (process, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((process.parse().ok()?, start.parse().ok()?))
}

/// Returns when a process was started, in ticks since the boot; `None` if it has ended.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name may contain everything, and ends at the last parenthesis. Then come fields 3 and on.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_instances_tell_their_owner() {
        assert_eq!(owner("ropeway-12-345"), Some((12, 345)));
        for other in ["ropeway-12", "ropeway-x-1", "foo", "ropeway--1-2", ""] {
            assert_eq!(owner(other), None, "{other}");
        }
        let own = std::process::id();
        assert!(started(own).is_some_and(|start| start > 0));
        assert_eq!(started(u32::MAX), None);
    }
}
