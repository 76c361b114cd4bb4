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

/// Blocks from the start of their read to the end of their write. The engine's depth bounds their
/// number.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// By offset; never overlapping.
    blocks: BTreeMap<u64, Block>,
    /// Blocks that are read and not being written yet, in the order in which their reads finished.
    ready: VecDeque<u64>,
    reading: usize,
    writing: usize,
}

impl Flight {
    /// Returns the number of blocks in flight.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the number of reads in flight.
    pub(super) fn reading(&self) -> usize {
        self.reading
    }

    /// Returns the number of writes in flight.
    pub(super) fn writing(&self) -> usize {
        self.writing
    }

    /// Returns the offset of the lowest block in flight.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.blocks.keys().next().copied()
    }

    /// Starts a read.
    pub(super) fn read(&mut self, offset: u64, length: u64) -> usize {
        // Engines plan at most 2 MiB, the tuner at most a pooled buffer: far below any usize.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let state = State::Reading;
        let earlier = self.blocks.insert(offset, Block { length, state });
        assert!(earlier.is_none(), "block at {offset} planned twice");
        self.reading += 1;
        length
    }

    /// Returns the bytes asked for by the read in flight at `offset`.
    pub(super) fn reading_length(&self, offset: u64) -> usize {
        match self.blocks.get(&offset) {
            Some(block) if block.state == State::Reading => block.length,
            _ => panic!("no read at {offset} is in flight"),
        }
    }

    /// Ends a read; a block that got nothing is removed.
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

    /// Removes ready blocks at or beyond `end`, since the file has shrunk. No block straddles
    /// `end`, which is inside (or at the start of) the block whose read was short.
    pub(super) fn drop_ready_from(&mut self, end: u64) {
        if self.ready.iter().any(|offset| *offset >= end) {
            self.ready.retain(|offset| *offset < end);
            self.blocks
                .retain(|offset, block| *offset < end || block.state != State::Ready);
        }
    }

    /// Starts the write of the block whose read finished first.
    pub(super) fn write_first_read(&mut self) -> Option<(u64, usize)> {
        let offset = self.ready.pop_front()?;
        Some(self.write(offset))
    }

    /// Starts the write of the lowest block in flight that is not being written, if it has been read.
    pub(super) fn write_lowest(&mut self) -> Option<(u64, usize)> {
        let mut blocks = self.blocks.iter();
        let (offset, block) = blocks.find(|(_, block)| block.state != State::Writing)?;
        if block.state != State::Ready {
            return None;
        }
        let offset = *offset;
        self.ready.retain(|ready| *ready != offset);
        Some(self.write(offset))
    }

    /// Ends a write.
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
