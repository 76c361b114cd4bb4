//! The document of `lab dirty`. Pure but for what the machine is.

use std::collections::BTreeMap;

use super::fit::{Modes, model_seconds};
use super::found::Findings;
use super::write::{Look, Seen};
use super::{Options, words};
use crate::report::{
    Axis, Cell, CellKey, Curve, Document, Drawing, LinkSummary, Outcome, Run, Series, Setting, VERSION,
    Warning, WorkSummary,
};
use crate::run::machine::{machine, now};

/// Points of one series.
const POINTS_MAX: usize = 400;
/// Parts of the whole whose speed is shown.
const PARTS: usize = 200;
/// Thresholds as published.
const THRESHOLDS: &str = include_str!("../../../data/dirty-page-threshold.csv");
/// Where they are from.
const SOURCE: &str = "the third article on delayed writes (facts file, E)";
/// The article's example: bytes and seconds of a write of 1 GB with a threshold of 510 MB and a disk of 20 MB/s.
const EXAMPLE: [[f64; 2]; 3] = [[0.0, 0.0], [1.5, 510e6], [51.5, 1e9]];
/// A figure that is further off than this is worth a warning (a guess).
const DEVIATION_MAX: f64 = 0.15;

/// Everything.
pub(super) fn document(
    options: &Options,
    bytes: u64,
    started: &str,
    seen: &Seen,
    found: &Findings,
) -> Document {
    Document {
        version: VERSION,
        lab: "dirty".to_owned(),
        title: "Delayed writes: a file written until its writer has to wait".to_owned(),
        started: started.to_owned(),
        updated: now(),
        complete: seen.ended_early.is_none(),
        machine: machine(),
        versions: BTreeMap::from([("ropeway".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        settings: words::lines(found)
            .into_iter()
            .chain(words::settings(found))
            .chain(words::conditions(options, bytes))
            .map(|(name, value)| Setting { name, value })
            .collect(),
        works: vec![WorkSummary {
            name: "stream".to_owned(),
            title: "one file, written in pieces of 1 MiB that do not compress".to_owned(),
            files: 1,
            folders: 0,
            bytes,
            seed: bytes,
            scale: 1.0,
            lz4_ratio: 1.0,
        }],
        links: vec![LinkSummary::of_this_machine(
            "none",
            "",
            "a device of this machine".to_owned(),
        )],
        cells: vec![cell(started, seen, found)],
        curves: vec![
            written(seen, found),
            speed(seen),
            owed(seen, found),
            thresholds(found),
        ],
        warnings: warnings(seen, found),
        ..Document::default()
    }
}

fn cell(started: &str, seen: &Seen, found: &Findings) -> Cell {
    let outcome = match &seen.ended_early {
        None => Outcome::Done,
        Some(why) => Outcome::Failed(why.clone()),
    };
    Cell {
        key: CellKey {
            link: "none".to_owned(),
            work: "stream".to_owned(),
            direction: "write".to_owned(),
            client: "write(2)".to_owned(),
            server: "disk".to_owned(),
            variant: String::new(),
        },
        payload_bytes: found.written_bytes as u64,
        files: 1,
        line_seconds: None,
        floor_seconds: None,
        target_seconds: None,
        runs: vec![Run {
            durable_seconds: found.durable_seconds,
            ..Run::of(started.to_owned(), outcome, found.perceived_seconds)
        }],
    }
}

/// Bytes against time: measured, the model, the article's example.
fn written(seen: &Seen, found: &Findings) -> Curve {
    let measured: Vec<[f64; 2]> = seen
        .writes
        .iter()
        .map(|[bytes, seconds]| [*seconds, *bytes])
        .collect();
    let mut series = vec![series("measured", thinned(&from_nought(&measured)))];
    let bytes = found.written_bytes;
    for (name, check) in [("model", &found.model), ("model by /proc", &found.predicted)] {
        if let Some(check) = check {
            series.push(Series {
                name: name.to_owned(),
                points: model(bytes, &check.modes),
                published: false,
            });
        }
    }
    series.push(Series {
        name: "510 MB, 20 MB/s".to_owned(),
        points: EXAMPLE.to_vec(),
        published: true,
    });
    Curve {
        id: "written".to_owned(),
        title: "Bytes written against time".to_owned(),
        drawing: Drawing::Lines,
        x: Axis::new("time", "s"),
        y: Axis::new("written", "B"),
        series,
    }
}

/// The three corners of the model.
fn model(bytes: f64, modes: &Modes) -> Vec<[f64; 2]> {
    [0.0, modes.threshold_bytes.min(bytes), bytes]
        .map(|written| [model_seconds(written, modes), written])
        .to_vec()
}

/// Speed against bytes written, by parts of the whole.
fn speed(seen: &Seen) -> Curve {
    let mut points = Vec::new();
    let mut last = [0.0, 0.0];
    for part in seen.writes.chunks(seen.writes.len().div_ceil(PARTS).max(1)) {
        let [bytes, seconds] = part[part.len() - 1];
        if seconds > last[1] {
            points.push([bytes, ((bytes - last[0]) / (seconds - last[1])).round()]);
            last = [bytes, seconds];
        }
    }
    Curve {
        id: "speed".to_owned(),
        title: "Write speed against bytes written".to_owned(),
        drawing: Drawing::Lines,
        x: Axis::new("written", "B"),
        y: Axis {
            logarithmic: true,
            ..Axis::new("speed", "B/s")
        },
        series: vec![series("measured", points)],
    }
}

/// What was owed, until all was durable.
fn owed(seen: &Seen, found: &Findings) -> Curve {
    let end = seen.looks.last().map_or(0.0, |look| look.seconds);
    let points = |of: &dyn Fn(&Look) -> Option<u64>| -> Vec<[f64; 2]> {
        let looks = seen.looks.iter();
        looks
            .filter_map(|look| Some([look.seconds, of(look)? as f64]))
            .collect()
    };
    let mut all = Vec::new();
    for (name, points) in [
        (
            "this file",
            points(&|look| Some(look.written_bytes.saturating_sub(look.device_bytes?))),
        ),
        ("the whole machine", points(&|look| Some(look.owed.bytes))),
        ("the device has taken", points(&|look| look.device_bytes)),
    ] {
        if !points.is_empty() {
            all.push(series(name, thinned(&points)));
        }
    }
    for (name, level) in [
        ("write-back begins", found.expected.background_bytes),
        ("writers wait", found.expected.held_from_bytes),
        ("limit", found.expected.limit_bytes),
    ] {
        all.push(series(name, vec![[0.0, level], [end, level]]));
    }
    Curve {
        id: "owed".to_owned(),
        title: "What the page cache owes the devices".to_owned(),
        drawing: Drawing::Lines,
        x: Axis::new("time", "s"),
        y: Axis::new("bytes", "B"),
        series: all,
    }
}

/// The published table, and this machine in it.
fn thresholds(found: &Findings) -> Curve {
    let mut all: Vec<Series> = Vec::new();
    for (name, point) in published() {
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name,
                points: vec![point],
                published: true,
            }),
        }
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    }
    let memory = machine().memory_bytes as f64;
    if let Some(held) = found.held_at_bytes {
        all.push(series("this machine", vec![[memory, held]]));
    }
    let bytes = |label| Axis {
        logarithmic: true,
        ..Axis::new(label, "B")
    };
    Curve {
        id: "thresholds".to_owned(),
        title: format!("Threshold against memory, {SOURCE}"),
        drawing: Drawing::Lines,
        x: bytes("memory"),
        y: bytes("threshold"),
        series: all,
    }
}

/// Name of the system, memory and threshold of each line.
fn published() -> impl Iterator<Item = (String, [f64; 2])> {
    THRESHOLDS.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split(',').collect();
        let &[system, large, memory, threshold] = words.as_slice() else {
            return None;
        };
        let cache = if large == "1" { ", large cache" } else { "" };
        let bytes = |mib: &str| Some(mib.parse::<f64>().ok()? * 1_048_576.0);
        Some((format!("{system}{cache}"), [bytes(memory)?, bytes(threshold)?]))
    })
}

fn warnings(seen: &Seen, found: &Findings) -> Vec<Warning> {
    let mut texts = Vec::new();
    if let Some(why) = &seen.ended_early {
        texts.push(format!("not all was written, or not all became durable: {why}"));
    }
    if found.modes().is_none() {
        texts.push(
            "no threshold was seen: too little was written, or the device keeps up with memory".to_owned(),
        );
    }
    if found
        .held_deviation
        .is_some_and(|share| share.abs() > DEVIATION_MAX)
    {
        texts.push("the threshold is far from what the kernel's settings let expect".to_owned());
    }
    for (what, check) in [
        ("what was found", &found.model),
        ("the kernel's settings", &found.predicted),
    ] {
        if check.is_some_and(|check| check.deviation.abs() > DEVIATION_MAX) {
            texts.push(format!("the model with {what} is far from what was measured"));
        }
    }
    let before = seen.before.bytes as f64;
    if before > found.expected.held_from_bytes / 20.0 && !found.expected.strict {
        texts.push(format!("others owed {} before it began", words::size(before)));
    }
    texts.push(
        "the published example does not keep to its own model: 490 MB at 20 MB/s are 25 s; its 50 s are what the disk \
         needs for the whole GB".to_owned(),
    );
    texts
        .into_iter()
        .map(|text| Warning { cell: None, text })
        .collect()
}

fn from_nought(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    std::iter::once([0.0, 0.0])
        .chain(points.iter().copied())
        .collect()
}

/// Evenly chosen points, the last one always.
fn thinned(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    let chosen = points
        .iter()
        .enumerate()
        .filter(|(at, _)| at % step == 0 || *at == last);
    chosen
        .map(|(_, [x, y])| [(x * 1e4).round() / 1e4, y.round()])
        .collect()
}

fn series(name: &str, points: Vec<[f64; 2]>) -> Series {
    Series {
        name: name.to_owned(),
        points,
        published: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_table_is_whole() {
        let rows: Vec<_> = published().collect();
        assert_eq!(rows.len(), 24);
        // Vista: one eighth of memory.
        for (name, [memory, threshold]) in &rows {
            assert!(!name.starts_with("vista") || threshold * 8.0 == *memory, "{name}");
        }
    }

    #[test]
    fn curves_are_thinned_and_keep_their_ends() {
        let points: Vec<[f64; 2]> = (0..10_007).map(|at| [f64::from(at), f64::from(at)]).collect();
        let thin = thinned(&points);
        assert!(thin.len() <= POINTS_MAX + 1);
        assert_eq!(
            (thin[0], thin[thin.len() - 1]),
            ([0.0, 0.0], [10_006.0, 10_006.0])
        );
        assert!(thinned(&[]).is_empty());
    }
}
