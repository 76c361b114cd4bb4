//! Labs of this machine and its devices, without a WAN: dirty pages of a device ([`dirty`]), the copy
//! engines of Windows XP and Vista ([`vista`]), file and record sizes over a fast network ([`nas`]),
//! copying tools on fresh file systems ([`copies`]), the cache after memory hogs ([`boost`]).
//!
//! Each has pure parts (plans, fits, models, documents) and one module with the system calls. All
//! write a [`Document`] while they run, can be stopped at any time, and leave only the document.

pub mod boost;
pub mod copies;
pub mod dirty;
pub mod disk;
pub mod nas;
pub mod reader;
pub mod vista;
pub mod volume;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::link::{self, CheckPlan, LinkError, LinkSpec};
use crate::report::{Cell, Document, FILE, FileError, LinkProof, ReportError, Run, Warning, save, write_all};
use crate::run::cleanup::{PREFIX, private_folder};
use crate::run::machine::{load_warning, now};
use crate::run::measure::{Bounds, End, Measured, measure};

/// A lab of this machine cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The folder's file system has too little room.
    #[error("{} has room for {free} bytes, and {needed} are needed", path.display())]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// The folder is in memory.
    #[error("{} is in memory, so its files are never written back", path.display())]
    InMemory {
        /// The folder.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The attempted action.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The report cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A table, plot or page cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The link cannot be set up.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The server does not start.
    #[error("the private server {0}")]
    Server(String),
    /// The lab was stopped.
    #[error("interrupted; what was measured is kept")]
    Interrupted,
}

impl LocalError {
    /// Returns a converter for `map_err`.
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.kind() {
            io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Io { what, source },
        }
    }

    /// Advice for the user.
    pub fn hint(&self) -> &str {
        match self {
            Self::NoRoom { .. } => "give another folder, or ask for less",
            Self::InMemory { .. } => "give a folder on a disk or stick",
            Self::Io { .. } => "check the folder and its rights",
            Self::File(_) | Self::Report(_) => "check the folder that --out names",
            Self::Link(error) => error.hint(),
            Self::Server(_) => "`ropeway serve` may tell more",
            Self::Interrupted => "the report says that it is not complete",
        }
    }
}

/// Creates the folder of a report. An existing report is renamed, so that no lab destroys results of
/// another.
fn make_out(out: &Path) -> Result<(), LocalError> {
    fs::create_dir_all(out).map_err(LocalError::io(format!("make the folder {}", out.display())))?;
    let path = out.join(FILE);
    if !path.exists() {
        return Ok(());
    }
    let older = (1_u32..)
        .map(|number| out.join(format!("report-{number}.json")))
        .find(|older| !older.exists());
    match older {
        Some(older) => fs::rename(&path, older).map_err(LocalError::io("keep the older report")),
        None => Ok(()),
    }
}

/// The document of a running lab, with what the lab needs to write it and to end in order.
struct Record<'a> {
    document: Document,
    path: PathBuf,
    stop: &'a AtomicBool,
    notify: &'a dyn Fn(&str),
}

impl Record<'_> {
    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns `Interrupted` if the lab was stopped.
    fn check_stop(&self) -> Result<(), LocalError> {
        match self.is_stopping() {
            true => Err(LocalError::Interrupted),
            false => Ok(()),
        }
    }

    fn notify(&self, text: &str) {
        (self.notify)(text);
    }

    /// Shows a warning and keeps it in the document.
    fn warn(&mut self, text: String) {
        self.notify(&format!("! {text}"));
        self.document.warnings.push(Warning::of_lab(text));
    }

    /// Adds a run to its cell, which is created if missing.
    fn add_run(&mut self, cell: Cell, run: Run) {
        self.document.cell_or_add(cell, &[]).runs.push(run);
    }

    fn save(&mut self) -> Result<(), LocalError> {
        self.document.updated = now();
        Ok(save(&self.document, &self.path)?)
    }

    /// Writes the document for the last time, and the reports into their folder. `result` tells
    /// whether all runs were made.
    fn finish(
        mut self,
        result: Result<bool, LocalError>,
        reports: Option<&Path>,
    ) -> Result<Document, LocalError> {
        self.document.complete = matches!(result, Ok(true));
        self.save()?;
        if let Some(folder) = reports {
            write_all(&self.document, folder)?;
        }
        result.map(|_| self.document)
    }

    /// Measures the emulated link, and adds the proof to all links of packets in the document.
    fn prove(&mut self, spec: &LinkSpec) -> Result<(), LocalError> {
        let links = self.document.links.iter_mut();
        let mut links = links.filter(|link| link.kind == "packets").peekable();
        if links.peek().is_some() {
            let stop = self.stop;
            let found = link::check(spec, CheckPlan::short(), &|| stop.load(Ordering::Acquire));
            if stop.load(Ordering::Acquire) {
                return Err(LocalError::Interrupted);
            }
            let proof = LinkProof::from(&found?);
            links.for_each(|link| link.proof = Some(proof.clone()));
        }
        Ok(())
    }
}

/// Runs a program of a lab, with its output in a file.
///
/// # Errors
/// It cannot be started, or the lab was stopped.
fn measured(
    stop: &AtomicBool,
    command: Command,
    output: &Path,
    limit: Duration,
    spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    tick: &mut dyn FnMut(Duration),
) -> Result<Measured, LocalError> {
    let what = format!("run {}", command.get_program().to_string_lossy());
    let stop = || stop.load(Ordering::Acquire);
    let bounds = Bounds { limit, stop: &stop };
    let measured = measure(command, output, bounds, spawn, tick).map_err(LocalError::io(what))?;
    match measured.end {
        End::Stopped => Err(LocalError::Interrupted),
        _ => Ok(measured),
    }
}

/// `f_type` of file systems in memory (linux/magic.h): tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// Whether a file or folder is in memory; false if that is unknown.
pub(crate) fn in_memory(file: impl AsFd) -> bool {
    let Ok(state) = rustix::fs::fstatfs(file) else {
        return false;
    };
    #[allow(
        clippy::cast_sign_loss,
        clippy::unnecessary_cast,
        reason = "its type differs by architecture"
    )]
    let kind = state.f_type as u64;
    IN_MEMORY.contains(&(kind & 0xFFFF_FFFF))
}

/// Returns warnings about figures that may be wrong: a busy machine, folders in memory, a relay.
fn warnings(folders: &[&Path], relay: bool) -> Vec<Warning> {
    let memory = folders
        .iter()
        .filter(|folder| File::open(folder).is_ok_and(in_memory))
        .map(|folder| format!("{} is in memory: no disk takes part", folder.display()));
    let relay = relay.then(|| "the network is a relay on the loopback, not packets".to_owned());
    let texts = memory.chain(relay).map(Warning::of_lab);
    load_warning().into_iter().chain(texts).collect()
}

/// Creates a private folder below `dir`, which must have this many free bytes.
fn folder_with_room(dir: &Path, needed: u64) -> Result<TempDir, LocalError> {
    let failed = || LocalError::io(format!("use the folder {}", dir.display()));
    let state = rustix::fs::statvfs(dir).map_err(|error| failed()(error.into()))?;
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    if free < needed {
        return Err(LocalError::NoRoom {
            path: dir.to_owned(),
            free,
            needed,
        });
    }
    private_folder(dir, PREFIX).map_err(failed())
}
