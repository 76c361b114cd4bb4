//! The results for a terminal of 80 columns: tables, two heat maps, warnings. Pure.

use std::fmt::Write as _;

use crate::bench::cell::{Key, Mode, Pattern, bytes, short};
use crate::bench::reason::Reason;
use crate::bench::result::{Cell, NodeOperation, Report};
use crate::report::Median;
use crate::report::numbers::{self, number};

/// Width of the text.
const WIDTH: usize = 80;
/// Record size that people know for sequential passes; the nearest measured one is shown.
const SEQUENTIAL: u64 = 1 << 20;
/// The same for random passes.
const RANDOM: u64 = 4096;
/// Columns of a table of rates that fit into [`WIDTH`].
const COLUMNS_MAX: usize = 6;
/// Spread from which a figure is marked.
const SPREAD_MAX: f64 = 0.25;
/// Background colours of a terminal with 256 colours, dark to light: from blue to yellow.
const COLORS: [u8; 11] = [17, 18, 24, 30, 36, 35, 71, 107, 149, 191, 227];
/// Colours on which light text is read.
const DARK: usize = 5;
/// The same without colours.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Formats a report. `colors`: for a terminal that shows them.
pub fn table(report: &Report, colors: bool) -> String {
    let mut text = String::new();
    sequential(&mut text, report);
    random(&mut text, report);
    names(&mut text, report);
    for (pattern, mode, depth) in maps(report) {
        heat_map(&mut text, report, (pattern, mode, depth), colors);
    }
    if text.contains('*') {
        text.push_str("\n* memory took part: see the warnings   ~ the runs differ by more than 25 %\n");
    } else if text.contains('~') {
        text.push_str("\n~ the runs differ by more than 25 %\n");
    }
    remarks(&mut text, report);
    text
}

/// Returns the largest size that has cells, and the measured record next to a wanted one.
fn shown(report: &Report, wanted: u64, of: impl Fn(Pattern) -> bool) -> Option<(u64, u64)> {
    let own = || {
        report
            .cells
            .iter()
            .filter(|cell| of(cell.key.pattern) && !cell.runs.is_empty())
    };
    let size = own().map(|cell| cell.key.size).max()?;
    let records = own()
        .filter(|cell| cell.key.size == size)
        .map(|cell| cell.key.record);
    let distance = |record: u64| (record as f64 / wanted as f64).ln().abs();
    let record = records.min_by(|a, b| distance(*a).total_cmp(&distance(*b)))?;
    Some((size, record))
}

/// Returns the columns that have a cell: mode and depth.
fn columns(report: &Report, size: u64, record: u64) -> Vec<(Mode, u32)> {
    let own = report
        .cells
        .iter()
        .filter(|cell| cell.key.size == size && cell.key.record == record);
    let mut columns: Vec<(Mode, u32)> = own.map(|cell| (cell.key.mode, cell.key.depth)).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

fn sequential(text: &mut String, report: &Report) {
    let is_wanted = |pattern: Pattern| !pattern.is_random();
    let Some((size, record)) = shown(report, SEQUENTIAL, is_wanted) else {
        return;
    };
    for columns in columns(report, size, record).chunks(COLUMNS_MAX) {
        _ = writeln!(
            text,
            "\nFile of {}, records of {}: MB/s by requests in flight",
            bytes(size),
            bytes(record)
        );
        let mut heads = [format!("{:11}", ""), format!("{:11}", "")];
        let mut last = None;
        for (mode, depth) in columns {
            let name = if last.replace(*mode) == Some(*mode) {
                ""
            } else {
                mode.name()
            };
            _ = write!(heads[0], " {name:>10}");
            _ = write!(heads[1], " {depth:>10}");
        }
        _ = writeln!(text, "{}\n{}", heads[0], heads[1]);
        for pattern in Pattern::ALL.into_iter().filter(|pattern| is_wanted(*pattern)) {
            let cells: Vec<Option<&Cell>> = columns
                .iter()
                .map(|&(mode, depth)| {
                    report.cell(&Key {
                        size,
                        record,
                        mode,
                        depth,
                        pattern,
                    })
                })
                .collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            _ = write!(text, "{:11}", pattern.name());
            for cell in cells {
                let figure = cell.map_or_else(|| "– ".to_owned(), |cell| marked(report, cell));
                _ = write!(text, " {figure:>10}");
            }
            text.push('\n');
        }
    }
}

/// Formats MB/s with marks: `1,520*`, or `98.1 `.
fn marked(report: &Report, cell: &Cell) -> String {
    let Some(rate) = cell.rate() else {
        return "– ".to_owned();
    };
    format!("{}{}", number(rate.value / 1e6), mark(report, &cell.key, &rate))
}

fn mark(report: &Report, key: &Key, rate: &Median) -> char {
    let is_memory = report.warnings.iter().any(|finding| {
        let reason = matches!(
            finding.reason,
            Reason::PageCache | Reason::NotWritten | Reason::ServerCache | Reason::AboveLink
        );
        reason && finding.cells.contains(key)
    });
    match rate.spread() > SPREAD_MAX {
        _ if is_memory => '*',
        true => '~',
        false => ' ',
    }
}

fn random(text: &mut String, report: &Report) {
    let Some((size, record)) = shown(report, RANDOM, Pattern::is_random) else {
        return;
    };
    _ = writeln!(
        text,
        "\nFile of {}, random records of {}\n{:31}{:>10} {:>11} {:>11} {:>11}",
        bytes(size),
        bytes(record),
        "",
        "MB/s",
        "per second",
        "p50",
        "p99"
    );
    for pattern in Pattern::ALL.into_iter().filter(|pattern| pattern.is_random()) {
        for (mode, depth) in columns(report, size, record) {
            let key = Key {
                size,
                record,
                mode,
                depth,
                pattern,
            };
            let Some((cell, requests)) = report.cell(&key).and_then(|cell| Some((cell, cell.requests()?)))
            else {
                continue;
            };
            let [p50, p99] = percentiles(cell);
            let name = format!("{pattern} {mode}, {depth}");
            _ = writeln!(
                text,
                "{name:31}{:>10} {:>11} {p50:>11} {p99:>11}",
                marked(report, cell),
                number(requests.value)
            );
        }
    }
}

/// Formats the median latency, and that of 99 %, which few requests do not have.
fn percentiles(cell: &Cell) -> [String; 2] {
    let of = |of: &dyn Fn(&crate::bench::result::Sample) -> f64| {
        cell.median(of).map_or(0.0, |median| median.value)
    };
    let few = cell.runs.iter().all(|run| run.operations < 100);
    let p99 = if few {
        "–".to_owned()
    } else {
        span(of(&|run| run.p99_us))
    };
    [span(of(&|run| run.p50_us)), p99]
}

/// Formats `79.0 µs`, `10.4 ms` or `1.20 s`.
pub(super) fn span(micros: f64) -> String {
    match micros {
        micros if micros < 999.5 => format!("{} µs", number(micros)),
        micros if micros < 999_500.0 => format!("{} ms", number(micros / 1e3)),
        micros => format!("{} s", number(micros / 1e6)),
    }
}

fn names(text: &mut String, report: &Report) {
    if report.nodes.is_empty() {
        return;
    }
    let mut depths: Vec<u32> = report.nodes.iter().map(|cell| cell.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    for depths in depths.chunks(2) {
        _ = write!(
            text,
            "\nNames, {} files: operations a second\n{:8}",
            numbers::count(report.settings.files),
            ""
        );
        for depth in depths {
            _ = write!(
                text,
                " {:>12} {:>10} {:>10}",
                format!("{depth} at once "),
                "p50",
                "p99"
            );
        }
        text.push('\n');
        for operation in NodeOperation::ALL {
            _ = write!(text, "{:8}", operation.name());
            for depth in depths {
                let same = |cell: &&crate::bench::result::NodeCell| {
                    cell.operation == operation && cell.depth == *depth
                };
                let cell = report.nodes.iter().find(same);
                match cell.and_then(|cell| Some((cell, cell.rate()?))) {
                    Some((cell, rate)) => {
                        let wide = if rate.spread() > SPREAD_MAX { '~' } else { ' ' };
                        let (p50, p99) = (
                            span(cell.median(|run| run.p50_us)),
                            span(cell.median(|run| run.p99_us)),
                        );
                        _ = write!(
                            text,
                            " {:>12} {p50:>10} {p99:>10}",
                            format!("{}{wide}", number(rate.value))
                        );
                    }
                    None => _ = write!(text, " {:>12} {:>10} {:>10}", "– ", "–", "–"),
                }
            }
            text.push('\n');
        }
    }
}

/// Returns the heat maps that say most: writing and reading, as near to the device as was measured.
pub(super) fn maps(report: &Report) -> Vec<(Pattern, Mode, u32)> {
    let has = |pattern: Pattern, mode: Mode, depth: u32| {
        let own = report.cells.iter().filter(|cell| {
            (cell.key.pattern, cell.key.mode, cell.key.depth) == (pattern, mode, depth)
                && !cell.runs.is_empty()
        });
        own.take(2).count() > 1
    };
    let depth = report.settings.depths.iter().min().copied().unwrap_or(1);
    let find = |pattern: Pattern| {
        let modes = [Mode::Direct, Mode::Fsync, Mode::Uncached, Mode::Cached];
        let mode = modes.into_iter().find(|mode| has(pattern, *mode, depth))?;
        Some((pattern, mode, depth))
    };
    [Pattern::Write, Pattern::Read]
        .into_iter()
        .filter_map(find)
        .collect()
}

/// Rates of one pattern, mode and depth: a row for each size, a column for each record.
pub(super) struct Rates {
    pub(super) sizes: Vec<u64>,
    pub(super) records: Vec<u64>,
    /// Bytes a second, by row and column.
    pub(super) values: Vec<Vec<Option<f64>>>,
}

impl Rates {
    /// Returns those of a report.
    pub(super) fn of(report: &Report, (pattern, mode, depth): (Pattern, Mode, u32)) -> Self {
        let own = || {
            report.cells.iter().filter(move |cell| {
                (cell.key.pattern, cell.key.mode, cell.key.depth) == (pattern, mode, depth)
                    && !cell.runs.is_empty()
            })
        };
        let axis = |of: &dyn Fn(&Cell) -> u64| {
            let mut values: Vec<u64> = own().map(of).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        let (sizes, records) = (axis(&|cell| cell.key.size), axis(&|cell| cell.key.record));
        let value = |size: u64, record: u64| {
            let key = Key {
                size,
                record,
                mode,
                depth,
                pattern,
            };
            Some(report.cell(&key)?.rate()?.value)
        };
        let row = |size: &u64| records.iter().map(|record| value(*size, *record)).collect();
        Self {
            values: sizes.iter().map(row).collect(),
            sizes,
            records,
        }
    }

    /// Returns the place of a value between the least and the largest, by its logarithm: 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let known = || self.values.iter().flatten().flatten().copied();
        let least = known().fold(f64::INFINITY, f64::min).max(1.0);
        let most = known().fold(1.0, f64::max);
        let share = (value.max(1.0) / least).ln() / (most / least).ln();
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            1.0
        }
    }
}

fn heat_map(text: &mut String, report: &Report, of: (Pattern, Mode, u32), colors: bool) {
    let rates = Rates::of(report, of);
    let (pattern, mode, depth) = of;
    let cell_width = ((WIDTH - 8) / rates.records.len().max(1)).clamp(6, 9);
    _ = write!(
        text,
        "\n{pattern} {mode}, {depth} in flight: MB/s by size of file (down) and record\n{:7}",
        ""
    );
    for record in &rates.records {
        _ = write!(text, "{:>cell_width$}", short(*record));
    }
    text.push('\n');
    for (size, row) in rates.sizes.iter().zip(&rates.values) {
        _ = write!(text, "{:>6} ", short(*size));
        for value in row {
            let Some(value) = value else {
                _ = write!(text, "{:>cell_width$}", "");
                continue;
            };
            let share = rates.share(*value);
            let figure = number(value / 1e6);
            if colors {
                let at = (share * (COLORS.len() - 1) as f64).round() as usize;
                let ink = if at < DARK { 15 } else { 16 };
                let wide = cell_width - 1;
                _ = write!(
                    text,
                    "\x1b[48;5;{};38;5;{ink}m{figure:>wide$} \x1b[0m",
                    COLORS[at]
                );
            } else {
                let shade = SHADES[(share * (SHADES.len() - 1) as f64).round() as usize];
                let wide = cell_width - 1;
                _ = write!(text, "{figure:>wide$}{shade}");
            }
        }
        text.push('\n');
    }
}

fn remarks(text: &mut String, report: &Report) {
    if !report.warnings.is_empty() {
        text.push_str("\nWarnings\n");
    }
    for finding in &report.warnings {
        wrapped(text, "! ", &numbers::clean(&finding.text, 1000));
    }
    if !report.left_out.is_empty() {
        text.push_str("\nLeft out\n");
    }
    for left in &report.left_out {
        wrapped(
            text,
            "- ",
            &numbers::clean(&format!("{}: {}", left.what, left.why), 1000),
        );
    }
}

/// Writes a sentence in lines of [`WIDTH`], with a mark in front.
fn wrapped(text: &mut String, mark: &str, sentence: &str) {
    let indent = " ".repeat(mark.chars().count());
    let mut line = mark.to_owned();
    let mut is_empty = true;
    for word in sentence.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            _ = writeln!(text, "{line}");
            line.clone_from(&indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::findings::findings;
    use crate::bench::samples::report;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn everything_fits_80_columns_and_what_was_memory_is_marked() {
        let mut report = report();
        report.warnings = findings(&report);
        let text = table(&report, false);
        assert!(widest(&text) <= WIDTH, "{} columns\n{text}", widest(&text));
        for part in [
            "File of 4 GiB, records of 1 MiB: MB/s by requests in flight",
            "random-read direct, 16",
            "create",
            "read direct, 1 in flight: MB/s by size of file (down) and record",
            "* memory took part",
            "Warnings\n! ",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        let reread = text.lines().find(|line| line.starts_with("reread")).unwrap();
        assert!(reread.contains('*'), "{reread}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn colours_are_used_only_if_asked_for() {
        let text = table(&report(), true);
        assert!(
            text.contains("\x1b[48;5;227;38;5;16m"),
            "the fastest is the lightest"
        );
        assert!(
            text.contains("\x1b[48;5;17;38;5;15m"),
            "the slowest is the darkest"
        );
        assert_eq!(text.matches("\x1b[48").count(), text.matches("\x1b[0m").count());
    }

    #[test]
    fn an_empty_report_is_no_table() {
        let empty = Report::default();
        assert_eq!(table(&empty, true), "");
        assert!(maps(&empty).is_empty());
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let mut text = String::new();
        wrapped(&mut text, "! ", &"word ".repeat(40));
        assert!(widest(&text) <= WIDTH && text.lines().count() == 3, "{text}");
        assert!(
            text.lines().skip(1).all(|line| line.starts_with("  word")),
            "{text}"
        );
        let mut long = String::new();
        wrapped(&mut long, "- ", &"x".repeat(100));
        assert_eq!(long.lines().count(), 1);
        assert_eq!(
            (span(79.04), span(10_440.0)),
            ("79.0 µs".to_owned(), "10.4 ms".to_owned())
        );
    }
}
