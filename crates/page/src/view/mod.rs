//! What the page shows, in words: one value for the page and for the script that keeps it up to date.
//!
//! Colours are only hints: what a [`Tone`] says, words beside it say too.

mod fleet;
mod graph;
mod job;
mod others;
mod server;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ropeway_live::format;
use ropeway_live::model::{self, Snapshot};
use serde::Serialize;

pub(crate) use self::graph::{Graph, HEIGHT, WIDTH};

/// Most operations by kind that are shown.
const KINDS_SHOWN: usize = 12;

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The process: another value means another one.
    pub(crate) run: String,
    /// For the tab of the browser.
    pub(crate) title: String,
    /// What it is.
    pub(crate) heading: String,
    /// When these figures were taken, for people.
    pub(crate) taken: String,
    /// User, memory and the like.
    pub(crate) facts: Vec<String>,
    /// The command line.
    pub(crate) command: String,
    pub(crate) notes: Vec<Note>,
    pub(crate) actions: Vec<Action>,
    pub(crate) sections: Vec<Section>,
}

/// A job, a server, a mount …
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Section {
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) what: String,
    pub(crate) state: Note,
    pub(crate) notes: Vec<Note>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) tiles: Vec<Tile>,
    pub(crate) graphs: Vec<Graph>,
    pub(crate) actions: Vec<Action>,
    pub(crate) tables: Vec<Table>,
    pub(crate) messages: Vec<Said>,
}

/// A hint of colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
    Read,
    Sent,
    Durable,
    Operations,
}

/// A line of text.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Note {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// A share of a whole.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// 0 to 1.
    pub(crate) share: f64,
    pub(crate) percent: String,
    pub(crate) value: String,
    pub(crate) tone: Tone,
}

/// A figure with its name.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tile {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Something to do, by a form.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Action {
    pub(crate) key: String,
    pub(crate) label: String,
    /// Hidden fields of the form.
    pub(crate) fields: Vec<(String, String)>,
    /// What is asked first; empty: nothing.
    pub(crate) question: String,
    /// Name of a field to fill in; empty: there is none.
    pub(crate) input: String,
    /// What to write into it.
    pub(crate) hint: String,
    pub(crate) tone: Tone,
}

/// Rows under a heading.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) is_number: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) cells: Vec<String>,
    pub(crate) actions: Vec<Action>,
}

/// A message.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Said {
    pub(crate) at: String,
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl View {
    /// Puts a snapshot into words.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let process = &snapshot.process;
        let mut view = Self {
            run: format!("{}-{}", process.pid, process.started),
            title: title(snapshot),
            heading: format!("ropeway {}", process.command),
            taken: clock(snapshot.taken),
            facts: facts(snapshot),
            command: process.arguments.join(" "),
            ..Self::default()
        };
        if process.stopping {
            view.notes.push(warning("It is stopping."));
        } else {
            view.actions.push(Action {
                label: "stop this process".to_owned(),
                question: format!(
                    "Stop this {}, as Ctrl-C does? What is under way is finished first.",
                    process.command
                ),
                tone: Tone::Bad,
                ..action("cancel", &[])
            });
        }
        view.sections.extend(snapshot.jobs.iter().map(job::section));
        view.sections.extend(snapshot.fleets.iter().map(fleet::section));
        view.sections.extend(snapshot.servers.iter().map(server::section));
        view.sections.extend(snapshot.mounts.iter().map(others::mount));
        view.sections.extend(snapshot.caches.iter().map(others::cache));
        let backlogs = snapshot.backlogs.iter().enumerate();
        view.sections
            .extend(backlogs.map(|(index, backlog)| others::backlog(index, backlog)));
        view
    }

    /// Takes away what can be done.
    pub(crate) fn for_readers(mut self) -> Self {
        self.actions.clear();
        for section in &mut self.sections {
            section.actions.clear();
            let rows = section.tables.iter_mut().flat_map(|table| &mut table.rows);
            rows.for_each(|row| row.actions.clear());
        }
        self
    }
}

/// The most important first: a tab is narrow.
fn title(snapshot: &Snapshot) -> String {
    let of_job = snapshot.jobs.first().and_then(|job| job.share_done());
    let of_fleet = || snapshot.fleets.first().and_then(|fleet| fleet.share_done());
    let done = of_job.or_else(of_fleet);
    let done = done.map_or_else(String::new, |share| format!("{} · ", format::percent(share)));
    format!("{done}{} · ropeway", snapshot.process.command)
}

fn facts(snapshot: &Snapshot) -> Vec<String> {
    let (process, resources) = (&snapshot.process, &snapshot.process.resources);
    let mut facts = vec![format!("process {}", process.pid)];
    if !process.user.is_empty() {
        facts.push(format!("user {}", process.user));
    }
    facts.push(format!(
        "up {}",
        format::seconds(snapshot.taken - process.started)
    ));
    let seconds = resources.cpu_seconds;
    facts.extend(seconds.map(|seconds| format!("processor {}", format::seconds(seconds))));
    let bytes = resources.resident_bytes;
    facts.extend(bytes.map(|bytes| format!("memory {}", format::bytes(bytes))));
    let threads = resources.threads;
    facts.extend(threads.map(|threads| format::counted(threads, "thread", "threads")));
    let dirty = snapshot.dirty_bytes();
    facts.extend((dirty > 0).then(|| format!("not durable yet: {}", format::bytes(dirty))));
    facts.push(format!("version {}", process.program_version));
    facts.extend(snapshot.page_cache.as_ref().map(format::page_cache));
    facts
}

/// Returns the time of day.
fn clock(unix_seconds: f64) -> String {
    let moment = Timestamp::from_second(unix_seconds as i64).unwrap_or_default();
    moment
        .to_zoned(TimeZone::system())
        .strftime("%H:%M:%S")
        .to_string()
}

fn tile(name: &str, value: impl Into<String>) -> Tile {
    Tile {
        name: name.to_owned(),
        value: value.into(),
    }
}

fn note(text: impl Into<String>, tone: Tone) -> Note {
    Note {
        text: text.into(),
        tone,
    }
}

fn warning(text: impl Into<String>) -> Note {
    note(text, Tone::Warning)
}

/// Returns something to do, with the fields of its form.
fn action(what: &str, fields: &[(&str, &str)]) -> Action {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Action {
        key: what.to_owned(),
        fields: [("do", what)].iter().chain(fields).map(owned).collect(),
        ..Action::default()
    }
}

/// Returns columns; a name that begins with `#` is that of numbers.
fn columns(names: &[&str]) -> Vec<Column> {
    let column = |name: &&str| Column {
        name: name.trim_start_matches('#').to_owned(),
        is_number: name.starts_with('#'),
    };
    names.iter().map(column).collect()
}

/// Returns the messages, the newest first.
fn messages(messages: &[model::Message]) -> Vec<Said> {
    let all = messages.iter().rev().map(|message| Said {
        at: clock(message.at),
        text: message.text.clone(),
        tone: match message.is_error {
            true => Tone::Bad,
            false => Tone::Plain,
        },
    });
    all.collect()
}

/// Returns the requests of each kind, the most frequent first.
fn kinds(operations: &model::Operations) -> Option<Table> {
    let row = |(kind, operation): (&str, &model::Operation)| Row {
        key: kind.to_owned(),
        cells: vec![
            kind.to_owned(),
            format::count(operation.count),
            operation
                .mean_ms()
                .map_or("–".to_owned(), |mean| format!("{mean:.2} ms")),
        ],
        ..Row::default()
    };
    let kinds = model::by_frequency(operations).into_iter().take(KINDS_SHOWN);
    let rows: Vec<Row> = kinds.map(row).collect();
    (!rows.is_empty()).then(|| Table {
        key: "kinds".to_owned(),
        title: "Requests by kind".to_owned(),
        columns: columns(&["Kind", "#Count", "#Mean time"]),
        rows,
    })
}

#[cfg(test)]
mod tests;
