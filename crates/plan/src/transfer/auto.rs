//! Ropeway's own engine: up to `depth` blocks in flight. Each is written as soon as it is read, and
//! its place is refilled at once.

use super::flight::Flight;
use super::{BLOCK_SIZE_MIN, Policy, TransferLimits};

/// Blocks end at multiples of the block size, so that direct I/O, erase blocks and journal entries
/// stay aligned even after a resume from an odd offset.
#[derive(Debug)]
pub(super) struct Auto {
    block_size: u64,
    depth: usize,
}

impl Auto {
    pub(super) fn new(limits: TransferLimits) -> Self {
        Self {
            block_size: limits.block_size.max(BLOCK_SIZE_MIN) as u64,
            depth: limits.depth.max(1),
        }
    }
}

impl Policy for Auto {
    fn block_length(&self, offset: u64) -> u64 {
        self.block_size - offset % self.block_size
    }

    fn may_read(&mut self, flight: &Flight, _exhausted: bool) -> bool {
        flight.len() < self.depth
    }

    fn next_write(&mut self, flight: &mut Flight, _exhausted: bool) -> Option<(u64, usize)> {
        flight.write_first_read()
    }
}
