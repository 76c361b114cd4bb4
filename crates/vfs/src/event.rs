//! The events and counters of a job: one source for progress bar, JSON Lines, log and report.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ErrorKind, Kind, Loss, Op, Owner, Timestamp};

/// Counters of a job at one moment. Bytes are payload bytes.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Files found so far by the walk.
    pub files_total: u64,
    /// Bytes (logical) found so far.
    pub bytes_total: u64,
    /// Whether the totals are final.
    pub totals_final: bool,
    /// Files finished (copied, linked or skipped).
    pub files_done: u64,
    /// Files skipped because they are equal already.
    pub files_skipped: u64,
    /// Files that failed.
    pub files_failed: u64,
    /// Folders made or visited.
    pub directories: u64,
    /// Logical bytes of finished files.
    pub bytes_done: u64,
    /// Logical bytes of skipped files among them.
    pub bytes_skipped: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
    /// Payload bytes passed to the target, repeated ones included; 0 for reflink, hole, skip and
    /// server-side copy.
    pub bytes_sent: u64,
    /// Logical bytes known to be durable on the target.
    pub bytes_durable: u64,
    /// Nodes deleted (mirror).
    pub deleted: u64,
    /// Attempts repeated after a temporary error.
    pub retries: u64,
    /// Operations that moved or changed something: blocks read, blocks written, small files in each
    /// direction, folders, deletions.
    pub operations: u64,
}

/// What limits the speed of a job at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Reading from the source.
    Source,
    /// The network link.
    Link,
    /// The server.
    Server,
    /// Writing to the target.
    Destination,
    /// The count of small files, not bytes.
    SmallFiles,
    /// `--bwlimit`.
    Bandwidth,
    /// Losses of the network link, under a congestion control that takes them for a full line.
    Loss,
}

/// What TCP has counted on the line to a server, over all connections.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Line {
    /// Congestion control of this end; `None` if the system does not name it.
    pub congestion: Option<String>,
    /// Number of connections.
    pub connections: u64,
    /// Shortest round trip in seconds.
    pub round_trip_seconds: f64,
    /// Segments with data sent, those sent again included.
    pub segments_sent: u64,
    /// Segments sent again.
    pub segments_sent_again: u64,
    /// Segments with data received.
    pub segments_received: u64,
    /// Segments received out of order.
    pub segments_out_of_order: u64,
    /// What compression saved; `None` if next to nothing.
    pub compressed: Option<Compressed>,
}

/// What compression has saved on a line.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Compressed {
    /// The algorithm that did most of it: `zstd` or `lz4`.
    pub algorithm: &'static str,
    /// Bytes on the line, divided by what they would have been.
    pub ratio: f64,
    /// Bytes that did not have to be sent.
    pub saved_bytes: u64,
}

/// An estimate of the time left: best guess and range, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Eta {
    /// Best guess.
    pub seconds: f64,
    /// Optimistic end of the range.
    pub low: f64,
    /// Pessimistic end of the range.
    pub high: f64,
}

/// What one end has, and what the other has instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Sides<T> {
    /// What the source has.
    pub source: T,
    /// What the target has.
    pub target: T,
}

/// A reason why two nodes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// One is, for example, a file and the other a folder.
    Kind(Sides<Kind>),
    /// The sizes in bytes.
    Size(Sides<u64>),
    /// The contents, which were read.
    Content,
    /// Where two symbolic links point.
    Link,
    /// The times of last change, as Unix time in seconds.
    Time(#[serde(serialize_with = "unix_times")] Sides<Timestamp>),
    /// The permission bits.
    Mode(Sides<u32>),
    /// Owner and group.
    Owner(#[serde(serialize_with = "owner_numbers")] Sides<Owner>),
    /// DOS attributes.
    DosAttributes,
}

impl Reason {
    /// Returns the name that JSON has for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kind(_) => "kind",
            Self::Size(_) => "size",
            Self::Content => "content",
            Self::Link => "link",
            Self::Time(_) => "time",
            Self::Mode(_) => "mode",
            Self::Owner(_) => "owner",
            Self::DosAttributes => "dos_attributes",
        }
    }
}

fn mapped<T: Copy, U: serde::Serialize, S: serde::Serializer>(
    sides: &Sides<T>,
    serializer: S,
    map: impl Fn(T) -> U,
) -> Result<S::Ok, S::Error> {
    let mapped = Sides {
        source: map(sides.source),
        target: map(sides.target),
    };
    serde::Serialize::serialize(&mapped, serializer)
}

fn unix_times<S: serde::Serializer>(sides: &Sides<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    mapped(sides, serializer, |time| time.0 as f64 / 1e9)
}

fn owner_numbers<S: serde::Serializer>(sides: &Sides<Owner>, serializer: S) -> Result<S::Ok, S::Error> {
    mapped(sides, serializer, |owner| [owner.user, owner.group])
}

/// A server that does not answer, while it is tried again.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LostConnection {
    /// The server's name or address.
    pub server: String,
    /// Seconds since its last sign; `None` if the connection ended a moment ago.
    pub silent_seconds: Option<f64>,
    /// Seconds until it is given up; `None` while the old connection is not given up yet.
    pub seconds_left: Option<f64>,
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Counting before the first write (`--preflight`, `mirror`).
    Preflight,
    /// Copying.
    Copying,
    /// Everything is written; waiting for the device.
    Flushing,
    /// Reading back.
    Verifying,
    /// Watching for changes.
    Watching,
    /// Finished.
    Done,
}

/// One event. Events are reported in the order in which they happen.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A phase began.
    Phase {
        /// The phase.
        phase: Phase,
    },
    /// A periodic report.
    Progress {
        /// Time since the start in seconds.
        seconds: f64,
        /// The counters.
        #[serde(flatten)]
        counters: Counters,
        /// Bytes a second to the device over the last seconds.
        rate: f64,
        /// Files a second over the last seconds.
        files_rate: f64,
        /// What is done of the whole, in percent; `None` while files are counted.
        percent: Option<f64>,
        /// Time left, once it can be estimated.
        eta: Option<Eta>,
        /// What limits the speed.
        limit: Option<Limit>,
        /// Whether the job is paused.
        paused: bool,
        /// A server that does not answer, if the job waits for one.
        connection_lost: Option<LostConnection>,
    },
    /// An item failed and was abandoned (or the whole job, if `fatal`).
    ItemError {
        /// The node, for display.
        path: String,
        /// The operation.
        op: Op,
        /// The kind of error.
        kind: ErrorKind,
        /// The complete message.
        message: String,
        /// Whether it occurred at the source.
        on_source: bool,
        /// Whether the job stops.
        fatal: bool,
    },
    /// A note for the user that is not an error.
    Note {
        /// The node, if any.
        path: Option<String>,
        /// The message.
        message: String,
    },
    /// A node was handled (`--log`, `--dry-run`).
    Item {
        /// The node.
        path: String,
        /// The action done (or to be done): `copy`, `update`, `skip`, `delete`, `mkdir`, `link`,
        /// `attributes`, `rename`.
        action: &'static str,
        /// Logical size.
        bytes: u64,
        /// Why two nodes differ, in a comparison.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<Reason>,
    },
}

/// The result of a whole job.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Counters at the end.
    pub counters: Counters,
    /// Time until everything was written, without waiting for the device.
    pub perceived: Duration,
    /// Time until everything was durable; `None` if that was not asked for.
    pub durable: Option<Duration>,
    /// Time that verification took.
    pub verified: Option<Duration>,
    /// Files whose content differed on verification.
    pub differences: u64,
    /// Items that failed.
    pub errors: u64,
    /// Number of failed files of which a torn copy is kept.
    pub torn: u64,
    /// Files that differed on verification, and were copied again and verified.
    pub repaired: u64,
    /// Attributes that the target could not keep, with counts.
    pub losses: BTreeMap<Loss, u64>,
    /// Whether an earlier run of the same job was continued.
    pub resumed: bool,
    /// Bytes of partial files reused from an earlier run.
    pub bytes_resumed: u64,
    /// Bytes of changed files that were copied from the old ones instead of being sent.
    pub bytes_reused: u64,
    /// What limited the speed most of the time.
    pub limit: Option<Limit>,
}
