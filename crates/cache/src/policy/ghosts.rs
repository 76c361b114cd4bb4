//! Use counts of blocks that were evicted, so that a block that returns is not a stranger.
//!
//! Buckets of eight: a full bucket loses its least likely ghost. A ghost is a fingerprint of 16
//! bits, the time in coarse units and the count's code: 5 bytes. A false match (one in 8,192
//! misses) starts a block with a count that is too high, which its next decay corrects.

use crate::policy::ranking::decayed;
use crate::table::mix;

/// Ghosts in one bucket.
const WAYS: usize = 8;

/// Remembers as many evicted blocks as the cache has slots.
#[derive(Debug)]
pub(super) struct Ghosts {
    fingerprints: Vec<u16>,
    at: Vec<u16>,
    uses: Vec<u8>,
    /// Ticks in one unit of `at`, as a power of two: 1/1024 of a generation, so that the time wraps
    /// after 64 generations at the earliest.
    shift: u32,
}

impl Ghosts {
    pub(super) fn new(slots: usize) -> Self {
        let cells = slots.div_ceil(WAYS).max(1) * WAYS;
        Self {
            fingerprints: vec![0; cells],
            at: vec![0; cells],
            uses: vec![0; cells],
            shift: (slots / 1024).max(1).ilog2(),
        }
    }

    /// Returns the number of blocks that are remembered at most.
    pub(super) fn len(&self) -> usize {
        self.uses.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fingerprints.capacity() * 2 + self.at.capacity() * 2 + self.uses.capacity()
    }

    fn place(&self, tag: u64) -> (usize, u16) {
        let mixed = mix(tag);
        let buckets = (self.uses.len() / WAYS) as u64;
        let bucket = ((mixed >> 32) * buckets) >> 32;
        (bucket as usize * WAYS, mixed as u16)
    }

    fn age(&self, cell: usize, tick: u32) -> u32 {
        let now = (tick >> self.shift) as u16;
        u32::from(now.wrapping_sub(self.at[cell])) << self.shift
    }

    /// Remembers an evicted block.
    pub(super) fn insert(&mut self, tag: u64, code: u8, age: u32, tick: u32, half_life: f32) {
        let (bucket, fingerprint) = self.place(tag);
        let score = |cell: usize| match self.uses[cell] {
            0 => f32::NEG_INFINITY,
            code => decayed(code, self.age(cell, tick), half_life),
        };
        let cell = (bucket..bucket + WAYS)
            .min_by(|one, other| score(*one).total_cmp(&score(*other)))
            .expect("a bucket has cells");
        self.fingerprints[cell] = fingerprint;
        self.at[cell] = (tick.wrapping_sub(age) >> self.shift) as u16;
        self.uses[cell] = code.max(1);
    }

    fn find(&self, tag: u64) -> Option<usize> {
        let (bucket, fingerprint) = self.place(tag);
        (bucket..bucket + WAYS).find(|cell| self.uses[*cell] != 0 && self.fingerprints[*cell] == fingerprint)
    }

    /// Returns log2 of a block's decayed count.
    pub(super) fn get(&self, tag: u64, tick: u32, half_life: f32) -> Option<f32> {
        let cell = self.find(tag)?;
        Some(decayed(self.uses[cell], self.age(cell, tick), half_life))
    }

    /// Forgets a block; returns log2 of its decayed count.
    pub(super) fn take(&mut self, tag: u64, tick: u32, half_life: f32) -> Option<f32> {
        let score = self.get(tag, tick, half_life)?;
        let cell = self.find(tag)?;
        self.uses[cell] = 0;
        Some(score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_is_taken_once_with_its_decayed_count() {
        let mut ghosts = Ghosts::new(100);
        ghosts.insert(7, 33, 10, 100, 50.0);
        assert_eq!(ghosts.get(7, 140, 50.0), ghosts.get(7, 140, 50.0));
        let score = ghosts.take(7, 140, 50.0).unwrap();
        assert!((score - (2.0 - 1.0)).abs() < 0.01, "{score}");
        assert_eq!(ghosts.take(7, 140, 50.0), None);
    }

    #[test]
    fn a_full_bucket_loses_its_least_likely_ghost() {
        let mut ghosts = Ghosts::new(1);
        for tag in 0..9 {
            ghosts.insert(tag, 1 + tag as u8 * 16, 0, 0, 100.0);
        }
        assert_eq!(ghosts.take(0, 0, 100.0), None);
        assert!(ghosts.take(8, 0, 100.0).is_some());
    }
}
