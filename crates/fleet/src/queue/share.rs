//! The queue that needs no service: the catalog itself.
//!
//! A task is free if it has no claim, if its last claim was given back, or if the holder of that
//! claim shows no sign of life for the span of a lease, on the clock of whoever looks. A task at
//! which the holder makes no progress for several leases is a straggler and free as well, if nothing
//! else is left to take. The claim itself is made by [`Store::begin`], so of several workers that
//! find the same task free only one gets it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::{Clock, Pending};

use super::{Message, Queue};
use crate::claim::{ClaimId, Claims, Epoch, Leases};
use crate::error::Result;
use crate::store::Store;
use crate::task::{Task, TaskId};
use crate::workers::{Activity, Beat, WorkerId};

/// Leases without progress after which a task counts as a straggler. A guess: a flush of a slow
/// device may take a minute.
const STRAGGLER_LEASES: u32 = 10;

/// A task that may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The task.
    pub message: Message,
    /// Whether its holder shows signs of life, but no progress.
    pub is_straggler: bool,
}

/// The queue of one process.
pub struct ShareQueue {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    /// Signs of life of workers, and claims whose holder is not known.
    workers: Leases<WorkerId>,
    unknown: Leases<ClaimId>,
    /// Progress of holders.
    progress: Leases<ClaimId>,
    holders: HashMap<ClaimId, WorkerId>,
    random: fastrand::Rng,
}

impl ShareQueue {
    /// Makes the queue of a process. `lease` is the time without a sign of life after which others
    /// take over; `seed` spreads workers over the tasks.
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>, lease: Duration, seed: u64) -> Self {
        let state = State {
            workers: Leases::new(lease),
            unknown: Leases::new(lease),
            progress: Leases::new(lease * STRAGGLER_LEASES),
            holders: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
        };
        Self {
            store,
            clock,
            state: Mutex::new(state),
        }
    }

    /// Finds a task that nobody works on, or a straggler.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn find(&self) -> Result<Option<Found>> {
        let mut tasks = self.store.tasks().await?;
        if tasks.is_empty() {
            return Ok(None);
        }
        self.state.lock().random.shuffle(&mut tasks);
        let claims = self.store.claims().await?;
        let beats: HashMap<WorkerId, Beat> = self.store.beats().await?.into_iter().collect();
        let mut stragglers = Vec::new();
        for task in tasks {
            let free = match claims.last(task) {
                None => true,
                Some(epoch) => {
                    let claim = ClaimId { task, epoch };
                    let (is_free, is_straggler) = self.judge(claim, &beats).await?;
                    if is_straggler {
                        stragglers.push(task);
                    }
                    is_free
                }
            };
            if free && let Some(message) = self.message(task, &claims).await? {
                return Ok(Some(Found {
                    message,
                    is_straggler: false,
                }));
            }
        }
        for task in stragglers {
            if let Some(message) = self.message(task, &claims).await? {
                return Ok(Some(Found {
                    message,
                    is_straggler: true,
                }));
            }
        }
        Ok(None)
    }

    /// Whether a claim is over, and whether its task is a straggler.
    async fn judge(&self, claim: ClaimId, beats: &HashMap<WorkerId, Beat>) -> Result<(bool, bool)> {
        let known = self.state.lock().holders.get(&claim).copied();
        let holder = match known {
            Some(holder) => Some(holder),
            None => self.store.holder(claim).await?,
        };
        let now = self.clock.now();
        let is_alive = {
            let mut state = self.state.lock();
            match holder {
                // A process works on one task at a time, and this one looks for another.
                Some(holder) if holder == self.store.worker() => return Ok((true, false)),
                Some(holder) => {
                    state.holders.insert(claim, holder);
                    let beat = beats.get(&holder);
                    let has_left = beat.is_some_and(|beat| beat.activity == Activity::Left);
                    !has_left
                        && state
                            .workers
                            .observe(now, &holder, beat.map_or(0, |beat| beat.beat))
                }
                None => state.unknown.observe(now, &claim, 0),
            }
        };
        let is_released = match holder {
            Some(holder) if is_alive => self.store.is_released(claim, holder).await?,
            _ => false,
        };
        if !is_alive || is_released {
            return Ok((true, false));
        }
        let progress = holder
            .and_then(|holder| beats.get(&holder))
            .map_or(0, |beat| beat.progress);
        let moves = self.state.lock().progress.observe(now, &claim, progress);
        Ok((false, !moves))
    }

    async fn message(&self, task: TaskId, claims: &Claims) -> Result<Option<Message>> {
        let claim = ClaimId {
            task,
            epoch: claims.next(task),
        };
        Ok(self.store.task(task).await?.map(|task| Message { task, claim }))
    }
}

impl Queue for ShareQueue {
    fn offer<'a>(&'a self, task: &'a Task, _: Epoch) -> Pending<'a, Result<()>> {
        // The catalog has it, and the next epoch follows from the claims there.
        Box::pin(self.store.birth(task))
    }

    fn take(&self) -> Pending<'_, Result<Option<Message>>> {
        Box::pin(async { Ok(self.find().await?.map(|found| found.message)) })
    }

    fn renew<'a>(&'a self, _: &'a Message) -> Pending<'a, Result<()>> {
        // The signs of life of the worker do that.
        Box::pin(async { Ok(()) })
    }

    fn ack<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        self.state
            .lock()
            .holders
            .retain(|claim, _| claim.task != message.claim.task);
        Box::pin(async { Ok(()) })
    }

    fn release<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>> {
        Box::pin(self.store.release(message.claim))
    }
}
