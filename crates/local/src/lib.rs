//! Local files as a [`ropeway_vfs::Tree`] and as a [`ropeway_vfs::store::Store`].
//!
//! ```text
//!  LocalTree ── beneath (openat2 below the root) ── stat, list, attributes, ranges
//!      │
//!      ├── LocalFile ── cache policy ── io ┬─ uring: ring threads, registered buffers
//!      │                                   └─ psync: worker threads
//!      ├── batch: small files, one job a batch, few system calls a file
//!      └── watch: inotify
//!  IoQueue: reads and writes of one thread through a ring of its own, for measurements
//!  LocalStore ── the same folder as the back end of a file server: synchronous calls on open nodes
//!
//!  shared: beneath, inotify, names (renames), winmeta (Windows metadata), xattr (raw attributes)
//!  executor: the process's worker threads      sys: the only unsafe code
//! ```
//!
//! * No path leads out of the root. A tree follows no link below it; a store follows links that stay
//!   inside. The root itself may be reached through links.
//! * A dropped future orphans its operation: the job or ring keeps descriptor and buffer until the
//!   kernel has answered.
//! * No runtime is needed: operations run on this crate's own threads and complete ordinary futures.
//! * Every queue is bounded. A future beyond the bound waits without blocking its thread.

mod attributes;
mod batch;
mod beneath;
mod cache;
mod claim;
pub mod device;
mod executor;
mod file;
mod inotify;
mod io;
mod list;
mod mounts;
mod names;
mod observe;
mod open;
mod queue;
mod ranges;
mod small;
mod snapshots;
mod stat;
mod store;
mod sys;
#[cfg(test)]
mod testing;
mod tree;
mod volume;
mod watch;
mod winmeta;
mod xattr;

pub use cache::CACHE_LEAVE_MIN;
pub use file::LocalFile;
pub use io::DONTCACHE;
pub use mounts::{MountInfo, boot_id, mount_identity, mount_of, mounts};
pub use queue::{Finished, IoQueue, QUEUE_DEPTH_MAX};
pub use snapshots::SnapshotFolder;
pub use store::{LocalStore, StoreOptions};
pub use sys::{give_back_memory, give_back_stack};
pub use tree::LocalTree;

use std::os::fd::BorrowedFd;

use ropeway_block::Pool;
use ropeway_vfs::End;
use ropeway_vfs::trace::SharedObserver;

/// Engine that reads and writes big files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoEngine {
    /// io_uring threads.
    Uring,
    /// preadv2 and pwritev2 on worker threads.
    Psync,
}

/// Options of [`LocalTree::open`]. The default opens an existing folder with the engine that the
/// system offers.
#[derive(Clone, Default)]
pub struct LocalOptions {
    /// The engine. `None` takes the one that `ROPEWAY_IO` names (`uring` or `psync`), else io_uring if
    /// a probe finds it.
    pub io: Option<IoEngine>,
    /// The pool that most blocks will come from. Its region is registered with io_uring if the memory
    /// lock limit allows; registration makes all of it resident.
    pub pool: Option<Pool>,
    /// Receives a record of every operation, under this end of the copy.
    pub observer: Option<(SharedObserver, End)>,
    /// Makes the root folder and its parents if they are missing.
    pub create_root: bool,
    /// Writes a probe file to the root to find out what an unknown volume (FUSE) can hold. For trees
    /// that will be written.
    pub probe: bool,
    /// Shows and takes Windows metadata as the attributes that store it (docs/adr/0014), not as metadata
    /// of the model. For copies between two local folders, which need no translation and then save a
    /// call for each file.
    pub raw_xattrs: bool,
    /// Number of threads for metadata and small files, of the whole process. `None`: one for each core,
    /// at least two.
    pub threads: Option<usize>,
}

/// Returns the bytes of a range of a file that are in the page cache, in whole pages (cachestat(2), or
/// mincore(2) before Linux 6.5); `None` where the kernel does not tell this process.
///
/// # Errors
/// The kernel's.
pub fn kept_in_memory(file: BorrowedFd<'_>, offset: u64, length: u64) -> std::io::Result<Option<u64>> {
    sys::kept_bytes(file, offset, length)
}

/// Returns the bytes of an open file that are dirty, and those on the way to its device, in whole pages
/// (cachestat(2), Linux 6.5).
///
/// # Errors
/// The kernel's: `ENOSYS` on older kernels, `EOPNOTSUPP` and `EPERM` where it does not tell.
pub fn unflushed(file: BorrowedFd<'_>) -> std::io::Result<[u64; 2]> {
    sys::unflushed_bytes(file)
}
