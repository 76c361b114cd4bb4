//! Count of response bytes that clients have not received yet.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of response bytes that clients have not received yet, of all connections together.
pub(crate) struct UnsentBytes {
    bytes: AtomicUsize,
    max: usize,
}

impl UnsentBytes {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            max,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= self.max
    }

    /// Adds bytes that wait from now on.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes that were sent or dropped.
    pub(crate) fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
