//! One record for each operation, for `--trace`.

use crate::error::End;
use std::sync::Arc;
use std::time::Duration;

use crate::RelPath;

/// One finished operation.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Start: time since the observer's zero.
    pub start: Duration,
    /// Duration.
    pub duration: Duration,
    /// The end of the copy.
    pub end: End,
    /// The operation: `open`, `read`, `write`, `rename`, … (the words of [`crate::Op`], and
    /// `reflink`, `drop_cache`, `writeback`).
    pub kind: &'static str,
    /// The node, relative to the tree's root.
    pub path: &'a RelPath,
    /// Byte offset; 0 where it has no meaning.
    pub offset: u64,
    /// Bytes asked for; 0 where it has no meaning.
    pub length: u64,
    /// Bytes done, or the negative errno (-5 if there is none).
    pub result: i64,
}

/// Receives records. It must be fast and never fail.
pub trait Observer: Send + Sync {
    /// Returns the time since the observer's zero.
    fn now(&self) -> Duration;
    /// Takes one record.
    fn record(&self, record: Record<'_>);
}

/// An observer shared by trees and files.
pub type SharedObserver = Arc<dyn Observer>;
