//! How far the journals of persistent handles are behind the hub.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// The order in which records are written. What a record says is read from the hub and written under
/// one lock, so that an older state never replaces a newer one.
#[derive(Debug, Default)]
pub(crate) struct KeptHandles {
    order: Mutex<()>,
    /// The hub's number of changes up to which the journals are complete.
    written: AtomicU64,
    /// The numbers up to which handles may have, by all journals.
    reserved: AtomicU64,
}

impl KeptHandles {
    /// Locks the journals. Taken before the hub's mutex, and held while records are written.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
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
