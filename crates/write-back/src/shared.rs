//! What the nodes of a store and its workers share: how writes get into the journal.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};
use ropeway_vfs::external::{ContentLease, Observer};
use ropeway_vfs::store::{Node, NodeChange, NodeStat, Store};
use ropeway_vfs::{Error, ErrorKind, Kind, Op, RelPath, Result, Timestamp};

use crate::backlog::Backlog;
use crate::drain::{AHEAD_FIRST, Ended};
use crate::files::{Changes, File, Files, Known, Pending, State, version_of};
use crate::log::{FileLog, LogSpace, snapshot_of};
use crate::queue::Queue;
use crate::record::{DATA_MAX, Record};
use crate::status::Figures;
use crate::under_way::UnderWay;

/// Longest time that a near client waits for room in the journal, or for a backlog that must be
/// gone before its request: clients give up after about a minute.
const WAIT_MAX: Duration = Duration::from_secs(50);
/// Age from which on known attributes are asked for again before a backlog begins.
const KNOWN_MAX: Duration = Duration::from_secs(1);
/// Longest time to wait for them: longer, and the line is probably cut.
const ASK_MAX: Duration = Duration::from_secs(2);
/// Threads that ask at the same time, at most. More begin with what is known.
const ASKING_MAX: usize = 16;
/// Highest offset of a file ([MS-FSA] 2.1.5.2): offsets are signed.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Open far files kept for the workers, at most; others are opened when it is their turn. A guess:
/// a far server has some thousands for all its clients.
const KEPT_OPEN_MAX: usize = 512;

/// How far behind the far clock must seem to be so that it counts. A guess: longer than a far
/// FLUSH.
const CLOCK_BEHIND_NS: i128 = 60_000_000_000;

/// How a journal is used.
#[derive(Clone, Debug)]
pub struct WriteBackOptions {
    /// Whether new writes go into the journal. Otherwise only what it holds is brought to the far
    /// store.
    pub accepts: bool,
    /// Most bytes of the near disk that the journal takes.
    pub bytes_max: u64,
    /// Time between the beginning of a file's backlog and its first round: a file that is removed
    /// or written over soon is not sent.
    pub delay: Duration,
    /// Bytes of a round, after which the journal has room again. Long enough that the round trips
    /// between rounds do not count.
    pub round_bytes: u64,
    /// Threads that bring the backlog to the far store; each works on one file.
    pub workers: usize,
    /// What the far store is called in the status.
    pub far: String,
}

impl Default for WriteBackOptions {
    fn default() -> Self {
        Self {
            accepts: true,
            bytes_max: 4 << 30,
            delay: Duration::from_millis(300),
            round_bytes: 64 << 20,
            workers: 4,
            far: String::new(),
        }
    }
}

/// A change that goes into the journal.
pub(crate) enum Change<'a> {
    Data(u64, &'a [u8]),
    Length(u64),
    Attributes(&'a NodeChange),
}

/// What all nodes and workers of a store share.
pub(crate) struct Shared {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) space: Arc<LogSpace>,
    pub(crate) options: WriteBackOptions,
    pub(crate) files: Files,
    pub(crate) changes: Changes,
    pub(crate) queue: Queue,
    pub(crate) under_way: UnderWay,
    pub(crate) figures: Figures,
    pub(crate) observer: Mutex<Option<Arc<dyn Observer>>>,
    /// Files with a backlog, conflicts included.
    pub(crate) backlogs: AtomicUsize,
    /// Number of the next log.
    pub(crate) next_log: AtomicU64,
    pub(crate) kept_open: AtomicUsize,
    /// Bytes that a worker has on their way, at most.
    pub(crate) ahead: AtomicU64,
    /// What the far clock is ahead of what the store says.
    far_skew_ns: AtomicI64,
    asking: Arc<AtomicUsize>,
    room: Mutex<()>,
    has_room: Condvar,
    /// Whether the journal fails, so that writes go to the far store directly.
    is_failing: AtomicBool,
    /// Whether changes went to the far store directly since the last flush of all.
    is_through_dirty: AtomicBool,
}

impl Shared {
    pub(crate) fn new(inner: Arc<dyn Store>, space: Arc<LogSpace>, options: WriteBackOptions) -> Self {
        Self {
            inner,
            space,
            options,
            files: Files::default(),
            changes: Changes::default(),
            queue: Queue::default(),
            under_way: UnderWay::default(),
            figures: Figures::default(),
            observer: Mutex::default(),
            backlogs: AtomicUsize::new(0),
            next_log: AtomicU64::new(1),
            kept_open: AtomicUsize::new(0),
            ahead: AtomicU64::new(AHEAD_FIRST),
            far_skew_ns: AtomicI64::new(0),
            asking: Arc::default(),
            room: Mutex::new(()),
            has_room: Condvar::new(),
            is_failing: AtomicBool::new(false),
            is_through_dirty: AtomicBool::new(false),
        }
    }

    /// Runs something again and again on a thread of its own, as long as this lives.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn every(
        self: &Arc<Self>,
        interval: Duration,
        name: &str,
        mut run: impl FnMut(&Self) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            while let Some(shared) = shared.upgrade() {
                run(&shared);
                drop(shared);
                std::thread::sleep(interval);
            }
        })?;
        Ok(())
    }

    /// Returns the time by the clock that stamps the far files, as far as that is known.
    pub(crate) fn far_now(&self) -> Timestamp {
        let skew = i128::from(self.far_skew_ns.load(Ordering::Relaxed));
        Timestamp(self.far_now_raw().0 + skew)
    }

    fn far_now_raw(&self) -> Timestamp {
        match self.inner.versioning() {
            Some(versioning) => versioning.now,
            None => now(),
        }
    }

    /// Sets the far clock by the change time of a file that was changed a moment ago: the store may
    /// have asked for the time days before.
    pub(crate) fn calibrate(&self, changed: Timestamp) {
        let skew = changed.0 - self.far_now_raw().0;
        let is_ahead = skew > i128::from(self.far_skew_ns.load(Ordering::Relaxed));
        // A little behind is the time that the far FLUSH took.
        if is_ahead || skew < -CLOCK_BEHIND_NS {
            let skew = i64::try_from(skew).unwrap_or(0);
            self.far_skew_ns.store(skew, Ordering::Relaxed);
        }
    }

    /// Whether any file has a backlog.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlogs.load(Ordering::Acquire) > 0
    }

    /// Carries out a change: into the journal, or to the far file where that cannot be.
    pub(crate) fn change(
        self: &Arc<Self>,
        file: &Arc<File>,
        node: &Arc<dyn Node>,
        change: &Change<'_>,
    ) -> Result<()> {
        if let Change::Data(_, []) = change {
            return Ok(());
        }
        if self.journal(file, node, change)? {
            return Ok(());
        }
        self.exclusively(file, Some(node), || {
            file.is_through_dirty.store(true, Ordering::Release);
            self.set_through_dirty();
            match change {
                Change::Data(offset, data) => node.write_at(data, *offset),
                Change::Length(length) => node.set_len(*length),
                Change::Attributes(change) => node.change(change),
            }
        })
    }

    /// Puts a change into the journal. Returns `false` if it must go to the far file.
    fn journal(
        self: &Arc<Self>,
        file: &Arc<File>,
        node: &Arc<dyn Node>,
        change: &Change<'_>,
    ) -> Result<bool> {
        let end = match change {
            Change::Data(offset, data) => offset.checked_add(data.len() as u64),
            Change::Length(length) => Some(*length),
            Change::Attributes(_) => None,
        };
        let op = if matches!(change, Change::Length(_)) {
            Op::SetLength
        } else {
            Op::Write
        };
        if !matches!(change, Change::Attributes(_)) && end.is_none_or(|end| end > OFFSET_MAX) {
            return Err(Error::new(op, &file.path(), ErrorKind::FileTooLarge));
        }
        let is_new = !file.has_backlog();
        if !self.options.accepts || (is_new && matches!(change, Change::Attributes(_))) {
            return Ok(false);
        }
        if !self.make_room(file)? {
            return Ok(false);
        }
        let _gate = file.gate.read();
        let count = self.changes.count();
        let far = match is_new {
            true => match self.far_stat(file, node)? {
                Some(far) => Some(far),
                None => return Ok(false),
            },
            false => None,
        };
        self.append(
            file,
            node,
            change,
            far.filter(|_| self.changes.is_current(file, count)),
        )
    }

    /// Appends a change to a file's log. Returns `false` if it must go to the far file.
    fn append(
        self: &Arc<Self>,
        file: &Arc<File>,
        node: &Arc<dyn Node>,
        change: &Change<'_>,
        far: Option<NodeStat>,
    ) -> Result<bool> {
        let at = self.far_now();
        let mut state = file.state.lock();
        let state = &mut *state;
        if state.is_lost {
            return Err(Error::new(Op::Write, &state.path, ErrorKind::Changed));
        }
        if state.is_removed {
            return Ok(false);
        }
        let mut is_new = false;
        if state.pending.is_none() {
            // Without attributes a backlog ended a moment ago, or the far file was changed.
            let Some(far) = far else { return Ok(false) };
            match self.begin(state, far) {
                Ok(()) => is_new = true,
                Err(error) => return Ok(self.fails(&error)),
            }
        }
        let appended = self.append_records(state, change, at);
        if is_new {
            self.keep_open(file, node);
        }
        self.queue_soon(file, state);
        match appended {
            Ok(()) => {
                self.is_failing.store(false, Ordering::Release);
                self.figures.works();
                Ok(true)
            }
            Err(error) => Ok(self.fails(&error)),
        }
    }

    fn append_records(&self, state: &mut State, change: &Change<'_>, at: Timestamp) -> std::io::Result<()> {
        let path = state.path.clone();
        let Some(pending) = &mut state.pending else {
            return Ok(());
        };
        let mut put = |record: &Record<'_>| {
            let Pending {
                log,
                backlog,
                base,
                draining,
                ..
            } = pending;
            let place = log.append(record, || snapshot_of(backlog, &path, *base, *draining))?;
            match record {
                Record::Data { offset, at, bytes } => {
                    backlog.write(*offset, bytes.len() as u64, *at, place);
                }
                Record::Length { length, at } => backlog.set_len(*length, *at),
                Record::Change(change) => backlog.set(change),
                _ => {}
            }
            Ok(())
        };
        match change {
            Change::Data(offset, data) => {
                let mut offset = *offset;
                for bytes in data.chunks(DATA_MAX) {
                    put(&Record::Data { offset, at, bytes })?;
                    offset += bytes.len() as u64;
                }
                Ok(())
            }
            Change::Length(length) => put(&Record::Length { length: *length, at }),
            Change::Attributes(change) => put(&Record::Change(**change)),
        }
    }

    /// Begins a backlog.
    fn begin(&self, state: &mut State, far: NodeStat) -> std::io::Result<()> {
        let backlog = Backlog::new(far.size);
        let base = version_of(&far);
        let snapshot = snapshot_of(&backlog, &state.path, base, None);
        let number = self.next_log.fetch_add(1, Ordering::AcqRel);
        state.pending = Some(Pending {
            log: FileLog::create(&self.space, number, snapshot)?,
            backlog,
            base,
            draining: None,
            stat: Some(far),
            since: now(),
            is_removing: false,
            conflict: None,
        });
        self.backlogs.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Keeps the far file open for the workers.
    fn keep_open(&self, file: &Arc<File>, node: &Arc<dyn Node>) {
        if self.kept_open.load(Ordering::Relaxed) < KEPT_OPEN_MAX
            && let Some(mut drainer) = file.drain.try_lock()
            && drainer.node.is_none()
        {
            self.kept_open.fetch_add(1, Ordering::Relaxed);
            drainer.node = Some(Arc::clone(node));
            drainer.lease = node.lease();
        }
    }

    /// Notes that the near disk fails; returns `false`, as the change must go to the far file.
    pub(crate) fn fails(&self, error: &std::io::Error) -> bool {
        self.figures.fails(error);
        if !self.is_failing.swap(true, Ordering::AcqRel) {
            let far = &self.options.far;
            tracing::error!(far, %error, "the write-back journal cannot be written: writes go to the far server directly");
        }
        false
    }

    /// Returns the far file's attributes as a backlog begins with them; `None` if versions cannot
    /// be told apart.
    fn far_stat(&self, file: &Arc<File>, node: &Arc<dyn Node>) -> Result<Option<NodeStat>> {
        if self.inner.versioning().is_none() {
            return Ok(None);
        }
        let known = file.state.lock().known;
        let count = self.changes.count();
        let is_current = known.is_some_and(|known| self.changes.is_current(file, known.count));
        let is_fresh = is_current && known.is_some_and(|known| known.at.elapsed() < KNOWN_MAX);
        let is_cut_off = matches!(node.lease(), ContentLease::Suspended { .. });
        // What is still on its way there would look like another's change when it arrives.
        let is_dirty = file.is_through_dirty.load(Ordering::Acquire);
        node.write_out()?;
        // What was asked for before that is no version to begin with.
        let usable = known.filter(|_| is_current && !is_dirty);
        let stat = match usable {
            Some(known) if is_fresh || is_cut_off => known.stat,
            Some(known) => self.ask(node).unwrap_or(known.stat),
            None if is_cut_off && known.is_some() => return Ok(None),
            None if known.is_some() => match self.ask(node) {
                Some(stat) => stat,
                None => return Ok(None),
            },
            None => node.stat_now()?,
        };
        // A file without a name is nothing that a later process could find.
        let has_name = stat.kind == Kind::File && stat.links > 0;
        let is_fit = has_name && stat.changed.is_known() && stat.id == file.id;
        if !is_fit {
            return Ok(None);
        }
        if !is_fresh || is_dirty {
            let at = Instant::now();
            file.state.lock().known = Some(Known { stat, at, count });
        }
        Ok(Some(stat))
    }

    /// Asks for the attributes, and waits for a short time only.
    fn ask(&self, node: &Arc<dyn Node>) -> Option<NodeStat> {
        if self.asking.fetch_add(1, Ordering::AcqRel) >= ASKING_MAX {
            self.asking.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let (done, answer) = mpsc::channel();
        let (node, asking) = (Arc::clone(node), Arc::clone(&self.asking));
        let thread = std::thread::Builder::new().name("write-back-ask".into());
        let asked = thread.spawn(move || {
            // Nobody listens any more if it took too long.
            let _ = done.send(node.stat_now());
            asking.fetch_sub(1, Ordering::AcqRel);
        });
        if asked.is_err() {
            self.asking.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        answer.recv_timeout(ASK_MAX).ok()?.ok()
    }

    /// Waits until the journal has room. Returns `false` if it has none and nothing is drained.
    fn make_room(&self, file: &Arc<File>) -> Result<bool> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut room = self.room.lock();
        while self.space.used.load(Ordering::Acquire) >= self.options.bytes_max {
            if self.options.workers == 0 {
                return Ok(false);
            }
            self.queue.hurry();
            if self.has_room.wait_until(&mut room, deadline).timed_out() {
                return Err(Error::new(Op::Write, &file.path(), ErrorKind::TimedOut));
            }
        }
        Ok(true)
    }

    /// Notes that the journal may have room again.
    pub(crate) fn made_room(&self) {
        let _room = self.room.lock();
        self.has_room.notify_all();
    }

    /// Queues a file for its next round.
    pub(crate) fn queue_soon(&self, file: &Arc<File>, state: &mut State) {
        if !state.is_queued {
            state.is_queued = true;
            self.queue.push(file, self.options.delay);
        }
    }

    /// Runs what must find no backlog of a file, and keeps new ones from beginning meanwhile.
    /// `node` is an open far file to drain it into, if there is one.
    pub(crate) fn exclusively<T>(
        self: &Arc<Self>,
        file: &Arc<File>,
        node: Option<&Arc<dyn Node>>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _gate = file.gate.write();
        {
            let state = file.state.lock();
            if state.is_lost {
                return Err(Error::new(Op::Write, &state.path, ErrorKind::Changed));
            }
        }
        self.drain_all(file, node)?;
        self.changes.note(file);
        let result = run();
        self.changes.note(file);
        result
    }

    /// Brings the whole backlog of a file to the far file.
    pub(crate) fn drain_all(self: &Arc<Self>, file: &Arc<File>, node: Option<&Arc<dyn Node>>) -> Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            match self.round(file, node)? {
                Ended::Empty => return Ok(()),
                Ended::Conflict => {
                    return Err(Error::new(Op::Write, &file.path(), ErrorKind::Changed));
                }
                Ended::More if Instant::now() < deadline => {}
                Ended::More => {
                    return Err(Error::new(Op::Write, &file.path(), ErrorKind::TimedOut));
                }
            }
        }
    }

    /// Makes a file's backlog durable in the journal, and what went past it at the far server.
    pub(crate) fn sync(self: &Arc<Self>, file: &Arc<File>, node: &Arc<dyn Node>) -> Result<()> {
        let is_in_journal = {
            let mut state = file.state.lock();
            if state.is_lost {
                return Err(Error::new(Op::Sync, &state.path, ErrorKind::Changed));
            }
            match &mut state.pending {
                Some(pending) => pending.log.sync(pending.backlog.next).map(|()| true),
                None => Ok(false),
            }
        };
        match is_in_journal {
            Ok(true) if !file.is_through_dirty.load(Ordering::Acquire) => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                // The far server must keep it instead.
                self.fails(&error);
                let _gate = file.gate.write();
                self.drain_all(file, Some(node))?;
            }
        }
        // No write past the journal begins meanwhile: this flush would not cover it.
        let _gate = file.gate.read();
        if !file.is_through_dirty.load(Ordering::Acquire) {
            return node.sync();
        }
        self.changes.note(file);
        let synced = node.sync();
        self.changes.note(file);
        // Only now: until then the attributes are none that a backlog can begin with.
        if synced.is_ok() {
            file.is_through_dirty.store(false, Ordering::Release);
        }
        synced
    }

    pub(crate) fn set_through_dirty(&self) {
        self.is_through_dirty.store(true, Ordering::Release);
    }

    pub(crate) fn take_through_dirty(&self) -> bool {
        self.is_through_dirty.swap(false, Ordering::AcqRel)
    }

    /// Returns the file with this path, if it has a backlog, and its far attributes.
    pub(crate) fn pending_at(&self, path: &RelPath) -> Option<(Arc<File>, NodeStat)> {
        if !self.has_backlog() {
            return None;
        }
        let stat = self.inner.look(path).ok()?;
        let file = self.files.get(stat.id)?;
        file.has_backlog().then_some((file, stat))
    }

    /// Adds what the far files lack to attributes, which were asked for when there had been `count`
    /// changes.
    pub(crate) fn overlay(&self, stat: &mut NodeStat, count: u64) {
        if stat.kind != Kind::File {
            return;
        }
        if self.has_backlog()
            && let Some(file) = self.files.get(stat.id)
        {
            let state = file.state.lock();
            if state.pending.is_some() {
                return state.overlay(stat);
            }
        }
        if let Some(end) = self.changes.end_since(count, stat.id) {
            *stat = end;
        }
    }
}

/// Returns the time of this machine.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| since.as_nanos() as i128))
}
