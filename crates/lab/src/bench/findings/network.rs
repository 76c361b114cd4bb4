//! Link, line and the memory of the server.

use super::{cells, median_rate, rate};
use crate::bench::cell::{Key, Mode, Pattern};
use crate::bench::reason::{Finding, Reason};
use crate::bench::result::{Cell, Report};
use crate::link::payload_on_wire;

/// Share of what the link can carry from which the link is the limit.
const AT_LINK: f64 = 0.85;
/// Measurement error that is no proof of a cache.
const ABOVE_LINK: f64 = 1.02;
/// A second read this many times as fast as the first comes from the server's memory (a guess).
const SECOND_READ: f64 = 1.3;
/// More in flight must be this many times as fast for the line to be what one request waits for.
const DEEPER: f64 = 2.0;
/// MTU that is assumed for the framing.
const MTU: u16 = 1500;

/// Returns the warnings.
pub(super) fn findings(report: &Report) -> Vec<Finding> {
    let mut all = link(report);
    if report.conditions.far {
        all.extend(server_cache(report));
        all.extend(round_trip(report));
    }
    all
}

/// Rates that the link cannot carry, and rates that only the link limits.
fn link(report: &Report) -> Vec<Finding> {
    let Some(link) = &report.conditions.link else {
        return Vec::new();
    };
    let payload = 1_000_000;
    let share = payload as f64 / payload_on_wire(payload, MTU) as f64;
    let most = link.bits_per_s as f64 / 8.0;
    let (name, carried) = (&link.name, most * share);
    let with = |wanted: &dyn Fn(f64) -> bool| -> Vec<&Cell> {
        let found = report.cells.iter();
        found
            .filter(|cell| median_rate(cell).is_some_and(wanted))
            .collect()
    };
    let keys = |cells: &[&Cell]| -> Vec<Key> { cells.iter().map(|cell| cell.key).collect() };
    let mut all = Vec::new();
    let above = with(&|rate| rate > most * ABOVE_LINK);
    if !above.is_empty() {
        let fastest = above
            .iter()
            .filter_map(|cell| median_rate(cell))
            .fold(0.0, f64::max);
        let text = format!(
            "{}: up to {}, and the link ({name}) carries at most {}: a cache on this side of the link answered",
            cells(above.len()),
            rate(fastest),
            rate(most)
        );
        all.push(Finding::of(Reason::AboveLink, text, keys(&above)));
    }
    let at = with(&|rate| rate >= carried * AT_LINK && rate <= most * ABOVE_LINK);
    if !at.is_empty() {
        let text = format!(
            "{}: within {:.0} % of what the link ({name}) carries, {} of payload: the link is the limit, not the \
             storage behind it",
            cells(at.len()),
            (1.0 - AT_LINK) * 100.0,
            rate(carried)
        );
        all.push(Finding::of(Reason::AtLink, text, keys(&at)));
    }
    all
}

fn is_read(key: &Key) -> bool {
    !key.pattern.writes()
}

/// The server's memory, which nobody here can empty.
fn server_cache(report: &Report) -> Vec<Finding> {
    let mut all = Vec::new();
    let reads: Vec<Key> = report.cells.iter().map(|cell| cell.key).filter(is_read).collect();
    if !reads.is_empty() {
        let text = "the server has written each file shortly before it is read, and its memory cannot be emptied from here: \
                    reads show its disk only for files larger than its memory";
        all.push(Finding::of_all(Reason::ServerCache, text));
    }
    let first = |cell: &Cell| {
        let key = Key {
            pattern: Pattern::Read,
            ..cell.key
        };
        report.cell(&key).and_then(median_rate)
    };
    let factor = |cell: &Cell| Some(median_rate(cell)? / first(cell)?);
    let second: Vec<&Cell> = report
        .cells
        .iter()
        .filter(|cell| cell.key.pattern == Pattern::Reread)
        .filter(|cell| factor(cell).is_some_and(|factor| factor >= SECOND_READ))
        .collect();
    if !second.is_empty() {
        let most = second.iter().filter_map(|cell| factor(cell)).fold(0.0, f64::max);
        let text = format!(
            "the second read is up to {most:.1} times as fast as the first ({}): the server answers from its memory",
            cells(second.len())
        );
        let keys = second.iter().map(|cell| cell.key).collect();
        all.push(Finding::of(Reason::ServerCache, text, keys));
    }
    let unflushed = |key: &Key| key.pattern.writes() && key.mode == Mode::Cached;
    let writes: Vec<Key> = report
        .cells
        .iter()
        .map(|cell| cell.key)
        .filter(unflushed)
        .collect();
    if !writes.is_empty() {
        let text = "writes in mode cached end with the server's answer, and their bytes may be in its memory only; mode fsync \
                    includes the flush";
        all.push(Finding::of(Reason::NotWritten, text, writes));
    }
    all
}

/// Cells with one request in flight that is bound by the round trip.
fn round_trip(report: &Report) -> Option<Finding> {
    let deeper = |cell: &Cell| {
        let others = report.cells.iter().filter(|other| {
            let same = Key {
                depth: cell.key.depth,
                ..other.key
            };
            same == cell.key && other.key.depth > 1
        });
        let most = others.filter_map(median_rate).fold(0.0, f64::max);
        median_rate(cell).map(|rate| most / rate.max(1.0))
    };
    let bound: Vec<&Cell> = report
        .cells
        .iter()
        .filter(|cell| cell.key.depth == 1 && deeper(cell).is_some_and(|factor| factor >= DEEPER))
        .collect();
    let least = bound.iter().filter_map(|cell| cell.median(|run| run.p50_us));
    let least = least.map(|median| median.value).fold(f64::INFINITY, f64::min);
    let most = bound.iter().filter_map(|cell| deeper(cell)).fold(0.0, f64::max);
    (!bound.is_empty()).then(|| {
        let text = format!(
            "one request in flight waits at least {} for its answer, so the line decides ({}): more in flight are up to \
             {most:.0} times as fast",
            wait(least),
            cells(bound.len())
        );
        Finding::of(Reason::RoundTrip, text, bound.iter().map(|cell| cell.key).collect())
    })
}

fn wait(micros: f64) -> String {
    match micros {
        micros if micros < 1000.0 => format!("{micros:.0} µs"),
        micros => format!("{:.1} ms", micros / 1000.0),
    }
}
