//! How likely each slot's block is to be used again: uses that decay with time.
//!
//! A block's count halves every half-life and grows by one with a use (LRFU: Lee et al., IEEE
//! Transactions on Computers 50(12), 2001). The clock counts insertions: one tick is one block that
//! came into the cache, and a *generation* is as many ticks as the cache has blocks. Uses in quick
//! succession count once (the correlated reference period of LRU-K: O'Neil et al., SIGMOD '93), since
//! one sequential reader touches a block several times.
//!
//! Cost: 5 bytes a slot. Counts are kept as 16 * log2(count) + 1 in one byte, 0 for an empty slot.

use crate::policy::Victim;

/// Slots compared for one eviction. On P2, 8 cost .002 of the hit ratio and 64 gained less than that.
const SAMPLES: usize = 16;

/// Blocks younger than capacity / 10 ticks are evicted only if all samples are: the share that
/// S3-FIFO gives to its probation queue.
const YOUNG: u32 = 10;

/// Uses within capacity / 20 ticks of the last counted one do not count: half of [`YOUNG`]. On P2,
/// 1 % to 10 % made no difference above .001.
const CORRELATED: u32 = 20;

/// Added to the score of a young block; scores of others lie far below it.
const PROTECTED: f32 = 1.0e9;

/// Decayed use counts of slots.
#[derive(Debug)]
pub(super) struct Ranking {
    at: Vec<u32>,
    uses: Vec<u8>,
    tick: u32,
}

/// Returns the code of a count of at least 1.
fn encode(count: f32) -> u8 {
    // Clamped to a byte, so the cast is exact up to the rounding.
    (count.log2() * 16.0).round().clamp(0.0, 254.0) as u8 + 1
}

/// Returns log2 of the count behind a code.
fn log2_of(code: u8) -> f32 {
    (f32::from(code) - 1.0) / 16.0
}

/// Returns log2 of a count after `age` ticks.
pub(super) fn decayed(code: u8, age: u32, half_life: f32) -> f32 {
    log2_of(code) - age as f32 / half_life
}

impl Ranking {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            at: vec![0; slots],
            uses: vec![0; slots],
            tick: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.at.capacity() * size_of::<u32>() + self.uses.capacity()
    }

    pub(super) fn slots(&self) -> usize {
        self.uses.len()
    }

    pub(super) fn grow(&mut self, slots: usize) {
        self.at.reserve_exact(slots - self.at.len());
        self.uses.reserve_exact(slots - self.uses.len());
        self.at.resize(slots, 0);
        self.uses.resize(slots, 0);
    }

    pub(super) fn tick(&self) -> u32 {
        self.tick
    }

    /// Counts one insertion, with the decayed count of the block's earlier life if that is known.
    pub(super) fn insert(&mut self, slot: u32, earlier_log2: Option<f32>) {
        self.tick = self.tick.wrapping_add(1);
        self.put(slot, encode(1.0 + earlier_log2.map_or(0.0, f32::exp2)), 0);
    }

    /// Sets a slot as it was saved: code and age in ticks.
    pub(super) fn put(&mut self, slot: u32, code: u8, age: u32) {
        self.at[slot as usize] = self.tick.wrapping_sub(age);
        self.uses[slot as usize] = code.max(1);
    }

    /// Returns code and age in ticks.
    pub(super) fn get(&self, slot: u32) -> (u8, u32) {
        (self.uses[slot as usize], self.age(slot))
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.uses[slot as usize] = 0;
    }

    /// Counts a use.
    pub(super) fn touch(&mut self, slot: u32, half_life: f32) {
        let age = self.age(slot);
        if age as usize <= self.slots() / CORRELATED as usize {
            return;
        }
        let count = self.score(slot, half_life).exp2() + 1.0;
        self.put(slot, encode(count), 0);
    }

    fn age(&self, slot: u32) -> u32 {
        self.tick.wrapping_sub(self.at[slot as usize])
    }

    /// Returns log2 of the decayed count: the likelihood by which blocks are ordered.
    pub(super) fn score(&self, slot: u32, half_life: f32) -> f32 {
        decayed(self.uses[slot as usize], self.age(slot), half_life)
    }

    /// Chooses the least likely of some random blocks, among those that `may_go`. Blocks that a
    /// prediction expects are protected as young ones are.
    pub(super) fn victim(
        &self,
        half_life: f32,
        rng: &mut fastrand::Rng,
        may_go: impl Fn(u32) -> bool,
        is_expected: impl Fn(u32) -> bool,
    ) -> Option<Victim> {
        let slots = u32::try_from(self.slots()).expect("slots are numbered by u32");
        let mut best: Option<(f32, u32)> = None;
        let mut consider = |slot: u32| {
            if self.uses[slot as usize] == 0 || !may_go(slot) {
                return;
            }
            let mut score = self.score(slot, half_life);
            if self.age(slot) < slots / YOUNG || is_expected(slot) {
                score += PROTECTED;
            }
            if best.is_none_or(|(lowest, _)| score < lowest) {
                best = Some((score, slot));
            }
        };
        for _ in 0..SAMPLES {
            consider(rng.u32(..slots));
        }
        // A sparse cache, or one full of pinned blocks: look further, with a bound.
        if best.is_none() {
            let start = rng.u32(..slots);
            for step in 0..slots.min(4096) {
                let mut consider_next = |slot: u32| {
                    if best.is_none() && self.uses[slot as usize] != 0 && may_go(slot) {
                        best = Some((0.0, slot));
                    }
                };
                consider_next((u64::from(start) + u64::from(step)).rem_euclid(u64::from(slots)) as u32);
            }
        }
        let (_, slot) = best?;
        let (code, age) = self.get(slot);
        Some(Victim { slot, code, age })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_their_code_and_decay_by_half() {
        for count in [1.0_f32, 2.0, 3.0, 100.0, 60_000.0] {
            let log2 = log2_of(encode(count));
            assert!((log2 - count.log2()).abs() <= 1.0 / 32.0, "{count}");
        }
        assert_eq!(encode(f32::INFINITY), 255);
        assert!((decayed(encode(8.0), 200, 100.0) - 1.0).abs() < 0.05);
    }

    #[test]
    fn quick_uses_count_once_and_later_ones_count() {
        let mut ranking = Ranking::new(100);
        ranking.insert(0, None);
        for _ in 0..10 {
            ranking.touch(0, 100.0);
        }
        assert_eq!(ranking.get(0).0, encode(1.0));
        for slot in 1..50 {
            ranking.insert(slot, None);
        }
        ranking.touch(0, 1.0e6);
        assert_eq!(ranking.get(0), (encode(2.0), 0));
    }

    #[test]
    fn the_last_block_is_found_in_a_sparse_cache() {
        let mut ranking = Ranking::new(2000);
        let mut rng = fastrand::Rng::with_seed(1);
        assert!(ranking.victim(1.0, &mut rng, |_| true, |_| false).is_none());
        ranking.insert(1234, None);
        let victim = ranking.victim(1.0, &mut rng, |_| true, |_| false);
        assert_eq!(victim.map(|victim| victim.slot), Some(1234));
        assert!(ranking.victim(1.0, &mut rng, |_| false, |_| false).is_none());
    }

    #[test]
    fn an_expected_block_stays_longer_than_a_likelier_one() {
        let mut ranking = Ranking::new(16);
        let mut rng = fastrand::Rng::with_seed(1);
        ranking.put(3, encode(1.0), 1000);
        ranking.put(5, encode(4.0), 1000);
        let mut victim = |expected: Option<u32>| {
            let victim = ranking.victim(16.0, &mut rng, |_| true, |slot| Some(slot) == expected);
            victim.map(|victim| victim.slot)
        };
        let victims = |expected, victim: &mut dyn FnMut(Option<u32>) -> Option<u32>| {
            (0..50).filter(|_| victim(expected) == Some(3)).count()
        };
        assert!(victims(None, &mut victim) > 25);
        assert!(victims(Some(3), &mut victim) < 25);
    }
}
