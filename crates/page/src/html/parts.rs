//! The parts of the page. The script knows them by the names of their classes.

use super::build::Html;
use crate::view::{Action, Bar, Column, Graph, HEIGHT, Note, Row, Said, Section, Table, Tile, Tone, WIDTH};

/// Most columns of a table that fits on a phone.
const SMALL_MAX: usize = 3;

impl Tone {
    /// Returns the class.
    fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
            Self::Read => "read",
            Self::Sent => "sent",
            Self::Durable => "durable",
            Self::Operations => "operations",
        }
    }
}

/// Adds an empty element of each kind, for the script to copy.
pub(super) fn templates(html: &mut Html, form: &str) {
    let mut template = |name: &str, add: &dyn Fn(&mut Html)| {
        html.open("template", &[("id", name)]);
        add(html);
        html.close("template");
    };
    template("section", &|html| section(html, &Section::default(), form));
    template("note", &|html| note(html, "0", &Note::default()));
    template("bar", &|html| bar(html, "0", &Bar::default()));
    template("tile", &|html| tile(html, "0", &Tile::default()));
    template("graph", &|html| graph(html, "0", &Graph::default()));
    template("action", &|html| action(html, &Action::default(), form));
    let with_input = Action {
        input: "value".to_owned(),
        ..Action::default()
    };
    template("action-input", &|html| action(html, &with_input, form));
    template("table", &|html| table(html, &Table::default(), form));
    template("column", &|html| column(html, "0", &Column::default()));
    template("row", &|html| row(html, &Row::default(), &[], form));
    template("cell", &|html| cell(html, "0", "", &Column::default()));
    template("message", &|html| message(html, "0", &Said::default()));
}

/// Adds a job, a server …
pub(super) fn section(html: &mut Html, section: &Section, form: &str) {
    html.open("section", &[("data-key", &section.key)]);
    html.open("div", &[("class", "head")]);
    html.open("h2", &[]);
    html.element("span", &[("class", "kind")], &section.kind);
    html.text(" ");
    html.element("span", &[("class", "what")], &section.what);
    html.close("h2");
    let class = format!("state {}", section.state.tone.class());
    html.element("span", &[("class", &class)], &section.state.text);
    html.close("div");
    notes(html, "", &section.notes);
    list(html, "div", "bars", &section.bars, bar);
    list(html, "dl", "tiles", &section.tiles, tile);
    list(html, "div", "graphs", &section.graphs, graph);
    actions(html, "", &section.actions, form);
    html.open("div", &[("class", "tables")]);
    for one in &section.tables {
        table(html, one, form);
    }
    html.close("div");
    list(html, "ol", "messages", &section.messages, message);
    html.close("section");
}

/// Adds the notes of the page (with an id) or of a section.
pub(super) fn notes(html: &mut Html, id: &str, notes: &[Note]) {
    container(html, "ul", "notes", id);
    for (index, one) in notes.iter().enumerate() {
        note(html, &index.to_string(), one);
    }
    html.close("ul");
}

/// Adds what can be done.
pub(super) fn actions(html: &mut Html, id: &str, actions: &[Action], form: &str) {
    container(html, "div", "actions", id);
    for one in actions {
        action(html, one, form);
    }
    html.close("div");
}

fn container(html: &mut Html, name: &str, class: &str, id: &str) {
    match id {
        "" => html.open(name, &[("class", class)]),
        id => html.open(name, &[("class", class), ("id", id)]),
    }
}

fn list<T>(html: &mut Html, name: &str, class: &str, all: &[T], add: fn(&mut Html, &str, &T)) {
    html.open(name, &[("class", class)]);
    for (index, one) in all.iter().enumerate() {
        add(html, &index.to_string(), one);
    }
    html.close(name);
}

fn note(html: &mut Html, key: &str, note: &Note) {
    html.element(
        "li",
        &[("data-key", key), ("class", note.tone.class())],
        &note.text,
    );
}

fn bar(html: &mut Html, key: &str, bar: &Bar) {
    html.open("div", &[("data-key", key), ("class", bar.tone.class())]);
    html.element("span", &[("class", "name")], &bar.name);
    let share = format!("{:.4}", bar.share);
    let progress = [("max", "1"), ("value", &share), ("aria-label", bar.name.as_str())];
    html.element("progress", &progress, "");
    html.element("span", &[("class", "percent")], &bar.percent);
    html.element("span", &[("class", "value")], &bar.value);
    html.close("div");
}

fn tile(html: &mut Html, key: &str, tile: &Tile) {
    html.open("div", &[("data-key", key)]);
    html.element("dt", &[], &tile.name);
    html.element("dd", &[], &tile.value);
    html.close("div");
}

fn graph(html: &mut Html, key: &str, graph: &Graph) {
    html.open("figure", &[("data-key", key), ("class", graph.tone.class())]);
    html.open("figcaption", &[]);
    html.element("span", &[("class", "name")], &graph.name);
    html.text(" ");
    html.element("b", &[("class", "now")], &graph.now);
    html.text(" ");
    html.element("span", &[("class", "most")], &graph.most);
    html.close("figcaption");
    let size = format!("0 0 {WIDTH} {HEIGHT}");
    let picture = [
        ("viewBox", size.as_str()),
        ("preserveAspectRatio", "none"),
        ("aria-hidden", "true"),
    ];
    html.open("svg", &picture);
    html.element("path", &[("class", "area"), ("d", &graph.area)], "");
    html.element("path", &[("class", "line"), ("d", &graph.line)], "");
    html.close("svg");
    html.open("p", &[("class", "time")]);
    html.element("span", &[("class", "since")], &graph.since);
    html.element("span", &[], "now");
    html.close("p");
    html.close("figure");
}

fn action(html: &mut Html, action: &Action, form: &str) {
    let attributes = [
        ("method", "post"),
        ("action", "/do"),
        ("data-key", action.key.as_str()),
        ("data-question", action.question.as_str()),
    ];
    html.open("form", &attributes);
    html.open("span", &[("class", "fields")]);
    let own = [("form".to_owned(), form.to_owned())];
    let asked = (!action.question.is_empty()).then(|| ("ask".to_owned(), action.question.clone()));
    for (name, value) in own.iter().chain(&action.fields).chain(&asked) {
        html.void("input", &[("type", "hidden"), ("name", name), ("value", value)]);
    }
    html.close("span");
    if !action.input.is_empty() {
        let input = [
            ("type", "text"),
            ("name", action.input.as_str()),
            ("required", ""),
            ("maxlength", "200"),
            ("autocomplete", "off"),
            ("placeholder", action.hint.as_str()),
            ("aria-label", action.label.as_str()),
        ];
        html.void("input", &input);
    }
    html.element("button", &[("class", action.tone.class())], &action.label);
    html.close("form");
}

fn table(html: &mut Html, table: &Table, form: &str) {
    let class = match table.columns.len() <= SMALL_MAX {
        true => "small",
        false => "wide",
    };
    html.open("table", &[("data-key", &table.key), ("class", class)]);
    html.element("caption", &[], &table.title);
    html.open("thead", &[]);
    html.open("tr", &[]);
    for (index, one) in table.columns.iter().enumerate() {
        column(html, &index.to_string(), one);
    }
    html.close("tr");
    html.close("thead");
    html.open("tbody", &[]);
    for one in &table.rows {
        row(html, one, &table.columns, form);
    }
    html.close("tbody");
    html.close("table");
}

fn column(html: &mut Html, key: &str, column: &Column) {
    let class = number(column);
    html.element(
        "th",
        &[("data-key", key), ("class", class), ("scope", "col")],
        &column.name,
    );
}

fn row(html: &mut Html, row: &Row, columns: &[Column], form: &str) {
    html.open("tr", &[("data-key", &row.key)]);
    for (index, (text, column)) in row.cells.iter().zip(columns).enumerate() {
        cell(html, &index.to_string(), text, column);
    }
    // Last, so that a row without it has as many cells as there are columns.
    if !row.actions.is_empty() {
        html.open("td", &[("class", "do")]);
        actions(html, "", &row.actions, form);
        html.close("td");
    }
    html.close("tr");
}

fn cell(html: &mut Html, key: &str, text: &str, column: &Column) {
    let attributes = [
        ("data-key", key),
        ("class", number(column)),
        ("data-name", &column.name),
    ];
    html.open("td", &attributes);
    html.element("span", &[], text);
    html.close("td");
}

fn number(column: &Column) -> &'static str {
    match column.is_number {
        true => "number",
        false => "text",
    }
}

fn message(html: &mut Html, key: &str, said: &Said) {
    html.open("li", &[("data-key", key), ("class", said.tone.class())]);
    html.element("time", &[], &said.at);
    html.text(" ");
    html.element("span", &[("class", "text")], &said.text);
    html.close("li");
}
