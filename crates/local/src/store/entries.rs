//! Listing a folder: names are read in big chunks, and each is examined when it is asked for.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_vfs::store::{Entries, NodeStat};
use ropeway_vfs::{Error, ErrorKind, Kind, Name, Op, RelPath, Result};
use rustix::fs::{AtFlags, RawDir, statx};
use rustix::io::Errno;

use super::Core;
use super::open::MASK;
use super::root::failed;
use super::xattrs::node_stat;
use crate::stat;
use crate::winmeta::dos::{self, Dos};

/// Bytes of one getdents64 call; beyond 32 KiB the cost of a call no longer matters.
const BUFFER_BYTES: usize = 32 * 1024;

/// A folder being listed.
pub(super) struct LocalEntries {
    dir: OwnedFd,
    path: RelPath,
    core: Arc<Core>,
    has_dos: bool,
    /// Whether names are sorted, which pays if inodes are read from a device.
    sorted: bool,
    buffer: Vec<MaybeUninit<u8>>,
    /// Names read and not yet returned, in descending order of inode number: inodes lie on the device in
    /// that order.
    names: Vec<(u64, CString)>,
    ended: bool,
}

impl LocalEntries {
    pub(super) fn new(dir: OwnedFd, path: RelPath, core: &Arc<Core>) -> Self {
        Self {
            dir,
            path,
            core: Arc::clone(core),
            has_dos: core.features.windows_metadata,
            sorted: !core.root_in_memory,
            buffer: Vec::new(),
            names: Vec::new(),
            ended: false,
        }
    }

    fn read_names(&mut self) -> Result<()> {
        self.buffer.resize(BUFFER_BYTES, MaybeUninit::uninit());
        let mut raw = RawDir::new(&self.dir, &mut self.buffer);
        // Stops only between two chunks of the kernel, so that no name is lost.
        while self.names.is_empty() || !raw.is_buffer_empty() {
            let entry = match raw.next() {
                None => {
                    self.ended = true;
                    break;
                }
                Some(Err(Errno::INTR)) => continue,
                // The folder was removed.
                Some(Err(Errno::NOENT)) => {
                    self.ended = true;
                    break;
                }
                Some(Err(error)) => return Err(failed(Op::List, &self.path, error)),
                Some(Ok(entry)) => entry,
            };
            let bytes = entry.file_name().to_bytes();
            if bytes != b"." && bytes != b".." {
                self.names.push((entry.ino(), entry.file_name().to_owned()));
            }
        }
        if self.sorted {
            self.names
                .sort_unstable_by_key(|(inode, _)| std::cmp::Reverse(*inode));
        } else {
            self.names.reverse();
        }
        Ok(())
    }

    /// Returns the attributes of a name; `None` if it was removed.
    fn examine(&self, name: &CString) -> rustix::io::Result<Option<NodeStat>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = match statx(&self.dir, name.as_c_str(), flags, MASK) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::STALE) => return Ok(None),
            Err(error) => return Err(error),
        };
        let kept = matches!(stat::kind(u32::from(stat.stx_mode)), Kind::File | Kind::Directory);
        let dos = if self.has_dos && kept {
            match dos::at(self.dir.as_fd(), name) {
                Err(Errno::NOENT | Errno::STALE) => return Ok(None),
                dos => dos?,
            }
        } else {
            Dos::default()
        };
        Ok(Some(self.core.change_times.apply(node_stat(&stat, dos))))
    }
}

impl Entries for LocalEntries {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        loop {
            let Some((_, raw)) = self.names.pop() else {
                if self.ended {
                    return Ok(None);
                }
                self.read_names()?;
                continue;
            };
            let Some(name) = Name::new(raw.to_bytes()) else {
                // Only a damaged volume has such a name. A partial listing must not look complete.
                return Err(Error {
                    op: Op::List,
                    path: self.path.clone(),
                    kind: ErrorKind::DeviceError,
                    source: Some(std::io::Error::other("the folder holds an impossible name")),
                });
            };
            let stat = self
                .examine(&raw)
                .map_err(|error| failed(Op::Stat, &self.path.join(&name), error))?;
            if let Some(stat) = stat {
                return Ok(Some((name, stat)));
            }
        }
    }
}
