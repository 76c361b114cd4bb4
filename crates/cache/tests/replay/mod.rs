//! Traces of block devices, and small reference policies to replay them with.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod engine;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::Read;
use std::path::Path;

use ropeway_cache::index::{Index, Place};

/// Sizes of the caches in percent of the footprint.
pub const SIZES: [usize; 4] = [1, 5, 10, 20];

/// Sectors of 512 bytes in a block of 64 KiB.
const SECTORS: u64 = 128;

/// The blocks that a trace reads, in order.
pub struct Trace {
    pub blocks: Vec<u32>,
    pub footprint: usize,
}

impl Trace {
    /// Reads a trace of `../shared/traces`, beside the checkout; `None` if it is not there.
    pub fn load(name: &str) -> Option<Self> {
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let folder = above
            .map(|folder| folder.join("shared/traces"))
            .find(|folder| folder.is_dir())?;
        let mut trace = Self {
            blocks: Vec::new(),
            footprint: 0,
        };
        let mut known = HashMap::new();
        if let Ok(file) = std::fs::File::open(folder.join(format!("{name}.lis.zst"))) {
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).expect("a zstd frame");
            let mut text = String::new();
            decoder.read_to_string(&mut text).expect("a readable trace");
            for line in text.lines() {
                let mut fields = line
                    .split(' ')
                    .map(|field| field.parse::<u64>().expect("a number"));
                let (first, count) = (fields.next().expect("sector"), fields.next().expect("count"));
                trace.request(first, count, &mut known);
            }
        } else {
            let file = std::fs::File::open(folder.join(format!("{name}.csv.gz"))).ok()?;
            let mut text = String::new();
            let mut decoder = flate2::read::GzDecoder::new(file);
            decoder.read_to_string(&mut text).expect("a readable trace");
            for line in text.lines().skip(1) {
                let fields: Vec<&str> = line.split(',').collect();
                let bytes: u64 = fields[3].parse().expect("a size");
                let first: u64 = fields[4].parse().expect("a sector");
                trace.request(first, bytes.div_ceil(512), &mut known);
            }
        }
        trace.footprint = known.len();
        Some(trace)
    }

    fn request(&mut self, first: u64, count: u64, known: &mut HashMap<u64, u32>) {
        for block in first / SECTORS..=(first + count.max(1) - 1) / SECTORS {
            let next = known.len() as u32;
            self.blocks.push(*known.entry(block).or_insert(next));
        }
    }
}

/// Returns the share of accesses that hit.
pub fn hit_ratio(trace: &Trace, mut access: impl FnMut(u32) -> bool) -> f64 {
    let hits = trace.blocks.iter().filter(|block| access(**block)).count();
    hits as f64 / trace.blocks.len() as f64
}

/// Replays a trace with the index and the policy of the cache.
pub fn ours(trace: &Trace, blocks: usize, seed: u64) -> f64 {
    let mut index = Index::new(blocks, seed);
    hit_ratio(trace, |block| {
        let tag = u64::from(block).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if index.access(tag).is_some() {
            return true;
        }
        if index.len() == blocks {
            let victim = index.victim(|_| true).expect("a full cache has a victim");
            index.evict(victim);
        }
        let place = Place {
            sector: 0,
            sectors: 129,
        };
        index.insert(tag, place).expect("a free slot");
        false
    })
}

pub trait Reference {
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

struct Fifo {
    blocks: usize,
    queue: VecDeque<u32>,
    known: HashSet<u32>,
}

impl Fifo {
    fn new(blocks: usize) -> Self {
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

struct Lru {
    blocks: usize,
    used: HashMap<u32, u64>,
    order: BTreeMap<u64, u32>,
    now: u64,
}

impl Lru {
    fn new(blocks: usize) -> Self {
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
struct S3Fifo {
    blocks: usize,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    is_ghost: HashSet<u32>,
    uses: HashMap<u32, u8>,
    has_evicted: bool,
}

impl S3Fifo {
    fn new(blocks: usize) -> Self {
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
                let oldest = self.ghosts.pop_front().expect("as many as in the set");
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
