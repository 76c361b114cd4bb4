//! What a task did that its records do not say: attributes that the target could not keep, and what earlier claims copied.

use ropeway_vfs::{Loss, RelPath};

use super::{Crew, Move, Moved};
use crate::catalog::{Block, Done, Losses, Record, State};
use crate::error::Result;

/// The account of one task.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What this claim lost and has not published.
    fresh: Losses,
    /// What was lost before, as the segments say, also those of earlier claims.
    published: Losses,
    /// Files that earlier claims copied, and their bytes. To this one they look equal; those that it copies once more
    /// count twice.
    copied: (u64, u64),
}

impl Ledger {
    /// Adds what a segment of an earlier claim says.
    pub(super) fn inherit(&mut self, block: &Block) {
        match block {
            Block::Lost(losses) => self.published.add(losses),
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
            self.state.lock().ledger.fresh.note(losses);
        }
    }

    /// Copies nodes into a stage, and notes what the target could not keep of them.
    pub(super) async fn copy_moves(&self, stage: &RelPath, moves: &[Move]) -> Result<Vec<Moved>> {
        let moved = self.mover.copy(stage, moves).await?;
        let losses = self.mover.take_losses();
        self.state.lock().ledger.fresh.add(&losses);
        Ok(moved)
    }

    /// Returns what was lost since the last segment, for the next one: whoever takes the task over must know.
    pub(super) fn fresh_losses(&self) -> Losses {
        let mut state = self.state.lock();
        let fresh = std::mem::take(&mut state.ledger.fresh);
        state.ledger.published.add(&fresh);
        fresh
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
        done.losses.add(&ledger.published);
        done.losses.add(&ledger.fresh);
        done.sums.copied += ledger.copied.0;
        done.sums.copied_bytes = done.sums.copied_bytes.saturating_add(ledger.copied.1);
        done
    }
}
