//! Writing a checkpoint: piece by piece, so that lookups wait for one piece at most, and so that it
//! needs no memory for a copy of the index.
//!
//! The pieces are of different moments. That is harmless: segments are sealed and blocks moved by
//! who holds the writer only, so a block that is listed lies in a segment that is listed. It may
//! have been evicted since; then it is there again after a restart. A file is forgotten by who
//! holds the writer, too, so its blocks are in no later checkpoint.

use crc32fast::Hasher;

use crate::engine::Inner;
use crate::engine::health::Guarded;
use crate::engine::recover::write_superblock;
use crate::engine::state::Use;
use crate::engine::work::{PIECE, Writer};
use crate::error::Error;
use crate::log::PAGE;
use crate::log::checkpoint::{COUNT_AT, encode_head};
use crate::log::superblock::CheckpointPlace;

impl Inner {
    /// Writes the index to the device; segments that were cleaned are free then.
    pub(super) fn checkpoint(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let (head, mut superblock, pending) = {
            let state = self.state.lock();
            let pending: Vec<usize> = (0..state.segments.len())
                .filter(|at| state.segments[*at].state == Use::Pending)
                .collect();
            let head = encode_head(state.covered_seq(), &state.sealed(), 0);
            (head, state.superblock, pending)
        };
        // What the checkpoint lists is on the device before the checkpoint is.
        self.device.sync()?;
        let slot = 1 - superblock.checkpoint.slot;
        let mut stream = Stream {
            device: &self.device,
            start: superblock.slot_start(slot),
            room: superblock.checkpoint_bytes,
            buffer: writer.capacity_mut(),
            head: 0,
            tail: 0,
            written: 0,
            rest: Hasher::new(),
        };
        stream.push(&head)?;
        let blocks = self.save_blocks(&mut stream)?;
        let Some((len, crc)) = stream.finish(&superblock.salt, blocks)? else {
            // More blocks than slots were foreseen: not possible, as the index is bounded by them.
            return Ok(());
        };
        superblock.checkpoint = CheckpointPlace { slot, len, crc };
        self.device.sync()?;
        write_superblock(&self.device, &mut superblock, writer.capacity_mut())?;
        let mut state = self.state.lock();
        state.stats.bytes_written += len.next_multiple_of(PAGE as u64) + 2 * PAGE as u64;
        state.superblock = superblock;
        state.sealed_since_checkpoint = 0;
        for at in pending {
            state.segments[at].state = Use::Free;
        }
        Ok(())
    }

    /// Writes the blocks; returns their number.
    fn save_blocks(&self, stream: &mut Stream<'_>) -> Result<u64, Error> {
        let (mut piece, mut blocks, mut first) = (Vec::new(), 0, 0);
        loop {
            piece.clear();
            let state = self.state.lock();
            let end = (first + PIECE).min(state.index.slots());
            for slot in first..end {
                if let Some(saved) = state.saved(slot as u32) {
                    saved.encode(&mut piece);
                    blocks += 1;
                }
            }
            let is_last = end == state.index.slots();
            drop(state);
            stream.push(&piece)?;
            if is_last {
                return Ok(blocks);
            }
            std::thread::yield_now();
            first = end;
        }
    }
}

/// A checkpoint on its way to the device. Its first page is written last, since the number of
/// blocks stands there.
struct Stream<'a> {
    device: &'a Guarded,
    start: u64,
    /// Bytes that the checkpoint may take.
    room: u64,
    /// The first page, then what is collected for the next write.
    buffer: &'a mut [u8],
    /// Bytes of the first page.
    head: usize,
    /// Bytes collected behind the first page.
    tail: usize,
    /// Bytes behind the first page that are on the device.
    written: u64,
    /// The CRC of everything behind the first page.
    rest: Hasher,
}

impl Stream<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (first, mut bytes) = bytes.split_at(bytes.len().min(PAGE - self.head));
        self.buffer[self.head..self.head + first.len()].copy_from_slice(first);
        self.head += first.len();
        self.rest.update(bytes);
        while !bytes.is_empty() {
            let at = PAGE + self.tail;
            let (part, later) = bytes.split_at(bytes.len().min(self.buffer.len() - at));
            self.buffer[at..at + part.len()].copy_from_slice(part);
            self.tail += part.len();
            bytes = later;
            if PAGE + self.tail == self.buffer.len() {
                self.write_tail()?;
            }
        }
        Ok(())
    }

    /// Writes what is collected, if there is room for it.
    fn write_tail(&mut self) -> Result<(), Error> {
        let padded = self.tail.next_multiple_of(PAGE);
        self.buffer[PAGE + self.tail..PAGE + padded].fill(0);
        if PAGE as u64 + self.written + padded as u64 <= self.room {
            let offset = self.start + PAGE as u64 + self.written;
            self.device.write_at(offset, &self.buffer[PAGE..PAGE + padded])?;
        }
        self.written += self.tail as u64;
        self.tail = 0;
        Ok(())
    }

    /// Writes the rest. Returns length and CRC; `None` if there was no room.
    fn finish(mut self, salt: &[u8; 32], blocks: u64) -> Result<Option<(u64, u32)>, Error> {
        self.write_tail()?;
        let len = self.head as u64 + self.written;
        if len.next_multiple_of(PAGE as u64) > self.room {
            return Ok(None);
        }
        let page = &mut self.buffer[..PAGE];
        page[COUNT_AT..COUNT_AT + 8].copy_from_slice(&blocks.to_le_bytes());
        page[self.head..].fill(0);
        self.device.write_at(self.start, page)?;
        let mut crc = Hasher::new();
        crc.update(salt);
        crc.update(&page[..self.head]);
        crc.combine(&self.rest);
        Ok(Some((len, crc.finalize())))
    }
}
