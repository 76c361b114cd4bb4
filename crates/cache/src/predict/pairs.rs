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

/// Pairs whose first blocks share a part of their hash: 72 bytes without padding, so a lookup
/// touches one or two lines of the processor's cache.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    low: [u32; WAYS],
    high: [u16; WAYS],
    /// Another part of the first block's hash.
    fingerprints: [u16; WAYS],
    /// Hits in the upper half, tries in the lower; 0 marks an empty cell.
    counts: [u8; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == WAYS * PAIR_BYTES);

/// A bounded table of pairs.
#[derive(Debug)]
pub(super) struct Pairs {
    buckets: Vec<Bucket>,
}

impl Bucket {
    fn second(&self, way: usize) -> Block {
        Block::from_number(u64::from(self.high[way]) << 32 | u64::from(self.low[way]))
    }

    fn counts(&self, way: usize) -> (u8, u8) {
        (self.counts[way] >> 4, self.counts[way] & 15)
    }

    /// Returns the pairs that begin with a block.
    fn of(&self, fingerprint: u16) -> impl Iterator<Item = usize> + use<> {
        let (fingerprints, counts) = (self.fingerprints, self.counts);
        (0..WAYS).filter(move |way| fingerprints[*way] == fingerprint && counts[*way] != 0)
    }

    fn set(&mut self, way: usize, fingerprint: u16, second: Block, counts: u8) {
        self.fingerprints[way] = fingerprint;
        self.high[way] = (second.number() >> 32) as u16;
        self.low[way] = second.number() as u32;
        self.counts[way] = counts;
    }

    fn clear(&mut self, way: usize) {
        self.set(way, 0, Block::from_number(0), 0);
    }

    /// Returns the pair that gives way to a new one.
    fn weakest(&self) -> usize {
        let worth = |way: &usize| {
            let (hits, tries) = self.counts(*way);
            let worth = i32::from(hits) * WORTH.0 - i32::from(tries) * WORTH.1;
            if tries == 0 { i32::MIN } else { worth }
        };
        (0..WAYS).rev().min_by_key(worth).expect("a bucket has cells")
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.fingerprints.swap(one, other);
        self.high.swap(one, other);
        self.low.swap(one, other);
        self.counts.swap(one, other);
    }
}

impl Pairs {
    /// Makes a table for so many pairs, and at least one bucket.
    pub(super) fn new(pairs: usize) -> Self {
        Self {
            buckets: vec![Bucket::default(); (pairs / WAYS).max(1)],
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }

    /// Returns the bucket of a first block, and its fingerprint there.
    fn bucket(&mut self, first: Block) -> (&mut Bucket, u16) {
        let mixed = mix(first.number());
        let bucket = ((mixed >> 32) * self.buckets.len() as u64) >> 32;
        (&mut self.buckets[bucket as usize], mixed as u16)
    }

    /// A block is requested, and each of its pairs is tried. Returns their seconds, with the counts
    /// before this try.
    pub(super) fn expect(&mut self, first: Block) -> impl Iterator<Item = Follower> + use<> {
        let (bucket, fingerprint) = self.bucket(first);
        let mut followers = [None; WAYS];
        for way in bucket.of(fingerprint) {
            let block = bucket.second(way);
            let (mut hits, mut tries) = bucket.counts(way);
            followers[way] = Some(Follower { block, hits, tries });
            if tries == COUNT_MAX {
                (hits, tries) = (hits / 2, tries / 2);
            }
            bucket.counts[way] = hits << 4 | (tries + 1);
        }
        followers.into_iter().flatten()
    }

    /// The second block of a pair followed. Returns whether the table has the pair.
    pub(super) fn strengthen(&mut self, first: Block, second: Block) -> bool {
        let (bucket, fingerprint) = self.bucket(first);
        let mut ways = bucket.of(fingerprint);
        let Some(way) = ways.find(|way| bucket.second(*way) == second) else {
            return false;
        };
        let (hits, tries) = bucket.counts(way);
        bucket.counts[way] = (hits + 1).min(tries) << 4 | tries;
        if way > 0 {
            bucket.swap(way, way - 1);
        }
        true
    }

    /// Adds a pair that is not in the table.
    pub(super) fn insert(&mut self, first: Block, second: Block) {
        let (bucket, fingerprint) = self.bucket(first);
        bucket.set(bucket.weakest(), fingerprint, second, 1 << 4 | 1);
    }

    /// Drops all pairs.
    pub(super) fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
    }

    /// Drops all pairs whose second block is to be forgotten.
    pub(super) fn forget_seconds(&mut self, is_forgotten: impl Fn(Block) -> bool) {
        for bucket in &mut self.buckets {
            for way in 0..WAYS {
                if bucket.counts[way] != 0 && is_forgotten(bucket.second(way)) {
                    bucket.clear(way);
                }
            }
        }
    }

    /// Drops all pairs that begin with a block.
    pub(super) fn forget_first(&mut self, first: Block) {
        let (bucket, fingerprint) = self.bucket(first);
        for way in bucket.of(fingerprint) {
            bucket.clear(way);
        }
    }

    /// Returns the number of pairs.
    pub(super) fn count(&self) -> usize {
        let counts = self.buckets.iter().flat_map(|bucket| bucket.counts);
        counts.filter(|counts| *counts != 0).count()
    }

    /// Returns the number of cells.
    pub(super) fn cells(&self) -> usize {
        self.buckets.len() * WAYS
    }

    /// Returns the cells as they are saved, 9 bytes each.
    pub(super) fn save(&self) -> impl Iterator<Item = [u8; PAIR_BYTES]> + '_ {
        let cells = |bucket: &Bucket| {
            let bucket = *bucket;
            (0..WAYS).map(move |way| {
                let mut bytes = [0; PAIR_BYTES];
                bytes[..2].copy_from_slice(&bucket.fingerprints[way].to_le_bytes());
                bytes[2..4].copy_from_slice(&bucket.high[way].to_le_bytes());
                bytes[4..8].copy_from_slice(&bucket.low[way].to_le_bytes());
                bytes[8] = bucket.counts[way];
                bytes
            })
        };
        self.buckets.iter().flat_map(cells)
    }

    /// Sets a cell as it was saved. Returns whether its counts are possible.
    pub(super) fn load(&mut self, cell: usize, bytes: &[u8; PAIR_BYTES]) -> bool {
        let [f0, f1, h0, h1, l0, l1, l2, l3, counts] = *bytes;
        let (bucket, way) = (&mut self.buckets[cell / WAYS], cell % WAYS);
        bucket.fingerprints[way] = u16::from_le_bytes([f0, f1]);
        bucket.high[way] = u16::from_le_bytes([h0, h1]);
        bucket.low[way] = u32::from_le_bytes([l0, l1, l2, l3]);
        bucket.counts[way] = counts;
        let (hits, tries) = bucket.counts(way);
        hits <= tries
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
        assert_eq!(
            follower,
            Follower {
                block: far,
                hits: 1,
                tries: 1
            }
        );
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
