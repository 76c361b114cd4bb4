//! What was seen when the share was connected to, for those who ask for it at once.
//!
//! A command looks at what its arguments name, then opens it, then lists it: three times the same within milliseconds,
//! each a round trip. The first look came with the connection; until something is changed through this client, and for a
//! moment only, it answers.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ropeway_smb_wire::Text;
use ropeway_smb_wire::info::DirectoryRecord;

use crate::open_summary::{NodeSummary, OpenSummary};

/// How long a look is as good as another. A guess: from the first argument to the first folder, and what a listing that
/// takes as long would miss as well.
const FRESH_MAX: Duration = Duration::from_secs(2);

/// The last look, by paths of the share.
#[derive(Debug, Default)]
pub(super) struct ListingCache(Mutex<Option<(Instant, OpenSummary)>>);

impl ListingCache {
    /// What was seen just now.
    pub(super) fn of(summary: OpenSummary) -> Self {
        Self(Mutex::new(Some((Instant::now(), summary))))
    }

    /// Something changes: what was seen is old.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What stands at a path, if that was seen.
    pub(super) fn node(&self, path: &Text) -> Option<NodeSummary> {
        self.with(|summary| {
            summary
                .nodes
                .iter()
                .find(|(at, _)| at == path)
                .map(|(_, node)| node.clone())
        })
    }

    /// All names of a directory, if they were seen.
    pub(super) fn names(&self, path: &Text) -> Option<Vec<DirectoryRecord>> {
        self.with(|summary| {
            summary
                .names
                .as_ref()
                .filter(|(at, _)| at == path)
                .map(|(_, names)| names.clone())
        })
    }

    fn with<T>(&self, find: impl FnOnce(&OpenSummary) -> Option<T>) -> Option<T> {
        let mut listing_cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listing_cache
            .as_ref()
            .is_some_and(|(at, _)| at.elapsed() > FRESH_MAX)
        {
            *listing_cache = None;
        }
        listing_cache.as_ref().and_then(|(_, summary)| find(summary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_entries_answer_until_a_change() {
        let summary = OpenSummary {
            nodes: vec![(Text::from("a"), NodeSummary::Missing)],
            names: Some((Text::from("b"), Vec::new())),
            ..OpenSummary::default()
        };
        let listing_cache = ListingCache::of(summary);
        assert!(matches!(
            listing_cache.node(&Text::from("a")),
            Some(NodeSummary::Missing)
        ));
        assert!(listing_cache.node(&Text::from("b")).is_none());
        assert!(
            listing_cache.names(&Text::from("b")).is_some()
                && listing_cache.names(&Text::from("a")).is_none()
        );
        listing_cache.forget();
        assert!(listing_cache.node(&Text::from("a")).is_none());
    }

    #[test]
    fn entries_expire() {
        let summary = OpenSummary {
            nodes: vec![(Text::from("a"), NodeSummary::Missing)],
            ..OpenSummary::default()
        };
        let Some(before) = Instant::now().checked_sub(2 * FRESH_MAX) else {
            return;
        };
        let listing_cache = ListingCache(Mutex::new(Some((before, summary))));
        assert!(listing_cache.node(&Text::from("a")).is_none());
    }
}
