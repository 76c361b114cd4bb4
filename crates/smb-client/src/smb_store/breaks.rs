//! What a file keeps about breaks of its leases.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;

use crate::caching::BrokenLease;

/// The breaks of a file's leases.
#[derive(Default)]
pub(super) struct Breaks {
    /// The break that waits for the task.
    pub(super) waiting: Mutex<Option<BrokenLease>>,
    pub(super) is_running: AtomicBool,
    /// Number of watches.
    pub(super) watches: AtomicUsize,
    pub(super) is_renewal_planned: AtomicBool,
    pub(super) is_reclaiming: AtomicBool,
}
