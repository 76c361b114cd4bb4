//! Formats a document as one page of HTML. Style, script and plots are inside; nothing is fetched.
//!
//! Foreign text enters the page only through [`numbers::escape`], in elements and in quoted attributes,
//! never in the script or the style. The page's policy allows only our script, by its hash.

mod parts;
mod sheet;

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::beside::beside;
use super::file::FILE;
use super::model::Document;
use super::numbers::{self, escape};
use super::plot::{self, Medium, Plot, WIDE_PX};
use super::text;
use super::view::{Section, View};
pub(super) use sheet::sheet;

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// SHA-256 of [`SCRIPT`]: `openssl dgst -sha256 -binary page.js | base64`. A test opens the page in a
/// browser, which reports a script with another hash.
const SCRIPT_HASH: &str = "wqjZRDRc2+2PpE2EBFUJQgNDsr8ZnMXY0YYt2r8ohu8=";
/// Width of curves on a wide page.
const HALF_PX: f64 = 530.0;
const NARROW_PX: f64 = 356.0;
/// Number of curves of a section that are not folded.
const OPEN_MAX: usize = 4;
/// Largest size of the raw document in the page; browsers refuse longer links.
const RAW_MAX: usize = 16 << 20;

/// Returns a document as a page of HTML.
pub fn html(document: &Document) -> String {
    let view = View::of(document);
    let plots = plot::plots(&view);
    let mut page = frame(&numbers::name(&document.title));
    header(&mut page, &view, &plots);
    page.push_str("<main>\n");
    sections(&mut page, &view, &plots);
    parts::beside_published(&mut page, document);
    curves(&mut page, &view, &plots);
    parts::score(&mut page, document);
    findings(&mut page, &view);
    parts::conditions(&mut page, &view);
    page.push_str("</main>\n");
    download(&mut page, FILE, &serde_json::to_vec(document).unwrap_or_default());
    end(&mut page);
    page
}

/// Begins a page, up to its body.
fn frame(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'sha256-{SCRIPT_HASH}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>\n{CSS}{}@media (prefers-color-scheme:dark){{{}}}\n</style>\n</head>\n<body>\n",
        plot::css(false),
        plot::css(true)
    )
}

/// Ends a page.
fn end(page: &mut String) {
    _ = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
}

/// Returns the mark that says whether all results are there.
fn chip(complete: bool) -> &'static str {
    match complete {
        true => "<span class=\"chip\">complete</span>",
        false => "<span class=\"chip part\">not complete</span>",
    }
}

fn header(page: &mut String, view: &View<'_>, plots: &[Plot<'_, '_>]) {
    let doc = view.doc;
    let text = |text: &str| escape(&numbers::name(text));
    let chip = chip(doc.complete);
    _ = write!(
        page,
        "<header>\n<p class=\"over\"><b>ropeway lab</b> {} {chip}</p>\n<h1>{}</h1>\n<p class=\"when\">{}</p>\n",
        text(&doc.lab),
        text(&doc.title),
        parts::when(doc)
    );
    _ = writeln!(
        page,
        "<p class=\"lead\">{}</p>",
        escape(&text::summary(view).join(" "))
    );
    parts::tiles(page, view);
    let entries = [
        (!view.sections.is_empty(), "seconds", "Seconds"),
        (plots.iter().any(|plot| is_lone(view, plot)), "curves", "Curves"),
        (beside(doc).is_some(), "published", "Beside the published"),
        (doc.score.is_some(), "score", "Score"),
        (!view.missed().is_empty(), "missed", "Missed targets"),
        (!text::warnings(view).is_empty(), "warnings", "Warnings"),
        (!doc.links.is_empty(), "links", "Links and their proofs"),
        (true, "machine", "Machine and settings"),
        (true, "raw", "Raw data"),
    ];
    page.push_str("<nav aria-label=\"On this page\"><ul>\n");
    for (_, id, title) in entries.iter().filter(|entry| entry.0) {
        _ = writeln!(page, "<li><a href=\"#{id}\">{title}</a></li>");
    }
    page.push_str("</ul></nav>\n</header>\n");
}

/// Writes missed targets, warnings, and clients and servers that were left out.
fn findings(page: &mut String, view: &View<'_>) {
    list(page, "missed", "Missed targets", "miss", &text::missed(view), "");
    list(page, "warnings", "Warnings", "warn", &text::warnings(view), "");
    list(page, "skipped", "Left out", "skip", &text::skipped(view.doc), "");
}

/// Writes sentences that can be folded. `open` is ` open`, or nothing: figures come first.
fn list(page: &mut String, id: &str, head: &str, class: &str, lines: &[String], open: &str) {
    if lines.is_empty() {
        return;
    }
    _ = write!(
        page,
        "<details id=\"{id}\"{open}><summary>{head}: {}</summary>\n<ul class=\"list {class}\">\n",
        lines.len()
    );
    items(page, lines);
    page.push_str("</ul></details>\n");
}

fn items(page: &mut String, lines: &[String]) {
    for line in lines {
        _ = writeln!(page, "<li>{}</li>", escape(line));
    }
}

fn sections(page: &mut String, view: &View<'_>, plots: &[Plot<'_, '_>]) {
    if view.sections.is_empty() {
        return;
    }
    page.push_str(
        "<h2 id=\"seconds\">Seconds</h2>\n<p class=\"note\">A cell is one client at one server, over one link, with one work (a set \
         of files) in one direction.</p>\n<p class=\"note\">Medians, of the transfer where it is known; the fastest client of a row \
         is bold. Line time is the time of the bytes alone at the set rate, the floor that of bare TCP over this link. × is the \
         whole process divided by the floor; <span class=\"good\">✓</span> it reached its target, <span class=\"bad\">✗</span> missed. \
         ± is half of the range of the runs, relative to the median.</p>\n",
    );
    for section in &view.sections {
        _ = writeln!(page, "<h3>{}</h3>", escape(&view.section_title(section)));
        parts::section(page, view, section);
        for plot in plots.iter().filter(|plot| plot.shows(section)) {
            figure(page, plot, WIDE_PX, false);
        }
        over_time(page, plots, section);
    }
    if view.omitted > 0 {
        let omitted = numbers::counted(view.omitted, "cell is", "cells are");
        _ = writeln!(page, "<p class=\"note\">{omitted} not shown.</p>");
    }
}

/// Writes the curves of a section, folded if there are many.
fn over_time(page: &mut String, plots: &[Plot<'_, '_>], section: &Section<'_>) {
    let own: Vec<_> = plots.iter().filter(|plot| plot.belongs_to(section)).collect();
    if own.is_empty() {
        return;
    }
    let open = if own.len() <= OPEN_MAX { " open" } else { "" };
    let number = numbers::counted(own.len(), "curve", "curves");
    _ = write!(
        page,
        "<details{open}><summary>Over time: {number}</summary>\n<div class=\"curves\">\n"
    );
    for plot in own {
        figure(page, plot, HALF_PX, true);
    }
    page.push_str("</div></details>\n");
}

fn is_lone(view: &View<'_>, plot: &Plot<'_, '_>) -> bool {
    plot.is_curve() && !view.sections.iter().any(|section| plot.belongs_to(section))
}

/// Writes the curves that belong to no section.
fn curves(page: &mut String, view: &View<'_>, plots: &[Plot<'_, '_>]) {
    let mut curves = plots.iter().filter(|plot| is_lone(view, plot)).peekable();
    if curves.peek().is_none() {
        return;
    }
    page.push_str("<h2 id=\"curves\">Curves</h2>\n<div class=\"curves\">\n");
    for plot in curves {
        figure(page, plot, HALF_PX, true);
    }
    page.push_str("</div>\n");
}

/// Writes a plot in two widths; the style shows the one that fits.
fn figure(page: &mut String, plot: &Plot<'_, '_>, wide_px: f64, captioned: bool) {
    let caption = if captioned {
        format!("<figcaption>{}</figcaption>\n", escape(&plot.title))
    } else {
        String::new()
    };
    let wide = plot.svg(Medium::Page, wide_px, &format!("{}-w", plot.name));
    let narrow = plot.svg(Medium::Page, NARROW_PX, &format!("{}-n", plot.name));
    _ = write!(
        page,
        "<figure>\n{caption}<div class=\"wide\">{wide}</div><div class=\"narrow\">{narrow}</div></figure>\n"
    );
}

/// Writes the link to the raw document.
fn download(page: &mut String, name: &str, raw: &[u8]) {
    page.push_str("<footer id=\"raw\"><p>");
    let name = escape(name);
    if raw.is_empty() || raw.len() > RAW_MAX {
        _ = write!(
            page,
            "The raw document is too large for this page; it is the file {name} in the same folder."
        );
    } else {
        _ = write!(
            page,
            "<a download=\"{name}\" href=\"data:application/json;base64,{}\">Download {name}</a> ({}): everything on this page, \
             and every run.",
            STANDARD.encode(raw),
            numbers::bytes(raw.len() as u64)
        );
    }
    page.push_str("</p></footer>\n");
}
