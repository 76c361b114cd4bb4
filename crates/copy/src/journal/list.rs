//! Lists unfinished jobs from their journals.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use ropeway_plan::Nonce;
use ropeway_vfs::{RelPath, Timestamp};
use rustix::fs::FlockOperation;

use crate::journal::record::{Record, next_record, recorded_places};
use crate::journal::store::{FILE_NAME, LOST_NAME};

/// A job that has a journal.
#[derive(Clone, Debug)]
pub struct UnfinishedJob {
    /// [`JobKey::id`](crate::JobKey::id).
    pub id: String,
    /// Its sources as the user wrote them; empty if the journal cannot be read.
    pub sources: Vec<String>,
    /// Its target.
    pub target: String,
    /// Time of the last record.
    pub last: Timestamp,
    /// Whether it runs.
    pub running: bool,
    /// The nonce of its temporary names, if the journal can be read.
    pub nonce: Option<Nonce>,
    /// Folders of the target in which it made temporary names.
    pub places: Vec<RelPath>,
}

/// Returns all jobs with a journal in a folder, the last used first.
///
/// # Errors
/// The folder cannot be read. A missing folder holds no journal.
pub fn unfinished_jobs(state_dir: &Path) -> io::Result<Vec<UnfinishedJob>> {
    let entries = match fs::read_dir(state_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut jobs = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        let journal = [FILE_NAME, LOST_NAME].map(|name| folder.join(name));
        let journal = journal.into_iter().find(|path| path.is_file());
        if let Some((journal, id)) = journal.zip(folder.file_name().and_then(|name| name.to_str())) {
            jobs.push(examine(&journal, id)?);
        }
    }
    jobs.sort_by_key(|job| std::cmp::Reverse(job.last));
    Ok(jobs)
}

fn examine(journal: &Path, id: &str) -> io::Result<UnfinishedJob> {
    let file = File::open(journal)?;
    let running = is_locked(&file)?;
    let changed = file.metadata()?.modified()?;
    let last = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
    let bytes = fs::read(journal)?;
    let (mut at, mut begin) = (0, None);
    while let Some((record, next)) = next_record(&bytes, at) {
        if let Record::Begin(last) = record {
            begin = Some(last);
        }
        at = next;
    }
    Ok(UnfinishedJob {
        id: id.to_owned(),
        last: Timestamp(i128::try_from(last.as_nanos()).unwrap_or_default()),
        running,
        nonce: begin.as_ref().map(|begin| Nonce(begin.nonce)),
        places: recorded_places(&bytes),
        target: begin
            .as_ref()
            .map(|begin| begin.target.clone())
            .unwrap_or_default(),
        sources: begin.map(|begin| begin.sources).unwrap_or_default(),
    })
}

fn is_locked(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        // Released at once: a copy that begins now must not be refused.
        Ok(()) => {
            rustix::fs::flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Removes the journal of a job. The next run of the same copy begins anew.
///
/// # Errors
/// It cannot be removed, or (`WouldBlock`) the job runs.
pub fn forget_job(state_dir: &Path, id: &str) -> io::Result<()> {
    let folder = state_dir.join(id);
    let journal = File::open(folder.join(FILE_NAME));
    if let Ok(journal) = &journal {
        rustix::fs::flock(journal, FlockOperation::NonBlockingLockExclusive)?;
    }
    fs::remove_dir_all(&folder)
}
