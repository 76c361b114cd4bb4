//! Caches of this machine and of its devices.

use super::{Group, behind_mount, cells, groups, median_rate, percent, rate};
use crate::bench::cell::{Mode, bytes};
use crate::bench::reason::{Finding, Reason};
use crate::bench::result::{Cell, Report};

/// Share of a file in the page cache from which a read is one of memory.
const MEMORY_SHARE: f64 = 0.5;
/// Share of a file that may stay in the page cache unnoticed.
const REST_SHARE: f64 = 0.01;
/// Share of the written bytes that may be in memory unnoticed.
const NOT_WRITTEN_SHARE: f64 = 0.1;
/// A rate this many times that of direct I/O needs an explanation. A guess: read-ahead and merged
/// requests give some more than one request at a time.
const ABOVE_DEVICE: f64 = 1.25;
/// A first quarter this many times as fast as the last is a burst (a guess).
const BURST: f64 = 1.5;

/// Returns the warnings.
pub(super) fn findings(report: &Report) -> Vec<Finding> {
    let mut all = page_cache(report);
    all.extend(unknown_memory(report));
    all.extend(not_written(report));
    if !report.conditions.in_memory {
        all.extend(above_device(report));
        all.extend(burst(report));
    }
    all
}

fn before(cell: &Cell) -> Option<f64> {
    cell.known(|run| run.in_memory_before)
}

/// Reads that the page cache answered. Direct reads go past it.
fn page_cache(report: &Report) -> Vec<Finding> {
    let memory = bytes_of_memory(report);
    let with = |wanted: &dyn Fn(f64) -> bool| {
        groups(report, |cell| {
            cell.key.mode != Mode::Direct && before(cell).is_some_and(wanted)
        })
    };
    let answered = with(&|share| share >= MEMORY_SHARE);
    let answered = answered.iter().map(|group| {
        let text = format!(
            "{}: up to {} of the file was in the page cache before ({}, files of up to {}, memory {memory}): up to {} is \
             the rate of memory, not of the device",
            group.name(),
            percent(group.most(before)),
            cells(group.cells.len()),
            group.largest(),
            rate(group.most(median_rate))
        );
        Finding::of(Reason::PageCache, text, group.keys())
    });
    let rest = with(&|share| share > REST_SHARE && share < MEMORY_SHARE);
    let rest = rest.iter().map(|group| {
        let text = format!(
            "{}: up to {} of the file could not be dropped from the page cache ({})",
            group.name(),
            percent(group.most(before)),
            cells(group.cells.len())
        );
        Finding::of(Reason::PageCache, text, group.keys())
    });
    answered.chain(rest).collect()
}

fn bytes_of_memory(report: &Report) -> String {
    let memory = report.conditions.machine.memory_bytes;
    // Whole GiB: the exact number says nothing.
    format!("{} GiB", (memory as f64 / (1_u64 << 30) as f64).round())
}

/// Reads of which nobody says where they came from.
fn unknown_memory(report: &Report) -> Option<Finding> {
    let concerns = |cell: &Cell| {
        let reads = !cell.key.pattern.writes() && cell.key.mode != Mode::Direct;
        reads && !cell.runs.is_empty() && before(cell).is_none()
    };
    let found: Vec<_> = report
        .cells
        .iter()
        .filter(|cell| concerns(cell))
        .map(|cell| cell.key)
        .collect();
    let is_local = !report.conditions.far;
    (is_local && !found.is_empty()).then(|| {
        let text = "the kernel does not say how much of a file is in the page cache here: cached reads may be those of \
                    memory; compare them with direct";
        Finding::of(Reason::PageCache, text, found)
    })
}

/// Writes that ended while their bytes were in memory only.
fn not_written(report: &Report) -> Vec<Finding> {
    let background = report.conditions.dirty_background_bytes;
    let share = |cell: &Cell| {
        let known = cell.known(|run| run.not_written);
        // Before Linux 6.5 the thresholds tell.
        known.or_else(|| background.map(|background| f64::from(u8::from(cell.key.size < background))))
    };
    let concerns = |cell: &Cell| {
        let cached = cell.key.mode == Mode::Cached && cell.key.pattern.writes() && !report.conditions.far;
        cached && share(cell).is_some_and(|share| share >= NOT_WRITTEN_SHARE)
    };
    let of = |group: &Group<'_>| {
        let begins = background.map_or(String::new(), |background| {
            format!(
                "; the kernel begins to write at {}",
                bytes(background & !((1 << 20) - 1))
            )
        });
        let text = format!(
            "{}: up to {} of the bytes were in memory only when the clock stopped ({}, files of up to {}{begins}): up to {} \
             is the rate of memory; mode fsync has that of the device",
            group.name(),
            percent(group.most(share)),
            cells(group.cells.len()),
            group.largest(),
            rate(group.most(median_rate)),
        );
        Finding::of(Reason::NotWritten, text, group.keys())
    };
    groups(report, concerns).iter().map(of).collect()
}

/// Rates above what direct I/O gives for files of the same size, though the page cache was empty.
fn above_device(report: &Report) -> Vec<Finding> {
    let device = |cell: &Cell| {
        let same = |other: &&Cell| {
            let (key, own) = (&other.key, &cell.key);
            key.mode == Mode::Direct && key.size == own.size && key.pattern.writes() == own.pattern.writes()
        };
        let rates = report.cells.iter().filter(same).filter_map(median_rate);
        rates.fold(None, |most: Option<f64>, rate| {
            Some(most.unwrap_or(0.0).max(rate))
        })
    };
    let concerns = |cell: &Cell| {
        let reads = matches!(cell.key.mode, Mode::Cached | Mode::Uncached) && !cell.key.pattern.writes();
        let is_cold = before(cell).is_some_and(|share| share <= REST_SHARE);
        let is_flushed = cell.key.mode == Mode::Fsync;
        let factor = median_rate(cell)
            .zip(device(cell))
            .map(|(rate, device)| rate / device);
        ((reads && is_cold) || is_flushed) && factor.is_some_and(|factor| factor > ABOVE_DEVICE)
    };
    let of = |group: &Group<'_>| {
        let cause = match group.mode {
            Mode::Fsync => {
                "the device confirms a flush from a cache of its own, or direct passes had too little in flight"
            }
            _ => {
                "a cache below the page cache answers, or read-ahead has more in flight than the direct passes"
            }
        };
        let device = group.most(device);
        let text = format!(
            "{}: up to {}, and direct I/O gives at most {} for files of the same size ({}): {cause}",
            group.name(),
            rate(group.most(median_rate)),
            rate(device),
            cells(group.cells.len())
        );
        Finding::of(Reason::AboveDevice, text, group.keys())
    };
    groups(report, concerns).iter().map(of).collect()
}

/// Direct writes that began faster than they ended.
fn burst(report: &Report) -> Vec<Finding> {
    let quarters = |cell: &Cell| {
        let first = cell.known(|run| run.first_bps)?;
        Some((first, cell.known(|run| run.last_bps)?))
    };
    let factor = |cell: &Cell| quarters(cell).map(|(first, last)| first / last.max(1.0));
    let concerns = |cell: &Cell| {
        let key = &cell.key;
        key.pattern.writes() && key.mode == Mode::Direct && factor(cell).is_some_and(|factor| factor > BURST)
    };
    let place = match behind_mount(report) {
        Some(_) => "behind the mount",
        None => "in the drive",
    };
    let of = |group: &Group<'_>| {
        let most = group.cells.iter().max_by(|a, b| {
            let of = |cell: &Cell| factor(cell).unwrap_or(0.0);
            of(a).total_cmp(&of(b))
        });
        let (first, last) = most.and_then(|cell| quarters(cell)).unwrap_or_default();
        let text = format!(
            "{}: began with {} and ended with {} ({}): a cache {place} took the first part; expect the last figure, \
             or less, for more data",
            group.name(),
            rate(first),
            rate(last),
            cells(group.cells.len())
        );
        Finding::of(Reason::DriveCache, text, group.keys())
    };
    groups(report, concerns).iter().map(of).collect()
}
