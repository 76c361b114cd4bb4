//! Local files as a [`ropeway_vfs::Tree`] and as a [`ropeway_vfs::store::Store`].
//!
//! ```text
//!  LocalTree ── beneath (openat2 below the root) ── stat, list, attributes, ranges
//!      │
//!      ├── LocalFile ── cache manners ── io ┬─ uring: ring threads, registered buffers
//!      │                                    └─ psync: worker threads
//!      ├── batch: small files, one job a batch, few system calls a file
//!      └── watch: inotify
//!  LocalStore ── the same folder as a file server asks for it: synchronous, with Windows' view of it kept in xattrs
//!  executor: the process's worker threads      sys: the only unsafe code
//! ```
//!
//! * Nothing leads out of the root, and a tree follows no link below it (a store follows those that stay); the root
//!   itself may be reached through links.
//! * A future that is dropped orphans its operation: descriptor and buffer stay with the job or ring until
//!   the kernel has answered.
//! * No runtime is needed: operations run on this crate's own threads and complete ordinary futures.
//! * Every queue is bounded; beyond its bound a future waits without blocking its thread.

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
mod ranges;
mod small;
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
pub use mounts::{MountInfo, boot_id, mount_identity, mount_of};
pub use store::{LocalStore, StoreOptions};
pub use sys::give_back_memory;
pub use tree::LocalTree;

use ropeway_block::Pool;
use ropeway_vfs::trace::{End, SharedObserver};

/// How reads and writes of big files reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoEngine {
    /// io_uring threads.
    Uring,
    /// preadv2 and pwritev2 on worker threads.
    Psync,
}

/// How to open a [`LocalTree`]. The default reads a folder that exists, with the engine that the system offers.
#[derive(Clone, Default)]
pub struct LocalOptions {
    /// The engine; `None`: `ROPEWAY_IO` (`uring` or `psync`), else io_uring where a probe finds it.
    pub io: Option<IoEngine>,
    /// The pool most blocks will come from. Its region is registered with io_uring where the memory lock limit
    /// allows; registration makes all of it resident.
    pub pool: Option<Pool>,
    /// Receives a record of every operation, as done at this end of the copy.
    pub observer: Option<(SharedObserver, End)>,
    /// Make the root folder (and those above) if it is missing.
    pub create_root: bool,
    /// Find out what an unknown volume (FUSE) can hold by a probe file in the root; for trees to be written.
    pub probe: bool,
    /// Show and take Windows metadata as the attributes that store it (see docs/adr/0014), instead of as metadata of the
    /// model. For copies between two local folders: nothing has to be translated, and each file costs a call less.
    pub raw_xattrs: bool,
    /// Threads for metadata and small files, for the whole process; `None`: one a core, at least two.
    pub threads: Option<usize>,
}
