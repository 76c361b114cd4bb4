//! Texts of all reports: the summary, missed targets, warnings, and the figures of a cell.

use std::collections::HashSet;

use super::model::{Cell, CellKey, Document, LinkSummary, Warning};
use super::numbers;
use super::view::{Miss, Row, Verdict, View, failure, floor_factor, spread_mark, verdict};

/// Largest number of sentences of one kind.
pub(super) const LINES_MAX: usize = 200;

/// Formats a cell as `17.1~ 1.02× ✓`, or names its failure.
pub(super) fn cell(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else {
        return "–".to_owned();
    };
    let Some(median) = cell.seconds() else {
        return format!("{}{}", failure(cell).0, mark(cell));
    };
    let spread = spread_mark(&median).unwrap_or_default();
    let factor = floor_factor(cell).map_or(String::new(), |factor| format!(" {}", numbers::factor(factor)));
    format!("{}{spread}{factor}{}", numbers::number(median.value), mark(cell))
}

fn mark(cell: &Cell) -> &'static str {
    match verdict(cell) {
        Verdict::Reached => " ✓",
        Verdict::Missed => " ✗",
        Verdict::NoTarget => "",
    }
}

/// Formats the best and the worst published seconds as `5 – 95`.
pub(super) fn published(row: &Row<'_>) -> String {
    match (row.published.first(), row.published.last()) {
        (Some(best), Some(worst)) if row.published.len() > 1 => {
            format!("{} – {}", exact(best.seconds), exact(worst.seconds))
        }
        (Some(only), _) => exact(only.seconds),
        _ => "–".to_owned(),
    }
}

/// Formats published seconds with as many digits as were printed.
pub(super) fn exact(seconds: f64) -> String {
    if seconds.fract() == 0.0 && (0.0..1e9).contains(&seconds) {
        // An integer within the bounds of the line above.
        numbers::count(seconds as u64)
    } else {
        numbers::number(seconds)
    }
}

/// Formats a figure, or a dash.
pub(super) fn known(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "–".to_owned(), numbers::number)
}

/// Meaning of the marks.
pub(super) const MARKS: &str = "Seconds are medians, of the transfer where it is known; × (times the floor, bare TCP on \
    this link) and targets are of the whole process, except for mounts. ✓ target reached, ✗ missed; ~ the runs differ by 5 % or more, ≈ by \
    20 % or more, ¹ one run.";

/// Returns the summary in sentences.
pub(super) fn summary(view: &View<'_>) -> Vec<String> {
    let doc = view.doc;
    let mut sentences = vec![what(view)];
    let (reached, targets) = view.reached();
    if targets > 0 {
        let all = numbers::counted(targets, "target", "targets");
        sentences.push(match reached == targets {
            true => format!("All {all} were reached."),
            false => format!("{reached} of {all} were reached."),
        });
    }
    if let Some(factor) = view.our_factor() {
        sentences.push(format!(
            "ropeway took {} the time of bare TCP (the median; from {} to {}).",
            numbers::factor(factor.value),
            numbers::factor(factor.least),
            numbers::factor(factor.most)
        ));
    }
    let (better, both) = view.compared_with_published();
    if both > 0 {
        sentences.push(format!(
            "ropeway was as fast as the best published figure or faster in {better} of {both}."
        ));
    }
    let failed = doc.cells.iter().filter(|cell| cell.seconds().is_none()).count();
    if failed > 0 {
        let cells = numbers::counted(failed, "cell has", "cells have");
        sentences.push(format!("{cells} no run that counts."));
    }
    let unproven = doc
        .links
        .iter()
        .filter(|link| link.proof.as_ref().is_some_and(|proof| !proof.holds))
        .count();
    if unproven > 0 {
        sentences.push(format!(
            "{} not match the settings.",
            numbers::counted(unproven, "link did", "links did")
        ));
    }
    if !doc.complete {
        sentences.push("The lab is not complete: it still runs, or was stopped.".to_owned());
    }
    sentences
}

fn what(view: &View<'_>) -> String {
    let doc = view.doc;
    let runs: usize = doc.cells.iter().map(|cell| cell.runs.len()).sum();
    let counted = numbers::counted;
    if doc.cells.is_empty() {
        return format!(
            "{}.",
            counted(doc.curves.len(), "curve was measured", "curves were measured")
        );
    }
    format!(
        "{} ({}) of {} over {}, {}.",
        counted(doc.cells.len(), "cell was measured", "cells were measured"),
        counted(runs, "run", "runs"),
        counted(doc.works.len(), "work", "works"),
        counted(doc.links.len(), "link", "links"),
        counted(view.columns.len(), "client and server", "clients and servers"),
    )
}

/// Returns a sentence for each item; beyond [`LINES_MAX`] only their number.
fn limited<T>(items: &[T], sentence: impl Fn(&T) -> String) -> Vec<String> {
    let mut sentences: Vec<String> = items.iter().take(LINES_MAX).map(sentence).collect();
    let more = items.len() - sentences.len();
    sentences.extend((more > 0).then(|| format!("and {more} more")));
    sentences
}

/// Returns all missed targets with their known causes.
pub(super) fn missed(view: &View<'_>) -> Vec<String> {
    limited(&view.missed(), |miss| one_missed(view.doc, miss))
}

fn one_missed(doc: &Document, miss: &Miss<'_>) -> String {
    let target = numbers::seconds(miss.target);
    let figures = match miss.seconds {
        Some(seconds) => format!(
            "{} for a target of {target} ({})",
            numbers::seconds(seconds),
            numbers::change(seconds / miss.target - 1.0)
        ),
        None => {
            let (word, reason) = failure(miss.cell);
            let word = if word == "–" { "no run counts" } else { word };
            match reason {
                "" => format!("{word}, target {target}"),
                reason => format!("{word} ({reason}), target {target}"),
            }
        }
    };
    let causes = doc
        .warnings
        .iter()
        .filter(|warning| warning.cell.as_ref() == Some(&miss.cell.key));
    let causes: Vec<String> = causes
        .take(3)
        .map(|warning| numbers::capital(&warning.text))
        .collect();
    let cause = if causes.is_empty() {
        String::new()
    } else {
        format!(". {}", causes.join(" "))
    };
    numbers::clean(
        &format!("{}: {figures}{cause}", named(miss.cell)),
        numbers::TEXT_MAX,
    )
}

/// Names a cell: `OC3, file100mb, read, ropeway → smbd`.
pub(super) fn named(cell: &Cell) -> String {
    numbers::clean(&cell.key.to_string(), 2 * numbers::NAME_MAX)
}

/// Returns the warnings, without those that are causes of missed targets.
pub(super) fn warnings(view: &View<'_>) -> Vec<String> {
    let missed: HashSet<&CellKey> = view.missed().iter().map(|miss| &miss.cell.key).collect();
    let is_cause = |warning: &&Warning| warning.cell.as_ref().is_some_and(|key| missed.contains(key));
    let others = view.doc.warnings.iter().filter(|warning| !is_cause(warning));
    limited(&others.collect::<Vec<_>>(), |warning| {
        let cell = warning.cell.as_ref().map(|key| format!("{key}: "));
        let text = format!("{}{}", cell.unwrap_or_default(), warning.text);
        numbers::clean(&text, numbers::TEXT_MAX)
    })
}

/// Returns the clients and servers that were left out, with the reasons.
pub(super) fn skipped(doc: &Document) -> Vec<String> {
    let skipped = doc.skipped.iter().take(LINES_MAX);
    skipped
        .map(|(name, reason)| {
            format!(
                "{}: {}",
                numbers::name(name),
                numbers::clean(reason, 2 * numbers::NAME_MAX)
            )
        })
        .collect()
}

/// Heads and rows of a table; the first column names the rows.
pub(super) type Table = (Vec<&'static str>, Vec<Vec<String>>);

/// Returns the table of the links with the measurements of their emulator. `at` is the column that
/// says whether a link was proved.
pub(super) fn links(doc: &Document, at: usize) -> Table {
    let mut heads = vec!["link", "set", "round trip", "up", "down", "loss"];
    heads.insert(at, "proof");
    let rows = doc.links.iter().take(LINES_MAX).map(|link| {
        let mut row = proof(link).to_vec();
        row.insert(at, proved(link).to_owned());
        row
    });
    (heads, rows.collect())
}

/// Returns the versions by program.
pub(super) fn versions(doc: &Document) -> impl Iterator<Item = [String; 2]> {
    let versions = doc.versions.iter().take(LINES_MAX);
    versions.map(|(name, value)| [name, value].map(|text| numbers::name(text)))
}

/// Returns the settings by name.
pub(super) fn settings(doc: &Document) -> impl Iterator<Item = [String; 2]> {
    let settings = doc.settings.iter().take(LINES_MAX);
    settings.map(|setting| [&setting.name, &setting.value].map(|text| numbers::name(text)))
}

/// Returns a link with the measurements of its emulator.
fn proof(link: &LinkSummary) -> [String; 6] {
    let rate = |set: Option<u64>, found: f64| {
        let error = set.map_or(String::new(), |set| {
            format!(" ({})", numbers::change(found / set as f64 - 1.0))
        });
        format!("{}{error}", numbers::bits(found))
    };
    let mut shown = [
        numbers::name(&link.name),
        numbers::clean(&link.described, 2 * numbers::NAME_MAX),
        "–".to_owned(),
        "–".to_owned(),
        "–".to_owned(),
        "–".to_owned(),
    ];
    if let Some(proof) = &link.proof {
        let error = if link.rtt_ms > 0.0 {
            format!(" ({})", numbers::change(proof.rtt_ms / link.rtt_ms - 1.0))
        } else {
            String::new()
        };
        shown[2] = format!("{} ms{error}", numbers::number(proof.rtt_ms));
        shown[3] = rate(link.up_bps, proof.up_bps);
        shown[4] = rate(link.down_bps, proof.down_bps);
        shown[5] = numbers::percent(proof.loss);
    }
    shown
}

/// Returns whether a link was proved.
pub(super) fn proved(link: &LinkSummary) -> &'static str {
    match &link.proof {
        Some(proof) if proof.holds => "✓ holds",
        Some(_) => "✗ out of bounds",
        None => "not measured",
    }
}

/// Returns the facts about the machine with their names.
pub(super) fn machine(doc: &Document) -> [[String; 2]; 5] {
    let machine = &doc.machine;
    let or = |text: &str| {
        if text.is_empty() {
            "not known".to_owned()
        } else {
            numbers::name(text)
        }
    };
    [
        ("System", or(&machine.system)),
        ("Kernel", or(&machine.kernel)),
        ("Processor", or(&machine.processor)),
        ("Processors", numbers::count(machine.processors.into())),
        ("Memory", numbers::binary(machine.memory_bytes as f64)),
    ]
    .map(|(name, value)| [name.to_owned(), value])
}

/// Largest number of cells with CPU and memory.
const COSTS_MAX: usize = 1_000;

/// Returns the table of the costs of the cells.
pub(super) fn costs(doc: &Document) -> Table {
    let heads =
        "cell|whole s|transfer s|durable s|client CPU s|server CPU s|client memory|server memory|runs";
    let mut heads: Vec<&str> = heads.split('|').collect();
    let is_counted = |cell: &Cell| cell.runs.iter().any(|run| run.round_trips.is_some());
    let has_trips = doc.cells.iter().any(is_counted);
    if has_trips {
        heads.push("round trips");
    }
    let cells = doc.cells.iter().take(COSTS_MAX);
    let rows = cells.map(|cell| {
        let mut row = [vec![named(cell)], cost(cell).to_vec()].concat();
        if has_trips {
            let trips = cell.median(|run| run.round_trips);
            row.push(known(trips.map(|median| median.value)));
        }
        row
    });
    (heads, rows.collect())
}

/// Returns the costs of a cell: medians.
fn cost(cell: &Cell) -> [String; 8] {
    let seconds = |of: &dyn Fn(&super::Run) -> Option<f64>| known(cell.median(of).map(|median| median.value));
    let memory = |of: &dyn Fn(&super::Run) -> Option<u64>| {
        let median = cell.median(|run| of(run).map(|bytes| bytes as f64));
        median.map_or_else(|| "–".to_owned(), |median| numbers::binary(median.value))
    };
    let counted = cell.counted().count();
    [
        seconds(&|run| Some(run.whole_seconds)),
        seconds(&|run| run.transfer_seconds),
        seconds(&|run| run.durable_seconds),
        seconds(&|run| run.client_cpu_seconds),
        seconds(&|run| run.server_cpu_seconds),
        memory(&|run| run.client_memory_bytes),
        memory(&|run| run.server_memory_bytes),
        format!("{counted} of {}", cell.runs.len()),
    ]
}
