//! Listing a folder: names are read in big chunks and examined in the order of their inode numbers.
//!
//! ext4 returns names in hash order, while inodes lie on the device in the order of their numbers.
//! Sorting a chunk before examining it turns random reads of a cold inode table into sequential ones.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_vfs::{DirEntry, Error, ErrorKind, Listing, Name, Op, Pending, RelPath, Result};
use rustix::fs::RawDir;
use rustix::io::Errno;

use crate::attributes::xattr::View;
use crate::beneath::fault;
use crate::executor::{self, Lane};
use crate::observe::Trace;
use crate::tree::metadata_at;

/// Bytes of one getdents64 call; beyond 32 KiB the cost of a call no longer matters.
const BUFFER_BYTES: usize = 64 * 1024;

/// Number of names sorted at once: some 400 KiB. Sorting more than a few thousand gains nothing (a
/// guess).
const NAMES_MAX: usize = 8192;

/// A folder being listed.
pub(crate) struct LocalListing {
    /// `None` while a job has it. A dropped future leaves it `None`, and the listing ends with an error.
    state: Option<State>,
    path: RelPath,
}

struct State {
    dir: Arc<OwnedFd>,
    path: RelPath,
    view: View,
    trace: Trace,
    /// Names read and not yet returned, in descending order of inode number.
    names: Vec<(u64, Name)>,
    ended: bool,
}

impl LocalListing {
    pub(crate) fn new(dir: OwnedFd, path: RelPath, view: View, trace: Trace) -> Self {
        let state = State {
            dir: Arc::new(dir),
            path: path.clone(),
            view,
            trace,
            names: Vec::new(),
            ended: false,
        };
        Self {
            state: Some(state),
            path,
        }
    }
}

impl Listing for LocalListing {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        Box::pin(async move {
            let Some(mut state) = self.state.take() else {
                return Err(Error::new(Op::List, &self.path, ErrorKind::Cancelled));
            };
            let (state, result) = executor::run(Lane::Short, move || {
                let result = state.next(max);
                (state, result)
            })
            .await;
            self.state = Some(state);
            result
        })
    }
}

impl State {
    fn next(&mut self, max: usize) -> Result<Vec<DirEntry>> {
        let (path, trace) = (self.path.clone(), self.trace.clone());
        let count = |entries: &Vec<DirEntry>| entries.len() as u64;
        trace.call("list", &path, (0, max as u64), count, || {
            let mut entries = Vec::with_capacity(max.min(NAMES_MAX));
            while entries.len() < max {
                if self.names.is_empty() {
                    if self.ended {
                        break;
                    }
                    self.read_names()?;
                    continue;
                }
                let keep = self.names.len().saturating_sub(max - entries.len());
                entries.extend(
                    self.names
                        .split_off(keep)
                        .into_iter()
                        .rev()
                        .filter_map(|(_, name)| {
                            let metadata = match metadata_at(self.view, self.dir.as_fd(), &name) {
                                Ok(metadata) => Ok(metadata),
                                // Removed since the folder was read.
                                Err(Errno::NOENT) => return None,
                                Err(error) => Err(fault(Op::Stat, &path.join(&name), error)),
                            };
                            Some(DirEntry { name, metadata })
                        }),
                );
            }
            Ok(entries)
        })
    }

    fn read_names(&mut self) -> Result<()> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut raw = RawDir::new(&self.dir, &mut buffer);
        // Stops only between two chunks of the kernel: the names left in the buffer would be lost.
        while self.names.len() < NAMES_MAX || !raw.is_buffer_empty() {
            let entry = match raw.next() {
                None => {
                    self.ended = true;
                    break;
                }
                Some(Err(Errno::INTR)) => continue,
                Some(Err(error)) => return Err(fault(Op::List, &self.path, error)),
                Some(Ok(entry)) => entry,
            };
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            let Some(name) = Name::new(bytes) else {
                // Only a damaged volume has such a name. A partial listing must not look complete.
                let source = std::io::Error::other("the folder holds an impossible name");
                let kind = ErrorKind::DeviceError;
                return Err(Error {
                    op: Op::List,
                    path: self.path.clone(),
                    kind,
                    source: Some(source),
                });
            };
            self.names.push((entry.ino(), name));
        }
        self.names
            .sort_unstable_by_key(|(inode, _)| std::cmp::Reverse(*inode));
        Ok(())
    }
}
