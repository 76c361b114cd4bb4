//! Signs of life, and the tasks that each resume adds.

use super::Store;
use crate::catalog::{Block, SegmentReader};
use crate::error::{Error, Result};
use crate::files::name;
use crate::task::Task;
use crate::workers::{Beat, WorkerId};

/// Times that a job is resumed at most. A guess: nobody resumes so often.
pub(crate) const ROUNDS_MAX: usize = 1_000;

impl Store {
    /// Shows a sign of life of this process.
    ///
    /// # Errors
    /// The catalog cannot be written to.
    pub async fn beat(&self, beat: &Beat) -> Result<()> {
        let path = self.path("workers", self.worker);
        self.files
            .replace(&path, &beat.encode())
            .await
            .map_err(Error::target)
    }

    /// Returns the signs of life of all processes.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn beats(&self) -> Result<Vec<(WorkerId, Beat)>> {
        let dated = self.dated_beats().await?;
        Ok(dated
            .into_iter()
            .map(|(worker, beat, _)| (worker, beat))
            .collect())
    }

    /// Adds the tasks of one more round. Returns whether this call did.
    ///
    /// # Errors
    /// The catalog cannot be written to.
    pub async fn add_round(&self, round: u32, tasks: &[Task]) -> Result<bool> {
        let mut bytes = Vec::new();
        crate::catalog::encode_given(&mut bytes, tasks);
        let published = self
            .files
            .publish(&self.folder("rounds"), &name(&format!("{round:08x}")), &bytes)
            .await;
        published.map_err(Error::target)
    }

    /// Returns the tasks of all rounds after the first, in order.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn rounds(&self) -> Result<Vec<Vec<Task>>> {
        let folder = self.folder("rounds");
        let mut names = self.files.names(&folder, b"").await.map_err(Error::target)?;
        names.sort_unstable();
        if names.len() > ROUNDS_MAX {
            return Err(Error::Damaged("rounds".to_owned()));
        }
        let mut rounds = Vec::new();
        for name in names {
            let bytes = self
                .files
                .read(&folder.join(&name))
                .await
                .map_err(Error::target)?;
            let blocks = SegmentReader::all(&bytes.unwrap_or_default());
            let blocks = blocks.ok_or_else(|| Error::Damaged(format!("rounds/{name}")))?;
            let given = blocks.into_iter().filter_map(|block| match block {
                Block::Given(tasks) => Some(tasks),
                Block::Records(_) | Block::Lost(_) => None,
            });
            rounds.push(given.flatten().collect());
        }
        Ok(rounds)
    }
}
