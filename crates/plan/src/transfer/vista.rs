//! Windows Vista RTM: strict cycles of N reads, wait, N writes, wait.
//!
//! The facts state that "writes land out of order on the target" but not in which order. Here the
//! writes of a cycle start in the order in which its reads finished. A completion port delivers
//! them so, and the order is deterministic for a given source.

use super::Policy;
use super::flight::Flight;

const MIB: u64 = 1024 * 1024;

/// Returns the size of an I/O for a file of `size` bytes. Fact sheet, copy engines, Vista RTM
/// (origin A): "the file's size below 1 MiB; 1 MiB from 1 to 2 MiB; 2 MiB above".
fn block_size(size: u64) -> u64 {
    match size {
        0..MIB => size.max(1),
        MIB..=0x20_0000 => MIB,
        _ => 2 * MIB,
    }
}

/// Returns the I/Os in flight for a file of `size` bytes. Fact sheet, copy engines, Vista RTM
/// (origin A): "2 for files up to 2 MiB, rising to 8 above 8 MiB". The facts leave the range
/// between open. 4 is our guess: the middle of the doubling, and enough to move any file of up to 8
/// MiB in one cycle.
fn depth(size: u64) -> usize {
    match size {
        0..=0x20_0000 => 2,
        0x20_0001..=0x80_0000 => 4,
        _ => 8,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Reads start and finish; the number that have started.
    Reading(usize),
    /// Writes start and finish.
    Writing,
}

/// The position of a file in its cycle.
#[derive(Debug)]
pub(super) struct Vista {
    block_size: u64,
    depth: usize,
    phase: Phase,
}

impl Vista {
    pub(super) fn new(size: u64) -> Self {
        Self {
            block_size: block_size(size),
            depth: depth(size),
            phase: Phase::Reading(0),
        }
    }

    /// Changes from reading to writing when all reads of the cycle have finished, and from writing
    /// to reading when all its writes have.
    fn turn(&mut self, flight: &Flight, exhausted: bool) {
        match self.phase {
            Phase::Reading(started)
                if flight.reading() == 0 && flight.len() > 0 && (started == self.depth || exhausted) =>
            {
                self.phase = Phase::Writing;
            }
            // All reads of a cycle returned empty, or the last write finished.
            Phase::Reading(_) | Phase::Writing if flight.len() == 0 => self.phase = Phase::Reading(0),
            _ => {}
        }
    }
}

impl Policy for Vista {
    fn block_length(&self, _offset: u64) -> u64 {
        self.block_size
    }

    fn may_read(&mut self, flight: &Flight, exhausted: bool) -> bool {
        self.turn(flight, exhausted);
        match &mut self.phase {
            Phase::Reading(started) => *started < self.depth,
            Phase::Writing => false,
        }
    }

    fn read_started(&mut self) {
        if let Phase::Reading(started) = &mut self.phase {
            *started += 1;
        }
    }

    fn next_write(&mut self, flight: &mut Flight, exhausted: bool) -> Option<(u64, usize)> {
        self.turn(flight, exhausted);
        match self.phase {
            Phase::Reading(_) => None,
            Phase::Writing => flight.write_first_read(),
        }
    }
}
