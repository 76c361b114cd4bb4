//! Ways to predict: ours, and two simple ones to compare with.

use std::collections::HashMap;

use crate::predict::{Block, Found, Prediction, Source, Superfetch};

/// Predicts the next blocks of a trace.
pub trait Prefetch {
    /// Takes a request, and adds what to fetch. `is_cached` says whether a block is in the cache.
    fn request(
        &mut self,
        block: Block,
        found: Found,
        is_cached: &dyn Fn(Block) -> bool,
        fetches: &mut Vec<Prediction>,
    );

    /// A block left the cache.
    fn evicted(&mut self, _: Block) {}
}

/// Ours: streams and lagged pairs under the governor.
#[derive(Debug)]
pub struct Learned(pub Superfetch);

impl Learned {
    /// Makes one for a cache of so many blocks and a fetch that takes so many requests.
    pub fn new(capacity: usize, delay: u32) -> Self {
        let mut superfetch = Superfetch::new(capacity);
        superfetch.blocks.set_lag(delay);
        Self(superfetch)
    }
}

impl Prefetch for Learned {
    fn request(
        &mut self,
        block: Block,
        found: Found,
        is_cached: &dyn Fn(Block) -> bool,
        fetches: &mut Vec<Prediction>,
    ) {
        self.0.blocks.request(block, found, is_cached, fetches);
    }

    fn evicted(&mut self, block: Block) {
        self.0.blocks.evicted(block);
    }
}

fn certain(block: Block, source: Source) -> Prediction {
    Prediction {
        block,
        likelihood: 1.0,
        source,
        is_cached: false,
    }
}

/// Plain read-ahead: after two neighbours in a row, the next 8 blocks (512 KiB of 64 KiB each).
#[derive(Debug, Default)]
pub struct ReadAhead {
    last: Option<Block>,
}

impl Prefetch for ReadAhead {
    fn request(
        &mut self,
        block: Block,
        _: Found,
        is_cached: &dyn Fn(Block) -> bool,
        fetches: &mut Vec<Prediction>,
    ) {
        let follows = |last: Block| block.number() == last.number() + 1;
        if self.last.replace(block).is_some_and(follows) {
            let ahead = (1..=8).map(|step| Block::from_number(block.number() + step));
            let missing = ahead.filter(|block| !is_cached(*block));
            fetches.extend(missing.map(|block| certain(block, Source::Stream)));
        }
    }
}

/// Immediate successors: the block that followed the last two times, without a bound of memory.
#[derive(Debug, Default)]
pub struct Successor {
    last: Option<Block>,
    /// The last successor, and whether it came twice.
    followed: HashMap<Block, (Block, bool)>,
}

impl Prefetch for Successor {
    fn request(
        &mut self,
        block: Block,
        _: Found,
        is_cached: &dyn Fn(Block) -> bool,
        fetches: &mut Vec<Prediction>,
    ) {
        let Some(last) = self.last.replace(block).filter(|last| *last != block) else {
            return;
        };
        let entry = self.followed.entry(last).or_insert((block, false));
        *entry = (block, entry.0 == block);
        if let Some((next, true)) = self.followed.get(&block)
            && !is_cached(*next)
        {
            fetches.push(certain(*next, Source::Pair));
        }
    }
}
