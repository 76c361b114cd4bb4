//! A copy, a mirror or a comparison in words.

use ropeway_live::format;
use ropeway_live::model::Job;

use super::{Action, Bar, Graph, Note, Section, Tile, Tone, action, messages, note, tile, warning};

/// Returns the section of a job.
pub(super) fn section(job: &Job) -> Section {
    let is_check = job.kind == "check";
    Section {
        key: format!("job-{}", job.id),
        kind: job.kind.clone(),
        what: job.ends(),
        state: state(job),
        notes: notes(job),
        bars: if is_check { Vec::new() } else { bars(job) },
        tiles: tiles(job, is_check),
        graphs: graphs(job, is_check),
        actions: actions(job),
        tables: Vec::new(),
        messages: messages(&job.messages),
    }
}

fn state(job: &Job) -> Note {
    let tone = match job.state() {
        "PAUSED" | "stopping" => Tone::Warning,
        "done" => Tone::Good,
        _ => Tone::Plain,
    };
    note(job.state(), tone)
}

fn notes(job: &Job) -> Vec<Note> {
    let mut notes = Vec::new();
    if job.errors > 0 {
        let errors = format::counted(job.errors, "item failed", "items failed");
        notes.push(note(errors, Tone::Bad));
    }
    if job.differences > 0 {
        let found = format::counted(job.differences, "difference", "differences");
        notes.push(warning(format!("{found} found")));
    }
    match (job.bwlimit.is_empty(), job.bwlimit_bytes_per_s) {
        (true, _) => {}
        (false, Some(rate)) => notes.push(note(
            format!(
                "limited to {} (--bwlimit {})",
                format::rate(rate as f64),
                job.bwlimit
            ),
            Tone::Plain,
        )),
        (false, None) => notes.push(note(
            format!("--bwlimit {}: no limit now", job.bwlimit),
            Tone::Plain,
        )),
    }
    notes
}

/// The three counters.
fn bars(job: &Job) -> Vec<Bar> {
    let counters = &job.counters;
    let more = if counters.totals_final { "" } else { "+" };
    let whole = format!("{}{more}", format::bytes(counters.bytes_total));
    let rows = [
        ("read", counters.bytes_read, job.rates.read, Tone::Read),
        ("sent", counters.bytes_sent, job.rates.written, Tone::Sent),
        (
            "durable",
            counters.bytes_durable,
            job.rates.durable,
            Tone::Durable,
        ),
    ];
    let bar = |(name, bytes, rate, tone): (&str, u64, f64, Tone)| {
        let share = format::share(bytes, counters.bytes_total);
        Bar {
            name: name.to_owned(),
            share,
            percent: format::percent(share),
            value: format!("{} of {whole} · {}", format::bytes(bytes), format::rate(rate)),
            tone,
        }
    };
    rows.into_iter().map(bar).collect()
}

fn tiles(job: &Job, is_check: bool) -> Vec<Tile> {
    let counters = &job.counters;
    let mut tiles = Vec::new();
    if is_check {
        tiles.push(tile("compared", format::count(counters.files_done)));
        tiles.push(tile("bytes compared", format::bytes(counters.bytes_done)));
        tiles.push(tile("differences", format::count(job.differences)));
        tiles.push(tile("a second", format::per_second(job.rates.files)));
    } else {
        let more = if counters.totals_final { "" } else { "+" };
        let left = match (&job.eta, job.paused) {
            (Some(eta), false) => format::eta(eta),
            _ => "–".to_owned(),
        };
        tiles.push(tile("time left", left));
        let limit = job.limit.filter(|_| !job.paused);
        tiles.push(tile("limited by", limit.map_or("–", format::limit)));
        let (done, total) = (counters.files_done, counters.files_total);
        let files = format!("{} of {}{more}", format::count(done), format::count(total));
        tiles.push(tile("files", files));
        tiles.push(tile("files a second", format::per_second(job.rates.files)));
    }
    tiles.push(tile("running for", format::seconds(job.seconds)));
    tiles.extend(
        job.special_counts()
            .map(|(name, count)| tile(name, format::count(count))),
    );
    tiles
}

fn graphs(job: &Job, is_check: bool) -> Vec<Graph> {
    let history = &job.history;
    let operations = Graph::count("operations", &history.operations);
    match is_check {
        true => vec![operations],
        false => vec![
            Graph::bytes("read", &history.read, Tone::Read),
            Graph::bytes("sent", &history.written, Tone::Sent),
            operations,
        ],
    }
}

fn actions(job: &Job) -> Vec<Action> {
    let id = job.id.to_string();
    let mut actions = Vec::new();
    if job.controls.pause {
        let (what, label) = match job.paused {
            true => ("resume", "resume"),
            false => ("pause", "pause"),
        };
        actions.push(Action {
            label: label.to_owned(),
            ..action(what, &[("job", &id)])
        });
    }
    if job.controls.bwlimit {
        actions.push(Action {
            label: "set limit".to_owned(),
            input: "value".to_owned(),
            hint: "20M, or off".to_owned(),
            ..action("bwlimit", &[("job", &id)])
        });
    }
    actions
}
