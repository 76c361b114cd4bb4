//! The folders that are being listed ahead of programs.
//!
//! A server does not rename or remove a folder that somebody has open, and a listing has its folder
//! open. So a change of a folder first bars it: the listings at and beneath it end, and none begins.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::RelPath;
use tokio::time::{Instant, sleep};

/// Listings at the same time. A guess: more fill a line for longer than they save.
const LISTED_MAX: usize = 32;
/// How long a change waits for the listings, and the pause between two looks.
pub(super) const WAIT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(2);

/// The folders that are being listed, and those that are being changed.
#[derive(Debug, Default)]
pub(super) struct ListingsAhead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    listed: HashSet<RelPath>,
    barred: Vec<RelPath>,
}

/// A folder at which and beneath which no listing begins, until this is dropped.
pub(super) struct Barred<'a> {
    listings: &'a ListingsAhead,
    path: RelPath,
}

impl ListingsAhead {
    /// Begins a listing. `false`: it is under way, the folder is being changed, or there are too many.
    pub(super) fn begin(&self, dir: &RelPath) -> bool {
        let mut state = self.state.lock();
        let is_barred = state.barred.iter().any(|path| dir.strip_prefix(path).is_some());
        !is_barred && state.listed.len() < LISTED_MAX && state.listed.insert(dir.clone())
    }

    /// Ends a listing that was begun.
    pub(super) fn ended(&self, dir: &RelPath) {
        self.state.lock().listed.remove(dir);
    }

    /// Bars a folder, and waits until no folder at or beneath it is being listed, for a second at most.
    pub(super) async fn bar(&self, path: &RelPath) -> Barred<'_> {
        self.state.lock().barred.push(path.clone());
        let barred = Barred {
            listings: self,
            path: path.clone(),
        };
        let is_listed = |dir: &RelPath| dir.strip_prefix(path).is_some();
        let start = Instant::now();
        while self.state.lock().listed.iter().any(is_listed) && start.elapsed() < WAIT {
            sleep(POLL).await;
        }
        barred
    }
}

impl Drop for Barred<'_> {
    fn drop(&mut self) {
        let mut state = self.listings.state.lock();
        if let Some(place) = state.barred.iter().position(|path| *path == self.path) {
            state.barred.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn a_folder_that_is_changed_is_not_listed_and_its_listings_end_first() {
        let listings = ListingsAhead::default();
        assert!(listings.begin(&path("a/b")) && !listings.begin(&path("a/b")));
        let end = async {
            sleep(10 * POLL).await;
            listings.ended(&path("a/b"));
            Instant::now()
        };
        let bar = async { (listings.bar(&path("a")).await, Instant::now()) };
        let ((barred, since), ended) = tokio::join!(bar, end);
        assert!(since >= ended);
        assert!(!listings.begin(&path("a")) && !listings.begin(&path("a/b/c")));
        assert!(listings.begin(&path("ab")));
        drop(barred);
        assert!(listings.begin(&path("a/b/c")));
    }

    #[test]
    fn listings_are_bounded() {
        let listings = ListingsAhead::default();
        let begun = (0..100).filter(|number| listings.begin(&path(&format!("{number}"))));
        assert_eq!(begun.count(), LISTED_MAX);
    }
}
