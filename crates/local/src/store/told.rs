//! Times of change that clients have set.
//!
//! Linux sets a node's time of change itself. What a client wants it to be (a restore, a copy of a copy) is told instead of
//! it until the node changes again, which shows in the true one. It is kept in memory only, so a restart forgets it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{FileId, Timestamp};

/// Nodes remembered; beyond, all are forgotten. 64 bytes each.
const NODES_MAX: usize = 65_536;

/// What is to be told, and what was true then.
#[derive(Clone, Copy)]
struct Told {
    changed: Timestamp,
    truth: Timestamp,
}

/// Times that are told instead of the true ones.
#[derive(Default)]
pub(super) struct ToldTimes {
    any: AtomicBool,
    nodes: Mutex<HashMap<FileId, Told>>,
}

impl ToldTimes {
    /// From now on `changed` is told of a node; `stat` is true.
    pub(super) fn tell(&self, stat: &NodeStat, changed: Timestamp) {
        let mut nodes = self.nodes.lock();
        if nodes.len() >= NODES_MAX {
            nodes.clear();
        }
        let truth = stat.changed;
        nodes.insert(stat.id, Told { changed, truth });
        self.any.store(true, Ordering::Release);
    }

    /// Attributes as they are to be told.
    pub(super) fn apply(&self, mut stat: NodeStat) -> NodeStat {
        if !self.any.load(Ordering::Acquire) {
            return stat;
        }
        let nodes = self.nodes.lock();
        if let Some(told) = nodes.get(&stat.id).filter(|told| told.truth == stat.changed) {
            stat.changed = told.changed;
        }
        stat
    }
}
