//! The document `report.json`, version 1.
//!
//! ```text
//!   Document ─┬─ machine, versions, settings        what it was measured with
//!             ├─ works, links                       what was moved, over what; each link proved
//!             ├─ floors                             bare TCP by number of connections
//!             ├─ cells ── runs                      one client and server, one work, one direction, one link
//!             ├─ curves ── series                   anything against anything: throughput, operations, dirty bytes
//!             ├─ published                          published figures for the same cells
//!             ├─ score                              one figure by parts
//!             └─ warnings                           why a figure may be wrong
//! ```
//!
//! Times are in seconds, sizes in bytes, rates in bits a second on the wire; a field's name has its unit.
//! Unknown values are absent, never 0. Unknown fields are ignored, so that documents with more fields
//! can still be read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version that this build writes. Documents of another version are refused.
pub const VERSION: u32 = 1;

/// Results of one lab.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the lab: `tr3869`, `nas`, or the name of a scenario.
    pub lab: String,
    /// One line for people.
    pub title: String,
    /// Start of the lab, RFC 3339.
    pub started: String,
    /// Time of the last change, RFC 3339.
    pub updated: String,
    /// Whether all results are there.
    pub complete: bool,
    /// Machine of the lab.
    pub machine: Machine,
    /// Version of each program.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Settings, in the order of display.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// Works.
    #[serde(default)]
    pub works: Vec<WorkSummary>,
    /// Links.
    #[serde(default)]
    pub links: Vec<LinkSummary>,
    /// Times of bare TCP by number of connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<FloorTime>,
    /// Cells.
    #[serde(default)]
    pub cells: Vec<Cell>,
    /// Measurements over time, size or another axis.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// Published figures.
    #[serde(default)]
    pub published: Vec<Published>,
    /// One figure for the whole lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Clients and servers that are not available, with the reasons.
    #[serde(default)]
    pub skipped: BTreeMap<String, String>,
    /// Warnings about figures that may be wrong.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Model of the first processor.
    pub processor: String,
    /// Number of processors.
    pub processors: u32,
    /// Size of the memory.
    pub memory_bytes: u64,
    /// Name of the system (os-release(5)).
    pub system: String,
}

/// One setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
}

/// Summary of a work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkSummary {
    /// Name in cells.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Number of files.
    pub files: u64,
    /// Number of folders, without the root.
    pub folders: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Seed: the same seed and scale give the same bytes.
    pub seed: u64,
    /// Share of the full size.
    pub scale: f64,
    /// Size after LZ4 (blocks of 64 KiB) divided by the size; 1 for incompressible data.
    pub lz4_ratio: f64,
}

/// Summary of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Name in cells.
    pub name: String,
    /// `packets` (real TCP between namespaces), `relay`, or `none` (this machine's own loopback or disk).
    pub kind: String,
    /// Round-trip time.
    pub rtt_ms: f64,
    /// Delay from near to far; absent if it is half of the round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_delay_ms: Option<f64>,
    /// Delay from far to near; absent if it is half of the round trip.
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
    /// Cuts in each run, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<LinkCut>,
    /// Congestion control of both ends, the same for all clients.
    pub congestion: String,
    /// All settings in one line for people.
    pub described: String,
    /// Measurement of the link alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<LinkProof>,
}

/// [`LinkSummary::kind`] of a link that is this machine's own loopback or disk.
pub const LOOPBACK: &str = "none";

/// What bare TCP took for the bytes of a work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FloorTime {
    /// Name of a [`LinkSummary`].
    pub link: String,
    /// Name of a [`WorkSummary`].
    pub work: String,
    /// `read` or `write`.
    pub direction: String,
    /// Number of connections.
    pub connections: usize,
    /// Seconds from the first SYN to the last confirmation.
    pub seconds: f64,
    /// Whether the measurement was ended after these seconds, since another number of connections is
    /// far better. Then the time is longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

/// The TCP connections of both ends in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The client's.
    pub near: SocketEnd,
    /// The server's.
    pub far: SocketEnd,
}

/// The TCP connections of one end, as last seen before they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketEnd {
    /// Their congestion control; several, if they differ.
    pub congestion: String,
    /// Number of connections.
    pub connections: u64,
    /// Segments with data sent, those sent again included.
    pub segments: u64,
    /// Segments sent again.
    pub sent_again: u64,
}

/// A time without a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCut {
    /// Start, counted from the start of a run.
    pub at_seconds: f64,
    /// Length; absent if it lasts until the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Measurement of an emulated link alone.
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
    /// Whether all values are within their bounds.
    pub holds: bool,
}

/// Key of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Further part of the key: an engine, a record size, a profile. Empty in most labs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

/// One measured combination, with its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Key.
    pub key: CellKey,
    /// Bytes moved, without any framing.
    pub payload_bytes: u64,
    /// Files moved.
    pub files: u64,
    /// Time of the payload on the line: payload x 1538/1448 x 8 / rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_seconds: Option<f64>,
    /// Time of bare TCP for as many bytes on this link, best of 1, 4 and 16 connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_seconds: Option<f64>,
    /// Target in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_seconds: Option<f64>,
    /// Whether the target is one of the transfer alone; else it is one of the whole process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub judges_transfer: bool,
    /// Runs, in order.
    pub runs: Vec<Run>,
}

impl Cell {
    /// Returns the runs that count: neither discarded nor failed.
    pub fn counted(&self) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(|run| !run.discarded && matches!(run.outcome, Outcome::Done))
    }

    /// Returns median and spread of a value; `None` if no counted run has it.
    pub fn median(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Median> {
        Median::of(self.counted().filter_map(of).collect())
    }

    /// Returns the median seconds that the target judges: as a rule those of the whole process, since the
    /// floor also has connections and set-up.
    pub fn judged(&self) -> Option<Median> {
        match self.judges_transfer {
            true => self.median(|run| run.transfer_seconds),
            false => self.median(|run| Some(run.whole_seconds)),
        }
    }

    /// Whether each counted run has the time of its transfer.
    pub(super) fn knows_transfer(&self) -> bool {
        self.counted().all(|run| run.transfer_seconds.is_some())
    }

    /// Returns the median seconds for comparisons: of the transfer if all runs have it, else of the whole
    /// process.
    pub fn seconds(&self) -> Option<Median> {
        if self.knows_transfer() {
            self.median(|run| run.transfer_seconds)
        } else {
            self.median(|run| Some(run.whole_seconds))
        }
    }
}

/// Median and range of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Median {
    /// The median; the mean of the middle two where their number is even.
    pub value: f64,
    /// Least figure.
    pub least: f64,
    /// Largest figure.
    pub most: f64,
    /// Number of figures.
    pub number: usize,
}

impl Median {
    /// Returns that of some figures; `None` without any. Non-finite figures are ignored.
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

    /// Returns the range as a share of the median.
    pub fn spread(&self) -> f64 {
        (self.most - self.least) / self.value
    }
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Whether the run only warmed up and does not count.
    pub discarded: bool,
    /// End of the run.
    pub outcome: Outcome,
    /// Time from the start of the client's process to its end.
    pub whole_seconds: f64,
    /// Time without start, login and end, as for a copy between mounted drives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_seconds: Option<f64>,
    /// Time of the transfer in round trips of the link, of a listing: more than were waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<f64>,
    /// Time until everything was durable, if the client waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable_seconds: Option<f64>,
    /// Processor time of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpu_seconds: Option<f64>,
    /// Processor time of the server during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_seconds: Option<f64>,
    /// Peak memory of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_memory_bytes: Option<u64>,
    /// Peak memory of the server during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_memory_bytes: Option<u64>,
    /// Processors that unrelated processes kept busy, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_busy: Option<f64>,
    /// TCP connections of both ends, looked at in the first run of a cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Sockets>,
    /// Median latency of a reader's small reads during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_p50_ms: Option<f64>,
    /// Largest latency of a reader's small reads during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_max_ms: Option<f64>,
    /// 99th percentile of the latency of a reader's small reads during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_p99_ms: Option<f64>,
}

/// End of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum Outcome {
    /// Success; the result was compared.
    #[default]
    Done,
    /// The client failed, or the result is wrong.
    Failed(String),
    /// The limit was reached.
    TimedOut(String),
}

/// A plot: values against values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Unique name in the document; fit for a file name.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// Kind of drawing.
    pub drawing: Drawing,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series of points.
    pub series: Vec<Series>,
}

/// Kind of drawing of a [`Curve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drawing {
    /// Points joined by lines.
    #[default]
    Lines,
    /// A bar for each point; `x` counts the names in [`Axis::names`].
    Bars,
}

/// One axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Quantity.
    pub label: String,
    /// Unit: `s`, `B`, `B/s`, `1/s`, `ms`; empty for names.
    pub unit: String,
    /// Whether it is logarithmic: to the base 2 for `B`, else 10.
    #[serde(default)]
    pub logarithmic: bool,
    /// Names of the values 0, 1, 2 and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// Points of one curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// One word or two for people.
    pub name: String,
    /// x and y; x never decreases.
    pub points: Vec<[f64; 2]>,
    /// Whether it is published by others.
    #[serde(default)]
    pub published: bool,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Source: document and table.
    pub source: String,
    /// Name of the corresponding link.
    pub link: String,
    /// Name of the corresponding work.
    pub work: String,
    /// `read` or `write`.
    pub direction: String,
    /// Client.
    pub client: String,
    /// Server.
    pub server: String,
    /// Published seconds.
    pub seconds: f64,
}

/// One figure for a whole lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Definition in one sentence.
    pub described: String,
    /// Value: the weighted geometric mean of the parts.
    pub value: f64,
    /// Parts.
    pub parts: Vec<ScorePart>,
    /// Published scores by name.
    #[serde(default)]
    pub published: BTreeMap<String, f64>,
}

/// A part of a [`Score`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScorePart {
    /// Name.
    pub name: String,
    /// Value: higher is better, and 1 equals the baseline.
    pub value: f64,
    /// Weight in the score's mean, beside those of the other parts.
    #[serde(default = "one")]
    pub weight: f64,
}

/// The weight of parts that say none.
fn one() -> f64 {
    1.0
}

/// A reason to doubt figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The cell; absent if the warning concerns the whole lab.
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
