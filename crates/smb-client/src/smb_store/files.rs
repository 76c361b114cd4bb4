//! The files in use, by their id.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ropeway_vfs::{FileId, Kind, RelPath};

use super::shared::Shared;
use super::shared_file::SharedFile;

/// The files that have a node, or data that is still on its way. Two nodes of one file share its
/// entry, so each sees the other's writes.
#[derive(Default)]
pub(super) struct Files(Mutex<HashMap<FileId, Weak<SharedFile>>>);

impl Files {
    /// Returns the entry of a file, made if it has none. `path` is where it was found.
    pub(super) fn of(&self, store: &Arc<Shared>, id: FileId, kind: Kind, path: &RelPath) -> Arc<SharedFile> {
        let mut files = self.0.lock();
        let before = files.get(&id).and_then(Weak::upgrade);
        if let Some(file) = before.as_ref().filter(|file| file.kind == kind) {
            drop(files);
            file.found_at(path);
            return Arc::clone(file);
        }
        let file = SharedFile::new(store, id, kind, path);
        files.insert(id, Arc::downgrade(&file));
        // Before `before`, whose drop may be the last and locks the table.
        drop(files);
        file
    }

    /// Returns the entry of a file that has one.
    pub(super) fn get(&self, id: FileId) -> Option<Arc<SharedFile>> {
        self.0.lock().get(&id).and_then(Weak::upgrade)
    }

    /// Returns all entries.
    pub(super) fn all(&self) -> Vec<Arc<SharedFile>> {
        self.0.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the entries at a path.
    pub(super) fn at(&self, path: &RelPath) -> Vec<Arc<SharedFile>> {
        self.select(|at| at == path)
    }

    /// Returns the entries at a path and beneath it.
    pub(super) fn below(&self, path: &RelPath) -> Vec<Arc<SharedFile>> {
        self.select(|at| at.strip_prefix(path).is_some())
    }

    fn select(&self, wanted: impl Fn(&RelPath) -> bool) -> Vec<Arc<SharedFile>> {
        // Dropped after the lock: the last owner of a file removes it from the table.
        let all = self.all();
        all.into_iter()
            .filter(|file| file.names().iter().any(&wanted))
            .collect()
    }

    /// Removes the entry of a file that has no owner any more.
    pub(super) fn forget(&self, id: FileId) {
        let mut files = self.0.lock();
        if files.get(&id).is_some_and(|file| file.strong_count() == 0) {
            files.remove(&id);
        }
    }
}
