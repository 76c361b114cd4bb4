//! Position of a directory listing that continues from request to request.
//!
//! An open keeps one [`Scan`]. `files::directory` executes it. A scan holds one entry, a pattern of
//! bounded length and the store's own position.

use ropeway_smb_wire::Text;
use ropeway_vfs::store::{Entries, NodeStat};

/// A listing in progress.
pub(crate) struct Scan {
    pub(crate) pattern: Text,
    pub(crate) next: ScanPosition,
    /// The entry that did not fit in the previous response.
    pub(crate) deferred: Option<(Text, NodeStat)>,
    /// No response has been sent yet (`FirstQuery` in [MS-FSA] 2.1.5.6.3).
    pub(crate) first: bool,
}

/// What a listing returns next.
pub(crate) enum ScanPosition {
    Dot,
    DotDot,
    /// The first entry of the folder; the store has not been asked yet.
    First,
    Entries(Box<dyn Entries>),
    End,
}

impl Scan {
    /// Starts a listing. An empty pattern matches everything, as in NTFS.
    pub(crate) fn new(pattern: &Text) -> Self {
        Self {
            pattern: match pattern.is_empty() {
                true => "*".into(),
                false => pattern.clone(),
            },
            next: ScanPosition::Dot,
            deferred: None,
            first: true,
        }
    }

    /// Starts again, with another pattern unless that is empty ([MS-FSA] 2.1.5.6.3: a pattern stays
    /// until a restart brings another one).
    pub(crate) fn restart(&mut self, pattern: &Text) {
        if !pattern.is_empty() {
            self.pattern = pattern.clone();
        }
        self.next = ScanPosition::Dot;
        self.deferred = None;
    }
}
