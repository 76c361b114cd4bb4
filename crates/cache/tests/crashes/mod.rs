//! One run of the simulator: random operations, power cuts and kills at random steps, and a model of
//! what each block holds.
#![allow(dead_code, missing_docs, unreachable_pub)]

mod nonces;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nonces::Watched;
use ropeway_cache::{
    Cache, Clock, Config, Error, Faults, FileKey, Hint, Key, Opened, SimulatedDevice, Version,
};

const FILES: u64 = 6;
const BLOCKS: u64 = 24;
const KEY: [u8; 32] = [5; 32];

/// What happened in some runs.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub lookups: u64,
    pub hits: u64,
    pub hits_after_crash: u64,
    pub crashes: u64,
    pub torn_writes: u64,
    pub forgets: u64,
    pub flips: u64,
    pub resets: u64,
}

impl Totals {
    pub fn add(&mut self, other: &Self) {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.hits_after_crash += other.hits_after_crash;
        self.crashes += other.crashes;
        self.torn_writes += other.torn_writes;
        self.forgets += other.forgets;
        self.flips += other.flips;
        self.resets += other.resets;
    }
}

pub fn clock(device: &SimulatedDevice) -> Clock {
    let device = device.clone();
    Arc::new(move || device.now())
}

struct Run {
    seed: u64,
    rng: fastrand::Rng,
    device: SimulatedDevice,
    watched: Watched,
    config: Config,
    /// Content generation of each file: raised when the file was forgotten, with the same key.
    generations: HashMap<u64, u64>,
    /// Version of each file, raised after a `forget` that failed.
    versions: HashMap<u64, u64>,
    /// Whether bits were flipped, so that the whole cache may be lost.
    is_damaged: bool,
    has_crashed: bool,
    totals: Totals,
}

/// Runs one seed; panics at the first wrong byte.
pub fn run(seed: u64) -> Totals {
    let mut rng = fastrand::Rng::with_seed(seed);
    let segments = rng.usize(9..20);
    let device = SimulatedDevice::new(segments * (128 << 10) + (64 << 10));
    let mut run = Run {
        seed,
        watched: Watched::new(device.clone(), seed),
        device,
        config: Config {
            segment_bytes: 128 << 10,
            memory_bytes: if rng.bool() { 256 << 10 } else { 0 },
            seed,
        },
        rng,
        generations: HashMap::new(),
        versions: HashMap::new(),
        is_damaged: false,
        has_crashed: false,
        totals: Totals::default(),
    };
    for life in 0..run.rng.usize(2..6) {
        run.life(life > 0);
    }
    run.totals
}

impl Run {
    fn key(&self, file: u64, block: u64) -> Key {
        Key {
            file: file_key(file),
            version: Version {
                change_time: 1,
                size: 1,
                lease_epoch: self.versions.get(&file).copied().unwrap_or(0),
            },
            block,
        }
    }

    fn random_key(&mut self) -> (u64, Key) {
        let (file, block) = (self.rng.u64(..FILES), self.rng.u64(..BLOCKS));
        (file, self.key(file, block))
    }

    /// Returns the content that a block has now: some compress, some do not.
    fn content(&self, key: &Key) -> Vec<u8> {
        let file = u64::try_from(key.file.file).expect("small");
        let generation = self.generations.get(&file).copied().unwrap_or(0);
        let seed = (file << 48) ^ (key.block << 32) ^ (key.version.lease_epoch << 16) ^ generation;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes = vec![seed as u8; rng.usize(1..20_000)];
        let random = if rng.bool() {
            bytes.len()
        } else {
            100.min(bytes.len())
        };
        rng.fill(&mut bytes[..random]);
        bytes
    }

    fn life(&mut self, expects_cache: bool) {
        // Sometimes the power goes during the opening, too.
        if self.rng.u8(..8) == 0 {
            self.device.set_faults(Faults {
                writes_left: Some(self.rng.u64(1..4)),
                ..Faults::default()
            });
            let _ = Cache::open(
                Box::new(self.watched.clone()),
                &KEY,
                &self.config,
                clock(&self.device),
            );
            self.device.set_faults(Faults::default());
            self.device.cut_power(&mut self.rng);
        }
        let opened = Cache::open(
            Box::new(self.watched.clone()),
            &KEY,
            &self.config,
            clock(&self.device),
        );
        let (cache, opened) = match opened {
            Ok(opened) => opened,
            // A flipped bit in the magic of both superblocks.
            Err(Error::Foreign | Error::NewerFormat(_)) if self.is_damaged => return,
            Err(error) => panic!("seed {}: {error}", self.seed),
        };
        if opened == Opened::Damaged {
            assert!(
                self.is_damaged,
                "seed {}: a crash lost the whole cache",
                self.seed
            );
            self.totals.resets += 1;
        }
        let _ = expects_cache;
        let steps = self.rng.usize(1..250);
        for _ in 0..steps {
            self.step(&cache);
        }
        self.end(cache);
    }

    fn end(&mut self, cache: Cache) {
        match self.rng.u8(..4) {
            // Killed in the middle of a write: it fails half-way, and the power goes.
            0 => {
                self.device.set_faults(Faults {
                    writes_left: Some(self.rng.u64(1..6)),
                    ..Faults::default()
                });
                for _ in 0..20 {
                    let (_, key) = self.random_key();
                    cache.insert(&key, &self.content(&key), Hint::Random);
                    let _ = if self.rng.bool() {
                        cache.work().map(|_| ())
                    } else {
                        cache.flush()
                    };
                }
                self.totals.torn_writes += 1;
                self.device.set_faults(Faults::default());
                self.device.cut_power(&mut self.rng);
            }
            1 => self.device.cut_power(&mut self.rng),
            // Killed: what was written stays.
            2 => {}
            _ => {
                cache.flush().expect("a healthy device");
                self.device.cut_power(&mut self.rng);
            }
        }
        if self.rng.u8(..16) == 0 {
            for _ in 0..self.rng.usize(1..200) {
                self.device.flip(self.rng.usize(..));
            }
            self.is_damaged = true;
            self.totals.flips += 1;
        }
        self.totals.crashes += 1;
        self.has_crashed = true;
        drop(cache);
    }

    fn step(&mut self, cache: &Cache) {
        let (file, key) = self.random_key();
        match self.rng.u8(..100) {
            0..40 => {
                self.totals.lookups += 1;
                if let Some(bytes) = cache.lookup(&key) {
                    assert!(
                        *bytes == *self.content(&key),
                        "seed {}: a wrong byte in {key:?}",
                        self.seed
                    );
                    self.totals.hits += 1;
                    self.totals.hits_after_crash += u64::from(self.has_crashed);
                }
            }
            40..80 => {
                let hint = if self.rng.u8(..10) == 0 {
                    Hint::Sequential
                } else {
                    Hint::Random
                };
                cache.insert(&key, &self.content(&key), hint);
            }
            80..92 => {
                cache.work().expect("a healthy device");
            }
            92..95 => match cache.forget(&key.file) {
                Ok(()) => {
                    *self.generations.entry(file).or_default() += 1;
                    self.totals.forgets += 1;
                }
                Err(_) => *self.versions.entry(file).or_default() += 1,
            },
            95 => cache.flush().expect("a healthy device"),
            96 => cache.pin(&key.file, self.rng.bool()),
            97 => self.failure(cache),
            _ => self.device.advance(Duration::from_secs(1)),
        }
    }

    /// The device fails for a while, then comes back.
    fn failure(&mut self, cache: &Cache) {
        let fail_reads = self.rng.bool();
        self.device.set_faults(Faults {
            fail_reads,
            fail_writes: !fail_reads,
            ..Faults::default()
        });
        for _ in 0..self.rng.usize(..8) {
            let (file, key) = self.random_key();
            if let Some(bytes) = cache.lookup(&key) {
                assert!(
                    *bytes == *self.content(&key),
                    "seed {}: a wrong byte in {key:?}",
                    self.seed
                );
            }
            cache.insert(&key, &self.content(&key), Hint::Random);
            let _ = cache.work();
            if self.rng.u8(..4) == 0 {
                match cache.forget(&key.file) {
                    Ok(()) => *self.generations.entry(file).or_default() += 1,
                    Err(_) => *self.versions.entry(file).or_default() += 1,
                }
            }
        }
        self.device.set_faults(Faults::default());
        self.device.advance(Duration::from_secs(60));
        cache.work().expect("the device is back");
        assert!(cache.is_on(), "seed {}: the device is back", self.seed);
    }
}

pub fn file_key(file: u64) -> FileKey {
    FileKey {
        share: [1; 16],
        volume: 1,
        file: u128::from(file),
    }
}
