//! Listings of folders, which fill the cache with the attributes of their entries.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::store::{Entries, NodeStat};
use ropeway_vfs::{DirEntry, ErrorKind, Listing as _, Name, RelPath, Result};
use tokio::task::JoinHandle;

use super::listings_ahead;
use super::names::is_temporary;
use super::node_cache::{Asked, Listed};
use super::shared::Shared;
use crate::smb_tree::SmbListing;

/// Entries taken from the listing at once. A guess: a reply of a server holds some hundred.
const CHUNK: usize = 1024;

/// Folders listed ahead of a program that goes through a tree. A guess: more than a program lists in
/// a round trip.
const AHEAD_MAX: usize = 16;
/// Entries of such a folder. A guess: some round trips of replies.
const AHEAD_ENTRIES_MAX: usize = 5_000;

/// A listing that the cache holds.
struct Known {
    store: Arc<Shared>,
    entries: Listed,
    next: usize,
}

/// A listing that the server sends.
struct Streamed {
    store: Arc<Shared>,
    dir: RelPath,
    listing: SmbListing,
    ready: VecDeque<(Name, NodeStat)>,
    /// All entries so far; `None` if there are too many to keep.
    all: Option<Vec<(Name, NodeStat)>>,
    asked: Asked,
    since: Duration,
    is_at_end: bool,
}

impl Shared {
    /// Returns a listing that the cache holds.
    pub(super) fn known_entries(self: &Arc<Self>, dir: &RelPath) -> Option<Box<dyn Entries>> {
        let now = self.now();
        let entries = self.cache.lock().listing(dir, now)?;
        Some(Box::new(Known {
            store: Arc::clone(self),
            entries,
            next: 0,
        }))
    }

    /// Lists a folder. A small folder takes one round trip.
    pub(super) async fn list(self: &Arc<Self>, dir: &RelPath) -> Result<Box<dyn Entries>> {
        self.list_ahead(dir);
        Ok(Box::new(self.begin_list(dir).await?))
    }

    async fn begin_list(self: &Arc<Self>, dir: &RelPath) -> Result<Streamed> {
        self.tree.wait_for_closes().await;
        let (asked, since) = (self.cache.lock().ask(), self.now());
        let listing = SmbListing::start_leased(Arc::clone(&self.tree), dir, true).await?;
        Ok(Streamed {
            store: Arc::clone(self),
            dir: dir.clone(),
            listing,
            ready: VecDeque::new(),
            all: Some(Vec::new()),
            asked,
            since,
            is_at_end: false,
        })
    }
}

impl Shared {
    /// Takes the beginning of a folder's listing, and lists those that will follow.
    fn list_ahead(self: &Arc<Self>, dir: &RelPath) {
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return;
        };
        let Some(listing) = self.cache.lock().listing(&parent, self.now()) else {
            return;
        };
        let next = self
            .tree_ahead
            .lock()
            .on_open(&parent, &listing, &name, AHEAD_MAX);
        for (name, _) in next {
            self.list_soon(&parent.join(&name));
        }
    }

    /// Notes that a name is asked for. After a few its folder is listed, unless its lease is held:
    /// then each question is about something that a listing before did not answer either. Returns
    /// the listing that has begun.
    pub(super) fn note_question(self: &Arc<Self>, path: &RelPath) -> Option<JoinHandle<()>> {
        let dir = path.parent()?;
        if self.options.cache_timeout.is_zero() || self.folders.lease(&dir).is_some() {
            return None;
        }
        let lists = self.asked_folders.lock().on_ask(&dir, self.now());
        lists.then(|| self.list_in_background(&dir)).flatten()
    }

    /// Waits for a listing that a question has begun, a second at most: what the program makes next
    /// names the lease, and does not break it.
    pub(super) async fn wait_for_lease(&self, listing: Option<JoinHandle<()>>) {
        if let Some(listing) = listing {
            // It goes on without being waited for.
            let _ = tokio::time::timeout(listings_ahead::WAIT, listing).await;
        }
    }

    /// Lists a folder in the background.
    pub(super) fn list_soon(self: &Arc<Self>, dir: &RelPath) {
        drop(self.list_in_background(dir));
    }

    /// Lists a folder to keep the listing, unless it is known, on its way, or very large.
    fn list_in_background(self: &Arc<Self>, dir: &RelPath) -> Option<JoinHandle<()>> {
        let is_known = self.cache.lock().listing(dir, self.now()).is_some();
        if is_known || !self.listings_ahead.begin(dir) {
            return None;
        }
        let (this, dir) = (Arc::clone(self), dir.clone());
        Some(self.runtime.spawn(async move {
            if let Err(error) = this.list_whole(&dir).await {
                tracing::debug!(%error, "a folder was not listed ahead");
            }
            this.listings_ahead.ended(&dir);
        }))
    }

    /// Lists a folder to keep the listing, unless it is very large.
    async fn list_whole(self: &Arc<Self>, dir: &RelPath) -> Result<()> {
        let mut listing = self.begin_list(dir).await?;
        let mut count = 0;
        while !listing.is_at_end && count < AHEAD_ENTRIES_MAX {
            listing.load().await?;
            count += listing.ready.len();
            listing.ready.clear();
        }
        Ok(())
    }
}

impl Entries for Known {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        let entry = self.entries.get(self.next).cloned();
        self.next += 1;
        Ok(entry.map(|(name, stat)| (name, self.store.with_unsent(stat))))
    }
}

impl Streamed {
    fn take(&mut self, entries: Vec<DirEntry>) -> Result<()> {
        for entry in entries {
            if is_temporary(&entry.name) {
                continue;
            }
            let metadata = match entry.metadata {
                Ok(metadata) => metadata,
                // It vanished meanwhile, or has a name that nothing here can have.
                Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::InvalidReply) => {
                    tracing::debug!(%error, "an entry is left out");
                    self.all = None;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let stat = self.store.node_stat(&metadata, &self.dir.join(&entry.name));
            let stat = self.store.with_sent(stat, self.since);
            if let Some(all) = &mut self.all {
                all.push((entry.name.clone(), stat));
            }
            self.ready.push_back((entry.name, stat));
        }
        if self
            .all
            .as_ref()
            .is_some_and(|all| all.len() > self.store.options.names_max)
        {
            self.all = None;
        }
        Ok(())
    }

    /// Takes the next chunk.
    async fn load(&mut self) -> Result<()> {
        let chunk = self.listing.next(CHUNK).await?;
        match chunk.is_empty() {
            true => self.finish(),
            false => self.take(chunk)?,
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.is_at_end = true;
        if let Some(all) = self.all.take() {
            let validity = self.store.keep_folder(&self.dir, self.listing.folder());
            let mut cache = self.store.cache.lock();
            cache.put_listing(self.asked, &self.dir, &Arc::new(all), &validity);
        }
    }
}

impl Entries for Streamed {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        while self.ready.is_empty() && !self.is_at_end {
            let runtime = self.store.runtime.clone();
            runtime.block_on(self.load())?;
        }
        let entry = self.ready.pop_front();
        Ok(entry.map(|(name, stat)| (name, self.store.with_unsent(stat))))
    }
}
