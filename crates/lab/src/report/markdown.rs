//! Formats a document as GitHub Markdown, with plots in separate picture files.

use std::fmt::Write;

use super::beside::{self, beside};
use super::lines;
use super::model::Document;
use super::numbers;
use super::plot;
use super::sheet::{Part, Sheet, SheetPlots};
use super::table;
use super::text;
use super::view::{Section, View};

/// Returns a document as Markdown; picture names are those of [`super::write_all`].
pub fn markdown(document: &Document) -> String {
    let view = View::of(document);
    let doc = view.doc;
    let plots = plot::plots(&view);
    let mut text = format!("# {}\n\n", escape(&numbers::name(&doc.title)));
    _ = writeln!(
        text,
        "Lab `{}`, begun {}, last written {}.\n",
        code(&doc.lab),
        escape(&numbers::name(&doc.started)),
        escape(&numbers::name(&doc.updated))
    );
    _ = writeln!(text, "{}", escape(&text::summary(&view).join(" ")));
    listed(&mut text, "Missed targets", &text::missed(&view));
    listed(&mut text, "Warnings", &text::warnings(&view));
    listed(&mut text, "Left out", &text::skipped(doc));
    if !view.sections.is_empty() {
        _ = writeln!(text, "\n## Seconds\n\n{}", text::MARKS);
    }
    for section in &view.sections {
        grid(&mut text, &view, section);
        for plot in plots.iter().filter(|plot| plot.shows(section)) {
            picture(&mut text, plot);
        }
    }
    if let Some(table) = beside(doc) {
        _ = writeln!(text, "\n## Beside the published seconds\n\n{}\n", beside::MEANING);
        for sentence in &table.sentences {
            _ = writeln!(text, "- {}", escape(sentence));
        }
        text.push('\n');
        let heads: Vec<&str> = table.heads.iter().map(String::as_str).collect();
        rows(&mut text, &heads, &table.rows);
    }
    let curves: Vec<_> = plots.iter().filter(|plot| plot.is_curve()).collect();
    if !curves.is_empty() {
        text.push_str("\n## Curves\n");
    }
    for plot in curves {
        _ = writeln!(text, "\n### {}", escape(&plot.title));
        picture(&mut text, plot);
    }
    if let Some(score) = &doc.score {
        let described = escape(&numbers::clean(&score.described, numbers::TEXT_MAX));
        _ = writeln!(
            text,
            "\n## Score\n\n**{}**. {described}\n",
            numbers::number(score.value)
        );
        let parts = score.parts.iter().map(|part| {
            [
                numbers::name(&part.name),
                numbers::number(part.value),
                numbers::number(part.weight),
            ]
        });
        let parts: Vec<_> = parts.take(text::LINES_MAX).collect();
        rows(&mut text, &["part", "score", "weight"], &parts);
        let others = score
            .published
            .iter()
            .map(|(name, value)| [numbers::name(name), numbers::number(*value)]);
        let others: Vec<_> = others.take(text::LINES_MAX).collect();
        rows(&mut text, &["published", "score"], &others);
    }
    conditions(&mut text, doc);
    lossy(&mut text, doc);
    costs(&mut text, doc);
    text
}

/// Returns a page as Markdown.
pub(super) fn sheet(sheet: &Sheet, mut plots: SheetPlots<'_, '_>) -> String {
    let mut text = format!("# {}\n\n", escape(&numbers::name(&sheet.title)));
    _ = writeln!(text, "{}\n\n{}", escape(&sheet.when), escape(&sheet.lead));
    listed(&mut text, "Warnings", &sheet.warnings);
    listed(&mut text, "Left out", &sheet.skipped);
    for section in &sheet.sections {
        _ = writeln!(
            text,
            "\n## {}\n\n{}\n",
            escape(&section.title),
            escape(&section.note)
        );
        for part in &section.parts {
            sheet_part(&mut text, part, &mut plots);
        }
    }
    for (head, facts) in &sheet.facts {
        _ = writeln!(text, "\n## {}\n", escape(head));
        rows(&mut text, &["what", "which"], facts);
    }
    text
}

fn sheet_part(text: &mut String, part: &Part, plots: &mut SheetPlots<'_, '_>) {
    match part {
        Part::Table(label, heads, body) => {
            let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
            _ = writeln!(text, "\n{}:\n", escape(label));
            rows(text, &heads, body);
        }
        Part::Plots(drawings) => {
            for _ in drawings {
                if let Some(plot) = plots.next() {
                    picture(text, plot);
                }
            }
        }
        Part::Folded(summary, parts) => {
            _ = writeln!(text, "\n### {}\n", escape(summary));
            for part in parts {
                sheet_part(text, part, plots);
            }
        }
    }
}

fn listed(text: &mut String, head: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    _ = writeln!(text, "\n## {head}\n");
    for line in lines {
        _ = writeln!(text, "- {}", escape(line));
    }
}

fn picture(text: &mut String, plot: &plot::Plot<'_, '_>) {
    let description = escape(&numbers::clean(&plot.describe(), 400));
    _ = writeln!(text, "\n![{description}]({}.png)", plot.name);
}

fn grid(text: &mut String, view: &View<'_>, section: &Section<'_>) {
    _ = writeln!(text, "\n### {}\n", escape(&view.section_title(section)));
    let mut body = table::rows(view, section);
    let heads = body.remove(0);
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    rows(text, &heads, &body);
}

fn conditions(text: &mut String, doc: &Document) {
    text.push_str("\n## Machine and versions\n\n");
    let machine = text::machine(doc).into_iter().chain(text::versions(doc));
    rows(text, &["what", "which"], &machine.collect::<Vec<_>>());
    if !doc.settings.is_empty() {
        text.push_str("\n## Settings\n\n");
        let settings: Vec<_> = text::settings(doc).collect();
        rows(text, &["setting", "value"], &settings);
    }
    if !doc.works.is_empty() {
        text.push_str("\n## Works\n\n");
        let works: Vec<_> = doc.works.iter().take(text::LINES_MAX).map(work).collect();
        rows(text, &WORK_HEADS, &works);
    }
    if !doc.links.is_empty() {
        text.push_str("\n## Links, and the emulator measured by itself\n\n");
        let (heads, links) = text::links(doc, 6);
        rows(text, &heads, &links);
    }
}

/// Heads of [`work`].
pub(super) const WORK_HEADS: [&str; 8] = [
    "work",
    "what",
    "files",
    "folders",
    "bytes",
    "scale",
    "seed",
    "LZ4 ratio",
];

/// Describes a work.
pub(super) fn work(work: &super::WorkSummary) -> [String; 8] {
    [
        numbers::name(&work.name),
        numbers::name(&work.title),
        numbers::count(work.files),
        numbers::count(work.folders),
        numbers::count(work.bytes),
        numbers::number(work.scale),
        work.seed.to_string(),
        numbers::number(work.lz4_ratio),
    ]
}

fn lossy(text: &mut String, doc: &Document) {
    let tables: Vec<_> = [lines::floors(doc), lines::sockets(doc)]
        .into_iter()
        .flatten()
        .collect();
    if !tables.is_empty() {
        _ = writeln!(text, "\n## Bare TCP and the connections\n\n{}\n", lines::MEANING);
    }
    for (heads, body) in tables {
        rows(text, &heads, &body);
    }
}

fn costs(text: &mut String, doc: &Document) {
    if doc.cells.is_empty() {
        return;
    }
    text.push_str("\n## Processor time and memory\n\n");
    let (heads, body) = text::costs(doc);
    rows(text, &heads, &body);
}

/// Returns a table: the first column left-aligned, the others right-aligned.
fn rows<R: AsRef<[String]>>(text: &mut String, heads: &[&str], body: &[R]) {
    if body.is_empty() {
        return;
    }
    let heads_shown: Vec<String> = heads.iter().map(|head| escape(head)).collect();
    _ = writeln!(text, "| {} |", heads_shown.join(" | "));
    let rules: Vec<&str> = (0..heads.len())
        .map(|at| if at == 0 { ":--" } else { "--:" })
        .collect();
    _ = writeln!(text, "| {} |", rules.join(" | "));
    for row in body {
        let shown: Vec<String> = row.as_ref().iter().map(|cell| escape(cell)).collect();
        _ = writeln!(text, "| {} |", shown.join(" | "));
    }
    text.push('\n');
}

/// Escapes foreign text: no markup, no HTML, no end of a table cell.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '!' | '$' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Escapes text within a code span.
fn code(text: &str) -> String {
    numbers::name(text).replace('`', "'")
}
