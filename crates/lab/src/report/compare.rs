//! Compares two documents: their conditions, and the cells that changed by more than their noise.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use serde::Serialize;

use super::model::{Cell, CellKey, Document, LinkSummary, Median, WorkSummary};
use super::numbers;
use super::text;

/// Least change that counts, however small the spread is (a guess from repeated labs).
const NOISE: f64 = 0.02;
/// Least change that counts where a side has only one run and so no spread (a guess).
const NOISE_OF_ONE: f64 = 0.05;
/// Largest number of lines of one kind in the text.
const LINES_MAX: usize = 2_000;

/// Changes from one document to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Conditions that differ.
    pub conditions: Vec<Difference>,
    /// Cells of both, in the order of the first.
    pub cells: Vec<CellChange>,
    /// Cells that only the first has.
    pub only_before: Vec<CellKey>,
    /// Cells that only the second has.
    pub only_after: Vec<CellKey>,
}

/// A condition that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name: `machine kernel`, `version of smbd`, `setting Repeats`, `link OC3`.
    pub what: String,
    /// Value in the first document, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Value in the second document, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A cell of both documents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellChange {
    /// Key.
    pub key: CellKey,
    /// Seconds in the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Median>,
    /// Seconds in the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Median>,
    /// The second median divided by the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Verdict.
    pub change: Change,
}

/// Verdict on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The difference is within the noise.
    Same,
    /// Less time than before, by more than the noise.
    Faster,
    /// More time than before, by more than the noise.
    Slower,
    /// It had a counted run before, and has none now.
    Broken,
    /// It had no counted run before, and has one now.
    Mended,
    /// Neither document has a counted run.
    Unmeasured,
    /// The numbers of bytes or files differ.
    Incomparable,
}

impl Change {
    /// Returns the verdict as a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
            Self::Broken => "BROKEN",
            Self::Mended => "mended",
            Self::Unmeasured => "not measured",
            Self::Incomparable => "other work",
        }
    }
}

impl Comparison {
    /// Whether a cell became slower beyond the noise, or lost its counted runs.
    pub fn is_worse(&self) -> bool {
        self.cells
            .iter()
            .any(|cell| matches!(cell.change, Change::Slower | Change::Broken))
    }

    /// Formats the comparison: conditions first, then cell by cell.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if self.conditions.is_empty() {
            text.push_str("Measured with the same machine, versions and settings.\n");
        } else {
            text.push_str("Measured with other conditions:\n");
        }
        let shown = |value: &Option<String>| value.as_deref().map_or("–".to_owned(), numbers::name);
        for condition in self.conditions.iter().take(LINES_MAX) {
            let (before, after) = (shown(&condition.before), shown(&condition.after));
            _ = writeln!(text, "  {}: {before} -> {after}", numbers::name(&condition.what));
        }
        more(&mut text, self.conditions.len());
        text.push('\n');
        let rows: Vec<[String; 5]> = self.cells.iter().take(LINES_MAX).map(row).collect();
        let names = rows
            .iter()
            .map(|row| row[0].chars().count())
            .max()
            .unwrap_or(0)
            .max(4);
        if !rows.is_empty() {
            _ = writeln!(
                text,
                "{:<names$}  {:>9}  {:>9}  {:>7}",
                "cell", "before s", "after s", "ratio"
            );
        }
        for [name, before, after, ratio, change] in &rows {
            _ = writeln!(
                text,
                "{name:<names$}  {before:>9}  {after:>9}  {ratio:>7}  {change}"
            );
        }
        more(&mut text, self.cells.len());
        for (head, keys) in [
            ("Only before:", &self.only_before),
            ("Only after:", &self.only_after),
        ] {
            if !keys.is_empty() {
                _ = writeln!(text, "\n{head}");
            }
            for key in keys.iter().take(LINES_MAX) {
                _ = writeln!(text, "  {}", named(key));
            }
            more(&mut text, keys.len());
        }
        _ = writeln!(text, "\n{}", self.summary());
        text
    }

    /// Summarises the comparison in one sentence.
    pub fn summary(&self) -> String {
        let of = |wanted: Change| self.cells.iter().filter(|cell| cell.change == wanted).count();
        let mut counts = Vec::new();
        for change in [
            Change::Slower,
            Change::Broken,
            Change::Faster,
            Change::Mended,
            Change::Same,
            Change::Unmeasured,
            Change::Incomparable,
        ] {
            if of(change) > 0 {
                counts.push(format!("{} {}", of(change), change.word().to_lowercase()));
            }
        }
        if counts.is_empty() {
            return "No cell is in both.".to_owned();
        }
        format!(
            "{}: {}.",
            numbers::counted(self.cells.len(), "cell", "cells"),
            counts.join(", ")
        )
    }
}

fn more(text: &mut String, number: usize) {
    if number > LINES_MAX {
        _ = writeln!(text, "  and {} more", number - LINES_MAX);
    }
}

fn row(cell: &CellChange) -> [String; 5] {
    let seconds =
        |median: &Option<Median>| median.map_or("–".to_owned(), |median| numbers::number(median.value));
    [
        named(&cell.key),
        seconds(&cell.before),
        seconds(&cell.after),
        cell.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.3}")),
        cell.change.word().to_owned(),
    ]
}

fn named(key: &CellKey) -> String {
    numbers::name(&key.to_string())
}

/// Compares two documents.
pub fn compare(before: &Document, after: &Document) -> Comparison {
    let old: HashMap<&CellKey, &Cell> = before.cells.iter().map(|cell| (&cell.key, cell)).collect();
    let new: HashMap<&CellKey, &Cell> = after.cells.iter().map(|cell| (&cell.key, cell)).collect();
    let both = before
        .cells
        .iter()
        .filter_map(|cell| Some((cell, *new.get(&cell.key)?)));
    let without = |cells: &[Cell], others: &HashMap<&CellKey, &Cell>| {
        let lone = cells.iter().filter(|cell| !others.contains_key(&cell.key));
        lone.map(|cell| cell.key.clone()).collect()
    };
    Comparison {
        conditions: conditions(before, after),
        cells: both.map(|(before, after)| changed(before, after)).collect(),
        only_before: without(&before.cells, &new),
        only_after: without(&after.cells, &old),
    }
}

fn changed(before: &Cell, after: &Cell) -> CellChange {
    // Times of transfers are compared only with each other.
    let (old, new) = if before.knows_transfer() && after.knows_transfer() {
        (before.seconds(), after.seconds())
    } else {
        (before.judged(), after.judged())
    };
    let ratio = old
        .zip(new)
        .map(|(old, new)| new.value / old.value)
        .filter(|ratio| ratio.is_finite());
    let change = if (before.payload_bytes, before.files) == (after.payload_bytes, after.files) {
        judged(old.as_ref(), new.as_ref())
    } else {
        Change::Incomparable
    };
    CellChange {
        key: before.key.clone(),
        before: old,
        after: new,
        ratio,
        change,
    }
}

/// Returns the noise: the larger of both ranges, and at least a share of the first figure.
pub(crate) fn noise(before: &Median, after: &Median) -> f64 {
    let alone = before.number == 1 || after.number == 1;
    let least = before.value.abs() * if alone { NOISE_OF_ONE } else { NOISE };
    (before.most - before.least)
        .max(after.most - after.least)
        .max(least)
}

fn judged(before: Option<&Median>, after: Option<&Median>) -> Change {
    let (before, after) = match (before, after) {
        (Some(before), Some(after)) => (before, after),
        (Some(_), None) => return Change::Broken,
        (None, Some(_)) => return Change::Mended,
        (None, None) => return Change::Unmeasured,
    };
    let difference = after.value - before.value;
    if difference.abs() <= noise(before, after) {
        Change::Same
    } else if difference < 0.0 {
        Change::Faster
    } else {
        Change::Slower
    }
}

fn conditions(before: &Document, after: &Document) -> Vec<Difference> {
    let (old, new) = (conditions_of(before), conditions_of(after));
    let names: BTreeSet<&(u8, String)> = old.keys().chain(new.keys()).collect();
    let differing = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    differing
        .map(|name| Difference {
            what: name.1.clone(),
            before: old.get(name).cloned(),
            after: new.get(name).cloned(),
        })
        .collect()
}

/// Returns all conditions by name, the most important first.
fn conditions_of(doc: &Document) -> BTreeMap<(u8, String), String> {
    let mut found = BTreeMap::new();
    let mut put = |rank: u8, name: String, value: String| _ = found.insert((rank, name), value);
    put(0, "lab".to_owned(), doc.lab.clone());
    put(0, "complete".to_owned(), doc.complete.to_string());
    for [name, value] in text::machine(doc) {
        put(1, format!("machine {}", name.to_lowercase()), value);
    }
    for (name, version) in &doc.versions {
        put(2, format!("version of {name}"), version.clone());
    }
    for setting in &doc.settings {
        put(3, format!("setting {}", setting.name), setting.value.clone());
    }
    for work in &doc.works {
        put(4, format!("work {}", work.name), describe_work(work));
    }
    for link in &doc.links {
        put(5, format!("link {}", link.name), describe_link(link));
    }
    for (name, reason) in &doc.skipped {
        put(6, format!("left out: {name}"), reason.clone());
    }
    found
}

fn describe_work(work: &WorkSummary) -> String {
    format!(
        "{} files, {} bytes, scale {}, seed {}, LZ4 ratio {:.3}",
        work.files, work.bytes, work.scale, work.seed, work.lz4_ratio
    )
}

fn describe_link(link: &LinkSummary) -> String {
    let proof = match &link.proof {
        Some(proof) if proof.holds => "proved",
        Some(_) => "out of bounds",
        None => "not measured",
    };
    let rate = |rate: Option<u64>| rate.map_or("no rate".to_owned(), |rate| numbers::bits(rate as f64));
    format!(
        "{}, {} ms, {} up, {} down, loss {}, {}, {}, {proof}",
        link.kind,
        link.rtt_ms,
        rate(link.up_bps),
        rate(link.down_bps),
        link.loss,
        link.congestion,
        link.described
    )
}
