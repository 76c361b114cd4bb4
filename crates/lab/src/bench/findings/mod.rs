//! Warnings: when a cache, a line or a busy machine explains a figure. Pure: from the report alone, so
//! they can be made again from an old one.
//!
//! ```text
//!   caches    page cache, dirty pages, the drive's cache, what lies below direct I/O
//!   network   link, round trip, the server's memory
//!   machine   load, steal, governor, files in memory, compression
//! ```

mod caches;
mod machine;
mod network;
#[cfg(test)]
mod tests;

use crate::bench::cell::{Key, Mode, Pattern, bytes};
use crate::bench::facts::is_network;
use crate::bench::reason::Finding;
use crate::bench::result::{Cell, Report};
use crate::report::numbers::prefixed;

/// Returns all warnings about a report.
pub fn findings(report: &Report) -> Vec<Finding> {
    let mut all = machine::findings(report);
    all.extend(caches::findings(report));
    all.extend(network::findings(report));
    all
}

/// Returns the type of the target's file system if a program, a server or another file system holds
/// its files: the page cache of those is none of this mount, so cachestat(2) does not count it.
fn behind_mount(report: &Report) -> Option<&str> {
    let kind = report.target.file_system.as_deref()?;
    let source = report.target.source.as_deref().unwrap_or_default();
    (kind == "overlay" || kind.starts_with("fuse") || is_network(kind, source)).then_some(kind)
}

/// Formats `117 MB/s`.
fn rate(bytes_per_second: f64) -> String {
    prefixed(bytes_per_second, "B/s")
}

/// Formats a share as `98 %`.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats `1 cell`, `2 cells`.
fn cells(count: usize) -> String {
    match count {
        1 => "1 cell".to_owned(),
        _ => format!("{count} cells"),
    }
}

/// Cells of one mode.
struct Group<'a> {
    mode: Mode,
    cells: Vec<&'a Cell>,
}

impl Group<'_> {
    /// Returns `write, rewrite cached`.
    fn name(&self) -> String {
        let has = |pattern: &Pattern| self.cells.iter().any(|cell| cell.key.pattern == *pattern);
        let patterns: Vec<&str> = Pattern::ALL
            .iter()
            .filter(|pattern| has(pattern))
            .map(|pattern| pattern.name())
            .collect();
        format!("{} {}", patterns.join(", "), self.mode)
    }

    fn keys(&self) -> Vec<Key> {
        self.cells.iter().map(|cell| cell.key).collect()
    }

    /// Returns the largest figure of its cells.
    fn most(&self, of: impl Fn(&Cell) -> Option<f64>) -> f64 {
        let known = self.cells.iter().filter_map(|cell| of(cell));
        known.fold(0.0, f64::max)
    }

    /// Returns the size of its largest file, as text.
    fn largest(&self) -> String {
        bytes(self.cells.iter().map(|cell| cell.key.size).max().unwrap_or(0))
    }
}

/// Returns the cells that a rule concerns, grouped by mode.
fn groups<'a>(report: &'a Report, concerns: impl Fn(&Cell) -> bool) -> Vec<Group<'a>> {
    let of = |mode: Mode| {
        let own = report.cells.iter();
        let cells: Vec<&Cell> = own
            .filter(|cell| cell.key.mode == mode && concerns(cell))
            .collect();
        (!cells.is_empty()).then_some(Group { mode, cells })
    };
    Mode::ALL.into_iter().filter_map(of).collect()
}

/// Returns the median rate of a cell.
fn median_rate(cell: &Cell) -> Option<f64> {
    cell.rate().map(|rate| rate.value)
}
