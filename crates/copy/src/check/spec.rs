//! The input and the result of a comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropeway_plan::Filter;
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::Event;
use ropeway_vfs::{End, Error, Kind, Metadata, Owner, Preserve, RelPath, Timestamp, Tree};

use crate::clock::RuntimeClock;
use crate::job::outcome::{Status, hint_for};

/// What to compare.
#[derive(Clone)]
pub struct CheckSpec {
    /// The tree that counts as right.
    pub source: Arc<dyn Tree>,
    /// The node in it.
    pub source_path: RelPath,
    /// The tree to compare with it.
    pub target: Arc<dyn Tree>,
    /// The node in it.
    pub target_path: RelPath,
    /// Whether to compare content, not only size and time.
    pub checksum: bool,
    /// Modification times that differ by no more than this are equal.
    pub modify_window: Duration,
    /// Attributes that count.
    pub preserve: Preserve,
    /// Whether devices take part.
    pub devices: bool,
    /// Which nodes take part.
    pub filter: Filter,
    /// Tells how far it is, and pauses it.
    pub watch: CheckWatch,
}

/// What one end has at a place where both differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Kind of the node.
    pub kind: Kind,
    /// Logical size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Permission bits, where known.
    pub mode: Option<u32>,
    /// Owner and group, where known.
    pub owner: Option<Owner>,
}

impl From<&Metadata> for Side {
    fn from(metadata: &Metadata) -> Self {
        Self {
            kind: metadata.kind,
            size: metadata.size,
            modified: metadata.modified,
            mode: metadata.mode,
            owner: metadata.owner,
        }
    }
}

/// A difference with both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path below the root of the source. What only the target has is shown under the target's name.
    pub path: RelPath,
    /// Path below the root of the target, which may have mapped names.
    pub target_path: RelPath,
    /// `missing`, `extra`, `differs` or `attributes`.
    pub action: &'static str,
    /// What the source has.
    pub source: Option<Side>,
    /// What the target has.
    pub target: Option<Side>,
}

/// Receives differences; called in the order of the nodes.
pub type DifferenceSink = Arc<dyn Fn(&Difference) + Send + Sync>;

/// Watches and pauses a comparison, running or not. Clones watch the same one.
#[derive(Clone)]
pub struct CheckWatch(Arc<Watched>);

struct Watched {
    limit: Arc<RateLimit>,
    differs: Option<DifferenceSink>,
    files: AtomicU64,
    bytes: AtomicU64,
    differences: AtomicU64,
    errors: AtomicU64,
}

impl CheckWatch {
    /// Makes a watch.
    pub fn new() -> Self {
        Self::with(None)
    }

    /// Makes a watch that also passes on each difference with both sides.
    pub fn of_differences(differs: DifferenceSink) -> Self {
        Self::with(Some(differs))
    }

    fn with(differs: Option<DifferenceSink>) -> Self {
        Self(Arc::new(Watched {
            differs,
            limit: RateLimit::unlimited(Arc::new(RuntimeClock::new())),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }))
    }

    /// Returns what was found so far.
    pub fn outcome(&self) -> CheckOutcome {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CheckOutcome {
            files: get(&self.0.files),
            bytes: get(&self.0.bytes),
            differences: get(&self.0.differences),
            errors: get(&self.0.errors),
            tampered: false,
        }
    }

    /// Returns what holds the comparison while it is paused.
    pub fn limit(&self) -> &Arc<RateLimit> {
        &self.0.limit
    }

    pub(super) fn differs(&self, difference: &Difference) {
        if let Some(differs) = &self.0.differs {
            differs(difference);
        }
    }

    pub(super) fn show(&self, outcome: &CheckOutcome) {
        let set = |counter: &AtomicU64, value| counter.store(value, Ordering::Relaxed);
        set(&self.0.files, outcome.files);
        set(&self.0.bytes, outcome.bytes);
        set(&self.0.differences, outcome.differences);
        set(&self.0.errors, outcome.errors);
    }
}

impl Default for CheckWatch {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of a comparison. Each difference was reported as an [`Event::Item`] with the action
/// `missing`, `extra`, `differs` or `attributes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Number of nodes compared.
    pub files: u64,
    /// Logical bytes of the files among them.
    pub bytes: u64,
    /// Number of differences.
    pub differences: u64,
    /// Number of nodes that could not be compared.
    pub errors: u64,
    /// Whether messages were tampered with, which ended the comparison. Nothing is known of the
    /// rest.
    pub tampered: bool,
}

impl CheckOutcome {
    /// Returns the status, with the exit code 0, 7 or 2; 6 if messages were tampered with.
    pub fn status(&self) -> Status {
        if self.tampered {
            return Status::Network;
        }
        match (self.differences, self.errors) {
            (0, 0) => Status::Done,
            (0, _) => Status::SomeFailed,
            _ => Status::Differs,
        }
    }
}

pub(super) fn item_error(path: &RelPath, error: &Error, end: End) -> Event {
    let hint = hint_for(error.kind, end)
        .map(|hint| format!(" (hint: {hint})"))
        .unwrap_or_default();
    Event::ItemError {
        path: path.to_string(),
        op: error.op,
        kind: error.kind,
        message: format!("{error}{hint}"),
        on_source: end == End::Source,
        fatal: false,
    }
}
