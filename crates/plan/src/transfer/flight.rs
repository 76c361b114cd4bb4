//! The blocks in flight of one transfer.

use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    Ready,
    Writing,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    length: usize,
    state: State,
}

/// Blocks from the start of their read to the end of their write. Bounded by the engine's depth.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// By offset; never overlapping.
    blocks: BTreeMap<u64, Block>,
    /// Blocks that are read and not yet being written, in the order in which their reads finished.
    ready: VecDeque<u64>,
    reading: usize,
    writing: usize,
}

impl Flight {
    /// All blocks in flight.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Reads in flight.
    pub(super) fn reading(&self) -> usize {
        self.reading
    }

    /// Writes in flight.
    pub(super) fn writing(&self) -> usize {
        self.writing
    }

    /// Offset of the lowest block in flight.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.blocks.keys().next().copied()
    }

    /// Begins a read.
    pub(super) fn read(&mut self, offset: u64, length: u64) -> usize {
        // Engines plan at most 2 MiB, the tuner a pooled buffer: far below any usize.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let state = State::Reading;
        let earlier = self.blocks.insert(offset, Block { length, state });
        assert!(earlier.is_none(), "block at {offset} planned twice");
        self.reading += 1;
        length
    }

    /// Bytes asked for by the read in flight at `offset`.
    pub(super) fn reading_length(&self, offset: u64) -> usize {
        match self.blocks.get(&offset) {
            Some(block) if block.state == State::Reading => block.length,
            _ => panic!("no read at {offset} is in flight"),
        }
    }

    /// A read has finished; a block that got nothing is gone.
    pub(super) fn read_done(&mut self, offset: u64, length: usize) {
        self.reading -= 1;
        if length == 0 {
            self.blocks.remove(&offset);
        } else {
            let state = State::Ready;
            self.blocks.insert(offset, Block { length, state });
            self.ready.push_back(offset);
        }
    }

    /// Forgets read blocks at or beyond `end`: the file has shrunk. No block straddles `end`, since `end` lies inside
    /// (or at the start of) the block whose read came short.
    pub(super) fn drop_ready_from(&mut self, end: u64) {
        if self.ready.iter().any(|offset| *offset >= end) {
            self.ready.retain(|offset| *offset < end);
            self.blocks
                .retain(|offset, block| *offset < end || block.state != State::Ready);
        }
    }

    /// Begins the write of the block whose read finished first.
    pub(super) fn write_first_read(&mut self) -> Option<(u64, usize)> {
        let offset = self.ready.pop_front()?;
        Some(self.write(offset))
    }

    /// Begins the write of the lowest block in flight, if it is read.
    pub(super) fn write_lowest(&mut self) -> Option<(u64, usize)> {
        let (offset, block) = self.blocks.first_key_value()?;
        if block.state != State::Ready {
            return None;
        }
        let offset = *offset;
        self.ready.retain(|ready| *ready != offset);
        Some(self.write(offset))
    }

    /// A write has finished.
    pub(super) fn write_done(&mut self, offset: u64, length: usize) {
        match self.blocks.remove(&offset) {
            Some(block) if block.state == State::Writing && block.length == length => self.writing -= 1,
            _ => panic!("no write of {length} bytes at {offset} is in flight"),
        }
    }

    fn write(&mut self, offset: u64) -> (u64, usize) {
        self.writing += 1;
        let Some(block) = self.blocks.get_mut(&offset) else {
            panic!("ready block at {offset} is not in flight");
        };
        block.state = State::Writing;
        (offset, block.length)
    }
}
