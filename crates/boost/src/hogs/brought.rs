//! What became of the blocks that were brought back. Pure, and bounded.
//!
//! Reads that the kernel answers from its memory are not seen. So what was brought back counts as used
//! once a program opens its file, unless it asks for the block again: then it was gone.

use std::collections::HashMap;

use ropeway_cache::predict::Block;

/// Blocks remembered, at most: 4 GiB.
const BLOCKS_MAX: usize = 65_536;

/// Blocks brought back, and what of them was used.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// Bytes of each block.
    blocks: HashMap<Block, u64>,
    /// Bytes of each file that no program has opened since.
    waiting: HashMap<u32, u64>,
    used: u64,
    lost: u64,
}

impl Brought {
    /// Notes a block.
    pub(crate) fn add(&mut self, block: Block, bytes: u64) {
        if self.blocks.len() >= BLOCKS_MAX {
            self.blocks.clear();
            self.waiting.clear();
        }
        if self.blocks.insert(block, bytes).is_none() {
            *self.waiting.entry(block.file()).or_default() += bytes;
        }
    }

    /// Notes that a program has opened a file.
    pub(crate) fn opened(&mut self, file: u32) {
        self.used += self.waiting.remove(&file).unwrap_or(0);
    }

    /// Notes that a program asks for a block, since the kernel does not have it.
    pub(crate) fn asked(&mut self, block: Block) {
        let Some(bytes) = self.blocks.remove(&block) else {
            return;
        };
        self.lost += bytes;
        match self.waiting.get_mut(&block.file()) {
            Some(waiting) => *waiting = waiting.saturating_sub(bytes),
            None => self.used = self.used.saturating_sub(bytes),
        }
    }

    /// Returns the bytes used, and those that had been thrown out again.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.used, self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_opens_is_used_unless_it_was_gone_again() {
        let block = |file, index| Block::new(file, index).unwrap();
        let mut brought = Brought::default();
        for index in 0..4 {
            brought.add(block(1, index), 100);
            brought.add(block(2, index), 10);
        }
        brought.add(block(1, 0), 100);
        assert_eq!(brought.figures(), (0, 0));
        brought.opened(1);
        brought.opened(1);
        brought.opened(9);
        assert_eq!(brought.figures(), (400, 0), "each byte once");
        brought.asked(block(1, 3));
        brought.asked(block(1, 3));
        assert_eq!(brought.figures(), (300, 100));
        // A file that was open all the time.
        brought.asked(block(2, 0));
        assert_eq!(brought.figures(), (300, 110));
        brought.opened(2);
        assert_eq!(brought.figures(), (330, 110));
    }

    #[test]
    fn it_is_bounded() {
        let mut brought = Brought::default();
        for index in 0..BLOCKS_MAX as u64 + 10 {
            brought.add(Block::new(1, index).unwrap(), 1);
        }
        assert_eq!(brought.blocks.len(), 10);
    }
}
