//! Brings the backlog of a file to the far file, in rounds.
//!
//! ```text
//! check the far version ─▶ note "draining", sync ─▶ cut, write ─▶ length, times ─▶ far FLUSH
//!      │ others changed it                                                             │
//!      ▼                                                                               ▼
//!  conflict: ours gets another name         note "drained" and the far version, sync; release
//! ```
//! A record of the journal is released only after the far FLUSH that covers it. A round that fails
//! is done again: it writes the same bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropeway_vfs::external::{ContentLease, ExternalChange};
use ropeway_vfs::store::{Access, Node, NodeChange, NodeOpen, NodeStat};
use ropeway_vfs::{Error, ErrorKind, Kind, Op, Result, Verdict};

use crate::backlog::Round;
use crate::files::{Drainer, File, Known, Pending, version_of};
use crate::log::Parts;
use crate::record::Record;
use crate::shared::Shared;

/// Time after which a round writes no more, so that the journal is released also on a slow line.
const ROUND_TIME: Duration = Duration::from_secs(5);
/// How much later than the last such note a far file may have changed, and still by what this
/// process had sent: replies on their way, and clocks that differ.
const SLACK_NS: i128 = 5_000_000_000;
/// Bytes that a worker has on their way: at first, least and most. More would let the requests of
/// near clients, which share the line, wait behind them.
pub(crate) const AHEAD_FIRST: u64 = 4 << 20;
const AHEAD_MIN: u64 = 256 << 10;
const AHEAD_MAX: u64 = 64 << 20;
/// Time that they should take. Long enough that the round trip at their end does not count.
const AHEAD_SHORT: Duration = Duration::from_millis(600);
const AHEAD_LONG: Duration = Duration::from_millis(1200);
/// Errors of writes that are on their way together, at most.
const ERRORS_MAX: usize = 64;
/// Pauses after rounds that fail: the first and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The file has no backlog any more.
    Empty,
    /// There is more.
    More,
    /// Others have changed the far file. The backlog waits to be saved under another name.
    Conflict,
}

/// The far file before a round.
#[derive(Clone, Copy)]
struct Before {
    size: u64,
    lease: ContentLease,
}

/// What came of sending a round.
enum Sent {
    /// The far file has all of it, and these attributes.
    All(NodeStat),
    /// The round took too long, and must be planned again.
    Part,
    /// Others have changed, replaced or removed the far file meanwhile.
    Disturbed,
}

impl Shared {
    /// Works until the queue is closed.
    pub(crate) fn work(self: &Arc<Self>) {
        while let Some(file) = self.queue.next() {
            self.work_on(&file);
        }
    }

    /// Does the next round of a file, and queues it again if there is more.
    pub(crate) fn work_on(self: &Arc<Self>, file: &Arc<File>) {
        let is_conflict = {
            let mut state = file.state.lock();
            state.is_queued = false;
            if state.is_removed {
                // What is open still reads it.
                return;
            }
            state
                .pending
                .as_ref()
                .is_some_and(|pending| pending.conflict.is_some())
        };
        let ended = match is_conflict {
            true => self.save_conflict(file).map(|()| Ended::Empty),
            false => self.round(file, None),
        };
        let mut state = file.state.lock();
        let delay = match ended {
            Ok(Ended::Empty) => {
                state.failures = 0;
                drop(state);
                return self.files.forget_if_idle(file);
            }
            Ok(Ended::More) => {
                state.failures = 0;
                Duration::ZERO
            }
            Ok(Ended::Conflict) => Duration::ZERO,
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                self.figures.failed(&state.path, &error);
                if state.failures == 1 {
                    let far = &self.options.far;
                    tracing::warn!(far, path = %state.path, %error, "the backlog of a file waits, and is tried again");
                }
                PAUSE_MIN
                    .saturating_mul(1 << state.failures.min(10))
                    .min(PAUSE_MAX)
            }
        };
        if state.pending.is_some() && !state.is_queued {
            state.is_queued = true;
            self.queue.push(file, delay);
        }
    }

    /// Does one round. `node` is an open far file to use if none is kept.
    pub(crate) fn round(self: &Arc<Self>, file: &Arc<File>, node: Option<&Arc<dyn Node>>) -> Result<Ended> {
        let mut drainer = file.drain.lock();
        {
            let state = file.state.lock();
            match &state.pending {
                None => return Ok(Ended::Empty),
                Some(pending) if pending.conflict.is_some() => return Ok(Ended::Conflict),
                Some(_) => {}
            }
        }
        let is_removed = file.state.lock().is_removed;
        let opened = match (&drainer.node, node) {
            (Some(kept), _) => Some(Arc::clone(kept)),
            (None, Some(given)) if given.access() == Access::Write => Some(Arc::clone(given)),
            (None, _) => self.reopen(file)?,
        };
        let Some(node) = opened else {
            tracing::debug!(path = %file.path(), "the far file is not there any more");
            return self.conflict(file, &mut drainer);
        };
        // Before the question: a change that the answer lacks breaks it.
        let lease = node.lease();
        let stat = match node.stat_now() {
            Ok(stat) => stat,
            Err(error) if may_be_removed(error.kind) && drainer.node.is_some() => {
                // By its path the file may still be there: another handle.
                self.let_go(&mut drainer);
                return Ok(Ended::More);
            }
            Err(error) if may_be_removed(error.kind) => {
                return match self.reopen(file)? {
                    Some(_) => Err(error),
                    None => self.conflict(file, &mut drainer),
                };
            }
            Err(error) => return Err(error),
        };
        if !is_removed && !self.is_ours(file, &drainer, &*node, &stat) {
            let base = file
                .state
                .lock()
                .pending
                .as_ref()
                .map(|pending| (pending.base, pending.draining));
            let now = version_of(&stat);
            tracing::debug!(path = %file.path(), ?now, links = stat.links, ?base, "others have changed the far file");
            return self.conflict(file, &mut drainer);
        }
        drainer.lease = lease;
        if drainer.node.is_none() {
            self.kept_open.fetch_add(1, Ordering::Relaxed);
            drainer.node = Some(Arc::clone(&node));
        }
        let Some((round, parts)) = self.begin_round(file, &mut drainer) else {
            return Ok(Ended::Empty);
        };
        let before = Before {
            size: stat.size,
            lease,
        };
        let under_way = self.under_way.begin(file);
        let sent = self.send(file, &*node, &round, &parts, before);
        // The last user of a part removes it: that must come before the end of the log is durable.
        drop((parts, under_way));
        match sent {
            Ok(Sent::All(far)) => self.end_round(file, &mut drainer, round.mark, &far),
            Ok(Sent::Part) => Ok(Ended::More),
            Ok(Sent::Disturbed) => self.conflict(file, &mut drainer),
            Err(error) => {
                self.failed(file, &mut drainer, &*node, error.kind);
                Err(error)
            }
        }
    }

    /// Notes what a round that failed has left in the far file, if the server can be asked.
    fn failed(&self, file: &Arc<File>, drainer: &mut Drainer, node: &dyn Node, kind: ErrorKind) {
        self.tick(file, Duration::ZERO);
        let is_away = matches!(
            kind,
            ErrorKind::Network | ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Interrupted
        );
        // Each error of a write on its way is reported once.
        if is_away || !(0..ERRORS_MAX).any(|_| node.write_out().is_ok()) {
            return;
        }
        let Ok(stat) = node.stat_now() else { return };
        let version = version_of(&stat);
        let mut state = file.state.lock();
        let (path, is_removed) = (state.path.clone(), state.is_removed);
        if let Some(pending) = state.pending.as_mut().filter(|_| !is_removed) {
            pending.base = version;
            pending.draining = None;
            drainer.is_under_way = false;
            if let Err(error) = pending.note_synced(&path, &Record::Touched(version)) {
                tracing::warn!(%error, "the write-back journal cannot be written");
            }
        }
    }

    /// Opens the far file by its path. `None` if the server says that it is not there any more.
    fn reopen(&self, file: &Arc<File>) -> Result<Option<Arc<dyn Node>>> {
        let (path, is_removing) = {
            let state = file.state.lock();
            let removing = state.pending.as_ref().is_some_and(|pending| pending.is_removing);
            (state.path.clone(), removing)
        };
        // A near client may have reached it through a link.
        let how = NodeOpen {
            access: Access::Write,
            ..NodeOpen::default()
        };
        let opened = match self.inner.open(&path, &how) {
            Ok(opened) if opened.stat.kind == Kind::File && opened.stat.id == file.id => Some(opened.node),
            Ok(_) => None,
            Err(error) if error.kind.is_absence() || is_other(error.kind) => None,
            Err(error) => return Err(error),
        };
        if opened.is_none() && is_removing {
            // A near client had removed it.
            self.drop_backlog(file);
        }
        Ok(opened)
    }

    /// Whether the far file is as this process, or the one before it, has left it.
    fn is_ours(&self, file: &Arc<File>, drainer: &Drainer, node: &dyn Node, stat: &NodeStat) -> bool {
        let state = file.state.lock();
        let Some(pending) = &state.pending else {
            return true;
        };
        let (now, base) = (version_of(stat), pending.base);
        if now == base && stat.links > 0 {
            return true;
        }
        let is_same_file = now.id == base.id && now.created == base.created && stat.links > 0;
        if drainer.is_under_way && node.lease().is_broken_since(drainer.lease) {
            return false;
        }
        let is_lease_unbroken = match (drainer.lease, node.lease()) {
            (ContentLease::Held { epoch: before }, ContentLease::Held { epoch }) => before == epoch,
            _ => false,
        };
        // A change of a name gives a file another change time. Content that others wrote would have
        // broken the lease.
        let is_content_same = now.size == base.size && now.modified == base.modified;
        if is_same_file && is_content_same && is_lease_unbroken && drainer.node.is_some() {
            return true;
        }
        let Some(last) = pending.draining.filter(|_| is_same_file) else {
            return false;
        };
        // Data of a round that was not finished have arrived. Were others' changes among them?
        match drainer.is_under_way {
            true if is_lease_unbroken
                || matches!(drainer.lease, ContentLease::None | ContentLease::Broken) =>
            {
                true
            }
            // A change from before the backlog is none of ours: the far clock was set back.
            _ => (base.changed.0 - SLACK_NS..=last.0 + SLACK_NS).contains(&now.changed.0),
        }
    }

    /// Plans a round and notes its beginning in the journal.
    fn begin_round(&self, file: &Arc<File>, drainer: &mut Drainer) -> Option<(Round, Parts)> {
        let at = self.far_now();
        let mut state = file.state.lock();
        let (path, is_removed) = (state.path.clone(), state.is_removed);
        let pending = state.pending.as_mut()?;
        let round = pending.backlog.plan(self.options.round_bytes);
        if !is_removed {
            let note = Record::Draining { at, begins: true };
            if let Err(error) = pending.note_synced(&path, &note) {
                // Without it, what arrives before a crash looks like another's change: a conflict.
                tracing::warn!(%error, "the write-back journal cannot be written");
            }
        }
        pending.backlog.begin();
        pending.draining = Some(at);
        drainer.is_under_way = true;
        Some((round, pending.log.parts()))
    }

    /// Sends a round and flushes it at the far server. Stops where others change the far file: what
    /// they write must not be written over by more than what is on its way.
    fn send(
        &self,
        file: &Arc<File>,
        node: &dyn Node,
        round: &Round,
        parts: &Parts,
        before: Before,
    ) -> Result<Sent> {
        let is_change_time_set = round.last.is_some_and(|(_, change)| change.changed.is_some());
        let mut far_size = before.size;
        if far_size > round.far_valid {
            node.set_len(round.far_valid)?;
            far_size = round.far_valid;
        }
        let Some(mark) = self.send_pieces(file, node, round, parts, before.lease, &mut far_size)? else {
            return Ok(Sent::Disturbed);
        };
        if let (Some((length, change)), true) = (&round.last, mark == round.mark) {
            if *length != far_size {
                node.set_len(*length)?;
                far_size = *length;
            }
            if *change != NodeChange::default() {
                match node.change(change) {
                    // The content must not wait for ever for a time that the far volume cannot
                    // hold.
                    Err(error) if error.verdict() == Verdict::Skip && error.kind != ErrorKind::NoSpace => {
                        tracing::warn!(path = %file.path(), %error, "the far server refuses times or attributes; the content is there");
                    }
                    changed => changed?,
                }
            }
        }
        node.sync()?;
        // Now too: a flushed file may get a new lease at any time.
        let mut is_broken = node.lease().is_broken_since(before.lease);
        let far = node.stat_now()?;
        is_broken |= node.lease().is_broken_since(before.lease);
        let is_as_sent = far.links > 0 && far.size == far_size;
        let is_removed_here = file.state.lock().is_removed;
        if is_broken || !(is_as_sent || is_removed_here) {
            tracing::debug!(path = %file.path(), is_broken, far.size, far_size, far.links, "the far file was changed during a round");
            return Ok(Sent::Disturbed);
        }
        if !is_change_time_set {
            self.calibrate(far.changed);
        }
        if mark != round.mark {
            // Without the note the parts stay, and the next round goes on all the same.
            let _ = self.commit(file, mark, &far);
            return Ok(Sent::Part);
        }
        Ok(Sent::All(far))
    }

    /// Sends the pieces of a round, for some time. Returns the highest record that they cover then;
    /// `None` if others have broken the lease.
    fn send_pieces(
        &self,
        file: &Arc<File>,
        node: &dyn Node,
        round: &Round,
        parts: &Parts,
        lease: ContentLease,
        far_size: &mut u64,
    ) -> Result<Option<u64>> {
        let begun = Instant::now();
        let mut buffer = Vec::new();
        let mut ahead = (0, Instant::now());
        for (index, (offset, piece)) in round.pieces.iter().enumerate() {
            if node.lease().is_broken_since(lease) {
                tracing::debug!(path = %file.path(), offset, "others broke the lease of the far file during a round");
                return Ok(None);
            }
            buffer.clear();
            buffer.resize(usize::try_from(piece.length).unwrap_or(0), 0);
            let read = parts.read(piece, 0, &mut buffer);
            read.map_err(|error| Error::from_io(Op::Read, &file.path(), error))?;
            node.write_at(&buffer, *offset)?;
            *far_size = (*far_size).max(offset + piece.length);
            ahead.0 += piece.length;
            self.limit_ahead(file, node, &mut ahead)?;
            let next = round.pieces.get(index + 1);
            if begun.elapsed() >= ROUND_TIME
                && let Some((_, next)) = next
                && next.from != piece.from
            {
                return Ok(Some(piece.from));
            }
        }
        Ok(Some(round.mark))
    }

    /// Waits once enough is on its way, and sets how much that is by the time that it took. All
    /// workers share the line.
    fn limit_ahead(&self, file: &File, node: &dyn Node, (bytes, since): &mut (u64, Instant)) -> Result<()> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        if *bytes < ahead {
            return Ok(());
        }
        node.write_out()?;
        self.under_way.answered(file);
        let took = since.elapsed();
        (*bytes, *since) = (0, Instant::now());
        let next = match took {
            took if took > AHEAD_LONG => ahead / 2,
            took if took < AHEAD_SHORT => ahead * 2,
            _ => ahead,
        };
        self.ahead
            .store(next.clamp(AHEAD_MIN, AHEAD_MAX), Ordering::Relaxed);
        Ok(())
    }

    /// Notes in the journal what the far file has now. Returns whether the near disk took the note.
    fn commit(&self, file: &Arc<File>, mark: u64, far: &NodeStat) -> std::io::Result<()> {
        let version = version_of(far);
        let mut state = file.state.lock();
        let (path, is_removed) = (state.path.clone(), state.is_removed);
        let Some(pending) = &mut state.pending else {
            return Ok(());
        };
        self.changes.note(file);
        let before = pending.backlog.bytes();
        pending.backlog.commit(mark, far.size);
        pending.base = version;
        pending.draining = None;
        pending.stat = Some(*far);
        self.figures
            .drained(before.saturating_sub(pending.backlog.bytes()));
        let noted = match is_removed {
            true => Ok(()),
            false => pending.note_synced(&path, &Record::Drained { mark, version }),
        };
        // Only what a later process will not need.
        if noted.is_ok() {
            pending.log.release(pending.backlog.oldest_part());
        }
        drop(state);
        self.made_room();
        noted
    }

    fn end_round(&self, file: &Arc<File>, drainer: &mut Drainer, mark: u64, far: &NodeStat) -> Result<Ended> {
        let noted = self.commit(file, mark, far);
        drainer.is_under_way = false;
        // The far FLUSH covers it, too.
        file.is_through_dirty.store(false, Ordering::Release);
        self.figures.works_again();
        let mut state = file.state.lock();
        state.failures = 0;
        if state
            .pending
            .as_ref()
            .is_some_and(|pending| !pending.backlog.is_empty())
        {
            return Ok(Ended::More);
        }
        if let (Err(error), Some(pending)) = (&noted, &state.pending)
            && !pending.log.is_removed_at_once()
        {
            // The parts go one by one. If the process ended meanwhile, those that are left would be
            // taken for a backlog: without the note it would cut the far file.
            return Err(Error::from_io(
                Op::Sync,
                &state.path,
                std::io::Error::from(error.kind()),
            ));
        }
        if !state.is_removed {
            self.changes.ended(file, far);
        }
        let pending = state.pending.take();
        if !state.is_removed {
            state.known = Some(Known {
                stat: *far,
                at: Instant::now(),
                count: self.changes.count(),
            });
        }
        drop(state);
        if let Some(pending) = pending {
            self.finish(pending);
        }
        self.let_go(drainer);
        Ok(Ended::Empty)
    }

    /// Removes the log of a backlog that has ended, for good.
    pub(crate) fn finish(&self, pending: Pending) {
        pending.log.finish();
        // A log that came back after a power cut would be taken for a backlog.
        if let Err(error) = self.space.disk.sync_names() {
            tracing::warn!(%error, "the folder of the write-back journal cannot be synced");
        }
        self.backlogs.fetch_sub(1, Ordering::AcqRel);
        self.space.disk.reserve();
        self.made_room();
    }

    /// Closes the far file that was kept open.
    pub(crate) fn let_go(&self, drainer: &mut Drainer) {
        if drainer.node.take().is_some() {
            self.kept_open.fetch_sub(1, Ordering::Relaxed);
        }
        drainer.is_under_way = false;
        drainer.lease = ContentLease::None;
    }

    /// Ends the backlog of a file that a near client has removed.
    pub(crate) fn drop_backlog(&self, file: &Arc<File>) {
        let pending = file.state.lock().pending.take();
        if let Some(pending) = pending {
            self.finish(pending);
        }
    }

    /// Decides that others have changed the far file: from now on near clients see theirs.
    fn conflict(&self, file: &Arc<File>, drainer: &mut Drainer) -> Result<Ended> {
        self.let_go(drainer);
        {
            let mut state = file.state.lock();
            let path = state.path.clone();
            let Some(pending) = &mut state.pending else {
                return Ok(Ended::Empty);
            };
            pending.conflict = Some(None);
            if let Err(error) = pending.note_synced(&path, &Record::Conflict(None)) {
                // It is decided again after a restart.
                tracing::warn!(%error, "the write-back journal cannot be written");
            }
            state.is_lost = true;
            if !state.is_queued {
                state.is_queued = true;
                self.queue.push(file, Duration::ZERO);
            }
        }
        self.files.take_out(file);
        let observer = self.observer.lock().clone();
        if let Some(observer) = observer {
            let change = [ExternalChange::Node(file.id)];
            // On a thread of its own: the observer may close nodes of this file, which wait for
            // locks that are held here.
            let thread = std::thread::Builder::new().name("write-back-report".into());
            if let Err(error) = thread.spawn(move || observer.changed(&change)) {
                tracing::warn!(%error, "a conflict could not be reported to clients");
            }
        }
        Ok(Ended::Conflict)
    }
}

/// Whether an open file may be of no use any more. It may have been removed; or the server, its share or the
/// connection is gone, and the file as it was.
fn may_be_removed(kind: ErrorKind) -> bool {
    kind.is_absence() || kind == ErrorKind::Gone
}

/// Whether something that is no file has the name by now.
fn is_other(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::IsADirectory | ErrorKind::SymbolicLink)
}
