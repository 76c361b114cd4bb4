//! Serialization of requests that change POSIX locks, and the volumes that have no such locks.

use std::collections::BTreeSet;

use parking_lot::{Mutex, MutexGuard};
use ropeway_smb_proto::server::hub::FileKey;

use crate::state::open::Open;

/// Number of locks; several files share one (a guess: the threads of a server and some).
const FILE_LOCKS: usize = 64;
/// Maximum number of volumes that are reported.
const WARNED_MAX: usize = 64;

/// Serializes changes of POSIX locks.
#[derive(Debug)]
pub(crate) struct PosixLocks {
    pub(crate) enabled: bool,
    files: [Mutex<()>; FILE_LOCKS],
    /// Volumes without POSIX locks that were reported.
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

    /// Locks a file while its locks change. Taken before the hub's mutex.
    pub(crate) fn serialize(&self, file: &FileKey) -> MutexGuard<'_, ()> {
        self.files[file.index as usize % FILE_LOCKS].lock()
    }

    /// Logs once for each volume that it has no POSIX locks.
    pub(crate) fn warn_once(&self, open: &Open) {
        let mut warned = self.warned.lock();
        if warned.len() < WARNED_MAX && warned.insert(open.file.share_volume) {
            drop(warned);
            tracing::warn!(
                share = open.share.name,
                path = %open.path(),
                "the file system has no POSIX locks: local programs do not see the locks of clients"
            );
        }
    }

    /// Returns the number of volumes that were reported.
    #[cfg(test)]
    pub(crate) fn warned_volumes(&self) -> usize {
        self.warned.lock().len()
    }
}
