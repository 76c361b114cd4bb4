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
//! Invariants: no process and no folder is left when [`run`] returns or was [abandoned](abandon). The
//! document on disk is complete at any time. How earlier results are used depends on [`Resume`].

pub(crate) mod cleanup;
mod client;
pub(crate) mod curves;
mod group;
pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod monitor;
mod mounted;
mod pack;
pub(crate) mod plan;
pub(crate) mod process;
mod proof;
pub(crate) mod record;
mod resume;
mod scratch;
pub(crate) mod server;
mod settings;
mod setup;
mod sockets;
pub(crate) mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use crate::link::LinkError;
use crate::report::{CellKey, Document, FileError, Run};
use crate::scenario::{NamedLink, Pair, Scenario, Server};
use crate::work::Plan;
pub use cleanup::abandon;
pub use machine::{
    load_warning, machine as this_machine, memory_available as available_memory, now as timestamp,
};
use pack::Packer;
use plan::{Calibration, Group, Pace};
use record::Recorder;
use scratch::Scratch;
pub use scratch::empty;
use tools::Tools;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program `ropeway`, as client and as server.
    pub program: PathBuf,
    /// Folder of the report; created if missing.
    pub out: PathBuf,
    /// Whether relays on the loopback replace packets; every result says so.
    pub relay: bool,
    /// Program of the server `smb-server`, where it was built.
    pub smb_server: Option<PathBuf>,
    /// What happens to results in the folder that do not fit this call.
    pub resume: Resume,
    /// Whether to plan only: nothing runs and nothing is written.
    pub plan_only: bool,
    /// Whether to keep the traces of ropeway's first runs, in [`TRACES`] below the report.
    pub keep_traces: bool,
}

/// Folder of the kept traces, below that of the report.
pub const TRACES: &str = "traces";

/// What happens to earlier results in the folder of a lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// A lab continues only with the settings and programs with which it began.
    #[default]
    Strict,
    /// What no longer fits is dropped and measured again: everything on another machine, a link or
    /// work that changed, a client or server of another build. Failed runs are tried again.
    Replace,
    /// As `Replace`; the cells of this call are measured again in any case.
    Fresh,
}

/// Progress of a lab.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event<'a> {
    /// The plan is known.
    Planned {
        /// Number of cells, without those that are left out by name.
        cells: usize,
        /// Number of runs in the report already.
        runs_there: usize,
        /// Estimated seconds.
        seconds: f64,
        /// Largest number of seconds allowed.
        budget_seconds: f64,
    },
    /// A row of the plan: one link, work and direction.
    Row {
        /// Name of the link.
        link: &'a str,
        /// Name of the work.
        work: &'a str,
        /// `read` or `write`.
        direction: &'a str,
        /// Seconds that its missing runs will probably take.
        seconds: f64,
    },
    /// Earlier results were dropped; see [`Resume`].
    Dropped {
        /// Which, and why.
        what: &'a str,
    },
    /// A client or server does not take part.
    Skipped {
        /// Name of the client or server.
        what: &'a str,
        /// Reason.
        why: &'a str,
    },
    /// A phase begins.
    Phase {
        /// Name of the phase.
        phase: &'a str,
    },
    /// A link was measured alone.
    Proved {
        /// Name of the link.
        link: &'a str,
        /// Whether it is within its bounds.
        holds: bool,
    },
    /// Bare TCP was measured.
    Floor {
        /// Name of the link.
        link: &'a str,
        /// Name of the work that has as many bytes.
        work: &'a str,
        /// `read` or `write`.
        direction: &'a str,
        /// Number of connections that was fastest.
        connections: usize,
        /// Seconds that they took.
        seconds: f64,
    },
    /// A client ran.
    Run {
        /// Key of the cell.
        cell: &'a CellKey,
        /// Number of the run in its cell, from 1.
        number: usize,
        /// The result.
        run: &'a Run,
    },
    /// A figure may be wrong, or will be missing.
    Warning {
        /// The cell; `None` for the whole lab.
        #[serde(skip_serializing_if = "Option::is_none")]
        cell: Option<&'a CellKey>,
        /// Reason.
        text: &'a str,
    },
}

/// Receives the progress of a lab.
pub trait Observer: Sync {
    /// Called for each event, from several threads.
    fn observe(&self, event: &Event<'_>);
}

/// A lab cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A link cannot be set up or measured.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The report cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder holds the report of another lab.
    #[error("{} holds another lab: {what}", path.display())]
    Differs {
        /// Path of that report.
        path: PathBuf,
        /// The difference.
        what: String,
    },
    /// No file system has room for the works.
    #[error("no room for the works: {needed} bytes are needed in /dev/shm or the folder for temporary files")]
    NoRoom {
        /// Bytes that are needed.
        needed: u64,
    },
    /// No pair of client and server is available.
    #[error("none of the clients and servers is available: {0}")]
    NoPairs(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The attempted action.
        what: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The lab was stopped.
    #[error("interrupted; what was measured is kept")]
    Interrupted,
}

impl LabError {
    /// Returns a converter for `map_err`.
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| match source.kind() {
            std::io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Io { what, source },
        }
    }

    /// Advice for the user.
    pub fn hint(&self) -> &str {
        match self {
            Self::Link(error) => error.hint(),
            Self::File(FileError::Io { .. }) => "check the folder that --out names",
            Self::File(FileError::Strange { .. }) => "give another folder by --out, or move that file away",
            Self::Differs { .. } => "give another folder by --out, or the settings with which it began",
            Self::NoRoom { .. } => "make room, set TMPDIR to a bigger file system, or use --scale 0.1",
            Self::NoPairs(_) => "install one of them, or ask for others by --clients and --servers",
            Self::Io { .. } => "ROPEWAY_DEBUG=debug may tell more",
            Self::Interrupted => "the same command goes on with what is missing",
        }
    }
}

/// Measures what the report in the folder does not have yet, and returns the whole document. Setting
/// `stop` ends the lab in order.
///
/// # Errors
/// The lab cannot go on; earlier results are in the report. A client that fails is a result, not an
/// error.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Document, LabError> {
    process::adopt();
    let lab = setup::lab(scenario, options, stop, observer)?;
    if options.plan_only {
        lab.report_plan();
        return Ok(lab.recorder.into_document());
    }
    let result = lab.go();
    let finished = setup::finish(&lab);
    result?;
    finished?;
    Ok(lab.recorder.into_document())
}

/// State that all parts of a lab share.
struct Lab<'a> {
    scenario: Scenario,
    options: &'a Options,
    stop: &'a AtomicBool,
    observer: &'a dyn Observer,
    plans: Vec<Plan>,
    groups: Vec<Group>,
    /// Pairs whose client and server are available.
    pairs: Vec<Pair>,
    /// Whether the document also has cells of another scenario, and is incomplete.
    others_open: bool,
    /// Keys of all cells in the order of the report.
    order: Vec<CellKey>,
    pace: Pace,
    tools: Tools,
    scratch: Scratch,
    recorder: Recorder,
    begun: Instant,
    packer: Mutex<Packer>,
    calibration: Mutex<Calibration>,
    /// Time of a login, by link and pair.
    logins: Mutex<BTreeMap<(usize, Pair), Option<Duration>>>,
    /// Servers that did not start.
    absent: Mutex<BTreeSet<Server>>,
    /// Whether another part has failed.
    failed: AtomicBool,
}

impl Lab<'_> {
    fn go(&self) -> Result<(), LabError> {
        self.report_plan();
        if self.pending().is_empty() {
            return Ok(());
        }
        self.observer.observe(&Event::Phase {
            phase: "making works",
        });
        for (index, plan) in self.plans.iter().enumerate() {
            let wanted = self.pending().into_iter().any(|id| self.groups[id].work == index);
            if wanted {
                let made = plan.write(&self.scratch.source(plan), &|| self.is_stopping());
                made.map_err(LabError::io("make the works"))?;
            }
        }
        proof::links(self)?;
        proof::floors(self)?;
        self.observer.observe(&Event::Phase { phase: "copies" });
        side_by_side(self, &self.packer, &|id| group::run(self, id))
    }

    /// Indices of the groups in which a cell needs a run.
    fn pending(&self) -> Vec<usize> {
        let wants = |id: &usize| !self.wanted(&self.groups[*id]).is_empty();
        (0..self.groups.len()).filter(wants).collect()
    }

    /// Pairs whose cells of a group need a run.
    fn wanted(&self, group: &Group) -> Vec<Pair> {
        let pairs = self.pairs_of(group);
        pairs.filter(|pair| self.missing(group, *pair) > 0).collect()
    }

    /// Available pairs whose clients are measured in a group.
    fn pairs_of(&self, group: &Group) -> impl Iterator<Item = Pair> {
        let (work, direction) = (self.scenario.works[group.work], group.direction);
        let (link, pairs) = (self.link(group), self.pairs.iter().copied());
        pairs.filter(move |pair| link.has(*pair) && pair.client.does(work, direction))
    }

    /// Number of runs that a cell still needs.
    fn missing(&self, group: &Group, pair: Pair) -> u32 {
        let runs = self.recorder.runs(&group.key(&self.scenario, pair));
        group.missing(&self.pace, &runs)
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.failed.load(Ordering::Acquire)
    }

    fn expected(&self, group: &Group, pair: Pair) -> Duration {
        let spec = &self.scenario.links[group.link].spec;
        let plain = group.expected(spec, pair);
        let calibration = self.calibration.lock();
        calibration.applied(pair, plain).min(group.limit_for(spec, pair))
    }

    /// Estimated time of the first runs of all groups that have not begun.
    fn reserve(&self) -> Duration {
        let packer = self.packer.lock().clone();
        packer.duration(|id| {
            let group = &self.groups[id];
            let fresh: Vec<Pair> = self
                .pairs_of(group)
                .filter(|pair| self.recorder.runs(&group.key(&self.scenario, *pair)).is_empty())
                .collect();
            group.cost(&fresh, &self.pace, true, |pair| self.expected(group, pair))
        })
    }

    fn link(&self, group: &Group) -> &NamedLink {
        &self.scenario.links[group.link]
    }

    fn report_plan(&self) {
        for (what, why) in &self.recorder.read().skipped {
            self.observer.observe(&Event::Skipped { what, why });
        }
        let packer = self.packer.lock().clone();
        let seconds = |group: &Group| {
            let wanted = self.wanted(group);
            match wanted.is_empty() {
                true => Duration::ZERO,
                false => group.cost(&wanted, &self.pace, false, |pair| self.expected(group, pair)),
            }
        };
        for group in self.groups.iter().filter(|_| self.options.plan_only) {
            self.observer.observe(&Event::Row {
                link: &self.link(group).name,
                work: self.scenario.works[group.work].name(),
                direction: group.direction.name(),
                seconds: seconds(group).as_secs_f64(),
            });
        }
        let copies = packer.duration(|id| seconds(&self.groups[id]));
        let document = self.recorder.read();
        let runs_there = document.cells.iter().map(|cell| cell.runs.len()).sum();
        drop(document);
        self.observer.observe(&Event::Planned {
            cells: self.groups.iter().map(|group| self.pairs_of(group).count()).sum(),
            runs_there,
            seconds: (copies + proof::estimate(self)).as_secs_f64(),
            budget_seconds: self.scenario.budget.as_secs_f64(),
        });
    }

    /// Reports a warning and keeps it in the document.
    fn warn(&self, cell: Option<&CellKey>, text: String) -> Result<(), LabError> {
        self.observer.observe(&Event::Warning { cell, text: &text });
        self.recorder
            .change(|document| record::warn(document, cell, text))?;
        Ok(())
    }
}

/// Works on all units of a packer, as many at a time as it allows. The first failure ends the
/// others.
fn side_by_side(
    lab: &Lab<'_>,
    packer: &Mutex<Packer>,
    work: &(dyn Fn(usize) -> Result<(), LabError> + Sync),
) -> Result<(), LabError> {
    let locked = || packer.lock();
    let mut result = Ok(());
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        loop {
            while !lab.is_stopping() {
                let Some(id) = locked().start() else { break };
                let sender = sender.clone();
                scope.spawn(move || {
                    let done = catch_unwind(AssertUnwindSafe(|| work(id))).unwrap_or_else(|panic| {
                        // The others end in order, and the scope passes the panic on.
                        lab.failed.store(true, Ordering::Release);
                        _ = sender.send((id, Ok(())));
                        resume_unwind(panic)
                    });
                    // The receiver outlives this scope's threads.
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
