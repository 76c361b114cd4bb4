//! Who hears what programs open and read, for recordings.
//!
//! Reads that the kernel answers from its memory do not come here, and neither do those of files
//! that pass through.

use std::sync::Arc;
use std::time::Instant;

use ropeway_vfs::RelPath;
use ropeway_vfs::store::NodeStat;

/// Hears of opens. It must be fast and never fail.
pub trait UseObserver: Send + Sync {
    /// A process has opened a file that was there. Returns who hears of the reads through this open,
    /// if anyone does.
    fn opened(&self, process: u32, path: &RelPath, stat: &NodeStat) -> Option<Arc<dyn ReadObserver>>;
}

/// Hears of the reads from an open file. It must be fast and never fail.
pub trait ReadObserver: Send + Sync {
    /// So many bytes were asked for at a moment, and the answer is there now.
    fn read(&self, offset: u64, length: u64, start: Instant);
}

/// An observer of a mount.
pub type SharedObserver = Arc<dyn UseObserver>;
