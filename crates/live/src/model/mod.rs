//! What a process does at one moment: one model for `top`, a web page and `/metrics`.
//!
//! A snapshot is JSON with the names below. Later versions of ropeway add fields; a change that breaks
//! readers raises [`VERSION`]. Readers take what is missing as zero, and skip what they do not know.

mod fleet;
mod job;
mod page_cache;
mod parts;
mod server;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::history::{History, Rates};
pub use fleet::{Fleet, FleetFailure, FleetRates, FleetWorker, WORKERS_MAX};
pub use job::Job;
pub use page_cache::{Device, PageCache};
pub use parts::{Cache, Mount, Run};
pub use ropeway_boost::Status as CacheStatus;
pub use ropeway_write_back::Status as Backlog;
pub use server::{Latency, OpenFile, Server, Session, Share};

/// Version of the model.
pub const VERSION: u32 = 1;

/// Last messages that a part keeps.
pub const MESSAGES_MAX: usize = 20;
/// Longest message in characters.
pub const MESSAGE_MAX: usize = 500;

/// A process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Version of the model.
    pub version: u32,
    /// The moment, in seconds since 1970.
    pub taken: f64,
    /// The process.
    pub process: Process,
    /// Copies, mirrors and comparisons.
    pub jobs: Vec<Job>,
    /// SMB servers.
    pub servers: Vec<Server>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Flash caches in use.
    pub caches: Vec<Cache>,
    /// Write-back journals in use.
    pub backlogs: Vec<Backlog>,
    /// Jobs of fleets that are watched.
    pub fleets: Vec<Fleet>,
    /// Runs of the laboratory, of the demo and the like.
    pub runs: Vec<Run>,
    /// What the page cache owes the devices; `None` if that was not looked at yet.
    pub page_cache: Option<PageCache>,
}

/// A process of ropeway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The command: `copy`, `serve`, …
    pub command: String,
    /// The whole command line, without secrets.
    pub arguments: Vec<String>,
    /// Version of the program.
    pub program_version: String,
    /// The user's number.
    pub uid: u32,
    /// The user's name; empty if there is none.
    pub user: String,
    /// Start in seconds since 1970.
    pub started: f64,
    /// Whether it was asked to stop.
    pub stopping: bool,
    /// What it takes of the machine.
    pub resources: Resources,
}

/// What a process takes of the machine; `None` where /proc does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Bytes of memory in use.
    pub resident_bytes: Option<u64>,
    /// Bytes of memory mapped.
    pub virtual_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// Most descriptors that may be open.
    pub fds_max: Option<u64>,
    /// Seconds of processor time, user and system.
    pub cpu_seconds: Option<f64>,
}

/// Something that a part said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    /// The moment in seconds since 1970.
    pub at: f64,
    /// Whether it reports a failure.
    pub is_error: bool,
    /// The text, bounded.
    pub text: String,
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// Number since the beginning.
    pub count: u64,
    /// Seconds that they took altogether.
    pub seconds: f64,
}

impl Operation {
    /// Returns the mean time in milliseconds; `None` if none took any that is known.
    pub fn mean_ms(&self) -> Option<f64> {
        Some(self.seconds / self.count as f64 * 1000.0).filter(|mean| *mean > 0.0)
    }
}

/// Operations by kind: `read`, `write`, `open`, …
pub type Operations = BTreeMap<String, Operation>;

/// Returns the kinds that occurred, the most frequent first.
pub fn by_frequency(operations: &Operations) -> Vec<(&str, &Operation)> {
    let kinds = operations.iter().filter(|(_, operation)| operation.count > 0);
    let mut kinds: Vec<_> = kinds
        .map(|(kind, operation)| (kind.as_str(), operation))
        .collect();
    kinds.sort_by_key(|(_, operation)| Reverse(operation.count));
    kinds
}

impl Snapshot {
    /// Whether it has a copy, mirror or comparison.
    pub fn has_job(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns the bytes that are written and not known to be durable: of jobs, mounts and journals.
    pub fn dirty_bytes(&self) -> u64 {
        let jobs = self.jobs.iter().map(Job::dirty_bytes);
        let mounts = self.mounts.iter().map(|mount| mount.unflushed_bytes);
        let backlogs = self.backlogs.iter().map(|backlog| backlog.bytes);
        jobs.chain(mounts).chain(backlogs).fold(0, u64::saturating_add)
    }

    /// Returns the rates of all parts together.
    pub fn rates(&self) -> Rates {
        let all = (self.jobs.iter().map(|job| job.rates))
            .chain(self.servers.iter().map(|server| server.rates))
            .chain(self.mounts.iter().map(|mount| mount.rates));
        all.fold(Rates::default(), |sum, one| Rates {
            read: sum.read + one.read,
            written: sum.written + one.written,
            durable: sum.durable + one.durable,
            files: sum.files + one.files,
            operations: sum.operations + one.operations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_comes_back_as_it_was_written() {
        let snapshot = Snapshot {
            version: VERSION,
            taken: 1.5,
            jobs: vec![Job::default()],
            servers: vec![Server {
                sessions: vec![Session::default()],
                ..Server::default()
            }],
            mounts: vec![Mount::default()],
            caches: vec![Cache::default()],
            backlogs: vec![Backlog::default()],
            runs: vec![Run::default()],
            page_cache: Some(PageCache {
                devices: vec![Device::default()],
                ..PageCache::default()
            }),
            ..Snapshot::default()
        };
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }

    #[test]
    fn other_versions_can_be_read() {
        let older: Snapshot = serde_json::from_str(r#"{"jobs":[{"kind":"copy"}]}"#).unwrap();
        assert_eq!(older.jobs[0].kind, "copy");
        let newer = r#"{"version":1,"jobs":[{"counters":{"bytes_read":5,"new":{}},"what":[1]}],"new":1}"#;
        let newer: Snapshot = serde_json::from_str(newer).unwrap();
        assert_eq!(newer.jobs[0].counters.bytes_read, 5);
    }
}
