//! The input and the result of a comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropeway_plan::Filter;
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::{Event, Reason};
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
    /// Why they differ; empty if only one end has the node.
    pub reasons: Vec<Reason>,
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
    folders: AtomicU64,
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
            folders: AtomicU64::new(0),
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
            folders: get(&self.0.folders),
            bytes: get(&self.0.bytes),
            differences: get(&self.0.differences),
            tally: Tally::default(),
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
        set(&self.0.folders, outcome.folders);
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

/// Differences by kind. A node with several reasons counts for the first of: missing or extra, kind,
/// content (also a link's), size, time, mode, owner, other attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Only the source has it.
    pub missing: u64,
    /// Only the target has it.
    pub extra: u64,
    /// Kind of the node.
    pub kind: u64,
    /// Content, or where a link points.
    pub content: u64,
    /// Size, if contents were not read.
    pub size: u64,
    /// Time of last change.
    pub time: u64,
    /// Permission bits.
    pub mode: u64,
    /// Owner or group alone.
    pub owner: u64,
    /// Other attributes.
    pub other: u64,
}

impl Tally {
    /// Counts a difference.
    pub(super) fn add(&mut self, action: &str, reasons: &[Reason]) {
        let has = |wanted: &[&str]| reasons.iter().any(|reason| wanted.contains(&reason.name()));
        let counter = match action {
            "missing" => &mut self.missing,
            "extra" => &mut self.extra,
            _ if has(&["kind"]) => &mut self.kind,
            _ if has(&["content", "link"]) => &mut self.content,
            _ if has(&["size"]) => &mut self.size,
            _ if has(&["time"]) => &mut self.time,
            _ if has(&["mode"]) => &mut self.mode,
            _ if has(&["owner"]) => &mut self.owner,
            _ => &mut self.other,
        };
        *counter += 1;
    }
}

/// The result of a comparison. Each difference was reported as an [`Event::Item`] with the action
/// `missing`, `extra`, `differs` or `attributes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Number of nodes compared that are no folders, as a copy counts them.
    pub files: u64,
    /// Number of folders compared.
    pub folders: u64,
    /// Logical bytes of the files among them.
    pub bytes: u64,
    /// Number of differences.
    pub differences: u64,
    /// Number of each kind of difference.
    pub tally: Tally,
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
