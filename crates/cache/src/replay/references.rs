//! Small reference policies, without prefetching: FIFO, LRU and S3-FIFO.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::replay::Trace;

/// Returns the share of accesses that hit.
pub fn hit_ratio(trace: &Trace, mut access: impl FnMut(u32) -> bool) -> f64 {
    let hits = trace.blocks.iter().filter(|block| access(**block)).count();
    hits as f64 / trace.blocks.len() as f64
}

/// A cache without data.
pub trait Reference {
    /// Requests a block, which is in the cache afterwards. Returns whether it was.
    fn access(&mut self, block: u32) -> bool;
}

/// FIFO, LRU and S3-FIFO with a cache of so many blocks.
pub fn references(blocks: usize) -> [(&'static str, Box<dyn Reference>); 3] {
    [
        ("FIFO", Box::new(Fifo::new(blocks))),
        ("LRU", Box::new(Lru::new(blocks))),
        ("S3-FIFO", Box::new(S3Fifo::new(blocks))),
    ]
}

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    blocks: usize,
    queue: VecDeque<u32>,
    known: HashSet<u32>,
}

impl Fifo {
    /// Makes a cache of so many blocks.
    pub fn new(blocks: usize) -> Self {
        Self {
            blocks,
            queue: VecDeque::new(),
            known: HashSet::new(),
        }
    }
}

impl Reference for Fifo {
    fn access(&mut self, block: u32) -> bool {
        if self.known.contains(&block) {
            return true;
        }
        if self.queue.len() == self.blocks
            && let Some(oldest) = self.queue.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.queue.push_back(block);
        self.known.insert(block);
        false
    }
}

/// The block used longest ago leaves.
#[derive(Debug)]
pub struct Lru {
    blocks: usize,
    used: HashMap<u32, u64>,
    order: BTreeMap<u64, u32>,
    now: u64,
}

impl Lru {
    /// Makes a cache of so many blocks.
    pub fn new(blocks: usize) -> Self {
        Self {
            blocks,
            used: HashMap::new(),
            order: BTreeMap::new(),
            now: 0,
        }
    }
}

impl Reference for Lru {
    fn access(&mut self, block: u32) -> bool {
        self.now += 1;
        let earlier = self.used.insert(block, self.now);
        if let Some(at) = earlier {
            self.order.remove(&at);
        }
        self.order.insert(self.now, block);
        if self.used.len() > self.blocks
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
        earlier.is_some()
    }
}

/// S3-FIFO (Yang et al., SOSP '23) with the parameters of libCacheSim: 10 % probation, ghosts for
/// 90 %, two uses to be promoted.
#[derive(Debug)]
pub struct S3Fifo {
    blocks: usize,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    is_ghost: HashSet<u32>,
    uses: HashMap<u32, u8>,
    has_evicted: bool,
}

impl S3Fifo {
    /// Makes a cache of so many blocks.
    pub fn new(blocks: usize) -> Self {
        Self {
            blocks,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashSet::new(),
            uses: HashMap::new(),
            has_evicted: false,
        }
    }

    fn small_max(&self) -> usize {
        (self.blocks / 10).max(1)
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        if self.main.len() > self.blocks - self.small_max() || self.small.is_empty() {
            while let Some(block) = self.main.pop_front() {
                match self.uses[&block] {
                    0 => {
                        self.uses.remove(&block);
                        return;
                    }
                    uses => {
                        self.uses.insert(block, uses - 1);
                        self.main.push_back(block);
                    }
                }
            }
        }
        while let Some(block) = self.small.pop_front() {
            if self.uses[&block] >= 2 {
                self.uses.insert(block, 0);
                self.main.push_back(block);
                continue;
            }
            self.uses.remove(&block);
            self.ghosts.push_back(block);
            self.is_ghost.insert(block);
            while self.is_ghost.len() > self.blocks * 9 / 10 {
                let Some(oldest) = self.ghosts.pop_front() else {
                    break;
                };
                self.is_ghost.remove(&oldest);
            }
            return;
        }
    }
}

impl Reference for S3Fifo {
    fn access(&mut self, block: u32) -> bool {
        if let Some(uses) = self.uses.get_mut(&block) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        let was_ghost = self.is_ghost.remove(&block);
        if was_ghost {
            self.ghosts.retain(|ghost| *ghost != block);
        }
        while self.uses.len() >= self.blocks {
            self.evict();
        }
        if was_ghost || (!self.has_evicted && self.small.len() >= self.small_max()) {
            self.main.push_back(block);
        } else {
            self.small.push_back(block);
        }
        self.uses.insert(block, 0);
        false
    }
}
