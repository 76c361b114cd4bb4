//! Watches for the files that clients may cache. Each file is watched once, however often it is
//! open.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use ropeway_smb_proto::server::hub::FileKey;
use ropeway_vfs::external::Watching;
use ropeway_vfs::store::Node;

/// Volume and index of a file.
type Id = (u64, u64);

/// The watched files, with the number of opens that need each watch.
#[derive(Debug, Default)]
pub(crate) struct CacheWatches(Mutex<HashMap<Id, (usize, Watching)>>);

/// Keeps a file watched while it lives.
#[derive(Debug)]
pub(crate) struct CacheWatch {
    caches: Arc<CacheWatches>,
    id: Id,
}

impl CacheWatches {
    /// Watches a file before a client may cache it. Returns `None` if that is impossible; then no
    /// client may cache it.
    pub(crate) fn watch(self: &Arc<Self>, file: &FileKey, node: &dyn Node) -> Option<CacheWatch> {
        let id = (file.share_volume, file.index);
        let guard = || CacheWatch {
            caches: Arc::clone(self),
            id,
        };
        if self.add_user(id) {
            return Some(guard());
        }
        // Watching makes system calls, so not under the lock. If two threads watch at once, one
        // watch is dropped.
        let watching = node
            .watch(false)
            .inspect_err(
                |error| tracing::debug!(%error, "the file cannot be watched, so clients may not cache it"),
            )
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

    fn add_user(&self, id: Id) -> bool {
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
