//! The input and the result of a comparison.

use std::sync::Arc;
use std::time::Duration;

use ropeway_plan::Filter;
use ropeway_vfs::event::Event;
use ropeway_vfs::{End, Error, Preserve, RelPath, Tree};

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
