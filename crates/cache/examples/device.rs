//! Compares hits of the cache with bare reads of the same file: same lengths, same depth, both past
//! the page cache, in turns. The cache's own memory is off.
//!
//! `cargo run --release -p ropeway-cache --example device -- [--dir DIR] [--mib N] [--rounds N]`
//!
//! Prints MB/s of blocks (medians, and the range of all rounds), the median of the quotients of
//! neighbouring rounds, and times of single reads. Then inserts at full speed: bytes written, and
//! hits of 16 threads meanwhile.
#![allow(missing_docs)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropeway_block::Pool;
use ropeway_cache::{
    BLOCK_BYTES, Cache, Clock, Config, Device, FileDevice, FileKey, Hint, Key, Version, Writer,
};

const ROUND: Duration = Duration::from_millis(700);
const RECORD_SECTORS_MAX: usize = 129;

struct Setup {
    dir: PathBuf,
    mib: u64,
    rounds: usize,
}

/// How well blocks compress.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Random,
    /// LZ4 makes it about half.
    Half,
}

/// What one round did.
struct Round {
    blocks: u64,
    elapsed: Duration,
    micros: Vec<u32>,
}

impl Round {
    fn rate(&self) -> f64 {
        (self.blocks * BLOCK_BYTES as u64) as f64 / 1e6 / self.elapsed.as_secs_f64()
    }
}

fn main() {
    let setup = setup();
    println!("| content | depth | bare MB/s | hits MB/s | quotient | bare p50/p99 | hits p50/p99 |");
    println!("|---|---|---|---|---|---|---|");
    for content in [Content::Random, Content::Half] {
        let folder = tempfile::tempdir_in(&setup.dir).expect("a folder");
        let path = folder.path().join("cache");
        let device = FileDevice::open(&path, setup.mib << 20).expect("room for the file");
        assert!(device.is_direct(), "the file system has no direct I/O");
        let device = Arc::new(device);
        let cache = open(&device);
        let blocks = fill(&cache, content, setup.mib);
        for depth in [1, 4, 16] {
            compare(&setup, &device, &cache, content, blocks, depth);
        }
        if content == Content::Random {
            under_load(&cache, blocks);
        }
    }
}

fn setup() -> Setup {
    let mut setup = Setup {
        dir: PathBuf::from("."),
        mib: 1024,
        rounds: 7,
    };
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), value) = (arguments.next(), arguments.next().unwrap_or_default()) {
        match name.as_str() {
            "--dir" => setup.dir = value.into(),
            "--mib" => setup.mib = value.parse().expect("a number of MiB"),
            "--rounds" => setup.rounds = value.parse().expect("a number of rounds"),
            _ => panic!("unknown argument {name}"),
        }
    }
    setup
}

fn open(device: &Arc<FileDevice>) -> Cache {
    let zero = Instant::now();
    let clock: Clock = Arc::new(move || zero.elapsed());
    let config = Config {
        memory_bytes: 0,
        ..Config::default()
    };
    Cache::open(Box::new(Arc::clone(device)), &[7; 32], &config, clock)
        .expect("an empty cache")
        .0
}

fn key(block: u64) -> Key {
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
        block,
    }
}

fn block(number: u64, content: Content) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut rng = fastrand::Rng::with_seed(number);
    match content {
        Content::Random => rng.fill(&mut bytes),
        // 12 random bytes of 32, as records of a table have.
        Content::Half => bytes
            .chunks_exact_mut(32)
            .for_each(|part| rng.fill(&mut part[..12])),
    }
    bytes
}

/// Fills two thirds of the cache. Returns the number of blocks.
fn fill(cache: &Cache, content: Content, mib: u64) -> u64 {
    let mut number = 0;
    while cache.stats().bytes_stored < (mib << 20) * 2 / 3 {
        assert!(cache.insert(&key(number), &block(number, content), Hint::Random));
        cache.work().expect("a healthy device");
        number += 1;
    }
    cache.flush().expect("a healthy device");
    number
}

fn run(depth: usize, read: &(impl Fn(&mut fastrand::Rng, &mut [u8]) + Sync)) -> Round {
    let pool = Pool::new(RECORD_SECTORS_MAX.div_ceil(8) * 4096 + 4096, depth);
    let start = Instant::now();
    let mut micros = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..depth as u64)
            .map(|thread| {
                let pool = &pool;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    let mut buffer = pool.try_get().expect("one for each thread");
                    let mut micros = Vec::new();
                    while start.elapsed() < ROUND {
                        let begun = Instant::now();
                        read(&mut rng, buffer.capacity_mut());
                        micros.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
                    }
                    micros
                })
            })
            .collect();
        for thread in threads {
            micros.extend(thread.join().expect("a reader"));
        }
    });
    Round {
        blocks: micros.len() as u64,
        elapsed: start.elapsed(),
        micros,
    }
}

fn compare(
    setup: &Setup,
    device: &Arc<FileDevice>,
    cache: &Cache,
    content: Content,
    blocks: u64,
    depth: usize,
) {
    let stats = cache.stats();
    let unit = device.alignment();
    let record = usize::try_from(stats.bytes_stored / stats.bytes_inserted.div_ceil(BLOCK_BYTES as u64))
        .expect("a record")
        .next_multiple_of(unit);
    let places = (setup.mib << 20) * 2 / 3 / unit as u64;
    let bare = |rng: &mut fastrand::Rng, buffer: &mut [u8]| {
        let offset = (16 << 20) + rng.u64(..places - (32 << 20) / unit as u64) * unit as u64;
        device
            .read_at(offset, &mut buffer[..record])
            .expect("a healthy device");
    };
    let hit = |rng: &mut fastrand::Rng, _: &mut [u8]| {
        let found = cache.lookup(&key(rng.u64(..blocks))).expect("a hit");
        assert_eq!(found.len(), BLOCK_BYTES);
    };
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 0..setup.rounds {
        // Each goes first as often as the other.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            rounds[at].push(if at == 0 {
                run(depth, &bare)
            } else {
                run(depth, &hit)
            });
        }
    }
    let quotients = rounds[0]
        .iter()
        .zip(&rounds[1])
        .map(|(bare, hit)| hit.rate() / bare.rate());
    let quotient = median(quotients.collect());
    let [bare, hits] = &rounds;
    println!(
        "| {content:?}, {record} | {depth} | {} | {} | {quotient:.3} | {} | {} |",
        rates(bare),
        rates(hits),
        times(bare),
        times(hits)
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn rates(rounds: &[Round]) -> String {
    let mut rates: Vec<f64> = rounds.iter().map(Round::rate).collect();
    rates.sort_by(f64::total_cmp);
    format!(
        "{:.0} ({:.0}-{:.0})",
        rates[rates.len() / 2],
        rates[0],
        rates[rates.len() - 1]
    )
}

fn times(rounds: &[Round]) -> String {
    let mut micros: Vec<u32> = rounds
        .iter()
        .flat_map(|round| round.micros.iter().copied())
        .collect();
    micros.sort_unstable();
    format!(
        "{}/{} µs",
        micros[micros.len() / 2],
        micros[micros.len() * 99 / 100]
    )
}

/// Inserts new blocks for some seconds, so that the cache cleans all the time, with and without 16
/// readers of random blocks.
fn under_load(cache: &Cache, blocks: u64) {
    let prepared: Vec<Vec<u8>> = (0..64).map(|number| block(number, Content::Random)).collect();
    for readers in [0, 16] {
        let writer = Writer::start(cache.clone()).expect("a thread");
        let before = cache.stats();
        let (ends, hits) = (AtomicBool::new(false), AtomicU64::new(0));
        let start = Instant::now();
        let slowest = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..readers)
                .map(|seed| {
                    let (ends, hits, cache) = (&ends, &hits, cache);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(seed);
                        let mut slowest = Duration::ZERO;
                        while !ends.load(Ordering::Relaxed) {
                            let begun = Instant::now();
                            let found = cache.lookup(&key(rng.u64(..blocks)));
                            slowest = slowest.max(begun.elapsed());
                            hits.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
                        }
                        slowest
                    })
                })
                .collect();
            let mut number = 1_000_000 * (1 + readers);
            while start.elapsed() < 6 * ROUND {
                let bytes = &prepared[usize::try_from(number % 64).expect("below 64")];
                if cache.insert(&key(number), bytes, Hint::Random) {
                    number += 1;
                } else {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            ends.store(true, Ordering::Relaxed);
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a reader"))
                .max()
        });
        let elapsed = start.elapsed().as_secs_f64();
        drop(writer);
        let stats = cache.stats();
        let megabytes = |bytes: u64| bytes as f64 / 1e6 / elapsed;
        println!(
            "inserting with {readers} readers: {:.0} MB/s taken in, {:.0} MB/s written, {} evicted, \
             {:.0} MB/s of hits, slowest lookup {:.1} ms, index {} bytes for {} blocks",
            megabytes(stats.bytes_inserted - before.bytes_inserted),
            megabytes(stats.bytes_written - before.bytes_written),
            stats.evicted - before.evicted,
            megabytes(hits.load(Ordering::Relaxed) * BLOCK_BYTES as u64),
            slowest.unwrap_or_default().as_secs_f64() * 1e3,
            stats.index_bytes,
            stats.blocks,
        );
    }
}
