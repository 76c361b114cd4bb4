//! A short-lived cache of what was read when the share was connected.
//!
//! A command checks what its arguments name, then opens it, then lists it: the same queries within
//! milliseconds, each a round trip. The connection already brought the answers. The cache serves
//! them for a moment, until something is changed through this client.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_smb_wire::Text;
use ropeway_smb_wire::info::DirectoryRecord;

use crate::open_summary::{NodeSummary, OpenSummary};

/// How long an entry stays valid. A guess: the time from the first argument to the first folder,
/// and no more than what a listing of that duration would miss as well.
const FRESH_MAX: Duration = Duration::from_secs(2);

/// The last summary, by paths of the share.
#[derive(Debug, Default)]
pub(crate) struct ListingCache(Mutex<Option<(Instant, OpenSummary)>>);

impl ListingCache {
    /// Creates a cache that holds a fresh summary.
    pub(super) fn of(summary: OpenSummary) -> Self {
        Self(Mutex::new(Some((Instant::now(), summary))))
    }

    /// Discards all entries, since something changes.
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Returns the node at a path, if it is cached.
    pub(super) fn node(&self, path: &Text) -> Option<NodeSummary> {
        self.with(|summary| {
            summary
                .nodes
                .iter()
                .find(|(at, _)| at == path)
                .map(|(_, node)| node.clone())
        })
    }

    /// Returns all names of a directory, if they are cached.
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
        let mut listing_cache = self.0.lock();
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
