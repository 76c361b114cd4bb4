//! What a job reports: one source for bar, JSON Lines, log and report.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ErrorKind, Loss, Op};

/// Counters of a job at one moment. Bytes are payload bytes.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
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
    /// Payload bytes handed to the target, re-sends included; 0 for reflink, hole, skip, server-side copy.
    pub bytes_sent: u64,
    /// Logical bytes known to be durable on the target.
    pub bytes_durable: u64,
    /// Nodes deleted (mirror).
    pub deleted: u64,
    /// Tries repeated after a passing error.
    pub retries: u64,
}

/// What holds a job back at the moment.
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
}

/// An estimate of the time left: best guess and range.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Eta {
    /// Best guess.
    pub seconds: f64,
    /// Optimistic end of the range.
    pub low: f64,
    /// Pessimistic end of the range.
    pub high: f64,
}

/// The phase a job is in.
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

/// One thing that happened; the order is the order of happening.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A phase began.
    Phase {
        /// Which.
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
        /// Time left, when it can be told.
        eta: Option<Eta>,
        /// What holds it back.
        limit: Option<Limit>,
    },
    /// An item failed and was given up (or the whole job, when `fatal`).
    ItemError {
        /// The node, for people.
        path: String,
        /// What was attempted.
        op: Op,
        /// What kind of fault.
        kind: ErrorKind,
        /// The whole sentence.
        message: String,
        /// Whether this happened on the source's side.
        on_source: bool,
        /// Whether the job stops.
        fatal: bool,
    },
    /// Something worth knowing that is no error.
    Note {
        /// The node, if any.
        path: Option<String>,
        /// The sentence.
        message: String,
    },
    /// A node was handled (`--log`, `--dry-run`).
    Item {
        /// The node.
        path: String,
        /// What was done (or would be): `copy`, `update`, `skip`, `delete`, `mkdir`, `link`, `attributes`, `rename`.
        action: &'static str,
        /// Logical size.
        bytes: u64,
    },
}

/// What a job did, whole.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Summary {
    /// Counters at the end.
    pub counters: Counters,
    /// When it seemed done: all written, nothing awaited from the device.
    pub perceived: Duration,
    /// When it was durable; `None` if that was not asked for.
    pub durable: Option<Duration>,
    /// How long verification took.
    pub verified: Option<Duration>,
    /// Files whose content differed on verification.
    pub differences: u64,
    /// Items that failed.
    pub errors: u64,
    /// Files among them of which a torn copy is kept.
    pub torn: u64,
    /// Files that verification found to differ, and that were copied again and verified.
    pub repaired: u64,
    /// What the target could not keep, counted.
    pub losses: BTreeMap<Loss, u64>,
    /// Whether an earlier run of the same job was continued.
    pub resumed: bool,
    /// Bytes of partial files taken over from an earlier run.
    pub bytes_resumed: u64,
    /// What held the job back most of the time.
    pub limit: Option<Limit>,
}
