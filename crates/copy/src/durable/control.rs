//! The state of durability of a running job, shared by its tasks.
//!
//! The rules are in [`DurabilityTracker`]. This module adds what needs a runtime: waiting for room,
//! waking the task of the checkpoints, holding writes back during a long flush, and the names that
//! wait for the next checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_plan::durability::{ClockWatch, DurabilityTracker, FileTry, Flush, Reached};
use ropeway_plan::{MadeNode, Version};
use ropeway_vfs::{EndError, Error, ErrorKind, File, Name, Op, RelPath, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::job::counters::Live;
use crate::job::environment::WallClock;
use crate::journal::token::Token;
use crate::place::folder::Folder;

/// A flush that takes longer keeps writes to long files away until it ends. It waits for every page
/// of a file that is under write-back, also for those written since it began (Linux:
/// `filemap_fdatawait_range` to the end of the file). So a file that grows as fast as its device
/// writes would be flushed only when it is whole.
const HOLD_AFTER: Duration = Duration::from_secs(2);

/// A finished node that waits for the next checkpoint to get its final name.
pub(crate) struct WaitingName {
    /// The folder that holds both names. It stays open until then.
    pub(crate) folder: Arc<Folder>,
    pub(crate) from: Name,
    pub(crate) to: Name,
    /// Whether an existing node may be replaced.
    pub(crate) replace: bool,
    /// The file to close in the journal.
    pub(crate) token: Option<Token>,
    pub(crate) size: u64,
    /// The path for messages.
    pub(crate) shown: RelPath,
}

/// An open file of the target, for flushes.
#[derive(Clone)]
pub(crate) struct TargetFile(pub(crate) Arc<dyn File>);

struct State {
    tracker: DurabilityTracker<TargetFile>,
    names: Vec<WaitingName>,
}

/// The state of durability of a job. All methods are called from many tasks.
pub(crate) struct DurabilityControl {
    state: Mutex<State>,
    /// Writes to long files wait for a flush to end.
    held: AtomicBool,
    /// A checkpoint should begin early.
    wake: Notify,
    /// There may be room again.
    room: Notify,
    /// A node waits for its name.
    postponed: Notify,
    /// Held while a checkpoint runs.
    checkpoint: tokio::sync::Mutex<()>,
    /// Held while the journal learns that a file begins, or that files are durable: a flush of a
    /// try must not be recorded after the begin of the next.
    recording: Mutex<()>,
    clock: WallClock,
    /// Zero of the monotonic clock.
    zero: Instant,
    clock_watch: Mutex<ClockWatch>,
}

impl DurabilityControl {
    /// Makes the state of a job. `dirty_max` fixes the bound of dirty bytes. `tree_dirty` is
    /// whether the target may have dirty data from before the job.
    pub(crate) fn new(dirty_max: Option<u64>, clock: WallClock, tree_dirty: bool) -> Self {
        Self {
            state: Mutex::new(State {
                tracker: DurabilityTracker::new(dirty_max, tree_dirty),
                names: Vec::new(),
            }),
            held: AtomicBool::new(false),
            wake: Notify::new(),
            room: Notify::new(),
            postponed: Notify::new(),
            checkpoint: tokio::sync::Mutex::new(()),
            recording: Mutex::new(()),
            zero: Instant::now(),
            clock_watch: Mutex::new(ClockWatch::new(clock.now(), Duration::ZERO)),
            clock,
        }
    }

    /// Returns the number of dirty bytes that are allowed on the target now.
    pub(crate) fn bound(&self) -> u64 {
        self.state.lock().tracker.bound()
    }

    /// Learns how fast the device takes data.
    pub(crate) fn observe(&self, bytes: u64, span: Duration) {
        self.state.lock().tracker.observe(bytes, span);
    }

    /// Notes a change that only a flush of the whole tree makes durable.
    pub(crate) fn touch(&self) {
        self.state.lock().tracker.touch();
    }

    /// Whether there is such a change.
    pub(crate) fn is_touched(&self) -> bool {
        self.state.lock().tracker.is_touched()
    }

    /// Whether more may be written now.
    pub(crate) fn has_room(&self) -> bool {
        self.state.lock().tracker.has_room()
    }

    /// Whether a checkpoint would make anything durable.
    pub(crate) fn has_work(&self) -> bool {
        self.state.lock().tracker.has_work()
    }

    /// Whether bytes of small or closed files wait for a flush.
    pub(crate) fn has_closed_dirty(&self) -> bool {
        self.state.lock().tracker.has_closed_dirty()
    }

    /// Counts bytes of a small file that is complete.
    pub(crate) fn wrote_small(&self, bytes: u64) {
        let is_due = self.state.lock().tracker.wrote_small(bytes);
        self.wake_if(is_due);
    }

    fn wake_if(&self, is_due: bool) {
        if is_due {
            self.wake.notify_one();
        }
    }

    /// Waits until a checkpoint should begin early.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Waits until dirty data is below its bound, or the job stops.
    pub(crate) async fn wait_for_room(&self, cancel: &CancellationToken) {
        self.wait_until(cancel, || {
            self.has_room() || {
                self.wake.notify_one();
                false
            }
        })
        .await;
    }

    /// Waits while a flush keeps writes to long files away, or until the job stops.
    pub(crate) async fn wait_while_held(&self, cancel: &CancellationToken) {
        self.wait_until(cancel, || !self.is_held()).await;
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    async fn wait_until(&self, cancel: &CancellationToken, ready: impl Fn() -> bool) {
        while !ready() && !cancel.is_cancelled() {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if ready() {
                return;
            }
            tokio::select! {
                biased;
                () = &mut room => {}
                () = cancel.cancelled() => return,
            }
        }
    }

    /// Awaits a flush, and keeps writes to long files away from one that takes long.
    pub(crate) async fn hold_during<T>(&self, flush: impl Future<Output = T>) -> T {
        tokio::pin!(flush);
        let result = tokio::select! {
            biased;
            result = &mut flush => result,
            () = tokio::time::sleep(HOLD_AFTER) => {
                self.held.store(true, Ordering::Release);
                flush.await
            }
        };
        self.held.store(false, Ordering::Release);
        self.room.notify_waiters();
        result
    }

    /// Waits until no other checkpoint runs, and keeps others away until the guard is dropped.
    pub(crate) async fn begin_checkpoint(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.checkpoint.lock().await
    }

    /// Begins a try of a file of which `written` bytes are there, and lets `record` note it in the
    /// journal. An earlier try of it ends.
    pub(crate) fn open(
        &self,
        (token, file): (Token, Arc<dyn File>),
        written: u64,
        (version, made): (Version, Option<MadeNode>),
        record: impl FnOnce(),
    ) -> FileTry {
        let _recording = self.recording.lock();
        record();
        let mut state = self.state.lock();
        let (attempt, is_due) = state
            .tracker
            .open(token, TargetFile(file), written, (version, made));
        drop(state);
        self.wake_if(is_due);
        attempt
    }

    /// Ends the tries of a file.
    pub(crate) fn close(&self, token: Token) {
        let is_due = self.state.lock().tracker.close(token);
        self.wake_if(is_due);
    }

    /// Closes the file of an earlier try, which is about to be removed. A server would keep its name
    /// until then.
    pub(crate) fn give_up(&self, token: Token) {
        let file = self.state.lock().tracker.give_up(token);
        drop(file);
    }

    /// Returns how far an earlier try of a file came in this run.
    pub(crate) fn reached(&self, token: Token) -> Option<Reached> {
        self.state.lock().tracker.reached(token)
    }

    /// Counts bytes written to an open file.
    pub(crate) fn wrote(&self, attempt: FileTry, bytes: u64) {
        self.state.lock().tracker.wrote(attempt, bytes);
    }

    /// Notes that every byte of a file below `upto` is written.
    pub(crate) fn written(&self, attempt: FileTry, upto: u64) {
        self.state.lock().tracker.written(attempt, upto);
    }

    /// Notes that the first `sent` bytes that a try wrote are on the device.
    pub(crate) fn clean(&self, attempt: FileTry, sent: u64) {
        self.state.lock().tracker.clean(attempt, sent);
    }

    /// Notes that all of a file below `upto` is on the device.
    pub(crate) fn settled(&self, attempt: FileTry, upto: u64, live: &Live) {
        let mut state = self.state.lock();
        state.tracker.settled(attempt, upto);
        live.bytes_settled
            .store(state.tracker.settled_ahead(), Ordering::Release);
    }

    /// Notes that the device of the target failed on a file.
    pub(crate) fn fail(&self, token: Token) {
        self.state.lock().tracker.fail(token);
    }

    /// Notes that the server may have lost what a try wrote before.
    pub(crate) fn doubt(&self, attempt: FileTry) {
        self.state.lock().tracker.doubt(attempt);
    }

    /// Fails if the server may have lost what a try wrote to `target` before: the try must be repeated.
    ///
    /// # Errors
    /// That of a flush that a lost connection has cut.
    pub(crate) fn check_not_in_doubt(&self, attempt: FileTry, target: &dyn File) -> Result<(), EndError> {
        match self.state.lock().tracker.is_in_doubt(attempt) {
            true => Err(EndError::on_target(Error::new(
                Op::Sync,
                target.path(),
                ErrorKind::Network,
            ))),
            false => Ok(()),
        }
    }

    /// Lets a finished node wait for the next checkpoint.
    pub(crate) fn postpone(&self, name: WaitingName) {
        let mut state = self.state.lock();
        state.names.push(name);
        let is_due = state.tracker.name_waits();
        drop(state);
        self.postponed.notify_one();
        self.wake_if(is_due);
    }

    /// Waits until at least one node waits for its name.
    pub(crate) async fn has_waiting_names(&self) {
        while self.state.lock().names.is_empty() {
            self.postponed.notified().await;
        }
    }

    /// Passes what a flush made durable of which files to `record`, which notes it in the journal.
    pub(crate) fn record(&self, flush: &Flush<TargetFile>, record: impl FnOnce(Vec<(Token, u64)>)) {
        let _recording = self.recording.lock();
        let files = self.state.lock().tracker.durable_files(flush);
        record(files);
    }

    /// Notes how far the open files are written, before the next flush begins.
    pub(crate) fn mark(&self) {
        self.state.lock().tracker.mark();
    }

    /// Begins a flush of everything that was written before this call, and takes the names that
    /// wait for it.
    pub(crate) fn begin_flush(&self) -> (Flush<TargetFile>, Vec<WaitingName>) {
        let mut state = self.state.lock();
        let names = std::mem::take(&mut state.names);
        let flush = state.tracker.begin_flush();
        drop(state);
        self.room.notify_waiters();
        (flush, names)
    }

    /// Notes that a flush has ended, after `span`.
    pub(crate) fn end_flush(&self, flush: &Flush<TargetFile>, span: Duration) {
        self.state.lock().tracker.end_flush(flush, span);
        self.room.notify_waiters();
    }

    /// Notes that what a flush covered is durable, and recorded as such.
    pub(crate) fn confirm(&self, flush: &Flush<TargetFile>, live: &Live) {
        let mut state = self.state.lock();
        state.tracker.confirm(flush);
        if !flush.files.is_empty() {
            live.bytes_settled
                .store(state.tracker.settled_ahead(), Ordering::Release);
        }
    }

    /// Whether the wall clock was set back since the job began, as far as regular looks tell.
    pub(crate) fn clock_was_set_back(&self) -> bool {
        let mut watch = self.clock_watch.lock();
        watch.look(self.clock.now(), self.zero.elapsed())
    }

    /// Returns a moment after this call: what was written before the call has an earlier change
    /// time, and whatever changes on the target later has one that is not earlier. `None` when the
    /// wall clock was set back, so that change times tell nothing.
    pub(crate) async fn watermark(&self) -> Option<Timestamp> {
        let now = self.clock.next_tick().await;
        (!self.clock_was_set_back()).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[tokio::test(start_paused = true)]
    async fn a_flush_that_writes_keep_from_ending_holds_them() {
        let control = DurabilityControl::new(None, WallClock::default(), false);
        let start = Instant::now();
        let flush = async {
            while !control.is_held() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        control.hold_during(flush).await;
        assert!(start.elapsed() >= HOLD_AFTER);
        assert!(!control.is_held(), "writes go on after it");
        control.hold_during(tokio::time::sleep(HOLD_AFTER / 2)).await;
        assert!(!control.is_held(), "a short one holds nothing");
    }

    /// A clock that advances every 300 ms, or every 4 ms.
    fn ticking(every: u64) -> (impl Fn() -> Timestamp + Clone, WallClock) {
        let start = Instant::now();
        let fine = move || Timestamp(i128::from(start.elapsed().as_millis() as u64));
        let ticks = move || Timestamp(fine().0 / i128::from(every) * i128::from(every));
        (fine, WallClock::new(fine).with_ticks(ticks))
    }

    #[tokio::test(start_paused = true)]
    async fn the_watermark_is_later_than_what_was_written_before_it_even_if_ticks_are_missed() {
        for every in [4, 300] {
            let (fine, clock) = ticking(every);
            let control = DurabilityControl::new(None, clock, false);
            for step in 0..7 {
                tokio::time::sleep(Duration::from_millis(step)).await;
                // The change time of a file that somebody has looked at is that of the fine clock.
                let written = fine();
                assert!(control.watermark().await > Some(written), "{every} {step}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_for_room_until_the_flush_or_the_end_of_the_job() {
        let control = DurabilityControl::new(Some(10), WallClock::default(), false);
        let cancel = CancellationToken::new();
        control.wrote_small(10);
        let waiting = control.wait_for_room(&cancel);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let (flush, _) = control.begin_flush();
        assert!(
            futures_util::poll!(&mut waiting).is_pending(),
            "not yet on the device"
        );
        control.end_flush(&flush, Duration::from_secs(1));
        waiting.await;
        control.wrote_small(10);
        cancel.cancel();
        control.wait_for_room(&cancel).await;
        assert!(!control.has_room());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_gives_no_watermark_any_more() {
        let wall = Arc::new(AtomicU64::new(1 << 40));
        let shown = Arc::clone(&wall);
        let clock = WallClock::new(move || Timestamp(i128::from(shown.load(Ordering::Relaxed))));
        let control = DurabilityControl::new(None, clock, false);
        assert_eq!(control.watermark().await, Some(Timestamp(1 << 40)));
        // As after a suspend, which the monotonic clock does not count.
        wall.fetch_add(3_600_000_000_000, Ordering::Relaxed);
        assert!(control.watermark().await.is_some());
        wall.fetch_sub(1_000_000_000, Ordering::Relaxed);
        assert_eq!(control.watermark().await, None);
        wall.fetch_add(3_600_000_000_000, Ordering::Relaxed);
        assert_eq!(
            control.watermark().await,
            None,
            "what was written meanwhile has odd times"
        );
    }
}
