//! The folders that are watched.

use std::collections::HashMap;
use std::sync::Weak;

use parking_lot::{Mutex, MutexGuard};
use ropeway_vfs::FileId;

/// What is watched: a folder, and whether all beneath it.
pub(super) type Watched = (FileId, bool);

/// The watched folders. A watch ends when its last user drops it.
#[derive(Default)]
pub(super) struct Watches(Mutex<HashMap<Watched, Weak<dyn Send + Sync>>>);

impl Watches {
    /// Whether any folder is watched.
    pub(super) fn is_any(&self) -> bool {
        !self.lock().is_empty()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Watched, Weak<dyn Send + Sync>>> {
        self.0.lock()
    }
}
