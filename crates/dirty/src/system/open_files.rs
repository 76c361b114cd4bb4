//! Open files of other processes: which may be written to, and how much of them is dirty.
//!
//! Looking must change nothing. A descriptor of another process is duplicated (pidfd_getfd(2)), not
//! opened again: closing what was opened would make ext4, xfs and btrfs write back a file that was
//! truncated before, and opening would end leases. Where duplicating is forbidden (another user's
//! process, or Yama), the file is opened through `/proc/PID/fd`. Files of FUSE and network file
//! systems are not counted at all, since closing any descriptor of them writes them back.
//!
//! Looking must not wait either: the server of a file system may be slow or dead. So attributes are
//! asked for as the kernel has them in memory (`AT_STATX_DONT_SYNC`), and no path on such a file
//! system is followed.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, major, minor, statx};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::disk::Number;

/// A descriptor through which a process may write to a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenFile {
    pub(crate) descriptor: i32,
    pub(crate) device: Number,
    pub(crate) inode: u64,
    /// Number of the mount through which it is open.
    pub(crate) mount: u64,
}

/// Calls `found` for each descriptor of a process that may write to a regular file, until it returns
/// false. Returns the number of descriptors looked at.
///
/// # Errors
/// The process has ended, or this user may not look at its descriptors.
pub(crate) fn for_each_writable(pid: u32, mut found: impl FnMut(OpenFile) -> bool) -> io::Result<u64> {
    let mut seen = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // The process may end, and descriptors be closed, at any time.
        let Ok(entry) = entry else { break };
        seen += 1;
        let name = entry.file_name();
        let Some(descriptor) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The mode of the link says how the file was opened (proc_pid_fd(5)).
        let Ok(link) = entry.path().symlink_metadata() else {
            continue;
        };
        if link.permissions().mode() & 0o200 == 0 {
            continue;
        }
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID;
        let Ok(node) = statx(CWD, entry.path(), flags, wanted) else {
            continue;
        };
        if FileType::from_raw_mode(node.stx_mode.into()) != FileType::RegularFile {
            continue;
        }
        let open = OpenFile {
            descriptor,
            device: (node.stx_dev_major, node.stx_dev_minor),
            inode: node.stx_ino,
            mount: node.stx_mnt_id,
        };
        if !found(open) {
            break;
        }
    }
    Ok(seen)
}

/// Returns the path of an open file; a removed file's ends in ` (deleted)`.
pub(crate) fn path_of(pid: u32, descriptor: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()
}

/// A process whose descriptors are duplicated.
pub(crate) struct Duplicates {
    pid: u32,
    handle: Option<OwnedFd>,
}

impl Duplicates {
    pub(crate) fn of(pid: u32) -> Self {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let handle = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        Self { pid, handle }
    }

    /// Returns the dirty bytes of an open file, and those on the way to its device. `None` where the
    /// kernel does not tell, and if the descriptor is another file by now.
    pub(crate) fn unflushed(&self, open: &OpenFile) -> Option<[u64; 2]> {
        let duplicate = self.handle.as_ref().and_then(|handle| {
            let flags = PidfdGetfdFlags::empty();
            pidfd_getfd(handle, open.descriptor, flags).ok()
        });
        let file = match duplicate {
            Some(file) => file,
            None => open_regular(Path::new(&format!("/proc/{}/fd/{}", self.pid, open.descriptor)))
                .ok()?
                .into(),
        };
        let node = rustix::fs::fstat(&file).ok()?;
        let same = node.st_ino == open.inode && (major(node.st_dev), minor(node.st_dev)) == open.device;
        same.then(|| ropeway_local::unflushed(file.as_fd()).ok())
            .flatten()
    }
}

/// Opens a regular file for reading, without waiting and without a new access time where that is
/// allowed.
///
/// # Errors
/// It is no regular file, or may not be opened.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // A FIFO or a device would do something when it is opened.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("no regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty())
        .or_else(|_| rustix::fs::open(path, flags, Mode::empty()))?;
    Ok(File::from(opened))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn this_process_and_its_file_are_seen() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 50_000]).unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        let pid = std::process::id();
        let mut found = Vec::new();
        let seen = for_each_writable(pid, |open| {
            found.push(open);
            true
        });
        assert!(seen.unwrap() > 0);
        let open = found.iter().find(|open| open.inode == inode).unwrap();
        assert_eq!(path_of(pid, open.descriptor).as_deref(), Some(file.path()));
        assert!(open.mount > 0);
        match ropeway_local::unflushed(file.as_file().as_fd()) {
            Ok(_) => assert!(Duplicates::of(pid).unflushed(open).is_some()),
            Err(error) => println!("skipped: no cachestat(2) here: {error}"),
        }
        let other = OpenFile {
            inode: inode + 1,
            ..*open
        };
        assert_eq!(Duplicates::of(pid).unflushed(&other), None);
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        assert!(open_regular(Path::new("/dev/null")).is_err());
        assert!(open_regular(Path::new("/proc")).is_err());
        assert!(for_each_writable(u32::MAX, |_| true).is_err());
        assert_eq!(path_of(u32::MAX, 0), None);
    }
}
