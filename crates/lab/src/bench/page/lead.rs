//! The best and the most telling figures of a run, in sentences and as tiles.

use crate::bench::cell::{Key, Mode, Pattern, bytes};
use crate::bench::result::{Cell, Report};
use crate::bench::table::span;
use crate::report::numbers::{number, prefixed};

pub(super) fn lead(report: &Report) -> String {
    let mut sentences = Vec::new();
    for (pattern, verb) in [(Pattern::Write, "Writes"), (Pattern::Read, "Reads")] {
        let Some(mode) = true_mode(report, pattern) else {
            continue;
        };
        if let Some((cell, rate)) = best(report, |key| key.pattern == pattern && key.mode == mode) {
            let key = &cell.key;
            sentences.push(format!(
                "{verb} reach {} ({mode}, records of {}, {} in flight).",
                prefixed(rate, "B/s"),
                bytes(key.record),
                key.depth
            ));
        }
    }
    if let Some((cell, requests)) = random_read(report, 1) {
        let p50 = cell.median(|run| run.p50_us).map_or(0.0, |median| median.value);
        sentences.push(format!(
            "A random read of {} takes {} ({}, one in flight, {} a second).",
            bytes(cell.key.record),
            span(p50),
            cell.key.mode,
            number(requests)
        ));
    }
    if sentences.is_empty() {
        sentences.push("Nothing was measured.".to_owned());
    }
    sentences.join(" ")
}

pub(super) fn tiles(report: &Report) -> Vec<[String; 3]> {
    let mut tiles = Vec::new();
    for (pattern, what) in [(Pattern::Write, "written"), (Pattern::Read, "read")] {
        let mode = true_mode(report, pattern);
        let found = best(report, |key| key.pattern == pattern && Some(key.mode) == mode);
        if let (Some(mode), Some((_, rate))) = (mode, found) {
            tiles.push([
                number(rate / 1e6),
                "MB/s".to_owned(),
                format!("{what} in a row, {mode}, best cell"),
            ]);
        }
    }
    let mut depths = report.settings.depths.clone();
    depths.sort_unstable();
    depths.dedup();
    for depth in [depths.first(), depths.last().filter(|_| depths.len() > 1)]
        .into_iter()
        .flatten()
    {
        if let Some((cell, requests)) = random_read(report, *depth) {
            let what = format!(
                "random reads of {}, {}, {depth} in flight",
                bytes(cell.key.record),
                cell.key.mode
            );
            tiles.push([number(requests), "/s".to_owned(), what]);
        }
    }
    tiles
}

/// Modes that show the device, the first that was measured.
pub(super) fn true_mode(report: &Report, pattern: Pattern) -> Option<Mode> {
    let modes = match pattern.writes() {
        true => [Mode::Direct, Mode::Fsync, Mode::Cached],
        false => [Mode::Direct, Mode::Cached, Mode::Uncached],
    };
    let has = |mode: &Mode| {
        report
            .cells
            .iter()
            .any(|cell| cell.key.mode == *mode && cell.key.pattern == pattern)
    };
    modes.into_iter().find(has)
}

/// The cell with the highest rate among some.
fn best(report: &Report, of: impl Fn(&Key) -> bool) -> Option<(&Cell, f64)> {
    let own = report.cells.iter().filter(|cell| of(&cell.key));
    own.filter_map(|cell| Some((cell, cell.rate()?.value)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Returns the random reads of the smallest records in the largest file, with so many in flight.
fn random_read(report: &Report, depth: u32) -> Option<(&Cell, f64)> {
    let mode = true_mode(report, Pattern::RandomRead)?;
    let own = report.cells.iter().filter(|cell| {
        let key = &cell.key;
        key.pattern == Pattern::RandomRead && key.mode == mode && key.depth == depth && !cell.runs.is_empty()
    });
    let cell = own.max_by_key(|cell| (cell.key.size, std::cmp::Reverse(cell.key.record)))?;
    Some((cell, cell.requests()?.value))
}
