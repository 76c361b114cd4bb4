//! Measures how fast a cache is back after a restart, clean and as after kill -9: 1 GiB on this disk,
//! and the index of 100 GiB on a device that keeps everything but the bodies of blocks.
//!
//! `cargo run --release -p ropeway-cache --example restart -- [DIR]`
#![allow(missing_docs)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_cache::{
    BLOCK_BYTES, Cache, Clock, Config, Device, FileDevice, FileKey, Hint, Key, Opened, Version,
};

/// Openings of which the median counts.
const TIMES: usize = 5;
const WHOLE: u64 = 100 << 30;
/// Superblocks, checkpoints and some segments of the large cache, which are kept in a real file.
const KEPT: u64 = 1 << 30;

/// The large device: its beginning is a file, the rest takes writes and gives zeros.
struct Hollow(FileDevice);

impl Device for Hollow {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if offset + into.len() as u64 <= KEPT {
            return self.0.read_at(offset, into);
        }
        // A read that costs what one costs.
        let len = into.len() as u64;
        self.0.read_at(offset % (KEPT - len) / 4096 * 4096, into)?;
        into.fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        if offset + from.len() as u64 <= KEPT {
            return self.0.write_at(offset, from);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(WHOLE)
    }
}

fn clock() -> Clock {
    let zero = Instant::now();
    Arc::new(move || zero.elapsed())
}

fn key(block: u64) -> Key {
    Key {
        file: FileKey {
            share: [1; 16],
            volume: 1,
            file: u128::from(block / 1000),
        },
        version: Version {
            change_time: 1,
            size: 1,
            lease_epoch: 0,
        },
        block,
    }
}

fn open(device: Box<dyn Device>) -> (Cache, Opened) {
    let config = Config {
        memory_bytes: 0,
        ..Config::default()
    };
    Cache::open(device, &[7; 32], &config, clock()).expect("a cache")
}

fn fill(cache: &Cache, blocks: std::ops::Range<u64>, bytes: &mut [u8]) {
    for block in blocks {
        let mark = bytes.len().min(8);
        bytes[..mark].copy_from_slice(&block.to_le_bytes()[..mark]);
        assert!(cache.insert(&key(block), bytes, Hint::Random));
        // The writer of a program comes by every few milliseconds, not for each block.
        if block % 16 == 0 {
            cache.work().expect("a healthy device");
        }
    }
}

/// Opens several times and prints the median; returns it.
fn measure(name: &str, device: impl Fn() -> Box<dyn Device>) -> Duration {
    let (mut times, mut last) = (Vec::new(), None);
    for _ in 0..TIMES {
        drop(last.take());
        let device = device();
        let start = Instant::now();
        let (cache, opened) = open(device);
        times.push(start.elapsed());
        assert_eq!(opened, Opened::Warm);
        last = Some(cache);
    }
    times.sort_unstable();
    let stats = last.expect("opened").stats();
    println!(
        "{name}: back after {:.1} ms ({:.1}-{:.1}), {} blocks, index {:.1} bytes a block",
        times[TIMES / 2].as_secs_f64() * 1e3,
        times[0].as_secs_f64() * 1e3,
        times[TIMES - 1].as_secs_f64() * 1e3,
        stats.blocks,
        stats.index_bytes as f64 / stats.blocks.max(1) as f64
    );
    times[TIMES / 2]
}

fn small(folder: &Path) {
    let path = folder.join("small");
    let device = || Box::new(FileDevice::open(&path, 1 << 30).expect("room for 1 GiB")) as Box<dyn Device>;
    let mut bytes = vec![0; BLOCK_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    let (cache, _) = open(device());
    fill(&cache, 0..16_000, &mut bytes);
    cache.flush().expect("a healthy device");
    drop(cache);
    let clean = measure("1 GiB, clean", device);
    let (cache, _) = open(device());
    fill(&cache, 16_000..17_000, &mut bytes);
    drop(cache);
    let killed = measure("1 GiB, killed", device);
    assert!(clean.max(killed) < Duration::from_millis(100), "more than 100 ms");
}

fn large(folder: &Path) {
    let path = folder.join("large");
    let device = || Box::new(Hollow(FileDevice::open(&path, KEPT).expect("room"))) as Box<dyn Device>;
    let blocks = WHOLE / BLOCK_BYTES as u64 * 97 / 100;
    let mut bytes = vec![0; 16];
    let (cache, _) = open(device());
    fill(&cache, 0..blocks, &mut bytes);
    cache.flush().expect("a healthy device");
    drop(cache);
    let clean = measure("index of 100 GiB, clean", device);
    let (cache, _) = open(device());
    fill(&cache, blocks..blocks + 3000, &mut bytes);
    drop(cache);
    let killed = measure("index of 100 GiB, killed", device);
    assert!(clean.max(killed) < Duration::from_secs(2), "more than 2 s");
}

fn main() {
    let folder = std::env::args()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    small(folder.path());
    large(folder.path());
}
