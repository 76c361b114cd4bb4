//! A worker: takes tasks, carries out the steps of [`crate::worker`], and shows signs of life.

mod delete;
mod ends;
mod folder;
mod folder_shares;
mod large;
mod late;
mod ledger;
mod mover;
mod range;
mod signs;
mod slice;
mod takeover;
#[cfg(test)]
mod world;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use ropeway_vfs::{Clock, ErrorKind, RelPath, Verdict};

use crate::catalog::{Replay, SegmentId};
use crate::claim::{ClaimId, Epoch};
use crate::coordinator::{self, Plan, Situation};
use crate::error::{Error, Result};
use crate::job::{EndRules, JobFile};
use crate::pace::Pace;
use crate::partition::WalkLimits;
use crate::queue::share::Found;
use crate::queue::{Message, Queue, ShareQueue};
use crate::store::Store;
use crate::task::{Task, TaskId, Work};
use crate::worker::{SliceLimits, Step, Worker};
use crate::workers::{Beat, Trail};

pub use ends::Ends;
use ledger::Ledger;
pub use mover::{EngineMover, Move, Moved, Mover, PlainMover};

/// Times in a row that a worker tries again after an error that may pass. A guess.
const RETRIES: u32 = 8;

/// Tasks offered again that a worker remembers. With more it forgets all, which costs time only.
const OFFERED_MAX: usize = 1_000;

/// How a worker works.
#[derive(Clone, Copy, Debug)]
pub struct WorkOptions {
    /// Bounds of the walk.
    pub walk: WalkLimits,
    /// Size of a slice.
    pub slice: SliceLimits,
    /// Time without a sign of life after which others take over. Longer than any flush should take
    /// costs nothing but waiting after a death; shorter costs work that is done again.
    pub lease: Duration,
    /// Time between two looks for a task.
    pub poll: Duration,
}

impl Default for WorkOptions {
    fn default() -> Self {
        Self {
            walk: WalkLimits::default(),
            slice: SliceLimits::default(),
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
        }
    }
}

/// How the work of a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The job is complete.
    Complete,
    /// The worker was asked to stop. Others, or a later start, go on.
    Stopped,
}

/// What a worker did, for its signs of life.
#[derive(Debug, Default)]
pub struct Counters {
    /// Files copied.
    pub files: AtomicU64,
    /// Bytes copied.
    pub bytes: AtomicU64,
    /// Files and links that were dealt with: copied, found equal, or failed.
    pub done: AtomicU64,
    /// Bytes of large files that were read, and are written at once.
    pub parts: AtomicU64,
    /// Everything that shows that it moves.
    pub progress: AtomicU64,
    /// Claims that others took over.
    pub lost_claims: AtomicU64,
}

/// One worker of a job.
pub struct Crew {
    /// Source and target.
    pub ends: Ends,
    /// The catalog.
    pub store: Arc<Store>,
    /// The catalog for signs of life, which must not wait behind data that is on its way: on a line, through a
    /// connection of its own.
    pub signs: Arc<Store>,
    /// Hands out tasks.
    pub queue: Arc<dyn Queue>,
    /// Copies files.
    pub mover: Arc<dyn Mover>,
    /// Measures leases and pauses.
    pub clock: Arc<dyn Clock>,
    /// How to work.
    pub options: WorkOptions,
    /// Seed for samples of names.
    pub seed: u64,
    /// The fields of its signs of life that do not change.
    about: Beat,
    /// Set to stop the worker.
    pub stop: Arc<AtomicBool>,
    /// What it did.
    pub counters: Arc<Counters>,
    state: Mutex<CrewState>,
    /// Held while a sign of life is written.
    beating: futures_util::lock::Mutex<()>,
    /// Finds tasks that the queue has forgotten.
    forgotten: ShareQueue,
    /// Workers that are idle, and for which no task is there.
    idle: AtomicUsize,
    /// Workers that are at work now, with this one: they share a limit of the rate. 0 until it is known.
    pub sharers: Arc<AtomicU64>,
    /// Large files that were copied inside the target, since a worker that slept may have had them open.
    pub renewed: AtomicU64,
}

#[derive(Default)]
struct CrewState {
    /// The job, once the ends were found to be its own.
    job: Option<JobFile>,
    replay: Replay,
    message: Option<Message>,
    ledger: Ledger,
    reason: Option<String>,
    has_left: bool,
    /// Tasks that were offered again, and when first.
    offered: HashMap<TaskId, Duration>,
    /// Whether the queue did not answer when it was last asked for a task.
    queue_fails: bool,
    beat: u64,
    trail: Trail,
    /// Size of slices; `None` before the first.
    pace: Option<Pace>,
    /// Looks for a task in a row that found none.
    looks: u32,
}

impl CrewState {
    /// Notes that a task was offered again.
    fn was_offered(&mut self, task: TaskId, now: Duration) {
        if self.offered.len() >= OFFERED_MAX {
            self.offered.clear();
        }
        self.offered.entry(task).or_insert(now);
    }
}

impl Crew {
    /// Makes a worker.
    pub fn new(
        ends: Ends,
        (store, queue): (Arc<Store>, Arc<dyn Queue>),
        mover: Arc<dyn Mover>,
        clock: Arc<dyn Clock>,
        options: WorkOptions,
    ) -> Self {
        let seed = store.worker().0;
        Self {
            forgotten: ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, seed),
            ends,
            seed,
            signs: Arc::clone(&store),
            store,
            queue,
            mover,
            clock,
            options,
            about: Beat::default(),
            stop: Arc::default(),
            counters: Arc::default(),
            state: Mutex::default(),
            beating: futures_util::lock::Mutex::new(()),
            idle: AtomicUsize::new(0),
            sharers: Arc::default(),
            renewed: AtomicU64::new(0),
        }
    }

    /// Sets the fields of its signs of life that do not change.
    #[must_use]
    pub fn about(mut self, about: Beat) -> Self {
        self.about = about;
        self
    }

    /// Works until the job is complete or the worker is stopped.
    ///
    /// # Errors
    /// This worker cannot go on. Others may.
    pub async fn work(&self) -> Result<Ended> {
        let ended = {
            let working = pin!(self.work_on());
            let beating = pin!(self.beat_on());
            match select(working, beating).await {
                Either::Left((ended, _)) => ended,
                Either::Right((never, _)) => match never {},
            }
        };
        if let Ok(Ended::Complete) = ended {
            // What stays is small, and hidden in the catalog.
            let _ = self.store.sweep().await;
            if let Err(error) = self.queue.close().await {
                tracing::warn!(%error, "the queue keeps something of the job");
            }
        }
        {
            let mut state = self.state.lock();
            state.has_left = true;
            state.reason = ended.as_ref().err().map(Error::told);
        }
        // If the catalog cannot be written to, silence tells the same, later.
        let _ = self.beat().await;
        ended
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now() + span).await;
    }

    async fn work_on(&self) -> Result<Ended> {
        let mut failures = 0;
        loop {
            if self.is_stopped() {
                return Ok(Ended::Stopped);
            }
            match self.turn().await {
                Ok(Some(ended)) => return Ok(ended),
                Ok(None) => failures = 0,
                Err(Error::Stopped) => return Ok(Ended::Stopped),
                Err(error) if error.ends_claim_only() => {
                    self.counters.lost_claims.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%error, "a claim is over");
                    if error.must_wait() {
                        self.sleep(self.options.poll).await;
                    }
                }
                Err(error) if is_absence(&error) && matches!(self.store.is_there().await, Ok(false)) => {
                    return Err(Error::Over);
                }
                Err(error) => {
                    failures += 1;
                    if failures > RETRIES || !may_pass(&error) {
                        return Err(error);
                    }
                    tracing::warn!(%error, "trying again");
                    self.sleep(self.options.poll * failures).await;
                }
            }
        }
    }

    /// Takes one task and does it, or finds out that there is none.
    async fn turn(&self) -> Result<Option<Ended>> {
        self.check_ends().await?;
        if let Some(message) = self.take().await? {
            return self.do_task(&message).await.map(|()| None);
        }
        match self.plan().await? {
            Plan::Finished => return Ok(Some(Ended::Complete)),
            Plan::Make(tasks) => self.offer(&tasks).await?,
            Plan::Wait => match self.forgotten.find().await? {
                Some(found) => self.found(&found).await?,
                None => self.idles().await,
            },
        }
        Ok(None)
    }

    /// Offers a task again that the queue has forgotten. If it refuses, or does not hand it out for the time of a lease,
    /// this worker takes the task by itself. So it does with a straggler, which the queue would not hand out since its
    /// holder is alive.
    async fn found(&self, found: &Found) -> Result<()> {
        let (task, now) = (found.message.claim.task, self.clock.now());
        let offered = self.state.lock().offered.get(&task).copied();
        let is_late = offered.is_some_and(|at| now.saturating_sub(at) >= self.options.lease);
        if !found.is_straggler && !is_late {
            let offer = self.queue.offer(&found.message.task, found.message.claim.epoch);
            match offer.await {
                Err(Error::Queue(reason)) => tracing::warn!(reason, "a task is taken from the catalog"),
                offered => {
                    offered?;
                    self.state.lock().was_offered(task, now);
                    self.idles().await;
                    return Ok(());
                }
            }
        }
        self.state.lock().offered.remove(&task);
        self.do_task(&found.message).await
    }

    /// Does a task, and tells the queue.
    async fn do_task(&self, message: &Message) -> Result<()> {
        self.has_task(message).await;
        let result = self.run(message).await;
        self.state.lock().message = None;
        let Err(error) = result else {
            return self.ack(message).await;
        };
        let error = self.of_claim(message.claim, error).await;
        if !error.ends_claim_only() || error.must_wait() {
            // Another may go on at once. If this fails too, the lease ends.
            let _ = self.queue.release(message).await;
        } else if self.store.is_done(message.claim.task).await? {
            self.store.forget(message.claim.task).await?;
            self.ack(message).await?;
        }
        Err(error)
    }

    /// Returns why a task ended: if its claim was taken over, what was gone from the stage says only that.
    async fn of_claim(&self, claim: ClaimId, error: Error) -> Error {
        if !is_absence(&error) {
            return error;
        }
        match self.store.check(claim).await {
            Err(over) if over.ends_claim_only() => over,
            _ => error,
        }
    }

    /// Compares the ends with those of the job, once.
    ///
    /// # Errors
    /// They are others, or cannot be read.
    pub async fn check_ends(&self) -> Result<()> {
        if self.state.lock().job.is_some() {
            return Ok(());
        }
        let job = self.store.job().await?.ok_or(Error::Over)?;
        let (source, target) = (&self.ends.source, &self.ends.target);
        let rules = EndRules::between(source.capabilities(), target.capabilities());
        if job.rules.as_ref().is_some_and(|own| *own != rules) {
            return Err(Error::OtherRules);
        }
        // First: to an account without rights the right source looks like another one.
        job.mark.check_access(&**source).await.map_err(Error::source)?;
        let matched = job.mark.compare(&**source).await.map_err(Error::source)?;
        if !matched.may_begin() {
            return Err(Error::OtherSource(matched));
        }
        self.state.lock().job = Some(job);
        Ok(())
    }

    /// Whether the job removes what only the target has.
    fn deletes(&self) -> bool {
        // `submit` refuses servers that follow links: they show folders that are elsewhere.
        self.ends.target.capabilities().links_shown
            && self.state.lock().job.as_ref().is_some_and(|job| job.delete)
    }

    /// Checks that the source is still there and may be read, before a task is reported as done: one that was
    /// unmounted looks empty, and where this worker may read nothing any more others may.
    async fn check_source(&self) -> Result<()> {
        let mark = self.state.lock().job.as_ref().map(|job| job.mark.clone());
        let checked = mark.unwrap_or_default().check_access(&*self.ends.source).await;
        checked.map_err(Error::source)?;
        self.examine_source().await.map(drop)
    }

    /// Does the same. Returns the folders that lost all that `submit` saw in them.
    async fn examine_source(&self) -> Result<Vec<RelPath>> {
        let mark = self.state.lock().job.as_ref().map(|job| job.mark.clone());
        let examined = mark.unwrap_or_default().examine(&*self.ends.source).await;
        let (matched, lost) = examined.map_err(Error::source)?;
        match matched.may_go_on() {
            true => Ok(lost),
            false => Err(Error::OtherSource(matched)),
        }
    }

    /// Asks what the job needs.
    async fn plan(&self) -> Result<Plan> {
        // While there are tasks, nothing else is made: what is done, of which there is much, need not be read.
        match self.store.tasks().await {
            Ok(tasks) if !tasks.is_empty() => return Ok(Plan::Wait),
            _ => {}
        }
        let read = self.look_what_is_done().await;
        let rounds = self.store.rounds().await;
        // After what is done: a task that is done has made its tasks known before.
        let tasks = self.store.tasks().await;
        // The lists of a job that was removed are empty, which is no plan.
        let is_there = self.store.is_there().await;
        match (read, rounds, tasks, is_there) {
            (Ok(()), Ok(rounds), Ok(tasks), Ok(true)) => Ok(coordinator::next(&Situation {
                replay: &self.state.lock().replay,
                tasks: &tasks.into_iter().collect(),
                rounds: &rounds,
            })),
            (.., Ok(false)) => Err(Error::Over),
            (Err(error), ..) | (_, Err(error), ..) | (.., Err(error), _) | (.., Err(error)) => Err(error),
        }
    }

    /// Brings what is known to be done up to date.
    async fn look_what_is_done(&self) -> Result<()> {
        let mut replay = std::mem::take(&mut self.state.lock().replay);
        let read = self.read_done(&mut replay).await;
        self.state.lock().replay = replay;
        read
    }

    async fn read_done(&self, replay: &mut Replay) -> Result<()> {
        for task in self.store.done_tasks().await? {
            if !replay.is_done(task)
                && let Some(done) = self.store.done(task).await?
            {
                replay.add(task, done);
            }
        }
        Ok(())
    }

    /// Makes tasks known and hands them out.
    async fn offer(&self, tasks: &[Task]) -> Result<()> {
        for task in tasks {
            self.store.birth(task).await?;
            self.hand_out(task, Epoch(1)).await?;
        }
        Ok(())
    }

    /// Takes a task from the queue. While that does not answer, the catalog shows which tasks are free: it knows all of
    /// them, and who is at work.
    async fn take(&self) -> Result<Option<Message>> {
        let taken = self.queue.take().await;
        let fails = matches!(taken, Err(Error::Queue(_)));
        let failed = std::mem::replace(&mut self.state.lock().queue_fails, fails);
        match taken {
            Err(Error::Queue(reason)) => {
                if !failed {
                    tracing::warn!(reason, "tasks are taken from the catalog until the queue answers");
                }
                self.forgotten.take().await
            }
            taken => {
                if failed {
                    tracing::info!("the queue answers again");
                }
                taken
            }
        }
    }

    /// Offers a task that the catalog knows. One that the queue does not take is found there.
    async fn hand_out(&self, task: &Task, least: Epoch) -> Result<()> {
        without_queue(self.queue.offer(task, least).await)
    }

    /// Tells the queue that a task is done, which the catalog knows.
    async fn ack(&self, message: &Message) -> Result<()> {
        without_queue(self.queue.ack(message).await)
    }

    async fn run(&self, message: &Message) -> Result<()> {
        self.store.begin(message.claim).await?;
        let (claim, round) = (message.claim, message.task.round);
        match &message.task.work {
            Work::Folder { .. } => self.run_folder(&message.task, claim).await,
            Work::Part(part) => self.run_part(claim, part.clone()).await,
            Work::Join { shard, shards } => self.run_join((claim, round), (*shard, *shards)).await,
            Work::Links { shard, shards } => self.run_links((claim, round), (*shard, *shards)).await,
            Work::Delete { shard, shards } => self.run_deletions((claim, round), (*shard, *shards)).await,
            Work::FolderShare { shard, shards } => {
                self.run_folder_share((claim, round), (*shard, *shards)).await
            }
            Work::FolderTimes => self.run_folder_times(claim, round).await,
        }
    }

    /// Carries out the steps of a task of a folder.
    async fn run_folder(&self, task: &Task, claim: ClaimId) -> Result<()> {
        let pace = self.state.lock().pace;
        let mut pace = pace.unwrap_or_else(|| Pace::new(self.options.slice));
        let mut worker = Worker::new(task, self.options.walk, pace.limits());
        // Files, bytes, begin and end of the copy of the last slice.
        let mut slice = None;
        loop {
            if worker.is_between_slices() {
                // Not in a slice: what is copied gets its names first, else others would copy it again.
                if self.is_stopped() {
                    return Err(Error::Stopped);
                }
                worker.split(self.idle.swap(0, Ordering::AcqRel));
                if let Some((size, begun, copied)) = slice.take() {
                    pace.took(size, copied - begun, self.clock.now() - copied);
                    worker.set_slice(pace.limits());
                    self.state.lock().pace = Some(pace);
                }
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
            match worker.step() {
                Step::Fence => {
                    let given = self.take_over(claim).await?;
                    worker.fenced(given);
                }
                Step::List { path, scope } => self.list(&mut worker, claim, (path, scope)).await?,
                Step::Copy { first, items } => {
                    let begun = self.clock.now();
                    let outcomes = self.copy_slice((claim, task.round), first, &items).await?;
                    let bytes = items.iter().map(|item| item.metadata.size).sum::<u64>();
                    slice = Some(((items.len(), bytes), begun, self.clock.now()));
                    worker.copied(outcomes);
                }
                Step::Publish {
                    number,
                    records,
                    given,
                } => {
                    let mut bytes = Vec::new();
                    crate::catalog::encode(&mut bytes, &records, &given);
                    crate::catalog::encode_lost(&mut bytes, &self.fresh_losses());
                    self.store
                        .publish_segment(SegmentId { claim, number }, &bytes)
                        .await?;
                }
                Step::Rename(records) => {
                    let failed = self.name_files(claim, &records).await?;
                    failed
                        .into_iter()
                        .for_each(|(path, reason)| worker.note_failed(path, reason));
                }
                Step::Flush => self.ends.target.sync().await.map_err(Error::target)?,
                Step::Offer(tasks) => self.offer(&tasks).await?,
                Step::Finish(done) => {
                    self.check_source().await?;
                    self.store.finish(claim, &self.with_ledger(done)).await?;
                }
                Step::Ended => return Ok(()),
            }
        }
    }
}

/// Goes on if only the queue failed.
fn without_queue(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Queue(reason)) => {
            tracing::debug!(reason, "the queue is not told");
            Ok(())
        }
        result => result,
    }
}

/// Whether an error of one node says nothing about the others: the node is noted as failed. A
/// device may fail at one place only, and a program may keep one file open.
fn is_of_node(kind: ErrorKind) -> bool {
    kind.verdict() == Verdict::Skip || matches!(kind, ErrorKind::DeviceError | ErrorKind::Busy)
}

/// Whether something is not there.
fn is_absence(error: &Error) -> bool {
    error.kind().is_some_and(|(kind, _)| kind.is_absence())
}

/// Whether an error may pass.
fn may_pass(error: &Error) -> bool {
    error
        .kind()
        .is_some_and(|(kind, _)| kind.verdict() == Verdict::Retry)
}

#[cfg(test)]
#[path = "crew_tests.rs"]
mod tests;
