//! The bounded resources that the tasks of a job share: blocks, and permits for what is in
//! progress.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_plan::Tuner;
use tokio::sync::{OnceCell, Semaphore};

use crate::transfer::pipeline::SmallFilePipeline;

/// The bounded resources of a job.
pub(crate) struct Resources {
    pub(crate) pool: Pool,
    /// Chooses size and number of blocks in flight.
    pub(crate) tuner: Mutex<Tuner>,
    /// Bytes a second of the line between the ends, as a sample of a changed file has shown.
    pub(crate) line: OnceCell<u64>,
    /// Bounds batches and special nodes under way.
    pub(crate) batches: Arc<Semaphore>,
    batches_max: usize,
    /// Bounds files that go through blocks.
    pub(crate) streams: Arc<Semaphore>,
    /// Permits of `streams`.
    pub(crate) streams_max: usize,
    /// Small files that are copied one by one between two sides, many in flight. `None` where
    /// batches do that, and for a historic engine.
    pub(crate) small_files: Option<SmallFilePipeline>,
}

impl Resources {
    /// Makes the resources of a job, with as many permits as given.
    pub(crate) fn new(
        (pool, tuner): (Pool, Tuner),
        batches_max: usize,
        streams_max: usize,
        small_files: Option<SmallFilePipeline>,
    ) -> Self {
        Self {
            pool,
            tuner: tuner.into(),
            line: OnceCell::new(),
            batches: Arc::new(Semaphore::new(batches_max)),
            batches_max,
            streams: Arc::new(Semaphore::new(streams_max)),
            streams_max,
            small_files,
        }
    }

    /// Whether calls cost a round trip on either side, so that many must be under way.
    pub(crate) fn needs_many_calls(&self) -> bool {
        self.small_files.is_some()
    }

    /// Waits until nothing is under way: until every permit is back.
    pub(crate) async fn all_idle(&self) {
        let all = |permits: usize| u32::try_from(permits).unwrap_or(u32::MAX);
        drop(self.batches.acquire_many(all(self.batches_max)).await);
        drop(self.streams.acquire_many(all(self.streams_max)).await);
        if let Some(small_files) = &self.small_files {
            small_files.all_idle().await;
        }
    }
}
