//! Windows XP SP2: read 64 KiB, wait, write, wait.

use super::Policy;
use super::flight::Flight;

/// Fact sheet, copy engines, XP SP2: "64 KiB", in flight 1 (origin A, C, E). The 60 KiB of SMB 1
/// reads belong to that protocol, not to this plan.
const BLOCK_SIZE: u64 = 64 * 1024;

/// One block at a time.
#[derive(Debug)]
pub(super) struct Xp;

impl Policy for Xp {
    fn block_length(&self, _offset: u64) -> u64 {
        BLOCK_SIZE
    }

    fn may_read(&mut self, flight: &Flight, _exhausted: bool) -> bool {
        flight.len() == 0
    }

    fn next_write(&mut self, flight: &mut Flight, _exhausted: bool) -> Option<(u64, usize)> {
        flight.write_first_read()
    }
}
