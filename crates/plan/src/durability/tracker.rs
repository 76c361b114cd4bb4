//! Follows what was written to the target and is not yet on the device.
//!
//! *Dirty* is what was written and is not known to be on the device. There is one bound for the
//! whole target, on which every writer waits. Dirty bytes belong to one of three counts: open files,
//! small and closed files, and what a running flush is about to write. Only the device takes from
//! them: by a window of write-back that ended, or by a flush.
//!
//! ```text
//!   open ── wrote, written ──► dirty ── window_done ──► clean
//!    │                           │
//!    └─ close ─► dirty (closed) ─┴─ begin_flush ─► flushing ── end_flush ──► clean
//!                                                                  └─ confirm ─► durable
//! ```
//!
//! Invariants:
//! * The dirty bytes of open files are the sum of what each try wrote and the device did not take.
//! * A try that ended changes nothing any more, whatever a late flush reports of it.
//! * After a failure of the device only durable bytes of a file count as written.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::resume::{MadeNode, Version};

/// Dirty bytes allowed before the device's speed is known: as for a slow one, whose first flush would
/// otherwise take long and whose first estimate would be a guess.
const BOUND_FIRST: u64 = BOUND_MIN;
/// Dirty bytes allowed on a slow device. A guess.
const BOUND_MIN: u64 = 64 << 20;
/// Dirty bytes allowed on a fast device: what is not written when the job seems done must not take
/// long. A guess.
const BOUND_MAX: u64 = 1 << 30;
/// Seconds of the device's own speed that may be dirty.
const BOUND_SECONDS: f64 = 1.0;
/// Bytes below which a flush says nothing about the device's speed.
const SPEED_SAMPLE_MIN: u64 = 8 << 20;
/// The device's speed is that of about so many bytes. One flush alone may write what came while it
/// ran, so that the next one has nothing left to do.
const SPEED_MEMORY: f64 = 128e6;
/// Names that wait for a checkpoint: a bound on memory.
const NAMES_MAX: usize = 8192;

/// One try of a file that is written through blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTry {
    token: u64,
    number: u64,
}

/// The progress of a file in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Every byte below is written.
    pub written: u64,
    /// Every byte below is durable.
    pub durable: u64,
    /// The version of the source that was read.
    pub version: Version,
    /// The file on the target, where it is known.
    pub made: Option<MadeNode>,
}

/// A file that a flush covers.
#[derive(Clone, Debug)]
pub struct FlushedFile<F> {
    /// What the driver flushes it by.
    pub handle: F,
    /// The token of the file.
    pub token: u64,
    /// The try that was under way when the flush began.
    pub attempt: FileTry,
    /// Every byte below was written before the flush began.
    pub written: u64,
    sent: u64,
}

/// What a flush covers, as of its begin.
#[derive(Clone, Debug)]
pub struct Flush<F> {
    /// Files that were open.
    pub files: Vec<FlushedFile<F>>,
    /// Whether the open files alone do not cover it.
    pub whole_tree: bool,
    /// Whether the server may have lost what was written before to an open file.
    pub in_doubt: bool,
    dirty: u64,
}

#[derive(Debug)]
struct OpenFile<F> {
    /// `None` once it was given up.
    handle: Option<F>,
    number: u64,
    written: u64,
    /// Every byte below is on the device, as far as write-back tells.
    settled: u64,
    durable: u64,
    /// Bytes written by this try, in whatever order.
    sent: u64,
    /// How many of them are not dirty any more.
    clean: u64,
    version: Version,
    made: Option<MadeNode>,
    failed: bool,
    in_doubt: bool,
}

/// The state of durability of a job. `F` is what the driver flushes a file by.
#[derive(Debug)]
pub struct DurabilityTracker<F> {
    bound: u64,
    bound_fixed: bool,
    dirty_open: u64,
    dirty_closed: u64,
    flushing: u64,
    /// Bytes written to the device lately, and the seconds that took.
    speed: (f64, f64),
    tree_dirty: bool,
    names_waiting: usize,
    files: BTreeMap<u64, OpenFile<F>>,
    tries: u64,
}

impl<F: Clone> DurabilityTracker<F> {
    /// Makes a tracker. `dirty_max` fixes the bound of dirty bytes; `None` follows the device's speed.
    /// `tree_dirty` is whether the target may have dirty data from before the job.
    pub fn new(dirty_max: Option<u64>, tree_dirty: bool) -> Self {
        Self {
            bound: dirty_max.unwrap_or(BOUND_FIRST),
            bound_fixed: dirty_max.is_some(),
            dirty_open: 0,
            dirty_closed: 0,
            flushing: 0,
            speed: (0.0, 0.0),
            tree_dirty,
            names_waiting: 0,
            files: BTreeMap::new(),
            tries: 0,
        }
    }

    /// Returns the number of dirty bytes that are allowed now.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Learns how fast the device takes data.
    pub fn observe(&mut self, bytes: u64, span: Duration) {
        if self.bound_fixed || bytes < SPEED_SAMPLE_MIN || span.is_zero() {
            return;
        }
        let (before, seconds) = self.speed;
        let keep = (SPEED_MEMORY / (before + bytes as f64)).min(1.0);
        self.speed = (
            (before * keep) + bytes as f64,
            (seconds * keep) + span.as_secs_f64(),
        );
        let allowed = self.speed.0 / self.speed.1 * BOUND_SECONDS;
        self.bound = (allowed as u64).clamp(BOUND_MIN, BOUND_MAX);
    }

    /// Notes a change that only a flush of the whole tree makes durable.
    pub fn touch(&mut self) {
        self.tree_dirty = true;
    }

    /// Whether there is such a change.
    pub fn is_touched(&self) -> bool {
        self.tree_dirty
    }

    /// Whether more may be written now.
    pub fn has_room(&self) -> bool {
        self.dirty_open + self.dirty_closed + self.flushing < self.bound && self.names_waiting < NAMES_MAX
    }

    /// Whether a checkpoint would make anything durable.
    pub fn has_work(&self) -> bool {
        self.tree_dirty || self.dirty_closed > 0 || !self.files.is_empty()
    }

    /// Whether bytes of small or closed files wait for a flush.
    pub fn has_closed_dirty(&self) -> bool {
        self.dirty_closed > 0
    }

    /// Counts bytes of a small file that is complete. Returns whether a checkpoint should begin early.
    #[must_use]
    pub fn wrote_small(&mut self, bytes: u64) -> bool {
        self.touch();
        self.leave_dirty(bytes)
    }

    /// Counts a node whose name waits for a checkpoint. Returns whether one should begin early.
    #[must_use]
    pub fn name_waits(&mut self) -> bool {
        self.touch();
        self.names_waiting += 1;
        self.names_waiting >= NAMES_MAX / 2
    }

    fn leave_dirty(&mut self, bytes: u64) -> bool {
        self.dirty_closed += bytes;
        self.dirty_closed >= self.bound / 2
    }

    /// Begins a try of a file of which `written` bytes are there. An earlier try of it ends. Returns
    /// the try, and whether a checkpoint should begin early.
    #[must_use]
    pub fn open(
        &mut self,
        token: u64,
        handle: F,
        written: u64,
        (version, made): (Version, Option<MadeNode>),
    ) -> (FileTry, bool) {
        self.tries += 1;
        let file = OpenFile {
            handle: Some(handle),
            number: self.tries,
            written,
            settled: written,
            durable: written,
            sent: 0,
            clean: 0,
            version,
            made,
            failed: false,
            in_doubt: false,
        };
        let before = self.files.insert(token, file);
        let attempt = FileTry {
            token,
            number: self.tries,
        };
        (attempt, self.unfollow(before))
    }

    /// Ends the tries of a file: a flush of the whole tree covers it from now on. Returns whether a
    /// checkpoint should begin early.
    #[must_use]
    pub fn close(&mut self, token: u64) -> bool {
        self.touch();
        let file = self.files.remove(&token);
        self.unfollow(file)
    }

    /// Counts what a file left dirty without it.
    fn unfollow(&mut self, file: Option<OpenFile<F>>) -> bool {
        let Some(file) = file else {
            return false;
        };
        let left = file.sent.saturating_sub(file.clean);
        self.dirty_open -= left;
        self.leave_dirty(left)
    }

    fn file(&mut self, attempt: FileTry) -> Option<&mut OpenFile<F>> {
        let file = self.files.get_mut(&attempt.token);
        file.filter(|file| file.number == attempt.number)
    }

    /// Counts bytes written to an open file.
    pub fn wrote(&mut self, attempt: FileTry, bytes: u64) {
        if let Some(file) = self.file(attempt) {
            file.sent += bytes;
            self.dirty_open += bytes;
        }
    }

    /// Notes that every byte of a file below `upto` is written.
    pub fn written(&mut self, attempt: FileTry, upto: u64) {
        if let Some(file) = self.file(attempt) {
            file.written = upto;
        }
    }

    /// The device has taken the first `sent` bytes that a try wrote. Returns how many of them were
    /// dirty until now.
    pub fn clean(&mut self, attempt: FileTry, sent: u64) -> u64 {
        let Some(file) = self.file(attempt) else {
            return 0;
        };
        let bytes = sent.saturating_sub(file.clean);
        file.clean = file.clean.max(sent);
        self.dirty_open -= bytes;
        bytes
    }

    /// All of a file below `upto` is on the device: durable except for the device's own cache and the
    /// file's metadata.
    pub fn settled(&mut self, attempt: FileTry, upto: u64) {
        if let Some(file) = self.file(attempt) {
            file.settled = file.settled.max(upto);
        }
    }

    /// Returns the bytes of open files that are on the device and not durable yet.
    pub fn settled_ahead(&self) -> u64 {
        let ahead = |file: &OpenFile<F>| file.settled.saturating_sub(file.durable);
        self.files.values().map(ahead).sum()
    }

    /// Returns how far an earlier try of a file came in this run.
    pub fn reached(&self, token: u64) -> Option<Reached> {
        self.files.get(&token).map(|file| Reached {
            written: if file.failed { file.durable } else { file.written },
            durable: file.durable,
            version: file.version,
            made: file.made,
        })
    }

    /// The target's device failed on a file: the kernel may have dropped what it could not write.
    pub fn fail(&mut self, token: u64) {
        if let Some(file) = self.files.get_mut(&token) {
            file.failed = true;
        }
    }

    /// Gives the open file of an earlier try up, which is about to be removed: what the try wrote is
    /// not flushed any more, and counts as before until the next try or the end.
    pub fn give_up(&mut self, token: u64) -> Option<F> {
        self.files.get_mut(&token)?.handle.take()
    }

    /// The server may have lost what a try wrote before, so the try is worth nothing.
    pub fn doubt(&mut self, attempt: FileTry) {
        if let Some(file) = self.file(attempt) {
            file.in_doubt = true;
        }
    }

    /// Whether the server may have lost what a try wrote.
    pub fn is_in_doubt(&self, attempt: FileTry) -> bool {
        let file = self.files.get(&attempt.token);
        file.is_some_and(|file| file.number == attempt.number && file.in_doubt)
    }

    /// Begins a flush of everything that was written before this call. Names that wait are given
    /// after it.
    pub fn begin_flush(&mut self) -> Flush<F> {
        let files = self.files.iter().filter_map(|(token, file)| {
            Some(FlushedFile {
                handle: file.handle.clone()?,
                token: *token,
                attempt: FileTry {
                    token: *token,
                    number: file.number,
                },
                written: file.written,
                sent: file.sent,
            })
        });
        let flush = Flush {
            files: files.collect(),
            whole_tree: self.tree_dirty || self.dirty_closed > 0 || self.names_waiting > 0,
            in_doubt: self.files.values().any(|file| file.in_doubt),
            dirty: self.dirty_open + self.dirty_closed,
        };
        self.flushing = std::mem::take(&mut self.dirty_closed);
        self.tree_dirty = false;
        self.names_waiting = 0;
        flush
    }

    /// The flush has ended, after `span`.
    pub fn end_flush(&mut self, flush: &Flush<F>, span: Duration) {
        self.observe(flush.dirty, span);
        self.flushing = 0;
        for file in &flush.files {
            self.clean(file.attempt, file.sent);
        }
    }

    /// What a flush covered is durable, and recorded as such.
    pub fn confirm(&mut self, flush: &Flush<F>) {
        for part in &flush.files {
            if let Some(file) = self.file(part.attempt) {
                file.durable = file.durable.max(part.written);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropeway_vfs::Timestamp;

    const VERSION: Version = Version {
        size: 0,
        modified: Timestamp(0),
        changed: None,
        index: None,
    };

    fn open(tracker: &mut DurabilityTracker<()>, token: u64, written: u64) -> FileTry {
        tracker.open(token, (), written, (VERSION, None)).0
    }

    #[test]
    fn what_a_closed_file_left_dirty_stays_counted_until_a_flush() {
        let mut tracker = DurabilityTracker::new(Some(100), false);
        let file = open(&mut tracker, 1, 0);
        tracker.wrote(file, 90);
        assert_eq!(tracker.clean(file, 30), 30, "a window is on the device");
        assert_eq!(tracker.clean(file, 20), 0, "an older one adds nothing");
        assert!(!tracker.wrote_small(39));
        assert!(tracker.has_room());
        tracker.wrote(file, 1);
        assert!(!tracker.has_room(), "open and small files share the bound");
        // Another try of the same file, then its end.
        let again = open(&mut tracker, 1, 0);
        assert!(!tracker.has_room());
        tracker.wrote(again, 5);
        assert!(tracker.close(1), "more than half the bound");
        assert!(!tracker.close(1), "nothing was left");
        assert_eq!((tracker.dirty_open, tracker.dirty_closed), (0, 61 + 39 + 5));
        // A flush that began before the close ends after it.
        assert_eq!(tracker.clean(again, 5), 0);
        assert!(tracker.has_work());
        let flush = tracker.begin_flush();
        assert!(
            flush.whole_tree && !tracker.has_room(),
            "what is flushed is dirty"
        );
        tracker.end_flush(&flush, Duration::ZERO);
        assert!(tracker.has_room() && !tracker.has_work());
    }

    #[test]
    fn after_a_failure_of_the_device_only_durable_bytes_count() {
        let mut tracker = DurabilityTracker::new(None, false);
        let file = open(&mut tracker, 1, 10);
        tracker.written(file, 90);
        assert_eq!(tracker.reached(1).unwrap().written, 90);
        tracker.fail(1);
        assert_eq!(tracker.reached(1).unwrap().written, 10);
        let other = open(&mut tracker, 2, 0);
        tracker.written(other, 50);
        let flush = tracker.begin_flush();
        tracker.written(other, 70);
        tracker.confirm(&flush);
        let reached = tracker.reached(2).unwrap();
        assert_eq!((reached.written, reached.durable), (70, 50));
        assert_eq!(tracker.reached(3), None);
    }

    #[test]
    fn a_flush_confirms_only_the_try_that_it_saw() {
        let mut tracker = DurabilityTracker::new(None, false);
        let first = open(&mut tracker, 1, 0);
        tracker.written(first, 40);
        let flush = tracker.begin_flush();
        let second = open(&mut tracker, 1, 0);
        tracker.confirm(&flush);
        tracker.doubt(first);
        tracker.written(first, 90);
        let reached = tracker.reached(1).unwrap();
        assert_eq!((reached.written, reached.durable), (0, 0));
        assert!(!tracker.is_in_doubt(first) && !tracker.is_in_doubt(second));
        tracker.doubt(second);
        assert!(tracker.is_in_doubt(second) && tracker.begin_flush().in_doubt);
    }

    #[test]
    fn a_file_that_was_given_up_is_not_flushed_and_stays_in_doubt() {
        let mut tracker = DurabilityTracker::new(None, false);
        let first = open(&mut tracker, 1, 0);
        tracker.wrote(first, 9);
        tracker.written(first, 9);
        tracker.doubt(first);
        assert_eq!(tracker.give_up(1), Some(()));
        assert_eq!(tracker.give_up(1), None);
        let flush = tracker.begin_flush();
        assert!(flush.files.is_empty() && flush.in_doubt);
        tracker.end_flush(&flush, Duration::ZERO);
        tracker.confirm(&flush);
        assert_eq!(tracker.reached(1).unwrap().durable, 0);
        assert_eq!(tracker.dirty_open, 9, "it counts until the next try");
        open(&mut tracker, 1, 0);
        let flush = tracker.begin_flush();
        assert!(flush.files.len() == 1 && !flush.in_doubt);
        assert_eq!((tracker.dirty_open, tracker.flushing), (0, 9));
    }

    #[test]
    fn settled_bytes_are_ahead_until_they_are_durable() {
        let mut tracker = DurabilityTracker::new(None, false);
        let file = open(&mut tracker, 1, 10);
        tracker.settled(file, 60);
        tracker.settled(file, 30);
        assert_eq!(tracker.settled_ahead(), 50);
        tracker.written(file, 40);
        let flush = tracker.begin_flush();
        tracker.confirm(&flush);
        assert_eq!(tracker.settled_ahead(), 20);
    }

    #[test]
    fn the_bound_follows_the_device_unless_it_is_fixed() {
        let mut fixed = DurabilityTracker::<()>::new(Some(7), false);
        fixed.observe(1 << 30, Duration::from_secs(1));
        assert_eq!(fixed.bound(), 7);
        let mut tracker = DurabilityTracker::<()>::new(None, false);
        tracker.observe(1 << 20, Duration::from_millis(1));
        assert_eq!(tracker.bound(), BOUND_FIRST, "too little to tell");
        tracker.observe(400 << 20, Duration::from_secs(1));
        assert!(tracker.bound() > BOUND_MIN && tracker.bound() < BOUND_MAX);
        tracker.observe(40 << 30, Duration::from_secs(1));
        assert_eq!(tracker.bound(), BOUND_MAX);
    }

    #[test]
    fn waiting_names_are_bounded() {
        let mut tracker = DurabilityTracker::<()>::new(None, false);
        let early = (0..NAMES_MAX).filter(|_| tracker.name_waits()).count();
        assert_eq!(early, NAMES_MAX / 2 + 1);
        assert!(!tracker.has_room());
        let _ = tracker.begin_flush();
        assert!(tracker.has_room());
    }

    proptest! {
        /// Whatever happens in whatever order, the count of dirty bytes is the sum of what is dirty, and
        /// a flush with nothing written since leaves none.
        #[test]
        fn dirty_bytes_are_never_lost_or_counted_twice(
            steps in prop::collection::vec((0..6_u8, 0..3_u64, 0..50_u64), 0..60),
        ) {
            let mut tracker = DurabilityTracker::new(None, false);
            let (mut tries, mut flush) = (Vec::new(), None);
            for (step, token, number) in steps {
                let attempt = tries.get(number as usize % tries.len().max(1)).copied();
                match (step, attempt) {
                    (0, _) => tries.push(open(&mut tracker, token, 0)),
                    (1, Some(attempt)) => tracker.wrote(attempt, number),
                    (2, Some(attempt)) => {
                        // The device cannot take more than was written.
                        let sent = tracker.file(attempt).map_or(0, |file| file.sent.min(number));
                        tracker.clean(attempt, sent);
                    }
                    (3, _) => drop(tracker.close(token)),
                    (4, _) => flush = Some(tracker.begin_flush()),
                    (5, _) => {
                        if let Some(flush) = flush.take() {
                            tracker.end_flush(&flush, Duration::ZERO);
                        }
                    }
                    _ => {}
                }
                let dirty: u64 = tracker.files.values().map(|file| file.sent - file.clean).sum();
                prop_assert_eq!(tracker.dirty_open, dirty);
            }
            if let Some(flush) = flush {
                tracker.end_flush(&flush, Duration::ZERO);
            }
            let last = tracker.begin_flush();
            tracker.end_flush(&last, Duration::ZERO);
            prop_assert_eq!((tracker.dirty_open, tracker.dirty_closed, tracker.flushing), (0, 0, 0));
        }
    }
}
