//! Our engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ropeway_cache::{Cache, Clock, Config, FileDevice, Hint};

use crate::replay::engine::key;
use crate::{Budget, Engine, Outcome};

/// The cache in a file of a folder.
pub(crate) struct Ours {
    pub(crate) cache: Cache,
}

impl Ours {
    pub(crate) fn new(folder: &Path, budget: Budget) -> Outcome<Self> {
        let device = FileDevice::open(&folder.join("blocks"), budget.flash as u64)?;
        let zero = Instant::now();
        let clock: Clock = Arc::new(move || zero.elapsed());
        let config = Config {
            memory_bytes: budget.memory as u64,
            ..Config::default()
        };
        let (cache, _) = Cache::open(Box::new(device), &[7; 32], &config, clock)?;
        Ok(Self { cache })
    }
}

impl Engine for Ours {
    fn has(&mut self, block: u32) -> Outcome<bool> {
        Ok(self.cache.lookup(&key(block)).is_some())
    }

    fn insert(&mut self, block: u32, bytes: &[u8]) -> Outcome<()> {
        self.cache.insert(&key(block), bytes, Hint::Random);
        Ok(())
    }

    fn settle(&mut self) -> Outcome<()> {
        self.cache.work()?;
        Ok(())
    }

    fn written(&mut self) -> u64 {
        self.cache.stats().bytes_written
    }
}
