//! A [`Store`](ropeway_vfs::store::Store) as a file system of the kernel, through FUSE.
//!
//! ```text
//!  kernel ── /dev/fuse ── fuser ── fuse      replies; panics become EIO
//!                                   │
//!                                   fs        operations, without FUSE
//!                                   ├─ inodes   inode number <-> node, parents and names
//!                                   ├─ listing  positions in an open folder
//!                                   ├─ locks    byte-range locks, waiting requests
//!                                   ├─ view     attributes as shown
//!                                   └─ errno    the store's errors as errno
//!                                   │
//!                                 Store
//!  uses: who hears what programs open and read
//!  reader: a process that reads files of the mount, to have them in the kernel's memory
//!  passthrough: files of a disk that the kernel reads and writes by itself
//!  session: mount, threads, unmount;  attach: mount(2);  mountpoint: what may be mounted on, mountinfo
//! ```
//!
//! The adapter keeps no data: reads and writes go to the store one by one, and the kernel's page
//! cache is in front of them. Where a store has descriptors, and root mounts, they do not come here at
//! all. Several threads take requests from the kernel; each calls the store,
//! which blocks. Names pass unchanged, since a store's names are those of its disk, and a store that
//! must escape names does so itself.

mod attach;
mod errno;
mod fs;
mod fuse;
mod inodes;
mod listing;
mod locks;
pub mod mountpoint;
mod passthrough;
mod reader;
mod session;
mod uses;
mod view;

pub use reader::{PageReader, reader};
pub use session::{Counters, MountError, MountOptions, Mounted, Unmounter};
pub use uses::{ReadObserver, SharedObserver, UseObserver};
pub use view::View;
