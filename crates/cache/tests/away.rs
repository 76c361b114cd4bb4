//! A device that goes away again and again under concurrent readers: removed, read-only, full, cut
//! short or stalled, by seed. `ROPEWAY_CACHE_AWAY=1000` runs a thousand times (default: 60).

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ropeway_cache::{Cache, Clock, Config, Device, FileDevice, FileKey, Hint, Key, Version};

const BYTES: u64 = 8 << 20;
const BLOCKS: u64 = 200;
const READERS: u64 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// Everything fails: the stick was pulled.
    Removed,
    /// Writes fail with EROFS.
    ReadOnly,
    /// Writes fail with ENOSPC.
    Full,
    /// Operations wait.
    Stalled,
    /// The file itself is cut, and later has its length again, with zeros.
    Truncated,
}

#[derive(Default)]
struct Switch {
    fault: Mutex<Fault>,
    changed: Condvar,
    waiting: AtomicU64,
    /// Operations that the device has begun and not ended.
    busy: AtomicU64,
}

impl Switch {
    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
        self.changed.notify_all();
    }

    fn run<T>(&self, is_write: bool, operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        let result = self.pass(is_write).and_then(|()| operation());
        self.busy.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn pass(&self, is_write: bool) -> io::Result<()> {
        let mut fault = self.fault.lock();
        while *fault == Fault::Stalled {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.changed.wait(&mut fault);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        match *fault {
            Fault::Removed => Err(io::Error::from_raw_os_error(19)), // ENODEV
            Fault::ReadOnly if is_write => Err(io::Error::from_raw_os_error(30)), // EROFS
            Fault::Full if is_write => Err(io::Error::from_raw_os_error(28)), // ENOSPC
            _ => Ok(()),
        }
    }
}

struct Flaky {
    file: FileDevice,
    switch: Arc<Switch>,
}

impl Device for Flaky {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.switch.run(false, || self.file.read_at(offset, into))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.switch.run(true, || self.file.write_at(offset, from))
    }

    fn sync(&self) -> io::Result<()> {
        self.switch.run(true, || self.file.sync())
    }

    fn size(&self) -> io::Result<u64> {
        self.switch.run(false, || self.file.size())
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }
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

fn content(block: u64) -> Vec<u8> {
    let mut bytes = vec![block as u8; 20_000];
    fastrand::Rng::with_seed(block).fill(&mut bytes[..10_000]);
    bytes
}

struct World {
    cache: Cache,
    switch: Arc<Switch>,
    millis: Arc<AtomicU64>,
    raw: File,
    hits: AtomicU64,
}

impl World {
    fn new(path: &Path) -> Self {
        let switch = Arc::<Switch>::default();
        let file = FileDevice::open(path, BYTES).unwrap();
        let device = Flaky {
            file,
            switch: Arc::clone(&switch),
        };
        let millis = Arc::new(AtomicU64::new(0));
        let source = Arc::clone(&millis);
        let clock: Clock = Arc::new(move || Duration::from_millis(source.load(Ordering::SeqCst)));
        let config = Config {
            segment_bytes: 256 << 10,
            memory_bytes: 0,
            seed: 1,
        };
        let (cache, _) = Cache::open(Box::new(device), &[5; 32], &config, clock).unwrap();
        Self {
            cache,
            switch,
            millis,
            raw: OpenOptions::new().write(true).open(path).unwrap(),
            hits: AtomicU64::new(0),
        }
    }

    fn advance(&self, seconds: u64) {
        self.millis.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// Lets the time until a probe pass, if the cache is off. What is still under way ends before: it
    /// would seem to have hung that long.
    fn pass_probe(&self) {
        while !self.cache.is_on() && self.switch.busy.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        if !self.cache.is_on() {
            self.advance(31);
        }
    }

    fn read(&self, block: u64) {
        match self.cache.lookup(&key(block)) {
            Some(bytes) => {
                assert!(*bytes == *content(block), "a wrong byte in block {block}");
                self.hits.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                self.cache.insert(&key(block), &content(block), Hint::Random);
            }
        }
    }

    /// The device is away, is noticed, comes back, and is used again.
    fn away(&self, rng: &mut fastrand::Rng) {
        let faults = [
            Fault::Removed,
            Fault::ReadOnly,
            Fault::Full,
            Fault::Stalled,
            Fault::Truncated,
        ];
        let fault = faults[rng.usize(..faults.len())];
        if fault == Fault::Truncated {
            self.raw.set_len(rng.u64(1..8) << 20).unwrap();
        }
        self.switch.set(fault);
        let mut hanging = None;
        if fault == Fault::Stalled {
            // Some operation hangs; it is noticed once it is older than the limit.
            let cache = self.cache.clone();
            hanging = Some(std::thread::spawn(move || drop(cache.flush())));
            while self.switch.waiting.load(Ordering::SeqCst) == 0 {
                // Off just before, so nothing hangs: the next fault.
                if hanging.as_ref().is_some_and(std::thread::JoinHandle::is_finished) {
                    break;
                }
                std::thread::yield_now();
            }
            self.advance(2);
            assert!(!self.cache.is_on(), "a stall is noticed");
            // The device hangs still, and no lookup waits for it any more.
            assert_eq!(self.cache.lookup(&key(0)), None);
        } else {
            // Reads go on while only writes fail.
            for block in 0..rng.u64(1..40) {
                self.read(block);
                let _ = self.cache.work();
            }
            let _ = self.cache.flush();
        }
        if fault == Fault::Truncated {
            self.raw.set_len(BYTES).unwrap();
        }
        self.switch.set(Fault::None);
        if let Some(hanging) = hanging {
            hanging.join().unwrap();
        }
        // A write that fails late may turn it off once more, but no probe fails any more.
        for _ in 0..100 {
            self.pass_probe();
            if self.cache.work().unwrap_or(false) && self.cache.is_on() {
                return;
            }
        }
        panic!("the cache is not back after {fault:?}");
    }
}

#[test]
fn a_device_that_goes_away_gives_no_wrong_byte_and_is_back_by_itself() {
    let rounds = std::env::var("ROPEWAY_CACHE_AWAY").map_or(60, |rounds| rounds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(&folder.path().join("cache"));
    let ends = AtomicBool::new(false);
    let mut rng = fastrand::Rng::with_seed(1);
    std::thread::scope(|scope| {
        // Readers end also if the assertions below fail.
        let _guard = End(&ends, &world.switch);
        for seed in 0..READERS {
            let (world, ends) = (&world, &ends);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !ends.load(Ordering::SeqCst) {
                    world.read(rng.u64(..BLOCKS));
                }
            });
        }
        for _ in 0..rounds {
            world.away(&mut rng);
            // The cache gives hits again before it loses its device once more.
            let before = world.hits.load(Ordering::Relaxed);
            while world.hits.load(Ordering::Relaxed) == before || !world.cache.is_on() {
                let _ = world.cache.work();
                // What hung may have ended, and been counted as a stall, only now.
                world.pass_probe();
            }
        }
    });
    let stats = world.cache.stats();
    println!("{rounds} times away: {stats:?}");
    assert!(stats.turned_off >= rounds / 2, "{stats:?}");
}

struct End<'a>(&'a AtomicBool, &'a Switch);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.set(Fault::None);
    }
}
