//! Curves of a run: throughput from the wire's counters, operations from ropeway's trace. Their size is
//! bounded for runs of any length.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::report::{Axis, CellKey, Curve, Document, Series};
use crate::scenario::Direction;

/// Interval of samples of the wire.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// Largest number of points in a series.
pub(super) const POINTS_MAX: usize = 600;
/// Largest number of operations read from a trace: a day of a thousand a second.
const OPERATIONS_MAX: usize = 86_400_000;
/// Longest counted part of a trace in seconds: more than the limit of any run.
const SECONDS_MAX: usize = 1 << 20;

/// Bytes a second over time, from a counter of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    interval: Duration,
    last: (Duration, u64),
    points: Vec<[f64; 2]>,
}

impl Sampler {
    /// Starts with the counter's value at that time.
    pub(crate) fn new(interval: Duration, at: Duration, bytes: u64) -> Self {
        Self {
            interval,
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
        if self.points.len() >= POINTS_MAX {
            self.points = halved(&self.points);
            self.interval *= 2;
        }
    }

    /// Returns the points so far.
    pub(crate) fn points(&self) -> &[[f64; 2]] {
        &self.points
    }

    /// Adds the last part and returns all points.
    pub(super) fn finish(mut self, at: Duration, bytes: u64) -> Vec<[f64; 2]> {
        self.take(at, bytes);
        self.points
    }
}

/// Merges each two points into one: the later time, and the mean.
fn halved(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    points
        .chunks(2)
        .map(|pair| {
            let sum: f64 = pair.iter().map(|point| point[1]).sum();
            [pair[pair.len() - 1][0], sum / pair.len() as f64]
        })
        .collect()
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

/// Returns the operations a second on the server's end, from a trace; empty without a trace.
pub(super) fn operations(trace: &Path, direction: Direction) -> Vec<[f64; 2]> {
    let Ok(file) = File::open(trace) else {
        return Vec::new();
    };
    let remote = match direction {
        Direction::Read => "source",
        Direction::Write => "target",
    };
    let mut counts: Vec<u32> = Vec::new();
    let lines = BufReader::new(file)
        .lines()
        .map_while(Result::ok)
        .take(OPERATIONS_MAX);
    for line in lines {
        let Ok(line) = serde_json::from_str::<Line>(&line) else {
            continue;
        };
        let second = (line.t_ns.saturating_add(line.duration_ns) / 1_000_000_000) as usize;
        if line.r#type != "op" || line.end != remote || second >= SECONDS_MAX {
            continue;
        }
        if counts.len() <= second {
            counts.resize(second + 1, 0);
        }
        counts[second] += 1;
    }
    let mut points: Vec<[f64; 2]> = counts
        .iter()
        .enumerate()
        .map(|(second, count)| [second as f64 + 1.0, f64::from(*count)])
        .collect();
    while points.len() > POINTS_MAX {
        points = halved(&points);
    }
    points
}

/// Quantity of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes a second on the wire.
    Throughput,
    /// Operations a second.
    Operations,
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
        assert!(sampler.points.len() < POINTS_MAX && sampler.points.len() >= POINTS_MAX / 2);
        let points = sampler.finish(Duration::from_millis(10_000_025), 1000 + 10_000_025);
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
        assert_eq!(
            operations(&path, Direction::Read),
            [[1.0, 2.0], [2.0, 0.0], [3.0, 1.0]]
        );
        // 950 ms and 50 ms: the next second.
        assert_eq!(operations(&path, Direction::Write), [[1.0, 0.0], [2.0, 1.0]]);
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
