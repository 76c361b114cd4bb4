//! System calls that rustix lacks, and the submission ring: the only unsafe code of this crate.
//!
//! Everything here has a safe interface. Owners of memory that the kernel may still touch are kept
//! by [`ring::Ring`] until the kernel has answered.

mod blkdev;
mod cachestat;
pub(crate) mod fanotify;
mod lock;
mod memory;
mod priority;
mod range;
pub(crate) mod ring;
mod thread;
mod xattrat;

pub(crate) use blkdev::flush_block_device;
pub(crate) use cachestat::{cached_bytes, kept_bytes, unflushed_bytes};
pub(crate) use lock::{LockRange, LockType, is_locked, try_lock, try_lock_range};
pub use memory::{give_back_memory, give_back_stack};
pub(crate) use priority::be_idle;
pub(crate) use range::sync_file_range;
pub(crate) use thread::own_umask;
pub(crate) use xattrat::{getxattrat, listxattrat};
