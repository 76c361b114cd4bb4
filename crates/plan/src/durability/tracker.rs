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
    version: Version,
    made: Option<MadeNode>,
}

/// What a flush covers, as of its begin.
#[derive(Clone, Debug)]
pub struct Flush<F> {
    /// Files that were open.
    pub files: Vec<FlushedFile<F>>,
    /// Tokens of files that were open at [`DurabilityTracker::mark`] and closed before the flush
    /// began, and up to where they were written at the mark. Only a flush of the whole tree covers
    /// them.
    pub ended: Vec<(u64, u64)>,
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
    /// Where this try began.
    start: u64,
    written: u64,
    /// How far it was written at the last mark.
    marked: Option<u64>,
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
    /// Files that were closed since the last mark, as in [`Flush::ended`].
    ended: Vec<(u64, u64)>,
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
            ended: Vec::new(),
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
            start: written,
            written,
            marked: None,
            settled: written,
            durable: written,
            sent: 0,
            clean: 0,
            version,
            made,
            failed: false,
            in_doubt: false,
        };
        self.ended.retain(|(ended, _)| *ended != token);
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
        let ended = file.as_ref().filter(|file| !file.failed && !file.in_doubt);
        if let Some(upto) = ended.and_then(|file| file.marked) {
            self.ended.push((token, upto));
        }
        self.unfollow(file)
    }

    /// Notes how far each open file is written. A file that is closed between this and the next
    /// [`begin_flush`](Self::begin_flush) is covered up to there.
    pub fn mark(&mut self) {
        self.ended.clear();
        for file in self.files.values_mut() {
            file.marked = file.handle.is_some().then_some(file.written);
        }
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
        let file = self.files.get_mut(&token)?;
        file.marked = None;
        file.handle.take()
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
                version: file.version,
                made: file.made,
            })
        });
        let flush = Flush {
            files: files.collect(),
            ended: std::mem::take(&mut self.ended),
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

    /// Returns the tokens of the files of a flush that has ended, and up to where they are durable.
    /// A file that a later try writes from its beginning, perhaps in another version, is not among
    /// them: the same bytes are overwritten.
    pub fn durable_files(&self, flush: &Flush<F>) -> Vec<(u64, u64)> {
        let goes_on = |part: &&FlushedFile<F>| match self.files.get(&part.token) {
            Some(file) if file.number != part.attempt.number => {
                file.start >= part.written && file.version.is_same(&part.version) && file.made == part.made
            }
            _ => true,
        };
        let open = flush.files.iter().filter(goes_on);
        let ended = flush
            .ended
            .iter()
            .filter(|(token, _)| !self.files.contains_key(token));
        open.map(|part| (part.token, part.written))
            .chain(ended.copied())
            .collect()
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
#[path = "tracker_tests.rs"]
mod tests;
