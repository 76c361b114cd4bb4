//! What happens in the background: writing, cleaning, checkpoints, probing.

use std::time::Duration;

use parking_lot::MutexGuard;
use ropeway_block::BlockMut;

use crate::engine::read::Record;
use crate::engine::recover::write_superblock;
use crate::engine::state::{Chunk, State, Use, forget_header};
use crate::engine::{Inner, Place};
use crate::error::Error;
use crate::key::FileKey;
use crate::log::record::{HEADER_BYTES, RECORD_MAX, RecordHeader};
use crate::log::superblock::{CheckpointPlace, Found, Superblock};
use crate::log::{PAGE, SECTOR, checksum};
use crate::mutations::{self, Mutation};

/// Bytes that are written at once while a segment fills: what a crash may lose.
const FLUSH_BYTES: usize = 256 * 1024;

/// Part of a cleaned segment that is moved to a new one, as a divisor: at most a quarter, so that
/// cleaning writes at most a third of what callers cause. Colder blocks are evicted with the segment.
const MOVED_PART: usize = 4;

/// Segments kept free or nearly free, as a divisor of all: cleaning and checkpoints are paid once for
/// so many segments.
const RESERVE_PART: usize = 32;

/// Time between probes of a device that is off.
const PROBE: Duration = Duration::from_secs(30);

/// Who works in the background, with memory to write from.
pub(super) type Writer<'a> = MutexGuard<'a, BlockMut>;

impl Inner {
    /// Does what is due. Returns whether the cache is on.
    pub(super) fn work(&self, writer: &mut Writer<'_>) -> Result<bool, Error> {
        if let Some(off_for) = self.device.off_for()
            && (off_for < PROBE || !self.probe(writer)?)
        {
            return Ok(false);
        }
        self.write_out(writer, FLUSH_BYTES)?;
        let (reserve, segments) = {
            let state = self.state.lock();
            (reserve(&state), state.segments.len())
        };
        // Bounded: each round frees a segment or ends the loop.
        for _ in 0..segments {
            let (free, pending) = {
                let mut state = self.state.lock();
                state.keep_room();
                (state.count(Use::Free), state.count(Use::Pending))
            };
            if free + pending >= reserve {
                break;
            }
            // Cleaning needs room for what it moves.
            if free < 2 && pending > 0 {
                self.checkpoint(writer)?;
            }
            if !self.clean(writer)? {
                break;
            }
        }
        let is_due = {
            let state = self.state.lock();
            let (free, pending) = (state.count(Use::Free), state.count(Use::Pending));
            (free <= 2 && pending > 0) || state.sealed_since_checkpoint > reserve
        };
        if is_due {
            self.checkpoint(writer)?;
        }
        Ok(true)
    }

    /// Writes records that are in memory, in parts of at least `least` bytes.
    pub(super) fn write_out(&self, writer: &mut Writer<'_>, least: usize) -> Result<(), Error> {
        loop {
            let buffer = writer.capacity_mut();
            let (chunk, start) = {
                let mut state = self.state.lock();
                let Some(chunk) = state.take_chunk(least, buffer) else {
                    return Ok(());
                };
                let start = u64::from(state.first_sector(chunk.segment)) * SECTOR as u64;
                (chunk, start)
            };
            self.write_chunk(&chunk, start, buffer)?;
        }
    }

    fn write_chunk(&self, chunk: &Chunk, start: u64, buffer: &[u8]) -> Result<(), Error> {
        let written = self
            .device
            .write_at(start + chunk.start as u64, &buffer[..chunk.len]);
        let mut state = self.state.lock();
        match written {
            Ok(()) => state.written(chunk),
            Err(_) => state.abandon(),
        }
        written.map_err(Error::from)
    }

    /// Cleans the segment with the least live data: moves its likeliest blocks, evicts the others.
    /// Returns whether there was one.
    fn clean(&self, writer: &mut Writer<'_>) -> Result<bool, Error> {
        let (victim, blocks, moved_max) = {
            let state = self.state.lock();
            let sealed = state.segments.iter().enumerate();
            let sealed = sealed.filter(|(_, segment)| segment.state == Use::Sealed);
            let Some((victim, _)) = sealed.min_by_key(|(_, segment)| (segment.live_sectors, segment.seq))
            else {
                return Ok(false);
            };
            let victim = u32::try_from(victim).expect("segments are numbered by u32");
            let slots = state.blocks_in(victim).into_iter();
            let mut blocks: Vec<(u64, Place)> = slots
                .map(|slot| (state.index.tag(slot), state.index.place(slot)))
                .collect();
            blocks.sort_by_key(|(tag, _)| !state.pinned.contains(&((tag >> 32) as u32)));
            (victim, blocks, (state.record_max() / MOVED_PART).max(RECORD_MAX))
        };
        let mut moved = 0;
        for (tag, place) in blocks {
            let len = usize::from(place.sectors) * SECTOR;
            let is_pinned = self.state.lock().pinned.contains(&((tag >> 32) as u32));
            let record = if moved + len <= moved_max || is_pinned {
                self.read_record(place)?
            } else {
                None
            };
            if record.is_some_and(|mut record| self.move_block(tag, place, record.bytes())) {
                moved += len;
                self.write_out(writer, FLUSH_BYTES)?;
                continue;
            }
            let mut state = self.state.lock();
            if let Some(slot) = state
                .index
                .find(tag)
                .filter(|slot| state.index.place(*slot) == place)
            {
                state.evict(slot);
            }
        }
        let mut state = self.state.lock();
        state.stats.bytes_moved += moved as u64;
        let is_freed = mutations::is(Mutation::FreedBeforeCheckpoint);
        state.segments[victim as usize].state = if is_freed { Use::Free } else { Use::Pending };
        Ok(true)
    }

    /// Appends a record once more. Its seal stays as it is.
    fn move_block(&self, tag: u64, place: Place, record: &[u8]) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(header) = RecordHeader::parse(record, &state.superblock.salt) else {
            return false;
        };
        let body = HEADER_BYTES..HEADER_BYTES + header.stored_len as usize;
        let slot = state.index.find(tag);
        let (Some(slot), Some(body)) = (slot, record.get(body)) else {
            return false;
        };
        if header.tag != tag || header.sectors() != place.sectors || state.index.place(slot) != place {
            return false;
        }
        let Some(sector) = state.append(header, body, 0) else {
            return false;
        };
        state.live(place, false);
        state.index.relocate(slot, sector);
        state.live(Place { sector, ..place }, true);
        true
    }

    /// Writes the index to the device; segments that were cleaned are free then.
    pub(super) fn checkpoint(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let (bytes, mut superblock, pending) = {
            let state = self.state.lock();
            let pending: Vec<usize> = (0..state.segments.len())
                .filter(|at| state.segments[*at].state == Use::Pending)
                .collect();
            (state.checkpoint().encode(), state.superblock, pending)
        };
        if bytes.len() as u64 > superblock.checkpoint_bytes {
            // More blocks than slots were foreseen: not possible, as the index is bounded by them.
            return Ok(());
        }
        // What the checkpoint lists is on the device before the checkpoint is.
        self.device.sync()?;
        superblock.checkpoint = CheckpointPlace {
            slot: 1 - superblock.checkpoint.slot,
            len: bytes.len() as u64,
            crc: checksum(&superblock.salt, &[&bytes]),
        };
        let start = superblock.slot_start(superblock.checkpoint.slot);
        let buffer = writer.capacity_mut();
        for (at, part) in bytes.chunks(buffer.len()).enumerate() {
            let padded = part.len().next_multiple_of(PAGE);
            buffer[..part.len()].copy_from_slice(part);
            buffer[part.len()..padded].fill(0);
            let offset = start + (at * buffer.len()) as u64;
            self.device.write_at(offset, &buffer[..padded])?;
        }
        self.device.sync()?;
        write_superblock(&self.device, &mut superblock, buffer)?;
        let mut state = self.state.lock();
        state.stats.bytes_written += (bytes.len().next_multiple_of(PAGE) + 2 * PAGE) as u64;
        state.superblock = superblock;
        state.sealed_since_checkpoint = 0;
        for at in pending {
            state.segments[at].state = Use::Free;
        }
        Ok(())
    }

    /// Reads a record to be moved; `None` if too many reads are under way.
    fn read_record(&self, place: Place) -> Result<Option<Record>, Error> {
        let located = self.locate(&mut self.state.lock(), place);
        Ok(located.map(|located| self.read(located)).transpose()?)
    }

    /// Removes a file's blocks, and returns once they cannot come back.
    pub(super) fn forget(&self, writer: &mut Writer<'_>, file: &FileKey) -> Result<(), Error> {
        let file_tag = self.sealer.file_tag(file);
        self.state.lock().remove_file(file_tag);
        if self.device.off_for().is_some() {
            return Err(Error::Off);
        }
        if mutations::is(Mutation::ForgetNotWritten) {
            return Ok(());
        }
        // The second try follows a checkpoint, which frees segments and leaves the file out.
        for _ in 0..2 {
            // Twice, so that a damaged sector does not bring the file back.
            let mut state = self.state.lock();
            let header = forget_header(file_tag);
            let is_appended =
                state.append(header, &[], 0).is_some() && state.append(header, &[], 0).is_some();
            drop(state);
            if is_appended {
                self.write_out(writer, 1)?;
                if mutations::is(Mutation::ForgetNotSynced) {
                    return Ok(());
                }
                return Ok(self.device.sync()?);
            }
            self.write_out(writer, 1)?;
            self.checkpoint(writer)?;
        }
        Err(Error::Off)
    }

    /// Tries a device that is off. It is used again if it is still this cache and takes a write.
    fn probe(&self, writer: &mut Writer<'_>) -> Result<bool, Error> {
        self.device.stay_off();
        let mut superblock = {
            let mut state = self.state.lock();
            state.abandon();
            state.superblock
        };
        let buffer = writer.capacity_mut();
        let is_whole = self
            .device
            .size()
            .is_ok_and(|len| len >= superblock.total_bytes());
        if !is_whole || self.device.read_at(0, &mut buffer[..2 * PAGE]).is_err() {
            return Ok(false);
        }
        let copies = [
            Superblock::parse(&buffer[..PAGE]),
            Superblock::parse(&buffer[PAGE..2 * PAGE]),
        ];
        let is_ours = |copy: &Found| matches!(copy, Found::Valid(found) if found.salt == superblock.salt && found.epoch == superblock.epoch);
        if !copies.iter().any(is_ours) {
            return Ok(false);
        }
        // The write that failed may have raised the generation by two.
        superblock.generation += 2;
        if write_superblock(&self.device, &mut superblock, buffer).is_err() {
            return Ok(false);
        }
        self.state.lock().superblock = superblock;
        self.device.turn_on();
        Ok(true)
    }
}

/// Returns the number of segments to keep free or pending.
pub(super) fn reserve(state: &State) -> usize {
    (state.segments.len() / RESERVE_PART).max(4)
}
