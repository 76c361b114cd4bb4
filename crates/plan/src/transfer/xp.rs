//! Windows XP SP2: read 64 KiB, wait, write, wait; 60 KiB from a server.

use super::Policy;
use super::flight::Flight;
use crate::era;

/// Fact sheet, copy engines, XP SP2: "64 KiB", in flight 1 (origin A, C, E).
const BLOCK_SIZE: u64 = 64 * 1024;

/// One block at a time.
#[derive(Debug)]
pub(super) struct Xp {
    block_size: u64,
}

impl Xp {
    pub(super) fn new(from_server: bool) -> Self {
        let block_size = match from_server {
            true => era::XP.read_size.into(),
            false => BLOCK_SIZE,
        };
        Self { block_size }
    }
}

impl Policy for Xp {
    fn block_length(&self, _offset: u64) -> u64 {
        self.block_size
    }

    fn may_read(&mut self, flight: &Flight, _exhausted: bool) -> bool {
        flight.len() == 0
    }

    fn next_write(&mut self, flight: &mut Flight, _exhausted: bool) -> Option<(u64, usize)> {
        flight.write_first_read()
    }
}
