//! Prefetching: what programs will read next is brought into the cache before they ask for it.
//!
//! ```text
//! reads, opens ──> Ahead ──> predictor (ropeway_cache::predict, pure)
//!                    │            │ likely blocks, next files
//!                    │ table      v
//!                    │ (numbers)  jobs ──> worker threads ──> source ──> cache
//!                    └ line: how much of the line the jobs may use
//! ```
//!
//! Jobs wait for room on the line (`line`), are bounded in number, and are dropped when the source
//! is lost or the session ends. A block that a job fetches is kept under the rules of all blocks
//! (`coherence`). What was learned is saved in the cache's folder (`saved`).

pub(crate) mod learn;
mod line;
mod recent;
mod saved;
mod shown;
mod table;
pub(crate) mod worker;
mod working;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ropeway_cache::predict::{Block, Found, Lag, Moment, Prediction, Program, Source, Superfetch, Use};
use ropeway_cache::{Cache, FileKey, Key, Version};
use ropeway_vfs::RelPath;

use self::line::Line;
use self::recent::Recent;
pub use self::shown::{NextStatus, PredictStatus, SourceStatus};
use self::table::{Table, Taken};
use crate::hogs::{Brought, Worked};
use crate::store::StoreShared;

/// Jobs that wait, at most. A guess: what a line brings in some seconds.
const JOBS_MAX: usize = 256;
/// Files remembered, at most, and at least.
const FILES_MAX: usize = 65_536;
const FILES_LEAST: usize = 1024;
/// Blocks of this session's reads that are remembered, at most: 4 GiB, of which 3 MiB of memory are
/// paid.
const WORKED_MAX: usize = 65_536;
/// Names of programs remembered, so that a file can be forgotten in their sequences. A guess.
const NAMES_MAX: usize = 64;
/// Files ahead of the one that was opened, along the likeliest sequence. A guess: a program that
/// opens ten a second over a line of 300 ms.
const CHAIN_MAX: usize = 4;
/// Likelihood of the file at the end of such a sequence, at least.
const CHAIN_LIKELY: f32 = 0.35;
/// Files that were prefetched a moment ago, and for how long they are not prefetched again; for how
/// long if that failed.
const RECENT_MAX: usize = 256;
const RECENT: Duration = Duration::from_secs(10);
const FAILED: Duration = Duration::from_secs(1);
/// The same for the very next file: a source without leases tells attributes for a second.
const RECENT_NEXT: Duration = Duration::from_millis(500);
/// Folders whose listing was asked for, and for how long it is not asked for again.
const LISTED_MAX: usize = 64;
const LISTED: Duration = Duration::from_secs(60);

/// A read of blocks of one file that a program waits for.
pub(crate) struct Asked<'a> {
    pub(crate) file: FileKey,
    pub(crate) path: &'a RelPath,
    pub(crate) version: Version,
    /// The first block, and whether each was in the cache.
    pub(crate) first: u64,
    pub(crate) found: &'a [bool],
}

/// What a worker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// Brings a block.
    Block(Block),
    /// Brings the attributes and the first blocks of a file.
    File(u32),
}

/// A job that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    job: Job,
    since: Duration,
}

/// Predictions, and the work that follows from them.
pub(crate) struct Ahead {
    cache: Cache,
    blocks: usize,
    state: Mutex<State>,
    jobs: Mutex<VecDeque<Waiting>>,
    arrived: Condvar,
    figures: Figures,
}

struct State {
    learned: Superfetch,
    table: Table,
    /// The stores on this cache, by their share.
    stores: HashMap<[u8; 16], Weak<StoreShared>>,
    lag: Lag,
    line: Line,
    names: Vec<u64>,
    recent: Recent<u32>,
    /// A store has joined since the last look at the calendar.
    has_joined: bool,
    /// Folders whose listing was asked for.
    listed: Recent<([u8; 16], RelPath)>,
    /// The last predictions, for people.
    shown: VecDeque<(Job, f32, &'static str)>,
    scratch: Vec<Prediction>,
    /// What was read in this session, and what of it was brought back into the kernel's memory.
    worked: Worked,
    brought: Brought,
    is_changed: bool,
}

/// Counters of blocks, by source of the prediction.
#[derive(Default)]
struct Figures {
    predicted: [AtomicU64; Source::ALL.len()],
    used: [AtomicU64; Source::ALL.len()],
    late: [AtomicU64; Source::ALL.len()],
    files_predicted: AtomicU64,
    files_fetched: AtomicU64,
    requests: AtomicU64,
    fetched: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Ahead {
    /// Makes predictions for a cache of so many blocks, with what was saved of earlier ones. `line`:
    /// bytes per second that the source's line carries, if known.
    pub(crate) fn new(cache: &Cache, blocks: usize, saved: Option<&[u8]>, line: Option<f64>) -> Self {
        let blocks = blocks.max(1);
        let files = blocks.clamp(FILES_LEAST, FILES_MAX);
        let (learned, table, names) = saved
            .and_then(|bytes| match saved::decode(bytes, blocks, files) {
                Ok(learned) => Some(learned),
                Err(error) => {
                    tracing::info!(%error, "what was learned is not used");
                    None
                }
            })
            .unwrap_or_else(|| (Superfetch::new(blocks), Table::new(files), Vec::new()));
        Self {
            cache: cache.clone(),
            blocks,
            state: Mutex::new(State {
                learned,
                table,
                stores: HashMap::new(),
                lag: Lag::default(),
                line: Line::new(Duration::ZERO, line),
                names,
                recent: Recent::new(RECENT_MAX, RECENT, FAILED),
                has_joined: false,
                listed: Recent::new(LISTED_MAX, LISTED, FAILED),
                shown: VecDeque::new(),
                scratch: Vec::new(),
                worked: Worked::new(blocks.min(WORKED_MAX)),
                brought: Brought::default(),
                is_changed: false,
            }),
            jobs: Mutex::default(),
            arrived: Condvar::new(),
            figures: Figures::default(),
        }
    }

    /// Adds a store whose files may be prefetched.
    pub(crate) fn join(&self, share: [u8; 16], store: &Arc<StoreShared>) {
        let mut state = self.state.lock();
        state.stores.insert(share, Arc::downgrade(store));
        state.has_joined = true;
    }

    /// Whether a store has joined since the last call: its files may be due at this time.
    pub(crate) fn has_joined(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_joined)
    }

    /// Takes the opening of a file by a program. `at` is the local time.
    pub(crate) fn opened(&self, file: FileKey, path: &RelPath, program: Program, at: Moment, now: Duration) {
        let mut state = self.state.lock();
        let number = state.number(file, path);
        state.is_changed = true;
        state.worked.opened(number, now);
        state.brought.opened(number);
        if !state.names.contains(&program.name) {
            if state.names.len() == NAMES_MAX {
                state.names.remove(0);
            }
            state.names.push(program.name);
        }
        state.learned.files.opened(program, number).for_each(drop);
        state.learned.calendar.used(number, at);
        let next = state.chain(program, number, now);
        drop(state);
        add(&self.figures.files_predicted, next.len() as u64);
        for number in next {
            self.push(Job::File(number), now);
        }
    }

    /// Prefetches what is usually used at this time.
    pub(crate) fn due(&self, at: Moment, now: Duration, most: usize) {
        let mut state = self.state.lock();
        let due = state.learned.calendar.due(at, most);
        let mut files = Vec::new();
        for due in due.into_iter().filter(|due| due.priority >= PRIORITY_LEAST) {
            if state.is_reachable(due.file) && state.recent.begin(due.file, now) {
                state.show(Job::File(due.file), due.likelihood, "time of day");
                files.push(due.file);
            }
        }
        drop(state);
        add(&self.figures.files_predicted, files.len() as u64);
        for number in files {
            self.push(Job::File(number), now);
        }
    }

    /// Takes a read that a program waits for, and plans what follows from it.
    pub(crate) fn asked(&self, asked: &Asked<'_>, now: Duration) {
        let mut state = self.state.lock();
        let number = state.number(asked.file, asked.path);
        state.is_changed = true;
        let mut planned = Vec::new();
        for (place, is_found) in asked.found.iter().enumerate() {
            let at = asked.first + place as u64;
            state.table.asked(number, at);
            if let Some(block) = Block::new(number, at) {
                state.worked.used(block, now);
                state.brought.asked(block);
                self.request(&mut state, block, *is_found, asked, now);
                let state = &mut *state;
                planned.append(&mut state.scratch);
            }
        }
        for prediction in planned.iter().rev() {
            state.show(
                Job::Block(prediction.block),
                prediction.likelihood,
                prediction.source.name(),
            );
        }
        drop(state);
        add(&self.figures.requests, asked.found.len() as u64);
        for prediction in planned {
            add(&self.figures.predicted[prediction.source as usize], 1);
            self.push(Job::Block(prediction.block), now);
        }
    }

    /// Takes one block of a read. Leaves what is to be fetched in `scratch`.
    fn request(&self, state: &mut State, block: Block, is_found: bool, asked: &Asked<'_>, now: Duration) {
        state.lag.request(now);
        let lag = state.lag.requests();
        state.learned.blocks.set_lag(lag);
        state.scratch.clear();
        let (table, stores, cache) = (&state.table, &state.stores, &self.cache);
        let key_of = |block: Block| {
            let file = table.get(block.file())?.key;
            let version = match file == asked.file {
                true => asked.version,
                false => stores.get(&file.share)?.upgrade()?.known_version(&file)?,
            };
            Some(Key {
                file,
                version,
                block: block.index(),
            })
        };
        // One behind the end of its file needs no fetch, and neither does one that nobody may keep.
        let is_cached = |block: Block| {
            key_of(block).is_none_or(|key| {
                let is_behind = key.block * crate::ranges::BLOCK >= key.version.size;
                is_behind || cache.contains(&key)
            })
        };
        let found = if is_found { Found::Hit } else { Found::Miss };
        let scratch = &mut state.scratch;
        let used = state.learned.blocks.request(block, found, is_cached, scratch);
        for cached in scratch.extract_if(.., |prediction| prediction.is_cached) {
            if let Some(key) = key_of(cached.block) {
                cache.expect(&key);
            }
        }
        match used {
            Use::Predicted(source) => add(&self.figures.used[source as usize], 1),
            Use::Late(source) => add(&self.figures.late[source as usize], 1),
            Use::Unpredicted => {}
        }
    }

    /// Notes bytes that the source delivered to a program, and how long that took.
    pub(crate) fn demanded(&self, bytes: u64, took: Duration, now: Duration) {
        self.state.lock().line.demanded(bytes, took, now);
    }

    fn push(&self, job: Job, now: Duration) {
        let mut jobs = self.jobs.lock();
        if jobs.len() >= JOBS_MAX {
            drop(jobs);
            self.gave_up(job);
            return;
        }
        jobs.push_back(Waiting { job, since: now });
        drop(jobs);
        self.arrived.notify_one();
    }

    /// Notes that a job was not carried out.
    fn gave_up(&self, job: Job) {
        add(&self.figures.dropped, 1);
        let mut state = self.state.lock();
        match job {
            Job::Block(block) => state.learned.blocks.evicted(block),
            Job::File(number) => state.recent.forget(&number),
        }
    }

    /// Wakes the workers, so that they see the end of the session.
    pub(crate) fn wake(&self) {
        self.arrived.notify_all();
    }

    /// Returns what was learned as bytes, if anything was since the last call.
    pub(crate) fn save(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.is_changed) {
            return None;
        }
        Some(saved::encode(
            &state.learned,
            self.blocks,
            &state.table,
            &state.names,
        ))
    }
}

/// Priority from which on a file is prefetched because of the time of day: a habit.
const PRIORITY_LEAST: u8 = 4;

impl State {
    /// Returns the number of a file; forgets another that had it.
    fn number(&mut self, file: FileKey, path: &RelPath) -> u32 {
        let (number, taken) = self.table.number(file, path);
        if let Some(Taken { number, blocks }) = taken {
            self.learned.forget_file(number, blocks, &self.names);
        }
        number
    }

    /// Returns the files that will probably be opened after one, and were not prefetched lately.
    fn chain(&mut self, program: Program, from: u32, now: Duration) -> Vec<u32> {
        let (mut at, mut likelihood) = (from, 1.0);
        let mut files = Vec::new();
        for step in 0..CHAIN_MAX {
            let pause = if step == 0 { RECENT_NEXT } else { RECENT };
            let next: Vec<(u32, f32)> = self.learned.files.after(program, at).collect();
            for (file, share) in &next {
                if likelihood * share >= CHAIN_LIKELY
                    && *file != from
                    && self.recent.begin_after(*file, pause, now)
                {
                    self.show(Job::File(*file), likelihood * share, "next file");
                    files.push(*file);
                }
            }
            let Some((file, share)) = next.first().copied() else {
                break;
            };
            (at, likelihood) = (file, likelihood * share);
        }
        files
    }

    /// Whether the store of a file is there.
    fn is_reachable(&self, file: u32) -> bool {
        let store = self
            .table
            .get(file)
            .and_then(|known| self.stores.get(&known.key.share));
        store.is_some_and(|store| store.strong_count() > 0)
    }
}
