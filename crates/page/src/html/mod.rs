//! The view as a page of HTML, complete without scripts.
//!
//! The script fills the same elements: what it must add, it copies from templates in the page, which
//! are made by the functions below too.

mod build;
mod parts;

use self::build::Html;
use crate::view::View;

/// The style of the page.
pub(crate) const CSS: &str = include_str!("../assets/page.css");
/// The script that keeps the page up to date.
pub(crate) const SCRIPT: &str = include_str!("../assets/page.js");
/// The icon.
pub(crate) const ICON: &str = include_str!("../assets/icon.svg");

/// Time from one loading of the page to the next without scripts, in seconds.
const RELOAD_SECONDS: u32 = 5;

/// What a page can do for the one who asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control<'a> {
    /// Nothing: it has no token.
    None,
    /// Forms, with this number.
    Forms(&'a str),
}

/// Returns the page.
pub(crate) fn page(view: &View, control: Control<'_>) -> String {
    let mut html = Html::page(&view.title, true);
    let form = match control {
        Control::None => "",
        Control::Forms(form) => form,
    };
    html.open("body", &[("data-run", &view.run), ("data-form", form)]);
    html.open("header", &[]);
    html.open("div", &[("class", "head")]);
    html.element("h1", &[("id", "heading")], &view.heading);
    html.open("p", &[("id", "link"), ("role", "status")]);
    html.element("span", &[("id", "light"), ("aria-hidden", "true")], "");
    html.element("span", &[("id", "said")], &format!("as of {}", view.taken));
    html.element("a", &[("href", "/")], "load again");
    html.close("p");
    html.close("div");
    html.open("p", &[("id", "facts")]);
    html.text(&view.facts.join(" · "));
    html.close("p");
    html.element("p", &[("id", "command")], &view.command);
    parts::notes(&mut html, "notes", &view.notes);
    parts::actions(&mut html, "actions", &view.actions, form);
    html.element("p", &[("id", "reply"), ("role", "status")], "");
    html.close("header");
    html.open("main", &[("id", "sections")]);
    for section in &view.sections {
        parts::section(&mut html, section, form);
    }
    html.close("main");
    footer(&mut html, control);
    parts::templates(&mut html, form);
    html.close("body");
    html.finish()
}

fn footer(html: &mut Html, control: Control<'_>) {
    html.open("footer", &[]);
    if matches!(control, Control::None) {
        let text = "This page only shows. To pause, limit or stop something, open the address that was \
                    printed at the start, with ?token=…";
        html.element("p", &[], text);
    }
    html.open("p", &[]);
    html.text("For programs: ");
    for (index, path) in ["/snapshot.json", "/metrics"].into_iter().enumerate() {
        html.text(if index == 0 { "" } else { " · " });
        html.element("a", &[("href", path)], path);
    }
    html.close("p");
    html.close("footer");
}

/// Returns a page with a heading and a line of text.
pub(crate) fn message(title: &str, text: &str) -> String {
    let mut html = Html::page(title, false);
    html.open("body", &[]);
    html.open("main", &[("class", "message")]);
    html.element("h1", &[], title);
    html.element("p", &[], text);
    html.open("p", &[]);
    html.element("a", &[("href", "/")], "back");
    html.close("p");
    html.close("main");
    html.close("body");
    html.finish()
}

/// Returns a page that asks before something is done: a form with these fields, and `sure`.
pub(crate) fn question(text: &str, fields: &[(String, String)]) -> String {
    let mut html = Html::page("Are you sure?", false);
    html.open("body", &[]);
    html.open("main", &[("class", "message")]);
    html.element("h1", &[], "Are you sure?");
    html.element("p", &[], text);
    html.open("form", &[("method", "post"), ("action", "/do")]);
    for (name, value) in fields {
        html.void("input", &[("type", "hidden"), ("name", name), ("value", value)]);
    }
    html.void("input", &[("type", "hidden"), ("name", "sure"), ("value", "1")]);
    html.element("button", &[("class", "bad")], "yes");
    html.close("form");
    html.open("p", &[]);
    html.element("a", &[("href", "/")], "back");
    html.close("p");
    html.close("main");
    html.close("body");
    html.finish()
}

/// Returns the page of a request without the token. It gives nothing away, not even the style.
pub(crate) fn login(text: &str) -> String {
    let mut html = Html::default();
    html.doctype();
    html.open("html", &[("lang", "en")]);
    html.open("head", &[]);
    html.meta();
    html.element("title", &[], "Token needed");
    html.close("head");
    html.open("body", &[]);
    html.element("h1", &[], "Token needed");
    html.element("p", &[], text);
    html.open("form", &[("method", "get"), ("action", "/")]);
    html.open("label", &[]);
    html.text("Token ");
    let field = [
        ("type", "password"),
        ("name", "token"),
        ("autocomplete", "current-password"),
    ];
    html.void("input", &field);
    html.close("label");
    html.text(" ");
    html.element("button", &[], "open");
    html.close("form");
    html.close("body");
    html.finish()
}

#[cfg(test)]
mod tests;
