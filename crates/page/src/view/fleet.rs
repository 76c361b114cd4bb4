//! A job of a fleet in words.

use ropeway_live::format;
use ropeway_live::model::{Fleet, FleetRates, FleetWorker};

use super::{Bar, Graph, Note, Row, Section, Table, Tile, Tone, columns, note, tile, warning};

/// Returns the section of a job.
pub(super) fn section(fleet: &Fleet) -> Section {
    let history = &fleet.history;
    let mut tables = vec![workers(fleet)];
    tables.extend((fleet.failed > 0).then(|| failures(fleet)));
    Section {
        key: format!("fleet-{}", fleet.id),
        kind: "fleet".to_owned(),
        what: fleet.ends(),
        state: state(fleet),
        notes: notes(fleet),
        bars: bars(fleet),
        tiles: tiles(fleet),
        graphs: vec![
            Graph::bytes("read", &history.read, Tone::Read),
            Graph::bytes("written", &history.written, Tone::Sent),
            Graph::count("files", &history.files),
        ],
        tables,
        ..Section::default()
    }
}

fn state(fleet: &Fleet) -> Note {
    let tone = match fleet.phase.as_str() {
        "complete" => Tone::Good,
        _ => Tone::Plain,
    };
    note(fleet.phase.clone(), tone)
}

fn notes(fleet: &Fleet) -> Vec<Note> {
    let mut notes = Vec::new();
    if fleet.eta.is_none() && fleet.phase != "complete" {
        notes.push(note(format!("time left {}", fleet.left()), Tone::Plain));
    }
    if !fleet.error.is_empty() {
        notes.push(note(
            format!("{}; these are the last figures", fleet.error),
            Tone::Bad,
        ));
    }
    if fleet.failed > 0 {
        let failed = format::counted(fleet.failed, "item failed", "items failed");
        notes.push(note(failed, Tone::Bad));
    }
    let stragglers = fleet.workers.iter().filter(|worker| worker.is_straggler());
    if fleet.phase != "complete" {
        notes.extend(stragglers.map(|worker| warning(format!("{}: {}", worker.name(), worker.condition()))));
    }
    notes
}

fn bars(fleet: &Fleet) -> Vec<Bar> {
    let mut bars = Vec::new();
    if let (Some(share), Some(expected)) = (fleet.share_done(), fleet.files_expected) {
        bars.push(Bar {
            name: "files".to_owned(),
            share,
            percent: format::percent(share),
            value: format!(
                "{} of about {}",
                format::count(fleet.files),
                format::count(expected)
            ),
            tone: Tone::Durable,
        });
    }
    let known = fleet.tasks_done + fleet.tasks_open;
    let share = format::share(fleet.tasks_done, known);
    // Tasks give away further ones: their share is none of the whole while the tree is walked.
    let (percent, more) = match fleet.phase.as_str() {
        "complete" => (format::percent(share), ""),
        _ => (String::new(), "+"),
    };
    bars.push(Bar {
        name: "tasks".to_owned(),
        share,
        percent,
        value: format!(
            "{} of {}{more} · {} claimed",
            format::count(fleet.tasks_done),
            format::count(known),
            format::count(fleet.tasks_claimed)
        ),
        tone: Tone::Sent,
    });
    bars
}

fn tiles(fleet: &Fleet) -> Vec<Tile> {
    let rates = &fleet.rates;
    // A note says why.
    let left = fleet.eta.as_ref().map_or("–".to_owned(), format::eta);
    let mut tiles = vec![
        tile("time left", left),
        tile("workers", format::count(fleet.workers_present)),
        tile("read from the source", format::rate(rates.read)),
        tile("written to the target", format::rate(rates.written)),
        tile("copied", format::rate(rates.copied)),
        tile("files a second", format::per_second(rates.files)),
        tile("files done", format::count(fleet.files)),
        tile("bytes done", format::bytes(fleet.bytes)),
        tile("folders done", format::count(fleet.folders)),
        tile("files copied", format::count(fleet.copied)),
        tile("bytes copied", format::bytes(fleet.copied_bytes)),
    ];
    let counts = [
        ("stragglers", fleet.stragglers),
        ("failed", fleet.failed),
        ("skipped", fleet.skipped),
        ("deleted", fleet.deleted),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    tiles.extend(counts.map(|(name, count)| tile(name, format::count(count))));
    tiles
}

fn workers(fleet: &Fleet) -> Table {
    let shown = fleet.workers.len() as u64;
    let title = match fleet.workers_total {
        0 => "Workers: none yet".to_owned(),
        total if total > shown => format!("Workers: {shown} of {}", format::count(total)),
        _ => "Workers".to_owned(),
    };
    Table {
        key: "workers".to_owned(),
        title,
        columns: columns(&[
            "Worker", "State", "#Files/s", "#Read", "#Written", "#Copied", "Task",
        ]),
        rows: fleet.workers.iter().map(worker).collect(),
    }
}

fn worker(worker: &FleetWorker) -> Row {
    let rate = |of: fn(&FleetRates) -> String| worker.rates.as_ref().map_or("–".to_owned(), of);
    Row {
        key: worker.id.clone(),
        cells: vec![
            worker.name(),
            worker.condition(),
            rate(|rates| format::per_second(rates.files)),
            rate(|rates| format::rate(rates.read)),
            rate(|rates| format::rate(rates.written)),
            format::bytes(worker.bytes),
            worker.task.clone().unwrap_or_else(|| "–".to_owned()),
        ],
        ..Row::default()
    }
}

fn failures(fleet: &Fleet) -> Table {
    let shown = fleet.failures.len() as u64;
    let title = match fleet.failed > shown {
        true => format!(
            "Failed: the first {shown} of {}; `ropeway fleet status {} --failures` lists all",
            format::count(fleet.failed),
            fleet.target
        ),
        false => "Failed".to_owned(),
    };
    let row = |(number, failure): (usize, &ropeway_live::model::FleetFailure)| Row {
        key: number.to_string(),
        cells: vec![failure.path.clone(), failure.message.clone()],
        ..Row::default()
    };
    Table {
        key: "failures".to_owned(),
        title,
        columns: columns(&["Path", "Reason"]),
        rows: fleet.failures.iter().enumerate().map(row).collect(),
    }
}
