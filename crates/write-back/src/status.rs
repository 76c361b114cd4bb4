//! The figures of a journal, for people and programs.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_vfs::{Error, RelPath};
use serde::{Deserialize, Serialize};

use crate::shared::{Shared, now};

/// The file of a journal's folder that has the figures.
pub(crate) const STATUS: &str = "status.json";

/// Figures of a journal; the counters begin with the session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The far share.
    pub far: String,
    /// The process, and when these figures were taken in seconds since 1970.
    pub pid: u32,
    /// See [`pid`](Self::pid).
    pub updated: u64,
    /// Whether new writes go into the journal.
    pub accepts: bool,
    /// Files that the far share lacks data or attributes of, conflicts that are not saved yet
    /// included.
    pub files: u64,
    /// Bytes of data that it lacks.
    pub bytes: u64,
    /// Age of the oldest backlog in seconds.
    pub oldest_s: u64,
    /// Bytes of the near disk that the journal takes, small records counted as 4 KiB.
    pub journal_bytes: u64,
    /// Most bytes that it may take.
    pub journal_bytes_max: u64,
    /// Bytes brought to the far share.
    pub drained_bytes: u64,
    /// Backlogs saved under another name, because others had changed the file.
    pub conflicts: u64,
    /// The last name under which one was saved.
    pub last_conflict: String,
    /// Why a file's backlog waits; empty if none does.
    pub last_error: String,
    /// Why writes go to the far share directly; empty if they do not.
    pub failing_because: String,
    /// Files whose journal was damaged.
    pub damaged: u64,
}

impl Status {
    /// Returns the figures last written to a journal's folder.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(STATUS)).ok()?).ok()
    }
}

/// Counters.
#[derive(Default)]
pub(crate) struct Figures {
    drained: AtomicU64,
    conflicts: AtomicU64,
    pub(crate) damaged: AtomicU64,
    texts: Mutex<Texts>,
}

#[derive(Default)]
struct Texts {
    last_conflict: String,
    last_error: String,
    failing_because: String,
}

impl Figures {
    pub(crate) fn drained(&self, bytes: u64) {
        self.drained.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn conflict(&self, saved: &RelPath) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
        self.texts.lock().last_conflict = saved.to_string();
    }

    pub(crate) fn failed(&self, path: &RelPath, error: &Error) {
        self.texts.lock().last_error = format!("{path}: {error}");
    }

    pub(crate) fn works_again(&self) {
        self.texts.lock().last_error.clear();
    }

    pub(crate) fn fails(&self, error: &std::io::Error) {
        self.texts.lock().failing_because = error.to_string();
    }

    pub(crate) fn works(&self) {
        let mut texts = self.texts.lock();
        if !texts.failing_because.is_empty() {
            texts.failing_because.clear();
        }
    }
}

impl Shared {
    pub(crate) fn status(&self) -> Status {
        let (mut bytes, mut oldest) = (0, i128::MAX);
        for file in self.with_backlog() {
            let state = file.state.lock();
            if let Some(pending) = &state.pending {
                bytes += pending.backlog.bytes();
                oldest = oldest.min(pending.since.0);
            }
        }
        let now = now();
        let age_ns = now.0.saturating_sub(oldest).max(0);
        let texts = self.figures.texts.lock();
        let files = self.backlogs.load(Ordering::Acquire) as u64;
        let last_error = if files == 0 {
            String::new()
        } else {
            texts.last_error.clone()
        };
        Status {
            far: self.options.far.clone(),
            pid: std::process::id(),
            updated: now.to_unix().0.unsigned_abs(),
            accepts: self.options.accepts,
            files,
            bytes,
            oldest_s: u64::try_from(age_ns / 1_000_000_000).unwrap_or(0),
            journal_bytes: self.space.used.load(Ordering::Acquire),
            journal_bytes_max: self.options.bytes_max,
            drained_bytes: self.figures.drained.load(Ordering::Relaxed),
            conflicts: self.figures.conflicts.load(Ordering::Relaxed),
            last_conflict: texts.last_conflict.clone(),
            last_error,
            failing_because: texts.failing_because.clone(),
            damaged: self.figures.damaged.load(Ordering::Relaxed),
        }
    }

    /// Returns the files with a backlog; those with a conflict only while they wait for a worker.
    fn with_backlog(&self) -> Vec<std::sync::Arc<crate::files::File>> {
        let mut files = self.files.select(|state| state.pending.is_some());
        files.extend(self.queue.lost());
        files
    }
}
