//! What can be said of a job, read from its catalog by any process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use ropeway_vfs::event::Eta;
use ropeway_vfs::{Name, RelPath, Timestamp};
use serde::Serialize;

use crate::catalog::{Block, Losses, Replay, State, Sums};
use crate::claim::{ClaimId, Claims};
use crate::coordinator::{self, Plan, Situation};
use crate::error::{Error, Result};
use crate::health::{Health, Rates};
use crate::outlook::{self, EndedTask, Outlook, Size, Unknown};
use crate::store::Store;
use crate::store::rounds::ROUNDS_MAX;
use crate::task::{Scope, Task, TaskId};
use crate::workers::{Activity, Beat, WorkerId};

/// Names that one task of a resume has at most.
const NAMES_EACH: usize = 1_000;

/// Failures in memory. If more failed, a resume walks the whole tree again.
const FAILURES_MAX: usize = 100_000;

/// Failures that an overview shows. A guess: they fit on a screen with the rest.
const FIRST_FAILURES: usize = 5;

/// Workers in a status that are not there any more: the newest. Each start leaves one, and a service that fails starts
/// again for days. A guess.
const PAST_WORKERS_MAX: usize = 100;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Tasks are left.
    Open,
    /// Everything is done; what failed has a reason.
    Complete,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The tree is walked and copied.
    Copying,
    /// The tree is copied. Large files and hard links get their names, deletions are made, folders get their attributes.
    Finishing,
    /// Nothing is left.
    Complete,
}

/// One worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Its number.
    pub id: String,
    /// How it is.
    pub state: Health,
    /// Seconds since its last sign of life; `None` if that is not known.
    pub silent_seconds: Option<f64>,
    /// What it does in a second; `None` if that is not known yet, or if it is gone.
    pub rates: Option<Rates>,
    /// What it last said.
    #[serde(flatten)]
    pub beat: Beat,
}

/// A node that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its path in the source.
    pub path: String,
    /// The reason.
    pub message: String,
}

/// The state of a job.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// What is copied.
    pub source: String,
    /// Where to.
    pub target: String,
    /// How far it is.
    pub state: Progress,
    /// What is being done.
    pub phase: Phase,
    /// Times that it was resumed after failures.
    pub rounds: u32,
    /// Tasks that are done.
    pub tasks_done: u64,
    /// Tasks that are known and not done. Each may give away further ones.
    pub tasks_open: u64,
    /// Tasks among them that somebody has claimed.
    pub tasks_claimed: u64,
    /// Sums over tasks that are done.
    pub sums: Sums,
    /// What the target could not keep, in tasks that are done.
    pub losses: Losses,
    /// What the job before this one found in the source.
    pub expected: Option<Size>,
    /// What all workers together do in a second.
    pub rates: Rates,
    /// Time left until the tree is copied.
    pub eta: Option<Eta>,
    /// Why it is not known.
    pub eta_unknown: Option<Unknown>,
    /// Nodes that failed in the last round.
    pub failed: u64,
    /// The first of them. Only [`Reader::overview`] reads them.
    pub failures: Vec<Failure>,
    /// Workers that are stalled or silent.
    pub stragglers: u64,
    /// Number of all workers, also of those that are not listed.
    pub workers_total: u64,
    /// The workers: stragglers, those that are well, and the newest of those that have left or are gone.
    pub workers: Vec<WorkerStatus>,
}

/// Reads a catalog again and again; keeps what cannot change.
#[derive(Debug, Default)]
pub struct Reader {
    replay: Replay,
    outlook: Outlook,
    /// By how many nanoseconds the clock of the target is ahead of ours.
    ahead_ns: Option<i128>,
    /// The first failures, with the round and the number of all when they were read.
    failures: ((u32, u64), Vec<Failure>),
    /// Who holds the claims of open tasks. That does not change.
    holders: HashMap<ClaimId, WorkerId>,
}

impl Reader {
    /// Reads the state of a job; `None` if there is none. How long a worker is silent is measured from the newest sign of
    /// life of all.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn status(&mut self, store: &Store) -> Result<Option<Status>> {
        self.status_at(store, None).await
    }

    /// Reads the state of a job with all that is shown of it. `now`: the time of this machine.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn overview(&mut self, store: &Store, now: Timestamp) -> Result<Option<Status>> {
        if self.ahead_ns.is_none() {
            // A catalog that may only be read leaves the clock of this machine.
            let found = store.now().await.ok().and_then(Timestamp::known);
            self.ahead_ns = Some(found.map_or(0, |found| found.0 - now.0));
        }
        let now = Timestamp(now.0 + self.ahead_ns.unwrap_or(0));
        let Some(mut status) = self.status_at(store, Some(now)).await? else {
            return Ok(None);
        };
        let key = (status.rounds, status.failed);
        if self.failures.0 != key {
            self.failures = (key, self.first_failures(store, status.rounds).await?);
        }
        status.failures = self.failures.1.clone();
        Ok(Some(status))
    }

    async fn status_at(&mut self, store: &Store, now: Option<Timestamp>) -> Result<Option<Status>> {
        let Some(job) = store.job().await? else {
            return Ok(None);
        };
        self.read(store).await?;
        let rounds = store.rounds().await?;
        let tasks: Vec<TaskId> = store.tasks().await?;
        let open: Vec<TaskId> = tasks
            .iter()
            .copied()
            .filter(|task| !self.replay.is_done(*task))
            .collect();
        let claims = store.claims().await?;
        let claimed = open.iter().filter(|task| claims.last(**task).is_some()).count();
        let situation = Situation {
            replay: &self.replay,
            tasks: &tasks.into_iter().collect(),
            rounds: &rounds,
        };
        let (state, phase) = match coordinator::next(&situation) {
            Plan::Finished => (Progress::Complete, Phase::Complete),
            _ if coordinator::is_walked(&situation) => (Progress::Open, Phase::Finishing),
            Plan::Wait | Plan::Make(_) => (Progress::Open, Phase::Copying),
        };
        let beats = store.dated_beats().await?;
        // The lists of a job that was removed meanwhile are empty.
        if !store.is_there().await? {
            return Ok(None);
        }
        let newest = beats.iter().map(|(.., at)| *at).max();
        let now = now.or(newest).unwrap_or(Timestamp(0));
        let workers_total = beats.len() as u64;
        let workers = self.workers(store, (beats, now), (&open, &claims)).await?;
        let mut status = Status {
            source: job.source,
            target: job.target,
            state,
            phase,
            rounds: rounds.len() as u32,
            tasks_done: self.replay.count() as u64,
            tasks_open: open.len() as u64,
            tasks_claimed: claimed as u64,
            sums: *self.replay.sums(),
            losses: self.replay.losses(),
            expected: job.expected,
            rates: Rates::default(),
            eta: None,
            eta_unknown: None,
            failed: self.replay.failed_in(rounds.len() as u32),
            failures: Vec::new(),
            stragglers: 0,
            workers_total,
            workers,
        };
        self.judge(&mut status, now);
        Ok(Some(status))
    }

    /// Returns the workers that a status lists, in its order.
    async fn workers(
        &mut self,
        store: &Store,
        (mut beats, now): (Vec<(WorkerId, Beat, Timestamp)>, Timestamp),
        (open, claims): (&[TaskId], &Claims),
    ) -> Result<Vec<WorkerStatus>> {
        beats.sort_by_key(|(.., at)| Reverse(*at));
        let ids: Vec<WorkerId> = beats.iter().map(|(id, ..)| *id).collect();
        let mut workers: Vec<WorkerStatus> = beats.into_iter().map(|beat| worker(beat, now)).collect();
        let is_silent = |(_, worker): &(&WorkerId, &WorkerStatus)| worker.state == Health::Silent;
        let silent: HashSet<WorkerId> = (ids.iter().zip(&workers).filter(is_silent))
            .map(|(id, _)| *id)
            .collect();
        let last = open.iter().filter_map(|task| {
            let epoch = claims.last(*task)?;
            Some(ClaimId { task: *task, epoch })
        });
        let holding = self.holding(store, &silent, last.collect()).await?;
        for (id, worker) in ids.iter().zip(&mut workers) {
            if silent.contains(id) && !holding.contains(id) {
                worker.state = Health::Gone;
            }
        }
        workers.sort_by_key(|worker| worker.state.rank());
        let present = workers.iter().filter(|worker| !worker.state.is_past()).count();
        workers.truncate(present + PAST_WORKERS_MAX);
        Ok(workers)
    }

    /// Returns which of these workers hold one of these claims.
    async fn holding(
        &mut self,
        store: &Store,
        workers: &HashSet<WorkerId>,
        claims: HashSet<ClaimId>,
    ) -> Result<HashSet<WorkerId>> {
        let mut holding = HashSet::new();
        if workers.is_empty() {
            return Ok(holding);
        }
        self.holders.retain(|claim, _| claims.contains(claim));
        for claim in claims {
            let holder = match self.holders.get(&claim) {
                Some(holder) => Some(*holder),
                None => store.holder(claim).await?,
            };
            let Some(holder) = holder else { continue };
            self.holders.insert(claim, holder);
            if workers.contains(&holder) && !store.is_released(claim, holder).await? {
                holding.insert(holder);
            }
        }
        Ok(holding)
    }

    /// Adds what follows from the rest: rates, stragglers, the time left.
    fn judge(&self, status: &mut Status, now: Timestamp) {
        if status.state == Progress::Complete {
            return;
        }
        status.workers.iter().for_each(|worker| {
            status.stragglers += u64::from(worker.state.is_straggler());
            worker.rates.iter().for_each(|rates| status.rates.add(rates));
        });
        let works =
            |worker: &WorkerStatus| worker.beat.activity == Activity::Working && worker.state.is_present();
        let estimate = match status.phase {
            Phase::Finishing => Err(Unknown::LastSteps),
            _ if !status.workers.iter().any(works) => Err(Unknown::NobodyWorks),
            _ => self.outlook.estimate(&outlook::Situation {
                now_ns: now.0,
                open: status.tasks_open,
                claimed: status.tasks_claimed,
                done: Size {
                    files: status.sums.files,
                    bytes: status.sums.bytes,
                },
                // What failed is tried again; the rest is not walked again.
                expected: status.expected.filter(|_| status.rounds == 0),
            }),
        };
        match estimate {
            Ok(eta) => status.eta = Some(eta),
            Err(unknown) => status.eta_unknown = Some(unknown),
        }
    }

    /// Reads the first failures of a round.
    async fn first_failures(&self, store: &Store, round: u32) -> Result<Vec<Failure>> {
        let mut failures = Vec::new();
        let mut tasks: Vec<TaskId> = self.replay.with_failures(round).collect();
        tasks.sort_unstable();
        for task in tasks {
            for segment in store.segments(Some(task)).await? {
                if !self.replay.is_last(segment.claim) {
                    continue;
                }
                for block in store.segment_for_late(segment).await? {
                    let Block::Records(records) = block else { continue };
                    failures.extend(records.into_iter().filter_map(|record| match record.state {
                        State::Failed(message) => Some(Failure {
                            path: record.path.to_string(),
                            message,
                        }),
                        _ => None,
                    }));
                }
                if failures.len() >= FIRST_FAILURES {
                    failures.truncate(FIRST_FAILURES);
                    return Ok(failures);
                }
            }
        }
        Ok(failures)
    }

    async fn read(&mut self, store: &Store) -> Result<()> {
        let mut ended = Vec::new();
        for task in store.done_tasks().await? {
            if !self.replay.is_done(task)
                && let Some((done, at)) = store.dated_done(task).await?
            {
                ended.push(EndedTask {
                    at_ns: at.0,
                    size: Size {
                        files: done.sums.files,
                        bytes: done.sums.bytes,
                    },
                    given: done.given.len() as u64,
                });
                self.replay.add(task, done);
            }
        }
        self.outlook.add(&mut ended);
        Ok(())
    }

    /// Returns what failed in the last round, with reasons: the first 100,000. Reads all segments of
    /// that round.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn failures(&mut self, store: &Store) -> Result<BTreeMap<RelPath, String>> {
        let round = store.rounds().await?.len() as u32;
        self.failures_of(store, round, true).await
    }

    async fn failures_of(
        &mut self,
        store: &Store,
        round: u32,
        late_too: bool,
    ) -> Result<BTreeMap<RelPath, String>> {
        self.read(store).await?;
        // With those that delete: whether something failed before them is not known here.
        let late = coordinator::late_tasks(round, self.replay.sums(), 0);
        let late: HashMap<TaskId, bool> = (late.iter().flatten())
            .map(|task| (task.id(), coordinator::fails_by_names(task)))
            .collect();
        let mut failures = BTreeMap::new();
        let mut segments = store.segments(None).await?;
        if let Some(task) = self.replay.with_missing_segments(&segments) {
            return Err(Error::Damaged(format!("segments of {task}")));
        }
        // What the walk has listed is no word on what the late passes made of it.
        segments.sort_by_key(|segment| late.contains_key(&segment.claim.task));
        for segment in segments {
            let task = segment.claim.task;
            let is_wanted = late_too || late.get(&task).is_none_or(|by_names| *by_names);
            // Earlier claims may have failed where the last one had more luck.
            let is_last = self.replay.is_last(segment.claim);
            if !is_last || self.replay.round_of(task) != Some(round) || !is_wanted {
                continue;
            }
            for block in store.segment_for_late(segment).await? {
                let Block::Records(records) = block else { continue };
                for record in records {
                    match record.state {
                        State::Failed(reason) if failures.len() < FAILURES_MAX => {
                            failures.insert(record.path, reason);
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(failures)
    }

    /// Makes tasks for everything that failed in a round, and adds them to the job, unless another process has done so.
    /// `after` is the number of that round, in which everything was done: of a later one, nothing may be done yet, and
    /// so nothing has failed. Returns the number of nodes. The late passes always run again.
    ///
    /// # Errors
    /// The catalog cannot be read or written to, or the job was resumed as often as it may be.
    pub async fn retry(&mut self, store: &Store, after: u32) -> Result<usize> {
        let failures = self.failures_of(store, after, false).await?;
        let round = after.saturating_add(1);
        if round as usize > ROUNDS_MAX {
            return Err(Error::Resumed(ROUNDS_MAX));
        }
        let mut folders: BTreeMap<RelPath, Vec<Name>> = BTreeMap::new();
        let mut tasks = Vec::new();
        if failures.len() >= FAILURES_MAX {
            tasks.push(Task {
                round,
                ..Task::root()
            });
            store.add_round(round, &tasks).await?;
            return Ok(failures.len());
        }
        for path in failures.keys() {
            match (path.parent(), path.file_name()) {
                (Some(folder), Some(name)) => folders.entry(folder).or_default().push(name),
                _ => tasks.push(Task {
                    round,
                    ..Task::root()
                }),
            }
        }
        for (folder, names) in folders {
            for names in names.chunks(NAMES_EACH) {
                tasks.push(Task::folder(round, folder.clone(), Scope::Names(names.to_vec())));
            }
        }
        store.add_round(round, &tasks).await?;
        Ok(failures.len())
    }
}

fn worker((id, beat, at): (WorkerId, Beat, Timestamp), now: Timestamp) -> WorkerStatus {
    // A clock of the target that goes slower than ours makes nobody silent.
    let silent = at
        .known()
        .map(|at| Duration::from_nanos((now.0 - at.0).clamp(0, i64::MAX.into()) as u64));
    let state = Health::of(&beat, silent);
    WorkerStatus {
        id: id.to_string(),
        state,
        silent_seconds: silent.map(|silent| silent.as_secs_f64()),
        rates: Rates::of(&beat, state),
        beat,
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
