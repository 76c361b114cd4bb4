//! One cache with our policy, and one way to predict, over one trace.

use std::collections::{HashMap, VecDeque};

use crate::index::{Index, Place};
use crate::predict::{Block, Found, Prediction};
use crate::replay::{Prefetch, Trace};

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests for blocks.
    pub requests: u64,
    /// Requests that found their block in the cache.
    pub hits: u64,
    /// Hits within `delay` requests after the miss that fetched their block: on a busy line, whoever
    /// asks again so soon waits with the first one.
    pub joined: u64,
    /// Requests that found their block on its way.
    pub late: u64,
    /// Blocks fetched because a request missed them.
    pub demanded: u64,
    /// Blocks fetched because they were predicted.
    pub prefetched: u64,
    /// Prefetched blocks that were requested while they were in the cache.
    pub used: u64,
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

impl Tally {
    /// Returns the share of requests that hit.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.requests)
    }

    /// Returns the share of requests that hit so soon after a miss that they may have to wait too.
    pub fn joined_ratio(&self) -> f64 {
        ratio(self.joined, self.requests)
    }

    /// Returns the share of requests that found their block on its way.
    pub fn late_ratio(&self) -> f64 {
        ratio(self.late, self.requests)
    }

    /// Returns the share of prefetched blocks that were used in time; none without prefetches.
    pub fn precision(&self) -> Option<f64> {
        (self.prefetched > 0).then(|| ratio(self.used, self.prefetched))
    }

    /// Returns the blocks fetched in all.
    pub fn fetched(&self) -> u64 {
        self.demanded + self.prefetched
    }

    /// Returns how many times as much was fetched as in another replay.
    pub fn traffic(&self, other: &Self) -> f64 {
        ratio(self.fetched(), other.fetched())
    }
}

/// An odd factor, so that tags can be turned back into numbers, and its inverse.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);

fn tag(block: Block) -> u64 {
    block.number().wrapping_mul(FACTOR)
}

struct Cache {
    index: Index,
    capacity: usize,
    /// Prefetched blocks: on their way, or in the cache and not requested yet.
    on_way: HashMap<Block, ()>,
    unused: HashMap<Block, ()>,
}

impl Cache {
    fn has(&self, block: Block) -> bool {
        self.index.find(tag(block)).is_some()
    }

    /// Makes room and takes a block in. Returns the one that left.
    fn take_in(&mut self, block: Block, is_predicted: bool) -> Option<Block> {
        const PLACE: Place = Place {
            sector: 0,
            sectors: 1,
        };
        let mut left = None;
        if self.index.len() == self.capacity
            && let Some(victim) = self.index.victim(|_| true)
        {
            let block = Block::from_number(self.index.tag(victim).wrapping_mul(INVERSE));
            self.unused.remove(&block);
            self.index.evict(victim);
            left = Some(block);
        }
        if is_predicted {
            self.index.insert_predicted(tag(block), PLACE);
            self.unused.insert(block, ());
        } else {
            self.index.insert(tag(block), PLACE);
        }
        left
    }
}

/// Replays a trace with a cache of `capacity` blocks; a prefetch takes `delay` requests.
///
/// # Panics
/// If `capacity` is 0.
pub fn replay(trace: &Trace, capacity: usize, delay: usize, seed: u64, by: &mut dyn Prefetch) -> Tally {
    let mut cache = Cache {
        index: Index::new(capacity, seed),
        capacity,
        on_way: HashMap::new(),
        unused: HashMap::new(),
    };
    let mut tally = Tally::default();
    let mut line: VecDeque<(usize, Block)> = VecDeque::new();
    let mut fetches: Vec<Prediction> = Vec::new();
    // When each block was missed last.
    let mut missed: HashMap<Block, usize> = HashMap::new();
    for (at, number) in trace.numbers.iter().enumerate() {
        let block = Block::from_number(*number);
        while let Some((_, arrived)) = line.pop_front_if(|(started, _)| *started + delay <= at) {
            if cache.on_way.remove(&arrived).is_some()
                && let Some(left) = cache.take_in(arrived, true)
            {
                by.evicted(left);
            }
        }
        tally.requests += 1;
        let found = if cache.index.access(tag(block)).is_some() {
            tally.hits += 1;
            let missed = missed.get(&block);
            tally.joined += u64::from(missed.is_some_and(|missed| at < *missed + delay));
            tally.used += u64::from(cache.unused.remove(&block).is_some());
            Found::Hit
        } else {
            if cache.on_way.remove(&block).is_some() {
                tally.late += 1;
            } else {
                tally.demanded += 1;
            }
            missed.insert(block, at);
            if let Some(left) = cache.take_in(block, false) {
                by.evicted(left);
            }
            Found::Miss
        };
        fetches.clear();
        by.request(block, found, &|block| cache.has(block), &mut fetches);
        for fetch in &fetches {
            if fetch.is_cached {
                cache.index.expect(tag(fetch.block));
            } else if cache.on_way.insert(fetch.block, ()).is_none() {
                line.push_back((at, fetch.block));
                tally.prefetched += 1;
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Source;

    /// Fetches the next block after each miss.
    struct Next;

    impl Prefetch for Next {
        fn request(
            &mut self,
            block: Block,
            found: Found,
            is_cached: &dyn Fn(Block) -> bool,
            fetches: &mut Vec<Prediction>,
        ) {
            let block = Block::from_number(block.number() + 1);
            if found == Found::Miss && !is_cached(block) {
                let (likelihood, source) = (1.0, Source::Stream);
                fetches.push(Prediction {
                    block,
                    likelihood,
                    source,
                    is_cached: false,
                });
            }
        }
    }

    #[test]
    fn a_prefetch_is_there_after_its_delay_and_late_before() {
        let trace = Trace::new(vec![10, 11, 50, 51, 51]);
        let tally = replay(&trace, 100, 0, 1, &mut Next);
        let counted = (
            tally.hits,
            tally.late,
            tally.demanded,
            tally.prefetched,
            tally.used,
        );
        assert_eq!(counted, (3, 0, 2, 2, 2));
        let tally = replay(&trace, 100, 2, 1, &mut Next);
        // 11 and 51 come too late. The misses for them fetch 12 and 52, which no one uses.
        let counted = (
            tally.hits,
            tally.late,
            tally.demanded,
            tally.prefetched,
            tally.used,
        );
        assert_eq!(counted, (1, 2, 2, 4, 0));
        let trace = Trace::new(vec![10, 90, 11]);
        let tally = replay(&trace, 100, 2, 1, &mut Next);
        assert_eq!((tally.hits, tally.late, tally.used), (1, 0, 1));
    }
}
