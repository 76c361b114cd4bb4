//! What can be said of a job, read from its catalog by any process.

use std::collections::{BTreeMap, HashMap};

use ropeway_vfs::{Name, RelPath};
use serde::Serialize;

use crate::catalog::{Block, Replay, State, Sums};
use crate::coordinator::{self, Plan, Situation};
use crate::error::{Error, Result};
use crate::job::JobFile;
use crate::store::Store;
use crate::store::rounds::ROUNDS_MAX;
use crate::task::{Scope, Task, TaskId};
use crate::workers::{Beat, WorkerId};

/// Names that one task of a resume has at most.
const NAMES_EACH: usize = 1_000;

/// Failures in memory. If more failed, a resume walks the whole tree again.
const FAILURES_MAX: usize = 100_000;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Tasks are left.
    Open,
    /// Everything is done; what failed has a reason.
    Complete,
}

/// One worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Its number.
    pub id: String,
    /// What it last said.
    #[serde(flatten)]
    pub beat: Beat,
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
    /// Nodes that failed in the last round.
    pub failed: u64,
    /// The workers, also those that have left.
    pub workers: Vec<WorkerStatus>,
}

/// Reads a catalog again and again; keeps what cannot change.
#[derive(Debug, Default)]
pub struct Reader {
    replay: Replay,
}

impl Reader {
    /// Reads the state of a job; `None` if there is none.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn status(&mut self, store: &Store) -> Result<Option<Status>> {
        let Some(JobFile { source, target, .. }) = store.job().await? else {
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
        let plan = coordinator::next(&Situation {
            replay: &self.replay,
            tasks: &tasks.into_iter().collect(),
            rounds: &rounds,
        });
        let workers = store.beats().await?;
        // The lists of a job that was removed meanwhile are empty.
        if !store.is_there().await? {
            return Ok(None);
        }
        Ok(Some(Status {
            source,
            target,
            state: match plan {
                Plan::Finished => Progress::Complete,
                Plan::Wait | Plan::Make(_) => Progress::Open,
            },
            rounds: rounds.len() as u32,
            tasks_done: self.replay.count() as u64,
            tasks_open: open.len() as u64,
            tasks_claimed: claimed as u64,
            sums: *self.replay.sums(),
            failed: self.replay.failed_in(rounds.len() as u32),
            workers: workers.into_iter().map(worker).collect(),
        }))
    }

    async fn read(&mut self, store: &Store) -> Result<()> {
        for task in store.done_tasks().await? {
            if !self.replay.is_done(task)
                && let Some(done) = store.done(task).await?
            {
                self.replay.add(task, done);
            }
        }
        Ok(())
    }

    /// Returns what failed in the last round, with reasons: the first 100,000. Reads all segments of
    /// that round.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn failures(&mut self, store: &Store) -> Result<BTreeMap<RelPath, String>> {
        self.failures_of(store, true).await
    }

    async fn failures_of(&mut self, store: &Store, late_too: bool) -> Result<BTreeMap<RelPath, String>> {
        self.read(store).await?;
        let round = store.rounds().await?.len() as u32;
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
            for block in store.segment(segment).await? {
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

    /// Makes tasks for everything that failed in the last round, and adds them to the job. Returns
    /// the number of nodes. The late passes always run again.
    ///
    /// # Errors
    /// The catalog cannot be read or written to, or the job was resumed as often as it may be.
    pub async fn retry(&mut self, store: &Store) -> Result<usize> {
        let failures = self.failures_of(store, false).await?;
        let round = store.rounds().await?.len() as u32 + 1;
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

fn worker((id, beat): (WorkerId, Beat)) -> WorkerStatus {
    WorkerStatus {
        id: id.to_string(),
        beat,
    }
}
