//! The catalog on a tree: claims, segments, and what is done.
//!
//! **The fence.** A claim is the folder `claims/TASK.EPOCH`, made exclusively, with a folder inside
//! that has the name of its worker. Its segments are written there and renamed to `segments/`; its files are written in `stage/TASK.EPOCH` and renamed
//! to their names on the target. Whoever takes the task over makes the folder of the next epoch and
//! then, before anything else,
//!
//! 1. removes the claim folders of earlier epochs: their holders publish nothing any more;
//! 2. gives the files that earlier epochs published their names, since their holders may have died
//!    before they could;
//! 3. removes the stages of earlier epochs: their holders rename nothing any more.
//!
//! It does not matter whether an earlier holder is dead, cut off or asleep. Its next step, whichever
//! that is, finds its folder gone. No clock is part of this, and no check that could be out of date
//! when the step follows.
//!
//! A worker with an old listing may make a removed claim folder again, before it looks and withdraws.
//! The folder inside then has another name, so the earlier holder still finds its own gone.
//!
//! Two workers that make claims at once see each other, since each makes its folder first and then
//! looks for others: at least one of them sees both. A claim that sees a later one withdraws.

mod large;
mod looks;
pub(crate) mod rounds;
mod runs;
mod segments;

use std::collections::BTreeSet;
use std::sync::Arc;

use ropeway_vfs::{ErrorKind, Name, RelPath, Tree};

use crate::catalog::Done;
use crate::claim::{ClaimError, ClaimId, Claims, Epoch};
use crate::error::{Error, Result};
use crate::files::{Files, name};
use crate::job::JobFile;
use crate::mutations::{self, Mutation};
use crate::task::{Task, TaskId};
use crate::workers::WorkerId;

pub use runs::{Run, Runs};
pub(crate) use segments::SEGMENT_FOLDERS;

/// Begin of the name of a catalog folder.
pub const CATALOG_PREFIX: &str = crate::files::CATALOG_PREFIX;

/// The folders of a catalog.
const FOLDERS: [&str; 10] = [
    "tasks", "claims", "stage", "large", "graves", "segments", "done", "workers", "rounds", "tmp",
];

/// The catalog of one job, as one process uses it.
pub struct Store {
    files: Files,
    root: RelPath,
    worker: WorkerId,
    /// Folders of segments that are there, and durable.
    known: segments::KnownFolders,
}

impl Store {
    /// Uses the catalog in a folder of a tree. `worker` must be unique among all processes.
    pub fn new(tree: Arc<dyn Tree>, root: RelPath, worker: WorkerId) -> Self {
        Self::with_prefix(tree, root, worker, worker.to_string())
    }

    fn with_prefix(tree: Arc<dyn Tree>, root: RelPath, worker: WorkerId, prefix: String) -> Self {
        let temporary = root.join(&name("tmp"));
        Self {
            files: Files::new(tree, temporary, prefix),
            root,
            worker,
            known: segments::KnownFolders::default(),
        }
    }

    /// Uses the same catalog for the same process through another tree, such as a connection of its own.
    #[must_use]
    pub fn through(&self, tree: Arc<dyn Tree>) -> Self {
        // For names that the other one does not use.
        let prefix = format!("{}-s", self.worker);
        Self::with_prefix(tree, self.root.clone(), self.worker, prefix)
    }

    /// Returns the tree that holds catalog and target.
    pub fn tree(&self) -> &Arc<dyn Tree> {
        &self.files.tree
    }

    /// Returns the folder of the catalog.
    pub fn root(&self) -> &RelPath {
        &self.root
    }

    /// Returns this process.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Whether the job still exists: that before the last one is removed, its file `job` before the
    /// lists of tasks. What was read before this call was then read whole.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn is_there(&self) -> Result<bool> {
        match self.files.exists(&self.root, &name("job")).await {
            Err(error) if error.kind.is_absence() => Ok(false),
            result => result.map_err(Error::target),
        }
    }

    fn folder(&self, folder: &str) -> RelPath {
        self.root.join(&name(folder))
    }

    fn path(&self, folder: &str, inside: impl ToString) -> RelPath {
        self.folder(folder).join(&name(&inside.to_string()))
    }

    /// Makes the catalog of a new job, with its first task. The job exists once its file does.
    ///
    /// # Errors
    /// There is a job, or the folder cannot be written to.
    pub async fn create(&self, job: &JobFile) -> Result<bool> {
        self.files.make_dir(&self.root).await.map_err(Error::target)?;
        for folder in FOLDERS {
            self.files
                .make_dir(&self.folder(folder))
                .await
                .map_err(Error::target)?;
        }
        self.birth(&Task::root()).await?;
        let published = self.files.publish(&self.root, &name("job"), &job.encode()).await;
        published.map_err(Error::target)
    }

    /// Returns what the job is asked to do; `None` if there is no job.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub async fn job(&self) -> Result<Option<JobFile>> {
        let path = self.root.join(&name("job"));
        match self.files.read(&path).await.map_err(Error::target)? {
            Some(bytes) => JobFile::decode(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Removes the whole catalog.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub async fn remove(&self) -> Result<()> {
        self.end().await?;
        self.files.remove_folder(&self.root).await.map_err(Error::target)
    }

    /// Ends the job: without this file there is none.
    pub(crate) async fn end(&self) -> Result<()> {
        let job = self.files.remove(&self.root.join(&name("job"))).await;
        job.map_err(Error::target)
    }

    /// Makes a task known. Doing it again changes nothing.
    ///
    /// # Errors
    /// The catalog cannot be written to.
    pub async fn birth(&self, task: &Task) -> Result<()> {
        let id = task.id();
        if self.is_done(id).await? {
            return Ok(());
        }
        let published = self
            .files
            .publish(&self.folder("tasks"), &name(&id.to_string()), &task.encode())
            .await;
        published.map(drop).map_err(Error::target)
    }

    /// Whether a task is known and not done.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn is_born(&self, task: TaskId) -> Result<bool> {
        let exists = self
            .files
            .exists(&self.folder("tasks"), &name(&task.to_string()))
            .await;
        exists.map_err(Error::target)
    }

    /// Returns the tasks that are not done. Some may be done already, or not yet born.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn tasks(&self) -> Result<Vec<TaskId>> {
        self.task_ids("tasks").await
    }

    async fn task_ids(&self, folder: &str) -> Result<Vec<TaskId>> {
        let names = self.files.names(&self.folder(folder), b"").await;
        let names = names.map_err(Error::target)?;
        Ok(names
            .iter()
            .filter_map(|name| TaskId::parse(name.as_bytes()))
            .collect())
    }

    /// Returns a task that is not done.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub async fn task(&self, id: TaskId) -> Result<Option<Task>> {
        let bytes = self
            .files
            .read(&self.path("tasks", id))
            .await
            .map_err(Error::target)?;
        let Some(bytes) = bytes else { return Ok(None) };
        let task = Task::decode(&bytes).filter(|task| task.id() == id);
        task.map(Some)
            .ok_or_else(|| Error::Damaged(format!("tasks/{id}")))
    }

    /// Returns all claims.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn claims(&self) -> Result<Claims> {
        self.claims_with("claims", "").await.map(Claims::of)
    }

    async fn claims_with(&self, folder: &str, prefix: &str) -> Result<BTreeSet<ClaimId>> {
        let names = self.files.names(&self.folder(folder), prefix.as_bytes()).await;
        let names = names.map_err(Error::target)?;
        Ok(names
            .iter()
            .filter_map(|name| ClaimId::parse(name.as_bytes()))
            .collect())
    }

    /// Returns the folder of this worker inside that of a claim.
    fn own_folder(&self, claim: ClaimId) -> RelPath {
        self.path("claims", claim).join(&name(&self.worker.to_string()))
    }

    /// Returns who holds a claim: `Ok(None)` if that is not known yet, or the claim is over.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn holder(&self, claim: ClaimId) -> Result<Option<WorkerId>> {
        let names = self.files.names(&self.path("claims", claim), b"").await;
        let names = names.map_err(Error::target)?;
        Ok(names.iter().find_map(|name| WorkerId::parse(name.as_bytes())))
    }

    /// Whether the holder of a claim has given it back.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn is_released(&self, claim: ClaimId, holder: WorkerId) -> Result<bool> {
        let folder = self.path("claims", claim).join(&name(&holder.to_string()));
        match self.files.exists(&folder, &name("free")).await {
            Err(error) if error.kind.is_absence() => Ok(false),
            result => result.map_err(Error::target),
        }
    }

    /// Begins a claim. Earlier ones can still commit until [`Store::fence`] was called.
    ///
    /// # Errors
    /// [`Error::Claim`] if the task is done, or has a claim with this or a later epoch.
    pub async fn begin(&self, claim: ClaimId) -> Result<()> {
        let path = self.path("claims", claim);
        let is_new = self.files.make_dir(&path).await.map_err(Error::target)?;
        if !is_new && !mutations::is(Mutation::ClaimNotExclusive) {
            return Err(ClaimError::Stale(claim.epoch).into());
        }
        // An epoch must not appear again after a power cut.
        let synced = self.tree().sync_dir(&self.folder("claims")).await;
        synced.map_err(Error::target)?;
        let judged = match mutations::is(Mutation::LaterClaimNotSeen) {
            true => Ok(()),
            false => self.claims_of(claim.task).await?.judge(claim),
        };
        let refused = match judged {
            Ok(()) if self.is_done(claim.task).await? && !mutations::is(Mutation::DoneNotChecked) => {
                Some(ClaimError::Done)
            }
            Ok(()) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            self.files.remove_folder(&path).await.map_err(Error::target)?;
            return Err(error.into());
        }
        match self.tree().make_dir(&self.own_folder(claim), 0o700).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost_or(claim, error).await),
        }
    }

    /// Writes a file into the folder of this worker in a claim.
    async fn write_in_claim(&self, claim: ClaimId, file: &str, bytes: &[u8]) -> Result<()> {
        let path = self.own_folder(claim).join(&name(file));
        match self.files.write(&path, bytes).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost_or(claim, error).await),
        }
    }

    /// Tells the loss of a claim from other errors.
    async fn lost_or(&self, claim: ClaimId, error: ropeway_vfs::Error) -> Error {
        if !error.kind.is_absence() {
            return Error::target(error);
        }
        match self.claims_of(claim.task).await {
            Ok(claims) => match claims.judge(claim) {
                Err(stale) => stale.into(),
                Ok(()) if matches!(self.is_done(claim.task).await, Ok(true)) => ClaimError::Done.into(),
                Ok(()) => Error::target(error),
            },
            Err(other) => other,
        }
    }

    pub(crate) async fn claims_of(&self, task: TaskId) -> Result<Claims> {
        Ok(Claims::of(self.claims_with("claims", &format!("{task}.")).await?))
    }

    /// Checks that a claim is the last of its task, and still there.
    ///
    /// # Errors
    /// [`Error::Claim`] if it is not, [`Error::Over`] if the whole job is gone.
    pub async fn check(&self, claim: ClaimId) -> Result<()> {
        self.claims_of(claim.task).await?.judge(claim)?;
        if self.is_done(claim.task).await? {
            return Err(ClaimError::Done.into());
        }
        match self.tree().metadata(&self.own_folder(claim)).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind.is_absence() && !self.is_there().await? => Err(Error::Over),
            Err(error) if error.kind.is_absence() => Err(ClaimError::Stale(claim.epoch).into()),
            Err(error) => Err(Error::target(error)),
        }
    }

    /// Ends the right of earlier claims to publish. Returns those that still have a stage, the
    /// oldest first: the caller adopts what they published, and calls [`Store::close_stage`].
    ///
    /// # Errors
    /// [`Error::Claim`] if this claim is over itself, or the task is done.
    pub async fn fence(&self, claim: ClaimId) -> Result<Vec<ClaimId>> {
        let claims = self.claims_of(claim.task).await?;
        if !mutations::is(Mutation::LaterClaimNotSeen) {
            claims.judge(claim)?;
        }
        if !mutations::is(Mutation::ClaimNotFenced) {
            for earlier in claims.before(claim) {
                let removed = self.files.remove_folder(&self.path("claims", earlier)).await;
                removed.map_err(Error::target)?;
            }
        }
        // One of them may have ended the task after this claim began. Now none can any more.
        if !mutations::is(Mutation::DoneNotChecked) && self.is_done(claim.task).await? {
            return Err(ClaimError::Done.into());
        }
        // Whoever fenced before may have died between claim folder and stage.
        let stages = self.claims_with("stage", &format!("{}.", claim.task)).await?;
        Ok(stages
            .into_iter()
            .filter(|stage| stage.epoch < claim.epoch)
            .collect())
    }

    /// Returns the stage of a claim.
    pub fn stage(&self, claim: ClaimId) -> RelPath {
        self.path("stage", claim)
    }

    /// Returns where a node lies while it is removed.
    pub fn grave(&self, claim: ClaimId, node: &Name) -> RelPath {
        self.path("graves", format!("{claim}.{node}"))
    }

    /// Returns what claims of a task took out of the target, and what is not removed yet.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn graves(&self, task: TaskId) -> Result<Vec<RelPath>> {
        let folder = self.folder("graves");
        let names = self.files.names(&folder, format!("{task}.").as_bytes()).await;
        let names = names.map_err(Error::target)?;
        Ok(names.iter().map(|name| folder.join(name)).collect())
    }

    /// Makes the stage of a claim.
    ///
    /// # Errors
    /// It cannot be made.
    pub async fn open_stage(&self, claim: ClaimId) -> Result<()> {
        let made = self.files.make_dir(&self.stage(claim)).await;
        made.map(drop).map_err(Error::target)
    }

    /// Removes the stage of a claim, with everything that has no name yet.
    ///
    /// # Errors
    /// It cannot be removed.
    pub async fn close_stage(&self, claim: ClaimId) -> Result<()> {
        let removed = self.files.remove_folder(&self.stage(claim)).await;
        removed.map_err(Error::target)
    }

    /// Returns the names in the stage of a claim.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn staged(&self, claim: ClaimId) -> Result<Vec<Name>> {
        let names = self.files.names(&self.stage(claim), b"").await;
        names.map_err(Error::target)
    }

    /// Whether a task is done.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn is_done(&self, task: TaskId) -> Result<bool> {
        let exists = self
            .files
            .exists(&self.folder("done"), &name(&task.to_string()))
            .await;
        exists.map_err(Error::target)
    }

    /// Returns the tasks that are done.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn done_tasks(&self) -> Result<Vec<TaskId>> {
        self.task_ids("done").await
    }

    /// Returns what is known of a task that is done.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub async fn done(&self, task: TaskId) -> Result<Option<Done>> {
        Ok(self.dated_done(task).await?.map(|(done, _)| done))
    }

    /// Ends a task, and notes how many segments it has. Only the last claim may: it goes through the folder of
    /// the claim as a segment does. Then the claim, its stage and the task are removed.
    ///
    /// # Errors
    /// [`Error::Claim`] if the claim is over.
    pub async fn finish(&self, claim: ClaimId, done: &Done) -> Result<()> {
        // Whoever had the task before can publish no more.
        let segments = self.segments(Some(claim.task)).await?.len() as u64;
        let done = Done {
            segments,
            epoch: claim.epoch.0,
            ..done.clone()
        };
        self.write_in_claim(claim, "done", &done.encode()).await?;
        let written = self.own_folder(claim).join(&name("done"));
        match self
            .tree()
            .rename(&written, &self.path("done", claim.task), false)
            .await
        {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(self.lost_or(claim, error).await),
        }
        let synced = self.tree().sync_dir(&self.folder("done")).await;
        synced.map_err(Error::target)?;
        self.clear(claim).await
    }

    /// Removes what is left of a task that is done: the task first, so that nobody claims it again.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub async fn clear(&self, claim: ClaimId) -> Result<()> {
        self.forget(claim.task).await?;
        self.close_stage(claim).await?;
        let removed = self.files.remove_folder(&self.path("claims", claim)).await;
        removed.map_err(Error::target)
    }

    /// Removes a task that is done from the list of tasks.
    ///
    /// # Errors
    /// It cannot be removed.
    pub async fn forget(&self, task: TaskId) -> Result<()> {
        let removed = self.files.remove(&self.path("tasks", task)).await;
        removed.map_err(Error::target)
    }

    /// Gives a claim back: another may take the task over at once. What is published stays.
    ///
    /// # Errors
    /// The catalog cannot be written to.
    pub async fn release(&self, claim: ClaimId) -> Result<()> {
        self.write_in_claim(claim, "free", b"").await
    }

    /// Removes what dead processes left of tasks that are done. Claims of other tasks stay, since
    /// their epochs must not appear again.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub async fn sweep(&self) -> Result<()> {
        let done: BTreeSet<TaskId> = self.done_tasks().await?.into_iter().collect();
        let mut claims = self.claims_with("claims", "").await?;
        claims.extend(self.claims_with("stage", "").await?);
        for claim in claims.into_iter().filter(|claim| done.contains(&claim.task)) {
            self.clear(claim).await?;
        }
        for task in self.tasks().await? {
            if done.contains(&task) {
                self.forget(task).await?;
            }
        }
        let folder = self.folder("tmp");
        for name in self.files.names(&folder, b"").await.map_err(Error::target)? {
            self.files
                .remove(&folder.join(&name))
                .await
                .map_err(Error::target)?;
        }
        Ok(())
    }

    /// Returns the epoch for the next claim of a task.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn next_epoch(&self, task: TaskId) -> Result<Epoch> {
        Ok(self.claims_of(task).await?.next(task))
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
