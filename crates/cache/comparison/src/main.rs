//! Replays recorded traces with the hybrid cache foyer and with the cache of Ropeway: same blocks,
//! same space, no memory tier. Prints hit ratio, bytes written for each byte that missed, and memory.
//!
//! `cargo run --release --manifest-path crates/cache/comparison/Cargo.toml -- [TRACE…]`

#[path = "../../tests/replay/mod.rs"]
mod replay;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foyer::{
    BlockEngineConfig, Compression, DeviceBuilder, FileDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, PsyncIoEngineConfig,
};
use replay::{SIZES, Trace};
use ropeway_cache::{Cache, Clock, Config, Device, FileDevice, FileKey, Hint, Key, Version};

/// Bytes of a block. With the header of either cache it takes 16 KiB, so a trace of 64 KiB blocks is
/// replayed at a quarter of its size.
const BLOCK: usize = 16_000;
const SLOT: usize = 16 << 10;

/// Bytes of a unit of eviction (foyer) or a segment (ours): small, as the caches are small.
const UNIT: usize = 512 << 10;

struct Result {
    hit_ratio: f64,
    written: u64,
    missed: u64,
    memory: String,
    elapsed: Duration,
}

fn content(block: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    fastrand::Rng::with_seed(u64::from(block)).fill(&mut bytes);
    bytes
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

fn key(block: u32) -> Key {
    Key {
        file: FileKey { share: [1; 16], volume: 1, file: 1 },
        version: Version { change_time: 1, size: 1, lease_epoch: 0 },
        block: u64::from(block),
    }
}

fn ours(trace: &Trace, bytes: u64, folder: &Path) -> Result {
    let zero = Instant::now();
    let clock: Clock = Arc::new(move || zero.elapsed());
    let config = Config { segment_bytes: UNIT as u32, memory_bytes: 0, seed: 1 };
    let device = Arc::new(FileDevice::open(&folder.join("ours"), bytes).expect("room"));
    assert!(device.size().expect("a size") == bytes);
    let (cache, _) = Cache::open(Box::new(device), &[1; 32], &config, clock).expect("a cache");
    let (mut hits, mut missed) = (0_u64, 0);
    let start = Instant::now();
    for block in &trace.blocks {
        if let Some(found) = cache.lookup(&key(*block)) {
            hits += 1;
            assert_eq!(found.len(), BLOCK);
        } else {
            cache.insert(&key(*block), &content(*block), Hint::Random);
            missed += BLOCK as u64;
            cache.work().expect("a healthy device");
        }
    }
    cache.flush().expect("a healthy device");
    let stats = cache.stats();
    Result {
        hit_ratio: hits as f64 / trace.blocks.len() as f64,
        written: stats.bytes_written,
        missed,
        memory: format!("{} B of index a block", stats.index_bytes / stats.blocks.max(1)),
        elapsed: start.elapsed(),
    }
}

async fn foyer(trace: &Trace, bytes: u64, folder: &Path) -> Result {
    let before = resident();
    let path = folder.join("foyer");
    let device = FileDeviceBuilder::new(&path)
        .with_capacity(usize::try_from(bytes).expect("64 bits"))
        .build()
        .expect("a device");
    let engine = BlockEngineConfig::new(Arc::clone(&device))
        .with_block_size(UNIT)
        .with_buffer_pool_size(4 << 20)
        .with_flushers(1);
    // One entry in memory: what is inserted goes to the device at once.
    let cache: HybridCache<u32, Vec<u8>> = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(1)
        .with_shards(1)
        .storage()
        .with_io_engine_config(PsyncIoEngineConfig::new())
        .with_engine_config(engine)
        .with_compression(Compression::None)
        .build()
        .await
        .expect("a cache");
    let (mut hits, mut missed) = (0_u64, 0);
    let start = Instant::now();
    for block in &trace.blocks {
        if let Some(found) = cache.get(block).await.expect("a healthy device") {
            hits += 1;
            assert_eq!(found.value().len(), BLOCK);
        } else {
            cache.insert(*block, content(*block));
            missed += BLOCK as u64;
            // What is inserted is written before the next request, as ours keeps it readable.
            cache.storage().wait().await;
        }
    }
    let elapsed = start.elapsed();
    let written = device.statistics().disk_write_bytes() as u64;
    let memory = format!("{:.0} MB resident more", resident().saturating_sub(before) as f64 / 1e6);
    cache.close().await.expect("a healthy device");
    Result { hit_ratio: hits as f64 / trace.blocks.len() as f64, written, missed, memory, elapsed }
}

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = ["P2", "P6", "cloudPhysicsIO"].map(str::to_owned).into();
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    println!("| trace | cache | size | hit ratio | written / missed | memory | time |\n|---|---|---|---|---|---|---|");
    for name in &names {
        let Some(trace) = Trace::load(name) else {
            println!("skipped: the trace {name} is not in ../shared/traces");
            continue;
        };
        for percent in SIZES {
            let slots = trace.footprint * percent / 100;
            // At least what ours needs for its segments.
            let bytes = ((slots * SLOT).next_multiple_of(UNIT)).max(10 * UNIT) as u64;
            for (cache, result) in [("ours", 0), ("foyer", 1)] {
                // In memory: ratios and bytes do not depend on the device, and it is quick.
                let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
                let result = match result {
                    0 => ours(&trace, bytes, folder.path()),
                    _ => runtime.block_on(foyer(&trace, bytes, folder.path())),
                };
                println!(
                    "| {name} | {cache} | {percent} %, {} MB | {:.3} | {:.2} | {} | {:.0} s |",
                    bytes / 1_000_000,
                    result.hit_ratio,
                    result.written as f64 / result.missed.max(1) as f64,
                    result.memory,
                    result.elapsed.as_secs_f64()
                );
            }
        }
    }
}
