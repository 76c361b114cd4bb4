//! What local programs change: who caches it is told, and who watches for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ropeway_smb_proto::server::hub::FileKey;
use ropeway_smb_wire::change_notify::{Action, CompletionFilter};
use ropeway_vfs::outside::{EntryChange, Observer, Outside, Watching};
use ropeway_vfs::store::{Node, Store};

use super::ops::name::to_wire;
use super::shared::Shared;

/// Volume and index of a file.
type Id = (u64, u64);

/// Files that clients may cache: each is watched once, however often it is open.
#[derive(Debug, Default)]
pub(crate) struct Caches(Mutex<HashMap<Id, (usize, Watching)>>);

/// As long as it lives, changes of a file by others are heard of.
#[derive(Debug)]
pub(crate) struct CacheGuard {
    caches: Arc<Caches>,
    id: Id,
}

impl Caches {
    /// Watches a file before a client may cache it; `None` where that cannot be, and then nothing of it may be cached.
    pub(crate) fn watch(self: &Arc<Self>, file: &FileKey, node: &dyn Node) -> Option<CacheGuard> {
        let id = (file.share_volume, file.index);
        let guard = || CacheGuard {
            caches: Arc::clone(self),
            id,
        };
        if self.take_part(id) {
            return Some(guard());
        }
        // System calls: not under the lock. Two at once both watch, and one of them for nothing.
        let watching = node
            .watch(false)
            .inspect_err(|error| tracing::debug!(%error, "not watched, so not cached"))
            .ok()?;
        let mut needless = None;
        {
            let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match table.get_mut(&id) {
                Some((count, _)) => {
                    *count += 1;
                    needless = Some(watching);
                }
                None => _ = table.insert(id, (1, watching)),
            }
        }
        drop(needless);
        Some(guard())
    }

    fn take_part(&self, id: Id) -> bool {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((count, _)) = table.get_mut(&id) else {
            return false;
        };
        *count += 1;
        true
    }
}

impl Drop for CacheGuard {
    fn drop(&mut self) {
        let last = {
            let mut table = self.caches.0.lock().unwrap_or_else(PoisonError::into_inner);
            match table.get_mut(&self.id) {
                Some((count, _)) if *count > 1 => {
                    *count -= 1;
                    None
                }
                _ => table.remove(&self.id),
            }
        };
        drop(last);
    }
}

/// Whom a store tells.
struct Listener {
    shared: Weak<Shared>,
    /// The store's address, which only tells it from others.
    store: usize,
}

fn address_of(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

/// From now on the server hears what others do in its shares.
pub(super) fn listen(shared: &Arc<Shared>) {
    for share in shared.all_shares() {
        share.store.observe(Arc::new(Listener {
            shared: Arc::downgrade(shared),
            store: address_of(&share.store),
        }));
    }
}

impl Observer for Listener {
    fn changed(&self, changes: &[Outside]) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let shares = shared.share_indices(|share| address_of(&share.store) == self.store);
        for change in changes {
            if let Outside::Node(id) = change {
                let now = shared.now_ms();
                shared.hub().changed_outside(now, id.volume, id.index);
            }
            for share in &shares {
                tell(&shared, *share, change);
            }
            shared.deliver();
        }
    }
}

/// Tells who watches in a share.
fn tell(shared: &Shared, share: u32, change: &Outside) {
    let name_of = |directory| match directory {
        true => CompletionFilter::DIR_NAME,
        false => CompletionFilter::FILE_NAME,
    };
    let mut hub = shared.hub();
    match change {
        Outside::Node(_) => {}
        Outside::Entry {
            path,
            what,
            directory,
        } => {
            let (action, filter) = match what {
                EntryChange::Added => (Action::ADDED, name_of(*directory)),
                EntryChange::Removed => (Action::REMOVED, name_of(*directory)),
                EntryChange::Content => (
                    Action::MODIFIED,
                    CompletionFilter::SIZE | CompletionFilter::LAST_WRITE,
                ),
                // Which of them the system does not say.
                EntryChange::Attributes => (
                    Action::MODIFIED,
                    CompletionFilter::ATTRIBUTES
                        | CompletionFilter::LAST_WRITE
                        | CompletionFilter::LAST_ACCESS
                        | CompletionFilter::CREATION
                        | CompletionFilter::EA
                        | CompletionFilter::SECURITY,
                ),
            };
            hub.changed(share, &to_wire(path), action, filter);
        }
        Outside::Renamed { from, to, directory } => {
            hub.changed_name(share, &to_wire(from), &to_wire(to), name_of(*directory))
        }
        Outside::Lost => hub.changes_lost(share),
    }
}
