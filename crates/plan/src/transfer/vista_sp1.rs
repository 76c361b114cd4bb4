//! Windows Vista SP1: pipelined reads; blocks are put in order in memory and written strictly in
//! order.

use super::Policy;
use super::flight::Flight;

/// Fact sheet, copy engines, Vista SP1: "1 MiB reads seen on the wire to a modern server" (origin
/// A, C).
const BLOCK_SIZE: u64 = 1024 * 1024;

/// Fact sheet, copy engines, Vista SP1: "pipelined (4 initial requests of 128 KiB to 1 MiB:
/// secondary)". The sheet does not say how the number grew; it stays at 4, and a block keeps its
/// place until it is written.
const DEPTH: usize = 4;

/// Fact sheet, copy engines, Vista SP1: "requests are assembled in order in memory before they
/// reach the disk". The order holds on the target too only with one write at a time.
const WRITES_IN_FLIGHT: usize = 1;

/// Reads ahead, writes in order.
#[derive(Debug)]
pub(super) struct VistaSp1;

impl Policy for VistaSp1 {
    fn block_length(&self, _offset: u64) -> u64 {
        BLOCK_SIZE
    }

    fn may_read(&mut self, flight: &Flight, _exhausted: bool) -> bool {
        flight.len() < DEPTH
    }

    fn next_write(&mut self, flight: &mut Flight, _exhausted: bool) -> Option<(u64, usize)> {
        if flight.writing() < WRITES_IN_FLIGHT {
            flight.write_lowest()
        } else {
            None
        }
    }
}
