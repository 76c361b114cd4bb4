//! The making of a node, as far as the cache is concerned: what is known of the folder's names stays
//! known.

use std::sync::Arc;

use ropeway_smb_wire::LeaseKey;
use ropeway_vfs::RelPath;
use ropeway_vfs::store::NodeStat;

use super::node_cache::{Asked, FolderLease, Validity};
use super::shared::Shared;
use crate::handle::Handle;

/// A node that is being made. Dropped without a result, also because nobody waits for it any more, it
/// leaves nothing known about the name: the server may have made the node.
pub(super) struct Creation<'a> {
    store: &'a Arc<Shared>,
    path: &'a RelPath,
    /// The lease on the folder when it began.
    lease: Option<FolderLease>,
    pub(super) asked: Asked,
    /// Names that lease in requests.
    pub(super) parent: Option<LeaseKey>,
    is_known: bool,
}

impl<'a> Creation<'a> {
    /// Notes that the store begins to make a node.
    pub(super) fn begin(store: &'a Arc<Shared>, path: &'a RelPath) -> Self {
        store.note_own(path);
        store.give_up_ahead(path);
        let lease = store.lease_on_folder_of(path);
        let parent = store.lease_key_for(path);
        let mut cache = store.cache.lock();
        cache.creating(path);
        Self {
            asked: cache.ask(),
            store,
            path,
            lease,
            parent,
            is_known: false,
        }
    }

    /// Keeps what is known of the new node.
    pub(super) fn made(mut self, stat: &NodeStat) {
        self.is_known = true;
        let (store, path) = (self.store, self.path);
        store.note_own(path);
        store.give_up_ahead(path);
        let (now, estimate) = (store.now(), store.options.cache_timeout);
        store.top.created(path, stat, now + estimate);
        let validity = self
            .lease
            .take()
            .map_or_else(|| store.validity(), Validity::leased);
        let mut cache = store.cache.lock();
        cache.created(self.asked, path, stat, &validity, now, estimate);
    }

    /// Keeps what is known of a new folder: its attributes, and that it is empty. Returns the
    /// attributes, if the server reported its id.
    pub(super) fn made_folder(self, made: &Handle) -> Option<NodeStat> {
        let (store, path) = (self.store, self.path);
        let metadata = store.tree.at_create(made.created());
        metadata.id?;
        let stat = store.node_stat(&metadata, path);
        self.made(&stat);
        let asked = store.cache.lock().ask();
        let validity = store.keep_folder(path, Some(&made.inner));
        let mut cache = store.cache.lock();
        cache.put_listing(asked, path, &Arc::default(), &validity);
        Some(stat)
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.store.changed(self.path);
        }
    }
}
