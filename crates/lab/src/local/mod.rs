//! Labs of this machine and its devices, without a WAN: dirty pages of a device ([`dirty`]), copy engines
//! of other times and ours ([`vista`]), file and record sizes through a fast network ([`nas`]), copying tools on fresh
//! file systems ([`copies`]).
//!
//! Each has pure parts (plans, fits, models, documents) and one module with the system calls. All
//! write a [`Document`] while they run, can be stopped at any time, and leave only the document.

pub mod copies;
pub mod dirty;
pub mod nas;
mod reader;
pub mod vista;
pub mod volume;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::link::{CheckPlan, LinkError, LinkSpec, check_until};
use crate::report::{Document, FILE, FileError, LinkProof, ReportError, Warning};
use crate::run::machine::load_warning;

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
    #[error("{} is in memory: nothing of it is ever written back", path.display())]
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

/// Measures the emulated link, and adds the proof to all links of packets in the document.
fn prove(document: &mut Document, spec: &LinkSpec, stop: &AtomicBool) -> Result<(), LocalError> {
    let is_stopping = || stop.load(Ordering::Acquire);
    let mut links = document
        .links
        .iter_mut()
        .filter(|link| link.kind == "packets")
        .peekable();
    if links.peek().is_some() {
        let found = check_until(spec, CheckPlan::short(), &is_stopping);
        if is_stopping() {
            return Err(LocalError::Interrupted);
        }
        let proof = LinkProof::from(&found?);
        links.for_each(|link| link.proof = Some(proof.clone()));
    }
    Ok(())
}

/// `f_type` of file systems in memory (linux/magic.h): tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// Whether a file or folder is in memory; false if that is unknown.
fn in_memory(file: impl AsFd) -> bool {
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

/// Returns warnings about figures that may be wrong: a busy machine, and folders in memory.
fn doubts(folders: &[&Path]) -> Vec<Warning> {
    let memory = folders
        .iter()
        .filter(|folder| File::open(folder).is_ok_and(in_memory))
        .map(|folder| format!("{} is in memory: no disk takes part", folder.display()));
    let memory = memory.map(|text| Warning { cell: None, text });
    load_warning().into_iter().chain(memory).collect()
}

/// Returns the bytes that are free on a folder's file system.
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let state = rustix::fs::statvfs(folder)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}
