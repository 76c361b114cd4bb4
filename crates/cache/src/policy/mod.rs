//! Which blocks stay: decayed use, with a half-life that is learned.
//!
//! No I/O, no threads, no clock. The randomness is a seed.
//!
//! Every block has a use count that halves each half-life (`ranking`). The victim is the least
//! likely of 16 random blocks, except for blocks that have just come. Counts of evicted blocks are
//! remembered for a while (`ghosts`). A short half-life makes this LRU, a long one LFU. Which is
//! better depends on the workload and on the size of the cache: at 1 % of a disk's footprint LRU
//! wins, at 10 % frequency does. So five shadows (`shadow`) with half-lives of 1/8, 1/2, 2, 8 and 32
//! generations see a sample of the accesses, and the half-life in use is the mean of theirs,
//! weighted by their recent hits.
//!
//! Predictions (`predict`) count too: likelihood = decayed use + pending predictions. A block in the
//! cache that a prediction expects is protected for a while (`expected`); one that is fetched comes
//! in as any newcomer, without the uses of its earlier life.
//!
//! Measured: `cargo run --release -p ropeway-cache --example replay` prints the hit ratios beside
//! FIFO, LRU and S3-FIFO. The reasons are in `docs/adr/0016-the-policy-of-the-cache.md`.

mod expected;
mod ghosts;
mod ranking;
mod shadow;

use expected::Expected;
use ghosts::Ghosts;
use ranking::Ranking;
use shadow::Shadow;

use crate::table::mix;

/// Half-lives of the shadows in generations: steps of four, from nearly LRU to LFU. Steps of two made
/// no difference on P2. The last one costs .001 there, and gains .02 where popularity never changes
/// and the cache is small (Zipf's law with .6, 1 %).
const HALF_LIVES: [f32; 5] = [0.125, 0.5, 2.0, 8.0, 32.0];

/// Slots of a shadow: a 32nd of the cache, between these bounds.
const SHADOW_SLOTS: (usize, usize) = (256, 1024);

/// Hits of shadows are forgotten after this many accesses a slot. 8 to 512 made no difference above
/// .003 on P2.
const MEMORY: f32 = 32.0;

/// Difference of hit ratios at which the better shadow weighs e times as much. 0.0005 to 0.004 made no
/// difference on P2.
const TEMPERATURE: f32 = 0.002;

/// What a half-life is given in advance over one that is four times shorter, as a hit ratio. What a
/// long memory keeps pays off later than what a short one keeps, and cannot be had back once
/// evicted. The largest value that cost less than .001 on P2 at every size.
const PATIENCE: f32 = 0.004;

/// Uses that a block is expected to have which a prediction brings: about its precision.
const PREDICTED: f32 = 0.5;

/// Accesses of the sample between two decisions.
const INTERVAL: u32 = 16;

/// A block to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its slot.
    pub slot: u32,
    code: u8,
    age: u32,
}

/// Decides which blocks stay. Blocks are known by slot, and by a tag that survives eviction.
#[derive(Debug)]
pub struct Policy {
    ranking: Ranking,
    ghosts: Ghosts,
    expected: Expected,
    shadows: [Shadow; HALF_LIVES.len()],
    hits: [f32; HALF_LIVES.len()],
    sampled: f32,
    until_decision: u32,
    /// Tags whose mixed value is at most this are in the sample.
    sample_max: u64,
    forget: f32,
    generations: f32,
    rng: fastrand::Rng,
}

impl Policy {
    /// Makes a policy for a cache of `slots` slots.
    ///
    /// # Panics
    /// If `slots` is 0.
    pub fn new(slots: usize, seed: u64) -> Self {
        assert!(slots > 0, "a cache has at least one slot");
        let of_shadow = (slots / 32).clamp(SHADOW_SLOTS.0, SHADOW_SLOTS.1).min(slots);
        Self {
            ranking: Ranking::new(slots),
            ghosts: Ghosts::new(slots),
            expected: Expected::new(slots),
            shadows: HALF_LIVES.map(|generations| Shadow::new(of_shadow, generations)),
            hits: [0.0; HALF_LIVES.len()],
            sampled: 0.0,
            until_decision: INTERVAL,
            sample_max: sample_max(of_shadow, slots),
            forget: 1.0 - 1.0 / (MEMORY * of_shadow as f32),
            generations: HALF_LIVES[HALF_LIVES.len() - 1],
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.ranking.memory_bytes()
            + self.ghosts.memory_bytes()
            + self.expected.memory_bytes()
            + self.shadows.iter().map(Shadow::memory_bytes).sum::<usize>()
    }

    /// Returns the half-life in use, in generations of the cache.
    pub fn half_life(&self) -> f32 {
        self.generations
    }

    /// Adds slots. What was learned stays, until it is of a much smaller cache.
    pub fn grow(&mut self, slots: usize) {
        self.ranking.grow(slots);
        if self.ghosts.len() * 3 < slots * 2 {
            self.ghosts = Ghosts::new(slots);
        }
        self.expected = Expected::new(slots);
        let of_shadow = (slots / 32).clamp(SHADOW_SLOTS.0, SHADOW_SLOTS.1).min(slots);
        if self.shadows[0].slots() * 3 < of_shadow * 2 {
            self.shadows = HALF_LIVES.map(|generations| Shadow::new(of_shadow, generations));
        }
        let of_shadow = self.shadows[0].slots();
        self.sample_max = sample_max(of_shadow, slots);
        self.forget = 1.0 - 1.0 / (MEMORY * of_shadow as f32);
    }

    fn ticks(&self) -> f32 {
        self.generations * self.ranking.slots() as f32
    }

    /// Learns from an access, whether it hits or not. Call it once for every access.
    pub fn access(&mut self, tag: u64) {
        if mix(tag ^ 0x5bd1_e995) > self.sample_max {
            return;
        }
        self.sampled = self.sampled * self.forget + 1.0;
        for (shadow, hits) in self.shadows.iter_mut().zip(&mut self.hits) {
            let hit = shadow.access(tag, &mut self.rng);
            *hits = *hits * self.forget + f32::from(u8::from(hit));
        }
        self.until_decision -= 1;
        if self.until_decision == 0 {
            self.until_decision = INTERVAL;
            self.decide();
        }
    }

    /// Sets the half-life to the weighted mean (of logarithms) of those of the shadows.
    fn decide(&mut self) {
        let value = |at: usize| {
            let patience = PATIENCE * HALF_LIVES[at].log2() / 2.0;
            self.hits[at] + patience * self.sampled
        };
        let best = (0..HALF_LIVES.len()).map(value).fold(f32::MIN, f32::max);
        let (mut sum, mut weights) = (0.0, 0.0);
        for (at, half_life) in HALF_LIVES.iter().enumerate() {
            let weight = ((value(at) - best) / (self.sampled * TEMPERATURE + 1.0)).exp();
            sum += weight * half_life.log2();
            weights += weight;
        }
        self.generations = (sum / weights).exp2();
    }

    /// Counts a use of a block in the cache.
    pub fn touch(&mut self, slot: u32) {
        self.expected.remove(slot);
        self.ranking.touch(slot, self.ticks());
    }

    /// Takes in a block.
    pub fn insert(&mut self, slot: u32, tag: u64) {
        let earlier = self.ghosts.take(tag, self.ranking.tick(), self.ticks());
        self.ranking.insert(slot, earlier);
    }

    /// Takes in a block that a prediction brought. Its earlier uses stay with the ghosts until it is
    /// used: most blocks that come this way are used once or never.
    pub fn insert_predicted(&mut self, slot: u32) {
        self.ranking.insert(slot, None);
    }

    /// Notes a prediction of a block that is in the cache: it is not evicted until it is used or
    /// until as many other blocks were predicted as one in 32 of the cache.
    pub fn expect(&mut self, slot: u32) {
        self.expected.insert(slot);
    }

    /// Drops a block without remembering it.
    pub fn remove(&mut self, slot: u32) {
        self.expected.remove(slot);
        self.ranking.remove(slot);
    }

    /// Drops a block and remembers its count.
    pub fn evict(&mut self, slot: u32, tag: u64) {
        let (code, age) = self.ranking.get(slot);
        self.expected.remove(slot);
        self.ranking.remove(slot);
        let (tick, ticks) = (self.ranking.tick(), self.ticks());
        self.ghosts.insert(tag, code, age, tick, ticks);
    }

    /// Chooses a block to evict among those that `may_go`.
    pub fn victim(&mut self, may_go: impl Fn(u32) -> bool) -> Option<Victim> {
        let half_life = self.ticks();
        let expected = &self.expected;
        self.ranking
            .victim(half_life, &mut self.rng, may_go, |slot| expected.contains(slot))
    }

    /// Returns how likely a block is to be used again: log2 of its decayed use count, to which a
    /// pending prediction adds one use.
    pub fn likelihood(&self, slot: u32) -> f32 {
        let score = self.ranking.score(slot, self.ticks());
        match self.expected.contains(slot) {
            true => (score.exp2() + 1.0).log2(),
            false => score,
        }
    }

    /// Returns the likelihood of a block that is about to come in, in uses: that of its request, and what
    /// is remembered of its earlier life. One that a prediction brings has none yet.
    pub fn newcomer(&self, tag: u64, is_predicted: bool) -> f32 {
        if is_predicted {
            return PREDICTED;
        }
        let (tick, ticks) = (self.ranking.tick(), self.ticks());
        1.0 + self.ghosts.get(tag, tick, ticks).map_or(0.0, f32::exp2)
    }

    /// Returns what a checkpoint keeps of a block: the code of its count, and its age in ticks.
    pub fn save(&self, slot: u32) -> (u8, u32) {
        self.ranking.get(slot)
    }

    /// Takes in a block from a checkpoint.
    pub fn load(&mut self, slot: u32, code: u8, age: u32) {
        self.ranking.put(slot, code, age);
    }
}

/// Returns the largest mixed tag in a sample of `part` of `whole`.
fn sample_max(part: usize, whole: usize) -> u64 {
    if part >= whole {
        return u64::MAX;
    }
    (u64::MAX / whole as u64).saturating_mul(part as u64)
}
