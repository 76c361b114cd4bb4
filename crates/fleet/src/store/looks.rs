//! What a view of a job reads: when something was written, by the clock of the target.

use ropeway_vfs::{ErrorKind, Timestamp};

use super::Store;
use crate::catalog::Done;
use crate::error::{Error, Result};
use crate::task::TaskId;
use crate::workers::{Beat, WorkerId};

impl Store {
    /// Returns the time by the clock of the target, which need not be that of this machine. It makes a file and removes
    /// it again.
    ///
    /// # Errors
    /// The catalog cannot be written to.
    pub async fn now(&self) -> Result<Timestamp> {
        self.files.now().await.map_err(Error::target)
    }

    /// Returns the signs of life of all processes, with their times.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn dated_beats(&self) -> Result<Vec<(WorkerId, Beat, Timestamp)>> {
        let folder = self.folder("workers");
        let names = self.files.names(&folder, b"").await.map_err(Error::target)?;
        let mut beats = Vec::new();
        for worker in names.iter().filter_map(|name| WorkerId::parse(name.as_bytes())) {
            let found = match self.files.read_dated(&self.path("workers", worker)).await {
                // Somebody else's, who does not belong to the job.
                Err(error) if error.kind == ErrorKind::PermissionDenied => None,
                found => found.map_err(Error::target)?,
            };
            if let Some((bytes, at)) = found
                && let Some(beat) = Beat::decode(&bytes)
            {
                beats.push((worker, beat, at));
            }
        }
        Ok(beats)
    }

    /// Returns what is known of a task that is done, and when it ended.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub async fn dated_done(&self, task: TaskId) -> Result<Option<(Done, Timestamp)>> {
        let found = self.files.read_dated(&self.path("done", task)).await;
        let Some((bytes, at)) = found.map_err(Error::target)? else {
            return Ok(None);
        };
        match Done::decode(&bytes) {
            Some(done) => Ok(Some((done, at))),
            None => Err(Error::Damaged(format!("done/{task}"))),
        }
    }
}
