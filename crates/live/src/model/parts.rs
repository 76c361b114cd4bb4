//! Mounts, caches, and runs of the laboratory.

use serde::{Deserialize, Serialize};

use super::{CacheStatus, History, Message, Operations, Rates};

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Number in its process.
    pub id: u32,
    /// The folder or share.
    pub source: String,
    /// Where it is mounted.
    pub mountpoint: String,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// Open files.
    pub open_files: u64,
    /// Bytes that programs wrote and that are not durable yet.
    pub unflushed_bytes: u64,
    /// Requests of the kernel.
    pub requests: u64,
    /// Bytes that the kernel read. What it has in its memory, or reads from a disk by itself, does not
    /// count.
    pub bytes_read: u64,
    /// Bytes that the kernel wrote, in the same sense.
    pub bytes_written: u64,
    /// Requests by kind.
    pub operations: Operations,
    /// Rates of the last seconds.
    pub rates: Rates,
    /// The last five minutes.
    pub history: History,
}

/// A flash cache in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// Number in its process.
    pub id: u32,
    /// Its figures.
    pub status: CacheStatus,
}

/// A run of the laboratory, of the demo and the like: steps one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Number in its process.
    pub id: u32,
    /// `lab`, `demo`, …
    pub kind: String,
    /// Name of the scenario.
    pub name: String,
    /// What it does now.
    pub step: String,
    /// Steps done.
    pub done: u64,
    /// Steps altogether; 0 while nobody knows.
    pub total: u64,
    /// Seconds since the beginning.
    pub seconds: f64,
    /// The last messages, oldest first.
    pub messages: Vec<Message>,
}
