//! Passes over files and names: what is timed, and nothing else.
//!
//! ```text
//!   Ground ─┬─ Folder   a local folder: pread and pwrite, io_uring or threads beyond depth 1
//!           └─ Far      any tree, such as a share: its file API with requests in flight
//!   pump    requests in flight on a file of a server, also for `lab nas`
//!   data    the bytes: incompressible, different in each 4 KiB
//!   tally   what a pass counts                                               pure
//!   names   operations on names
//! ```
//!
//! A ground makes one folder of its own and works only inside it.

pub(super) mod data;
mod far;
mod folder;
mod names;
mod pump;
mod queue;
pub(super) mod tally;
mod workers;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::bench::cell::Key;
use crate::bench::result::{NodeOperation, Sample};

pub use far::Far;
pub use folder::{Folder, FolderOptions};
pub use pump::{Records, Sweep};

/// A pass to make.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// What to do.
    pub key: Key,
    /// Number of files of this size, one after the other.
    pub files: u64,
    /// Seed of the order.
    pub seed: u64,
    /// A number that no other pass has; it makes the written bytes new.
    pub number: u64,
    /// Time limit of all files together.
    pub limit: Duration,
    /// Limit of the bytes moved, e.g. those that the pass before has moved.
    pub bytes_max: Option<u64>,
    /// What to do with the page cache before a pass that does not want it warm.
    pub cold: Cold,
    /// Ends the pass when it is set.
    pub stop: &'a AtomicBool,
}

/// What happens to the page cache before a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// Nothing.
    Keep,
    /// The pages of the file are dropped.
    DropFile,
    /// All clean pages of the machine are dropped (needs root).
    DropAll,
}

/// Names to make and remove.
#[derive(Clone, Copy, Debug)]
pub struct NamePass<'a> {
    /// Number of files.
    pub files: u64,
    /// Number of operations in flight.
    pub depth: u32,
    /// Ends the pass when it is set.
    pub stop: &'a AtomicBool,
}

/// Why a pass was not made.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The target cannot do this; it is left out.
    #[error("{why}")]
    Unsupported {
        /// The reason.
        why: String,
        /// Whether that holds for the whole mode, not only for records of this size.
        whole_mode: bool,
    },
    /// Something failed.
    #[error("cannot {what}: {source}")]
    Failed {
        /// The attempted action.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// What was read is not what was written.
    #[error("{0}")]
    Wrong(String),
    /// The run was stopped.
    #[error("interrupted")]
    Stopped,
}

impl PassError {
    /// Returns the error for a mode that the target does not have.
    fn no_mode(why: impl Into<String>) -> Self {
        Self::Unsupported {
            why: why.into(),
            whole_mode: true,
        }
    }

    /// Returns a converter for `map_err`.
    pub(super) fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Failed { what, source }
    }
}

/// Result of a pass.
pub type PassResult<T> = Result<T, PassError>;

/// A place that is measured.
pub trait Ground {
    /// What carries requests in flight, e.g. `io_uring`.
    fn engine(&self) -> &'static str;

    /// Free bytes.
    ///
    /// # Errors
    /// The target does not answer.
    fn free(&mut self) -> PassResult<u64>;

    /// Makes `files` files of this size with content, and makes them durable; existing ones stay.
    /// Ends early after `limit`. Returns the bytes and the time of the writing.
    ///
    /// # Errors
    /// A file cannot be written, or the run was stopped.
    fn fill(&mut self, size: u64, files: u64, limit: Option<Duration>, stop: &AtomicBool)
    -> PassResult<Fill>;

    /// Makes one pass. All but [`Pattern::Write`](super::cell::Pattern) need the filled files.
    ///
    /// # Errors
    /// The target cannot do this, fails, or the run was stopped.
    fn pass(&mut self, pass: &Pass<'_>) -> PassResult<Sample>;

    /// Makes, examines, lists, renames and removes files in a new folder.
    ///
    /// # Errors
    /// An operation failed, or the run was stopped.
    fn names(&mut self, pass: &NamePass<'_>) -> PassResult<Vec<(NodeOperation, Sample)>>;

    /// Removes the files of this size.
    fn empty(&mut self, size: u64);

    /// Removes everything.
    fn finish(&mut self);
}

/// What filling a file has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fill {
    /// Bytes written.
    pub bytes: u64,
    /// Time until they were durable.
    pub seconds: f64,
    /// Share of the size that the volume has allocated, where it tells.
    pub allocated: Option<f64>,
}

/// Returns `Stopped` if the run was stopped.
pub(super) fn check_stop(stop: &AtomicBool) -> PassResult<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(PassError::Stopped),
        false => Ok(()),
    }
}

/// Name of a filled file.
fn file_name(size: u64, number: u64) -> String {
    format!("file-{size}-{number}")
}

/// Name of a file that a pass creates.
fn new_name(number: u64) -> String {
    format!("new-{number}")
}
