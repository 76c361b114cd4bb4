//! The jobs of one target, one after the other: each has a folder of its own.
//!
//! ```text
//!   .ropeway-fleet-NAME/
//!     job.N              names the folder of the N-th job; never changed, never removed
//!     run.N.TOKEN/       the catalog of that job
//! ```
//!
//! A task has the same name in every job, and epochs begin with 1 again. So the folder of a job has
//! a random name: a worker of an earlier job has no path into a later one, however long it slept.
//! The earlier folder is removed before a worker of the later job does anything
//! ([`Runs::join`]), so nothing can be renamed out of it any more.
//!
//! A job exists once its file `job.N` does. That is made exclusively and never removed, so of two
//! that make the next job at once only one succeeds, and neither can remove what is not its own.

use std::fmt;
use std::sync::Arc;

use ropeway_vfs::{Metadata, Name, RelPath, Tree};

use super::Store;
use crate::claim::number;
use crate::error::{Error, Result};
use crate::files::{Files, name};
use crate::job::JobFile;
use crate::workers::WorkerId;

/// Folders of a run that are removed first: without them nothing is published, claimed or renamed.
const FENCES: [&str; 4] = ["tmp", "claims", "stage", "large"];

/// Permission bits with which others could change a folder.
const OTHERS_WRITE: u32 = 0o022;

/// Name of the folder of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    number: u32,
    token: u64,
}

impl Run {
    /// Parses what `Display` writes.
    fn parse(text: &[u8]) -> Option<Self> {
        let (count, token) = text.strip_prefix(b"run.")?.split_at_checked(8)?;
        Some(Self {
            number: number(count)?,
            token: WorkerId::parse(token.strip_prefix(b".")?)?.0,
        })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run.{:08x}.{:016x}", self.number, self.token)
    }
}

/// The jobs of one target, as one process uses them.
pub struct Runs {
    tree: Arc<dyn Tree>,
    root: RelPath,
    worker: WorkerId,
}

impl Runs {
    /// Uses the folder `root` of a tree. `worker` must be unique among all processes.
    pub fn new(tree: Arc<dyn Tree>, root: RelPath, worker: WorkerId) -> Self {
        Self { tree, root, worker }
    }

    /// Returns the folder of all jobs.
    pub fn root(&self) -> &RelPath {
        &self.root
    }

    /// Returns the catalog of a job.
    pub fn store(&self, run: Run) -> Store {
        let folder = self.root.join(&name(&run.to_string()));
        Store::new(Arc::clone(&self.tree), folder, self.worker)
    }

    fn files(&self) -> Files {
        Files::new(Arc::clone(&self.tree), self.root.clone(), self.worker.to_string())
    }

    /// Returns the last job; `None` if there was none.
    ///
    /// # Errors
    /// The folder cannot be read, or what names the job is damaged.
    pub async fn newest(&self) -> Result<Option<Run>> {
        let files = self.files();
        let names = files.names(&self.root, b"job").await.map_err(Error::target)?;
        if names.iter().any(|name| name.as_bytes() == b"job") {
            return Err(Error::Damaged("job (of an older version)".to_owned()));
        }
        let number_of = |name: &Name| number(name.as_bytes().strip_prefix(b"job.")?);
        let Some(last) = names.iter().filter_map(number_of).max() else {
            return Ok(None);
        };
        let text = job_name(last);
        let bytes = files.read(&self.root.join(&name(&text))).await;
        let bytes = bytes.map_err(Error::target)?.unwrap_or_default();
        let run = Run::parse(&bytes).filter(|run| run.number == last);
        run.map(Some).ok_or(Error::Damaged(text))
    }

    /// Makes the job that follows `before`, with its first task. `token` must be random. Returns
    /// `None` if another process has made it meanwhile.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub async fn submit(&self, before: Option<Run>, token: u64, job: &JobFile) -> Result<Option<Store>> {
        let number = before.map_or(Some(1), |run| run.number.checked_add(1));
        let number = number.ok_or_else(|| Error::Damaged(job_name(u32::MAX)))?;
        let run = Run { number, token };
        let files = self.files();
        files.make_dir(&self.root).await.map_err(Error::target)?;
        let own = std::slice::from_ref(&self.root);
        self.check_owner(own, &self.root).await?;
        let store = self.store(run);
        // Its name is random: what is there already was made by an attempt whose reply was lost.
        store.create(job).await?;
        let (file, text) = (name(&job_name(number)), run.to_string());
        let published = store.files.publish(&self.root, &file, text.as_bytes());
        // The reply to the first attempt may have been lost.
        if !published.await.map_err(Error::target)? && self.newest().await? != Some(run) {
            store.remove().await?;
            return Ok(None);
        }
        if let Some(above) = self.root.parent() {
            self.tree.sync_dir(&above).await.map_err(Error::target)?;
        }
        self.end_before(run).await?;
        Ok(Some(store))
    }

    /// Opens the catalog of a job for a worker: checks that nobody else can write to it, and ends the
    /// jobs before it.
    ///
    /// # Errors
    /// The folder belongs to another user, or a folder cannot be removed.
    pub async fn join(&self, run: Run) -> Result<Store> {
        self.check(run).await?;
        self.end_before(run).await?;
        Ok(self.store(run))
    }

    /// Checks that nobody else can write to the catalog of a job. Before that, nothing that it says may be done: it may
    /// name a server that wants a login.
    ///
    /// # Errors
    /// The folder belongs to another user, or cannot be written to.
    pub async fn check(&self, run: Run) -> Result<()> {
        let store = self.store(run);
        let folders = [self.root.clone(), store.root().clone()];
        self.check_owner(&folders, &store.folder("workers")).await
    }

    /// Checks that folders have the owner, and no further writers, that a file has which this process
    /// makes in `probes`. The volume or share may show others than those asked for.
    async fn check_owner(&self, folders: &[RelPath], probes: &RelPath) -> Result<()> {
        let files = self.files();
        let probe = probes.join(&name(&format!("probe.{}", self.worker)));
        files.write(&probe, b"").await.map_err(Error::target)?;
        let own = self.tree.metadata(&probe).await;
        files.remove(&probe).await.map_err(Error::target)?;
        let own = own.map_err(Error::target)?;
        let others = |metadata: &Metadata| metadata.mode.unwrap_or(0) & OTHERS_WRITE;
        for folder in folders {
            let found = self.tree.metadata(folder).await.map_err(Error::target)?;
            let is_own = found.owner.map(|owner| owner.user) == own.owner.map(|owner| owner.user);
            if !is_own || others(&found) & !others(&own) != 0 {
                return Err(Error::Foreign(folder.to_string()));
            }
        }
        Ok(())
    }

    /// Ends all jobs before this one: when it returns, their workers can give nothing a name.
    ///
    /// # Errors
    /// A folder cannot be removed.
    async fn end_before(&self, run: Run) -> Result<()> {
        let files = self.files();
        let names = files.names(&self.root, b"run.").await.map_err(Error::target)?;
        let runs = names.iter().filter_map(|name| Run::parse(name.as_bytes()));
        // Another of the same number is one that was not made in the end, or is not yet refused.
        for earlier in runs.filter(|earlier| earlier.number < run.number) {
            let store = self.store(earlier);
            for folder in FENCES {
                let removed = files.remove_folder(&store.folder(folder)).await;
                removed.map_err(Error::target)?;
            }
            store.end().await?;
            // The rest does no harm. What a program or an attribute protects there keeps no new job from its work.
            if let Err(error) = files.remove_folder(store.root()).await {
                tracing::warn!(%error, "the folder of an earlier job stays");
            }
        }
        Ok(())
    }
}

fn job_name(number: u32) -> String {
    format!("job.{number:08x}")
}
