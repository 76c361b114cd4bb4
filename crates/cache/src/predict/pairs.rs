//! Lagged association: a request for one block predicts another some requests later.
//!
//! Pairs are learned at least as many requests apart as a fetch takes, since the block that follows
//! at once cannot be fetched in time (after MITHRIL: Yang et al., SoCC '17). A pair counts how often
//! it was tried and how often the second block did follow. At 15 tries both are halved, so old
//! habits fade.
//!
//! The table has buckets of 8 pairs, by the first block, and 9 bytes a pair. A full bucket loses its
//! least proven pair; among equals the last one, and each success moves a pair one cell to the front.

use crate::predict::block::Block;
use crate::table::mix;

/// Pairs in a bucket.
pub(super) const WAYS: usize = 8;
/// Bytes of a pair.
pub(super) const PAIR_BYTES: usize = 9;
/// Largest count.
const COUNT_MAX: u8 = 15;

/// Worth of a hit and of a try, when a pair must give way. On P2, 8 to 1 was best: tries without a
/// weight cost .007 of the hit ratio, a weight of a quarter .010.
const WORTH: (i32, i32) = (8, 1);

/// The second block of a pair, with the pair's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Follower {
    pub(super) block: Block,
    /// Times that the block followed, at most `tries`.
    pub(super) hits: u8,
    /// Times that it was expected, 1 to 15.
    pub(super) tries: u8,
}

/// A bounded table of pairs, as arrays so that nothing is lost to padding.
#[derive(Debug)]
pub(super) struct Pairs {
    /// 16 bits of the first block's hash; the bucket is another part of it.
    fingerprints: Vec<u16>,
    high: Vec<u16>,
    low: Vec<u32>,
    /// Hits in the upper half, tries in the lower; 0 marks an empty cell.
    counts: Vec<u8>,
}

impl Pairs {
    /// Makes a table for so many pairs, and at least one bucket.
    pub(super) fn new(pairs: usize) -> Self {
        let cells = (pairs / WAYS).max(1) * WAYS;
        Self {
            fingerprints: vec![0; cells],
            high: vec![0; cells],
            low: vec![0; cells],
            counts: vec![0; cells],
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let shorts = self.fingerprints.capacity() + self.high.capacity();
        shorts * size_of::<u16>() + self.low.capacity() * size_of::<u32>() + self.counts.capacity()
    }

    fn place(&self, first: Block) -> (usize, u16) {
        let mixed = mix(first.number());
        let buckets = (self.counts.len() / WAYS) as u64;
        let bucket = ((mixed >> 32) * buckets) >> 32;
        (bucket as usize * WAYS, mixed as u16)
    }

    fn second(&self, cell: usize) -> Block {
        Block::from_number(u64::from(self.high[cell]) << 32 | u64::from(self.low[cell]))
    }

    fn counts(&self, cell: usize) -> (u8, u8) {
        (self.counts[cell] >> 4, self.counts[cell] & 15)
    }

    /// A block is requested, and each of its pairs is tried. Returns their seconds, with the counts
    /// before this try.
    pub(super) fn expect(&mut self, first: Block) -> impl Iterator<Item = Follower> + use<> {
        let (bucket, fingerprint) = self.place(first);
        let mut followers = [None; WAYS];
        for (cell, follower) in (bucket..bucket + WAYS).zip(&mut followers) {
            if self.counts[cell] == 0 || self.fingerprints[cell] != fingerprint {
                continue;
            }
            let block = self.second(cell);
            let (mut hits, mut tries) = self.counts(cell);
            *follower = Some(Follower { block, hits, tries });
            if tries == COUNT_MAX {
                (hits, tries) = (hits / 2, tries / 2);
            }
            self.counts[cell] = hits << 4 | (tries + 1);
        }
        followers.into_iter().flatten()
    }

    /// The second block of a pair followed. Returns whether the table has the pair.
    pub(super) fn strengthen(&mut self, first: Block, second: Block) -> bool {
        let (bucket, fingerprint) = self.place(first);
        let is_it = |cell: &usize| {
            self.counts[*cell] != 0 && self.fingerprints[*cell] == fingerprint && self.second(*cell) == second
        };
        let Some(cell) = (bucket..bucket + WAYS).find(is_it) else {
            return false;
        };
        let (hits, tries) = self.counts(cell);
        self.counts[cell] = (hits + 1).min(tries) << 4 | tries;
        if cell > bucket {
            self.swap(cell, cell - 1);
        }
        true
    }

    /// Adds a pair that is not in the table.
    pub(super) fn insert(&mut self, first: Block, second: Block) {
        let (bucket, fingerprint) = self.place(first);
        let worth = |cell: &usize| {
            let (hits, tries) = self.counts(*cell);
            let worth = i32::from(hits) * WORTH.0 - i32::from(tries) * WORTH.1;
            if tries == 0 { i32::MIN } else { worth }
        };
        let cells = (bucket..bucket + WAYS).rev();
        let cell = cells.min_by_key(worth).expect("a bucket has cells");
        self.fingerprints[cell] = fingerprint;
        self.set_second(cell, second);
        self.counts[cell] = 1 << 4 | 1;
    }

    fn set_second(&mut self, cell: usize, second: Block) {
        self.high[cell] = (second.number() >> 32) as u16;
        self.low[cell] = second.number() as u32;
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.fingerprints.swap(one, other);
        self.high.swap(one, other);
        self.low.swap(one, other);
        self.counts.swap(one, other);
    }

    /// Drops all pairs.
    pub(super) fn clear(&mut self) {
        self.fingerprints.fill(0);
        self.high.fill(0);
        self.low.fill(0);
        self.counts.fill(0);
    }

    fn clear_cell(&mut self, cell: usize) {
        self.fingerprints[cell] = 0;
        self.set_second(cell, Block::from_number(0));
        self.counts[cell] = 0;
    }

    /// Drops all pairs whose second block is to be forgotten.
    pub(super) fn forget_seconds(&mut self, is_forgotten: impl Fn(Block) -> bool) {
        for cell in 0..self.counts.len() {
            if self.counts[cell] != 0 && is_forgotten(self.second(cell)) {
                self.clear_cell(cell);
            }
        }
    }

    /// Drops all pairs that begin with a block.
    pub(super) fn forget_first(&mut self, first: Block) {
        let (bucket, fingerprint) = self.place(first);
        for cell in bucket..bucket + WAYS {
            if self.counts[cell] != 0 && self.fingerprints[cell] == fingerprint {
                self.clear_cell(cell);
            }
        }
    }

    /// Returns the number of cells.
    pub(super) fn cells(&self) -> usize {
        self.counts.len()
    }

    /// Returns the cells as they are saved, 9 bytes each.
    pub(super) fn save(&self) -> impl Iterator<Item = [u8; PAIR_BYTES]> + '_ {
        (0..self.cells()).map(|cell| {
            let mut bytes = [0; PAIR_BYTES];
            bytes[..2].copy_from_slice(&self.fingerprints[cell].to_le_bytes());
            bytes[2..4].copy_from_slice(&self.high[cell].to_le_bytes());
            bytes[4..8].copy_from_slice(&self.low[cell].to_le_bytes());
            bytes[8] = self.counts[cell];
            bytes
        })
    }

    /// Sets a cell as it was saved. Returns whether its counts are possible.
    pub(super) fn load(&mut self, cell: usize, bytes: &[u8; PAIR_BYTES]) -> bool {
        let [f0, f1, h0, h1, l0, l1, l2, l3, counts] = *bytes;
        let (hits, tries) = (counts >> 4, counts & 15);
        if hits > tries {
            return false;
        }
        self.fingerprints[cell] = u16::from_le_bytes([f0, f1]);
        self.high[cell] = u16::from_le_bytes([h0, h1]);
        self.low[cell] = u32::from_le_bytes([l0, l1, l2, l3]);
        self.counts[cell] = counts;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64) -> Block {
        Block::from_number(number)
    }

    #[test]
    fn a_pair_counts_tries_and_hits_and_fades() {
        let mut pairs = Pairs::new(8);
        let far = block(0xabcd_1234_5678);
        assert!(!pairs.strengthen(block(1), far));
        pairs.insert(block(1), far);
        let follower = pairs.expect(block(1)).next().expect("one pair");
        assert_eq!(follower, Follower { block: far, hits: 1, tries: 1 });
        assert!(pairs.strengthen(block(1), far));
        let follower = pairs.expect(block(1)).next().expect("one pair");
        assert_eq!((follower.hits, follower.tries), (2, 2));
        for _ in 0..200 {
            pairs.expect(block(1)).for_each(drop);
        }
        let follower = pairs.expect(block(1)).next().expect("one pair");
        assert_eq!(follower.hits, 0, "unused pairs fade");
        assert_eq!(pairs.expect(block(2)).count(), 0);
    }

    #[test]
    fn a_full_bucket_loses_its_least_proven_pair() {
        let mut pairs = Pairs::new(8);
        for second in 10..18 {
            pairs.insert(block(1), block(second));
        }
        pairs.expect(block(1)).for_each(drop);
        for second in (10..18).filter(|second| *second != 13) {
            assert!(pairs.strengthen(block(1), block(second)));
        }
        pairs.insert(block(1), block(99));
        let seconds: Vec<u64> = pairs.expect(block(1)).map(|found| found.block.number()).collect();
        assert!(seconds.contains(&99) && !seconds.contains(&13), "{seconds:?}");
        assert_eq!(seconds.len(), WAYS);
    }

    #[test]
    fn what_is_forgotten_is_gone_as_first_and_as_second() {
        let of_file = |file, index| Block::new(file, index).expect("within bounds");
        let mut pairs = Pairs::new(64);
        pairs.insert(of_file(1, 0), of_file(2, 0));
        pairs.insert(of_file(2, 5), of_file(3, 0));
        pairs.forget_seconds(|block| block.file() == 2);
        pairs.forget_first(of_file(2, 5));
        assert!(pairs.save().all(|cell| cell == [0; PAIR_BYTES]));
    }
}
