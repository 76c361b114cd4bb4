//! What the kernel asks of a mount, by kind.

use std::sync::atomic::{AtomicU64, Ordering};

/// Names of the kinds, by the index of [`Asked`].
pub(crate) const KINDS: [&str; 8] = [
    "read", "write", "open", "lookup", "query", "change", "list", "flush",
];

/// A kind of requests. Those that fit none are counted with all others only.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Read,
    Write,
    Open,
    Lookup,
    /// Attributes, also extended ones.
    Query,
    /// Changes of names and attributes.
    Change,
    List,
    Flush,
}

/// Counters of a mount.
#[derive(Debug, Default)]
pub(super) struct Figures {
    kinds: [AtomicU64; KINDS.len()],
    read: AtomicU64,
    written: AtomicU64,
}

impl Figures {
    pub(super) fn count(&self, kind: Asked) {
        self.kinds[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: usize) {
        self.count(Asked::Read);
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: usize) {
        self.count(Asked::Write);
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of requests of each kind, in the order of [`KINDS`].
    pub(super) fn kinds(&self) -> [u64; KINDS.len()] {
        std::array::from_fn(|kind| self.kinds[kind].load(Ordering::Relaxed))
    }

    /// Returns the bytes read and written.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (
            self.read.load(Ordering::Relaxed),
            self.written.load(Ordering::Relaxed),
        )
    }
}
