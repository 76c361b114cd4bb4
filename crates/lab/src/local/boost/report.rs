//! The document of `lab boost`.

use std::collections::BTreeMap;

use super::model::{DISK, FLASH_ACCESS, FLASH_READ_BYTES_PER_S, FLASH_WRITE_BYTES_PER_S};
use super::{Found, Mode, Options};
use crate::local::warnings;
use crate::report::{
    Axis, Cell, CellKey, Curve, Document, LOOPBACK, LinkSummary, Published, Score, ScorePart, Series,
    Setting, WorkSummary,
};
use crate::run::machine::document;

/// Source of the published figures: seconds without, with a little in the cache, and with enough.
const SOURCE: &str = "ReadyBoost - Robbie's Benchmark (facts file, D)";
const PUBLISHED: [(Mode, f64); 3] = [(Mode::None, 155.0), (Mode::Cold, 119.0), (Mode::Predicting, 35.0)];
/// Name of the work.
const WORK: &str = "programs";
/// How many times faster the warm cache shall be: as in the published experiment.
const TARGET: f64 = 155.0 / 35.0;
/// Shorter times count as this: a window is a second, and programs that are normal at once took none.
const LEAST_S: f64 = 0.5;
/// Name of the curve.
const CURVE: &str = "memory";

fn key(client: &str) -> CellKey {
    CellKey::new([LOOPBACK, WORK, "read", client, "modelled disk"])
}

/// Returns the document before the first run.
pub(super) fn begun(options: &Options, memory: u64, refused: Option<&str>) -> Document {
    Document {
        versions: BTreeMap::from([("ropeway".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        settings: settings(options, memory, refused.is_some()),
        works: vec![WorkSummary {
            name: WORK.to_owned(),
            title: format!(
                "{} programs of {} blocks of 64 KiB; half of each 4 KiB is random, the other half empty",
                options.programs, options.blocks
            ),
            files: options.programs as u64,
            bytes: options.bytes(),
            scale: 1.0,
            lz4_ratio: 0.5,
            ..WorkSummary::default()
        }],
        links: vec![LinkSummary::of_this_machine(
            LOOPBACK,
            "",
            "a modelled disk of this machine".to_owned(),
        )],
        published: PUBLISHED
            .into_iter()
            .map(|(mode, seconds)| Published {
                source: SOURCE.to_owned(),
                link: LOOPBACK.to_owned(),
                work: WORK.to_owned(),
                direction: "read".to_owned(),
                client: mode.name().to_owned(),
                server: "Windows".to_owned(),
                seconds,
            })
            .collect(),
        curves: vec![Curve::lines(
            CURVE,
            "Share of reads that memory answered in each half second, first run",
            [Axis::new("time", "s"), Axis::new("share", "")],
            Vec::new(),
        )],
        warnings: warnings(&[&options.dir], false),
        ..document(
            "boost",
            "ReadyBoost and Superfetch again: until programs are answered from memory after memory hogs",
        )
    }
}

fn settings(options: &Options, memory: u64, is_alone: bool) -> Vec<Setting> {
    let mega = |rate: f64| rate / 1e6;
    let hogs = match is_alone {
        true => "none: the pages of the files are given up by fadvise(2)".to_owned(),
        false => format!(
            "five rounds of two processes that take all memory of a group (cgroup) of {} MiB, page cache \
             included, but 8 MiB, then less",
            memory >> 20
        ),
    };
    Setting::list([
        (
            "disk",
            format!(
                "modelled in front of local files: {:.0} MB/s, and {} to {} ms before each read elsewhere; one \
                 read at a time",
                mega(DISK.bytes_per_s),
                DISK.seek.0.as_millis(),
                DISK.seek.1.as_millis()
            ),
        ),
        (
            "flash",
            format!(
                "modelled over a file past the page cache: {} ms before each read, {:.0} MB/s reading, {:.0} MB/s \
                 writing; one at a time, reads between pieces of 128 KiB that are written",
                FLASH_ACCESS.as_millis(),
                mega(FLASH_READ_BYTES_PER_S),
                mega(FLASH_WRITE_BYTES_PER_S)
            ),
        ),
        (
            "page cache",
            "the kernel's, of a FUSE mount of the store: the whole path is the one of `mount --boost`".to_owned(),
        ),
        ("hogs", hogs),
        (
            "programs",
            format!(
                "{} readers start programs at random; a program reads its blocks of 64 KiB once, in a scattered \
                 order of its own, without read-ahead, and thinks for 1 ms after each",
                options.readers
            ),
        ),
        (
            "normal",
            "the beginning of the first second in which disk and flash together are busy for at most 30 %; the \
             published experiment judged the disk only"
                .to_owned(),
        ),
        (
            "modes",
            "no boost; cold: an empty cache that knows nothing; warm: all programs ran three times with the cache \
             before; predicting: and it learned how; idle first: nobody uses the machine for 15 s after the hogs, \
             then the time begins. The cache has twice the room, and 4 MiB of memory"
                .to_owned(),
        ),
        ("runs", format!("{} of each mode, in turns", options.runs)),
    ])
}

/// Returns the cell of a mode without runs.
pub(super) fn cell(options: &Options, mode: Mode) -> Cell {
    Cell {
        key: key(mode.name()),
        payload_bytes: options.bytes(),
        files: options.programs as u64,
        ..Cell::default()
    }
}

/// Returns what a run found, for people.
pub(super) fn line(mode: Mode, number: u32, seconds: f64, found: &Found) -> String {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let cache = found.page_cache.map_or(String::new(), |(before, after)| {
        format!(", page cache {} then {} MiB", before >> 20, after >> 20)
    });
    let brought = found.brought.filter(|(bytes, ..)| *bytes > 0);
    let brought = brought.map_or(String::new(), |(bytes, from_disk, took)| {
        format!(
            ", {} MiB brought back in {took:.1} s, {} of them from the disk",
            bytes >> 20,
            from_disk >> 20
        )
    });
    format!(
        "{} {number}: normal after {seconds:.1} s (from memory: {} before the hogs, {} at first{cache}; \
         disk {} reads, flash {} reads, {} hits, {} prefetched{brought})",
        mode.name(),
        share(found.before),
        share(found.after),
        found.disk.0,
        found.flash.0,
        found.hits,
        found.prefetched
    )
}

/// Adds what a run found besides its time.
pub(super) fn add(document: &mut Document, mode: Mode, number: u32, found: &Found) {
    let value = found.normal_s.map_or_else(
        || "not normal within the limit".to_owned(),
        |seconds| line(mode, number + 1, seconds, found),
    );
    document.settings.push(Setting::new("run", value));
    if number == 0
        && let Some(curve) = document.curves.iter_mut().find(|curve| curve.id == CURVE)
    {
        curve
            .series
            .push(Series::measured(mode.name(), found.curve.clone()));
    }
}

/// Adds how many times faster the cache is.
pub(super) fn conclude(document: &mut Document) {
    let median = |mode: Mode| {
        let cell = document.cell(&key(mode.name()))?;
        cell.seconds().map(|median| median.value)
    };
    let Some(without) = median(Mode::None) else {
        return;
    };
    let parts: Vec<ScorePart> = Mode::ALL[1..]
        .iter()
        .copied()
        .filter_map(|mode| {
            Some(ScorePart {
                name: format!("{}: times faster than without", mode.name()),
                value: without / median(mode)?.max(LEAST_S),
                weight: 1.0,
            })
        })
        .collect();
    let name = Mode::Predicting.name();
    let Some(main) = parts
        .iter()
        .find(|part| part.name.starts_with(&format!("{name}:")))
    else {
        return;
    };
    document.score = Some(Score {
        described: "times faster with a warm cache than without".to_owned(),
        value: main.value,
        published: BTreeMap::from([("with enough in the cache".to_owned(), TARGET)]),
        parts,
    });
}
