//! One record for each operation, for `--trace`.

use std::sync::Arc;
use std::time::Duration;

use crate::RelPath;

/// Which end of a copy an operation touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The tree read from.
    Source,
    /// The tree written to.
    Target,
}

/// One finished operation.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Start, since the observer's zero.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
    /// Which end.
    pub end: End,
    /// What: `open`, `read`, `write`, `rename`, … (the words of [`crate::Op`], and `reflink`, `drop_cache`, `writeback`).
    pub kind: &'static str,
    /// The node, relative to the tree's root.
    pub path: &'a RelPath,
    /// Byte offset, 0 where it has no meaning.
    pub offset: u64,
    /// Bytes asked for, 0 where it has no meaning.
    pub length: u64,
    /// Bytes done, or the negative errno (-5 when there is none).
    pub result: i64,
}

/// Receives records; must be cheap and never fail.
pub trait Observer: Send + Sync {
    /// Time since the observer's zero.
    fn now(&self) -> Duration;
    /// Takes one record.
    fn record(&self, record: Record<'_>);
}

/// An observer shared by trees and files.
pub type SharedObserver = Arc<dyn Observer>;
