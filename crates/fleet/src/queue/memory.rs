//! A queue in memory, as a server of messages would be, with every fault that such a server may
//! have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::{Clock, Pending};

use super::{Message, Queue};
use crate::claim::{ClaimId, Epoch};
use crate::error::{Error, Result};
use crate::task::{Task, TaskId};

/// Faults of a [`MemoryQueue`], each as one chance in so many; 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFaults {
    /// An offered task is confirmed and forgotten.
    pub lose_offer: u32,
    /// An offer is refused.
    pub refuse_offer: u32,
    /// A call for a task fails.
    pub refuse_take: u32,
    /// A confirmed acknowledgement is forgotten.
    pub lose_ack: u32,
    /// A task is handed out although another holds it, as the same claim.
    pub repeat: u32,
    /// A task is handed out long before the time of its holder is over.
    pub early: u32,
    /// The count of claims of a task is lost: epochs begin again.
    pub lose_epoch: u32,
    /// A reply comes late, by up to three leases.
    pub delay: u32,
}

/// A queue that all workers of one process share.
#[derive(Clone)]
pub struct MemoryQueue {
    clock: Arc<dyn Clock>,
    lease: Duration,
    faults: QueueFaults,
    state: Arc<Mutex<State>>,
}

struct State {
    random: fastrand::Rng,
    tasks: BTreeMap<TaskId, Entry>,
}

struct Entry {
    task: Task,
    epoch: Epoch,
    /// When it may be handed out again.
    free_at: Duration,
}

impl MemoryQueue {
    /// Makes an empty queue with faults by seed.
    pub fn new(clock: Arc<dyn Clock>, lease: Duration, faults: QueueFaults, seed: u64) -> Self {
        let state = State {
            random: fastrand::Rng::with_seed(seed),
            tasks: BTreeMap::new(),
        };
        Self {
            clock,
            lease,
            faults,
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn happens(&self, one_in: u32) -> bool {
        one_in > 0 && self.state.lock().random.u32(0..one_in) == 0
    }

    /// Waits as a late reply does.
    async fn reply(&self) {
        if self.happens(self.faults.delay) {
            let most = 3 * self.lease.as_millis() as u64;
            let wait = Duration::from_millis(self.state.lock().random.u64(0..most));
            self.clock.sleep_until(self.clock.now() + wait).await;
        }
    }

    fn pick(&self) -> Option<Message> {
        let (early, repeat) = (self.happens(self.faults.early), self.happens(self.faults.repeat));
        let lose_epoch = self.happens(self.faults.lose_epoch);
        let now = self.clock.now();
        let mut state = self.state.lock();
        let free = |entry: &&Entry| entry.free_at <= now || early || repeat;
        let ids: Vec<TaskId> = state
            .tasks
            .values()
            .filter(free)
            .map(|entry| entry.task.id())
            .collect();
        let id = *state.random.choice(&ids)?;
        let entry = state.tasks.get_mut(&id)?;
        if lose_epoch {
            entry.epoch = Epoch(0);
        }
        if entry.free_at <= now || !repeat {
            entry.epoch = entry.epoch.next();
            entry.free_at = now + self.lease;
        }
        Some(Message {
            task: entry.task.clone(),
            claim: ClaimId {
                task: id,
                epoch: Epoch(entry.epoch.0.max(1)),
            },
        })
    }
}

impl Queue for MemoryQueue {
    fn offer<'a>(&'a self, task: &'a Task, least: Epoch) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            if self.happens(self.faults.refuse_offer) {
                return Err(Error::queue("refused"));
            }
            if !self.happens(self.faults.lose_offer) {
                let now = self.clock.now();
                let mut state = self.state.lock();
                let before = Epoch(least.0.saturating_sub(1));
                let entry = state.tasks.entry(task.id()).or_insert(Entry {
                    task: task.clone(),
                    epoch: before,
                    free_at: now,
                });
                entry.epoch = entry.epoch.max(before);
            }
            self.reply().await;
            Ok(())
        })
    }

    fn take(&self) -> Pending<'_, Result<Option<Message>>> {
        Box::pin(async move {
            if self.happens(self.faults.refuse_take) {
                return Err(Error::queue("refused"));
            }
            let picked = self.pick();
            self.reply().await;
            Ok(picked)
        })
    }

    fn renew<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let free_at = self.clock.now() + self.lease;
            if let Some(entry) = self.state.lock().tasks.get_mut(&message.claim.task)
                && entry.epoch == message.claim.epoch
            {
                entry.free_at = free_at;
            }
            self.reply().await;
            Ok(())
        })
    }

    fn ack<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            if !self.happens(self.faults.lose_ack) {
                // Not fenced: whoever acknowledges ends the task.
                self.state.lock().tasks.remove(&message.claim.task);
            }
            self.reply().await;
            Ok(())
        })
    }

    fn release<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let now = self.clock.now();
            if let Some(entry) = self.state.lock().tasks.get_mut(&message.claim.task)
                && entry.epoch == message.claim.epoch
            {
                entry.free_at = now;
            }
            self.reply().await;
            Ok(())
        })
    }
}
