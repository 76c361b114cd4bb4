//! Tables and lists of the page.

use std::fmt::Write;

use super::super::beside::{MEANING, beside};
use super::super::lines;
use super::super::markdown::{WORK_HEADS, work};
use super::super::model::{Cell, Document};
use super::super::numbers::{self, escape};
use super::super::text;
use super::super::view::{Row, Section, Verdict, View, failure, floor_factor, verdict};

/// Largest number of published figures.
const PUBLISHED_MAX: usize = 1_000;

/// Length from which a cell is text; figures are shorter.
const TEXT_MIN: usize = 22;
/// Number of cells that decide whether a column is text.
const TEXT_SAMPLE: usize = 100;

fn text(text: &str) -> String {
    escape(&numbers::name(text))
}

/// Returns time and machine of the measurement.
pub(super) fn when(doc: &Document) -> String {
    let machine = &doc.machine;
    let mut parts = vec![
        format!("Begun {}", text(&numbers::moment(&doc.started))),
        format!("last written {}", text(&numbers::moment(&doc.updated))),
    ];
    if !machine.kernel.is_empty() {
        parts.push(format!("kernel {}", text(&machine.kernel)));
    }
    if machine.processors > 0 {
        parts.push(format!("{} × {}", machine.processors, text(&machine.processor)));
    }
    parts.join(" · ")
}

/// Keeps figures and units on one line.
fn unbroken(text: &str) -> String {
    escape(text).replace(' ', "&nbsp;").replace(",&nbsp;", ", ")
}

/// Writes the most important figures as tiles.
pub(super) fn tiles(page: &mut String, view: &View<'_>) {
    let mut tiles: Vec<(String, &str)> = Vec::new();
    let of = |some: usize, all: usize| format!("{some}<small> of {all}</small>");
    let (reached, targets) = view.reached();
    if targets > 0 {
        tiles.push((of(reached, targets), "targets reached"));
    }
    if let Some(factor) = view.our_factor() {
        tiles.push((numbers::factor(factor.value), "ropeway, times the floor (median)"));
    }
    let (better, both) = view.compared_with_published();
    if both > 0 {
        tiles.push((of(better, both), "at least as fast as the best published"));
    }
    if let Some(score) = &view.doc.score {
        tiles.push((escape(&numbers::number(score.value)), "score"));
    }
    let cells = view.doc.cells.len();
    if cells > 0 {
        let measured = view
            .doc
            .cells
            .iter()
            .filter(|cell| cell.seconds().is_some())
            .count();
        tiles.push((of(measured, cells), "cells with a run that counts"));
    }
    if tiles.is_empty() {
        return;
    }
    page.push_str("<dl class=\"tiles\">\n");
    for (figure, label) in tiles {
        _ = writeln!(page, "<div><dt>{label}</dt><dd>{figure}</dd></div>");
    }
    page.push_str("</dl>\n");
}

/// Writes the table of a section.
pub(super) fn section(page: &mut String, view: &View<'_>, section: &Section<'_>) {
    open(page, &view.section_title(section));
    let published = section.rows.iter().any(|row| !row.published.is_empty());
    section_heads(page, view, section, published);
    for row in &section.rows {
        _ = write!(
            page,
            "<tr><th scope=\"row\">{}<small>{}</small></th>",
            text(row.link),
            unbroken(&view.link_figures(row.link))
        );
        for figure in row.limits() {
            _ = write!(page, "<td>{}</td>", text::known(figure));
        }
        let medians = view.medians(section, row).map(|(_, median)| median);
        let best = medians.fold(f64::INFINITY, f64::min);
        for cell in &row.cells {
            figure(page, *cell, best);
        }
        if published {
            published_cell(page, row);
        }
        page.push_str("</tr>\n");
    }
    close(page);
}

fn section_heads(page: &mut String, view: &View<'_>, section: &Section<'_>, published: bool) {
    page.push_str("<thead><tr><th scope=\"col\">Link</th>");
    for head in ["Line", "Floor", "Target"] {
        _ = write!(page, "<th scope=\"col\">{head}<small>s</small></th>");
    }
    for column in &section.columns {
        let column = &view.columns[*column];
        let variant = if column.variant.is_empty() {
            String::new()
        } else {
            format!("<small>{}</small>", text(column.variant))
        };
        _ = write!(
            page,
            "<th scope=\"col\"><b>{}</b><small>→ {}</small>{variant}</th>",
            text(column.client),
            text(column.server)
        );
    }
    if published {
        page.push_str("<th scope=\"col\">Published<small>best – worst</small></th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
}

fn figure(page: &mut String, cell: Option<&Cell>, best: f64) {
    let Some(cell) = cell else {
        page.push_str("<td class=\"pub\">–</td>");
        return;
    };
    let mark = match verdict(cell) {
        Verdict::Reached => "<span class=\"mark good\" role=\"img\" aria-label=\"target reached\">✓</span>",
        Verdict::Missed => "<span class=\"mark bad\" role=\"img\" aria-label=\"target missed\">✗</span>",
        Verdict::NoTarget => "",
    };
    let Some(median) = cell.seconds() else {
        let (word, reason) = failure(cell);
        let class = if word == "–" { "pub" } else { "bad" };
        _ = write!(
            page,
            "<td class=\"{class}\" title=\"{}\">{mark}{word}</td>",
            escape(reason)
        );
        return;
    };
    let class = if median.value <= best {
        " class=\"best\""
    } else {
        ""
    };
    let mut small = floor_factor(cell).map_or_else(String::new, numbers::factor);
    let mut tip = numbers::seconds(median.value);
    if median.number > 1 {
        let (least, most) = (numbers::number(median.least), numbers::seconds(median.most));
        tip.push_str(&format!("\n{} runs from {least} to {most}", median.number));
        small.push_str(&format!(" ±{}", numbers::percent(median.spread() / 2.0)));
    } else {
        tip.push_str("\none run");
        small.push_str(" 1 run");
    }
    if let Some(whole) = cell.judged() {
        let what = if cell.judges_transfer {
            "transfer"
        } else {
            "whole process"
        };
        tip.push_str(&format!("\n{what} {}", numbers::seconds(whole.value)));
        if let Some(factor) = floor_factor(cell) {
            tip.push_str(&format!(", {} the floor", numbers::factor(factor)));
        }
        if let Some(target) = cell.target_seconds {
            let beside = numbers::change(whole.value / target - 1.0);
            tip.push_str(&format!("\ntarget {}, {beside}", numbers::seconds(target)));
        }
    }
    // The tip has line ends and no foreign text, so it is not escaped.
    _ = write!(
        page,
        "<td{class} title=\"{tip}\">{mark}{}<small>{}</small></td>",
        numbers::number(median.value),
        small.trim_start()
    );
}

fn published_cell(page: &mut String, row: &Row<'_>) {
    let figures = row.published.iter().take(12).map(|figure| {
        let seconds = text::exact(figure.seconds);
        format!("{seconds} s  {} → {}", text(&figure.client), text(&figure.server))
    });
    let tip: Vec<String> = figures.collect();
    let small = row
        .published
        .first()
        .map_or(String::new(), |best| text(&best.client));
    _ = write!(
        page,
        "<td class=\"pub\" title=\"{}\">{}<small>{small}</small></td>",
        tip.join("\n"),
        text::published(row)
    );
}

fn open(page: &mut String, label: &str) {
    let label = escape(label);
    _ = writeln!(
        page,
        "<div class=\"box\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\"><table>"
    );
}

fn close(page: &mut String) {
    page.push_str("</tbody></table></div>\n");
}

/// Writes a plain table; the first column is its head.
pub(super) fn table<R: AsRef<[String]>>(page: &mut String, label: &str, heads: &[&str], body: &[R]) {
    if body.is_empty() {
        return;
    }
    open(page, label);
    page.push_str("<thead><tr>");
    let is_text = |at: usize| {
        let cells = body.iter().filter_map(|row| row.as_ref().get(at));
        cells
            .take(TEXT_SAMPLE)
            .any(|cell| cell.chars().count() > TEXT_MIN)
    };
    let texts: Vec<bool> = (0..heads.len()).map(is_text).collect();
    for (head, is_text) in heads.iter().zip(&texts) {
        let class = if *is_text { " class=\"text\"" } else { "" };
        _ = write!(page, "<th scope=\"col\"{class}>{}</th>", escape(head));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in body {
        page.push_str("<tr>");
        for (at, cell) in row.as_ref().iter().enumerate() {
            let cell = escape(cell);
            _ = if at == 0 {
                write!(page, "<th scope=\"row\">{cell}</th>")
            } else if texts.get(at) == Some(&true) {
                write!(page, "<td class=\"text\">{cell}</td>")
            } else {
                write!(page, "<td>{cell}</td>")
            };
        }
        page.push_str("</tr>\n");
    }
    close(page);
}

/// Writes the clients of the past beside their published seconds.
pub(super) fn beside_published(page: &mut String, doc: &Document) {
    let Some(beside) = beside(doc) else {
        return;
    };
    _ = write!(
        page,
        "<h2 id=\"published\">Beside the published seconds</h2>\n<p class=\"note\">{}</p>\n<ul class=\"list\">\n",
        escape(MEANING)
    );
    for sentence in &beside.sentences {
        _ = writeln!(page, "<li>{}</li>", escape(sentence));
    }
    page.push_str("</ul>\n");
    let heads: Vec<&str> = beside.heads.iter().map(String::as_str).collect();
    table(page, "Beside the published seconds", &heads, &beside.rows);
}

/// Writes the score and its parts.
pub(super) fn score(page: &mut String, doc: &Document) {
    let Some(score) = &doc.score else {
        return;
    };
    _ = write!(
        page,
        "<h2 id=\"score\">Score: {}</h2>\n<p>{}</p>\n",
        numbers::number(score.value),
        escape(&score.described)
    );
    let row = |name: &str, value: f64, weight: String| [numbers::name(name), numbers::number(value), weight];
    let parts = score.parts.iter().take(text::LINES_MAX);
    let mut rows: Vec<_> = parts
        .map(|part| row(&part.name, part.value, numbers::number(part.weight)))
        .collect();
    let others = score.published.iter().take(text::LINES_MAX);
    rows.extend(others.map(|(name, value)| row(&format!("published: {name}"), *value, String::new())));
    table(page, "Score by parts", &["Part", "Score", "Weight"], &rows);
}

/// Writes the conditions (links, works, machine, versions, settings) and the costs of the cells.
pub(super) fn conditions(page: &mut String, view: &View<'_>) {
    let doc = view.doc;
    if !doc.links.is_empty() {
        page.push_str(
            "<h2 id=\"links\">Links and their proofs</h2>\n\
             <p class=\"note\">Measurements of the emulator alone, compared with the settings.</p>\n",
        );
        let (heads, links) = text::links(doc, 1);
        table(page, "Links", &heads, &links);
    }
    if !doc.works.is_empty() {
        page.push_str("<h2 id=\"works\">Works</h2>\n");
        let works: Vec<_> = doc.works.iter().take(text::LINES_MAX).map(work).collect();
        table(page, "Works", &WORK_HEADS, &works);
    }
    page.push_str(
        "<h2 id=\"machine\">Machine and settings</h2>\n<div class=\"pair\"><div>\n<h3>Machine and versions</h3>\n",
    );
    facts(page, text::machine(doc).into_iter().chain(text::versions(doc)));
    page.push_str("</div><div>\n");
    if !doc.settings.is_empty() {
        page.push_str("<h3>Settings</h3>\n");
        facts(page, text::settings(doc));
    }
    page.push_str("</div></div>\n");
    details(page, doc);
}

/// Writes names and values.
pub(super) fn facts(page: &mut String, facts: impl Iterator<Item = [String; 2]>) {
    page.push_str("<dl class=\"facts\">\n");
    for [name, value] in facts {
        _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(&name), escape(&value));
    }
    page.push_str("</dl>\n");
}

fn details(page: &mut String, doc: &Document) {
    if !doc.cells.is_empty() {
        page.push_str("<details><summary>Processor time, memory and runs of each cell</summary>\n");
        let (heads, rows) = text::costs(doc);
        table(page, "Processor time and memory", &heads, &rows);
        page.push_str("</details>\n");
    }
    let lossy = [
        ("Bare TCP under loss", lines::floors(doc)),
        ("Connections of both ends", lines::sockets(doc)),
    ];
    if lossy.iter().any(|(_, table)| table.is_some()) {
        _ = writeln!(
            page,
            "<details><summary>Bare TCP under loss, and the connections</summary>\n<p class=\"note\">{}</p>",
            escape(lines::MEANING)
        );
        for (title, found) in lossy {
            if let Some((heads, rows)) = found {
                table(page, title, &heads, &rows);
            }
        }
        page.push_str("</details>\n");
    }
    if !doc.published.is_empty() {
        page.push_str("<details><summary>Published figures and their sources</summary>\n");
        let rows = doc.published.iter().take(PUBLISHED_MAX).map(|figure| {
            [
                numbers::name(&format!("{}, {}, {}", figure.link, figure.work, figure.direction)),
                numbers::name(&format!("{} → {}", figure.client, figure.server)),
                text::exact(figure.seconds),
                numbers::name(&figure.source),
            ]
        });
        let rows: Vec<_> = rows.collect();
        table(
            page,
            "Published",
            &["cell", "client and server", "s", "source"],
            &rows,
        );
        page.push_str("</details>\n");
    }
}
