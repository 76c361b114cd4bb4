//! What a job tells the outside: events as they happen, and counts for the summary. A fatal
//! failure also stops the job here.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::decorate::limit::{Admitted, RateLimit};
use ropeway_vfs::event::{Event, Summary};
use ropeway_vfs::{End, Error, Loss, RelPath, Verdict};
use tokio_util::sync::CancellationToken;

use crate::job::counters::Live;
use crate::job::failures::Failures;
use crate::job::outcome::{Fatal, hint_for};
use crate::job::probe::TargetProbe;

/// Receives events; called from many tasks.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// Events, counters, failures and losses of a job.
pub(crate) struct Report {
    sink: EventSink,
    reports_items: bool,
    pub(crate) live: Arc<Live>,
    pub(crate) failures: Failures,
    losses: Mutex<BTreeMap<Loss, u64>>,
    /// Tells whether an error at the target is the end of the target.
    pub(crate) probe: TargetProbe,
    /// Cancelled by the user, or by a fatal failure.
    cancel: CancellationToken,
    /// Holds new work while the job is paused, and keeps it to a rate.
    pub(crate) limit: Arc<RateLimit>,
}

impl Report {
    /// Makes an empty report. `reports_items` is whether each item is an event.
    pub(crate) fn new(
        sink: EventSink,
        live: Arc<Live>,
        reports_items: bool,
        (probe, cancel, limit): (TargetProbe, CancellationToken, Arc<RateLimit>),
    ) -> Self {
        Self {
            sink,
            reports_items,
            live,
            failures: Failures::default(),
            losses: Mutex::default(),
            probe,
            cancel,
            limit,
        }
    }

    /// Whether the job should stop: cancelled, or something fatal happened.
    pub(crate) fn stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.failures.is_fatal()
    }

    /// Stops the whole job. A pause ends.
    pub(crate) fn fatal(&self, fatal: Fatal) {
        self.failures.fatal(fatal);
        self.cancel.cancel();
        self.limit.resume();
    }

    /// Waits while the job is paused, before the next piece of work. Ends when the job stops.
    pub(crate) async fn pass(&self) {
        self.limit.pass().await;
    }

    /// Waits until work of `length` bytes may begin: while the job is paused, and for its turn if the
    /// user gave a rate to the running job.
    pub(crate) async fn admit(&self, length: u64) -> Admitted<'_> {
        self.limit.admit(length).await
    }

    /// Waits. Returns `false` if the job stopped meanwhile.
    pub(crate) async fn sleep(&self, span: Duration) -> bool {
        tokio::select! {
            biased;
            () = tokio::time::sleep(span) => !self.stopped(),
            () = self.cancel.cancelled() => false,
        }
    }

    /// Sends an event.
    pub(crate) fn emit(&self, event: Event) {
        (self.sink)(event);
    }

    /// Sends a message that is no error. `path` is the node that it concerns.
    pub(crate) fn note(&self, path: Option<&RelPath>, message: impl Into<String>) {
        self.emit(Event::Note {
            path: path.map(ToString::to_string),
            message: message.into(),
        });
    }

    /// Reports the failure of one item. Stops the job if nothing more can succeed. `path` is where
    /// the user looks for the item at this end, even if it is elsewhere for the moment.
    pub(crate) async fn fail(&self, path: &RelPath, mut error: Error, end: End) {
        error.path = path.clone();
        if self.stopped() && error.verdict() != Verdict::Skip {
            return;
        }
        let fatal = error.verdict() == Verdict::Abort
            || (end == End::Target && !self.probe.still_answers(&error).await);
        let hint = hint_for(error.kind, end)
            .map(|hint| format!(" (hint: {hint})"))
            .unwrap_or_default();
        self.emit(Event::ItemError {
            path: path.to_string(),
            op: error.op,
            kind: error.kind,
            message: format!("{error}{hint}"),
            on_source: end == End::Source,
            fatal,
        });
        self.failures.item(error.kind);
        if fatal {
            self.fatal(Fatal::from_error(&error, end));
        }
    }

    /// Reports a failed write of the journal. The copy goes on without it.
    pub(crate) fn journal_result(&self, result: Option<io::Result<()>>) {
        if let Some(Err(error)) = result {
            self.note(
                None,
                format!("the journal cannot be written ({error}); an interrupted copy starts over"),
            );
        }
    }

    /// Reports what was done to one node, if the user wants to know.
    pub(crate) fn item(&self, path: &RelPath, action: &'static str, bytes: u64) {
        if self.reports_items {
            self.emit(Event::Item {
                path: path.to_string(),
                action,
                bytes,
                reasons: Vec::new(),
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
    fn losses(&self) -> BTreeMap<Loss, u64> {
        self.losses.lock().clone()
    }

    /// Returns a summary of everything counted so far. `resumed` is whether the job continues an
    /// earlier run.
    pub(crate) fn summary(&self, resumed: bool) -> Summary {
        Summary {
            counters: self.live.counters(),
            differences: self.failures.differences(),
            errors: self.failures.items(),
            torn: self.failures.torn_copies(),
            repaired: self.failures.repairs(),
            losses: self.losses(),
            resumed,
            bytes_resumed: self.live.bytes_resumed.load(Ordering::Relaxed),
            bytes_reused: self.live.bytes_reused.load(Ordering::Relaxed),
            limit: self.live.limit_overall(),
            ..Summary::default()
        }
    }
}
