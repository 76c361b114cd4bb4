//! How far the journals of persistent handles are behind the hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::handle_journal::HandleJournal;

/// The handles whose record could not be written or removed, with their journals. Each has a record, or
/// is a persistent handle, so there are no more of them than of both.
pub(crate) type FailedRecords = BTreeMap<u64, Arc<HandleJournal>>;

/// The order in which records are written. What a record says is read from the hub and written under
/// one lock, so that an older state never replaces a newer one.
#[derive(Debug, Default)]
pub(crate) struct KeptHandles {
    order: Mutex<FailedRecords>,
    /// The hub's number of changes up to which the journals are complete.
    written: AtomicU64,
    /// The numbers up to which handles may have, by all journals.
    reserved: AtomicU64,
}

impl KeptHandles {
    /// Locks the journals. Taken before the hub's mutex, and held while records are written.
    pub(crate) fn lock(&self) -> MutexGuard<'_, FailedRecords> {
        self.order.lock()
    }

    /// Whether the journals have all of this number of changes.
    pub(crate) fn have(&self, changes: u64) -> bool {
        self.written.load(Ordering::Acquire) >= changes
    }

    /// Notes that the journals have this number of changes.
    pub(crate) fn set_written(&self, changes: u64) {
        self.written.fetch_max(changes, Ordering::AcqRel);
    }

    /// Returns the highest number that a handle may have.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Sets the highest number that a handle may have.
    pub(crate) fn set_reserved(&self, number: u64) {
        self.reserved.store(number, Ordering::Release);
    }
}
