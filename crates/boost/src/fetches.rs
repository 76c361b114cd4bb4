//! One fetch of a block for all its readers, and the blocks fetched last.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use ropeway_cache::Key;

/// Blocks kept because they were fetched whole and used in part, or not taken in by the cache: 8
/// MiB.
const RECENT_MAX: usize = 128;

/// The content of a block.
pub(crate) type Bytes = Arc<[u8]>;

/// The fetches under way.
#[derive(Default)]
pub(crate) struct Fetches {
    under_way: Mutex<HashMap<Key, Arc<Fetch>>>,
    recent: Mutex<VecDeque<(Key, Bytes)>>,
}

#[derive(Default)]
pub(crate) struct Fetch {
    outcome: Mutex<Option<Option<Bytes>>>,
    ended: Condvar,
}

/// A block that a caller must fetch. Dropped without content, its waiters fetch for themselves.
pub(crate) struct Claim<'a> {
    fetches: &'a Fetches,
    key: Key,
    fetch: Arc<Fetch>,
}

/// Who fetches a block.
pub(crate) enum Turn<'a> {
    /// The caller.
    Own(Claim<'a>),
    /// Another caller.
    Other(Arc<Fetch>),
}

impl Fetches {
    /// Returns a block that was fetched a moment ago.
    pub(crate) fn recent(&self, key: &Key) -> Option<Bytes> {
        let recent = self.recent.lock();
        let found = recent.iter().find(|(of, _)| of == key);
        found.map(|(_, bytes)| Arc::clone(bytes))
    }

    /// Keeps a block for a moment.
    pub(crate) fn keep(&self, key: Key, bytes: Bytes) {
        let mut recent = self.recent.lock();
        recent.retain(|(of, _)| *of != key);
        recent.push_front((key, bytes));
        recent.truncate(RECENT_MAX);
    }

    /// Asks who fetches a block.
    pub(crate) fn turn(&self, key: Key) -> Turn<'_> {
        let mut under_way = self.under_way.lock();
        if let Some(fetch) = under_way.get(&key) {
            return Turn::Other(Arc::clone(fetch));
        }
        let fetch = Arc::new(Fetch::default());
        under_way.insert(key, Arc::clone(&fetch));
        Turn::Own(Claim {
            fetches: self,
            key,
            fetch,
        })
    }
}

impl Fetch {
    /// Waits for the fetcher; `None` if it failed.
    pub(crate) fn wait(&self) -> Option<Bytes> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.ended.wait(&mut outcome);
        }
    }

    fn end(&self, bytes: Option<Bytes>) {
        self.outcome.lock().get_or_insert(bytes);
        self.ended.notify_all();
    }
}

impl Claim<'_> {
    /// Returns the key of the block.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Gives the block to all who wait.
    pub(crate) fn fulfil(self, bytes: &Bytes) {
        self.fetch.end(Some(Arc::clone(bytes)));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.fetches.under_way.lock().remove(&self.key);
        self.fetch.end(None);
    }
}
