//! Formats a document as a table for terminals: plain text, a line for each link.

use std::fmt::Write;

use super::model::Document;
use super::numbers;
use super::text;
use super::view::{Section, View};

/// Options of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// Width of the terminal in columns: wider tables are split. `None` for no limit.
    pub width: Option<usize>,
    /// Whether to leave out machine, links and warnings.
    pub brief: bool,
}

/// Separator of columns.
const GAP: &str = "  ";
/// Number of columns that each part of a split table repeats: the link.
const FIXED: usize = 1;

/// Returns a document as text.
pub fn table(document: &Document, options: TableOptions) -> String {
    let view = View::of(document);
    let mut text = String::new();
    let doc = view.doc;
    _ = writeln!(
        text,
        "{} ({})",
        numbers::name(&doc.title),
        numbers::name(&doc.lab)
    );
    if !options.brief {
        let machine = text::machine(doc).map(|[name, value]| format!("{} {value}", name.to_lowercase()));
        _ = writeln!(text, "{}, {}", numbers::name(&doc.started), machine.join(", "));
    }
    for section in &view.sections {
        _ = write!(
            text,
            "\n{}\n{}",
            view.section_title(section),
            grid(&view, section, options.width)
        );
    }
    if !view.sections.is_empty() {
        _ = write!(text, "\n{}\n", text::MARKS);
    }
    if view.omitted > 0 {
        _ = writeln!(
            text,
            "{} not shown.",
            numbers::counted(view.omitted, "cell is", "cells are")
        );
    }
    if let Some(score) = &doc.score {
        _ = writeln!(
            text,
            "\nScore {} ({})",
            numbers::number(score.value),
            numbers::name(&score.described)
        );
        for part in score.parts.iter().take(text::LINES_MAX) {
            _ = writeln!(
                text,
                "  {} {}",
                numbers::number(part.value),
                numbers::name(&part.name)
            );
        }
    }
    _ = writeln!(text, "\n{}", text::summary(&view).join(" "));
    listed(&mut text, "Missed:", &text::missed(&view));
    listed(&mut text, "Left out:", &text::skipped(doc));
    if !options.brief {
        let links = doc
            .links
            .iter()
            .filter(|link| !link.proof.as_ref().is_some_and(|proof| proof.holds));
        let links: Vec<String> = links
            .take(text::LINES_MAX)
            .map(|link| format!("{}: {}", numbers::name(&link.name), text::proved(link)))
            .collect();
        listed(&mut text, "Links without a proof that holds:", &links);
        listed(&mut text, "Warnings:", &text::warnings(&view));
    }
    text
}

fn listed(text: &mut String, head: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    _ = writeln!(text, "{head}");
    for line in lines {
        _ = writeln!(text, "  {line}");
    }
}

/// Returns the table of a section, split by the width.
fn grid(view: &View<'_>, section: &Section<'_>, width: Option<usize>) -> String {
    let rows = rows(view, section);
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    let fixed: usize = widths[..FIXED].iter().sum();
    let mut text = String::new();
    let mut from = FIXED;
    while from < widths.len() {
        let mut to = from + 1;
        let mut used = fixed + GAP.len() + widths[from];
        while to < widths.len() && width.is_none_or(|most| used + GAP.len() + widths[to] <= most) {
            used += GAP.len() + widths[to];
            to += 1;
        }
        if from > FIXED {
            text.push('\n');
        }
        for row in &rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for at in from..to {
                _ = write!(line, "{GAP}{:>1$}", row[at], widths[at]);
            }
            _ = writeln!(text, "{}", line.trim_end());
        }
        from = to;
    }
    text
}

/// Returns the heads and a row for each link.
pub(super) fn rows(view: &View<'_>, section: &Section<'_>) -> Vec<Vec<String>> {
    let mut heads = ["link", "line s", "floor s", "target s"]
        .map(str::to_owned)
        .to_vec();
    heads.extend(section.columns.iter().map(|column| view.columns[*column].label()));
    heads.push("published s".to_owned());
    let mut rows = vec![heads];
    for row in &section.rows {
        let figures = view.link_figures(row.link);
        let link = numbers::name(row.link);
        let mut shown = vec![match figures.is_empty() {
            true => link,
            false => format!("{link} ({figures})"),
        }];
        shown.extend(row.limits().map(text::known));
        shown.extend(row.cells.iter().map(|cell| text::cell(*cell)));
        shown.push(text::published(row));
        rows.push(shown);
    }
    rows
}
