//! Change times (ctime) that clients have set.
//!
//! Linux sets the change time of a node itself. If a client sets another one (a restore, a copy of a copy),
//! the store reports that one until the real one changes again. It is kept in memory only: a restart forgets
//! it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{FileId, Timestamp};

/// Most nodes remembered; beyond, all are forgotten. 64 bytes each.
const NODES_MAX: usize = 65_536;

/// The time to report, and the real one when it was set.
#[derive(Clone, Copy)]
struct Told {
    changed: Timestamp,
    truth: Timestamp,
}

/// Change times to report instead of the real ones.
#[derive(Default)]
pub(super) struct ChangeTimes {
    any: AtomicBool,
    nodes: Mutex<HashMap<FileId, Told>>,
}

impl ChangeTimes {
    /// Reports `changed` for a node from now on; `stat` holds the real times.
    pub(super) fn tell(&self, stat: &NodeStat, changed: Timestamp) {
        let mut nodes = self.nodes.lock();
        if nodes.len() >= NODES_MAX {
            nodes.clear();
        }
        let truth = stat.changed;
        nodes.insert(stat.id, Told { changed, truth });
        self.any.store(true, Ordering::Release);
    }

    /// Returns attributes with the change time to report.
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
