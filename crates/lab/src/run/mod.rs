//! Runs a scenario.
//!
//! ```text
//!   scenario ─ plan (groups, order, estimates)          pure
//!            ─ tools (what is installed), ground (works in memory)
//!            ─ proof: each link by itself, bare TCP for the same bytes
//!            ─ groups, side by side as `pack` allows
//!                 link + servers, then rounds: each client once, another one first
//!            ─ record: the document, written after each run
//! ```
//!
//! Invariants: nothing is left when [`run`] returns, however it ends, or when it was [abandoned](abandon); the document on
//! disk is whole at any time; a lab goes on only with the settings with which it began.

pub(crate) mod beside;
mod client;
mod curves;
mod ground;
mod group;
pub(crate) mod leaving;
pub(crate) mod machine;
pub(crate) mod measure;
mod pack;
pub(crate) mod plan;
pub(crate) mod process;
mod proof;
pub(crate) mod record;
pub(crate) mod server;
mod settings;
mod setup;
pub(crate) mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::link::LinkError;
use crate::report::{CellKey, Document, FileError, Run};
use crate::scenario::{Pair, Scenario, Server};
use crate::work::Plan;
use ground::Ground;
pub use leaving::abandon;
use pack::Packer;
use plan::{Experience, Group, Pace};
use record::Recorder;
use tools::Tools;

/// How a lab is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `ropeway`, client and server.
    pub program: PathBuf,
    /// Where the report goes; made if need be.
    pub out: PathBuf,
    /// No packets: relays on the loopback, named so in every result.
    pub relay: bool,
}

/// What a lab tells while it runs.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event<'a> {
    /// What is to be done.
    Planned {
        /// Cells, those left out by name not counted.
        cells: usize,
        /// Runs that are there already.
        runs_there: usize,
        /// What it will probably take.
        seconds: f64,
        /// What it may take.
        budget_seconds: f64,
    },
    /// A client or server does not take part.
    Skipped {
        /// Which.
        what: &'a str,
        /// Why.
        why: &'a str,
    },
    /// A part begins.
    Phase {
        /// Which.
        phase: &'a str,
    },
    /// A link was measured by itself.
    Proved {
        /// Which.
        link: &'a str,
        /// Whether it is within its bounds.
        holds: bool,
    },
    /// Bare TCP was measured.
    Floor {
        /// Over which link.
        link: &'a str,
        /// With how many bytes.
        work: &'a str,
        /// Which way.
        direction: &'a str,
        /// Best number of connections.
        connections: usize,
        /// Their time.
        seconds: f64,
    },
    /// A client ran.
    Run {
        /// What.
        cell: &'a CellKey,
        /// Which run of it.
        number: usize,
        /// What it took.
        run: &'a Run,
    },
    /// A figure may be wrong, or will be missing.
    Warning {
        /// Of which cell; of all if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        cell: Option<&'a CellKey>,
        /// Why.
        text: &'a str,
    },
}

/// Who is told.
pub trait Watch: Sync {
    /// Something happened.
    fn told(&self, event: &Event<'_>);
}

/// Why a lab ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A link cannot be made or measured.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The report cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another lab is in the folder.
    #[error("{} holds another lab: {what}", path.display())]
    Differs {
        /// Its report.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// Nowhere is room for the works.
    #[error("no room for the works: {needed} bytes are needed in /dev/shm or the folder for temporary files")]
    NoRoom {
        /// How much there should be.
        needed: u64,
    },
    /// No pair of client and server is there.
    #[error("none of the clients and servers is there: {0}")]
    Nobody(String),
    /// The system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// We were told to stop.
    #[error("interrupted; what was measured is kept")]
    Interrupted,
}

impl LabError {
    /// What the user can do about it.
    pub fn hint(&self) -> &str {
        match self {
            Self::Link(error) => error.hint(),
            Self::File(FileError::Io { .. }) => "check the folder that --out names",
            Self::File(FileError::Strange { .. }) => "give another folder by --out, or move that file away",
            Self::Differs { .. } => "give another folder by --out, or the settings with which it began",
            Self::NoRoom { .. } => "make room, set TMPDIR to a bigger file system, or use --scale 0.1",
            Self::Nobody(_) => "install one of them, or ask for others by --clients and --servers",
            Self::Io { .. } => "ROPEWAY_DEBUG=debug may tell more",
            Self::Interrupted => "the same command goes on with what is missing",
        }
    }
}

/// Runs what of a scenario is not yet in the report of the folder; gives the whole document. `stop` ends it in order.
///
/// # Errors
/// It cannot go on; what was measured until then is in the report. That a client fails is a result.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    stop: &AtomicBool,
    watch: &dyn Watch,
) -> Result<Document, LabError> {
    process::adopt();
    let lab = setup::lab(scenario, options, stop, watch)?;
    let result = lab.go();
    let finished = setup::finish(&lab);
    result?;
    finished?;
    Ok(lab.recorder.into_document())
}

/// Everything that the parts of a lab share.
struct Lab<'a> {
    scenario: Scenario,
    options: &'a Options,
    stop: &'a AtomicBool,
    watch: &'a dyn Watch,
    plans: Vec<Plan>,
    groups: Vec<Group>,
    /// Pairs that are there.
    pairs: Vec<Pair>,
    /// The document was begun with more than this scenario, and is not all there.
    others_open: bool,
    /// All cells in the order of the report.
    order: Vec<CellKey>,
    pace: Pace,
    tools: Tools,
    ground: Ground,
    recorder: Recorder,
    begun: Instant,
    packer: Mutex<Packer>,
    experience: Mutex<Experience>,
    /// What logging in takes, by link and pair.
    logins: Mutex<BTreeMap<(usize, Pair), Option<Duration>>>,
    /// Servers that did not start.
    absent: Mutex<BTreeSet<Server>>,
    /// Another part has failed.
    failed: AtomicBool,
}

impl Lab<'_> {
    fn go(&self) -> Result<(), LabError> {
        self.tell_plan();
        if self.pending().is_empty() {
            return Ok(());
        }
        self.watch.told(&Event::Phase {
            phase: "making works",
        });
        for (index, plan) in self.plans.iter().enumerate() {
            let wanted = self.pending().into_iter().any(|id| self.groups[id].work == index);
            if wanted {
                let made = plan.write(&self.ground.source(plan), &|| self.is_stopping());
                made.map_err(|source| match source.kind() {
                    std::io::ErrorKind::Interrupted => LabError::Interrupted,
                    _ => LabError::Io {
                        what: "make the works",
                        source,
                    },
                })?;
            }
        }
        proof::links(self)?;
        proof::floors(self)?;
        self.watch.told(&Event::Phase { phase: "copies" });
        side_by_side(self, &self.packer, &|id| group::run(self, id))
    }

    /// Groups in which a cell wants a run.
    fn pending(&self) -> Vec<usize> {
        let wants = |id: &usize| {
            let group = &self.groups[*id];
            self.pairs.iter().any(|pair| self.missing(group, *pair) > 0)
        };
        (0..self.groups.len()).filter(wants).collect()
    }

    /// Runs that a cell still wants.
    fn missing(&self, group: &Group, pair: Pair) -> u32 {
        let runs = self.recorder.runs(&group.key(&self.scenario, pair));
        group.missing(&self.pace, &runs)
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.failed.load(Ordering::Acquire)
    }

    fn expected(&self, group: &Group, pair: Pair) -> Duration {
        let plain = group.expected(&self.scenario.links[group.link].spec, pair);
        let experience = self.experience.lock().unwrap_or_else(PoisonError::into_inner);
        experience.applied(pair, plain).min(group.limit())
    }

    /// What the first runs of all that has not begun will take.
    fn reserve(&self) -> Duration {
        let packer = self.packer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        packer.duration(|id| {
            let group = &self.groups[id];
            let fresh: Vec<Pair> = self
                .pairs
                .iter()
                .copied()
                .filter(|pair| self.recorder.runs(&group.key(&self.scenario, *pair)).is_empty())
                .collect();
            group.cost(&fresh, &self.pace, true, |pair| self.expected(group, pair))
        })
    }

    fn tell_plan(&self) {
        for (what, why) in &self.recorder.read().skipped {
            self.watch.told(&Event::Skipped { what, why });
        }
        let packer = self.packer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let copies = packer.duration(|id| {
            let group = &self.groups[id];
            let wanted: Vec<Pair> = self
                .pairs
                .iter()
                .copied()
                .filter(|pair| self.missing(group, *pair) > 0)
                .collect();
            group.cost(&wanted, &self.pace, false, |pair| self.expected(group, pair))
        });
        let document = self.recorder.read();
        let runs_there = document.cells.iter().map(|cell| cell.runs.len()).sum();
        drop(document);
        self.watch.told(&Event::Planned {
            cells: self.groups.len() * self.pairs.len(),
            runs_there,
            seconds: (copies + proof::estimate(self)).as_secs_f64(),
            budget_seconds: self.scenario.budget.as_secs_f64(),
        });
    }

    /// Says and keeps a warning.
    fn warn(&self, cell: Option<&CellKey>, text: String) -> Result<(), LabError> {
        self.watch.told(&Event::Warning { cell, text: &text });
        self.recorder
            .change(|document| record::warn(document, cell, text))?;
        Ok(())
    }
}

/// Does all units of a packer, several at a time as it allows; the first failure ends the others.
fn side_by_side(
    lab: &Lab<'_>,
    packer: &Mutex<Packer>,
    work: &(dyn Fn(usize) -> Result<(), LabError> + Sync),
) -> Result<(), LabError> {
    let locked = || packer.lock().unwrap_or_else(PoisonError::into_inner);
    let mut result = Ok(());
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        loop {
            while !lab.is_stopping() {
                let Some(id) = locked().start() else { break };
                let sender = sender.clone();
                scope.spawn(move || {
                    let done = catch_unwind(AssertUnwindSafe(|| work(id))).unwrap_or_else(|panic| {
                        // The others end in order; the scope passes the panic on.
                        lab.failed.store(true, Ordering::Release);
                        _ = sender.send((id, Ok(())));
                        resume_unwind(panic)
                    });
                    // The receiver lives as long as this scope.
                    _ = sender.send((id, done));
                });
            }
            if locked().is_idle() {
                break;
            }
            let Ok((id, done)) = receiver.recv() else { break };
            locked().end(id);
            if let Err(error) = done {
                if result.is_ok() {
                    result = Err(error);
                }
                lab.failed.store(true, Ordering::Release);
            }
        }
    });
    if lab.stop.load(Ordering::Acquire) {
        return Err(LabError::Interrupted);
    }
    result
}
