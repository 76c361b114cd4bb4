//! Fetches that predictions caused, until their block is requested or they are given up.
//!
//! A ring, so that the oldest prediction gives way, with a table to find a block. 19 bytes a cell.

use crate::predict::block::Block;
use crate::predict::class::{Class, Source};
use crate::table::{Table, mix};

/// A block on its way or in the cache that no one has requested yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) block: Block,
    pub(super) source: Source,
    /// Number of the request that caused it.
    pub(super) at: u32,
}

/// The predictions that were carried out and are open.
#[derive(Debug)]
pub(super) struct Pending {
    /// The block's number, and above it the source.
    blocks: Vec<u64>,
    at: Vec<u32>,
    table: Table,
    next: usize,
}

/// Marks a free cell.
const FREE: u64 = u64::MAX;

fn tag(block: Block) -> u64 {
    mix(block.number())
}

impl Pending {
    pub(super) fn new(cells: usize) -> Self {
        Self {
            blocks: vec![FREE; cells],
            at: vec![0; cells],
            table: Table::new(cells),
            next: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<u64>()
            + self.at.capacity() * size_of::<u32>()
            + self.table.memory_bytes()
    }

    fn fetch(&self, cell: usize) -> Option<Fetch> {
        let entry = self.blocks[cell];
        let source = if entry >> 63 == 0 {
            Source::Stream
        } else {
            Source::Pair
        };
        (entry != FREE).then_some(Fetch {
            block: Block::from_number(entry),
            source,
            at: self.at[cell],
        })
    }

    fn find(&self, block: Block) -> Option<usize> {
        let blocks = &self.blocks;
        let tag_of = |cell: u32| tag(Block::from_number(blocks[cell as usize]));
        self.table.find(tag(block), tag_of).map(|cell| cell as usize)
    }

    fn free(&mut self, cell: usize) -> Option<Fetch> {
        let fetch = self.fetch(cell)?;
        let blocks = &self.blocks;
        let tag_of = |cell: u32| tag(Block::from_number(blocks[cell as usize]));
        self.table.remove(tag(fetch.block), cell as u32, tag_of);
        self.blocks[cell] = FREE;
        Some(fetch)
    }

    /// Whether a block is on its way or waits to be requested.
    pub(super) fn contains(&self, block: Block) -> bool {
        self.find(block).is_some()
    }

    /// Adds a fetch of a block that has none open. Returns the one that gives way for it.
    pub(super) fn insert(&mut self, block: Block, class: Class, now: u32) -> Option<Fetch> {
        let cell = self.next;
        self.next = (cell + 1) % self.blocks.len();
        let oldest = self.free(cell);
        let source = match class.source() {
            Source::Stream => 0,
            Source::Pair => 1,
        };
        self.blocks[cell] = block.number() | source << 63;
        self.at[cell] = now;
        self.table.insert(tag(block), cell as u32);
        oldest
    }

    /// Takes a block's fetch out.
    pub(super) fn take(&mut self, block: Block) -> Option<Fetch> {
        self.find(block).and_then(|cell| self.free(cell))
    }

    /// Takes out the fetches of blocks that are forgotten.
    pub(super) fn forget(&mut self, is_forgotten: impl Fn(Block) -> bool) {
        for cell in 0..self.blocks.len() {
            if self.fetch(cell).is_some_and(|fetch| is_forgotten(fetch.block)) {
                self.free(cell);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_behaves_like_a_map_that_loses_its_oldest_entry() {
        let classes = [Class::pair(1, 1), Class::stream(1, 1, 1)];
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut pending = Pending::new(16);
            let mut model: HashMap<u64, (Source, u32)> = HashMap::new();
            for now in 0..1000 {
                let number = rng.u64(..40);
                let block = Block::from_number(number);
                assert_eq!(
                    pending.contains(block),
                    model.contains_key(&number),
                    "seed {seed}"
                );
                if let Some(fetch) = pending.take(block) {
                    assert_eq!(model.remove(&number), Some((fetch.source, fetch.at)));
                } else {
                    let class = classes[rng.usize(..2)];
                    if let Some(lost) = pending.insert(block, class, now) {
                        assert!(model.remove(&lost.block.number()).is_some(), "seed {seed}");
                    }
                    model.insert(number, (class.source(), now));
                }
            }
            pending.forget(|block| block.number() % 2 == 0);
            assert!(
                model
                    .keys()
                    .all(|number| { pending.contains(Block::from_number(*number)) == (number % 2 == 1) })
            );
        }
    }
}
