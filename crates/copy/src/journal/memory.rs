//! What earlier runs of a job left, and how much of it may be trusted.
//!
//! A file of the target that looks complete may lack data: after a power cut, because its data
//! never left the page cache; after a failed flush, because the kernel dropped the pages.
//! [`Memory::trusts`] decides, in this order:
//!
//! 1. All runs were in this boot and no flush failed: the page cache still has everything.
//! 2. The file stands under its final name in a folder that users see, every run gave such names
//!    only after a sync, and no flush failed: it is durable.
//! 3. The change time of the file tells the run that wrote it. The file is trusted unless it falls
//!    into a *doubt*: the time between what the run knew to be durable and the begin of the next
//!    run.
//!
//! Change times are worthless once the clock was set back. The run that sees such a step records
//! it. A run that begins before moments that an earlier one recorded shows it as well. One case
//! remains: a step that no look saw, back to a time that the run had already called durable, with a
//! power cut before the next look two seconds later.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_plan::{MadeNode, Nonce, Version};
use ropeway_vfs::{Metadata, Timestamp};

use crate::journal::record::Record;
use crate::journal::token::Token;
use crate::mutations::{self, Mutation};

/// Before every moment.
const EVER: Timestamp = Timestamp(i128::MIN);

/// One run.
#[derive(Clone, Debug)]
struct Epoch {
    boot: String,
    started: Timestamp,
    /// Everything on the target that changed earlier is durable.
    durable_before: Option<Timestamp>,
    /// Whether it gave final names only to what was durable.
    names_durable: bool,
    /// Set if a flush failed then or later: what changed after this moment may be lost.
    lost_after: Option<Timestamp>,
}

impl Epoch {
    /// Whether the page cache still has what it wrote. An unknown boot has none.
    fn is_cached(&self, boot: &str) -> bool {
        let is_this = !boot.is_empty() && self.boot == boot;
        (is_this || mutations::is(Mutation::OtherBootTrusted)) && self.lost_after.is_none()
    }
}

/// What an earlier run recorded of one file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileRecord {
    /// The version of the source that was read.
    pub(crate) source: Version,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    /// The file that was written, if it is known.
    pub(crate) target: Option<MadeNode>,
    /// Whether it was written in the running boot and no flush has failed since.
    pub(crate) same_boot: bool,
    /// Whether a flush failed after it was begun.
    pub(crate) lost: bool,
    /// Whether a backup holds what the target replaced.
    is_kept: bool,
    /// Set if it is finished.
    closed: Option<Closed>,
}

/// When a file was finished, or a folder got its final name.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Closed {
    /// The number of flushes recorded before.
    syncs: u32,
    /// The index of the epoch.
    epoch: usize,
}

/// What earlier runs of a job left.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(super) nonce: Option<Nonce>,
    epochs: Vec<Epoch>,
    files: HashMap<Token, FileRecord>,
    /// Folders under temporary names. For one that got its final name: when.
    folders: HashMap<Token, (MadeNode, Option<Closed>)>,
    syncs: u32,
    /// Whether the clock was set back.
    stepped: bool,
    /// The latest recorded moment.
    latest: Option<Timestamp>,
    /// When the run that reads this began.
    now: Option<Timestamp>,
    /// Whether this run learned that an earlier flush failed.
    lost_since: AtomicBool,
    /// Whether a run met files with several names: a change time may be younger than the data.
    relinks: AtomicBool,
}

impl Memory {
    /// Whether there was an earlier run.
    pub(crate) fn resumed(&self) -> bool {
        !self.epochs.is_empty()
    }

    /// As [`Journal::may_be_unfinished`](super::open::Journal::may_be_unfinished).
    pub(crate) fn may_be_unfinished(&self, found: &Metadata, grain_ns: u64) -> bool {
        let Some(first) = self.epochs.first() else {
            return false;
        };
        let is_of_a_write = |changed: Timestamp| changed.equal_within(found.modified, grain_ns);
        found.changed.is_some_and(is_of_a_write) || found.modified.0 + i128::from(grain_ns) >= first.started.0
    }

    /// Whether a run was in another boot than this one, or in an unknown one.
    pub(crate) fn has_other_boot(&self, boot: &str) -> bool {
        self.epochs
            .iter()
            .any(|epoch| boot.is_empty() || epoch.boot != boot)
    }

    pub(crate) fn file(&self, token: Token) -> Option<FileRecord> {
        let mut file = self.files.get(&token).copied()?;
        if self.is_lost_since() {
            file.lose();
        }
        Some(file)
    }

    /// Whether `found` is surely a file that a run wrote, and that may not be durable; `source` is
    /// what it is a copy of.
    pub(crate) fn has_made(&self, found: &Metadata, source: &Metadata) -> bool {
        let mut made = self.files.values().filter_map(|file| file.target);
        made.any(|made| made.has_number() && made.is(found, source))
    }

    /// Whether an earlier run made a backup of this file, and `found` is what took the place of the
    /// version that is kept. `source` is what it is a copy of.
    pub(crate) fn is_kept(&self, token: Token, found: &Metadata, source: &Metadata) -> bool {
        let record = self.files.get(&token).filter(|record| record.is_kept);
        let made = record.and_then(|record| record.target);
        made.is_some_and(|made| made.is(found, source))
    }

    /// Whether `found` is surely a file that an earlier run was overwriting in place after it had
    /// made a backup.
    pub(crate) fn has_kept(&self, found: &Metadata) -> bool {
        let kept = self.files.values().filter(|file| file.is_kept);
        let nothing = Metadata::bare(found.kind, 0, found.modified);
        let mut made = kept.filter_map(|file| file.target);
        made.any(|made| made.has_number() && made.is(found, &nothing))
    }

    /// Whether names that users see may stand for data that an earlier run did not make durable.
    pub(crate) fn has_doubts(&self) -> bool {
        self.has_lost() || self.epochs.iter().any(|epoch| !epoch.names_durable)
    }

    /// Whether a flush failed in any run of this job.
    pub(crate) fn has_lost(&self) -> bool {
        self.is_lost_since() || self.epochs.iter().any(|epoch| epoch.lost_after.is_some())
    }

    /// Returns the folder that a run made under a temporary name for this node.
    pub(crate) fn folder(&self, token: Token) -> Option<MadeNode> {
        self.folders.get(&token).map(|(made, _)| *made)
    }

    /// Whether a file that looks complete on the target, last changed at `changed`, has all its
    /// data. `unseen` is whether it stands where this job writes before anything is durable: under
    /// a temporary name, or in a hidden folder.
    pub(crate) fn trusts(&self, changed: Option<Timestamp>, unseen: bool, boot: &str) -> bool {
        let lost = self.has_lost();
        let cached = |epoch: &Epoch| epoch.is_cached(boot);
        if !lost && self.epochs.iter().all(cached) {
            return true;
        }
        if !lost
            && !unseen
            && self
                .epochs
                .iter()
                .all(|epoch| epoch.names_durable || cached(epoch))
        {
            return true;
        }
        let Some(changed) = changed.filter(|_| !self.stepped) else {
            return false;
        };
        !self.doubts(unseen, boot).any(|doubt| doubt.contains(&changed))
    }

    /// Returns the change times for which nothing shows that the data is there.
    fn doubts(&self, unseen: bool, boot: &str) -> impl Iterator<Item = Range<Timestamp>> {
        let is_safe = move |epoch: &Epoch| epoch.is_cached(boot) || (!unseen && epoch.names_durable);
        let begin = self.epochs.first().map_or(EVER, |epoch| epoch.started);
        // A file of this job that claims to be older than the job.
        let older = (unseen || !self.epochs.iter().all(is_safe)).then_some(EVER..begin);
        let lost_now = self
            .is_lost_since()
            .then(|| self.watermark().unwrap_or(EVER)..self.end_of(self.epochs.len()));
        let of_epochs = self.epochs.iter().enumerate().filter_map(move |(at, epoch)| {
            let unsynced = (!is_safe(epoch)).then(|| epoch.durable_before.unwrap_or(epoch.started));
            let from = match (unsynced, epoch.lost_after) {
                (Some(unsynced), Some(lost)) => unsynced.min(lost),
                (one, other) => one.or(other)?,
            };
            Some(from..self.end_of(at + 1))
        });
        older.into_iter().chain(lost_now).chain(of_epochs)
    }

    /// Returns when the epoch at `next` began. The running one comes after the last.
    fn end_of(&self, next: usize) -> Timestamp {
        if self.relinks.load(Ordering::Acquire) {
            return Timestamp(i128::MAX);
        }
        let started = self.epochs.get(next).map(|epoch| epoch.started);
        started.or(self.now).unwrap_or(Timestamp(i128::MAX))
    }

    /// Returns the latest moment for which everything older was durable.
    fn watermark(&self) -> Option<Timestamp> {
        self.epochs.iter().filter_map(|epoch| epoch.durable_before).max()
    }

    /// Notes that a flush failed before this run, which is the first to hear of it.
    pub(crate) fn lose(&self) {
        self.lost_since.store(true, Ordering::Release);
    }

    /// Notes that names of files with several names are made or removed.
    pub(crate) fn relink(&self) {
        self.relinks.store(true, Ordering::Release);
    }

    fn is_lost_since(&self) -> bool {
        self.lost_since.load(Ordering::Acquire)
    }

    /// Notes that the run that reads this begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.now = Some(now);
        self.moment(now);
    }

    /// Adds a recorded moment. It is not earlier than one before, unless the clock was set back.
    fn moment(&mut self, moment: Timestamp) {
        self.stepped |= self.latest.is_some_and(|latest| moment < latest);
        self.latest = self.latest.max(Some(moment));
    }

    pub(super) fn apply(&mut self, record: Record, boot: &str) {
        let same_boot = self.epochs.last().is_some_and(|epoch| epoch.is_cached(boot));
        match record {
            Record::Begin(begin) => {
                self.moment(begin.started);
                self.nonce.get_or_insert(Nonce(begin.nonce));
                self.epochs.push(Epoch {
                    boot: begin.boot,
                    started: begin.started,
                    durable_before: None,
                    names_durable: begin.names_durable,
                    lost_after: None,
                });
            }
            Record::File {
                token,
                source,
                durable,
                target,
                is_kept,
            } => {
                let before = self.files.get(&token);
                let was_kept = before.is_some_and(|before| before.is_kept && before.target == target);
                let record = FileRecord {
                    source,
                    written: durable,
                    durable,
                    target,
                    same_boot,
                    lost: false,
                    is_kept: is_kept || was_kept,
                    closed: None,
                };
                self.files.insert(token, record);
            }
            Record::Folder { token, made } => {
                self.folders.insert(token, (made, None));
            }
            Record::Written { token, upto } => {
                if let Some(file) = self.files.get_mut(&token) {
                    file.written = file.written.max(upto);
                    file.same_boot = same_boot;
                }
            }
            Record::Durable { before, files } => self.durable(before, files),
            Record::Closed { token } => {
                // Kept until it is durable: a power cut may undo its name, but not what was durable
                // of its data.
                let now = Closed {
                    syncs: self.syncs,
                    epoch: self.epochs.len().saturating_sub(1),
                };
                if let Some(file) = self.files.get_mut(&token) {
                    file.closed = Some(now);
                }
                if let Some((_, closed)) = self.folders.get_mut(&token) {
                    *closed = Some(now);
                }
            }
            Record::Lost {} => {
                let after = self.watermark().unwrap_or(EVER);
                for epoch in &mut self.epochs {
                    epoch.lost_after.get_or_insert(after);
                }
                self.files.values_mut().for_each(FileRecord::lose);
            }
            Record::ClockStepped {} => self.stepped = true,
            Record::Links {} => self.relink(),
            Record::Place { .. } => {}
        }
    }

    fn durable(&mut self, before: Timestamp, files: Vec<(Token, u64)>) {
        self.moment(before);
        if let Some(epoch) = self.epochs.last_mut() {
            epoch.durable_before = Some(before);
        }
        // The flush after the one that may have been under way when a file was finished covers it,
        // unless a power cut or a failed flush took something of it before.
        self.syncs += 1;
        let (syncs, epochs) = (self.syncs, &self.epochs);
        let is_covered = |closed: Closed| closed.syncs + 2 <= syncs && is_last_boot(epochs, closed.epoch);
        let is_needed = |closed: Option<Closed>| !closed.is_some_and(is_covered);
        self.files.retain(|_, file| file.lost || is_needed(file.closed));
        self.folders.retain(|_, (_, closed)| is_needed(*closed));
        for (token, upto) in files {
            if let Some(file) = self.files.get_mut(&token) {
                file.durable = file.durable.max(upto);
            }
        }
    }
}

/// Whether an epoch is in the boot of the last one.
fn is_last_boot(epochs: &[Epoch], epoch: usize) -> bool {
    let boot = |at: usize| {
        epochs
            .get(at)
            .map(|epoch| &epoch.boot)
            .filter(|boot| !boot.is_empty())
    };
    let last = epochs.len().saturating_sub(1);
    epoch == last || boot(epoch).is_some_and(|one| boot(last) == Some(one))
}

impl FileRecord {
    /// Only what was durable is left of it, at most.
    fn lose(&mut self) {
        self.written = self.durable;
        self.same_boot = false;
        self.lost = true;
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
