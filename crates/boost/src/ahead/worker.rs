//! The threads that carry predictions out.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropeway_cache::predict::{Block, Moment, Program};
use ropeway_vfs::store::{Access, NodeOpen};
use ropeway_vfs::{FileId, RelPath, caller, patience};

use super::{Ahead, Job, Waiting, add};
use crate::boost::Shared;
use crate::node::BoostNode;
use crate::ranges::BLOCK;
use crate::store::StoreShared;

/// Fetches at the same time. A guess: more than a line of 75 ms needs for a fifth of 100 MB/s.
const THREADS: usize = 4;
/// Blocks of one fetch, at most: 1 MiB.
const RUN_MAX: u64 = 16;
/// First blocks of a file that is expected next.
const FIRST_BLOCKS: u64 = 4;
/// Folders above a file that are listed: the attributes in them are then known as long as a lease on
/// the folder says so. A guess.
const ABOVE_MAX: usize = 3;
/// Age from which on a job is too late.
const TOO_OLD: Duration = Duration::from_secs(5);
/// Time between two looks for room on the line.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a file stays open for the next job.
const KEPT_OPEN: Duration = Duration::from_secs(1);
/// Time between two looks at the calendar, and the pause after which a user has come back.
const CALENDAR: Duration = Duration::from_secs(300);
const AWAY: Duration = Duration::from_secs(900);
/// Files prefetched because of the time of day, at most.
const DUE_MAX: usize = 200;

/// Starts the threads. They end with the session.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    for _ in 0..THREADS {
        let weak = Arc::downgrade(shared);
        let thread = std::thread::Builder::new().name("boost-ahead".into());
        thread.spawn(move || run(&weak))?;
    }
    let weak = Arc::downgrade(shared);
    let thread = std::thread::Builder::new().name("boost-calendar".into());
    thread.spawn(move || watch_calendar(&weak)).map(drop)
}

/// Returns the local time.
pub(crate) fn moment() -> Moment {
    let now = jiff::Zoned::now();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let local = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    let local = local.saturating_add(i64::from(now.offset().seconds()));
    Moment::from_seconds(u64::try_from(local).unwrap_or(0))
}

/// Returns the program that opens a file: its name tells sequences apart. A server does not know it.
pub(crate) fn program() -> Program {
    let Some(pid) = caller::process() else {
        return Program { name: 0, pid: 0 };
    };
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    Program {
        name: program_name(name.strip_suffix(b"\n").unwrap_or(&name)),
        pid,
    }
}

/// Returns what a program is known by.
pub(super) fn program_name(name: &[u8]) -> u64 {
    // As in /proc/PID/comm, with the end of the line.
    let mut line = name.to_vec();
    if !line.is_empty() {
        line.push(b'\n');
    }
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &line);
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(first)
}

/// Prefetches what is usual at this time: now and then, and when a user comes back.
fn watch_calendar(shared: &Weak<Shared>) {
    let (mut last_look, mut was_away) = (None, false);
    while let Some(shared) = shared.upgrade() {
        if shared.is_closed() {
            return;
        }
        let Some(ahead) = &shared.ahead else { return };
        let (now, is_away) = (shared.now(), shared.idle_for() >= AWAY);
        let is_due = last_look.is_some_and(|last| now.saturating_sub(last) >= CALENDAR);
        // The session begins a moment before its first store, and has nothing to prefetch until then.
        if ahead.has_joined() || is_due || (was_away && !is_away) {
            last_look = Some(now);
            ahead.due(moment(), now, DUE_MAX);
        }
        was_away = is_away;
        shared.wait(if last_look.is_none() {
            PAUSE
        } else {
            Duration::from_secs(1)
        });
    }
}

/// A file that stays open for the next job.
struct Opened {
    number: u32,
    node: BoostNode,
    at: Duration,
}

fn run(shared: &Weak<Shared>) {
    let mut open: Option<Opened> = None;
    while let Some(shared) = shared.upgrade() {
        if shared.is_closed() {
            return;
        }
        let Some(ahead) = &shared.ahead else { return };
        let now = shared.now();
        open = open.filter(|open| now.saturating_sub(open.at) < KEPT_OPEN);
        let Some(waiting) = ahead.next_job() else { continue };
        // The cache is off, or a program was faster.
        if !shared.is_on() || shared.now().saturating_sub(waiting.since) > TOO_OLD {
            ahead.gave_up(waiting.job);
            continue;
        }
        // Nothing here may wait for a source that is lost.
        patience::impatiently(|| match waiting.job {
            Job::Block(block) => ahead.run_block(&shared, &mut open, block, waiting),
            Job::File(number) => ahead.run_file(&shared, &mut open, number),
        });
    }
}

impl Ahead {
    fn next_job(&self) -> Option<Waiting> {
        let mut jobs = self.jobs.lock();
        if jobs.is_empty() {
            self.arrived.wait_for(&mut jobs, KEPT_OPEN);
        }
        jobs.pop_front()
    }

    /// Takes the jobs that continue a block, so that one request brings all.
    fn take_run(&self, block: Block) -> Vec<Block> {
        let mut run = vec![block];
        let mut jobs = self.jobs.lock();
        while (run.len() as u64) < RUN_MAX {
            let next = block.number() + run.len() as u64;
            let is_next = |waiting: &Waiting| match waiting.job {
                Job::Block(other) => other.number() == next && other.file() == block.file(),
                Job::File(_) => false,
            };
            let Some(place) = jobs.iter().position(is_next) else {
                break;
            };
            jobs.remove(place);
            run.push(Block::from_number(next));
        }
        run
    }

    fn run_block(&self, shared: &Shared, open: &mut Option<Opened>, block: Block, waiting: Waiting) {
        let run = self.take_run(block);
        let blocks = block.index()..block.index() + run.len() as u64;
        let fetched = self
            .node(shared, open, block.file())
            .filter(|_| self.has_room(shared, run.len() as u64 * BLOCK, waiting.since))
            .and_then(|node| node.prefetch(blocks));
        match fetched {
            Some(count) => {
                let mut state = self.state.lock();
                state.lag.fetched(shared.now().saturating_sub(waiting.since));
                drop(state);
                self.count(shared, count);
            }
            None => run.into_iter().for_each(|block| self.gave_up(Job::Block(block))),
        }
    }

    fn run_file(&self, shared: &Shared, open: &mut Option<Opened>, number: u32) {
        self.list_above(shared, number);
        let fetched = self
            .node(shared, open, number)
            .filter(|_| self.has_room(shared, FIRST_BLOCKS * BLOCK, shared.now()))
            .and_then(|node| node.prefetch(0..FIRST_BLOCKS));
        match fetched {
            Some(count) => {
                add(&self.figures.files_fetched, 1);
                self.count(shared, count);
            }
            None => self.state.lock().recent.failed(&number),
        }
    }

    /// Lists the folders above a file, for their own attributes and that of the file.
    fn list_above(&self, shared: &Shared, number: u32) {
        let Some((store, mut path, _)) = self.place_of(number) else {
            return;
        };
        for _ in 0..ABOVE_MAX {
            let Some(dir) = path.parent() else { return };
            let folder = (store.share, dir.clone());
            let is_due = !store.is_lost() && self.state.lock().listed.begin(folder, shared.now());
            if is_due {
                store.inner.list_soon(&dir);
            }
            path = dir;
        }
    }

    fn count(&self, shared: &Shared, (blocks, bytes): (u64, u64)) {
        add(&self.figures.fetched, blocks);
        add(&self.figures.bytes, bytes);
        self.state.lock().line.prefetched(bytes, shared.now());
    }

    /// Waits for room on the line. `false`: the session ends, or it took too long.
    fn has_room(&self, shared: &Shared, bytes: u64, since: Duration) -> bool {
        while !self.state.lock().line.take(bytes, shared.now()) {
            if shared.is_closed() || shared.now().saturating_sub(since) > TOO_OLD {
                return false;
            }
            shared.wait(PAUSE);
        }
        true
    }

    /// Returns a node of a file, open for reading.
    fn node<'a>(&self, shared: &Shared, open: &'a mut Option<Opened>, number: u32) -> Option<&'a BoostNode> {
        if open.as_ref().is_none_or(|open| open.number != number) {
            *open = None;
            let (store, path, file) = self.place_of(number)?;
            let node = store.open_ahead(&path, file)?;
            *open = Some(Opened {
                number,
                node,
                at: shared.now(),
            });
        }
        open.as_ref().map(|open| &open.node)
    }

    pub(crate) fn place_of(&self, number: u32) -> Option<(Arc<StoreShared>, RelPath, FileId)> {
        let state = self.state.lock();
        let known = state.table.get(number)?;
        let id = FileId {
            volume: known.key.volume,
            index: u64::try_from(known.key.file).ok()?,
        };
        let store = state.stores.get(&known.key.share)?.upgrade()?;
        Some((store, known.path.clone(), id))
    }
}

impl StoreShared {
    /// Opens a file to prefetch it, unless another has its name by now. The source is asked for what
    /// it must be asked for, no more.
    pub(crate) fn open_ahead(self: &Arc<Self>, path: &RelPath, id: FileId) -> Option<BoostNode> {
        if self.is_lost() {
            return None;
        }
        let question = self.question();
        let known = || self.inner.open_known(path).filter(|opened| opened.stat.id == id);
        self.inner.work_in_background();
        let opened = match known() {
            Some(opened) => opened,
            None => {
                // The attributes come first: with them most stores need no open.
                let stat = self.inner.look(path).ok().filter(|stat| stat.id == id)?;
                known()
                    .or_else(|| self.inner.open_itself(path, Access::Read).ok())
                    .filter(|opened| opened.stat.id == stat.id)?
            }
        };
        let how = NodeOpen {
            access: Access::Read,
            link_itself: true,
            ..NodeOpen::default()
        };
        Some(BoostNode::opened(self, path, &how, question, &opened))
    }
}
