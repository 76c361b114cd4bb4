//! The file that `--trace` writes: JSON Lines, described in `docs/trace.md`.
//!
//! The first line describes the run, the last one counts the operations, so a reader can tell that a
//! trace is truncated. Writer and reader use memory that does not grow with the trace.

mod read;
mod text;
mod write;

use ropeway_vfs::End;
use serde::{Deserialize, Serialize};

pub(crate) use read::{ReadError, TraceReader};
pub(crate) use write::{Ending, TraceWriter};

/// Version of traces whose operations all have an end.
const VERSION_OF_COPIES: u32 = 1;
/// Version of all others, in which operations may have no end, and losses are counted.
const VERSION: u32 = 2;
/// Longest line that is written or read, in bytes: two paths of the longest kind, with every byte
/// escaped twice, need less.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The first line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Format version.
    pub(crate) version: u32,
    /// Name and version of the program.
    pub(crate) program: String,
    /// Start of the run (RFC 3339); all times count from here.
    pub(crate) started: String,
    /// Name of the copy engine; not for runs without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) engine: String,
    /// The command line.
    pub(crate) command: Vec<String>,
    /// How the operations of other programs were recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) mechanism: String,
    /// What such a recording cannot show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unseen: Vec<String>,
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Start in nanoseconds since [`Header::started`].
    pub(crate) t_ns: u64,
    /// End of the copy on which it ran; `None` if the run was no copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
    /// Kind of operation.
    pub(crate) kind: String,
    /// Path of the node, escaped by [`text::escape`].
    pub(crate) path: String,
    /// The second path of a rename or link; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) to: String,
    /// Offset of the first byte; 0 if the kind has none.
    pub(crate) offset: u64,
    /// Bytes requested; 0 if the kind has none.
    pub(crate) length: u64,
    /// Bytes transferred, or a negative errno.
    pub(crate) result: i64,
    /// Duration in nanoseconds.
    pub(crate) duration_ns: u64,
    /// Connection to a client or server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<u64>,
    /// io_uring that carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ring: Option<u32>,
    /// Process that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
    /// Thread that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) thread: Option<u32>,
    /// Name of its program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) program: String,
    /// System call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) call: String,
}

/// The last line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Number of operations before it.
    pub(crate) operations: u64,
    /// Operations that happened and are not in the trace.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) lost: u64,
    /// What a reader should know about the recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line.
    Trace(Header),
    /// An operation.
    Op(Operation),
    /// The last line.
    End(Summary),
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
