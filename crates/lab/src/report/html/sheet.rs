//! Formats a [`Sheet`] as a page.

use std::fmt::Write as _;

use super::super::numbers::{self, escape};
use super::super::sheet::{Part, Sheet, SheetPlots, SheetSection};
use super::{HALF_PX, download, figure, frame, list, parts};

/// Warnings explain figures, so they are not folded.
const OPEN: &str = " open";

/// Returns a page.
pub(in crate::report) fn sheet(sheet: &Sheet, mut plots: SheetPlots<'_, '_>) -> String {
    let mut page = frame(&numbers::name(&sheet.title));
    header(&mut page, sheet);
    page.push_str("<main>\n");
    list(&mut page, "warnings", "Warnings", "warn", &sheet.warnings, OPEN);
    list(&mut page, "skipped", "Left out", "skip", &sheet.skipped, OPEN);
    for section in &sheet.sections {
        self::section(&mut page, section, &mut plots);
    }
    page.push_str("<h2 id=\"machine\">Machine and settings</h2>\n<div class=\"pair\">");
    for (head, facts) in &sheet.facts {
        _ = write!(page, "<div>\n<h3>{}</h3>\n", escape(head));
        parts::facts(&mut page, facts.iter().cloned());
        page.push_str("</div>");
    }
    page.push_str("</div>\n</main>\n");
    download(&mut page, &sheet.raw.0, &sheet.raw.1);
    super::end(&mut page);
    page
}

fn header(page: &mut String, sheet: &Sheet) {
    let chip = super::chip(sheet.complete);
    _ = write!(
        page,
        "<header>\n<p class=\"over\"><b>{}</b> {} {chip}</p>\n<h1>{}</h1>\n<p class=\"when\">{}</p>\n<p class=\"lead\">{}</p>\n",
        escape(&sheet.command),
        escape(&sheet.kind),
        escape(&numbers::name(&sheet.title)),
        escape(&sheet.when),
        escape(&sheet.lead)
    );
    if !sheet.tiles.is_empty() {
        page.push_str("<dl class=\"tiles\">\n");
    }
    for [figure, unit, label] in &sheet.tiles {
        let (figure, unit, label) = (escape(figure), escape(unit), escape(label));
        _ = writeln!(
            page,
            "<div><dt>{label}</dt><dd>{figure}<small> {unit}</small></dd></div>"
        );
    }
    if !sheet.tiles.is_empty() {
        page.push_str("</dl>\n");
    }
    let sections = sheet
        .sections
        .iter()
        .map(|section| (section.id.as_str(), section.title.as_str()));
    let entries = [("warnings", "Warnings")]
        .into_iter()
        .filter(|_| !sheet.warnings.is_empty())
        .chain(sections)
        .chain([("machine", "Machine and settings"), ("raw", "Raw data")]);
    page.push_str("<nav aria-label=\"On this page\"><ul>\n");
    for (id, title) in entries {
        _ = writeln!(page, "<li><a href=\"#{}\">{}</a></li>", escape(id), escape(title));
    }
    page.push_str("</ul></nav>\n</header>\n");
}

fn section(page: &mut String, section: &SheetSection, plots: &mut SheetPlots<'_, '_>) {
    _ = writeln!(
        page,
        "<h2 id=\"{}\">{}</h2>",
        escape(&section.id),
        escape(&section.title)
    );
    if !section.note.is_empty() {
        _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&section.note));
    }
    for part in &section.parts {
        self::part(page, part, plots);
    }
}

fn part(page: &mut String, part: &Part, plots: &mut SheetPlots<'_, '_>) {
    match part {
        Part::Table(label, heads, rows) => {
            let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
            parts::table(page, label, &heads, rows);
        }
        Part::Plots(drawings) => {
            page.push_str("<div class=\"curves\">\n");
            for _ in drawings {
                if let Some(plot) = plots.next() {
                    figure(page, plot, HALF_PX, true);
                }
            }
            page.push_str("</div>\n");
        }
        Part::Folded(summary, parts) => {
            _ = writeln!(page, "<details><summary>{}</summary>", escape(summary));
            for part in parts {
                self::part(page, part, plots);
            }
            page.push_str("</details>\n");
        }
    }
}
