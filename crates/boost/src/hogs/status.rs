//! The figures of bringing back, for people and programs.

use serde::{Deserialize, Serialize};

use crate::ahead::NextStatus;

/// Figures of what was brought back into the kernel's memory; all counters begin with the session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BringStatus {
    /// Whether anything can be brought back: a mount, with prefetching.
    pub is_on: bool,
    /// Where it stands: `calm`, `memory is short`, `waiting until idle` or `bringing back`.
    pub state: String,
    /// Times that memory was short.
    pub episodes: u64,
    /// Share of the last second in which tasks waited for memory, if the system tells.
    pub stalled: Option<f32>,
    /// Bytes that may be filled now.
    pub room_bytes: u64,
    /// Blocks and bytes that were brought back.
    pub blocks: u64,
    /// See [`blocks`](Self::blocks).
    pub bytes: u64,
    /// Those of the bytes that were read from a disk, since that was quicker than from flash.
    pub bytes_from_source: u64,
    /// Bytes that were still in the kernel's memory.
    pub bytes_kept: u64,
    /// Bytes brought back whose file a program has opened since.
    pub bytes_used: u64,
    /// Bytes brought back that a program asked for again: they had been thrown out once more.
    pub bytes_lost: u64,
    /// Seconds spent so.
    pub seconds: f64,
    /// Why the last attempt ended; empty before the first one.
    pub ended: String,
    /// What would be brought back first, if anything was thrown out.
    pub next: Vec<NextStatus>,
}
