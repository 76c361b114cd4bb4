//! Work in the background looks at the index in pieces, and others use the cache in between: files
//! are forgotten and checkpoints written while threads insert and look up.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use ropeway_cache::{Cache, Clock, Config, FileDevice, FileKey, Hint, Key, Version};

const BYTES: u64 = 320 << 20;
const FILES: u64 = 16;
/// More blocks than one piece has: thousands.
const BLOCKS: u64 = 400;
const THREADS: u64 = 4;
const TIME: Duration = Duration::from_secs(2);
/// Time after which a busy machine is given up.
const TIME_MAX: Duration = Duration::from_secs(120);
/// More than one piece.
const BLOCKS_ENOUGH: u64 = 2100;

fn file(number: u64) -> FileKey {
    FileKey {
        share: [1; 16],
        volume: 1,
        file: u128::from(number),
    }
}

fn key(number: u64, block: u64) -> Key {
    Key {
        file: file(number),
        version: Version {
            change_time: 1,
            size: 1,
            lease_epoch: 0,
        },
        block,
    }
}

/// The content of a block, which is another one each time the file was forgotten.
fn content(number: u64, block: u64, generation: u64) -> Vec<u8> {
    let mut bytes = vec![0; 600];
    fastrand::Rng::with_seed(number << 40 | block << 20 | generation).fill(&mut bytes);
    bytes
}

fn open(path: &std::path::Path) -> Cache {
    let zero = Instant::now();
    let clock: Clock = Arc::new(move || zero.elapsed());
    let config = Config {
        segment_bytes: 1 << 20,
        memory_bytes: 0,
        seed: 1,
    };
    let device = FileDevice::open(path, BYTES).unwrap();
    Cache::open(Box::new(device), &[5; 32], &config, clock).unwrap().0
}

#[test]
fn what_is_forgotten_piece_by_piece_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let cache = open(&path);
    // A file's generation. Who forgets it excludes who inserts.
    let generations: [RwLock<u64>; FILES as usize] = std::array::from_fn(|_| RwLock::new(0));
    let (ends, forgotten) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (cache, generations, ends) = (&cache, &generations, &ends);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !ends.load(Ordering::SeqCst) {
                    let (number, block) = (rng.u64(..FILES), rng.u64(..BLOCKS));
                    let generation = generations[number as usize].read();
                    let expected = content(number, block, *generation);
                    match cache.lookup(&key(number, block)) {
                        Some(found) => assert!(*found == *expected, "file {number}, block {block}"),
                        None => drop(cache.insert(&key(number, block), &expected, Hint::Random)),
                    }
                }
            });
        }
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                cache.work().unwrap();
                cache.flush().unwrap();
            }
        });
        let mut rng = fastrand::Rng::with_seed(99);
        let start = Instant::now();
        let is_enough = || cache.stats().blocks > BLOCKS_ENOUGH;
        let is_forgotten = || forgotten.load(Ordering::SeqCst) > 5;
        // On a busy machine few may have been forgotten, or not enough inserted.
        while start.elapsed() < TIME || (!(is_enough() && is_forgotten()) && start.elapsed() < TIME_MAX) {
            std::thread::sleep(Duration::from_millis(20));
            // More would be forgotten than is inserted.
            if is_forgotten() && !is_enough() {
                continue;
            }
            let number = rng.u64(..FILES);
            let mut generation = generations[number as usize].write();
            cache.forget(&file(number)).unwrap();
            *generation += 1;
            forgotten.fetch_add(1, Ordering::SeqCst);
        }
        ends.store(true, Ordering::SeqCst);
    });
    let blocks = cache.stats().blocks;
    assert!(blocks > BLOCKS_ENOUGH, "{blocks} blocks are one piece");
    let forgotten = forgotten.into_inner();
    assert!(forgotten > 5, "{forgotten} files were forgotten");
    // As after kill -9, with whatever checkpoint was the last.
    drop(cache);
    let cache = open(&path);
    let mut found = 0;
    for number in 0..FILES {
        let generation = *generations[number as usize].read();
        for block in 0..BLOCKS {
            if let Some(bytes) = cache.lookup(&key(number, block)) {
                assert!(
                    *bytes == *content(number, block, generation),
                    "file {number}, block {block}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 2000, "{found} of {blocks} are there after a restart");
}

/// The blocks of a segment are known by its footer. Without it they are looked for in the index.
#[test]
fn a_segment_with_a_damaged_footer_is_cleaned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let device = FileDevice::open(&path, 32 << 20).unwrap();
    drop(device);
    let cache = open(&path);
    let mut bytes = vec![0; 60_000];
    let mut insert = |block: u64| {
        fastrand::Rng::with_seed(block).fill(&mut bytes);
        cache.insert(&key(1, block), &bytes, Hint::Random);
        cache.work().unwrap();
    };
    (0..400).for_each(&mut insert);
    cache.flush().unwrap();
    // Every page in which a footer begins is overwritten.
    let raw = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut footers = 0;
    for page in 0..(32 << 20) / 4096 {
        let mut magic = [0; 4];
        raw.read_exact_at(&mut magic, page * 4096).unwrap();
        if magic == *b"RwFt" {
            raw.write_all_at(&[0xAA; 4096], page * 4096).unwrap();
            footers += 1;
        }
    }
    assert!(footers > 15, "{footers}");
    (400..2000).for_each(&mut insert);
    let stats = cache.stats();
    assert!(stats.evicted > 1000 && stats.dropped == 0, "{stats:?}");
    for block in 0..2000 {
        if let Some(found) = cache.lookup(&key(1, block)) {
            let mut expected = vec![0; 60_000];
            fastrand::Rng::with_seed(block).fill(&mut expected);
            assert!(*found == *expected, "{block}");
        }
    }
}
