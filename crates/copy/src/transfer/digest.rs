//! A hash over blocks that come out of order.

use std::collections::BTreeMap;

use ropeway_block::Block;
use ropeway_vfs::{ContentHash, ContentHasher, HashAlgorithm};

/// A hash over blocks that come out of order; holes count as zeroes.
pub(crate) struct Digest {
    hasher: ContentHasher,
    /// Number of bytes that are hashed.
    upto: u64,
    /// Blocks beyond them, by offset.
    early: BTreeMap<u64, Block>,
}

impl Digest {
    pub(crate) fn new(algorithm: HashAlgorithm) -> Self {
        Self {
            hasher: algorithm.hasher(),
            upto: 0,
            early: BTreeMap::new(),
        }
    }

    /// Adds a block of the file.
    pub(crate) fn add(&mut self, offset: u64, block: Block) {
        self.early.insert(offset, block);
    }

    /// Hashes the blocks that begin at or below `known_upto`. Gaps before them are holes.
    pub(crate) fn settle(&mut self, known_upto: u64) {
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > known_upto {
                return;
            }
            let (offset, block) = entry.remove_entry();
            self.zeroes_to(offset);
            self.hasher.update(&block);
            self.upto = offset + block.len() as u64;
        }
    }

    fn zeroes_to(&mut self, end: u64) {
        static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
        while self.upto < end {
            let length = usize::try_from(end - self.upto)
                .unwrap_or(usize::MAX)
                .min(ZEROES.len());
            self.hasher.update(&ZEROES[..length]);
            self.upto += length as u64;
        }
    }

    /// Hashes all blocks, and the hole between the last one and the end of the file at `size`.
    pub(crate) fn zeroes_upto(&mut self, size: u64) {
        self.settle(u64::MAX);
        self.zeroes_to(size);
    }

    /// Returns the hash.
    pub(crate) fn finish(self) -> ContentHash {
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_block::Pool;

    #[test]
    fn a_digest_of_shuffled_blocks_and_holes_is_that_of_the_whole() {
        let pool = Pool::new(4096, 8);
        let mut whole = vec![0u8; 40_000];
        let mut digest = Digest::new(HashAlgorithm::Blake3);
        for (at, fill) in [(20_480usize, 3u8), (0, 1), (36_864, 9), (8192, 2)] {
            let length = 3000;
            whole[at..at + length].fill(fill);
            let mut block = pool.try_get().unwrap();
            block.capacity_mut()[..length].fill(fill);
            block.set_len(length);
            digest.add(at as u64, block.freeze());
        }
        digest.settle(8192);
        assert_eq!(pool.available(), 6, "what is contiguous is hashed and given back");
        digest.zeroes_upto(40_000);
        assert_eq!(digest.finish(), *blake3::hash(&whole).as_bytes());
    }
}
