//! Labs of this one machine and its devices, without a WAN: what the page cache owes a device ([`dirty`]), copy engines
//! of other times and ours ([`vista`]), file and record sizes through a fast network ([`nas`]).
//!
//! Each has pure parts (plans, fits, models, documents) and one module that does the work. All write a
//! [`Document`] as they go, can be stopped at any time, and leave nothing but that.

pub mod dirty;
pub mod nas;
pub mod vista;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::link::{CheckPlan, LinkError, LinkSpec, check_until};
use crate::report::{Document, FILE, FileError, LinkProof, ReportError, Warning};
use crate::run::machine::load;

/// Load of the machine above which something else surely runs (a guess).
const LOAD_MAX: f64 = 0.5;

/// Why a lab of this machine ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// There is not enough room.
    #[error("{} has room for {free} bytes, and {needed} are needed", path.display())]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// What there is.
        free: u64,
        /// What there should be.
        needed: u64,
    },
    /// The folder is in memory.
    #[error("{} is in memory: nothing of it is ever written back", path.display())]
    InMemory {
        /// The folder.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// The report cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What shows it cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The link cannot be made.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The server does not start.
    #[error("the private server {0}")]
    Server(String),
    /// We were told to stop.
    #[error("interrupted; what was measured is kept")]
    Interrupted,
}

impl LocalError {
    /// For `map_err`.
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| match source.kind() {
            io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Io { what, source },
        }
    }

    /// What the user can do about it.
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

/// Makes the folder for a report; one that is there moves aside, so that no lab destroys what another one measured.
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

/// Measures the emulated link: all links of packets in the document are this one.
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

/// Whether a file or folder is in memory, as far as that can be told.
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

/// What may make figures wrong from the start: others at work, and folders in memory.
fn doubts(folders: &[&Path]) -> Vec<Warning> {
    let busy = load();
    let memory = folders
        .iter()
        .filter(|folder| File::open(folder).is_ok_and(in_memory))
        .map(|folder| format!("{} is in memory: no disk takes part", folder.display()));
    (busy > LOAD_MAX)
        .then(|| format!("the machine was busy at the start: load average {busy:.2}"))
        .into_iter()
        .chain(memory)
        .map(|text| Warning { cell: None, text })
        .collect()
}

/// Bytes that are free to us where a folder lies.
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let state = rustix::fs::statvfs(folder)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}
