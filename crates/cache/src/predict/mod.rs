//! Which blocks will be used next, and which of them are worth a fetch. Pure.
//!
//! ```text
//!  request ──> streams ──┐                         ┌──> trials: precision of each class (shadow)
//!     │        pairs ────┴─> likely predictions ───┤                 │
//!     │          ^                                 └──> governor ──> fetches ──> pending
//!     └─ history ┘ (at a lag)                            budgets, ledger            │
//!                                                          ^─── used or in vain ────┘
//! ```
//!
//! No I/O, no threads, no clock: time is counted in requests, the date is an argument. A caller
//! does four things:
//!
//! 1. It calls [`Predictor::request`] for each block that a program asks for, in order, and fetches
//!    the predictions that this returns, likeliest first, behind everything a program waits for.
//! 2. It puts such a block into the cache with
//!    [`Index::insert_predicted`](crate::index::Index::insert_predicted), and counts the prediction of
//!    a block that is there with [`Index::expect`](crate::index::Index::expect).
//! 3. It calls [`Predictor::evicted`] for blocks that leave the cache, if it knows them. Otherwise a
//!    fetch counts as one in vain when a newer one takes its cell.
//! 4. It sets the lag ([`Predictor::set_lag`]): how many requests come while a fetch takes place.
//!    [`Lag`] measures it.
//!
//! Files ([`Successors`]) and hours ([`Calendar`]) have tables of their own; [`Superfetch`] holds all
//! three within 120 bytes a block of the cache and saves them.

mod block;
mod calendar;
mod class;
mod codec;
mod governor;
mod lag;
mod pairs;
mod pending;
mod streams;
mod successors;
mod superfetch;
mod trials;

use std::collections::VecDeque;

pub use block::{Block, FILE_BLOCKS_MAX, FILES_MAX};
pub use calendar::{Calendar, Due, Moment};
use class::Class;
pub use class::Source;
pub use codec::{DecodeError, VERSION};
use governor::Governor;
pub use governor::SourceState;
pub use lag::Lag;
use pairs::Pairs;
use pending::Pending;
pub use streams::STREAMS_MAX;
use streams::Streams;
pub use successors::{Program, Successors};
pub use superfetch::Superfetch;
use trials::Trials;

/// Likelihood from which on a prediction is proposed. Streams need more than pairs, since the distance
/// to which they read ahead is found by trying. On P2, .4 for both gave .003 fewer hits, .3 for both
/// .008 more at a precision of .47.
fn likely(source: Source) -> f32 {
    match source {
        Source::Stream => 0.5,
        Source::Pair => 0.35,
    }
}

/// Requests, in capacities of the cache, after which a prediction was wrong: about as long as an
/// unused block stays. On P2, .5 to 2 made no difference above .003.
const PATIENCE: usize = 1;
/// Misses and first uses that are remembered as the first blocks of pairs.
const HISTORY: usize = 128;
/// Requests beyond the lag within which a pair is learned. On P2, 30 to 200 made no difference.
const WINDOW: u32 = 100;
/// Earlier blocks that may already have a pair with the requested one. On P2, 1 gave .011 fewer hits,
/// 16 gave .002 more.
const LOOK_BACK: usize = 8;
/// Largest lag in requests.
pub const LAG_MAX: u32 = 4096;
/// Predictions of one request at most.
pub const PREDICTIONS_MAX: usize = 40;

/// Whether the cache had a requested block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was in the cache.
    Hit,
    /// It was not, or not yet.
    Miss,
}

/// What a request was to the predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// No prediction had brought the block.
    Unpredicted,
    /// A prediction had brought the block in time, and this is its first use.
    Predicted(Source),
    /// A prediction's fetch was still under way.
    Late(Source),
}

/// A block that is likely to be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The block.
    pub block: Block,
    /// How likely, from 0 to 1: the measured precision of predictions like it.
    pub likelihood: f32,
    /// Where it comes from.
    pub source: Source,
    /// Whether the cache has it: then there is nothing to fetch, but the policy should know.
    pub is_cached: bool,
}

/// Predicts the next blocks from the last ones.
#[derive(Debug)]
pub struct Predictor {
    streams: Streams,
    pairs: Pairs,
    trials: Trials,
    governor: Governor,
    pending: Pending,
    history: VecDeque<(u32, Block)>,
    now: u32,
    last: Option<Block>,
    lag: u32,
}

impl Predictor {
    /// Makes a predictor for a cache of so many blocks, with so many pairs.
    fn new(blocks: usize, pairs: usize) -> Self {
        // A quarter of the cache is enough for predictions that no one has used yet.
        let open_max = (blocks / 4).clamp(16, 1 << 20);
        Self {
            streams: Streams::new(),
            pairs: Pairs::new(pairs),
            trials: Trials::new(u32::try_from(blocks * PATIENCE).unwrap_or(u32::MAX / 2)),
            governor: Governor::new(open_max),
            pending: Pending::new(open_max),
            history: VecDeque::with_capacity(HISTORY),
            now: 0,
            last: None,
            lag: 1,
        }
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.streams.memory_bytes()
            + self.pairs.memory_bytes()
            + self.trials.memory_bytes()
            + self.pending.memory_bytes()
            + self.history.capacity() * size_of::<(u32, Block)>()
    }

    /// Sets how many requests come while a fetch takes place, at most [`LAG_MAX`].
    pub fn set_lag(&mut self, requests: u32) {
        self.lag = requests.clamp(1, LAG_MAX);
    }

    /// Returns budget and precision of each source.
    pub fn sources(&self) -> [SourceState; Source::ALL.len()] {
        self.governor.sources()
    }

    /// Takes a request for a block. Adds the predictions that it leads to, likeliest first. The caller
    /// fetches those that are not in the cache, as `is_cached` says (they are paid for; one that it
    /// does not fetch it reports as [`evicted`](Self::evicted)), and tells the policy of the others.
    pub fn request(
        &mut self,
        block: Block,
        found: Found,
        is_cached: impl Fn(Block) -> bool,
        predictions: &mut Vec<Prediction>,
    ) -> Use {
        self.now = self.now.wrapping_add(1);
        let used = self.resolve(block, found);
        // One reader asks for a block several times in a row: that tells nothing new.
        if self.last.replace(block) == Some(block) && used == Use::Unpredicted && found == Found::Hit {
            return used;
        }
        if let Some(outcome) = self.trials.request(block, self.now, self.lag) {
            self.governor.outcome(outcome);
        }
        let start = predictions.len();
        self.follow_stream(block, &is_cached, predictions);
        // What the cache would have missed. Other uses need no prediction.
        if found == Found::Miss || used != Use::Unpredicted {
            self.learn(block);
            self.follow_pairs(block, &is_cached, predictions);
        }
        predictions[start..].sort_by(|one, other| other.likelihood.total_cmp(&one.likelihood));
        used
    }

    /// Settles the fetch that a prediction caused.
    fn resolve(&mut self, block: Block, found: Found) -> Use {
        if found == Found::Miss {
            self.governor.missed();
        }
        let Some(fetch) = self.pending.take(block) else {
            return Use::Unpredicted;
        };
        let is_late = found == Found::Miss;
        self.governor.used(is_late);
        if is_late {
            self.streams.late(block);
            return Use::Late(fetch.source);
        }
        Use::Predicted(fetch.source)
    }

    /// Proposes a prediction. Returns whether it is under way or in the cache afterwards.
    fn propose(
        &mut self,
        block: Block,
        class: Class,
        is_cached: &impl Fn(Block) -> bool,
        predictions: &mut Vec<Prediction>,
    ) -> bool {
        if self.pending.contains(block) {
            return true;
        }
        let likelihood = self.trials.precision(class);
        let prediction = Prediction {
            block,
            likelihood,
            source: class.source(),
            is_cached: is_cached(block),
        };
        let is_likely = likelihood >= likely(class.source());
        if prediction.is_cached {
            predictions.extend(is_likely.then_some(prediction));
            return true;
        }
        if let Some(outcome) = self.trials.watch(block, class, is_likely, self.now) {
            self.governor.outcome(outcome);
        }
        if !is_likely || !self.governor.allows(class.source()) {
            return false;
        }
        if let Some(oldest) = self.pending.insert(block, class, self.now) {
            self.streams.wasted(oldest.block);
        }
        predictions.push(prediction);
        true
    }

    fn follow_stream(
        &mut self,
        block: Block,
        is_cached: &impl Fn(Block) -> bool,
        predictions: &mut Vec<Prediction>,
    ) {
        let Some(ahead) = self.streams.request(block) else {
            return;
        };
        let mut is_covered = true;
        for distance in ahead.first..=ahead.last {
            let Some(next) = block.at(i64::from(ahead.stride) * i64::from(distance)) else {
                return;
            };
            let class = Class::stream(ahead.stride, ahead.length, distance);
            is_covered &= self.propose(next, class, is_cached, predictions);
            if is_covered {
                self.streams.covered(next);
            }
        }
    }

    /// Learns that a block follows earlier ones: strengthens the pairs that it completes, or begins
    /// one with the last block that was early enough.
    fn learn(&mut self, block: Block) {
        let (now, lag) = (self.now, self.lag);
        let age = |at: u32| now.wrapping_sub(at);
        let early_enough = self.history.iter().rev().skip_while(|(at, _)| age(*at) < lag);
        let firsts = early_enough
            .take_while(|(at, _)| age(*at) <= lag + WINDOW)
            .filter(|(_, first)| *first != block)
            .take(LOOK_BACK);
        let mut is_known = false;
        let mut nearest = None;
        for (_, first) in firsts {
            nearest.get_or_insert(*first);
            if self.pairs.strengthen(*first, block) {
                is_known = true;
                break;
            }
        }
        if let Some(first) = nearest.filter(|_| !is_known) {
            self.pairs.insert(first, block);
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((now, block));
    }

    fn follow_pairs(
        &mut self,
        block: Block,
        is_cached: &impl Fn(Block) -> bool,
        predictions: &mut Vec<Prediction>,
    ) {
        for follower in self.pairs.expect(block) {
            let class = Class::pair(follower.hits, follower.tries);
            self.propose(follower.block, class, is_cached, predictions);
        }
    }

    /// A block left the cache, or its fetch failed.
    pub fn evicted(&mut self, block: Block) {
        if self.pending.take(block).is_some() {
            self.streams.wasted(block);
        }
    }

    /// Whether a prediction brought a block, or is bringing it, that no one has requested yet.
    pub fn is_pending(&self, block: Block) -> bool {
        self.pending.contains(block)
    }

    /// Forgets everything that was learned.
    pub fn forget(&mut self) {
        self.streams.forget(|_| true);
        self.pairs.clear();
        self.trials.clear();
        self.pending.forget(|_| true);
        self.history.clear();
        self.last = None;
    }

    /// Forgets a file, of which so many blocks may have been used.
    pub fn forget_file(&mut self, file: u32, blocks: u64) {
        let is_forgotten = |block: Block| block.file() == file;
        self.streams.forget(is_forgotten);
        self.pairs.forget_seconds(is_forgotten);
        for index in 0..blocks.min(FILE_BLOCKS_MAX) {
            if let Some(first) = Block::new(file, index) {
                self.pairs.forget_first(first);
            }
        }
        self.pending.forget(is_forgotten);
        self.history.retain(|(_, block)| !is_forgotten(*block));
        self.last = self.last.filter(|block| !is_forgotten(*block));
    }
}
