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

/// Tasks of a listing from which it is kept for further looks. Less is listed as fast as asked for one by one.
/// A guess.
const LISTED_MIN: usize = 64;

/// Tasks that are kept of a listing: 64 KiB.
const LISTED_MAX: usize = 4_096;

/// The queue of one process.
pub struct ShareQueue {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    lease: Duration,
    state: Mutex<State>,
}

struct State {
    /// Signs of life of workers, and claims whose holder is not known.
    workers: Leases<WorkerId>,
    unknown: Leases<ClaimId>,
    /// Progress of holders.
    progress: Leases<ClaimId>,
    holders: HashMap<ClaimId, WorkerId>,
    /// Tasks that nobody had claimed at the last listing, and when that was.
    listed: Vec<TaskId>,
    listed_at: Duration,
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
            listed: Vec::new(),
            listed_at: Duration::ZERO,
            random: fastrand::Rng::with_seed(seed),
        };
        Self {
            store,
            clock,
            lease,
            state: Mutex::new(state),
        }
    }

    /// Finds a task that nobody works on, or a straggler.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn find(&self) -> Result<Option<Found>> {
        match self.find_listed().await? {
            Some(message) => Ok(Some(Found {
                message,
                is_straggler: false,
            })),
            None => self.find_anew().await,
        }
    }

    /// Returns the smallest epoch that a further claim of a task may have, if nobody works on it. A holder counts as alive
    /// until this process has seen no sign of life for the span of a lease.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn next_if_free(&self, task: TaskId) -> Result<Option<Epoch>> {
        let claims = self.store.claims_of(task).await?;
        if let Some(epoch) = claims.last(task) {
            let beats = self.store.beats().await?.into_iter().collect();
            let (is_free, _) = self.judge(ClaimId { task, epoch }, &beats).await?;
            if !is_free {
                return Ok(None);
            }
        }
        Ok(Some(claims.next(task)))
    }

    /// Finds a task among those of the last listing. Whether one is still free, the catalog decides.
    async fn find_listed(&self) -> Result<Option<Message>> {
        let next = || {
            let mut state = self.state.lock();
            // What has become free meanwhile must be seen as well.
            if self.clock.now().saturating_sub(state.listed_at) >= self.lease {
                state.listed.clear();
            }
            state.listed.pop()
        };
        while let Some(task) = next() {
            let claims = self.store.claims_of(task).await?;
            if claims.last(task).is_none()
                && let Some(message) = self.message(task, &claims).await?
            {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Keeps the tasks of a long listing that are free, so that not every look lists all.
    fn keep(&self, tasks: &[TaskId], claims: &Claims, taken: TaskId) {
        if tasks.len() < LISTED_MIN {
            return;
        }
        let is_free = |task: &&TaskId| **task != taken && claims.last(**task).is_none();
        let listed = tasks.iter().filter(is_free).take(LISTED_MAX).copied().collect();
        let mut state = self.state.lock();
        (state.listed, state.listed_at) = (listed, self.clock.now());
    }

    /// Lists tasks and claims, and finds a task that nobody works on.
    async fn find_anew(&self) -> Result<Option<Found>> {
        let mut tasks = self.store.tasks().await?;
        if tasks.is_empty() {
            return Ok(None);
        }
        self.state.lock().random.shuffle(&mut tasks);
        let claims = self.store.claims().await?;
        self.forget_ended(&claims);
        let beats: HashMap<WorkerId, Beat> = self.store.beats().await?.into_iter().collect();
        let mut stragglers = Vec::new();
        for task in tasks.iter().copied() {
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
                self.keep(&tasks, &claims, task);
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

    /// Forgets claims that are not there any more.
    fn forget_ended(&self, claims: &Claims) {
        let is_there = |claim: &ClaimId| claims.last(claim.task) == Some(claim.epoch);
        let mut state = self.state.lock();
        state.holders.retain(|claim, _| is_there(claim));
        state.unknown.retain(is_there);
        state.progress.retain(is_there);
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
                    let sign = beat.map_or((0, Duration::ZERO), |beat| (beat.beat, beat.lease()));
                    !has_left && state.workers.observe_for(now, &holder, sign)
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
        let sign = holder.and_then(|holder| beats.get(&holder));
        let progress = sign.map_or((0, Duration::ZERO), |beat| {
            (beat.progress, beat.lease() * STRAGGLER_LEASES)
        });
        let moves = self.state.lock().progress.observe_for(now, &claim, progress);
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
        // The next epoch follows from the claims in the catalog, which nearly always has the task.
        Box::pin(async move {
            match self.store.is_born(task.id()).await? {
                true => Ok(()),
                false => self.store.birth(task).await,
            }
        })
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ropeway_vfs::clock::simulate;
    use ropeway_vfs::{MemoryTree, RelPath, Tree, VirtualClock};

    use super::*;
    use crate::catalog::Done;
    use crate::job::JobFile;
    use crate::task::Scope;

    /// Each look listed all tasks: of 10,000, 10,000 times.
    #[test]
    fn a_long_list_of_tasks_is_listed_once_and_others_take_theirs_from_it() {
        let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
        let lease = Duration::from_secs(30);
        let workers = [1, 2].map(|number| {
            let tree = Arc::clone(&tree) as Arc<dyn Tree>;
            let store = Arc::new(Store::new(tree, RelPath::parse(b"c").unwrap(), WorkerId(number)));
            let queue = ShareQueue::new(Arc::clone(&store), Arc::new(clock.clone()), lease, number);
            (store, queue)
        });
        simulate(&clock, async {
            let job = JobFile::new("s".to_owned(), "t".to_owned());
            workers[0].0.create(&job).await.unwrap();
            for number in 0..2 * LISTED_MIN {
                let path = RelPath::parse(format!("d{number}").as_bytes()).unwrap();
                workers[0]
                    .0
                    .birth(&Task::folder(0, path, Scope::all()))
                    .await
                    .unwrap();
            }
            let mut taken = HashSet::new();
            for turn in 0..=2 * LISTED_MIN {
                let (store, queue) = &workers[turn % 2];
                let message = queue.take().await.unwrap().expect("a task is left");
                assert!(taken.insert(message.claim.task), "{message:?} was done before");
                store.begin(message.claim).await.unwrap();
                store.finish(message.claim, &Done::default()).await.unwrap();
            }
            for (_, queue) in &workers {
                assert_eq!(queue.take().await.unwrap(), None);
            }
        });
    }

    /// A task that its worker gave back would wait until the list of another is used up.
    #[test]
    fn a_list_of_tasks_is_used_for_no_longer_than_a_lease() {
        let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
        let lease = Duration::from_secs(30);
        let tree = Arc::clone(&tree) as Arc<dyn Tree>;
        let store = Arc::new(Store::new(tree, RelPath::parse(b"c").unwrap(), WorkerId(1)));
        let queue = ShareQueue::new(Arc::clone(&store), Arc::new(clock.clone()), lease, 1);
        simulate(&clock, async {
            let job = JobFile::new("s".to_owned(), "t".to_owned());
            store.create(&job).await.unwrap();
            for number in 0..LISTED_MIN {
                let path = RelPath::parse(format!("d{number}").as_bytes()).unwrap();
                store.birth(&Task::folder(0, path, Scope::all())).await.unwrap();
            }
            queue.take().await.unwrap().unwrap();
            assert_eq!(queue.state.lock().listed.len(), LISTED_MIN);
            queue.take().await.unwrap().unwrap();
            assert_eq!(queue.state.lock().listed.len(), LISTED_MIN - 1);
            clock.sleep_until(clock.now() + lease).await;
            queue.take().await.unwrap().unwrap();
            // Listed again.
            assert_eq!(queue.state.lock().listed.len(), LISTED_MIN);
        });
    }
}
