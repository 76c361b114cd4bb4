//! The document of a run, `bench.json`, version 1: everything that tables, plots, comparisons and a
//! continued run need. Times are in seconds, sizes in bytes; unknown values are absent, never 0.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bench::budget::Speed;
use crate::bench::cell::{Key, Mode, Pattern};
use crate::bench::reason::Finding;
use crate::named::named;
use crate::report::{FileError, Machine, Median, load_json, save_json};

/// Version that this build writes. Documents of another version are refused.
pub const VERSION: u32 = 1;
/// Name of the document in a report's folder.
pub const FILE: &str = "bench.json";
/// What `type` says.
const TYPE: &str = "bench";

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `bench`.
    #[serde(rename = "type")]
    pub kind: String,
    /// [`VERSION`].
    pub version: u32,
    /// Name and version of the program.
    pub program: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Time of the last change, RFC 3339.
    pub updated: String,
    /// Whether all rounds were made.
    pub complete: bool,
    /// What was measured.
    pub target: Target,
    /// What may explain figures.
    pub conditions: Conditions,
    /// Settings.
    pub settings: Settings,
    /// What a short look at the target found, on which the plan is based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// Reads and writes.
    pub cells: Vec<Cell>,
    /// Operations on names.
    #[serde(default)]
    pub nodes: Vec<NodeCell>,
    /// The files that were read and written over.
    #[serde(default)]
    pub files: Vec<Filled>,
    /// What was not measured, with the reasons.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Reasons to doubt figures.
    #[serde(default)]
    pub warnings: Vec<Finding>,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The target as it was given.
    pub shown: String,
    /// `folder` or `share`.
    pub kind: String,
    /// Type of the file system, e.g. `ext4`, or of the server's volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// Source of the mount: a device, a server's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// One line about connection and protection of a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
}

/// What may explain figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The machine.
    pub machine: Machine,
    /// Load average of the last minute at the start.
    pub load: f64,
    /// Whether the machine is virtual.
    #[serde(default)]
    pub virtual_machine: bool,
    /// Frequency governor of the first processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Dirty bytes from which the kernel writes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_background_bytes: Option<u64>,
    /// The device below a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The network interface towards the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Whether the file system keeps its files in memory.
    #[serde(default)]
    pub in_memory: bool,
    /// Whether a server answers, so that its memory takes part.
    #[serde(default)]
    pub far: bool,
    /// Compression of the file system, e.g. `compress=zstd:1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name, e.g. `sda`.
    pub name: String,
    /// Whether it has moving parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Whether it confirms writes from a volatile cache of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Whether it is a file that the page cache holds as well (a loop device without direct I/O).
    #[serde(default)]
    pub in_page_cache: bool,
}

/// The network towards a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Name of the interface, or how else the rate is known.
    pub name: String,
    /// Its rate in bits a second.
    pub bits_per_s: u64,
}

/// Settings of a run. Runs with other settings are not continued.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// File sizes.
    pub sizes: Vec<u64>,
    /// Record sizes.
    pub records: Vec<u64>,
    /// Patterns.
    pub patterns: Vec<Pattern>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Numbers of requests in flight.
    pub depths: Vec<u32>,
    /// Number of rounds.
    pub runs: u32,
    /// Time after which no further step begins.
    pub budget_seconds: f64,
    /// Time limit of a pass.
    pub pass_seconds: f64,
    /// Number of files of the operations on names; 0 for none.
    pub files: u64,
    /// Seed of all orders and data.
    pub seed: u64,
    /// Whether files stay in the page cache between passes.
    pub keep_cache: bool,
    /// Whether all caches of the kernel are dropped, not only those of the files.
    pub drop_caches: bool,
    /// What carries requests in flight: `io_uring`, `threads`, or `SMB`.
    pub engine: String,
}

/// Runs of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Key.
    #[serde(flatten)]
    pub key: Key,
    /// Runs, in order.
    pub runs: Vec<Sample>,
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time from the first request to the last answer, and to the end of the flush in mode `fsync`.
    pub seconds: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Requests.
    pub operations: u64,
    /// Time of the flush, which is part of [`Self::seconds`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_seconds: Option<f64>,
    /// Median latency of a request.
    pub p50_us: f64,
    /// Latency that 99 % of the requests did not exceed.
    pub p99_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// Whether the pass was ended before the whole file was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Share of the file that was in the page cache before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_memory_before: Option<f64>,
    /// Share of the written bytes that were still in memory only when the clock was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_written: Option<f64>,
    /// Bytes a second in the first quarter of a pass that lasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bps: Option<f64>,
    /// Bytes a second in its last quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_bps: Option<f64>,
    /// Processors that others kept busy during the step, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_busy: Option<f64>,
    /// Share of the step's time that the hypervisor gave to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
}

impl Sample {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

impl Cell {
    /// Median and range of the bytes a second.
    pub fn rate(&self) -> Option<Median> {
        self.median(Sample::rate)
    }

    /// Median and range of the requests a second.
    pub fn requests(&self) -> Option<Median> {
        self.median(|run| run.operations as f64 / run.seconds.max(1e-9))
    }

    /// Median and range of a figure of the runs.
    pub fn median(&self, of: impl Fn(&Sample) -> f64) -> Option<Median> {
        Median::of(self.runs.iter().map(of).collect())
    }

    /// Median of a figure that runs may lack.
    pub fn known(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        Median::of(self.runs.iter().filter_map(of).collect()).map(|median| median.value)
    }
}

named! {
    /// An operation on names.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum NodeOperation: "operation" {
        /// Makes and closes an empty file.
        Create = "create",
        /// Reads the metadata of a file by its path.
        Stat = "stat",
        /// Lists the folder; an operation is one entry.
        List = "list",
        /// Gives a file another name in the same folder.
        Rename = "rename",
        /// Removes a file.
        Remove = "remove",
    }
}

/// Runs of an operation on names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCell {
    /// Operation.
    pub operation: NodeOperation,
    /// Number of operations in flight.
    pub depth: u32,
    /// Runs, in order.
    pub runs: Vec<Sample>,
}

impl NodeCell {
    /// Median and range of the operations a second.
    pub fn rate(&self) -> Option<Median> {
        let rate = |run: &Sample| run.operations as f64 / run.seconds.max(1e-9);
        Median::of(self.runs.iter().map(rate).collect())
    }

    /// Median of a figure of the runs.
    pub fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        Median::of(self.runs.iter().map(of).collect()).map_or(0.0, |median| median.value)
    }
}

/// A file that was filled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// Its size.
    pub size: u64,
    /// Share of the size that the volume has allocated, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<f64>,
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

impl Report {
    /// Returns a report without results.
    pub fn new(target: Target, conditions: Conditions, settings: Settings, now: String) -> Self {
        Self {
            kind: TYPE.to_owned(),
            version: VERSION,
            program: concat!("ropeway ", env!("CARGO_PKG_VERSION")).to_owned(),
            updated: now.clone(),
            started: now,
            target,
            conditions,
            settings,
            ..Self::default()
        }
    }

    /// Returns the cell of a key.
    pub fn cell(&self, key: &Key) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.key == *key)
    }

    /// Adds a run to its cell, which is added if it is missing.
    pub fn add(&mut self, key: Key, run: Sample) {
        match self.cells.iter_mut().find(|cell| cell.key == key) {
            Some(cell) => cell.runs.push(run),
            None => self.cells.push(Cell { key, runs: vec![run] }),
        }
    }

    /// Number of runs of a cell.
    pub fn runs(&self, key: &Key) -> usize {
        self.cell(key).map_or(0, |cell| cell.runs.len())
    }

    /// Adds a run of an operation on names.
    pub fn add_node(&mut self, operation: NodeOperation, depth: u32, run: Sample) {
        let known = self.nodes.iter_mut();
        let mut known = known.filter(|cell| cell.operation == operation && cell.depth == depth);
        match known.next() {
            Some(cell) => cell.runs.push(run),
            None => self.nodes.push(NodeCell {
                operation,
                depth,
                runs: vec![run],
            }),
        }
    }

    /// Notes something that is not measured, once.
    pub fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let left = LeftOut {
            what: what.into(),
            why: why.into(),
        };
        if !self.left_out.contains(&left) {
            self.left_out.push(left);
        }
    }

    /// Whether a new run with these settings may go on where this one was cut. The time limit of a
    /// pass is that of the old one.
    pub fn continues(&self, new: &Self) -> bool {
        let settings = Settings {
            pass_seconds: self.settings.pass_seconds,
            ..new.settings.clone()
        };
        !self.complete
            && self.target == new.target
            && self.conditions.machine == new.conditions.machine
            && self.program == new.program
            && self.settings == settings
    }
}

/// Writes a report atomically.
///
/// # Errors
/// A system call fails.
pub fn save(report: &Report, path: &Path) -> Result<(), FileError> {
    save_json(report, path)
}

/// Reads a report: a file, or [`FILE`] in a folder.
///
/// # Errors
/// The file cannot be read, is no report of `bench`, or is of another version.
pub fn load(path: &Path) -> Result<Report, FileError> {
    let path = &if path.is_dir() {
        path.join(FILE)
    } else {
        path.to_owned()
    };
    let strange = |reason: String| FileError::Strange {
        path: path.to_owned(),
        reason,
    };
    let not_one = |error: serde_json::Error| strange(format!("no report of bench: {error}"));
    let value = load_json(path, "bench")?;
    if value.get("type").and_then(serde_json::Value::as_str) != Some(TYPE) {
        return Err(strange("no report of bench".to_owned()));
    }
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => serde_json::from_value(value).map_err(not_one),
        version => {
            let version = version.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
            Err(strange(format!(
                "a report of version {version}, and this program knows {VERSION}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_report_is_read_as_it_was_written_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut report = Report::new(
            Target::default(),
            Conditions::default(),
            Settings::default(),
            "2026-01-01T00:00:00Z".to_owned(),
        );
        let key = Key {
            size: 4096,
            record: 4096,
            mode: Mode::Direct,
            depth: 1,
            pattern: Pattern::RandomRead,
        };
        let run = Sample {
            seconds: 0.1 + 0.2,
            bytes: 4096,
            operations: 1,
            ..Sample::default()
        };
        report.add(key, run.clone());
        report.add(key, run);
        report.leave_out("direct", "no direct I/O");
        report.leave_out("direct", "no direct I/O");
        assert_eq!(
            (report.cells.len(), report.runs(&key), report.left_out.len()),
            (1, 2, 1)
        );
        save(&report, &path).unwrap();
        assert_eq!(load(&path).unwrap(), report);
        assert_eq!(
            load(folder.path()).unwrap(),
            report,
            "a folder stands for its document"
        );
        let other = fs::read_to_string(&path).unwrap();
        for (text, word) in [
            ("{", "no report"),
            ("{\"version\": 1}", "no report"),
            (&other.replace("\"version\":1", "\"version\":7"), "version 7"),
            ("{\"type\":\"bench\",\"version\":1}", "missing field"),
        ] {
            fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn only_a_cut_run_with_the_same_settings_goes_on() {
        let new = || {
            Report::new(
                Target::default(),
                Conditions::default(),
                Settings::default(),
                String::new(),
            )
        };
        assert!(new().continues(&new()));
        let mut other = new();
        other.settings.runs = 7;
        assert!(!new().continues(&other));
        let mut done = new();
        done.complete = true;
        assert!(!done.continues(&new()));
    }
}
