//! The cache as its users see it, on simulated devices and on files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::crashes::{clock, file_key};
use ropeway_cache::{
    Cache, Clock, Config, Error, Faults, FileDevice, Hint, Key, Opened, SimulatedDevice, Version, Writer,
};

const KEY: [u8; 32] = [5; 32];

fn key(file: u64, block: u64) -> Key {
    Key {
        file: file_key(file),
        version: Version {
            change_time: 1,
            size: 1,
            lease_epoch: 0,
        },
        block,
    }
}

fn content(block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    fastrand::Rng::with_seed(block).fill(&mut bytes);
    bytes
}

fn small() -> Config {
    Config {
        segment_bytes: 256 << 10,
        memory_bytes: 0,
        seed: 1,
    }
}

fn open(device: &SimulatedDevice) -> Result<(Cache, Opened), Error> {
    Cache::open(Box::new(device.clone()), &KEY, &small(), clock(device))
}

fn real_clock() -> Clock {
    let zero = Instant::now();
    Arc::new(move || zero.elapsed())
}

#[test]
fn a_block_is_found_with_its_version_only_and_after_a_restart() {
    let device = SimulatedDevice::new(8 << 20);
    let (cache, opened) = open(&device).unwrap();
    assert_eq!(opened, Opened::New);
    assert_eq!(cache.lookup(&key(1, 0)), None);
    assert!(cache.insert(&key(1, 0), &content(0), Hint::Random));
    assert_eq!(*cache.lookup(&key(1, 0)).unwrap(), *content(0));
    let mut newer = key(1, 0);
    newer.version.change_time = 2;
    assert_eq!(cache.lookup(&newer), None);
    cache.flush().unwrap();
    drop(cache);
    let (cache, opened) = open(&device).unwrap();
    assert_eq!(opened, Opened::Warm);
    assert_eq!(*cache.lookup(&key(1, 0)).unwrap(), *content(0));
    let stats = cache.stats();
    assert_eq!(
        (stats.device_hits, stats.misses, stats.bytes_served),
        (1, 0, 64 << 10)
    );
}

#[test]
fn sequential_blocks_pass_by_except_of_pinned_files() {
    let device = SimulatedDevice::new(8 << 20);
    let (cache, _) = open(&device).unwrap();
    assert!(!cache.insert(&key(1, 0), &content(0), Hint::Sequential));
    cache.pin(&file_key(1), true);
    assert!(cache.insert(&key(1, 0), &content(0), Hint::Sequential));
    assert_eq!(cache.stats().sequential_bypassed, 1);
}

/// While the writer is behind, the room in memory is for the likeliest blocks.
#[test]
fn a_writer_that_is_behind_leaves_unlikely_blocks_out_first() {
    let device = SimulatedDevice::new(64 << 20);
    let config = Config {
        segment_bytes: 1 << 20,
        ..small()
    };
    let (cache, _) = Cache::open(Box::new(device.clone()), &KEY, &config, clock(&device)).unwrap();
    // A block that was used and has just been evicted. The cache remembers about as many evicted blocks
    // as it has room for, so that a few are surely among them.
    let mut inserted = 0;
    let used = loop {
        assert!(inserted < 1600, "the device holds 1,000 blocks at most");
        cache.lookup(&key(9, inserted));
        assert!(cache.insert(&key(9, inserted), &content(inserted), Hint::Random));
        cache.work().unwrap();
        inserted += 1;
        if let Some(evicted) = (0..inserted).find(|block| !cache.contains(&key(9, *block))) {
            break evicted;
        }
    };
    cache.flush().unwrap();
    // From now on the writer does nothing.
    let mut refused = [None; 3];
    cache.pin(&file_key(3), true);
    for number in 0..60 {
        let offers = [
            (key(1, number), Hint::Predicted),
            (key(2, number), Hint::Random),
            (key(9, used), Hint::Random),
        ];
        for (place, (key, hint)) in offers.into_iter().enumerate() {
            // The last one once only: it is remembered until it is in.
            let is_asked = place < 2 || (refused[1].is_some() && refused[2].is_none());
            if is_asked && !cache.insert(&key, &content(number), hint) {
                refused[place].get_or_insert(number);
            } else if is_asked && place == 2 {
                refused[2] = Some(u64::MAX);
            }
        }
    }
    let [predicted, newcomer, known] = refused;
    assert!(predicted.unwrap() < newcomer.unwrap(), "{refused:?}");
    assert_eq!(known, Some(u64::MAX), "one that was used before comes in");
    assert!(
        cache.insert(&key(3, 0), &content(0), Hint::Random),
        "a pinned one too"
    );
    assert!(cache.work().unwrap());
    cache.flush().unwrap();
    assert!(
        cache.insert(&key(1, 99), &content(99), Hint::Predicted),
        "it has caught up"
    );
}

#[test]
fn pinned_files_stay_when_the_cache_is_full() {
    let device = SimulatedDevice::new(8 << 20);
    let (cache, _) = open(&device).unwrap();
    cache.pin(&file_key(1), true);
    for block in 0..10 {
        assert!(cache.insert(&key(1, block), &content(block), Hint::Random));
        cache.work().unwrap();
    }
    for block in 0..1000 {
        cache.insert(&key(2, block), &content(block), Hint::Random);
        cache.work().unwrap();
    }
    for block in 0..10 {
        assert_eq!(*cache.lookup(&key(1, block)).unwrap(), *content(block), "{block}");
    }
    let stats = cache.stats();
    assert!(stats.evicted > 500, "{stats:?}");
    assert!(
        stats.write_amplification() < 2.5,
        "{}",
        stats.write_amplification()
    );
}

/// About 180 blocks fit. LRU and FIFO would lose all hot blocks to the scan of 240.
#[test]
fn a_full_cache_keeps_what_is_used_through_a_scan() {
    let device = SimulatedDevice::new(16 << 20);
    let config = Config {
        segment_bytes: 1 << 20,
        ..small()
    };
    let (cache, _) = Cache::open(Box::new(device.clone()), &KEY, &config, clock(&device)).unwrap();
    let read = |key: &Key| {
        let is_hit = cache.lookup(key).is_some();
        if !is_hit {
            cache.insert(key, &content(key.block), Hint::Random);
        }
        cache.work().unwrap();
        is_hit
    };
    let mut next = 1000;
    let mut read_once = || {
        next += 1;
        assert!(!read(&key(1, next)));
    };
    for _ in 0..10 {
        for hot in 0..30 {
            read(&key(1, hot));
            read_once();
            read_once();
        }
    }
    for _ in 0..240 {
        read_once();
    }
    let hits = (0..30)
        .filter(|hot| cache.lookup(&key(1, *hot)).is_some())
        .count();
    println!("{hits} of 30 hot blocks are left, {:?}", cache.stats());
    assert!(hits >= 15, "{hits} of 30 hot blocks are left");
}

#[test]
fn another_key_is_an_empty_cache_and_a_foreign_file_is_left_alone() {
    let device = SimulatedDevice::new(8 << 20);
    let (cache, _) = open(&device).unwrap();
    cache.insert(&key(1, 0), &content(0), Hint::Random);
    cache.flush().unwrap();
    drop(cache);
    let other = Cache::open(Box::new(device.clone()), &[6; 32], &small(), clock(&device));
    let (cache, opened) = other.unwrap();
    assert_eq!(opened, Opened::KeyChanged);
    assert_eq!(cache.lookup(&key(1, 0)), None);
    drop(cache);

    let device = SimulatedDevice::new(8 << 20);
    device.scribble(100, b"somebody's photographs");
    let before = device.content();
    assert!(matches!(open(&device), Err(Error::Foreign)));
    assert!(device.content() == before);
    let tiny = SimulatedDevice::new(1 << 20);
    assert!(matches!(open(&tiny), Err(Error::TooSmall { .. })));
}

#[test]
fn an_error_turns_the_cache_off_and_a_probe_on_again() {
    for faults in [
        Faults {
            fail_reads: true,
            ..Faults::default()
        },
        Faults {
            fail_writes: true,
            ..Faults::default()
        },
        Faults {
            delay: Duration::from_millis(1100),
            ..Faults::default()
        },
    ] {
        let device = SimulatedDevice::new(8 << 20);
        let (cache, _) = open(&device).unwrap();
        for block in 0..8 {
            cache.insert(&key(1, block), &content(block), Hint::Random);
            cache.work().unwrap();
        }
        cache.flush().unwrap();
        device.set_faults(faults.clone());
        let _ = cache.lookup(&key(1, 0));
        let _ = cache.flush();
        assert!(!cache.is_on(), "{faults:?}");
        assert_eq!(cache.lookup(&key(1, 1)), None);
        assert!(!cache.insert(&key(1, 1), &content(1), Hint::Random));
        device.set_faults(Faults::default());
        assert!(!cache.work().unwrap(), "not probed at once");
        device.advance(Duration::from_secs(31));
        assert!(cache.work().unwrap());
        assert_eq!(*cache.lookup(&key(1, 1)).unwrap(), *content(1), "{faults:?}");
        assert_eq!(cache.stats().turned_off, 1);
    }
}

#[test]
fn a_device_that_became_another_stays_off() {
    let device = SimulatedDevice::new(8 << 20);
    let (cache, _) = open(&device).unwrap();
    device.set_faults(Faults {
        fail_writes: true,
        ..Faults::default()
    });
    cache.insert(&key(1, 0), &content(0), Hint::Random);
    assert!(cache.flush().is_err());
    device.set_faults(Faults::default());
    device.scribble(0, &[b'x'; 8192]);
    device.advance(Duration::from_secs(31));
    assert!(!cache.work().unwrap());
    assert!(device.content()[..8192].iter().all(|byte| *byte == b'x'));
}

#[test]
fn a_truncated_device_misses_and_is_an_empty_cache_afterwards() {
    let device = SimulatedDevice::new(8 << 20);
    let (cache, _) = open(&device).unwrap();
    for block in 0..60 {
        cache.insert(&key(1, block), &content(block), Hint::Random);
        cache.work().unwrap();
    }
    cache.flush().unwrap();
    device.truncate(4 << 20);
    for block in 0..60 {
        if let Some(bytes) = cache.lookup(&key(1, block)) {
            assert_eq!(*bytes, *content(block));
        }
    }
    assert!(!cache.is_on());
    drop(cache);
    let (cache, opened) = open(&device).unwrap();
    assert_eq!(opened, Opened::Damaged);
    assert!(cache.insert(&key(1, 0), &content(0), Hint::Random));
}

#[test]
fn a_file_works_for_many_threads_and_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let device = FileDevice::open(&path, 64 << 20).unwrap();
    println!("direct I/O: {}", device.is_direct());
    assert!(matches!(FileDevice::open(&path, 64 << 20), Err(Error::Busy)));
    let config = Config {
        segment_bytes: 1 << 20,
        ..small()
    };
    let (cache, _) = Cache::open(Box::new(device), &KEY, &config, real_clock()).unwrap();
    let writer = Writer::start(cache.clone()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16_u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for _ in 0..200 {
                    let block = rng.u64(..400);
                    match cache.lookup(&key(1, block)) {
                        Some(bytes) => assert_eq!(*bytes, *content(block)),
                        None => {
                            cache.insert(&key(1, block), &content(block), Hint::Random);
                        }
                    }
                }
            });
        }
    });
    drop(writer);
    let blocks = cache.stats().blocks;
    drop(cache);
    let device = FileDevice::open(&path, 64 << 20).unwrap();
    let (cache, opened) = Cache::open(Box::new(device), &KEY, &config, real_clock()).unwrap();
    assert_eq!((opened, cache.stats().blocks), (Opened::Warm, blocks));
}
