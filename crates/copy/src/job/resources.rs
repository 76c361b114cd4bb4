//! The bounded resources that the tasks of a job share: blocks, and permits for what is in
//! progress.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_plan::Tuner;
use ropeway_vfs::Tree;
use tokio::sync::{OnceCell, Semaphore};

use crate::transfer::pipeline::SmallFilePipeline;

/// Blocks beyond what is in flight, which wait to be hashed. A guess.
const BLOCKS_WAITING: usize = 2;

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
    /// Trees behind a long line, which say how much it needs in flight.
    far_ends: Vec<Arc<dyn Tree>>,
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
            far_ends: Vec::new(),
        }
    }

    /// Has what is in flight follow the long lines to these trees.
    pub(crate) fn following(mut self, far_ends: Vec<Arc<dyn Tree>>) -> Self {
        self.far_ends = far_ends;
        self
    }

    /// Allows as many blocks as the line needs now. Returns the number that should be in flight for one
    /// file; 0 where no long line says so.
    pub(crate) fn follow_line(&self) -> usize {
        let Some(wanted) = self.far_ends.iter().map(|tree| tree.bytes_in_flight()).max() else {
            return 0;
        };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let block = self.pool.block_size();
        // What large files have in flight, small ones need not, and the other way round.
        let large = self.pool.in_use() * block;
        let small_files = self.small_files.as_ref();
        let small = small_files.map_or(0, |small_files| {
            small_files.set_room(wanted.saturating_sub(large))
        });
        self.pool
            .set_usable(wanted.saturating_sub(small) / block + BLOCKS_WAITING);
        self.pool.usable()
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
