//! The flash cache: blocks of slow files on a fast device.
//!
//! ```text
//!  lookup, insert, forget, pin        work (a thread, or the caller)
//!              │                              │
//!   [`Cache`] ─┴── memory (quick_cache) ──────┤
//!      │                                      │
//!   [`index`]: tag -> place      log: segments, footers, checkpoints
//!      │                                      │
//!   [`policy`]: what stays             [`Device`]: file, or simulated
//!   [`predict`]: what comes next
//! ```
//!
//! The cache holds clean data only: losing it, or any part of it, costs later hits and nothing else. A
//! block is found by file, version and position ([`Key`]) and is sealed with that key, so that
//! neither damage nor a crash nor stale data can give a wrong byte. A device that fails or stalls
//! for a second is not used for a while.
//!
//! The format is described in `docs/adr/0017-the-format-of-the-cache.md`, the policy in
//! `docs/adr/0016-the-policy-of-the-cache.md`.

mod device;
mod engine;
mod error;
pub mod index;
mod key;
mod log;
pub mod mutations;
pub mod policy;
pub mod predict;
pub mod qualify;
pub mod recording;
pub mod replay;
mod seal;
mod stats;
mod table;
mod writer;

pub use device::{Device, Faults, FileDevice, SimulatedDevice};
pub use engine::{BLOCK_BYTES, Cache, Clock, Config, Hint, Opened};
pub use error::Error;
pub use key::{FileKey, Key, Version};
pub use stats::{HOURS, Hour, Stats};
pub use writer::Writer;
