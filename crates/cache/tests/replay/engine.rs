//! Replays traces with the whole engine: blocks of 64 KiB on a device in memory.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use ropeway_cache::{BLOCK_BYTES, Cache, Config, Device, FileKey, Hint, Key, Stats, Version};

use super::Trace;

/// How well blocks compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Random,
    /// LZ4 makes it about half.
    Half,
}

/// Returns the content of a block.
pub fn content(block: u32, content: Content, bytes: &mut [u8]) {
    let mut rng = fastrand::Rng::with_seed(u64::from(block));
    match content {
        Content::Random => rng.fill(bytes),
        // 12 random bytes of 32, as records of a table have.
        Content::Half => bytes
            .chunks_exact_mut(32)
            .for_each(|part| rng.fill(&mut part[..12])),
    }
}

struct InMemory(RwLock<Vec<u8>>);

impl Device for InMemory {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.read();
        let from = usize::try_from(offset).expect("it fits in memory");
        into.copy_from_slice(&bytes[from..from + into.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).expect("it fits in memory");
        self.0.write()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.read().len() as u64)
    }
}

pub fn key(block: u32) -> Key {
    Key {
        file: FileKey {
            share: [1; 16],
            volume: 1,
            file: 1,
        },
        version: Version {
            change_time: 1,
            size: 1,
            lease_epoch: 0,
        },
        block: u64::from(block),
    }
}

/// What a replay found.
pub struct Outcome {
    pub hit_ratio: f64,
    pub stats: Stats,
    pub device_bytes: u64,
}

/// Replays a trace on a device of so many percent of the footprint, without memory in front of it.
/// The background work is done between accesses, as often as its thread would come by.
pub fn replay(trace: &Trace, percent: usize, kind: Content, seed: u64) -> Outcome {
    let len = trace.footprint * percent / 100 * BLOCK_BYTES / 4096 * 4096;
    let device = Arc::new(InMemory(RwLock::new(vec![0; len])));
    let config = Config {
        memory_bytes: 0,
        seed,
        ..Config::default()
    };
    let clock = Arc::new(|| Duration::ZERO);
    let (cache, _) = Cache::open(Box::new(device), &[7; 32], &config, clock).expect("an empty cache");
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut hits = 0_u64;
    for block in &trace.blocks {
        let key = key(*block);
        if let Some(found) = cache.lookup(&key) {
            assert_eq!(found.len(), BLOCK_BYTES);
            hits += 1;
            continue;
        }
        content(*block, kind, &mut bytes);
        cache.insert(&key, &bytes, Hint::Random);
        cache.work().expect("a healthy device");
    }
    Outcome {
        hit_ratio: hits as f64 / trace.blocks.len() as f64,
        stats: cache.stats(),
        device_bytes: len as u64,
    }
}
