//! The shared state of a running job, for its steps.
//!
//! [`Context`] joins parts that do not know each other: the immutable [`JobConfig`], the [`Report`]
//! to the outside, the bounded [`Resources`], durability, temporary names, and what some options
//! remember. A part never uses the context. The steps (`walk`, `transfer`, `name`, `durable`,
//! `verify`, `sweep`, `delete`) take it and use the parts that they need.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_plan::DeleteGuard;
use ropeway_vfs::event::{Event, Summary};
use ropeway_vfs::{
    End, EndError, Error, Loss, Metadata, MetadataChange, Op, RelPath, SDDL_XATTR, Verdict, Xattr,
};
use tokio_util::sync::CancellationToken;

use crate::delete::copied_nodes::CopiedNodes;
use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::outcome::{Fatal, hint_for};
use crate::job::report::Report;
use crate::job::resources::Resources;
use crate::journal::open::Journal;
use crate::name::kept_versions::KeptVersions;
use crate::sweep::temporaries::Temporaries;
use crate::transfer::link_table::LinkTable;
use crate::verify::hashes::Hashes;
use crate::walk::listing_cache::ListingCache;

/// The shared state of a job.
pub(crate) struct Context {
    pub(crate) config: JobConfig,
    pub(crate) report: Report,
    pub(crate) resources: Resources,
    /// Cancelled by the user, or by a fatal failure.
    pub(crate) cancel: CancellationToken,
    pub(crate) journal: Option<Journal>,
    /// What is known of temporary names on the target, this job's and others'.
    pub(crate) temporaries: Temporaries,
    pub(crate) durability: DurabilityControl,
    /// Files with several names.
    pub(crate) link_table: LinkTable,
    pub(crate) hashes: Option<Hashes>,
    /// Bounds the deletions of a mirror.
    pub(crate) delete_guard: Mutex<Option<DeleteGuard>>,
    /// Files that are overwritten in place and whose old content is kept.
    pub(crate) kept_versions: KeptVersions,
    /// The nodes that a move has copied.
    pub(crate) copied_nodes: CopiedNodes,
    /// Folders that the counting walk listed for the copying walk.
    pub(crate) listing_cache: ListingCache,
}

impl Context {
    /// Whether the job should stop: cancelled, or something fatal happened.
    pub(crate) fn stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.report.failures.is_fatal()
    }

    /// Whether a watch was interrupted after its first pass, which is its normal end.
    pub(crate) fn watch_ended(&self) -> bool {
        self.config.options.watch && self.report.live.walk_final.load(Ordering::Acquire)
    }

    /// Stops the whole job.
    pub(crate) fn fatal(&self, fatal: Fatal) {
        self.report.failures.fatal(fatal);
        self.cancel.cancel();
    }

    /// Records the failure of one item. Stops the job if nothing more can succeed. `path` is where
    /// the user looks for the item, even if it is elsewhere for the moment.
    pub(crate) async fn fail(&self, path: &RelPath, mut error: Error, end: End) {
        error.path = path.clone();
        if self.stopped() && error.verdict() != Verdict::Skip {
            return;
        }
        let fatal =
            error.verdict() == Verdict::Abort || (end == End::Target && !self.target_answers(&error).await);
        let hint = hint_for(error.kind, end)
            .map(|hint| format!(" (hint: {hint})"))
            .unwrap_or_default();
        self.report.emit(Event::ItemError {
            path: path.to_string(),
            op: error.op,
            kind: error.kind,
            message: format!("{error}{hint}"),
            on_source: end == End::Source,
            fatal,
        });
        self.report.failures.item(error.kind);
        if fatal {
            self.fatal(Fatal::from_error(&error, end));
        }
    }

    /// Whether the target still accepts anything, after an error of the device.
    async fn target_answers(&self, error: &Error) -> bool {
        use ropeway_vfs::ErrorKind as K;
        if !matches!(error.kind, K::DeviceError | K::Other | K::NotFound) {
            return true;
        }
        self.temporaries.probes();
        let made = match self.config.target.make_dir(&self.probe(), 0o700).await {
            Ok(()) => true,
            Err(refused) => refused.kind == K::AlreadyExists || refused.kind == K::PermissionDenied,
        };
        if made {
            // If this fails, the end of this run or the next run removes it.
            let _ = self.remove_probe().await;
        }
        made
    }

    fn probe(&self) -> RelPath {
        RelPath::root().join(&self.config.probe_name())
    }

    /// Removes the folder with which this run or an earlier one tested the target. Returns whether
    /// it was there. No claim names it.
    ///
    /// # Errors
    /// It could not be removed.
    pub(crate) async fn remove_probe(&self) -> Result<bool, Error> {
        match self.config.target.remove_dir(&self.probe()).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind.is_absence() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the attributes that a node gets on the target. They include a creation time only if
    /// the target can set one: otherwise each file of every local copy would be a loss.
    pub(crate) fn change_of(&self, metadata: &Metadata, mut xattrs: Option<Vec<Xattr>>) -> MetadataChange {
        if let Some(xattrs) = &mut xattrs {
            let before = xattrs.len();
            xattrs.retain(|xattr| xattr.name != SDDL_XATTR || !xattr.value.is_empty());
            if xattrs.len() < before {
                // The source has a descriptor and does not let us read it.
                self.report.lose(&[Loss::Acl]);
            }
        }
        let mut change = MetadataChange::of(metadata, &self.config.options.preserve, xattrs);
        if !self.config.target.capabilities().creation_times {
            change.created = None;
        }
        change
    }

    /// Returns the attributes that a complete file gets. The modification time is always among
    /// them, because later runs compare it and resuming depends on it.
    pub(crate) fn change_of_file(&self, metadata: &Metadata, xattrs: Option<Vec<Xattr>>) -> MetadataChange {
        let mut change = self.change_of(metadata, xattrs);
        if change.mode.is_none() && self.config.target.capabilities().modes {
            change.mode = Some(0o644);
        }
        change.modified = metadata.modified.known();
        change
    }

    /// Runs `operation` until it succeeds, fails for good, or has no tries left. `seed` spreads the
    /// pauses of different items.
    pub(crate) async fn with_retries<T, F, Fut>(&self, seed: u64, mut operation: F) -> Result<T, EndError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, EndError>>,
    {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let EndError { end, error } = match operation().await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            // An operation that hung for all of --timeout still holds its blocks, so it gets no
            // other try.
            let hung =
                error.kind == ropeway_vfs::ErrorKind::TimedOut && self.config.options.timeout.is_some();
            let pause = match error.verdict() {
                Verdict::Retry if !self.stopped() && !hung => self.config.options.retry.delay(attempt, seed),
                _ => None,
            };
            let Some(pause) = pause else {
                return Err(EndError { end, error });
            };
            self.report.live.retries.fetch_add(1, Ordering::Relaxed);
            if !self.sleep(pause).await {
                return Err(EndError { end, error });
            }
        }
    }

    /// Waits. Returns `false` if the job stopped meanwhile.
    pub(crate) async fn sleep(&self, span: Duration) -> bool {
        tokio::select! {
            biased;
            () = tokio::time::sleep(span) => !self.stopped(),
            () = self.cancel.cancelled() => false,
        }
    }

    /// Reports a failure to write the journal. The copy goes on without it.
    pub(crate) fn journalled(&self, result: Option<std::io::Result<()>>) {
        if let Some(Err(error)) = result {
            self.report.note(
                None,
                format!("the journal cannot be written ({error}); an interrupted copy starts over"),
            );
        }
    }
}

/// Returns the error of an operation that ended because the job stops.
pub(crate) fn cancelled(op: Op, path: &RelPath) -> Error {
    Error::new(op, path, ropeway_vfs::ErrorKind::Cancelled)
}

/// Returns a summary of everything counted so far.
pub(crate) fn summarize(context: &Context) -> Summary {
    Summary {
        counters: context.report.live.counters(),
        differences: context.report.failures.differences(),
        errors: context.report.failures.items(),
        torn: context.report.failures.torn_copies(),
        repaired: context.report.failures.repairs(),
        losses: context.report.losses(),
        resumed: context
            .journal
            .as_ref()
            .is_some_and(|journal| journal.memory().resumed()),
        bytes_resumed: context.report.live.bytes_resumed.load(Ordering::Relaxed),
        limit: context.report.live.limit_overall(),
        ..Summary::default()
    }
}
