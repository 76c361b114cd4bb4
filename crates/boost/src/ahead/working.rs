//! What was probably in the kernel's memory, and how likely it is to be used again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ropeway_cache::predict::{Block, Moment};
use ropeway_cache::{FileKey, Key, Version};

use super::{Ahead, PRIORITY_LEAST};
use crate::hogs::Brought;
use crate::ranges::BLOCK;
use crate::store::StoreShared;

/// Files due at this time that are looked at, and first blocks of each that no program has read yet.
const DUE_MAX: usize = 200;
const DUE_BLOCKS: u64 = 4;

impl Ahead {
    /// Returns blocks of a share that programs have read in this session, or usually read at this time,
    /// and that are in the cache. Their likelihood is what decayed use and pending predictions
    /// say: uses as the cache's policy counts them, the last use as the mount saw it (it halves each
    /// hour), one for a block that a prediction expects, and the habit of this time of day.
    pub(crate) fn working_set(&self, share: [u8; 16], at: Moment, now: Duration) -> Vec<(Block, f32)> {
        let state = self.state.lock();
        let mut blocks: HashMap<Block, f32> = state.worked.blocks(now).collect();
        let due = state.learned.calendar.due(at, DUE_MAX).into_iter();
        let due: HashMap<u32, f32> = due
            .filter(|due| due.priority >= PRIORITY_LEAST)
            .map(|due| (due.file, due.likelihood))
            .collect();
        for file in due.keys() {
            for index in 0..DUE_BLOCKS {
                if let Some(block) = Block::new(*file, index) {
                    blocks.entry(block).or_insert(0.0);
                }
            }
        }
        let Some(store) = state.stores.get(&share).and_then(std::sync::Weak::upgrade) else {
            return Vec::new();
        };
        let mut files: HashMap<u32, Option<(FileKey, Version)>> = HashMap::new();
        for block in blocks.keys() {
            files.entry(block.file()).or_insert_with(|| {
                let key = state.table.get(block.file())?.key;
                let version = (key.share == share).then(|| store.known_version(&key))??;
                Some((key, version))
            });
        }
        drop(state);
        let likelihood = |(block, last): (Block, f32)| {
            let (file, version) = (*files.get(&block.file())?)?;
            if block.index() * BLOCK >= version.size {
                return None;
            }
            let uses = self.cache.likelihood(&Key {
                file,
                version,
                block: block.index(),
            })?;
            Some((
                block,
                uses + last + due.get(&block.file()).copied().unwrap_or(0.0),
            ))
        };
        blocks.into_iter().filter_map(likelihood).collect()
    }

    /// Returns the store of a share.
    pub(crate) fn store(&self, share: [u8; 16]) -> Option<Arc<StoreShared>> {
        self.state.lock().stores.get(&share)?.upgrade()
    }

    /// Returns the seconds that the source usually takes to answer a program, if that is known.
    pub(crate) fn usual_answer(&self) -> Option<f64> {
        self.state.lock().line.usual()
    }

    /// Counts what was brought back.
    pub(crate) fn with_brought<T>(&self, what: impl FnOnce(&mut Brought) -> T) -> T {
        what(&mut self.state.lock().brought)
    }
}
