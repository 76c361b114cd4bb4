//! What was measured, kept from one call to the next (`target/bench/*.json`): a call that was cut goes on where it
//! was, and the parts of a table may be measured by several calls.
//!
//! A row is forgotten when the machine, the link or the work are others than before; a tool's cell when the tool is
//! another build or is called with other flags.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::floor::FloorSample;
use super::remote_client::{Client, Direction};
use crate::worksets::Content;

/// Of the file; another one is not understood.
const VERSION: u32 = 1;
/// A tool whose first run took longer runs once. As the issue of the table has it.
pub(super) const ONCE_ABOVE: Duration = Duration::from_secs(60);
/// A first run that took longer counts: what warms up takes a fraction of a second, below a hundredth of it.
const COUNTED_ABOVE: Duration = Duration::from_secs(30);

/// All rows of one benchmark.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Store {
    version: u32,
    rows: BTreeMap<String, Record>,
    #[serde(skip)]
    path: PathBuf,
}

/// One row: one work over one way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// Machine, link and work; another value makes what was measured worthless.
    pub(super) conditions: Value,
    /// What there was to copy.
    pub(super) content: Content,
    /// When it was measured.
    pub(super) visits: Vec<Visit>,
    /// Bare TCP over the same way.
    pub(super) floors: Vec<FloorSample>,
    /// Tools, both ways.
    pub(super) cells: Vec<Cell>,
}

/// One call that measured a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Visit {
    /// Seconds since 1970.
    pub(super) at: u64,
    /// The machine, and the day.
    pub(super) machine: String,
    /// A warning if others were at work there.
    pub(super) busy: Option<String>,
}

/// One tool, one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cell {
    /// Which tool.
    pub(super) client: Client,
    /// Which way.
    pub(super) direction: Direction,
    /// Which build.
    pub(super) program: Program,
    /// Whether a run came before that is not among the samples.
    pub(super) warmed: bool,
    /// The counted runs.
    pub(super) samples: Vec<Sample>,
    /// Why there are no more of them.
    pub(super) ending: Option<Ending>,
}

/// A build of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Program {
    /// First line of its `--version`.
    pub(super) version: String,
    /// A hash of the file, since a version is changed more rarely than a program.
    pub(super) build: String,
}

/// One measured run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Until the process ended, in seconds.
    pub(super) seconds: f64,
    /// User and system time of the process.
    pub(super) cpu: f64,
    /// The same of the server, meanwhile.
    pub(super) server_cpu: f64,
    /// Peak resident memory of the process.
    pub(super) peak_mib: f64,
    /// Processors that neither the tool nor the server nor this benchmark kept busy, on average; 0.0 is a quiet machine.
    pub(super) others: f64,
}

/// Why a tool is not run again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ending {
    /// It was ended at the limit.
    Over {
        /// The limit.
        seconds: f64,
        /// What it had copied, unfinished files included.
        done: Content,
    },
    /// It failed or copied wrongly; the reason is for people. The next call tries again.
    Failed(String),
}

/// How often a tool runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Counted runs.
    pub(super) runs: usize,
    /// Whether a short first run is left out of the results.
    pub(super) warm_up: bool,
    /// A run that takes longer is ended.
    pub(super) limit: Duration,
}

impl Store {
    /// Reads what is kept under a name, or begins.
    ///
    /// # Errors
    /// If the file is there and cannot be read or understood.
    pub(super) fn open(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.json"));
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self {
                    version: VERSION,
                    rows: BTreeMap::new(),
                    path,
                });
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let hint = || format!("{} is not understood; move it away", path.display());
        let store: Self = serde_json::from_slice(&text).with_context(hint)?;
        ensure!(store.version == VERSION, hint());
        Ok(Self { path, ..store })
    }

    /// Writes it; whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn save(&self) -> Result<()> {
        let part = self.path.with_extension("json.part");
        let write = || -> Result<()> {
            fs::write(&part, serde_json::to_vec_pretty(self)?)?;
            Ok(fs::rename(&part, &self.path)?)
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// A row that is there.
    pub(super) fn get(&self, key: &str) -> Option<&Record> {
        self.rows.get(key)
    }

    /// A row, made if need be.
    pub(super) fn row(&mut self, key: &str) -> &mut Record {
        self.rows.entry(key.to_owned()).or_default()
    }
}

impl Record {
    /// Forgets what is worthless now and makes room for the tools; says what was forgotten.
    pub(super) fn prepare(
        &mut self,
        conditions: &Value,
        tools: &[(Client, Program)],
        fresh: bool,
    ) -> Vec<String> {
        let mut forgotten = Vec::new();
        if self.conditions != *conditions {
            if !self.cells.is_empty() {
                forgotten.push("the whole row: machine, link or work are others now".to_owned());
            }
            *self = Self {
                conditions: conditions.clone(),
                ..Self::default()
            };
        }
        for (client, program) in tools {
            for direction in Direction::ALL {
                let old = self
                    .cells
                    .iter()
                    .position(|cell| (cell.client, cell.direction) == (*client, direction));
                let cell = Cell::new(*client, direction, program.clone());
                match old {
                    None => self.cells.push(cell),
                    Some(index) if fresh || self.cells[index].program != *program => {
                        if self.cells[index].is_used() {
                            let why = if fresh {
                                "as asked"
                            } else {
                                "it is another build now"
                            };
                            forgotten.push(format!("{}, {}: {why}", client.name(), direction.name()));
                        }
                        self.cells[index] = cell;
                    }
                    Some(index) => self.cells[index].try_again(),
                }
            }
        }
        if !self.cells.iter().any(Cell::is_used) {
            self.floors.clear();
            self.visits.clear();
        }
        forgotten
    }

    /// Takes down what there is to copy; forgets everything if that is not what was copied before.
    pub(super) fn set_content(&mut self, content: Content) -> Option<&'static str> {
        let was_other = self.content != Content::default() && self.content != content;
        self.content = content;
        if !was_other || !self.cells.iter().any(Cell::is_used) {
            return None;
        }
        self.floors.clear();
        self.visits.clear();
        for cell in &mut self.cells {
            *cell = Cell::new(cell.client, cell.direction, cell.program.clone());
        }
        Some("the whole row: the work is another now")
    }

    /// What a tool did, one way.
    pub(super) fn cell(&self, client: Client, direction: Direction) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| (cell.client, cell.direction) == (client, direction))
    }

    /// The same, to add to it.
    pub(super) fn cell_mut(&mut self, client: Client, direction: Direction) -> Option<&mut Cell> {
        self.cells
            .iter_mut()
            .find(|cell| (cell.client, cell.direction) == (client, direction))
    }
}

impl Cell {
    /// A tool that has not run.
    pub(super) fn new(client: Client, direction: Direction, program: Program) -> Self {
        Self {
            client,
            direction,
            program,
            warmed: false,
            samples: Vec::new(),
            ending: None,
        }
    }

    fn is_used(&self) -> bool {
        self.warmed || !self.samples.is_empty() || self.ending.is_some()
    }

    fn try_again(&mut self) {
        if matches!(self.ending, Some(Ending::Failed(_))) {
            self.ending = None;
        }
    }

    /// One value of each sample.
    pub(super) fn values(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }

    /// Whether it ran once because it is so slow.
    pub(super) fn is_slow(&self) -> bool {
        let first = self.samples.first();
        first.is_some_and(|sample| sample.seconds > ONCE_ABOVE.as_secs_f64())
    }
}

impl Pace {
    /// Counted runs that are still missing.
    pub(super) fn missing(&self, cell: &Cell) -> usize {
        match cell.ending {
            Some(Ending::Failed(_)) => return 0,
            Some(Ending::Over { seconds, .. }) if seconds >= self.limit.as_secs_f64() => return 0,
            _ => {}
        }
        let wanted = if cell.is_slow() { 1 } else { self.runs };
        wanted.saturating_sub(cell.samples.len())
    }

    /// Whether a run of so many seconds counts.
    pub(super) fn counts(&self, cell: &Cell, seconds: f64) -> bool {
        !self.warm_up || cell.warmed || seconds > COUNTED_ABOVE.as_secs_f64()
    }

    /// Runs still to make if each takes so many seconds.
    pub(super) fn runs_left(&self, cell: &Cell, seconds: f64) -> usize {
        match self.missing(cell) {
            0 => 0,
            _ if cell.samples.is_empty() && seconds > ONCE_ABOVE.as_secs_f64() => 1,
            missing => missing + usize::from(!self.counts(cell, seconds)),
        }
    }
}

impl Program {
    /// The program in a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn of(path: &Path, version: String) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        // FNV-1a, by eight bytes: to tell builds apart, not to resist anyone.
        let hash = bytes.chunks(8).fold(0xCBF2_9CE4_8422_2325_u64, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (hash ^ u64::from_le_bytes(word))
                .wrapping_mul(0x0100_0000_01B3)
                .rotate_left(23)
        });
        Ok(Self {
            version,
            build: format!("{hash:016x}"),
        })
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        runs: 3,
        warm_up: true,
        limit: Duration::from_secs(300),
    };

    fn sample(seconds: f64) -> Sample {
        Sample {
            seconds,
            cpu: 0.5,
            server_cpu: 0.25,
            peak_mib: 10.0,
            others: 0.0,
        }
    }

    fn cell(seconds: &[f64]) -> Cell {
        let mut cell = Cell::new(Client::Rsync, Direction::Read, Program::default());
        cell.samples = seconds.iter().copied().map(sample).collect();
        cell
    }

    #[test]
    fn slow_tools_run_once_and_short_first_runs_do_not_count() {
        let new = cell(&[]);
        assert_eq!(PACE.missing(&new), 3);
        assert!(!PACE.counts(&new, 2.0) && PACE.counts(&new, 31.0));
        assert_eq!(
            [2.0, 40.0, 61.0].map(|seconds| PACE.runs_left(&new, seconds)),
            [4, 3, 1]
        );
        let mut begun = cell(&[2.0]);
        begun.warmed = true;
        assert!(PACE.counts(&begun, 2.0));
        assert_eq!(PACE.runs_left(&begun, 2.0), 2);
        assert_eq!(PACE.missing(&cell(&[61.0])), 0);
        assert!(cell(&[61.0]).is_slow() && !cell(&[59.0, 61.0]).is_slow());
        assert_eq!(PACE.missing(&cell(&[59.0, 61.0])), 1);
    }

    #[test]
    fn who_was_ended_is_run_again_only_with_more_patience() {
        let mut ended = cell(&[]);
        ended.ending = Some(Ending::Over {
            seconds: 300.0,
            done: Content::default(),
        });
        assert_eq!(PACE.missing(&ended), 0);
        let patient = Pace {
            limit: Duration::from_secs(600),
            ..PACE
        };
        assert_eq!(patient.missing(&ended), 3);
        let hasty = Pace {
            limit: Duration::from_secs(120),
            ..PACE
        };
        assert_eq!(hasty.missing(&ended), 0);
    }

    #[test]
    fn only_what_is_still_true_is_kept() {
        let program = |build: &str| Program {
            version: "1".into(),
            build: build.into(),
        };
        let tools = |build| {
            [
                (Client::Ropeway, program(build)),
                (Client::Rsync, program("same")),
            ]
        };
        let mut row = Record::default();
        assert!(row.prepare(&Value::from(1), &tools("a"), false).is_empty());
        assert_eq!(row.cells.len(), 4);
        for cell in &mut row.cells {
            cell.samples.push(sample(1.0));
        }
        row.cells[3].ending = Some(Ending::Failed("no".into()));
        row.floors.push(FloorSample {
            direction: Direction::Read,
            connections: 1,
            seconds: 1.0,
        });
        assert!(row.prepare(&Value::from(1), &tools("a"), false).is_empty());
        assert!(
            row.cells
                .iter()
                .all(|cell| cell.samples.len() == 1 && cell.ending.is_none())
        );
        let forgotten = row.prepare(&Value::from(1), &tools("b"), false);
        assert_eq!(
            forgotten,
            [
                "ropeway, read: it is another build now",
                "ropeway, write: it is another build now"
            ]
        );
        assert_eq!(row.floors.len(), 1);
        let rsync = row.cell(Client::Rsync, Direction::Write).unwrap();
        assert_eq!(rsync.samples.len(), 1);
        assert_eq!(
            row.prepare(&Value::from(1), &tools("b")[1..], true).len(),
            2,
            "fresh"
        );
        assert!(row.floors.is_empty(), "nothing is left to compare with them");
        row.cells[0].warmed = true;
        let content = Content { files: 1, bytes: 2 };
        assert!(row.set_content(content).is_none() && row.set_content(content).is_none());
        assert!(row.set_content(Content { files: 1, bytes: 3 }).is_some());
        assert!(!row.cells[0].warmed && row.cells.len() == 4);
        row.cells[0].warmed = true;
        assert_eq!(row.prepare(&Value::from(2), &tools("b"), false).len(), 1);
    }

    #[test]
    fn the_file_is_read_again_and_a_strange_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), "wan").unwrap();
        store.row("one").cells.push(cell(&[1.5]));
        store.row("one").cells[0].ending = Some(Ending::Failed("why".into()));
        store.save().unwrap();
        let again = Store::open(folder.path(), "wan").unwrap();
        assert!(again.get("two").is_none());
        let cell = &again.get("one").unwrap().cells[0];
        assert_eq!(cell.values(|sample| sample.seconds), [1.5]);
        assert_eq!(cell.ending, Some(Ending::Failed("why".into())));
        fs::write(folder.path().join("wan.json"), "{\"version\": 2, \"rows\": {}}").unwrap();
        let error = Store::open(folder.path(), "wan").unwrap_err();
        assert!(error.to_string().contains("move it away"), "{error}");
    }

    #[test]
    fn builds_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let build = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            Program::of(&path, String::new()).unwrap().build
        };
        assert_eq!(build(b"0123456789"), build(b"0123456789"));
        assert_ne!(build(b"0123456789"), build(b"0123456788"));
        assert_ne!(build(b"0123456789"), build(b"1023456789"));
    }
}
