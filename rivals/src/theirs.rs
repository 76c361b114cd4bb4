//! foyer, set up as its documentation does, with its default policies: LRU in memory, on disk the
//! blocks with the most invalid data first, then the oldest.

use std::path::Path;

use foyer::{
    BlockEngineConfig, Compression, DeviceBuilder as _, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy,
};
use tokio::runtime::Runtime;

use crate::{Budget, Engine, Outcome};

/// Bytes of its unit of eviction ("block"): 16 MiB by default, smaller where fewer than 64 would
/// fit.
fn unit(flash: usize) -> usize {
    (flash / 64).next_power_of_two().clamp(512 << 10, 16 << 20)
}

/// The cache in a folder.
pub(crate) struct Theirs {
    pub(crate) runtime: Runtime,
    pub(crate) cache: HybridCache<u64, Vec<u8>>,
}

impl Theirs {
    pub(crate) fn new(folder: &Path, budget: Budget) -> Outcome<Self> {
        Self::with(folder, budget, Compression::Lz4, false)
    }

    pub(crate) fn with(
        folder: &Path,
        budget: Budget,
        compression: Compression,
        has_tombstones: bool,
    ) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let cache = runtime.block_on(async {
            let unit = unit(budget.flash);
            let device = FsDeviceBuilder::new(folder)
                .with_capacity(budget.flash / unit * unit)
                .build()?;
            let engine = BlockEngineConfig::new(device)
                .with_block_size(unit)
                .with_tombstone_log(has_tombstones);
            HybridCacheBuilder::new()
                .with_policy(HybridCachePolicy::WriteOnInsertion)
                .memory(budget.memory)
                .with_weighter(|_: &u64, value: &Vec<u8>| value.len())
                .storage()
                .with_engine_config(engine)
                .with_compression(compression)
                .build()
                .await
        })?;
        Ok(Self { runtime, cache })
    }
}

impl Engine for Theirs {
    fn has(&mut self, block: u32) -> Outcome<bool> {
        let found = self
            .runtime
            .block_on(async { self.cache.get(&u64::from(block)).await })?;
        Ok(found.is_some())
    }

    fn insert(&mut self, block: u32, bytes: &[u8]) -> Outcome<()> {
        self.cache.insert(u64::from(block), bytes.to_vec());
        Ok(())
    }

    fn settle(&mut self) -> Outcome<()> {
        self.runtime.block_on(self.cache.storage().wait());
        Ok(())
    }

    fn written(&mut self) -> u64 {
        self.cache.statistics().disk_write_bytes() as u64
    }
}
