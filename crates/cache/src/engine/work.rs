//! What happens in the background: writing, forgetting, probing, and when to clean and save.

use std::ops::Range;
use std::time::Duration;

use parking_lot::MutexGuard;
use ropeway_block::BlockMut;

use crate::engine::Inner;
use crate::engine::recover::write_superblock;
use crate::engine::state::{Chunk, State, Use, forget_header};
use crate::error::Error;
use crate::key::FileKey;
use crate::log::superblock::{Found, Superblock};
use crate::log::{PAGE, SECTOR};
use crate::mutations::{self, Mutation};

/// Bytes that are written at once while a segment fills: what a crash may lose.
pub(super) const FLUSH_BYTES: usize = 256 * 1024;

/// Time between probes of a device that is off.
const PROBE: Duration = Duration::from_secs(30);

/// Slots of the index that are looked at under one lock: some microseconds. A lookup that comes in
/// between spins that long, and need not be woken, which takes much longer.
pub(super) const PIECE: usize = 256;

/// Blocks evicted under one lock.
const EVICTED_AT_ONCE: usize = 64;

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
            (state.reserve(), state.segments.len())
        };
        // Bounded: each round frees a segment or ends the loop.
        for _ in 0..segments {
            while self.state.lock().keep_room(EVICTED_AT_ONCE) {}
            let (free, pending) = {
                let state = self.state.lock();
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

    /// Shows all slots of the index to `visit`, a piece at a time. Others use the cache in between.
    /// Segments are sealed and freed, and blocks moved, by who holds the writer only.
    pub(super) fn each_slot(&self, mut visit: impl FnMut(&mut State, Range<usize>)) {
        let mut first = 0;
        loop {
            let mut state = self.state.lock();
            let end = (first + PIECE).min(state.index.slots());
            visit(&mut state, first..end);
            let is_last = end == state.index.slots();
            drop(state);
            if is_last {
                return;
            }
            std::thread::yield_now();
            first = end;
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

    /// Removes a file's blocks, and returns once they cannot come back.
    pub(super) fn forget(&self, writer: &mut Writer<'_>, file: &FileKey) -> Result<(), Error> {
        let file_tag = self.sealer.file_tag(file);
        self.each_slot(|state, slots| state.remove_file(slots, file_tag));
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
