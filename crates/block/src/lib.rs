//! Aligned, pooled, reference-counted I/O buffers.
//!
//! A [`Pool`] owns one contiguous, page-aligned region that is cut into equal slots. Each slot has
//! [`HEADROOM`] bytes in front of its payload, so a protocol header and the payload can be
//! contiguous without moving the payload. Payloads are aligned for direct I/O. Where thousands of
//! small buffers are in use, [`Pool::packed`] lets several share a page.
//!
//! ```text
//! region  |headroom|payload.......|headroom|payload.......|   stride = HEADROOM + payload size
//!          4 KiB    aligned 4 KiB
//! ```
//!
//! Take a buffer from the pool as a unique [`BlockMut`], fill it and freeze it into a shared
//! [`Block`]. Dropping its last owner returns it to the pool. The number of slots is the
//! back-pressure of a copy: [`Pool::get`] waits until a slot is free. In steady state nothing is
//! allocated, since the reference counts live in the pool.
//!
//! ```
//! let pool = ropeway_block::Pool::new(64 * 1024, 4);
//! let mut block = pool.try_get().expect("four free slots");
//! block.capacity_mut()[..5].copy_from_slice(b"hello");
//! block.set_len(5);
//! let shared = block.freeze();
//! assert_eq!(&shared.slice(1..3)[..], b"el");
//! ```
//!
//! Invariants: a slot has exactly one `BlockMut`, or at least one `Block`, or is on the free list.
//! The region lives as long as any handle on it.

mod handles;
mod pool;

pub use handles::{Block, BlockMut};
pub use pool::{GetBlock, Pool};

/// Bytes in front of each payload, but for [packed](Pool::packed) pools: room for any protocol header,
/// and it keeps payloads page-aligned.
pub const HEADROOM: usize = 4096;

/// Alignment in bytes of every payload, but for [packed](Pool::packed) pools: enough for direct I/O on
/// devices with 4 KiB sectors.
pub const ALIGNMENT: usize = 4096;

/// Alignment in bytes of the payloads of a [packed](Pool::packed) pool.
pub const PACKED_ALIGNMENT: usize = 512;
