//! Mounts, caches, write-back journals and runs as parts of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ropeway_boost::Status;
use ropeway_live::history::Totals;
use ropeway_live::model::{Backlog, Cache, Mount, Operation, Run, Snapshot};
use ropeway_live::{Messages, Part, View, bounded, clean, redact};
use ropeway_mount::Unmounter;

/// Longest name of a step in characters.
const STEP_MAX: usize = 200;

/// A mount as other processes see it.
pub(crate) struct MountPart {
    unmounter: Unmounter,
    source: String,
    mountpoint: String,
    read_only: bool,
}

impl MountPart {
    /// Makes the part of a mount.
    pub(crate) fn new(unmounter: Unmounter, source: &str, mountpoint: &str, read_only: bool) -> Self {
        Self {
            unmounter,
            source: redact::text(source),
            mountpoint: clean(mountpoint),
            read_only,
        }
    }
}

impl Part for MountPart {
    fn totals(&self) -> Totals {
        let counters = self.unmounter.counters();
        Totals {
            read: counters.bytes_read,
            written: counters.bytes_written,
            operations: counters.requests,
            ..Totals::default()
        }
    }

    fn describe(&self, view: View, snapshot: &mut Snapshot) {
        let counters = self.unmounter.counters();
        let known: u64 = counters.by_kind.iter().map(|(_, count)| count).sum();
        let other = ("other", counters.requests.saturating_sub(known));
        let kinds = counters.by_kind.into_iter().chain([other]);
        let operation = |count| Operation { count, seconds: 0.0 };
        snapshot.mounts.push(Mount {
            id: view.id,
            source: self.source.clone(),
            mountpoint: self.mountpoint.clone(),
            read_only: self.read_only,
            open_files: counters.open_files as u64,
            unflushed_bytes: counters.dirty,
            requests: counters.requests,
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            operations: kinds
                .filter(|(_, count)| *count > 0)
                .map(|(kind, count)| (kind.to_owned(), operation(count)))
                .collect(),
            rates: view.rates,
            history: view.history,
        });
    }
}

/// A flash cache in use.
pub(crate) struct CachePart(pub(crate) Arc<dyn Fn() -> Status + Send + Sync>);

impl Part for CachePart {
    fn describe(&self, view: View, snapshot: &mut Snapshot) {
        snapshot.caches.push(Cache {
            id: view.id,
            status: (self.0)(),
        });
    }
}

/// The write-back journals in use.
pub(crate) struct BacklogsPart(pub(crate) Arc<dyn Fn() -> Vec<Backlog> + Send + Sync>);

impl Part for BacklogsPart {
    fn describe(&self, _: View, snapshot: &mut Snapshot) {
        snapshot.backlogs.extend((self.0)());
    }
}

/// A run of the laboratory, of the demo and the like.
pub(crate) struct RunPart {
    kind: &'static str,
    name: String,
    begun: Instant,
    step: Mutex<String>,
    done: AtomicU64,
    total: AtomicU64,
    messages: Messages,
}

impl RunPart {
    /// Makes the part of a run that begins now.
    pub(crate) fn new(kind: &'static str, name: &str) -> Arc<Self> {
        Arc::new(Self {
            kind,
            name: clean(name),
            begun: Instant::now(),
            step: Mutex::default(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            messages: Messages::default(),
        })
    }

    /// Says how many steps there are, and how many of them were done before.
    pub(crate) fn planned(&self, total: u64, done: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Says what it does now.
    pub(crate) fn step(&self, text: &str) {
        *self.step.lock() = bounded(&clean(text), STEP_MAX);
    }

    /// Counts one step as done.
    pub(crate) fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a message.
    pub(crate) fn say(&self, is_error: bool, text: &str) {
        self.messages.add(is_error, text);
    }
}

impl Part for RunPart {
    fn describe(&self, view: View, snapshot: &mut Snapshot) {
        let (done, total) = (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        );
        snapshot.runs.push(Run {
            id: view.id,
            kind: self.kind.to_owned(),
            name: self.name.clone(),
            step: self.step.lock().clone(),
            done,
            // More may be done than was planned: a run is repeated.
            total: total.max(if total > 0 { done } else { 0 }),
            seconds: self.begun.elapsed().as_secs_f64(),
            messages: self.messages.all(),
        });
    }
}
