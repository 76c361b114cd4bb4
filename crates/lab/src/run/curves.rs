//! Curves of a run: throughput from the wire's counters, requests from the server's, operations from
//! ropeway's trace. Their size is bounded for runs of any length, and their resolution fits the run.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::published;
use crate::report::{Axis, CellKey, Curve, Document, Series};
use crate::scenario::Direction;

/// Interval of samples of the wire.
pub(super) const INTERVAL: Duration = Duration::from_millis(20);
/// Largest number of samples that are kept; then each two become one.
const SAMPLES_MAX: usize = 600;
/// Largest number of points in a series; at least half of them if the run has as many samples. Fewer
/// would hide what happens, more are noise.
const POINTS_MAX: usize = 80;
/// Largest number of operations read from a trace: a day of a thousand a second.
const OPERATIONS_MAX: usize = 86_400_000;
/// Longest counted part of a trace: more than the limit of any run.
const TRACE_MAX: Duration = Duration::from_secs(1 << 20);

/// Bytes a second over time, from a counter of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    interval: Duration,
    begun: Duration,
    last: (Duration, u64),
    points: Vec<[f64; 2]>,
}

impl Sampler {
    /// Starts with the counter's value at that time.
    pub(crate) fn new(interval: Duration, at: Duration, bytes: u64) -> Self {
        Self {
            interval,
            begun: at,
            last: (at, bytes),
            points: Vec::new(),
        }
    }

    /// Whether it is time for a sample.
    pub(crate) fn is_due(&self, at: Duration) -> bool {
        at >= self.last.0 + self.interval
    }

    /// Takes a sample if it is time.
    pub(crate) fn look(&mut self, at: Duration, bytes: impl FnOnce() -> u64) {
        if self.is_due(at) {
            self.take(at, bytes());
        }
    }

    fn take(&mut self, at: Duration, bytes: u64) {
        let span = at.saturating_sub(self.last.0).as_secs_f64();
        if span <= 0.0 {
            return;
        }
        let rate = bytes.saturating_sub(self.last.1) as f64 / span;
        self.points
            .push([rounded(at.as_secs_f64(), 1000.0), rate.round()]);
        self.last = (at, bytes);
        if self.points.len() >= SAMPLES_MAX {
            self.points = merged(self.begun, &self.points, 2);
            self.interval *= 2;
        }
    }

    /// Returns the points so far.
    pub(crate) fn points(&self) -> &[[f64; 2]] {
        &self.points
    }

    /// Adds the last part, and returns the points at a resolution that fits the run.
    pub(super) fn finish(mut self, at: Duration, bytes: u64) -> Vec<[f64; 2]> {
        self.take(at, bytes);
        merged(self.begun, &self.points, self.points.len().div_ceil(POINTS_MAX))
    }
}

/// Merges each `count` points into one: the last time, and the mean over the time from the point before
/// them, or from `begun`.
fn merged(begun: Duration, points: &[[f64; 2]], count: usize) -> Vec<[f64; 2]> {
    let mut from = begun.as_secs_f64();
    let groups = points.chunks(count.max(1)).map(|group| {
        let (first, mut sum) = (from, 0.0);
        for [at, rate] in group {
            sum += rate * (at - from);
            from = *at;
        }
        let mean = if from > first { sum / (from - first) } else { 0.0 };
        [from, mean.round()]
    });
    groups.collect()
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// The used fields of a line of a trace.
#[derive(Deserialize)]
struct Line {
    r#type: String,
    #[serde(default)]
    t_ns: u64,
    #[serde(default)]
    end: String,
    #[serde(default)]
    duration_ns: u64,
}

/// Operations counted by time, in at most [`SAMPLES_MAX`] parts of equal length.
struct Counts {
    part: Duration,
    counts: Vec<u64>,
}

impl Counts {
    fn new() -> Self {
        Self {
            part: INTERVAL,
            counts: Vec::new(),
        }
    }

    fn add(&mut self, at: Duration) {
        let mut index = self.index(at);
        while index >= SAMPLES_MAX {
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.part *= 2;
            index = self.index(at);
        }
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    fn index(&self, at: Duration) -> usize {
        usize::try_from(at.as_nanos() / self.part.as_nanos()).unwrap_or(usize::MAX)
    }

    /// Returns operations a second.
    fn rates(&self) -> Vec<[f64; 2]> {
        let part = self.part.as_secs_f64();
        let rates = (1_u32..).zip(&self.counts);
        let rates = rates.map(|(end, count)| [rounded(part * f64::from(end), 1000.0), *count as f64 / part]);
        let rates: Vec<[f64; 2]> = rates.collect();
        merged(Duration::ZERO, &rates, rates.len().div_ceil(POINTS_MAX))
    }
}

/// Returns the operations a second on the server's end, from a trace; empty without a trace.
pub(super) fn operations(trace: &Path, direction: Direction) -> Vec<[f64; 2]> {
    let Ok(file) = File::open(trace) else {
        return Vec::new();
    };
    let remote = match direction {
        Direction::Read => "source",
        Direction::Write => "target",
    };
    let mut counts = Counts::new();
    let lines = BufReader::new(file)
        .lines()
        .map_while(Result::ok)
        .take(OPERATIONS_MAX);
    for line in lines {
        let Ok(line) = serde_json::from_str::<Line>(&line) else {
            continue;
        };
        let ended = Duration::from_nanos(line.t_ns.saturating_add(line.duration_ns));
        if line.r#type == "op" && line.end == remote && ended < TRACE_MAX {
            counts.add(ended);
        }
    }
    counts.rates()
}

/// Quantity of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes a second on the wire.
    Throughput,
    /// Operations of ropeway a second.
    Operations,
    /// Requests a second that the server gets.
    Requests,
}

/// Adds the points of a cell to the curve of its link, work and direction; creates the curve if
/// missing.
pub(super) fn add(document: &mut Document, kind: Kind, key: &CellKey, points: Vec<[f64; 2]>) {
    if points.is_empty() {
        return;
    }
    let (word, title, label, unit) = match kind {
        Kind::Throughput => ("throughput", "on the wire", "throughput", "B/s"),
        Kind::Operations => (
            "operations",
            "operations of the copy engine at the server",
            "operations",
            "1/s",
        ),
        Kind::Requests => ("requests", "requests at the server", "requests", "1/s"),
    };
    let id = format!("{word}-{}-{}-{}", key.link, key.work, key.direction);
    let name = format!("{} → {}", key.client, key.server);
    let at = document.curves.iter().position(|curve| curve.id == id);
    let at = at.unwrap_or_else(|| {
        let title = format!("{} {} over {}: {title}", key.work, key.direction, key.link);
        let axes = [Axis::new("time", "s"), Axis::new(label, unit)];
        document.curves.push(Curve::lines(id, title, axes, Vec::new()));
        document.curves.len() - 1
    });
    let series = &mut document.curves[at].series;
    series.retain(|known| known.name != name);
    series.push(Series::measured(name, points));
}

/// Adds the published requests a second of other clients, each as a line of the length of the longest
/// series, to the curves that have some.
pub(super) fn add_published(document: &mut Document) {
    for (id, name, rate) in published::requests() {
        let Some(curve) = document.curves.iter_mut().find(|curve| curve.id == id) else {
            continue;
        };
        curve.series.retain(|series| series.name != name);
        let ends = curve.series.iter().filter_map(|series| series.points.last());
        let end = ends.map(|point| point[0]).fold(0.0, f64::max);
        curve
            .series
            .push(Series::published(name, vec![[0.0, rate], [end, rate]]));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn samples_are_rates_and_never_too_many() {
        let mut sampler = Sampler::new(INTERVAL, Duration::ZERO, 1000);
        for tick in 1..=200_000_u64 {
            let at = Duration::from_millis(tick * 50);
            sampler.look(at, || 1000 + tick * 50);
        }
        assert!(sampler.points.len() < SAMPLES_MAX && sampler.points.len() >= SAMPLES_MAX / 2);
        let points = sampler.finish(Duration::from_millis(10_000_025), 1000 + 10_000_025);
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()));
        assert!(points.windows(2).all(|pair| pair[0][0] < pair[1][0]));
        assert!(
            points.iter().all(|point| (point[1] - 1000.0).abs() < 1.0),
            "{points:?}"
        );
        assert_eq!(
            Sampler::new(INTERVAL, Duration::ZERO, 0).finish(Duration::ZERO, 5),
            Vec::<[f64; 2]>::new()
        );
    }

    #[test]
    fn operations_are_counted_at_the_servers_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let mut text = "{\"type\":\"trace\",\"version\":1}\nnot JSON\n".to_owned();
        for (t_ms, end) in [
            (100, "source"),
            (900, "source"),
            (950, "target"),
            (2500, "source"),
        ] {
            text.push_str(&format!(
                "{{\"type\":\"op\",\"t_ns\":{t_ms}000000,\"end\":\"{end}\",\"kind\":\"read\",\"duration_ns\":50000000}}\n"
            ));
        }
        text.push_str(
            "{\"type\":\"op\",\"t_ns\":18446744073709551615,\"end\":\"source\",\"duration_ns\":9}\n",
        );
        fs::write(&path, text).unwrap();
        // Parts of 40 ms: the operations end at 150, 950 and 2,550 ms.
        let read = operations(&path, Direction::Read);
        let busy: Vec<f64> = read.iter().filter(|at| at[1] > 0.0).map(|at| at[0]).collect();
        assert_eq!(busy, [0.16, 0.96, 2.56]);
        assert!(
            (POINTS_MAX / 2..=POINTS_MAX).contains(&read.len()),
            "{}",
            read.len()
        );
        let count: f64 = read.iter().map(|at| at[1] * 0.04).sum();
        assert!((count - 3.0).abs() < 0.01, "{count}");
        assert_eq!(operations(&path, Direction::Write).len(), 51);
        assert!(operations(&folder.path().join("none"), Direction::Read).is_empty());
    }

    #[test]
    fn series_of_one_cell_replace_each_other() {
        let mut document = Document::default();
        let key = CellKey::new(["l", "w", "read", "ropeway", "smbd"]);
        add(&mut document, Kind::Throughput, &key, vec![[1.0, 2.0]]);
        add(&mut document, Kind::Throughput, &key, vec![[1.0, 3.0]]);
        add(&mut document, Kind::Operations, &key, Vec::new());
        assert_eq!(document.curves.len(), 1);
        assert_eq!(document.curves[0].series.len(), 1);
        assert_eq!(document.curves[0].series[0].points, [[1.0, 3.0]]);
    }
}
