//! The failures of a job, counted as they happen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_vfs::ErrorKind;

use crate::job::outcome::{Fatal, Status};

/// Counts failures. The first fatal one decides how the job ends.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    items: AtomicU64,
    /// Failures of nodes that the target cannot hold at all.
    not_held: AtomicU64,
    permission: AtomicU64,
    differences: AtomicU64,
    torn: AtomicU64,
    repaired: AtomicU64,
    stopped: AtomicBool,
    fatal: Mutex<Option<Fatal>>,
}

impl Failures {
    pub(crate) fn item(&self, kind: ErrorKind) {
        self.items.fetch_add(1, Ordering::Relaxed);
        if kind == ErrorKind::PermissionDenied {
            self.permission.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the failure of a node of a kind that the target cannot hold. It is counted as an item
    /// as well.
    pub(crate) fn not_held(&self) {
        self.not_held.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of failures after which a mirror deletes nothing. A node that the target
    /// cannot hold is not among them: the target did not hold it under an old name either.
    pub(crate) fn grave(&self) -> u64 {
        self.items().saturating_sub(self.not_held.load(Ordering::Relaxed))
    }

    pub(crate) fn difference(&self) {
        self.differences.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a torn copy. It is counted as an item as well.
    pub(crate) fn torn(&self) {
        self.torn.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file that verification found damaged and that was repaired.
    pub(crate) fn repaired(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn repairs(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }

    pub(crate) fn torn_copies(&self) -> u64 {
        self.torn.load(Ordering::Relaxed)
    }

    pub(crate) fn fatal(&self, fatal: Fatal) {
        self.fatal.lock().get_or_insert(fatal);
        self.stopped.store(true, Ordering::Release);
    }

    pub(crate) fn is_fatal(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn take_fatal(&self) -> Option<Fatal> {
        self.fatal.lock().clone()
    }

    pub(crate) fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    pub(crate) fn differences(&self) -> u64 {
        self.differences.load(Ordering::Relaxed)
    }

    /// Returns the status of a job that ended after copying `done` files.
    pub(crate) fn status(&self, done: u64) -> Status {
        if let Some(fatal) = &*self.fatal.lock() {
            return fatal.status;
        }
        let (items, permission) = (self.items(), self.permission.load(Ordering::Relaxed));
        if self.differences() > 0 {
            Status::Differs
        } else if items == 0 {
            Status::Done
        } else if done == 0 && permission == items {
            Status::Permission
        } else {
            Status::SomeFailed
        }
    }
}
