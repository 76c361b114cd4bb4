//! Durability: checkpoints, bounded dirty data, and renames grouped behind one sync.
//!
//! A *checkpoint* makes durable whatever was written before it began: `sync` of the tree, or of the open big files
//! when nothing else changed. Then the files that waited under temporary names get their final ones, the journal
//! records the moment, and the third counter moves. Checkpoints run every two seconds, or earlier when
//! dirty data reaches its bound, so write-back starts early and the last sync is short.
//!
//! *Dirty* is what was written and is not known to be on the device. There is one count of it for the target, which
//! every writer waits on: what open files wrote beyond what write-back settled, what small files and closed ones left
//! behind, and what a running sync is about to write. Only the device takes from it, by a settled window or a sync.
//!
//! The order for every replaced file is: data, sync, rename. So a power cut leaves either the old or the new file
//! under the name, never a hole.
//!
//! On a server it is each file's own flush that makes it durable, through the open that wrote it: only that one knows
//! whether the server came back meanwhile without what it had not flushed. Such a file is *in doubt*, and copied once
//! more from where it was last flushed.

mod checkpoints;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_plan::Version;
use ropeway_vfs::{File, Name, RelPath, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::checkpoints::{checkpoint, hear_of_losses, note_loss, run_checkpoints};
use crate::context::Context;
use crate::environment::WallClock;
use crate::folder::Folder;
use crate::journal::{Made, Token};
use crate::progress::Live;

/// Dirty bytes allowed before the device's speed is known: as for a slow one, whose first sync would else take long and
/// whose first estimate would be a guess. A fast one is known after its first sync.
const DIRTY_BOUND_FIRST: u64 = DIRTY_BOUND_MIN;
/// Dirty bytes allowed on a slow device.
const DIRTY_BOUND_MIN: u64 = 64 << 20;
/// Dirty bytes allowed on a fast one: what is not yet written when it seems done must not take long.
const DIRTY_BOUND_MAX: u64 = 1 << 30;
/// Seconds of the device's own speed that may be dirty.
const DIRTY_SECONDS: f64 = 1.0;
/// Bytes below which a sync says nothing of the device's speed.
const RATE_SAMPLE_MIN: u64 = 8 << 20;
/// The device's speed is that of about so many bytes: one sync alone may write what came while it ran, and the next one
/// find nothing left to do.
const RATE_MEMORY: f64 = 128e6;
/// Renames that wait for a checkpoint: a bound on memory.
const PENDING_MAX: usize = 8192;
/// A sync that takes longer keeps writes to long files away until it ends. It waits for every page of a file that is under write-back,
/// also for those written since it began (Linux: `filemap_fdatawait_range` to the end of the file), so a file that
/// grows as fast as its device writes would be synced only when it is whole.
const HOLD_AFTER: Duration = Duration::from_secs(2);
/// The wall clock may fall behind the monotonic clock by this much between two looks before it counts as set back.
const CLOCK_STEP_MAX: Duration = Duration::from_millis(500);

/// Milliseconds that the kernel's clock is waited for; a tick takes 10 at most (`CONFIG_HZ=100`).
const TICK_TRIES: u32 = 12;

/// A finished node that waits for the next checkpoint to get its name.
pub(crate) struct PendingRename {
    /// The folder that holds both names (kept open until then).
    pub(crate) folder: Arc<Folder>,
    pub(crate) from: Name,
    pub(crate) to: Name,
    /// Whether an existing node may be replaced.
    pub(crate) replace: bool,
    /// The journal's file to close.
    pub(crate) token: Option<Token>,
    pub(crate) size: u64,
    /// The path for messages.
    pub(crate) shown: RelPath,
}

/// A file being written through blocks, known to checkpoints.
pub(crate) struct OpenFile {
    pub(crate) file: Arc<dyn File>,
    /// Every byte below is written.
    pub(crate) written: AtomicU64,
    /// Every byte below is on the device, as far as write-back tells.
    settled: AtomicU64,
    /// Every byte below is durable by a checkpoint.
    durable: AtomicU64,
    /// Bytes written in this run, in whatever order, ...
    sent: AtomicU64,
    /// ... and how many of them are not dirty any more, or are counted elsewhere.
    clean: AtomicU64,
    /// The version of the source that this try reads.
    version: Version,
    /// The file on the target, where it is known.
    made: Option<Made>,
    /// The target failed on this file: what was written and is not durable may be lost.
    failed: AtomicBool,
    /// The server may have lost what was written before: this try of the file is worth nothing.
    in_doubt: AtomicBool,
}

impl OpenFile {
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }
}

/// How far an unfinished file of this run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Every byte below is written.
    pub(crate) written: u64,
    /// Every byte below is durable.
    pub(crate) durable: u64,
    /// The version of the source that was read.
    pub(crate) version: Version,
    /// The file on the target, where it is known.
    pub(crate) made: Option<Made>,
}

/// State of durability; all methods are called from many tasks.
pub(crate) struct SyncControl {
    bound: AtomicU64,
    bound_fixed: bool,
    /// Dirty bytes of files that are open.
    dirty_open: AtomicU64,
    /// Dirty bytes of small files and of those that are closed.
    dirty_closed: AtomicU64,
    /// Those of them that a running sync writes.
    syncing_closed: AtomicU64,
    /// Bytes written to the device lately and the seconds that took.
    speed: Mutex<(f64, f64)>,
    dirty_tree: AtomicBool,
    /// Writes to long files wait for a sync to end.
    held: AtomicBool,
    wake: Notify,
    room: Notify,
    pending: Mutex<Vec<PendingRename>>,
    /// Told when a rename is added to `pending`.
    postponed: Notify,
    open: Mutex<BTreeMap<Token, Arc<OpenFile>>>,
    checkpoint: tokio::sync::Mutex<()>,
    clock: WallClock,
    /// What both clocks showed at the last look, and whether the wall clock was ever set back.
    looked: Mutex<(Timestamp, Instant, bool)>,
}

impl SyncControl {
    /// `is_unknown`: the target may have dirty data from before the job.
    pub(crate) fn new(dirty_max: Option<u64>, clock: WallClock, is_unknown: bool) -> Self {
        Self {
            bound: AtomicU64::new(dirty_max.unwrap_or(DIRTY_BOUND_FIRST)),
            bound_fixed: dirty_max.is_some(),
            dirty_open: AtomicU64::new(0),
            dirty_closed: AtomicU64::new(0),
            syncing_closed: AtomicU64::new(0),
            speed: Mutex::default(),
            dirty_tree: AtomicBool::new(is_unknown),
            held: AtomicBool::new(false),
            wake: Notify::new(),
            room: Notify::new(),
            pending: Mutex::default(),
            postponed: Notify::new(),
            open: Mutex::default(),
            checkpoint: tokio::sync::Mutex::new(()),
            looked: Mutex::new((clock.now(), Instant::now(), false)),
            clock,
        }
    }

    /// Dirty bytes allowed on the target now.
    pub(crate) fn bound(&self) -> u64 {
        self.bound.load(Ordering::Relaxed)
    }

    /// Learns how fast the device takes data.
    pub(crate) fn observe(&self, bytes: u64, span: Duration) {
        if self.bound_fixed || bytes < RATE_SAMPLE_MIN || span.is_zero() {
            return;
        }
        let mut speed = self.speed.lock();
        let keep = (RATE_MEMORY / (speed.0 + bytes as f64)).min(1.0);
        *speed = (
            (speed.0 * keep) + bytes as f64,
            (speed.1 * keep) + span.as_secs_f64(),
        );
        let allowed = speed.0 / speed.1 * DIRTY_SECONDS;
        self.bound.store(
            (allowed as u64).clamp(DIRTY_BOUND_MIN, DIRTY_BOUND_MAX),
            Ordering::Relaxed,
        );
    }

    /// Something of the tree changed that only a sync of the whole tree makes durable.
    pub(crate) fn touched(&self) {
        self.dirty_tree.store(true, Ordering::Release);
    }

    pub(crate) fn is_touched(&self) -> bool {
        self.dirty_tree.load(Ordering::Acquire)
    }

    /// Counts bytes written by small files; starts a checkpoint when half the bound is reached.
    pub(crate) fn wrote_small(&self, bytes: u64) {
        self.touched();
        self.left_dirty(bytes);
    }

    /// Counts bytes of a file that nobody follows any more.
    fn left_dirty(&self, bytes: u64) {
        let dirty = self.dirty_closed.fetch_add(bytes, Ordering::AcqRel) + bytes;
        if dirty >= self.bound() / 2 {
            self.wake.notify_one();
        }
    }

    /// Counts bytes written to an open file.
    pub(crate) fn wrote(&self, open: &OpenFile, bytes: u64) {
        self.dirty_open.fetch_add(bytes, Ordering::AcqRel);
        open.sent.fetch_add(bytes, Ordering::AcqRel);
    }

    /// The first `sent` bytes written to an open file are not dirty any more; how many were until now.
    pub(crate) fn cleaned(&self, open: &OpenFile, sent: u64) -> u64 {
        let before = open.clean.fetch_max(sent, Ordering::AcqRel);
        let bytes = sent.saturating_sub(before);
        self.dirty_open.fetch_sub(bytes, Ordering::AcqRel);
        bytes
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Whether more may be written now.
    pub(crate) fn has_room(&self) -> bool {
        let dirty = [&self.dirty_open, &self.dirty_closed, &self.syncing_closed];
        let dirty: u64 = dirty.iter().map(|bytes| bytes.load(Ordering::Acquire)).sum();
        dirty < self.bound() && self.pending.lock().len() < PENDING_MAX
    }

    /// Whether a checkpoint would make anything durable.
    fn has_work(&self) -> bool {
        self.is_touched() || self.dirty_closed.load(Ordering::Acquire) > 0 || !self.open.lock().is_empty()
    }

    /// Waits until dirty data is below its bound.
    pub(crate) async fn wait_for_room(&self, context: &Context) {
        self.wait_until(context, || {
            self.has_room() || {
                self.wake.notify_one();
                false
            }
        })
        .await;
    }

    /// Waits while a sync keeps writes to long files away.
    pub(crate) async fn wait_while_held(&self, context: &Context) {
        self.wait_until(context, || !self.is_held()).await;
    }

    async fn wait_until(&self, context: &Context, ready: impl Fn() -> bool) {
        while !ready() && !context.stopped() {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if ready() {
                return;
            }
            tokio::select! {
                biased;
                () = &mut room => {}
                () = context.cancel.cancelled() => return,
            }
        }
    }

    /// Awaits a sync, and keeps writes to long files away from one that takes long.
    async fn awaiting<T>(&self, sync: impl Future<Output = T>) -> T {
        tokio::pin!(sync);
        let result = tokio::select! {
            biased;
            result = &mut sync => result,
            () = tokio::time::sleep(HOLD_AFTER) => {
                self.held.store(true, Ordering::Release);
                sync.await
            }
        };
        self.held.store(false, Ordering::Release);
        self.room.notify_waiters();
        result
    }

    pub(crate) fn opened(
        &self,
        token: Token,
        file: Arc<dyn File>,
        written: u64,
        version: Version,
        made: Option<Made>,
    ) -> Arc<OpenFile> {
        let open = Arc::new(OpenFile {
            file,
            written: AtomicU64::new(written),
            settled: AtomicU64::new(written),
            durable: AtomicU64::new(written),
            sent: AtomicU64::new(0),
            clean: AtomicU64::new(0),
            version,
            made,
            failed: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
        });
        // That of an earlier try.
        let before = self.open.lock().insert(token, Arc::clone(&open));
        self.unfollow(before);
        open
    }

    /// How far an earlier try of a file came in this run.
    pub(crate) fn reached(&self, token: Token) -> Option<Reached> {
        self.open.lock().get(&token).map(|open| {
            let durable = open.durable.load(Ordering::Acquire);
            let written = match open.failed.load(Ordering::Acquire) {
                true => durable,
                false => open.written.load(Ordering::Acquire),
            };
            Reached {
                written,
                durable,
                version: open.version,
                made: open.made,
            }
        })
    }

    /// The target's device failed on a file: the kernel may have dropped what it could not write back.
    pub(crate) fn failed(&self, token: Token) {
        if let Some(open) = self.open.lock().get(&token) {
            open.failed.store(true, Ordering::Release);
        }
    }

    /// All of a file below `upto` is on the device: durable but for the device's own cache and the file's metadata.
    pub(crate) fn settled(&self, open: &OpenFile, upto: u64, live: &Live) {
        open.settled.fetch_max(upto, Ordering::AcqRel);
        let files = self.open.lock();
        let ahead = files.values().map(|open| {
            let settled = open.settled.load(Ordering::Acquire);
            settled.saturating_sub(open.durable.load(Ordering::Acquire))
        });
        live.bytes_settled.store(ahead.sum(), Ordering::Release);
    }

    pub(crate) fn closed(&self, token: Token) {
        // In this order: a checkpoint that does not see the file any more syncs the whole tree.
        self.touched();
        let open = self.open.lock().remove(&token);
        self.unfollow(open);
    }

    /// What a file left dirty is counted on without it.
    fn unfollow(&self, open: Option<Arc<OpenFile>>) {
        if let Some(open) = open {
            let left = self.cleaned(&open, open.sent.load(Ordering::Acquire));
            self.left_dirty(left);
        }
    }

    pub(crate) fn postpone(&self, rename: PendingRename) {
        let waiting = {
            let mut pending = self.pending.lock();
            pending.push(rename);
            pending.len()
        };
        self.touched();
        self.postponed.notify_one();
        if waiting >= PENDING_MAX / 2 {
            self.wake.notify_one();
        }
    }

    /// Waits until at least one rename is pending.
    pub(crate) async fn has_pending(&self) {
        while self.pending.lock().is_empty() {
            self.postponed.notified().await;
        }
    }

    /// Whether the wall clock was set back since the job began, as far as regular looks tell.
    fn was_set_back(&self) -> bool {
        let mut looked = self.looked.lock();
        let (wall, steady) = (self.clock.now(), Instant::now());
        let passed = i128::try_from(steady.duration_since(looked.1).as_nanos()).unwrap_or(i128::MAX);
        let step_max = i128::try_from(CLOCK_STEP_MAX.as_nanos()).unwrap_or(i128::MAX);
        let is_back = wall.0 - looked.0.0 < passed - step_max;
        *looked = (wall, steady, looked.2 || is_back);
        looked.2
    }

    /// A moment after this call: what was written before the call has an earlier change time, and whatever changes on the
    /// target later one that is not earlier. `None` when the wall clock was set back, so that change times tell nothing.
    async fn watermark(&self) -> Option<Timestamp> {
        let start = self.clock.now();
        let mut now = start;
        // Change times are those of the last tick: what was written a moment ago may have this very one.
        for _ in 0..TICK_TRIES {
            tokio::time::sleep(Duration::from_millis(1)).await;
            now = self.clock.now();
            if now != start {
                break;
            }
        }
        (!self.was_set_back()).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_closed_file_left_dirty_stays_counted_until_a_sync() {
        let control = SyncControl::new(Some(100), WallClock::default(), false);
        let tree = ropeway_vfs::MemoryTree::new();
        let file = {
            use ropeway_vfs::{CacheMode, Create, OpenOptions, Tree as _};
            let path = RelPath::root().join(&Name::new(b"file").unwrap());
            let options = OpenOptions::write(Create::New, CacheMode::Keep);
            tree.open(&path, options).await.unwrap()
        };
        let version = Version {
            size: 0,
            modified: Timestamp(0),
            changed: None,
            index: None,
        };
        let open = control.opened(1, Arc::clone(&file), 0, version, None);
        control.wrote(&open, 90);
        assert_eq!(control.cleaned(&open, 30), 30, "a window is on the device");
        assert_eq!(control.cleaned(&open, 20), 0, "an older one adds nothing");
        control.wrote_small(39);
        assert!(control.has_room());
        control.wrote(&open, 1);
        assert!(!control.has_room(), "open and small files share the bound");
        // Another try of the same file, then its end.
        let again = control.opened(1, file, 0, version, None);
        assert!(!control.has_room());
        control.wrote(&again, 5);
        control.closed(1);
        control.closed(1);
        assert_eq!(control.dirty_open.load(Ordering::Relaxed), 0);
        assert_eq!(control.dirty_closed.load(Ordering::Relaxed), 61 + 39 + 5);
        // After an error of the device only what is durable counts.
        let third = control.opened(1, Arc::clone(&again.file), 10, version, None);
        third.written.store(90, Ordering::Release);
        assert_eq!(control.reached(1).unwrap().written, 90);
        control.failed(1);
        assert_eq!(control.reached(1).unwrap().written, 10);
        control.closed(1);
        // A sync that began before the close ends after it.
        assert_eq!(control.cleaned(&again, 5), 0);
        assert!(control.has_work());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sync_that_writes_keep_from_ending_holds_them() {
        let control = SyncControl::new(None, WallClock::default(), false);
        let start = Instant::now();
        let sync = async {
            while !control.is_held() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        control.awaiting(sync).await;
        assert!(start.elapsed() >= HOLD_AFTER);
        assert!(!control.is_held(), "writes go on after it");
        control.awaiting(tokio::time::sleep(HOLD_AFTER / 2)).await;
        assert!(!control.is_held(), "a short one holds nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_gives_no_watermark_any_more() {
        let wall = Arc::new(AtomicU64::new(1 << 40));
        let shown = Arc::clone(&wall);
        let clock = WallClock::new(move || Timestamp(i128::from(shown.load(Ordering::Relaxed))));
        let control = SyncControl::new(None, clock, false);
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
