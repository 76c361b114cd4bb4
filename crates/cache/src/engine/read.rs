//! Reading one record: from a segment in memory, or exactly its sectors from the device.
//!
//! The record lies in a buffer of the pool, and is opened or expanded into the memory that the
//! caller gets.

use std::io;

use ropeway_block::BlockMut;

use crate::engine::Inner;
use crate::engine::state::State;
use crate::index::Place;
use crate::log::record::RECORD_MAX;
use crate::log::{PAGE, SECTOR};

/// Bytes of a buffer: a record, with what alignment adds at both ends.
pub(super) const BUFFER_BYTES: usize = (RECORD_MAX + 2 * PAGE).next_multiple_of(PAGE);

/// A record that is known to be in memory or on the device.
pub(super) struct Located {
    pub(super) place: Place,
    /// Number of its segment at that time.
    pub(super) seq: u64,
    buffer: BlockMut,
    is_read: bool,
}

/// A record in memory.
pub(super) struct Record {
    buffer: BlockMut,
    start: usize,
    len: usize,
}

impl Record {
    /// Returns the record.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer.capacity_mut()[self.start..self.start + self.len]
    }
}

impl Inner {
    /// Finds out where a record is, and copies it if that is in memory. `None` if too many reads are
    /// under way.
    pub(super) fn locate(&self, state: &mut State, place: Place) -> Option<Located> {
        let mut buffer = self.read_buffers.try_get()?;
        let segment = state.segment_of(place.sector);
        Some(Located {
            place,
            seq: state.segments[segment as usize].seq,
            is_read: state.copy_record(place, buffer.capacity_mut()),
            buffer,
        })
    }

    /// Reads a record from the device, if it was not in memory. Damage is found by its header and its
    /// seal.
    pub(super) fn read(&self, located: Located) -> io::Result<Record> {
        let mut buffer = located.buffer;
        let len = usize::from(located.place.sectors) * SECTOR;
        if located.is_read {
            return Ok(Record {
                buffer,
                start: 0,
                len,
            });
        }
        let unit = self.device.alignment();
        let offset = u64::from(located.place.sector) * SECTOR as u64;
        let first = offset / unit as u64 * unit as u64;
        let start = usize::try_from(offset - first).expect("less than a page");
        let span = (start + len).next_multiple_of(unit);
        self.device.read_at(first, &mut buffer.capacity_mut()[..span])?;
        Ok(Record { buffer, start, len })
    }
}
