//! Epochs of claims in a bucket of the server.

use async_nats::jetstream::kv::{CreateErrorKind, Store as Bucket, UpdateErrorKind};
use ropeway_fleet::claim::Epoch;
use ropeway_fleet::error::{Error, Result};
use ropeway_fleet::task::TaskId;

/// Attempts to raise an epoch that others raise at the same time.
const TRIES: usize = 20;

/// Claims that the bucket may count and the catalog may not know: of workers that died before they began.
const AHEAD_MAX: u32 = 10_000;

/// Counts the claims of each task.
pub(crate) struct Epochs {
    bucket: Bucket,
}

impl Epochs {
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self { bucket }
    }

    /// Raises the epoch of a task: to the next one, and to `least` at least. Nobody else gets the same one, unless
    /// the server forgets.
    pub(crate) async fn raise(&self, task: TaskId, least: Epoch) -> Result<Epoch> {
        let key = task.to_string();
        for _ in 0..TRIES {
            let entry = self.bucket.entry(&key).await;
            let entry = entry.map_err(|error| Error::queue(error.to_string()))?;
            // What is no number was written by somebody else.
            let known = entry.as_ref().and_then(|entry| number(&entry.value));
            let next = Epoch(known.unwrap_or(0).saturating_add(1)).max(least);
            // So far ahead of the catalog is no count of claims.
            let next = if next.0 - least.0 > AHEAD_MAX { least } else { next };
            let value = next.0.to_string().into();
            let is_raised = match &entry {
                Some(entry) => match self.bucket.update(&key, value, entry.revision).await {
                    Ok(_) => true,
                    Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => false,
                    Err(error) => return Err(Error::queue(error.to_string())),
                },
                None => match self.bucket.create(&key, value).await {
                    Ok(_) => true,
                    Err(error) if error.kind() == CreateErrorKind::AlreadyExists => false,
                    Err(error) => return Err(Error::queue(error.to_string())),
                },
            };
            if is_raised {
                return Ok(next);
            }
        }
        Err(Error::queue(format!("others claim the task {key} all the time")))
    }

    /// Forgets a task that is done.
    pub(crate) async fn forget(&self, task: TaskId) {
        if let Err(error) = self.bucket.purge(task.to_string()).await {
            tracing::debug!(%error, "an epoch stays in the bucket");
        }
    }
}

fn number(value: &[u8]) -> Option<u32> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
