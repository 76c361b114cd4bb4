//! Bringing back over a real store and cache, with a kernel that is a table.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_cache::{Cache, Config, SimulatedDevice};
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::store::{Access, Store as _};

use super::*;
use crate::boost::{Boost, BoostOptions};
use crate::store::{BoostStore, share_id};

/// The process that reads for bringing back.
const READER: u32 = 77;
const SETTLE: Duration = Duration::from_millis(12);

/// The kernel's memory of a mount of a store.
struct Kernel {
    store: Arc<BoostStore>,
    pages: Mutex<HashSet<(Vec<u8>, u64)>>,
    reads: Mutex<Vec<(String, Range<u64>)>>,
    /// Whether it tells what it has.
    tells: bool,
    fails: AtomicBool,
}

impl Kernel {
    /// A process reads a range.
    fn read_by(&self, process: u32, path: &RelPath, offset: u64, length: u64) -> io::Result<()> {
        caller::on_behalf_of(process, || {
            let opened = self
                .store
                .open_itself(path, Access::Read)
                .map_err(io::Error::other)?;
            let mut buffer = vec![0; length as usize];
            let count = opened
                .node
                .read_at(&mut buffer, offset)
                .map_err(io::Error::other)?;
            assert!(
                buffer[..count].iter().all(|byte| *byte == content(path)),
                "{path}"
            );
            io::Result::Ok(())
        })?;
        let blocks = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        let blocks = blocks.map(|block| (path.as_bytes().to_vec(), block));
        self.pages.lock().extend(blocks);
        Ok(())
    }
}

fn content(path: &RelPath) -> u8 {
    path.as_bytes()
        .iter()
        .fold(1, |sum, byte| sum ^ byte.rotate_left(3))
}

impl KernelPages for Kernel {
    fn kept(&self, path: &RelPath, offset: u64, length: u64, step: u64) -> io::Result<Option<Vec<bool>>> {
        let pages = self.pages.lock();
        let blocks = offset / step..(offset + length) / step;
        let kept = blocks.map(|block| pages.contains(&(path.as_bytes().to_vec(), block)));
        Ok(self.tells.then(|| kept.collect()))
    }

    fn read(&self, path: &RelPath, offset: u64, length: u64) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(107));
        }
        let blocks = offset / BLOCK..(offset + length) / BLOCK;
        self.reads.lock().push((path.to_string(), blocks));
        self.read_by(READER, path, offset, length)
    }

    fn process(&self) -> Option<u32> {
        Some(READER)
    }
}

/// Memory that is as the test says.
struct Shown(Sight);

impl Look for Shown {
    fn look(&mut self, _: Duration) -> Sight {
        self.0
    }
}

fn idle() -> Sight {
    Sight {
        stalled: Some(0.0),
        available: Some(0.9),
        room: 1 << 30,
        idle_for: Duration::from_secs(60),
        ..Sight::default()
    }
}

struct Bench {
    folder: tempfile::TempDir,
    boost: Boost,
    kernel: Arc<Kernel>,
}

const FILES: u32 = 6;
const BLOCKS: u64 = 12;

fn path(number: u32) -> RelPath {
    RelPath::parse(format!("file {number}").as_bytes()).unwrap()
}

impl Bench {
    /// Six files, which a program has opened and read.
    fn new(tells: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..FILES {
            let bytes = vec![content(&path(number)); (BLOCKS * BLOCK) as usize - 100];
            std::fs::write(folder.path().join(path(number).to_string()), bytes).unwrap();
        }
        std::thread::sleep(3 * SETTLE);
        let boost = boost();
        let kernel = Arc::new(Kernel {
            store: Arc::new(store(folder.path(), &boost)),
            pages: Mutex::default(),
            reads: Mutex::default(),
            tells,
            fails: AtomicBool::new(false),
        });
        assert!(boost.shared.hogs.pages.set(Arc::clone(&kernel) as _).is_ok());
        let bench = Self {
            folder,
            boost,
            kernel,
        };
        for number in 0..FILES {
            for block in 0..BLOCKS {
                bench
                    .kernel
                    .read_by(1, &path(number), block * BLOCK, BLOCK)
                    .unwrap();
            }
        }
        bench
    }

    /// Everything is thrown out, and brought back as far as `sight` allows.
    fn bring(&self, sight: Sight, most: u64) -> Phase {
        let mut watch = Watch::default();
        let short = Sight {
            stalled: Some(1.0),
            ..idle()
        };
        watch.look(Duration::from_secs(0), &short);
        assert!(watch.look(Duration::from_secs(10), &idle()));
        let shared = &self.boost.shared;
        let mut paces = first_paces(shared);
        let mut bringer = Bringer {
            shared,
            ahead: shared.ahead.as_ref().unwrap(),
            share: share_id("test"),
            pages: &*self.kernel,
            sights: &mut Shown(sight),
            watch: &mut watch,
            paces: &mut paces,
            open: None,
            failures: 0,
        };
        bringer.bring(most);
        watch.phase()
    }

    fn pages(&self) -> usize {
        self.kernel.pages.lock().len()
    }

    fn status(&self) -> BringStatus {
        self.boost.predicted().bringing
    }
}

fn boost() -> Boost {
    let device = SimulatedDevice::new(32 << 20);
    let config = Config {
        segment_bytes: 128 << 10,
        memory_bytes: 0,
        seed: 1,
    };
    let clock = device.clone();
    let clock = Arc::new(move || clock.now());
    let (cache, _) = Cache::open(Box::new(device), &[7; 32], &config, clock).unwrap();
    let options = BoostOptions {
        predict_blocks: Some(500),
        settle: Some(SETTLE),
        ..BoostOptions::default()
    };
    Boost::new(cache, options).unwrap()
}

fn store(folder: &Path, boost: &Boost) -> BoostStore {
    let store = LocalStore::open(folder, &StoreOptions::default()).unwrap();
    BoostStore::new(Arc::new(store), boost.clone(), share_id("test"))
}

#[test]
fn what_was_thrown_out_comes_back_and_what_is_there_is_not_read() {
    let bench = Bench::new(true);
    let all = (u64::from(FILES) * BLOCKS) as usize;
    assert_eq!(bench.pages(), all);
    let before = bench.boost.stats();
    // The hogs throw out all but one file.
    let last = path(FILES - 1);
    bench.kernel.pages.lock().retain(|(of, _)| of == last.as_bytes());
    assert_eq!(bench.bring(idle(), 1 << 30), Phase::Calm);
    assert_eq!(bench.pages(), all);
    let status = bench.status();
    assert_eq!(status.blocks, u64::from(FILES - 1) * BLOCKS);
    assert_eq!(status.bytes_kept, BLOCKS * BLOCK);
    assert_eq!(status.ended, "everything was there or is back");
    let reads = bench.kernel.reads.lock().clone();
    assert!(reads.iter().all(|(of, _)| *of != last.to_string()), "{reads:?}");
    assert!(
        reads.len() <= 2 * FILES as usize,
        "neighbours come together: {reads:?}"
    );
    // Nothing was learned from it, and no lookup was counted.
    let (after, predicted) = (bench.boost.stats(), bench.boost.predicted());
    assert_eq!(
        (after.device_hits, after.misses),
        (before.device_hits, before.misses)
    );
    assert_eq!(predicted.requests, u64::from(FILES) * BLOCKS);
    // A program opens one of them: what was brought back of it is used.
    assert_eq!(status.bytes_used, 0);
    caller::on_behalf_of(1, || bench.kernel.store.open_itself(&path(0), Access::Read)).unwrap();
    assert_eq!(
        bench.status().bytes_used / BLOCK,
        BLOCKS - 1,
        "the last block is shorter"
    );
    bench.boost.close();
}

#[test]
fn a_kernel_that_does_not_tell_is_asked_for_all() {
    let bench = Bench::new(false);
    assert_eq!(bench.bring(idle(), 1 << 30), Phase::Calm);
    assert_eq!(bench.status().blocks, u64::from(FILES) * BLOCKS);
    bench.boost.close();
}

#[test]
fn the_likeliest_come_back_first_and_the_bytes_are_bounded() {
    let bench = Bench::new(true);
    let often = path(3);
    // Used now and then: the count grows with the cache's clock, which insertions move.
    for number in 100..130 {
        let other = format!("other {number}");
        let other = RelPath::parse(other.as_bytes()).unwrap();
        let folder = bench.folder.path();
        std::fs::write(
            folder.join(other.to_string()),
            vec![content(&other); BLOCK as usize],
        )
        .unwrap();
    }
    std::thread::sleep(3 * SETTLE);
    for number in 100..130 {
        let other = RelPath::parse(format!("other {number}").as_bytes()).unwrap();
        bench.kernel.read_by(1, &other, 0, BLOCK).unwrap();
    }
    for block in 0..BLOCKS {
        bench.kernel.read_by(1, &often, block * BLOCK, BLOCK).unwrap();
    }
    bench.kernel.pages.lock().clear();
    assert_eq!(bench.bring(idle(), BLOCKS * BLOCK), Phase::Calm);
    let pages = bench.kernel.pages.lock().clone();
    let of_often = pages.iter().filter(|(of, _)| of == often.as_bytes()).count();
    assert_eq!(of_often as u64, BLOCKS, "{pages:?}");
    assert!(pages.len() <= BLOCKS as usize + order::RUN_MAX, "{}", pages.len());
    assert_eq!(bench.status().ended, "there is no more room");
    bench.boost.close();
}

#[test]
fn it_stops_after_the_run_during_which_a_program_waits_or_memory_is_short() {
    let bench = Bench::new(true);
    let demand = Sight {
        idle_for: Duration::ZERO,
        ..idle()
    };
    let short = Sight {
        stalled: Some(0.5),
        ..idle()
    };
    for (sight, phase, ended) in [
        (demand, Phase::Due, "a program waits"),
        (short, Phase::Pressed, "memory is short again"),
    ] {
        bench.kernel.pages.lock().clear();
        assert_eq!(bench.bring(sight, 1 << 30), phase);
        assert!(bench.pages() <= order::RUN_MAX, "{}", bench.pages());
        assert_eq!(bench.status().ended, ended);
    }
    bench.boost.close();
}

#[test]
fn a_reader_that_fails_and_files_that_are_gone_end_it_in_peace() {
    let bench = Bench::new(true);
    bench.kernel.pages.lock().clear();
    bench.kernel.fails.store(true, Ordering::Relaxed);
    assert_eq!(bench.bring(idle(), 1 << 30), Phase::Calm);
    assert!(bench.status().ended.starts_with("the mount cannot be read"));
    assert_eq!(bench.pages(), 0);
    bench.kernel.fails.store(false, Ordering::Relaxed);
    std::fs::remove_file(bench.folder.path().join(path(2).to_string())).unwrap();
    assert_eq!(bench.bring(idle(), 1 << 30), Phase::Calm);
    assert_eq!(bench.pages() as u64, u64::from(FILES - 1) * BLOCKS);
    bench.boost.close();
}
