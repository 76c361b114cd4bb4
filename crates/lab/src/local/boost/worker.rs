//! One run: a process in a group with little memory mounts the modelled disk, with or without the
//! cache on modelled flash, and reads programs from it after memory hogs have thrown them out.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_boost::{Boost, BoostOptions, BoostStore, share_id};
use ropeway_cache::{Cache, Config, FileDevice};
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_mount::{MountOptions, Mounted, Unmounter};
use ropeway_vfs::store::Store;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use super::group;
use super::model::{DISK, FLASH_READ_BYTES_PER_S, Flash};
use super::normal::{FROM_MEMORY_S, Judge};
use crate::local::disk::{Disk, DiskStore};

/// Bytes of a read, and of a block of the cache.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Times that the programs have run before, in the modes with what was learned.
const DAYS: usize = 3;
/// Hogs at a time, as in the published experiment.
const HOGS: u64 = 2;
/// Bytes of memory that the hogs of each round leave over, for what the kernel needs itself. The last
/// ones may be killed for want of memory.
const LEFT_OVER: [u64; 5] = [8 << 20, 4 << 20, 2 << 20, 1 << 20, 0];
/// Blocks that the cache keeps in memory: few, since memory is what is short.
const CACHE_MEMORY: u64 = 4 << 20;
/// What a program does with a block that it has read. A guess.
const THINKING: Duration = Duration::from_millis(1);
/// Seconds between two points of the curve.
const CURVE_STEP_S: f64 = 0.5;
/// Time between two looks at the reads.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time until the cache has written everything.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// How long nobody uses the machine after the hogs, in the modes that begin so. A guess: someone closes
/// a game and looks for the next program.
pub(super) const IDLE_FIRST: Duration = Duration::from_secs(15);

/// What is in front of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    None,
    /// An empty cache that knows nothing.
    Cold,
    /// A cache with the programs in it, without predictions.
    Warm,
    /// A cache with the programs in it, which has learned how they are read.
    Predicting,
    /// As [`Warm`](Self::Warm), and after the hogs nobody uses the machine for a while.
    WarmIdle,
    /// As [`Predicting`](Self::Predicting), and after the hogs nobody uses the machine for a while: what
    /// they threw out is brought back.
    PredictingIdle,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Cold,
        Self::Warm,
        Self::Predicting,
        Self::WarmIdle,
        Self::PredictingIdle,
    ];

    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no boost",
            Self::Cold => "boost, cold",
            Self::Warm => "boost, warm",
            Self::Predicting => "boost, warm, predicting",
            Self::WarmIdle => "boost, warm, idle first",
            Self::PredictingIdle => "boost, warm, predicting, idle first",
        }
    }

    fn is_warm(self) -> bool {
        !matches!(self, Self::None | Self::Cold)
    }

    fn is_predicting(self) -> bool {
        !matches!(self, Self::Warm | Self::WarmIdle)
    }

    /// How long nobody uses the machine after the hogs.
    fn pause(self) -> Duration {
        match self {
            Self::WarmIdle | Self::PredictingIdle => IDLE_FIRST,
            _ => Duration::ZERO,
        }
    }
}

/// What a worker has to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A run.
    Run(Plan),
    /// Take so many bytes of memory for a moment.
    Hog(u64),
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is in front of the disk.
    pub mode: Mode,
    /// Folder with the folder `disk`; everything else is made in it.
    pub folder: PathBuf,
    /// Programs, and blocks of 64 KiB of each.
    pub programs: usize,
    /// See [`programs`](Self::programs).
    pub blocks: usize,
    /// Programs that start at the same time.
    pub readers: usize,
    /// Seed of the order in which programs start, and of the disk's seeks.
    pub seed: u64,
    /// Seconds after which a run has failed.
    pub limit_s: f64,
    /// The group with little memory, and its bytes.
    pub group: Option<(PathBuf, u64)>,
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Seconds until reads were normal again; `None`: not within the limit.
    pub normal_s: Option<f64>,
    /// Share of reads that memory answered: before the hogs, and in the first half second after them.
    pub before: Option<f64>,
    /// See [`before`](Self::before).
    pub after: Option<f64>,
    /// Bytes of the page cache before and after the hogs.
    pub page_cache: Option<(u64, u64)>,
    /// Reads of the programs.
    pub reads: u64,
    /// Reads of the disk, and the seconds that they took.
    pub disk: (u64, f64),
    /// Reads of the flash device, and the seconds that they took.
    pub flash: (u64, f64),
    /// Hits of the cache.
    pub hits: u64,
    /// Blocks that were fetched from the disk because they were predicted.
    pub prefetched: u64,
    /// Bytes that were brought back before the programs started, those of them that came from the disk,
    /// and the seconds that it took; `None` without a cache.
    pub brought: Option<(u64, u64, f64)>,
    /// Seconds, and the share of reads that memory answered.
    pub curve: Vec<[f64; 2]>,
}

/// Takes memory, and gives it back.
pub(super) fn hog(bytes: u64) {
    // If there is too little, this process is the one to be killed.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let mut memory = vec![0_u8; usize::try_from(bytes).unwrap_or(0)];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    std::thread::sleep(Duration::from_millis(200));
    std::hint::black_box(&memory);
}

/// A mount of the disk, and what is in front of it.
struct Stage {
    at: PathBuf,
    unmounter: Unmounter,
    thread: Option<JoinHandle<io::Result<()>>>,
    boost: Option<(Boost, Arc<Flash>)>,
}

impl Stage {
    /// Mounts. `learned`: what a cache knows; `None` without predictions.
    fn new(
        plan: &Plan,
        disk: &Arc<Disk>,
        is_on: &Arc<AtomicBool>,
        how: Option<Option<Vec<u8>>>,
    ) -> io::Result<Self> {
        let folder = plan.folder.join("disk");
        let local = LocalStore::open(&folder, &StoreOptions::default()).map_err(io::Error::other)?;
        let store: Arc<dyn Store> = Arc::new(DiskStore::new(Arc::new(local), Arc::clone(disk)));
        let boost = match (plan.mode, how) {
            (Mode::None, _) => None,
            (mode, learned) => Some(cache(plan, is_on, mode, learned.flatten())?),
        };
        let store = match &boost {
            Some((boost, _)) => Arc::new(BoostStore::new(store, boost.clone(), share_id("lab"))) as Arc<_>,
            None => store,
        };
        let at = plan.folder.join("mnt");
        fs::create_dir_all(&at)?;
        let options = MountOptions {
            source: "ropeway lab".to_owned(),
            read_only: true,
            passthrough: false,
            ..MountOptions::default()
        };
        let mounted =
            Mounted::new(store, &at, &options).map_err(|error| io::Error::other(error.to_string()))?;
        let unmounter = mounted.unmounter();
        if let Some((boost, _)) = &boost {
            let pages = mounted.pages(Path::new("/proc/self/exe"));
            boost.bring_back(share_id("lab"), Arc::new(pages))?;
        }
        let thread = std::thread::Builder::new().spawn(move || mounted.run())?;
        Ok(Self {
            at,
            unmounter,
            thread: Some(thread),
            boost,
        })
    }

    /// Unmounts. Returns what was learned.
    fn end(mut self) -> io::Result<Option<Vec<u8>>> {
        let learned = self.boost.as_ref().and_then(|(boost, _)| boost.learned());
        if let Some((boost, _)) = &self.boost {
            until_written(boost);
            boost.close();
        }
        self.unmounter.unmount()?;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        Ok(learned)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.unmounter.detach();
        }
    }
}

/// Waits until the cache writes nothing any more.
fn until_written(boost: &Boost) {
    let start = Instant::now();
    let (mut last, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(500) && start.elapsed() < SETTLE_MAX {
        let now = boost.stats().bytes_written;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(LOOK);
    }
}

/// Opens the flash device's file. The threads of the last day's cache may hold it for a moment.
fn open_flash(path: &Path, size: u64) -> io::Result<FileDevice> {
    let start = Instant::now();
    loop {
        match FileDevice::open(path, size) {
            Err(ropeway_cache::Error::Busy) if start.elapsed() < SETTLE_MAX => std::thread::sleep(LOOK),
            opened => return opened.map_err(io::Error::other),
        }
    }
}

fn cache(
    plan: &Plan,
    is_on: &Arc<AtomicBool>,
    mode: Mode,
    learned: Option<Vec<u8>>,
) -> io::Result<(Boost, Arc<Flash>)> {
    let bytes = (plan.programs * plan.blocks * READ_BYTES * 2) as u64;
    let size = bytes.max(64 << 20);
    let file = open_flash(&plan.folder.join("flash"), size)?;
    let flash = Flash::new(file, is_on);
    let config = Config {
        segment_bytes: 1 << 20,
        memory_bytes: CACHE_MEMORY,
        seed: plan.seed,
    };
    let start = Instant::now();
    let clock = Arc::new(move || start.elapsed());
    let opened = Cache::open(Box::new(Arc::clone(&flash)), &[7; 32], &config, clock);
    let (cache, _) = opened.map_err(io::Error::other)?;
    let options = BoostOptions {
        predict_blocks: mode.is_predicting().then(|| (size / READ_BYTES as u64) as usize),
        learned,
        device_rate: Some(FLASH_READ_BYTES_PER_S),
        ..BoostOptions::default()
    };
    Ok((Boost::new(cache, options)?, flash))
}

/// Returns the order in which a program reads its blocks: the same each time, and scattered.
fn order(plan: &Plan, program: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..plan.blocks).collect();
    fastrand::Rng::with_seed(program as u64).shuffle(&mut order);
    order
}

/// Runs a program: opens its file, and reads all blocks. `read` hears how long each read took.
fn start_program(
    plan: &Plan,
    at: &Path,
    program: usize,
    mut read: impl FnMut(Duration) -> bool,
) -> io::Result<bool> {
    let file = File::open(at.join(super::program(program)))?;
    // Reads of a program's pages are scattered: nothing is read ahead.
    fadvise(&file, 0, None, Advice::Random)?;
    let mut buffer = vec![0; READ_BYTES];
    for block in order(plan, program) {
        let start = Instant::now();
        file.read_exact_at(&mut buffer, (block * READ_BYTES) as u64)?;
        if !read(start.elapsed()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs each program once. Returns the share of reads that memory answered.
fn day(plan: &Plan, at: &Path) -> io::Result<f64> {
    let (mut all, mut quick) = (0_u64, 0_u64);
    for program in 0..plan.programs {
        start_program(plan, at, program, |took| {
            all += 1;
            quick += u64::from(took.as_secs_f64() <= FROM_MEMORY_S);
            true
        })?;
    }
    Ok(quick as f64 / all.max(1) as f64)
}

/// Lets hogs throw the page cache out; without a group, the files' pages are given up.
fn hogs(plan: &Plan, at: &Path) -> io::Result<()> {
    let Some((group, bytes)) = &plan.group else {
        for program in 0..plan.programs {
            fadvise(
                File::open(at.join(super::program(program)))?,
                0,
                None,
                Advice::DontNeed,
            )?;
        }
        return Ok(());
    };
    for left_over in LEFT_OVER {
        let own = group::usage(group).map_or(0, |(_, own)| own);
        let each = bytes.saturating_sub(own + left_over) / HOGS;
        let hogs: io::Result<Vec<Child>> = (0..HOGS).map(|_| start_hog(each)).collect();
        for mut hog in hogs? {
            // One that was killed has taken what there was.
            hog.wait()?;
        }
    }
    Ok(())
}

fn start_hog(bytes: u64) -> io::Result<Child> {
    let task = serde_json::to_string(&Task::Hog(bytes))?;
    Command::new("/proc/self/exe")
        .args(["lab", "boost-worker", &task])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
}

fn flash_of(stage: &Stage) -> (u64, f64) {
    let boost = stage.boost.as_ref();
    boost.map_or((0, 0.0), |(_, flash)| flash.busy.so_far())
}

/// Does a run.
///
/// # Errors
/// Nothing can be mounted or read here.
pub(super) fn run(plan: &Plan) -> io::Result<Found> {
    if let Some((group, _)) = &plan.group {
        group::enter(group)?;
    }
    let is_on = Arc::new(AtomicBool::new(false));
    let disk = Disk::new(DISK, &is_on, plan.seed);
    let learned = match plan.mode.is_warm() {
        true => before(plan, &disk, &is_on)?,
        false => None,
    };
    let stage = Stage::new(plan, &disk, &is_on, Some(learned))?;
    let mut found = Found::default();
    if plan.mode != Mode::Cold {
        // Reading a cold cache's programs would fill it.
        day(plan, &stage.at)?;
        is_on.store(true, Ordering::Relaxed);
        found.before = Some(day(plan, &stage.at)?);
        is_on.store(false, Ordering::Relaxed);
    }
    let usage = |plan: &Plan| plan.group.as_ref().and_then(|(group, _)| group::usage(group));
    let before = usage(plan);
    hogs(plan, &stage.at)?;
    found.page_cache = before.zip(usage(plan)).map(|(before, after)| (before.0, after.0));
    let counted = |stage: &Stage| {
        let boost = stage.boost.as_ref();
        boost.map_or((0, 0), |(boost, _)| {
            let stats = boost.stats();
            (
                stats.memory_hits + stats.device_hits,
                boost.predicted().blocks_fetched,
            )
        })
    };
    let (hits, prefetched) = counted(&stage);
    let (disk_before, flash_before) = (disk.busy.so_far(), flash_of(&stage));
    is_on.store(true, Ordering::Relaxed);
    std::thread::sleep(plan.mode.pause());
    found.brought = stage.boost.as_ref().map(|(boost, _)| {
        let of = boost.predicted().bringing;
        (of.bytes, of.bytes_from_source, of.seconds)
    });
    let busy = || disk.busy.so_far().1 + flash_of(&stage).1;
    measure(plan, &stage.at, &busy, &mut found)?;
    is_on.store(false, Ordering::Relaxed);
    let now = counted(&stage);
    (found.hits, found.prefetched) = (now.0 - hits, now.1 - prefetched);
    let since = |(reads, time): (u64, f64), before: (u64, f64)| (reads - before.0, time - before.1);
    found.disk = since(disk.busy.so_far(), disk_before);
    found.flash = since(flash_of(&stage), flash_before);
    stage.end()?;
    Ok(found)
}

/// Lets the programs run through the cache on some days. Returns what was learned.
fn before(plan: &Plan, disk: &Arc<Disk>, is_on: &Arc<AtomicBool>) -> io::Result<Option<Vec<u8>>> {
    let mut learned = None;
    for _ in 0..DAYS {
        let stage = Stage::new(plan, disk, is_on, Some(learned))?;
        day(plan, &stage.at)?;
        learned = stage.end()?;
    }
    Ok(learned)
}

/// Reads programs at random until that is normal again.
fn measure(plan: &Plan, at: &Path, busy: &dyn Fn() -> f64, found: &mut Found) -> io::Result<()> {
    let judge = Mutex::new(Judge::default());
    let (busy_before, mut next_point) = (busy(), CURVE_STEP_S);
    let (is_over, start) = (AtomicBool::new(false), Instant::now());
    let reader = |number: usize| -> io::Result<()> {
        let mut random = fastrand::Rng::with_seed(plan.seed.wrapping_mul(31) + number as u64);
        loop {
            let goes_on = start_program(plan, at, random.usize(0..plan.programs), |took| {
                judge.lock().read(took.as_secs_f64());
                std::thread::sleep(THINKING);
                !is_over.load(Ordering::Relaxed)
            });
            match goes_on {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    is_over.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let reader = &reader;
        let readers: Vec<_> = (0..plan.readers)
            .map(|number| scope.spawn(move || reader(number)))
            .collect();
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let now = start.elapsed().as_secs_f64();
            let mut judge = judge.lock();
            if now >= next_point {
                next_point = now + CURVE_STEP_S;
                if let Some(share) = judge.share() {
                    found.curve.push([now, share]);
                    found.after.get_or_insert(share);
                }
            }
            found.normal_s = judge.look(now, busy() - busy_before);
            if found.normal_s.is_some() || now > plan.limit_s {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        let ended: Result<Vec<()>, io::Error> = readers
            .into_iter()
            .map(|reader| {
                reader
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))
            })
            .collect();
        found.reads = judge.lock().all;
        ended.map(drop)
    })
}
