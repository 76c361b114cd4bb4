//! The heat maps and the curves of a run.

use crate::bench::cell::{Key, Mode, Pattern, bytes, short};
use crate::bench::result::{Cell, Report};
use crate::bench::table::{Rates, span};
use crate::report::numbers::{self, percent, prefixed};
use crate::report::{Axis, Curve, HeatMap, Part, Series, SheetDrawing};

/// Record size that people know for sequential passes.
const SEQUENTIAL: u64 = 1 << 20;

/// Returns the heat maps of a mode; they are folded if another mode is the open one.
pub(super) fn maps(report: &Report, mode: Mode, open: Option<Mode>) -> Option<Part> {
    let mut maps = Vec::new();
    let mut depths = report.settings.depths.clone();
    depths.sort_unstable();
    for pattern in Pattern::ALL {
        for &depth in &depths {
            let rates = Rates::of(report, (pattern, mode, depth));
            if rates.sizes.len() * rates.records.len() > 1 {
                maps.push(SheetDrawing::Map(map(report, &rates, (pattern, mode, depth))));
            }
        }
    }
    (!maps.is_empty()).then(|| match open == Some(mode) {
        true => Part::Plots(maps),
        false => Part::Folded(format!("Mode {mode}"), vec![Part::Plots(maps)]),
    })
}

fn map(report: &Report, rates: &Rates, (pattern, mode, depth): (Pattern, Mode, u32)) -> HeatMap {
    let tip = |size: &u64| {
        let tips = rates.records.iter().map(|record| {
            let key = Key {
                size: *size,
                record: *record,
                mode,
                depth,
                pattern,
            };
            report.cell(&key).map_or_else(String::new, tip)
        });
        tips.collect()
    };
    HeatMap {
        id: format!("map-{pattern}-{mode}-{depth}"),
        title: format!("{}, {mode}, {depth} in flight", numbers::capital(pattern.name())),
        axes: ["size of the file".to_owned(), "record".to_owned()],
        rows: rates.sizes.iter().map(|size| short(*size)).collect(),
        columns: rates.records.iter().map(|record| short(*record)).collect(),
        unit: "B/s".to_owned(),
        shown: ("MB/s".to_owned(), 1e6),
        values: rates.values.clone(),
        tips: rates.sizes.iter().map(tip).collect(),
    }
}

/// Describes a cell in a sentence.
fn tip(cell: &Cell) -> String {
    let Some(rate) = cell.rate() else {
        return String::new();
    };
    let mut text = format!("{}: {}", cell.key, prefixed(rate.value, "B/s"));
    if rate.number > 1 {
        let (least, most) = (prefixed(rate.least, "B/s"), prefixed(rate.most, "B/s"));
        text.push_str(&format!(", {} runs from {least} to {most}", rate.number));
    }
    if let Some(p50) = cell.median(|run| run.p50_us) {
        text.push_str(&format!(", p50 {}", span(p50.value)));
    }
    if let Some(share) = cell
        .known(|run| run.in_memory_before)
        .filter(|share| *share > 0.0)
    {
        text.push_str(&format!(", {} in memory before", percent(share)));
    }
    text
}

pub(super) fn curves(report: &Report) -> Vec<Part> {
    let mut parts = Vec::new();
    let by_size = [
        ("writes", "Writes by size of the file", true),
        ("reads", "Reads by size of the file", false),
    ];
    let by_size: Vec<SheetDrawing> = by_size
        .into_iter()
        .filter_map(|(id, title, writes)| against_size(report, id, title, writes))
        .collect();
    if !by_size.is_empty() {
        parts.push(Part::Plots(by_size));
    }
    let mut by_record = Vec::new();
    for mode in Mode::ALL {
        for pattern in Pattern::ALL {
            by_record.extend(against_record(report, pattern, mode));
        }
    }
    if !by_record.is_empty() {
        let title = format!("Throughput against record size: {} plots", by_record.len());
        parts.push(Part::Folded(title, vec![Part::Plots(by_record)]));
    }
    parts
}

/// Throughput against the size of the file, which shows where caches end.
fn against_size(report: &Report, id: &str, title: &str, writes: bool) -> Option<SheetDrawing> {
    let records = report.cells.iter().map(|cell| cell.key.record);
    let distance = |record: u64| (record as f64 / SEQUENTIAL as f64).ln().abs();
    let record = records.min_by(|a, b| distance(*a).total_cmp(&distance(*b)))?;
    let depth = report.settings.depths.iter().min().copied()?;
    let mut all = Vec::new();
    for mode in Mode::ALL {
        let patterns = Pattern::ALL.into_iter().filter(|pattern| {
            pattern.writes() == writes && !pattern.is_random() && *pattern != Pattern::Strided
        });
        for pattern in patterns {
            let own = report.cells.iter().filter(|cell| {
                let key = &cell.key;
                (key.pattern, key.mode, key.record, key.depth) == (pattern, mode, record, depth)
            });
            all.extend(series(format!("{pattern} {mode}"), own, |key| key.size));
        }
    }
    let title = format!("{title}, records of {}, {depth} in flight", bytes(record));
    lines(format!("size-{id}"), title, "size of the file", all)
}

fn against_record(report: &Report, pattern: Pattern, mode: Mode) -> Option<SheetDrawing> {
    let mut all = Vec::new();
    let mut depths = report.settings.depths.clone();
    depths.sort_unstable();
    let least = *depths.first()?;
    let largest = report.settings.sizes.iter().max().copied()?;
    for depth in depths {
        for &size in &report.settings.sizes {
            // All sizes for one in flight, and the largest for more.
            if depth != least && size != largest {
                continue;
            }
            let own = report.cells.iter().filter(|cell| {
                let key = &cell.key;
                (key.pattern, key.mode, key.size, key.depth) == (pattern, mode, size, depth)
            });
            let name = match depth == least {
                true => short(size),
                false => format!("{}, {depth} in flight", short(size)),
            };
            all.extend(series(name, own, |key| key.record));
        }
    }
    let title = format!("{}, {mode}", numbers::capital(pattern.name()));
    lines(format!("record-{pattern}-{mode}"), title, "record", all)
}

fn series<'a>(
    name: String,
    cells: impl Iterator<Item = &'a Cell>,
    x: impl Fn(&Key) -> u64,
) -> Option<Series> {
    let points = cells.filter_map(|cell| Some([x(&cell.key) as f64, cell.rate()?.value.round()]));
    let mut points: Vec<[f64; 2]> = points.collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    (points.len() > 1).then(|| Series::measured(name, points))
}

fn lines(id: String, title: String, x: &str, series: Vec<Series>) -> Option<SheetDrawing> {
    let axes = [Axis::logarithmic(x, "B"), Axis::logarithmic("throughput", "B/s")];
    (!series.is_empty()).then(|| SheetDrawing::Curve(Curve::lines(id, title, axes, series)))
}
