//! What a comparison is given, and what it finds.

use std::sync::Arc;
use std::time::Duration;

use ropeway_plan::Filter;
use ropeway_vfs::event::Event;
use ropeway_vfs::{End, Error, Preserve, RelPath, Tree};

use crate::job::outcome::{Status, hint_for};

/// What to compare.
#[derive(Clone)]
pub struct CheckSpec {
    /// The tree that is right.
    pub source: Arc<dyn Tree>,
    /// The node in it.
    pub source_path: RelPath,
    /// The tree to compare with it.
    pub target: Arc<dyn Tree>,
    /// The node in it.
    pub target_path: RelPath,
    /// Compare content, not only size and time.
    pub checksum: bool,
    /// Modification times that differ by no more than this are equal.
    pub modify_window: Duration,
    /// Attributes that count.
    pub preserve: Preserve,
    /// Devices take part.
    pub devices: bool,
    /// What takes part.
    pub filter: Filter,
}

/// What a comparison found. Each difference was reported as an [`Event::Item`] with the action
/// `missing`, `extra`, `differs` or `attributes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Nodes compared.
    pub files: u64,
    /// Logical bytes of the files among them.
    pub bytes: u64,
    /// Differences found.
    pub differences: u64,
    /// Nodes that could not be compared.
    pub errors: u64,
    /// Messages were changed on their way, which ended it: nothing is known of the rest.
    pub tampered: bool,
}

impl CheckOutcome {
    /// 0, 7 or 2; 6 if messages were changed on their way.
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
