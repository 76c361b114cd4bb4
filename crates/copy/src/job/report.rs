//! What a job tells the outside: events as they happen, and counts for the summary.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_vfs::event::Event;
use ropeway_vfs::{Loss, RelPath};

use crate::job::counters::Live;
use crate::job::failures::Failures;

/// Receives events; called from many tasks.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// Events, counters, failures and losses of a job.
pub(crate) struct Report {
    sink: EventSink,
    reports_items: bool,
    pub(crate) live: Arc<Live>,
    pub(crate) failures: Failures,
    losses: Mutex<BTreeMap<Loss, u64>>,
}

impl Report {
    /// Makes an empty report. `reports_items` is whether each item is an event.
    pub(crate) fn new(sink: EventSink, live: Arc<Live>, reports_items: bool) -> Self {
        Self {
            sink,
            reports_items,
            live,
            failures: Failures::default(),
            losses: Mutex::default(),
        }
    }

    /// Sends an event.
    pub(crate) fn emit(&self, event: Event) {
        (self.sink)(event);
    }

    /// Sends a message that is no error. `path` is what it is about.
    pub(crate) fn note(&self, path: Option<&RelPath>, message: impl Into<String>) {
        self.emit(Event::Note {
            path: path.map(ToString::to_string),
            message: message.into(),
        });
    }

    /// Reports what was done to one node, if the user wants to know.
    pub(crate) fn item(&self, path: &RelPath, action: &'static str, bytes: u64) {
        if self.reports_items {
            self.emit(Event::Item {
                path: path.to_string(),
                action,
                bytes,
            });
        }
    }

    /// Counts attributes that the target could not keep.
    pub(crate) fn lose(&self, losses: &[Loss]) {
        if losses.is_empty() {
            return;
        }
        let mut counted = self.losses.lock();
        for loss in losses {
            *counted.entry(*loss).or_default() += 1;
        }
    }

    /// Returns the attributes that the target could not keep, with their counts.
    pub(crate) fn losses(&self) -> BTreeMap<Loss, u64> {
        self.losses.lock().clone()
    }
}
