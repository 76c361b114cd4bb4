//! Windows 7: requests of one size, pipelined, each block read and written by one.

use super::Policy;
use super::flight::Flight;
use crate::era::Era;

/// Reads and writes side by side, lowest blocks first.
#[derive(Debug)]
pub(super) struct Win7 {
    block_size: u64,
    reads: usize,
    writes: usize,
}

impl Win7 {
    pub(super) fn new(era: Era) -> Self {
        Self {
            block_size: era.read_size.min(era.write_size).into(),
            reads: era.reads.into(),
            writes: era.writes.into(),
        }
    }
}

impl Policy for Win7 {
    fn block_length(&self, _offset: u64) -> u64 {
        self.block_size
    }

    fn may_read(&mut self, flight: &Flight, _exhausted: bool) -> bool {
        flight.len() < self.reads
    }

    fn next_write(&mut self, flight: &mut Flight, _exhausted: bool) -> Option<(u64, usize)> {
        match flight.writing() < self.writes {
            true => flight.write_lowest(),
            false => None,
        }
    }
}
