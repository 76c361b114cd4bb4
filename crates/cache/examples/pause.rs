//! Measures how long lookups wait while the cache forgets files, cleans and writes checkpoints: an
//! index of 1.6 million blocks (100 GiB of blocks of 64 KiB), 16 readers.
//!
//! `cargo run --release -p ropeway-cache --example pause`
//!
//! The device is in memory and keeps everything but the bodies of blocks. The readers look for
//! blocks that are not there, so they wait for nothing but each other and the work in the
//! background.
#![allow(missing_docs)]

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use ropeway_cache::{Cache, Clock, Config, Device, FileKey, Hint, Key, Version, Writer};

const BLOCKS: u64 = 1_600_000;
/// Blocks that compress to half: 63 sectors with header and seal.
const BLOCK_BYTES: usize = 32_000;
/// Room for them, with what cleaning keeps free.
const DEVICE_BYTES: u64 = 54 << 30;
const BLOCKS_OF_A_FILE: u64 = 1000;
const READERS: u64 = 16;
const PHASE: Duration = Duration::from_secs(5);
/// Time between two lookups of a reader: the processors are not the limit.
const PAUSE: Duration = Duration::from_millis(2);
/// Nothing beyond this is more than blocks: superblocks and checkpoints lie before.
const META_BYTES: u64 = 128 << 20;
const FOOTER_BYTES: usize = 16 << 10;
const PAGE: usize = 4096;

/// A device that keeps superblocks, checkpoints, and heads and footers of segments.
#[derive(Default)]
struct Hollow {
    pages: RwLock<HashMap<u64, Box<[u8; PAGE]>>>,
}

impl Device for Hollow {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let pages = self.pages.read();
        for (at, part) in into.chunks_mut(PAGE).enumerate() {
            match pages.get(&(offset / PAGE as u64 + at as u64)) {
                Some(page) => part.copy_from_slice(&page[..part.len()]),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let keeps_all = offset < META_BYTES || from.len() == FOOTER_BYTES;
        let mut pages = self.pages.write();
        for (at, part) in from.chunks_exact(PAGE).enumerate() {
            if keeps_all || at == 0 {
                let page = Box::new(part.try_into().expect("a page"));
                pages.insert(offset / PAGE as u64 + at as u64, page);
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(DEVICE_BYTES)
    }
}

fn key(block: u64) -> Key {
    Key {
        file: FileKey {
            share: [1; 16],
            volume: 1,
            file: u128::from(block / BLOCKS_OF_A_FILE),
        },
        version: Version {
            change_time: 1,
            size: 1,
            lease_epoch: 0,
        },
        block,
    }
}

fn insert(cache: &Cache, block: u64, bytes: &[u8]) {
    while !cache.insert(&key(block), bytes, Hint::Random) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs `work` again and again beside the readers, and prints how long lookups took.
fn phase(name: &str, cache: &Cache, mut work: impl FnMut()) {
    let ends = AtomicBool::new(false);
    let mut micros = Vec::new();
    let mut done = 0;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|seed| {
                let ends = &ends;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut micros = Vec::new();
                    while !ends.load(Ordering::Relaxed) {
                        let absent = key(u64::MAX / 2 + rng.u64(..1 << 40));
                        let begun = Instant::now();
                        assert!(cache.lookup(&absent).is_none());
                        micros.push(begun.elapsed().as_micros());
                        std::thread::sleep(PAUSE);
                    }
                    micros
                })
            })
            .collect();
        let start = Instant::now();
        while start.elapsed() < PHASE {
            work();
            done += 1;
        }
        ends.store(true, Ordering::Relaxed);
        for reader in readers {
            micros.extend(reader.join().expect("a reader"));
        }
    });
    micros.sort_unstable();
    let at = |part: usize| micros[(micros.len() - 1) * part / 1000];
    println!(
        "| {name} | {done} | {} | {} | {} | {} | {} |",
        micros.len(),
        at(500),
        at(990),
        at(999),
        at(1000)
    );
}

fn main() {
    let zero = Instant::now();
    let clock: Clock = Arc::new(move || zero.elapsed());
    let config = Config {
        memory_bytes: 0,
        ..Config::default()
    };
    let device = Box::new(Hollow::default());
    let (cache, _) = Cache::open(device, &[7; 32], &config, clock).expect("a cache");
    let mut bytes = vec![0; BLOCK_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    let writer = Writer::start(cache.clone()).expect("a thread");
    let mut slowest = Duration::ZERO;
    for block in 0..BLOCKS {
        let begun = Instant::now();
        insert(&cache, block, &bytes);
        slowest = slowest.max(begun.elapsed());
    }
    let stats = cache.stats();
    println!(
        "{} blocks, index {:.1} bytes a block; filled in {:.0} s, slowest insertion {:.1} ms",
        stats.blocks,
        stats.index_bytes as f64 / stats.blocks as f64,
        zero.elapsed().as_secs_f64(),
        slowest.as_secs_f64() * 1e3
    );
    println!(
        "| beside | times | lookups | p50 µs | p99 µs | p99.9 µs | max µs |\n|---|---|---|---|---|---|---|"
    );
    phase("nothing", &cache, || std::thread::sleep(PAUSE));
    let mut file = 0;
    phase("forgetting a file", &cache, || {
        cache
            .forget(&key(file * BLOCKS_OF_A_FILE).file)
            .expect("a healthy device");
        file += 1;
        std::thread::sleep(PAUSE);
    });
    phase("a checkpoint", &cache, || {
        cache.flush().expect("a healthy device")
    });
    let mut block = BLOCKS;
    let evicted = cache.stats().evicted;
    phase("inserting a block, and cleaning", &cache, || {
        insert(&cache, block, &bytes);
        block += 1;
    });
    println!("{} blocks evicted by cleaning", cache.stats().evicted - evicted);
    drop(writer);
}
