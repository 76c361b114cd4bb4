//! The listings that the counting walk makes for the copying walk, so that each folder is listed
//! once.
//!
//! The counting walk runs ahead in the same order. At first it waits while the cache is full, so a
//! short job never lists anything twice. Later it goes on without storing, because the totals
//! matter more, unless they are known already. The copying walk lists a folder itself if it does not find the listing here, or
//! finds it too old.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::{DirEntry, RelPath};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Largest number of entries. Each takes about 300 bytes (more with a long name), so 2 to 4 MiB.
const ENTRIES_MAX: usize = 8 * 1024;

/// Age at which a listing is too old: much may have happened in the folder. A guess.
const FRESH: Duration = Duration::from_secs(2);

/// Time for which the counting walk waits for room after it began. Afterwards it counts without
/// storing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Complete listings by root and folder.
pub(crate) struct ListingCache {
    store: Mutex<Store>,
    room: Notify,
    began: Instant,
}

/// Largest number of folders to remember that the copying walk has listed itself. A listing that
/// the counting walk makes of such a folder is not kept.
const MISSED_MAX: usize = 64;

#[derive(Default)]
struct Store {
    listings: HashMap<(u64, RelPath), Listed>,
    entries: usize,
    missed: VecDeque<(u64, RelPath)>,
    closed: bool,
}

impl Store {
    fn forget_old(&mut self) {
        self.listings.retain(|_, listed| listed.at.elapsed() < FRESH);
        self.entries = self.listings.values().map(|listed| listed.entries.len()).sum();
    }
}

struct Listed {
    at: Instant,
    entries: Vec<DirEntry>,
}

impl ListingCache {
    pub(crate) fn new() -> Self {
        Self {
            store: Mutex::default(),
            room: Notify::new(),
            began: Instant::now(),
        }
    }

    /// Waits until there is room for more, or, unless everything is counted, until counting matters more.
    pub(crate) async fn wait_for_room(&self, is_counted: bool) {
        let deadline = self.began + PATIENCE;
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if self.has_half() {
                return;
            }
            if is_counted {
                // Nobody may take some of them before they are too old.
                _ = tokio::time::timeout(FRESH, room).await;
            } else if tokio::time::timeout_at(deadline, room).await.is_err() {
                return;
            }
        }
    }

    /// Whether at least half of the cache is free of listings that are not too old.
    fn has_half(&self) -> bool {
        let mut store = self.store.lock();
        if store.entries >= ENTRIES_MAX / 2 {
            store.forget_old();
        }
        store.entries < ENTRIES_MAX / 2
    }

    /// Whether a folder may still be kept after `entries` of its entries were listed.
    pub(crate) fn has_room(&self, entries: usize) -> bool {
        self.store.lock().entries + entries <= ENTRIES_MAX
    }

    /// Keeps the complete listing of a folder, made since `at`, if there is room.
    pub(crate) fn put(&self, root: u64, dir: RelPath, at: Instant, entries: Vec<DirEntry>) {
        let mut store = self.store.lock();
        let key = (root, dir);
        if store.closed || store.missed.contains(&key) {
            return;
        }
        if store.entries + entries.len() > ENTRIES_MAX {
            store.forget_old();
        }
        if store.entries + entries.len() <= ENTRIES_MAX && !store.listings.contains_key(&key) {
            store.entries += entries.len();
            store.listings.insert(key, Listed { at, entries });
        }
    }

    /// Whether the listing of a folder is here.
    pub(crate) fn holds(&self, root: u64, dir: &RelPath) -> bool {
        self.store.lock().listings.contains_key(&(root, dir.clone()))
    }

    /// Takes the complete listing of a folder, if it is fresh.
    pub(crate) fn take(&self, root: u64, dir: &RelPath) -> Option<Vec<DirEntry>> {
        let listed = {
            let mut store = self.store.lock();
            let key = (root, dir.clone());
            let Some(listed) = store.listings.remove(&key) else {
                if store.missed.len() == MISSED_MAX {
                    store.missed.pop_front();
                }
                store.missed.push_back(key);
                return None;
            };
            store.entries -= listed.entries.len();
            listed
        };
        self.room.notify_one();
        (listed.at.elapsed() < FRESH).then_some(listed.entries)
    }

    /// Closes the cache: a later pass lists everything itself.
    pub(crate) fn close(&self) {
        let mut store = self.store.lock();
        *store = Store {
            closed: true,
            ..Store::default()
        };
        drop(store);
        self.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::{Error, ErrorKind, Name, Op};

    fn entries(count: usize) -> Vec<DirEntry> {
        let entry = |at: usize| DirEntry {
            name: Name::new(format!("n{at}").as_bytes()).unwrap(),
            metadata: Err(Error::new(Op::Stat, &RelPath::root(), ErrorKind::NotFound)),
        };
        (0..count).map(entry).collect()
    }

    fn dir(name: &str) -> RelPath {
        RelPath::root().join(&Name::new(name.as_bytes()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_is_taken_once_and_only_while_fresh() {
        let ahead = ListingCache::new();
        ahead.put(0, dir("a"), Instant::now(), entries(3));
        ahead.put(0, dir("b"), Instant::now(), entries(3));
        assert_eq!(ahead.take(0, &dir("a")).map(|entries| entries.len()), Some(3));
        assert!(ahead.take(0, &dir("a")).is_none());
        assert!(ahead.take(1, &dir("b")).is_none(), "another root");
        tokio::time::advance(FRESH).await;
        assert!(ahead.take(0, &dir("b")).is_none(), "too old");
        assert_eq!(ahead.store.lock().entries, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_bounded_and_patience_ends() {
        let ahead = ListingCache::new();
        ahead.put(0, dir("a"), Instant::now(), entries(ENTRIES_MAX));
        ahead.put(0, dir("b"), Instant::now(), entries(1));
        assert!(!ahead.has_room(1));
        assert!(ahead.take(0, &dir("b")).is_none(), "there was no room");
        let began = Instant::now();
        ahead.wait_for_room(false).await;
        assert_eq!(began.elapsed(), PATIENCE);
        ahead.wait_for_room(false).await;
        assert_eq!(began.elapsed(), PATIENCE, "later it does not wait");
        ahead.wait_for_room(true).await;
        assert_eq!(
            began.elapsed(),
            PATIENCE + FRESH,
            "where all is counted, until nobody takes them any more"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_copying_walk_passed_is_not_kept() {
        let ahead = ListingCache::new();
        assert!(ahead.take(0, &dir("a")).is_none());
        ahead.put(0, dir("a"), Instant::now(), entries(3));
        assert!(ahead.take(0, &dir("a")).is_none());
        ahead.put(0, dir("b"), Instant::now(), entries(3));
        ahead.close();
        ahead.put(0, dir("c"), Instant::now(), entries(3));
        assert!(ahead.take(0, &dir("b")).is_none() && ahead.take(0, &dir("c")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_taken_listing_makes_room() {
        let ahead = std::sync::Arc::new(ListingCache::new());
        ahead.put(0, dir("a"), Instant::now(), entries(ENTRIES_MAX));
        let waiting = tokio::spawn({
            let ahead = std::sync::Arc::clone(&ahead);
            async move { ahead.wait_for_room(false).await }
        });
        tokio::task::yield_now().await;
        let began = Instant::now();
        assert!(ahead.take(0, &dir("a")).is_some());
        waiting.await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
