//! Which files have requests that change their POSIX locks, and which volumes have no such locks.

use std::collections::BTreeSet;

use parking_lot::{Mutex, MutexGuard};
use ropeway_smb_proto::server::hub::FileKey;

use crate::state::open::Open;

/// One request at a time for each file, and for those that share its place (a guess: threads of a server and some).
const FILE_LOCKS: usize = 64;
/// Volumes without such locks that are told of.
const WARNED_MAX: usize = 64;

/// Locks that local programs see.
#[derive(Debug)]
pub(crate) struct PosixLocks {
    pub(crate) enabled: bool,
    files: [Mutex<()>; FILE_LOCKS],
    /// Volumes without, each told of once.
    warned: Mutex<BTreeSet<u64>>,
}

impl PosixLocks {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            files: std::array::from_fn(|_| Mutex::new(())),
            warned: Mutex::default(),
        }
    }

    /// Taken before the hub, and kept while locks of the file change.
    pub(crate) fn serialize(&self, file: &FileKey) -> MutexGuard<'_, ()> {
        let place = &self.files[file.index as usize % FILE_LOCKS];
        place.lock()
    }

    /// Tells of a volume without such locks, once.
    pub(crate) fn warn_once(&self, open: &Open) {
        let mut warned = self.warned.lock();
        if warned.len() < WARNED_MAX && warned.insert(open.file.share_volume) {
            drop(warned);
            tracing::warn!(
                share = open.share.name,
                path = %open.path(),
                "the file system has no locks that local programs would see: only clients see those of clients"
            );
        }
    }

    /// Number of volumes that were reported.
    #[cfg(test)]
    pub(crate) fn warned_volumes(&self) -> usize {
        self.warned.lock().len()
    }
}
