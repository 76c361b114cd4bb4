//! Teaches a cache from a recording what will be asked of it.

use std::io::BufRead;
use std::path::Path;

use ropeway_cache::recording::{Reader, RecordingError};

pub use crate::ahead::learn::LearnedFigures;
use crate::ahead::learn::Learner;
use crate::folder::{self, FolderError, LEARNED, replace};
use crate::session;

/// Why nothing was learned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// The cache cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The recording has neither opens nor reads.
    #[error("nothing was opened or read")]
    Empty,
}

/// Teaches the cache of a folder what a recording says, on top of what it knows. The cache must not
/// be in use. Nothing is changed if the recording is damaged.
///
/// # Errors
/// The cache is in use or cannot be used; the recording cannot be read, or has nothing in it.
pub fn learn(path: &Path, recording: impl BufRead) -> Result<LearnedFigures, LearnError> {
    // Held to the end: a session would save over it.
    let held = folder::open(path)?;
    let blocks = session::predicted_blocks(&held);
    let mut learner = Learner::new(blocks, session::learned(&held, blocks).as_deref());
    for record in Reader::new(recording) {
        learner.take(record?);
    }
    let (bytes, figures) = learner.finish();
    if figures.opens + figures.reads == 0 {
        return Err(LearnError::Empty);
    }
    let at = path.join(LEARNED);
    replace(&at, &bytes).map_err(|error| FolderError::Io { path: at, error })?;
    drop(held);
    Ok(figures)
}
