//! The document `report.json`, version 1.
//!
//! ```text
//!   Document ─┬─ machine, versions, settings        what it was measured with
//!             ├─ works, links                       what was moved, over what; each link proved
//!             ├─ cells ── runs                      one client with one server, one work, one way, one link
//!             ├─ curves ── series                   anything against anything: throughput, operations, dirty bytes
//!             ├─ published                          what others printed for the same cells
//!             ├─ score                              one figure by parts
//!             └─ warnings                           why a figure may be wrong
//! ```
//!
//! Times are seconds, sizes bytes, rates bits a second on the wire; a unit is in the name of its field. What is not
//! known is absent, never nought. Unknown fields are ignored, so that a later version with more of them is still read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version that this build writes; another one is refused when it is read.
pub const VERSION: u32 = 1;

/// Everything that one lab found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the lab, as it was asked for: `tr3869`, `nas`, or the name of a scenario.
    pub lab: String,
    /// One line for people.
    pub title: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// When the last thing was added, RFC 3339.
    pub updated: String,
    /// Whether everything that was asked for is there.
    pub complete: bool,
    /// What it ran on.
    pub machine: Machine,
    /// Programs and their versions.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// How it was set up, in the order to be shown.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// What was moved.
    #[serde(default)]
    pub works: Vec<WorkSummary>,
    /// Over what.
    #[serde(default)]
    pub links: Vec<LinkSummary>,
    /// What was measured.
    #[serde(default)]
    pub cells: Vec<Cell>,
    /// What was measured over time, size or another axis.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// What others printed.
    #[serde(default)]
    pub published: Vec<Published>,
    /// One figure for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Clients and servers that were asked for and are not there, each with the reason.
    #[serde(default)]
    pub skipped: BTreeMap<String, String>,
    /// Why figures may be wrong.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// As `uname -r` says.
    pub kernel: String,
    /// The model of the first processor.
    pub processor: String,
    /// How many there are.
    pub processors: u32,
    /// Of all memory.
    pub memory_bytes: u64,
    /// The system's name, of os-release(5).
    pub system: String,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// What.
    pub name: String,
    /// How.
    pub value: String,
}

/// One work set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkSummary {
    /// As cells name it.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Files in it.
    pub files: u64,
    /// Folders in it, its root left out.
    pub folders: u64,
    /// Bytes in all files.
    pub bytes: u64,
    /// What it was made from: the same seed and scale give the same bytes.
    pub seed: u64,
    /// Share of the full size.
    pub scale: f64,
    /// Size by LZ4 (blocks of 64 KiB) divided by size; 1 does not compress.
    pub lz4_ratio: f64,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// As cells name it.
    pub name: String,
    /// `packets` (real TCP between namespaces), `relay`, or `none` (this machine's own loopback or disk).
    pub kind: String,
    /// Round trip time.
    pub rtt_ms: f64,
    /// Part of it from near to far; absent where each way is half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_delay_ms: Option<f64>,
    /// Part of it from far to near; absent where each way is half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_delay_ms: Option<f64>,
    /// Bits a second from near to far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_bps: Option<u64>,
    /// Bits a second from far to near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_bps: Option<u64>,
    /// Share of segments that are lost.
    pub loss: f64,
    /// When it is cut in each run, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<LinkCut>,
    /// Congestion control of both ends, the same for all clients.
    pub congestion: String,
    /// All that was set, one line for people.
    pub described: String,
    /// That the emulator kept to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<LinkProof>,
}

/// A time without a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCut {
    /// After the start of a run.
    pub at_seconds: f64,
    /// How long it lasts; absent: until the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// The emulator measured by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkProof {
    /// Median round trip of small datagrams.
    pub rtt_ms: f64,
    /// Rate of datagrams upwards.
    pub up_bps: f64,
    /// Rate of TCP downwards.
    pub down_bps: f64,
    /// Share of segments that were lost.
    pub loss: f64,
    /// Whether all are within their bounds.
    pub holds: bool,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellKey {
    /// Name of a [`LinkSummary`].
    pub link: String,
    /// Name of a [`WorkSummary`].
    pub work: String,
    /// `read` (from the server) or `write` (to it).
    pub direction: String,
    /// Client: `ropeway`, `smbclient`, `rclone`, `rsync`, `cp`.
    pub client: String,
    /// Server: `ropeway`, `smbd`, `rsyncd`, or a kind of disk.
    pub server: String,
    /// What else tells it apart: an engine, a record size, a profile. Empty in most labs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

/// One thing measured, several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What.
    pub key: CellKey,
    /// Bytes moved, without any framing.
    pub payload_bytes: u64,
    /// Files moved.
    pub files: u64,
    /// What the line alone takes: payload x 1538/1448 x 8 / rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_seconds: Option<f64>,
    /// What bare TCP takes on this link for as many bytes, best of 1, 4 and 16 connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_seconds: Option<f64>,
    /// Most seconds that it may take to be as good as asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_seconds: Option<f64>,
    /// The runs, in the order in which they ran.
    pub runs: Vec<Run>,
}

impl Cell {
    /// Runs that count: neither discarded nor failed.
    pub fn counted(&self) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(|run| !run.discarded && matches!(run.outcome, Outcome::Done))
    }

    /// Median and spread of what a run measured; `None` when no counted run has it.
    pub fn median(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Median> {
        Median::of(self.counted().filter_map(of).collect())
    }

    /// Median seconds to be judged by the target: of the whole process, since the floor connects and greets too.
    pub fn judged(&self) -> Option<Median> {
        self.median(|run| Some(run.whole_seconds))
    }

    /// Whether each run that counts knows its transfer.
    pub(super) fn knows_transfer(&self) -> bool {
        self.counted().all(|run| run.transfer_seconds.is_some())
    }

    /// Median seconds to be compared: of the transfer where all runs know it, else of the whole process.
    pub fn seconds(&self) -> Option<Median> {
        if self.knows_transfer() {
            self.median(|run| run.transfer_seconds)
        } else {
            self.judged()
        }
    }
}

/// The middle of some figures, and how far apart they lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Median {
    /// The median; the mean of the middle two where their number is even.
    pub value: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// How many there are.
    pub number: usize,
}

impl Median {
    /// Of some figures; `None` if there are none. What is not a number is left out.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let value = if values.len().is_multiple_of(2) {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values[middle]
        };
        Some(Self {
            value,
            least,
            most,
            number: values.len(),
        })
    }

    /// From the least to the most, as a share of the median.
    pub fn spread(&self) -> f64 {
        (self.most - self.least) / self.value
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, RFC 3339.
    pub started: String,
    /// Whether it only warmed up and does not count.
    pub discarded: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// From the start of the client's process to its end.
    pub whole_seconds: f64,
    /// Without start, login and the end: what a copy between mounted drives would take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_seconds: Option<f64>,
    /// Until everything was durable, where the client waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable_seconds: Option<f64>,
    /// Processor time of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpu_seconds: Option<f64>,
    /// Processor time of the server, meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_seconds: Option<f64>,
    /// Most memory of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_memory_bytes: Option<u64>,
    /// Most memory of the server, meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_memory_bytes: Option<u64>,
    /// Processors that neither client, server nor link kept busy, on average: others' work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_busy: Option<f64>,
    /// 99th percentile of another process's small reads meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_p99_ms: Option<f64>,
}

impl Run {
    /// One of which nothing is known but why it failed.
    pub(crate) fn failed(started: String, why: String) -> Self {
        Self::of(started, Outcome::Failed(why), 0.0)
    }

    /// One of which nothing is known but how it ended and how long it took.
    pub(crate) fn of(started: String, outcome: Outcome, whole_seconds: f64) -> Self {
        Self {
            started,
            discarded: false,
            outcome,
            whole_seconds,
            transfer_seconds: None,
            durable_seconds: None,
            client_cpu_seconds: None,
            server_cpu_seconds: None,
            client_memory_bytes: None,
            server_memory_bytes: None,
            others_busy: None,
            reads_p99_ms: None,
        }
    }

    /// Seconds to be compared: of the transfer where it is known, else of the whole process.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.transfer_seconds.unwrap_or(self.whole_seconds))
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum Outcome {
    /// As it should, and what arrived was compared.
    Done,
    /// The client failed, or what arrived differs.
    Failed(String),
    /// It took longer than it was given.
    TimedOut(String),
}

/// Anything against anything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What tells it apart in the document; fit for a file name.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// How it wants to be drawn.
    pub drawing: Drawing,
    /// Along.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// Each drawn by itself.
    pub series: Vec<Series>,
}

/// How a [`Curve`] is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drawing {
    /// Points joined by lines.
    Lines,
    /// A bar for each point; `x` counts the names in [`Axis::names`].
    Bars,
}

/// One axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it is.
    pub label: String,
    /// Its unit: `s`, `B`, `B/s`, `1/s`, `ms`; empty for names.
    pub unit: String,
    /// Whether it is logarithmic, to the base of 2 for `B`, else of 10.
    #[serde(default)]
    pub logarithmic: bool,
    /// Names of 0, 1, 2 and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

impl Axis {
    /// Linear, without names.
    pub fn new(label: &str, unit: &str) -> Self {
        Self {
            label: label.to_owned(),
            unit: unit.to_owned(),
            logarithmic: false,
            names: Vec::new(),
        }
    }
}

/// Points of one curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// One word or two for people.
    pub name: String,
    /// x and y; x never falls.
    pub points: Vec<[f64; 2]>,
    /// Whether others published it.
    #[serde(default)]
    pub published: bool,
}

/// One figure that others printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Where: document and table.
    pub source: String,
    /// Name of the link that is like theirs.
    pub link: String,
    /// Name of the work that is like theirs.
    pub work: String,
    /// `read` or `write`.
    pub direction: String,
    /// Their client.
    pub client: String,
    /// Their server.
    pub server: String,
    /// Their seconds.
    pub seconds: f64,
}

/// One figure for a whole lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// How it is made, one sentence.
    pub described: String,
    /// The figure: the geometric mean of its parts.
    pub value: f64,
    /// Its parts.
    pub parts: Vec<ScorePart>,
    /// What others printed, by name.
    #[serde(default)]
    pub published: BTreeMap<String, f64>,
}

/// A part of a [`Score`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScorePart {
    /// What.
    pub name: String,
    /// More is better; 1 is like what it is compared with.
    pub value: f64,
}

/// Why a figure may be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What it concerns; absent if everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellKey>,
    /// One sentence.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        let median = Median::of(vec![3.0, 1.0, f64::NAN, 2.0]).expect("there are figures");
        assert_eq!(
            (median.least, median.value, median.most, median.number),
            (1.0, 2.0, 3.0, 3)
        );
        assert_eq!(Median::of(vec![1.0, 2.0]).map(|median| median.value), Some(1.5));
        assert_eq!(Median::of(vec![f64::NAN]), None);
    }
}
