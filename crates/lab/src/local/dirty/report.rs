//! The document of `lab dirty`.

use std::collections::BTreeMap;

use super::findings::Findings;
use super::fit::{Modes, model_seconds};
use super::write::{Recording, Sample};
use super::{Options, text};
use crate::report::{
    Axis, Cell, CellKey, Curve, Document, LOOPBACK, LinkSummary, Outcome, Run, Series, Setting, Warning,
    WorkSummary,
};
use crate::run::machine;

/// Largest number of points in a series.
const POINTS_MAX: usize = 400;
/// Number of parts of the file whose speed is shown.
const PARTS: usize = 200;
/// Published thresholds.
const THRESHOLDS: &str = include_str!("../../../data/dirty-page-threshold.csv");
/// Source of the thresholds.
const SOURCE: &str = "the third article on delayed writes (facts file, E)";
/// Example of the article: seconds and bytes of a write of 1 GB with a threshold of 510 MB and a disk of
/// 20 MB/s.
const EXAMPLE: [[f64; 2]; 3] = [[0.0, 0.0], [1.5, 510e6], [51.5, 1e9]];
/// Deviation above which a figure gets a warning (a guess).
const DEVIATION_MAX: f64 = 0.15;

/// Returns the document.
pub(super) fn document(
    options: &Options,
    bytes: u64,
    started: &str,
    recording: &Recording,
    found: &Findings,
) -> Document {
    Document {
        started: started.to_owned(),
        complete: recording.ended_early.is_none(),
        versions: BTreeMap::from([("ropeway".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        settings: Setting::list(
            text::lines(found)
                .into_iter()
                .chain(text::settings(found))
                .chain(text::conditions(options, bytes)),
        ),
        works: vec![WorkSummary::one_file(
            "stream",
            "one file, written in pieces of 1 MiB that do not compress".to_owned(),
            bytes,
        )],
        links: vec![LinkSummary::of_this_machine(
            LOOPBACK,
            "",
            "a device of this machine".to_owned(),
        )],
        cells: vec![cell(started, recording, found)],
        curves: vec![
            written(recording, found),
            speed(recording),
            dirty(recording, found),
            thresholds(found),
        ],
        warnings: warnings(recording, found),
        ..machine::document(
            "dirty",
            "Delayed writes: a file written until its writer has to wait",
        )
    }
}

fn cell(started: &str, recording: &Recording, found: &Findings) -> Cell {
    let outcome = match &recording.ended_early {
        None => Outcome::Done,
        Some(why) => Outcome::Failed(why.clone()),
    };
    Cell {
        key: CellKey::new([LOOPBACK, "stream", "write", "write(2)", "disk"]),
        payload_bytes: found.written_bytes as u64,
        files: 1,
        runs: vec![Run {
            durable_seconds: found.durable_seconds,
            ..Run::of(started.to_owned(), outcome, found.perceived_seconds)
        }],
        ..Cell::default()
    }
}

/// Returns bytes against time: measured, of the model, and of the article's example.
fn written(recording: &Recording, found: &Findings) -> Curve {
    let measured: Vec<[f64; 2]> = recording
        .writes
        .iter()
        .map(|[bytes, seconds]| [*seconds, *bytes])
        .collect();
    let mut all = vec![Series::measured("measured", thinned(&from_origin(&measured)))];
    let bytes = found.written_bytes;
    for (name, check) in [("model", &found.model), ("model by /proc", &found.predicted)] {
        if let Some(check) = check {
            all.push(Series::measured(name, model(bytes, &check.modes)));
        }
    }
    all.push(Series::published("510 MB, 20 MB/s", EXAMPLE.to_vec()));
    let axes = [Axis::new("time", "s"), Axis::new("written", "B")];
    Curve::lines("written", "Bytes written against time", axes, all)
}

/// Returns the three corners of the model.
fn model(bytes: f64, modes: &Modes) -> Vec<[f64; 2]> {
    [0.0, modes.threshold_bytes.min(bytes), bytes]
        .map(|written| [model_seconds(written, modes), written])
        .to_vec()
}

/// Returns speed against bytes written, by parts of the file.
fn speed(recording: &Recording) -> Curve {
    let mut points = Vec::new();
    let mut last = [0.0, 0.0];
    for part in recording
        .writes
        .chunks(recording.writes.len().div_ceil(PARTS).max(1))
    {
        let [bytes, seconds] = part[part.len() - 1];
        if seconds > last[1] {
            points.push([bytes, ((bytes - last[0]) / (seconds - last[1])).round()]);
            last = [bytes, seconds];
        }
    }
    let axes = [Axis::new("written", "B"), Axis::logarithmic("speed", "B/s")];
    Curve::lines(
        "speed",
        "Write speed against bytes written",
        axes,
        vec![Series::measured("measured", points)],
    )
}

/// Returns dirty bytes against time, until all were durable.
fn dirty(recording: &Recording, found: &Findings) -> Curve {
    let end = recording.samples.last().map_or(0.0, |sample| sample.seconds);
    let points = |of: &dyn Fn(&Sample) -> Option<u64>| -> Vec<[f64; 2]> {
        let samples = recording.samples.iter();
        samples
            .filter_map(|sample| Some([sample.seconds, of(sample)? as f64]))
            .collect()
    };
    let mut all = Vec::new();
    for (name, points) in [
        (
            "this file",
            points(&|sample| Some(sample.written_bytes.saturating_sub(sample.device_bytes?))),
        ),
        ("the whole machine", points(&|sample| Some(sample.dirty.bytes))),
        ("the device has taken", points(&|sample| sample.device_bytes)),
    ] {
        if !points.is_empty() {
            all.push(Series::measured(name, thinned(&points)));
        }
    }
    for (name, level) in [
        ("write-back begins", found.expected.background_bytes),
        ("writers wait", found.expected.held_from_bytes),
        ("limit", found.expected.limit_bytes),
    ] {
        all.push(Series::measured(name, vec![[0.0, level], [end, level]]));
    }
    let axes = [Axis::new("time", "s"), Axis::new("bytes", "B")];
    Curve::lines("dirty", "Dirty bytes in the page cache", axes, all)
}

/// Returns the published thresholds and that of this machine.
fn thresholds(found: &Findings) -> Curve {
    let mut all: Vec<Series> = Vec::new();
    for (name, point) in published() {
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series::published(name, vec![point])),
        }
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    }
    let memory = machine::machine().memory_bytes as f64;
    if let Some(held) = found.held_at_bytes {
        all.push(Series::measured("this machine", vec![[memory, held]]));
    }
    let axes = ["memory", "threshold"].map(|label| Axis::logarithmic(label, "B"));
    Curve::lines(
        "thresholds",
        format!("Threshold against memory, {SOURCE}"),
        axes,
        all,
    )
}

/// Returns system, memory and threshold of each line.
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

fn warnings(recording: &Recording, found: &Findings) -> Vec<Warning> {
    let mut texts = Vec::new();
    if let Some(why) = &recording.ended_early {
        texts.push(format!("not everything was written and became durable: {why}"));
    }
    if found.modes().is_none() {
        texts.push(
            "no threshold was recording: too little was written, or the device keeps up with memory"
                .to_owned(),
        );
    }
    if found
        .held_deviation
        .is_some_and(|share| share.abs() > DEVIATION_MAX)
    {
        texts.push("the threshold is far from the value that follows from the kernel's settings".to_owned());
    }
    for (what, check) in [
        ("the measured threshold", &found.model),
        ("the threshold of the settings", &found.predicted),
    ] {
        if check.is_some_and(|check| check.deviation.abs() > DEVIATION_MAX) {
            texts.push(format!("the model with {what} is far from the measured seconds"));
        }
    }
    let before = recording.before.bytes as f64;
    if before > found.expected.held_from_bytes / 20.0 && !found.expected.strict {
        texts.push(format!(
            "{} of other files were dirty at the start",
            text::size(before)
        ));
    }
    texts.push(
        "the published example differs from its own model: 490 MB at 20 MB/s take 25 s; its 50 s are the time of the \
         disk for the whole GB"
            .to_owned(),
    );
    texts.into_iter().map(Warning::of_lab).collect()
}

fn from_origin(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    std::iter::once([0.0, 0.0])
        .chain(points.iter().copied())
        .collect()
}

/// Returns evenly chosen points, always with the last.
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
