//! The report of a run as a page, as text and as plots. Pure, but for [`write()`].

mod facts;
mod lead;
mod plots;
mod tables;

use std::path::Path;

use crate::bench::cell::{Mode, Pattern, bytes};
use crate::bench::result::Report;
use crate::report::numbers;
use crate::report::{Part, ReportError, Sheet, SheetSection, Written, write_sheet};

use facts::facts;
use lead::{lead, tiles, true_mode};
use plots::{curves, maps};
use tables::{cells, names};

/// Writes `bench.html`, `bench.md` and all plots into a folder.
///
/// # Errors
/// A file cannot be written, or a plot cannot be drawn.
pub fn write(report: &Report, folder: &Path) -> Result<Written, ReportError> {
    write_sheet(&sheet(report), folder, "bench")
}

fn sheet(report: &Report) -> Sheet {
    let target = numbers::name(&report.target.shown);
    Sheet {
        command: "ropeway bench".to_owned(),
        kind: report.target.kind.clone(),
        complete: report.complete,
        title: format!("Throughput of {target}"),
        when: when(report),
        lead: lead(report),
        tiles: tiles(report),
        warnings: report
            .warnings
            .iter()
            .map(|finding| finding.text.clone())
            .collect(),
        skipped: report
            .left_out
            .iter()
            .map(|left| format!("{}: {}", left.what, left.why))
            .collect(),
        sections: sections(report),
        facts: facts(report),
        raw: (
            crate::bench::result::FILE.to_owned(),
            serde_json::to_vec(report).unwrap_or_default(),
        ),
    }
}

fn when(report: &Report) -> String {
    let machine = &report.conditions.machine;
    format!(
        "Begun {} · last written {} · kernel {} · {} × {} · memory {}",
        numbers::moment(&report.started),
        numbers::moment(&report.updated),
        machine.kernel,
        machine.processors,
        machine.processor,
        bytes(machine.memory_bytes)
    )
}

fn sections(report: &Report) -> Vec<SheetSection> {
    let mut sections = Vec::new();
    let open = true_mode(report, Pattern::Read).or(true_mode(report, Pattern::Write));
    let mut modes = Mode::ALL;
    modes.sort_by_key(|mode| Some(*mode) != open);
    let maps: Vec<Part> = modes
        .into_iter()
        .filter_map(|mode| maps(report, mode, open))
        .collect();
    if !maps.is_empty() {
        sections.push(SheetSection {
            id: "maps".to_owned(),
            title: "By size of file and record".to_owned(),
            note: "Medians of all runs in MB/s. Write makes a new file, rewrite writes over it; read finds nothing in the \
                   page cache (unless a warning says so), reread everything that fits; random goes through all records once, \
                   strided through every 17th."
                .to_owned(),
            parts: maps,
        });
    }
    let curves = curves(report);
    if !curves.is_empty() {
        sections.push(SheetSection {
            id: "curves".to_owned(),
            title: "Curves".to_owned(),
            note: String::new(),
            parts: curves,
        });
    }
    if !report.nodes.is_empty() {
        sections.push(names(report));
    }
    if !report.cells.is_empty() {
        sections.push(SheetSection {
            id: "cells".to_owned(),
            title: "All figures".to_owned(),
            note: "± is half of the range of the runs, relative to the median. In memory: share of the file that was in the \
                   page cache before. Not written: share of the bytes that were in memory only when the clock stopped."
                .to_owned(),
            parts: vec![Part::Folded("Every cell".to_owned(), vec![cells(report)])],
        });
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::findings::findings;
    use crate::bench::samples;

    #[test]
    fn a_page_names_what_counts() {
        let mut report = samples::report();
        report.warnings = findings(&report);
        let sheet = sheet(&report);
        assert!(
            sheet
                .lead
                .starts_with("Writes reach 196 MB/s (direct, records of "),
            "{}",
            sheet.lead
        );
        assert!(
            sheet
                .lead
                .contains("A random read of 4 KiB takes 102 µs (direct, one in flight, 9,804 a second)")
        );
        assert_eq!(sheet.tiles.len(), 4);
        let ids: Vec<&str> = sheet.sections.iter().map(|section| section.id.as_str()).collect();
        assert_eq!(ids, ["maps", "curves", "names", "cells"]);
        // The maps of the device are open, the others are folded.
        let open: Vec<bool> = sheet.sections[0]
            .parts
            .iter()
            .map(|part| matches!(part, Part::Plots(_)))
            .collect();
        assert_eq!(open, [true, false, false]);
        assert_eq!(sheet.warnings.len(), 2);
    }

    #[test]
    fn all_plots_are_drawn_and_an_empty_report_is_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let report = samples::report();
        let written = write(&report, folder.path()).unwrap();
        let pictures = written
            .files
            .iter()
            .filter(|path| path.extension().is_some_and(|kind| kind == "png"));
        // 17 heat maps for each depth, 17 plots against records, 2 against sizes, 1 of names for each depth.
        assert_eq!(pictures.count(), 17 * 2 + 17 + 2 + 2);
        let page = std::fs::read_to_string(folder.path().join("bench.html")).unwrap();
        assert!(page.contains("a &lt;processor&gt;") && !page.contains("a <processor>"));
        write(&Report::default(), &folder.path().join("empty")).unwrap();
    }
}
