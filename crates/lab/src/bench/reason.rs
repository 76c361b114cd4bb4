//! Reasons to doubt a figure, as they stand in reports.

use serde::{Deserialize, Serialize};

use crate::bench::cell::Key;
use crate::named::named;

named! {
    /// A reason to doubt a figure.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Reason: "reason" {
        /// The page cache answered reads.
        PageCache = "page-cache",
        /// Written bytes were still in memory.
        NotWritten = "not-written",
        /// More than the device gives past the page cache.
        AboveDevice = "above-device",
        /// A burst into the drive's own cache.
        DriveCache = "drive-cache",
        /// More than the link can carry.
        AboveLink = "above-link",
        /// As much as the link can carry: the server may be faster.
        AtLink = "at-link",
        /// The server answered from its memory.
        ServerCache = "server-cache",
        /// One request in flight waits for the line.
        RoundTrip = "round-trip",
        /// The files are in memory.
        InMemory = "in-memory",
        /// The device is a file in the page cache.
        LoopCache = "loop-cache",
        /// The host of a virtual machine may cache its disk.
        Host = "host-cache",
        /// A program, a server or another file system holds the files of a mount.
        BehindMount = "behind-mount",
        /// The volume compresses, or did not store all bytes.
        Compression = "compression",
        /// Other work on the machine, or runs that differ.
        Noise = "noise",
        /// The processor saves power.
        Governor = "governor",
        /// Passes that ended before the whole file was done.
        Cut = "cut",
    }
}

/// A reason to doubt figures, in words, with the cells it concerns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The reason.
    pub reason: Reason,
    /// One sentence or two.
    pub text: String,
    /// The cells; empty if it concerns all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<Key>,
}

impl Finding {
    /// Returns a finding that concerns everything.
    pub fn of_all(reason: Reason, text: impl Into<String>) -> Self {
        Self::of(reason, text, Vec::new())
    }

    /// Returns a finding about some cells.
    pub fn of(reason: Reason, text: impl Into<String>, cells: Vec<Key>) -> Self {
        Self {
            reason,
            text: text.into(),
            cells,
        }
    }
}
