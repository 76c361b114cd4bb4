//! One run: a tree, a fleet, and what must hold at the end.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_fleet::catalog::{Block, State as FileState};
use ropeway_fleet::error::Result as FleetResult;
use ropeway_fleet::job::JobFile;
use ropeway_fleet::partition::WalkLimits;
use ropeway_fleet::parts::PartLimits;
use ropeway_fleet::queue::memory::QueueFaults;
use ropeway_fleet::queue::{MemoryQueue, Queue, ShareQueue};
use ropeway_fleet::run::{Crew, Ended, Ends, Move, Moved, Mover, PlainMover, WorkOptions};
use ropeway_fleet::status::Reader;
use ropeway_fleet::store::Store;
use ropeway_fleet::worker::SliceLimits;
use ropeway_fleet::workers::WorkerId;
use ropeway_vfs::clock::simulate;
use ropeway_vfs::decorate::Layered;
use ropeway_vfs::{
    CacheMode, Clock, Create, HashAlgorithm, MemoryTree, Name, OpenOptions, Pending, RelPath, Tree,
    VirtualClock,
};

use super::chaos::{Chaos, Plan, State, Watch};

pub(crate) const CATALOG: &str = ".ropeway-fleet-t";
const LEASE: Duration = Duration::from_secs(30);
/// Time after which a run counts as stuck.
const END: Duration = Duration::from_secs(2 * 24 * 3600);

/// Times that a job is resumed. The source does not change any more then, so once would do but for the faults.
const RESUMES_MAX: u32 = 50;

/// What happened in all runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) tasks: u64,
    pub(crate) claims: u64,
    pub(crate) kills: u64,
    pub(crate) copied_again: u64,
    /// Large files that got their names, each version once.
    pub(crate) joined: u64,
    pub(crate) deleted: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.tasks += other.tasks;
        self.claims += other.claims;
        self.kills += other.kills;
        self.copied_again += other.copied_again;
        self.joined += other.joined;
        self.deleted += other.deleted;
    }
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// Lines of a large file.
const LINES: usize = 400;

/// Whether a file is a large one, which is copied in parts.
fn is_large(file: &RelPath) -> bool {
    let name = file.file_name().unwrap();
    name.as_bytes().ends_with(b"7")
}

/// Returns the content of a version of a file. A large one is full of its version, and always has the same size.
fn content_of(file: &RelPath, version: u64) -> String {
    match is_large(file) {
        true => format!("{file}#{version:04}\n").repeat(LINES),
        false => format!("{file}#{version}"),
    }
}

/// Returns the version in the content of a file; `None` if it holds more than one.
pub(crate) fn version_of(content: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(content).ok()?;
    let mut versions = text.lines().map(|line| line.rsplit_once('#')?.1.parse().ok());
    let first = versions.next()??;
    versions.all(|version| version == Some(first)).then_some(first)
}

/// Counts copies of each version.
struct Counting {
    inner: PlainMover,
    copies: Arc<Mutex<BTreeMap<(RelPath, i64), u64>>>,
}

impl Mover for Counting {
    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn copy<'a>(&'a self, stage: &'a RelPath, moves: &'a [Move]) -> Pending<'a, FleetResult<Vec<Moved>>> {
        Box::pin(async move {
            let moved = self.inner.copy(stage, moves).await?;
            for (wanted, moved) in moves.iter().zip(&moved) {
                if let Moved::Copied { modified, .. } = moved {
                    *self
                        .copies
                        .lock()
                        .entry((wanted.source.clone(), *modified))
                        .or_insert(0) += 1;
                }
            }
            Ok(moved)
        })
    }
}

struct World {
    clock: VirtualClock,
    source: Arc<MemoryTree>,
    target: Arc<MemoryTree>,
    watch: Arc<Watch>,
    copies: Arc<Mutex<BTreeMap<(RelPath, i64), u64>>>,
    queue: Option<MemoryQueue>,
    options: WorkOptions,
    plan: Plan,
    kills_max: u32,
    kills: AtomicU64,
}

/// Makes a source; returns its files, and which of them are names of another.
fn fill(source: &MemoryTree, random: &mut fastrand::Rng, clock: &VirtualClock) -> Vec<RelPath> {
    let count = random.usize(1..40);
    let mut folders = vec![RelPath::root()];
    let mut files: Vec<RelPath> = Vec::new();
    for number in 0..count {
        let folder = random.choice(&folders).unwrap().clone();
        let own = folder.join(&Name::new(format!("n{number}").as_bytes()).unwrap());
        match random.u8(0..10) {
            0..=2 => {
                simulate(clock, source.make_dir(&own, 0o755)).unwrap();
                folders.push(own);
            }
            3 if !files.is_empty() => {
                let existing = random.choice(&files).unwrap().clone();
                simulate(clock, source.make_hard_link(&existing, &own)).unwrap();
                files.push(own);
            }
            _ => {
                source.insert_file(&own, content_of(&own, 1).as_bytes()).unwrap();
                files.push(own);
            }
        }
    }
    files
}

/// Runs the seed.
///
/// # Errors
/// A promise is broken.
pub(crate) fn run(seed: u64) -> Result<Totals, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = VirtualClock::new();
    let (source, target) = (Arc::new(MemoryTree::new()), Arc::new(MemoryTree::new()));
    let files = fill(&source, &mut random, &clock);
    let options = WorkOptions {
        walk: WalkLimits {
            entries_max: random.usize(1..12),
            held_max: random.usize(1..20),
            split_min: random.usize(1..3),
        },
        slice: SliceLimits {
            files_max: random.usize(1..5),
            bytes_max: 1 << 20,
            parts: PartLimits {
                file_min: 3_000,
                length: 2_048,
                split_min: 1_024,
            },
        },
        lease: LEASE,
        poll: Duration::from_secs(5),
    };
    // It may never take an offer, or never answer.
    let refuses = |random: &mut fastrand::Rng| [0, 0, 0, 5, 1][random.usize(..5)];
    let faults = match random.u8(0..3) {
        0 => None,
        1 => Some(QueueFaults::default()),
        _ => Some(QueueFaults {
            lose_offer: 8,
            refuse_offer: refuses(&mut random),
            refuse_take: refuses(&mut random),
            lose_ack: 6,
            repeat: 10,
            early: 10,
            lose_epoch: 8,
            delay: 6,
        }),
    };
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let rarely = |random: &mut fastrand::Rng, least: u32| match random.u8(0..3) {
        0 => 0,
        _ => random.u32(least..20 * least),
    };
    let world = World {
        queue: faults.map(|faults| MemoryQueue::new(shared, LEASE, faults, seed)),
        clock: clock.clone(),
        watch: Arc::default(),
        copies: Arc::default(),
        options,
        plan: Plan {
            stall: rarely(&mut random, 30),
            lose: rarely(&mut random, 30),
            until: Duration::from_secs(random.u64(10..3_000)),
        },
        kills_max: random.u32(0..8),
        kills: AtomicU64::new(0),
        source,
        target,
    };
    let workers = random.usize(1..5);
    simulate(&clock, world.job(&mut random, workers, &files))?;
    world.judge(&files)
}

impl World {
    async fn job(&self, random: &mut fastrand::Rng, workers: usize, files: &[RelPath]) -> Result<(), String> {
        let tree: Arc<dyn Tree> = Arc::clone(&self.target) as _;
        let store = Store::new(Arc::clone(&tree), path(CATALOG), WorkerId(u64::MAX));
        // An empty source deletes nothing.
        let deletes = random.bool() && !files.is_empty();
        let job = JobFile::new("s".to_owned(), "t".to_owned()).with_deletions(deletes);
        store.create(&job).await.map_err(|error| error.to_string())?;
        tree.make_dir(&path("t"), 0o700)
            .await
            .map_err(|error| error.to_string())?;
        if deletes {
            self.add_extra(random, files).await;
        }
        let work = async {
            // The source stops changing at some time.
            let changes = self.change(random.u64(..), files);
            let (result, ()) = futures_util::future::join(self.round(random, workers), changes).await;
            result?;
            // A large file that changed while it was copied has failed.
            for round in 0..RESUMES_MAX {
                let failed = Reader::default().retry(&store, round).await;
                if failed.map_err(|error| error.to_string())? == 0 {
                    return Ok(());
                }
                *self.watch.complete.lock() = false;
                self.round(random, workers).await?;
            }
            Err(format!("something still fails after {RESUMES_MAX} resumes"))
        };
        match select(pin!(work), self.clock.sleep_until(END)).await {
            Either::Left((result, _)) => result?,
            Either::Right(_) => return Err("the fleet does not come to an end".to_owned()),
        }
        store.sweep().await.map_err(|error| error.to_string())
    }

    /// Puts something into the target that the source does not have.
    async fn add_extra(&self, random: &mut fastrand::Rng, files: &[RelPath]) {
        for number in 0..random.u32(0..6) {
            let folder = match random.choice(files).filter(|_| random.bool()) {
                Some(file) => path("t").join_path(&file.parent().unwrap()),
                None => path("t"),
            };
            let missing: Vec<RelPath> = std::iter::successors(Some(folder.clone()), RelPath::parent)
                .take_while(|folder| !folder.is_root())
                .collect();
            for folder in missing.iter().rev() {
                let _ = self.target.make_dir(folder, 0o700).await;
            }
            let extra = folder.join(&Name::new(format!("x{number}").as_bytes()).unwrap());
            if random.bool() {
                self.target.make_dir(&extra, 0o500).await.unwrap();
                let inside = extra.join(&Name::new(b"inside").unwrap());
                self.target.insert_file(&inside, b"extra").unwrap();
            } else {
                self.target.insert_file(&extra, b"extra").unwrap();
            }
        }
    }

    /// Works until the job is complete.
    async fn round(&self, random: &mut fastrand::Rng, workers: usize) -> Result<(), String> {
        let seeds: Vec<u64> = (0..workers).map(|_| random.u64(..)).collect();
        let results = join_all(seeds.iter().map(|seed| self.slot(*seed))).await;
        results.into_iter().collect()
    }

    /// One place for a worker: each that is killed is followed by another.
    async fn slot(&self, seed: u64) -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut kills = 0;
        loop {
            let crew = self.crew(&mut random);
            let dies = kills < self.kills_max;
            let life = match dies {
                true => Duration::from_millis(random.u64(1..60_000)),
                false => END,
            };
            let killed = self.clock.sleep_until(self.clock.now() + life);
            match select(pin!(crew.work()), killed).await {
                Either::Left((Ok(Ended::Complete), _)) => {
                    *self.watch.complete.lock() = true;
                    return Ok(());
                }
                Either::Left((Ok(Ended::Stopped), _)) => return Err("nobody stopped a worker".to_owned()),
                // It gave up; somebody starts it again.
                Either::Left((Err(_), _)) => {}
                Either::Right(_) => {
                    kills += 1;
                    self.kills.fetch_add(1, Ordering::Relaxed);
                }
            }
            let pause = Duration::from_millis(random.u64(0..120_000));
            self.clock.sleep_until(self.clock.now() + pause).await;
        }
    }

    fn crew(&self, random: &mut fastrand::Rng) -> Crew {
        let chaos = Chaos {
            clock: self.clock.clone(),
            memory: Arc::clone(&self.target),
            watch: Arc::clone(&self.watch),
            plan: self.plan,
            lease: LEASE,
            state: Mutex::new(State {
                random: fastrand::Rng::with_seed(random.u64(..)),
                stalled_until: Duration::ZERO,
            }),
        };
        let source: Arc<dyn Tree> = Arc::clone(&self.source) as _;
        let target: Arc<dyn Tree> = Layered::wrap(Arc::clone(&self.target) as _, chaos);
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let store = Arc::new(Store::new(
            Arc::clone(&target),
            path(CATALOG),
            WorkerId(random.u64(..)),
        ));
        let seed = random.u64(..);
        let queue: Arc<dyn Queue> = match &self.queue {
            Some(queue) => Arc::new(queue.clone()),
            None => Arc::new(ShareQueue::new(
                Arc::clone(&store),
                Arc::clone(&clock),
                LEASE,
                seed,
            )),
        };
        let mover = Counting {
            // A part has several blocks, so that a worker may stall in the middle of it.
            inner: PlainMover::with_blocks(Arc::clone(&source), Arc::clone(&target), 512),
            copies: Arc::clone(&self.copies),
        };
        let ends = Ends::new(source, target, path("t"));
        Crew::new(ends, (store, queue), Arc::new(mover), clock, self.options)
    }

    /// Replaces files of the source by newer versions.
    async fn change(&self, seed: u64, files: &[RelPath]) {
        let mut random = fastrand::Rng::with_seed(seed);
        if random.bool() || files.is_empty() {
            return;
        }
        for version in 2..random.u64(3..80) {
            let pause = Duration::from_millis(random.u64(1..10_000));
            self.clock.sleep_until(self.clock.now() + pause).await;
            let file = random.choice(files).unwrap();
            let Ok(metadata) = self.source.metadata(file).await else {
                continue;
            };
            if metadata.links > 1 {
                continue;
            }
            let content = content_of(file, version);
            if is_large(file) {
                self.write_over(file, content.as_bytes()).await;
                continue;
            }
            self.source.remove_file(file).await.unwrap();
            self.source.insert_file(file, content.as_bytes()).unwrap();
        }
    }

    /// Changes a file in place: whoever has it open sees the new version.
    async fn write_over(&self, file: &RelPath, content: &[u8]) {
        let options = OpenOptions::write(Create::No, CacheMode::Keep);
        let file = self.source.open(file, options).await.unwrap();
        let mut block = Pool::new(content.len(), 1).get().await;
        block.capacity_mut()[..content.len()].copy_from_slice(content);
        block.set_len(content.len());
        file.write_at(block.freeze(), 0).await.unwrap();
    }

    fn judge(&self, files: &[RelPath]) -> Result<Totals, String> {
        if let Some(fault) = self.watch.faults.lock().first() {
            return Err(fault.clone());
        }
        let mut ids = BTreeMap::new();
        for file in files {
            let copy = path("t").join_path(file);
            let content = self
                .target
                .content(&copy)
                .map_err(|error| format!("lost: {error}"))?;
            let version = version_of(&content);
            let current = version_of(&self.source.content(file).map_err(|error| error.to_string())?);
            if version.is_none() || version > current {
                return Err(format!("{copy} holds {content:?}"));
            }
            let metadata = |tree: &MemoryTree, path: &RelPath| {
                simulate(&self.clock, tree.metadata(path)).map_err(|error| error.to_string())
            };
            let (of_source, of_target) = (metadata(&self.source, file)?, metadata(&self.target, &copy)?);
            if of_source.links > 1 {
                let first = ids.entry(of_source.id).or_insert(of_target.id);
                if *first != of_target.id {
                    return Err(format!("{copy} is no longer a name of the same file"));
                }
            }
        }
        self.judge_folders()?;
        let (joined, deleted) = self.judge_catalog(files)?;
        let done = simulate(&self.clock, self.names(&format!("{CATALOG}/done"))).len() as u64;
        let copied_again: u64 = self.copies.lock().values().map(|count| count - 1).sum();
        let claims = *self.watch.claims.lock();
        let most = (claims.saturating_sub(done)) * self.options.slice.files_max as u64;
        if copied_again > most {
            return Err(format!(
                "{copied_again} files were copied again, at most {most} were in flight"
            ));
        }
        Ok(Totals {
            files: files.len() as u64,
            tasks: done,
            claims,
            kills: self.kills.load(Ordering::Relaxed),
            copied_again,
            joined,
            deleted,
        })
    }

    /// The catalog names every file with the hash of its content, and no version was committed
    /// twice. Returns the large files that got their names, and what was deleted.
    fn judge_catalog(&self, files: &[RelPath]) -> Result<(u64, u64), String> {
        let tree: Arc<dyn Tree> = Arc::clone(&self.target) as _;
        let store = Store::new(tree, path(CATALOG), WorkerId(0));
        let records = simulate(&self.clock, async {
            let mut records = Vec::new();
            for segment in store.segments(None).await? {
                for block in store.segment(segment).await? {
                    if let Block::Records(found) = block {
                        records.extend(found);
                    }
                }
            }
            Ok::<_, ropeway_fleet::error::Error>(records)
        });
        let (mut joined, mut deleted) = (0, 0);
        let mut hashes = BTreeMap::new();
        for record in records.map_err(|error| error.to_string())? {
            joined += u64::from(matches!(record.state, FileState::Joined { .. }));
            deleted += u64::from(matches!(record.state, FileState::Deleted));
            if matches!(record.state, FileState::Copied { .. } | FileState::Joined { .. })
                && let Some(hash) = record.hash
                && hashes.insert((record.path.clone(), hash), ()).is_some()
            {
                return Err(format!("{} was committed twice in one version", record.path));
            }
        }
        for file in files {
            let linked = simulate(&self.clock, self.source.metadata(file)).is_ok_and(|found| found.links > 1);
            let content = self.target.content(&path("t").join_path(file));
            let content = content.map_err(|error| error.to_string())?;
            let hash = HashAlgorithm::Blake3.hash(&content);
            if !linked && !hashes.contains_key(&(file.clone(), hash)) {
                return Err(format!("the catalog does not know the content of {file}"));
            }
        }
        Ok((joined, deleted))
    }

    /// Folders have the times of the source, and nothing of the fleet is left among them.
    fn judge_folders(&self) -> Result<(), String> {
        let mut folders = vec![RelPath::root()];
        while let Some(folder) = folders.pop() {
            let copy = path("t").join_path(&folder);
            let found = |tree: &MemoryTree, path: &RelPath| {
                simulate(&self.clock, tree.metadata(path)).map_err(|error| error.to_string())
            };
            let (of_source, of_target) = (found(&self.source, &folder)?, found(&self.target, &copy)?);
            if of_source.mode != of_target.mode {
                return Err(format!("the permissions of the folder {copy} differ"));
            }
            let mut names = simulate(&self.clock, self.source.names_with_prefix(&folder, b"")).unwrap();
            let mut copies = simulate(&self.clock, self.target.names_with_prefix(&copy, b"")).unwrap();
            names.sort_unstable();
            copies.sort_unstable();
            if names != copies {
                return Err(format!("{copy} has {copies:?}, and the source {names:?}"));
            }
            for name in names {
                let inside = folder.join(&name);
                if found(&self.source, &inside)?.is_dir() {
                    folders.push(inside);
                }
            }
        }
        Ok(())
    }

    async fn names(&self, folder: &str) -> Vec<Name> {
        self.target.names_with_prefix(&path(folder), b"").await.unwrap()
    }
}
