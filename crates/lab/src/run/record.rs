//! The document while it grows: changed under one lock and written after each change, so that it is
//! complete however the lab ends.

use std::fmt::Debug;
use std::path::PathBuf;

use parking_lot::{Mutex, MutexGuard};

use super::machine::now;
use super::plan::mark_discarded;
use crate::report::{
    CellKey, Document, FileError, FloorTime, Outcome, Run, Setting, Warning, WorkSummary, save,
};
use crate::scenario::Client;

/// Processors kept busy by unrelated processes above which a figure is doubted.
const OTHERS_MAX: f64 = 0.25;
/// Settings that may differ when a lab continues.
const MAY_DIFFER: [&str; 2] = ["budget", "side by side"];

/// The document and its file.
#[derive(Debug)]
pub(super) struct Recorder {
    document: Mutex<Document>,
    path: PathBuf,
}

impl Recorder {
    pub(super) fn new(document: Document, path: PathBuf) -> Self {
        Self {
            document: Mutex::new(document),
            path,
        }
    }

    /// Locks the document for reading.
    pub(super) fn read(&self) -> MutexGuard<'_, Document> {
        self.document.lock()
    }

    /// Changes the document and writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Document) -> R) -> Result<R, FileError> {
        let mut document = self.read();
        let result = change(&mut document);
        document.updated = now();
        save(&document, &self.path)?;
        Ok(result)
    }

    /// Returns the runs of a cell so far.
    pub(super) fn runs(&self, key: &CellKey) -> Vec<Run> {
        self.read().runs(key).to_vec()
    }

    /// Returns the document.
    pub(super) fn into_document(self) -> Document {
        self.document.into_inner()
    }
}

/// Adds a run to an existing cell, and warnings if the run is doubtful.
pub(crate) fn add_run(document: &mut Document, key: &CellKey, run: Run) {
    let Some(at) = document.cells.iter().position(|cell| cell.key == *key) else {
        return;
    };
    let number = document.cells[at].runs.len() + 1;
    if let Some(busy) = run.others_busy.filter(|busy| *busy > OTHERS_MAX) {
        let text = format!("others kept {busy:.2} processors busy during run {number}");
        warn(document, Some(key), text);
    }
    if let Outcome::Failed(why) | Outcome::TimedOut(why) = &run.outcome {
        warn(document, Some(key), format!("run {number}: {why}"));
    }
    let runs = &mut document.cells[at].runs;
    runs.push(run);
    mark_discarded(runs);
}

/// Sets the targets of second readings: a tenth of the first reading's time.
pub(super) fn judge_second_readings(document: &mut Document) {
    let seconds = |key: &CellKey| document.cell(key)?.seconds();
    let firsts: Vec<_> = document
        .cells
        .iter()
        .map(|cell| {
            let is_second = [Client::MountBoostAgain, Client::MountBoostRestart]
                .iter()
                .any(|client| client.name() == cell.key.client);
            let first = CellKey {
                client: Client::MountBoost.name().to_owned(),
                ..cell.key.clone()
            };
            is_second.then(|| seconds(&first)).flatten()
        })
        .collect();
    for (cell, first) in document.cells.iter_mut().zip(firsts) {
        if let Some(first) = first.filter(|_| cell.floor_seconds.is_some()) {
            cell.target_seconds = Some(first.value / 10.0);
        }
    }
}

/// Keeps a time of bare TCP, in place of an older one.
pub(super) fn add_floor(document: &mut Document, time: FloorTime) {
    let same = |known: &FloorTime| {
        (&known.link, &known.work, &known.direction, known.connections)
            == (&time.link, &time.work, &time.direction, time.connections)
    };
    document.floors.retain(|known| !same(known));
    document.floors.push(time);
}

/// Adds a warning unless it exists.
pub(super) fn warn(document: &mut Document, cell: Option<&CellKey>, text: String) {
    let warning = Warning {
        cell: cell.cloned(),
        text,
    };
    if !document.warnings.contains(&warning) {
        document.warnings.push(warning);
    }
}

/// Returns the difference that keeps an existing document from being continued; `None` if it can be.
pub(super) fn difference(old: &Document, new: &Document) -> Option<String> {
    let differ = |what: &str, old: &dyn Debug, new: &dyn Debug| {
        Some(format!("{what} is {old:?} there and {new:?} here"))
    };
    let missing = |what: &str, name: &str| Some(format!("the {what} {name} is not there"));
    if old.lab != new.lab {
        return differ("the lab", &old.lab, &new.lab);
    }
    if old.machine != new.machine {
        return differ("the machine", &old.machine, &new.machine);
    }
    for work in &new.works {
        let Some(known) = old.works.iter().find(|known| known.name == work.name) else {
            return missing("work", &work.name);
        };
        if known != work {
            let shown = |work: &WorkSummary| {
                format!("{} bytes, scale {}, seed {}", work.bytes, work.scale, work.seed)
            };
            return differ(&format!("the work {}", work.name), &shown(known), &shown(work));
        }
    }
    for link in &new.links {
        let Some(known) = old.links.iter().find(|known| known.name == link.name) else {
            return missing("link", &link.name);
        };
        if !known.is_same(link) {
            let what = format!("the link {}", link.name);
            return differ(&what, &known.described, &link.described);
        }
    }
    if let Some((old, new)) = settings_differ(&old.settings, &new.settings) {
        return differ(&new.name, &old.value, &new.value);
    }
    for (name, version) in &new.versions {
        if let Some(known) = old.versions.get(name).filter(|known| *known != version) {
            return differ(name, known, version);
        }
    }
    None
}

/// Returns the first setting that must not differ and does: the old and the new one.
fn settings_differ<'a>(old: &'a [Setting], new: &'a [Setting]) -> Option<(&'a Setting, &'a Setting)> {
    let pair = |setting: &'a Setting| Some((old.iter().find(|known| known.name == setting.name)?, setting));
    new.iter()
        .filter(|setting| !MAY_DIFFER.contains(&setting.name.as_str()))
        .filter_map(pair)
        .find(|(old, new)| old.value != new.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;

    fn key(client: &str) -> CellKey {
        CellKey::new(["l", "w", "read", client, "smbd"])
    }

    fn empty(client: &str) -> Cell {
        Cell {
            key: key(client),
            ..Cell::default()
        }
    }

    #[test]
    fn cells_keep_the_order_of_the_plan() {
        let order = ["a", "b", "c"].map(key);
        let mut document = Document::default();
        for client in ["c", "a", "b", "a"] {
            document.cell_or_add(empty(client), &order).payload_bytes += 1;
        }
        let found: Vec<_> = document
            .cells
            .iter()
            .map(|cell| cell.key.client.as_str())
            .collect();
        assert_eq!(found, ["a", "b", "c"]);
        assert_eq!(document.cells[0].payload_bytes, 2);
    }

    #[test]
    fn doubtful_runs_get_warnings() {
        let mut document = Document {
            cells: vec![empty("a")],
            ..Document::default()
        };
        let run = |others: f64, outcome: Outcome| Run {
            others_busy: Some(others),
            outcome,
            ..Run::default()
        };
        for run in [
            run(0.1, Outcome::Done),
            run(0.9, Outcome::Done),
            run(0.1, Outcome::Failed("why".to_owned())),
        ] {
            add_run(&mut document, &key("a"), run);
        }
        add_run(&mut document, &key("b"), run(0.9, Outcome::Done));
        let texts: Vec<&str> = document
            .warnings
            .iter()
            .map(|warning| warning.text.as_str())
            .collect();
        assert_eq!(
            texts,
            ["others kept 0.90 processors busy during run 2", "run 3: why"]
        );
        let discarded: Vec<bool> = document.cells[0].runs.iter().map(|run| run.discarded).collect();
        assert_eq!(discarded, [true, false, false]);
    }

    #[test]
    fn a_second_reading_is_judged_by_the_first() {
        let cell = |client: Client, seconds: &[f64]| Cell {
            floor_seconds: Some(9.0),
            judges_transfer: true,
            runs: seconds
                .iter()
                .map(|seconds| Run {
                    transfer_seconds: Some(*seconds),
                    ..Run::default()
                })
                .collect(),
            ..empty(client.name())
        };
        let mut document = Document {
            cells: vec![
                cell(Client::MountBoost, &[10.0, 20.0, 30.0]),
                cell(Client::MountBoostAgain, &[]),
                cell(Client::MountBoostRestart, &[3.0]),
                cell(Client::RcloneMountAgain, &[1.0]),
            ],
            ..Document::default()
        };
        judge_second_readings(&mut document);
        let targets: Vec<_> = document.cells.iter().map(|cell| cell.target_seconds).collect();
        assert_eq!(targets, [None, Some(2.0), Some(2.0), None]);
        // Another link's first reading says nothing.
        document.cells[0].key.link = "other".to_owned();
        document.cells[1].target_seconds = None;
        judge_second_readings(&mut document);
        assert_eq!(document.cells[1].target_seconds, None);
    }

    #[test]
    fn a_lab_continues_only_with_its_settings() {
        let mut old = Document {
            lab: "x".to_owned(),
            ..Document::default()
        };
        old.settings = Setting::list([("runs", "3"), ("budget", "3")]);
        old.versions.insert("rclone".to_owned(), "1".to_owned());
        old.works.push(WorkSummary {
            name: "w".to_owned(),
            ..WorkSummary::default()
        });
        let differs = |change: &dyn Fn(&mut Document)| {
            let mut new = old.clone();
            change(&mut new);
            difference(&old, &new)
        };
        assert_eq!(differs(&|_| {}), None);
        assert_eq!(differs(&|new| new.settings[1].value = "9".to_owned()), None);
        assert_eq!(differs(&|new| new.works.clear()), None, "less to do");
        let named = |found: Option<String>, word: &str| {
            let found = found.unwrap();
            assert!(found.contains(word), "{found}");
        };
        named(differs(&|new| new.lab = "y".to_owned()), "the lab");
        named(
            differs(&|new| new.settings[0].value = "4".to_owned()),
            "runs is \"3\" there and \"4\" here",
        );
        named(differs(&|new| new.works[0].scale = 0.5), "scale 0.5");
        named(differs(&|new| new.machine.kernel = "7".to_owned()), "the machine");
        named(
            differs(&|new| _ = new.versions.insert("rclone".to_owned(), "2".to_owned())),
            "rclone",
        );
    }
}
