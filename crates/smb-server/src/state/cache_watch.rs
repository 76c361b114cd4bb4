//! Watches of the files that clients may cache: each file is watched once, however often it is open.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use ropeway_smb_proto::server::hub::FileKey;
use ropeway_vfs::external::Watching;
use ropeway_vfs::store::Node;

/// Volume and index of a file.
type Id = (u64, u64);

/// Files that clients may cache: each is watched once, however often it is open.
#[derive(Debug, Default)]
pub(crate) struct CacheWatches(Mutex<HashMap<Id, (usize, Watching)>>);

/// As long as it lives, changes of a file by others are heard of.
#[derive(Debug)]
pub(crate) struct CacheWatch {
    caches: Arc<CacheWatches>,
    id: Id,
}

impl CacheWatches {
    /// Watches a file before a client may cache it; `None` where that cannot be, and then nothing of it may be cached.
    pub(crate) fn watch(self: &Arc<Self>, file: &FileKey, node: &dyn Node) -> Option<CacheWatch> {
        let id = (file.share_volume, file.index);
        let guard = || CacheWatch {
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
            let mut table = self.0.lock();
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
        let mut table = self.0.lock();
        let Some((count, _)) = table.get_mut(&id) else {
            return false;
        };
        *count += 1;
        true
    }
}

impl Drop for CacheWatch {
    fn drop(&mut self) {
        let last = {
            let mut table = self.caches.0.lock();
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
