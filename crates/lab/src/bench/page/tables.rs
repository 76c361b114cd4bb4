//! The tables of a run: operations on names, with their bars, and all cells.

use crate::bench::cell::short;
use crate::bench::result::{Cell, NodeCell, NodeOperation, Report, Sample};
use crate::bench::table::span;
use crate::report::numbers::{self, number, percent};
use crate::report::{Axis, Curve, Drawing, Part, Series, SheetDrawing, SheetSection};

/// Largest number of rows of the table of all cells.
const ROWS_MAX: usize = 5_000;

pub(super) fn names(report: &Report) -> SheetSection {
    let heads = ["operation", "in flight", "per second", "±", "p50", "p99", "runs"];
    let row = |cell: &NodeCell| {
        let rate = cell.rate()?;
        Some(vec![
            cell.operation.name().to_owned(),
            cell.depth.to_string(),
            number(rate.value),
            percent(rate.spread() / 2.0),
            span(cell.median(|run| run.p50_us)),
            span(cell.median(|run| run.p99_us)),
            cell.runs.len().to_string(),
        ])
    };
    let rows: Vec<Vec<String>> = report.nodes.iter().filter_map(row).collect();
    let mut depths: Vec<u32> = report.nodes.iter().map(|cell| cell.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let bars = |depth: &u32| {
        let points = NodeOperation::ALL
            .iter()
            .enumerate()
            .filter_map(|(at, operation)| {
                let mut cells = report.nodes.iter();
                let cell = cells.find(|cell| cell.operation == *operation && cell.depth == *depth)?;
                Some([at as f64, cell.rate()?.value.round()])
            });
        SheetDrawing::Curve(Curve {
            id: format!("names-{depth}"),
            title: format!("Operations on names, {depth} in flight"),
            drawing: Drawing::Bars,
            x: Axis {
                names: NodeOperation::ALL.map(|one| one.name().to_owned()).to_vec(),
                ..Axis::new("operation", "")
            },
            y: Axis::new("operations a second", "1/s"),
            series: vec![Series::measured(format!("{depth} in flight"), points.collect())],
        })
    };
    let heads = heads.map(str::to_owned).to_vec();
    SheetSection {
        id: "names".to_owned(),
        title: "Names".to_owned(),
        note: format!(
            "{} empty files in a new folder; an operation of list is one entry.",
            numbers::count(report.settings.files)
        ),
        parts: vec![
            Part::Table("Operations on names".to_owned(), heads, rows),
            Part::Plots(depths.iter().map(bars).collect()),
        ],
    }
}

pub(super) fn cells(report: &Report) -> Part {
    let heads = [
        "file",
        "record",
        "pattern",
        "mode",
        "in flight",
        "MB/s",
        "±",
        "per second",
        "p50",
        "p99",
        "max",
        "in memory",
        "not written",
        "runs",
    ];
    let row = |cell: &Cell| {
        let (rate, requests) = (cell.rate()?, cell.requests()?);
        let median = |of: &dyn Fn(&Sample) -> f64| cell.median(of).map_or(0.0, |median| median.value);
        let share = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), percent);
        let cut = if cell.runs.iter().any(|run| run.cut) {
            " (cut)"
        } else {
            ""
        };
        Some(vec![
            short(cell.key.size),
            short(cell.key.record),
            format!("{}{cut}", cell.key.pattern),
            cell.key.mode.name().to_owned(),
            cell.key.depth.to_string(),
            number(rate.value / 1e6),
            percent(rate.spread() / 2.0),
            number(requests.value),
            span(median(&|run| run.p50_us)),
            span(median(&|run| run.p99_us)),
            span(median(&|run| run.max_us)),
            share(cell.known(|run| run.in_memory_before)),
            share(cell.known(|run| run.not_written)),
            cell.runs.len().to_string(),
        ])
    };
    let rows: Vec<Vec<String>> = report.cells.iter().filter_map(row).take(ROWS_MAX).collect();
    Part::Table("All figures".to_owned(), heads.map(str::to_owned).to_vec(), rows)
}
