//! The document of `lab dirty --check`, and its lines for people.

use super::compare::{Deviation, Moment};
use super::{BACKLOG_PERCENT, Checked, DRAIN_PERCENT, Options};
use crate::report::{Axis, Curve, Document, Series, Setting};
use crate::run::machine;

/// Largest number of points in a series.
const POINTS_MAX: usize = 400;

/// Returns the document at the beginning.
pub(super) fn begun(options: &Options) -> Document {
    let mut document = machine::document("dirty-check", "What `ropeway dirty` says beside what is true");
    document.started = machine::now();
    document.settings = Setting::list([
        (
            "written".to_owned(),
            format!("{} MiB on each device", options.bytes >> 20),
        ),
        (
            "allowed".to_owned(),
            format!("backlogs within {BACKLOG_PERCENT} %, times to drain within {DRAIN_PERCENT} %"),
        ),
        (
            "compared".to_owned(),
            "backlogs above 32 MiB; times left of 2 s and more, each look of the drain".to_owned(),
        ),
    ]);
    document
}

/// Adds the figures of all devices.
pub(super) fn fill(document: &mut Document, all: &[Checked]) {
    let added = all.iter().flat_map(|checked| {
        let own = lines(checked).into_iter();
        own.map(|(name, text)| (format!("{}: {name}", checked.name), text))
    });
    document.settings.extend(Setting::list(added));
    document.curves = all
        .iter()
        .flat_map(|checked| [backlog(checked), left(checked)])
        .collect();
}

/// Returns the figures of a device as lines.
pub(super) fn lines(checked: &Checked) -> Vec<(String, String)> {
    let found = &checked.figures;
    let mut lines = vec![
        ("device".to_owned(), checked.what.clone()),
        (
            "machine beside /proc/vmstat".to_owned(),
            deviation(&found.machine),
        ),
        (
            "sum of devices beside /proc/vmstat".to_owned(),
            deviation(&found.devices),
        ),
        (
            "device beside written - taken".to_owned(),
            deviation(&found.device),
        ),
        (
            "time to drain beside the real one".to_owned(),
            deviation(&found.left),
        ),
        (
            "real time in the range given".to_owned(),
            format!("{:.0} % of the looks", found.in_range_percent),
        ),
        ("drained in".to_owned(), format!("{:.1} s", found.drain_seconds)),
        (
            "missing when the drain ended".to_owned(),
            format!("{:.1} MiB", found.left_bytes / 1_048_576.0),
        ),
    ];
    lines.extend(found.moments.iter().map(moment));
    lines
}

fn deviation(deviation: &Deviation) -> String {
    format!(
        "off by {:.1} % in the median, {:.1} % at most ({} looks)",
        deviation.median_percent, deviation.largest_percent, deviation.looks
    )
}

fn moment(moment: &Moment) -> (String, String) {
    let [said, low, high] = moment.said;
    (
        format!("after {:.1} s", moment.seconds),
        format!(
            "{said:.1} s left ({low:.1}-{high:.1}), really {:.1} s: {:+.1} %",
            moment.truth,
            moment.percent()
        ),
    )
}

/// Returns the backlog against time, as said and in truth.
fn backlog(checked: &Checked) -> Curve {
    let recording = &checked.recording;
    let zero = recording.looks.first().map_or(0.0, |look| look.time);
    let truths: Vec<[f64; 2]> = recording
        .truths
        .iter()
        .map(|truth| [truth.time - zero, truth.vmstat])
        .collect();
    let said = |of: &dyn Fn(&super::compare::Look) -> Option<f64>| -> Vec<[f64; 2]> {
        let looks = recording.looks.iter();
        looks
            .filter_map(|look| Some([look.time - zero, of(look)?]))
            .collect()
    };
    let series = vec![
        Series::measured("/proc/vmstat", thinned(&truths)),
        Series::measured("dirty: machine", thinned(&said(&|look| Some(look.machine)))),
        Series::measured("dirty: device", thinned(&said(&|look| look.device))),
    ];
    let title = format!("Backlog, {}", checked.what);
    let axes = [Axis::new("time", "s"), Axis::new("backlog", "B")];
    Curve::lines(format!("backlog-{}", checked.name), title, axes, series)
}

/// Returns the time left against time, as said and in truth.
fn left(checked: &Checked) -> Curve {
    let moments = checked.recording.moments();
    let points = |of: &dyn Fn(&Moment) -> f64| -> Vec<[f64; 2]> {
        moments
            .iter()
            .map(|moment| [moment.seconds, of(moment)])
            .collect()
    };
    let series = vec![
        Series::measured("real", thinned(&points(&|moment| moment.truth))),
        Series::measured("dirty", thinned(&points(&|moment| moment.said[0]))),
        Series::measured("at least", thinned(&points(&|moment| moment.said[1]))),
        Series::measured("at most", thinned(&points(&|moment| moment.said[2]))),
    ];
    let title = format!("Time to drain, {}", checked.what);
    let axes = [
        Axis::new("time since the flush", "s"),
        Axis::new("time left", "s"),
    ];
    Curve::lines(format!("left-{}", checked.name), title, axes, series)
}

/// Keeps every n-th point, and the last one.
fn thinned(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let every = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points
        .iter()
        .enumerate()
        .filter(|(index, _)| index % every == 0 || *index == last);
    kept.map(|(_, [x, y])| [(x * 1e3).round() / 1e3, (y * 1e3).round() / 1e3])
        .collect()
}
