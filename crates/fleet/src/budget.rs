//! What a job may ask of its ends: budgets that all of its workers share.
//!
//! Each worker takes an equal share of the operations, as it does of the rate in bytes, and steps back by itself
//! from an end that takes longer than the goal. Nobody hands budgets out, so nobody must live.
//!
//! The catalog is not part of it: it goes through the tree of the target without a budget. A worker whose signs of
//! life waited for their turn would look dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropeway_vfs::decorate::ops::{LimitOps, OpsLimit};
use ropeway_vfs::decorate::relief::{Relief, Relieved};
use ropeway_vfs::{Clock, Tree};
use serde::{Deserialize, Serialize};

/// Workers among which a budget is divided until it is known how many there are: for a moment at the start.
const SHARERS_UNKNOWN: u64 = 16;

/// Returns among how many workers a budget is divided, from [`Crew::sharers`](crate::run::Crew::sharers).
pub fn sharers(known: &AtomicU64) -> u64 {
    match known.load(Ordering::Relaxed) {
        0 => SHARERS_UNKNOWN,
        known => known,
    }
}

/// What all workers together may ask of one end. Nothing is limited by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Operations on names and attributes a second.
    pub ops: Option<u64>,
    /// Time in milliseconds that one operation should take at most.
    pub latency_ms: Option<u64>,
}

impl Budget {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// The share of one worker in the budgets of a job.
#[derive(Default)]
pub struct Shares {
    ops: Vec<Arc<OpsLimit>>,
    reliefs: Vec<Arc<Relief>>,
}

impl Shares {
    /// Makes a tree that keeps to this worker's share of a budget. `sharers`: how many workers are at work; 0 while
    /// that is not known.
    pub fn keep(
        &mut self,
        budget: Budget,
        tree: Arc<dyn Tree>,
        sharers: &Arc<AtomicU64>,
        clock: &Arc<dyn Clock>,
    ) -> Arc<dyn Tree> {
        let mut tree = tree;
        if let Some(goal) = budget.latency_ms {
            let relief = Relief::new(Duration::from_millis(goal), Arc::clone(clock));
            tree = Relieved::new(tree, Arc::clone(&relief));
            self.reliefs.push(relief);
        }
        if let Some(ops) = budget.ops {
            let known = Arc::clone(sharers);
            let limit = OpsLimit::new(ops, move || self::sharers(&known), Arc::clone(clock));
            // The time in which an operation waits for its turn is none of the end.
            tree = LimitOps::new(tree, Arc::clone(&limit));
            self.ops.push(limit);
        }
        tree
    }

    /// Returns the time for which budgets held this worker back. Those of the ends may overlap.
    pub fn held_back(&self) -> Duration {
        let ops = self.ops.iter().map(|limit| limit.held_back());
        ops.chain(self.reliefs.iter().map(|relief| relief.held_back()))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use ropeway_vfs::clock::simulate;
    use ropeway_vfs::{MemoryTree, RelPath, VirtualClock};

    use super::*;

    #[test]
    fn a_worker_takes_a_small_share_until_it_knows_the_others() {
        let time = VirtualClock::new();
        let clock: Arc<dyn Clock> = Arc::new(time.clone());
        let (known, mut shares) = (Arc::new(AtomicU64::new(0)), Shares::default());
        let budget = Budget {
            ops: Some(16),
            latency_ms: Some(1_000),
        };
        let tree = shares.keep(budget, Arc::new(MemoryTree::new()), &known, &clock);
        let root = RelPath::root();
        simulate(&time, async {
            for _ in 0..5 {
                tree.metadata(&root).await.unwrap();
            }
            assert_eq!(time.now().as_secs(), 5);
            known.store(2, Ordering::Relaxed);
            for _ in 0..40 {
                tree.metadata(&root).await.unwrap();
            }
        });
        assert_eq!(time.now().as_secs(), 10);
        assert_eq!(shares.held_back().as_secs(), 10);
        assert!(!budget.is_unlimited() && Budget::default().is_unlimited());
    }
}
