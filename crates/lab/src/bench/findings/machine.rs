//! The machine: what runs beside the measurement, and what the volume is.

use super::{behind_mount, cells, percent};
use crate::bench::cell::{Key, bytes};
use crate::bench::reason::{Finding, Reason};
use crate::bench::result::{Cell, Report, Sample};
use crate::report::Median;

/// Load average at the start from which other work surely runs (a guess, as in the laboratory).
const LOAD_MAX: f64 = 0.5;
/// Processors that others may keep busy unnoticed (a guess).
const BUSY_MAX: f64 = 0.25;
/// Share of the time that a hypervisor may take unnoticed (a guess).
const STEAL_MAX: f64 = 0.02;
/// Range of the runs, as a share of the median, from which a cell is noisy (a guess).
const SPREAD_MAX: f64 = 0.25;
/// Runs that a spread needs.
const RUNS_MIN: usize = 3;
/// A file whose blocks are fewer than this share of its size is not stored whole.
const ALLOCATED_MIN: f64 = 0.9;

/// Returns the warnings.
pub(super) fn findings(report: &Report) -> Vec<Finding> {
    let mut all = storage(report);
    all.extend(noise(report));
    all.extend(cut(report));
    all
}

fn storage(report: &Report) -> Vec<Finding> {
    let conditions = &report.conditions;
    let mut all = Vec::new();
    if conditions.in_memory {
        let text = "the target keeps its files in memory: no device takes part";
        all.push(Finding::of_all(Reason::InMemory, text));
    }
    if let Some(device) = conditions.device.as_ref().filter(|device| device.in_page_cache) {
        let text = format!(
            "{} is a file that the page cache holds as well: direct I/O ends in memory (losetup --direct-io=on avoids that)",
            device.name
        );
        all.push(Finding::of_all(Reason::LoopCache, text));
    }
    if conditions.virtual_machine && conditions.device.is_some() {
        let text = "this machine is virtual: its host may cache the disk, which nobody inside can see";
        all.push(Finding::of_all(Reason::Host, text));
    }
    if let Some(kind) = behind_mount(report) {
        let text = format!(
            "{kind}: the program, server or file system behind this mount may have files in a memory that is neither seen nor \
             dropped from here: reads of all modes, and writes in mode cached, may show that memory"
        );
        all.push(Finding::of_all(Reason::BehindMount, text));
    }
    if let Some(compression) = &conditions.compression {
        let text = format!(
            "the file system compresses ({compression}); the data of this run does not compress, so compression costs time \
             and saves nothing"
        );
        all.push(Finding::of_all(Reason::Compression, text));
    }
    for file in &report.files {
        if let Some(share) = file.allocated.filter(|share| *share < ALLOCATED_MIN) {
            let text = format!(
                "the file of {} takes {} of its size on the volume: not all of it was stored, so reads may cost nothing",
                bytes(file.size),
                percent(share)
            );
            all.push(Finding::of_all(Reason::Compression, text));
        }
    }
    all
}

fn noise(report: &Report) -> Vec<Finding> {
    let mut all = Vec::new();
    let conditions = &report.conditions;
    let median = |of: &dyn Fn(&Sample) -> Option<f64>| {
        let runs = report.cells.iter().flat_map(|cell| &cell.runs);
        Median::of(runs.filter_map(of).collect()).map_or(0.0, |median| median.value)
    };
    let (busy, steal) = (median(&|run| run.others_busy), median(&|run| run.steal));
    let mut parts = Vec::new();
    if conditions.load > LOAD_MAX {
        parts.push(format!(
            "the load average was {:.2} at the start",
            conditions.load
        ));
    }
    if busy > BUSY_MAX {
        parts.push(format!(
            "others kept {busy:.1} processors busy during half of the steps"
        ));
    }
    if steal > STEAL_MAX {
        parts.push(format!(
            "the hypervisor gave {} of the time to others",
            percent(steal)
        ));
    }
    if !parts.is_empty() {
        let text = format!("the machine was not idle: {}", parts.join("; "));
        all.push(Finding::of_all(Reason::Noise, text));
    }
    let wide = |cell: &&Cell| {
        let rate = cell.rate();
        rate.is_some_and(|rate| rate.number >= RUNS_MIN && rate.spread() > SPREAD_MAX)
    };
    let noisy: Vec<Key> = report.cells.iter().filter(wide).map(|cell| cell.key).collect();
    if !noisy.is_empty() {
        let text = format!(
            "{} of {}: the runs differ by more than {} of their median",
            noisy.len(),
            cells(report.cells.len()),
            percent(SPREAD_MAX)
        );
        all.push(Finding::of(Reason::Noise, text, noisy));
    }
    if let Some(governor) = conditions.governor.as_deref().filter(|name| *name == "powersave") {
        let text = format!(
            "the processor's frequency governor is {governor}: small records may be measured at a low frequency"
        );
        all.push(Finding::of_all(Reason::Governor, text));
    }
    all
}

/// Passes that the time limit has ended.
fn cut(report: &Report) -> Option<Finding> {
    let is_cut = |cell: &&Cell| cell.runs.iter().any(|run| run.cut);
    let found: Vec<Key> = report.cells.iter().filter(is_cut).map(|cell| cell.key).collect();
    (!found.is_empty()).then(|| {
        let text = format!(
            "{}: the pass ended after {} s, or when as much was dirty as the device writes in some seconds, before the \
             whole file was done (--pass-time, --budget)",
            cells(found.len()),
            report.settings.pass_seconds
        );
        Finding::of(Reason::Cut, text, found)
    })
}
