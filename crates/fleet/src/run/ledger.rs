//! What a task did that its records do not say: attributes that the target could not keep, and what earlier claims copied.

use ropeway_vfs::Loss;

use super::Crew;
use crate::catalog::{Block, Done, Losses, Record, State};

/// The account of one task.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What this claim lost and has not published.
    fresh: Losses,
    /// What was lost in all, by earlier claims too.
    lost: Losses,
    /// Files that earlier claims copied, and their bytes. To this one they look equal; those that it copies once more
    /// count twice.
    copied: (u64, u64),
}

impl Ledger {
    /// Adds what a segment of an earlier claim says.
    pub(super) fn inherit(&mut self, block: &Block) {
        match block {
            Block::Lost(losses) => self.lost.add(losses),
            Block::Records(records) => {
                let is_copied = |record: &&Record| matches!(record.state, State::Copied { .. });
                for record in records.iter().filter(is_copied) {
                    self.copied.0 += 1;
                    self.copied.1 = self.copied.1.saturating_add(record.size);
                }
            }
            Block::Given(_) => {}
        }
    }
}

impl Crew {
    /// Notes attributes of one node that the target could not keep.
    pub(super) fn lose(&self, losses: &[Loss]) {
        if !losses.is_empty() {
            let mut state = self.state.lock();
            state.ledger.fresh.note(losses);
            state.ledger.lost.note(losses);
        }
    }

    /// The same of many nodes.
    pub(super) fn lose_all(&self, losses: &Losses) {
        let mut state = self.state.lock();
        state.ledger.fresh.add(losses);
        state.ledger.lost.add(losses);
    }

    /// Returns what was lost since the last segment, for the next one: whoever takes the task over must know.
    pub(super) fn fresh_losses(&self) -> Losses {
        std::mem::take(&mut self.state.lock().ledger.fresh)
    }

    /// Begins the account of a task.
    pub(super) fn open_ledger(&self, ledger: Ledger) {
        // Those of a copy that ended early, which is made again.
        drop(self.mover.take_losses());
        self.state.lock().ledger = ledger;
    }

    /// Adds the account to what is noted of a task that is done.
    pub(super) fn with_ledger(&self, mut done: Done) -> Done {
        let ledger = std::mem::take(&mut self.state.lock().ledger);
        done.losses.add(&ledger.lost);
        done.sums.copied += ledger.copied.0;
        done.sums.copied_bytes = done.sums.copied_bytes.saturating_add(ledger.copied.1);
        done
    }
}
