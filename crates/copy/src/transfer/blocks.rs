//! Writes only what changed inside a file that is overwritten in place (`--inplace`), at any target
//! (docs/adr/0041).
//!
//! A run that ends durably keeps hashes of the blocks of each large file that it wrote. The next run hashes the
//! blocks of the source as it reads them, and writes those that differ, if the file of the target is as it was
//! left: same size, modification time, change time and identity.
//!
//! Invariants:
//! * What was kept is forgotten, durably, before the file is opened for writing. A run that ends early leaves
//!   nothing that the next one could believe.
//! * What was kept is compared with the open file, which at a server nobody else may have open for writing
//!   meanwhile: servers show the time of a write late, some only when the writer closes the file.
//! * A list is kept only when all of the job is durable, nothing that was read back differed, and the file is
//!   as it was when it was complete.
//! * Each further try of a file in a run writes all of it: nobody knows what the one before it left.

use std::io;

use futures_util::StreamExt as _;
use ropeway_plan::{Engine, Start};
use ropeway_vfs::{EndError, Error, ErrorKind, File, Metadata, Op, RelPath};
use tokio::sync::SemaphorePermit;

use crate::block_list::kept::{self, KeptBlocks, Stamp};
use crate::block_list::list::{BlockChanges, BlockList};
use crate::job::context::Context;
use crate::job::options::DeltaMode;
use crate::place::destination::Destination;
use crate::place::task::FileTask;

/// Number of files at a time whose blocks are compared: two lists of each are in memory, 4 MiB each at most.
pub(crate) const LISTS_AT_ONCE: usize = 4;

/// The blocks of one file, from try to try.
pub(crate) struct Blocks<'a> {
    context: &'a Context,
    kept: Option<&'a KeptBlocks>,
    /// The final path on the target.
    path: RelPath,
    is_in_place: bool,
    /// What an earlier run kept, before it is compared with the open file.
    stamp: Option<Stamp>,
    changes: Option<BlockChanges>,
    room: Option<SemaphorePermit<'a>>,
}

impl<'a> Blocks<'a> {
    /// Makes the blocks of a file that goes to `destination`.
    pub(crate) fn of(context: &'a Context, task: &FileTask, destination: &Destination) -> Self {
        Self {
            context,
            kept: context.config.options.kept_blocks.as_ref(),
            path: task.final_path(),
            is_in_place: destination.is_in_place(),
            stamp: None,
            changes: None,
            room: None,
        }
    }

    /// Prepares a try, before the target is opened: takes what an earlier run kept.
    ///
    /// # Errors
    /// What was kept cannot be forgotten.
    pub(crate) async fn begin(&mut self, source: &Metadata) -> Result<(), EndError> {
        (self.stamp, self.changes, self.room) = (None, None, None);
        let (Some(kept), Some(new)) = (self.kept, BlockList::unknown(source.size)) else {
            return Ok(());
        };
        self.context
            .staged_lists
            .lock()
            .retain(|staged| staged.path != self.path);
        let (own, path) = (kept.clone(), self.path.clone());
        let stamp = blocking(move || own.take_stamp(&path)).await;
        let stamp = stamp.map_err(|cause| {
            let mut error = Error::new(Op::Remove, &self.path, ErrorKind::Other);
            let folder = kept.folder().display();
            let message = format!("the hashes of its blocks in {folder} cannot be forgotten: {cause}");
            error.source = Some(io::Error::other(message));
            EndError::on_target(error)
        })?;
        if self.is_wanted() {
            let room = self.context.list_room.acquire().await;
            self.room = Some(room.expect("the semaphore is never closed"));
            self.changes = Some(BlockChanges::new(new));
            self.stamp = stamp.filter(|stamp| self.is_in_place && self.is_trusted(stamp));
        }
        Ok(())
    }

    /// Whether this job compares blocks, or makes lists for the next one.
    fn is_wanted(&self) -> bool {
        let (config, can) = (&self.context.config, self.context.config.target.capabilities());
        let is_wanted = match config.options.delta {
            DeltaMode::Off => false,
            // A network file system of the kernel tells neither times at once nor who else writes.
            DeltaMode::On => can.remote || !can.on_network,
            // Hashing is faster than a line, and not always faster than a disk.
            DeltaMode::Auto => can.remote,
        };
        // Later rounds of a watch are never known to be durable.
        let is_possible = config.durability.wants_durable() && !config.options.watch;
        is_wanted && is_possible && config.options.engine == Engine::Auto
    }

    /// Whether the user trusts what size and times say of the target.
    fn is_trusted(&self, stamp: &Stamp) -> bool {
        let options = &self.context.config.options;
        let is_doubted = options.force || options.checksum;
        !is_doubted && (options.delta == DeltaMode::On || !stamp.has_no_change_time())
    }

    /// Whether the file should be opened so that nobody else writes to it, to be compared.
    pub(crate) fn needs_alone(&self) -> bool {
        self.stamp.is_some() && self.context.config.target.capabilities().remote
    }

    /// Forgets what an earlier run kept.
    pub(crate) fn forget(&mut self) {
        self.stamp = None;
    }

    /// Looks whether the open target, of which nothing was cut off yet, is as an earlier run left it. Then its
    /// blocks are compared, and it must keep its content.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) async fn compare_with(&mut self, target: &dyn File) -> Result<bool, Error> {
        let (Some(stamp), Some(kept), Some(changes)) = (self.stamp.take(), self.kept, &mut self.changes)
        else {
            return Ok(false);
        };
        if !stamp.is_of(&target.metadata().await?) {
            return Ok(false);
        }
        let (own, path) = (kept.clone(), self.path.clone());
        let list = blocking(move || Ok(own.list(&path, &stamp))).await;
        let Some(list) = list.ok().flatten() else {
            return Ok(false);
        };
        changes.compare_with(list);
        Ok(true)
    }

    /// Whether holes of the source must be written, because the target may have other bytes there: those of an
    /// old file that was not emptied. (Unwritten extents are holes of a file that is not sparse.)
    pub(crate) fn writes_holes(&self, start: Start, source: &Metadata) -> bool {
        let compares = self.changes.as_ref().is_some_and(BlockChanges::has_old);
        let was_emptied = start == Start::Anew && source.is_sparse() && !compares;
        self.is_in_place && !was_emptied
    }

    /// Returns what the data is compared with, and learns.
    pub(crate) fn changes(&self) -> Option<&BlockChanges> {
        self.changes.as_ref()
    }

    /// Keeps the list of a complete file until the job is durable.
    pub(crate) async fn stage(self, source: &Metadata) {
        let (Some(kept), Some(changes)) = (self.kept, self.changes) else {
            return;
        };
        let list = changes.into_new();
        if list.is_unknown() || self.context.staged_lists.lock().len() >= kept::LISTS_MAX {
            return;
        }
        let found = match self.is_in_place {
            false => None,
            true => match self.context.config.target.metadata(&self.path).await {
                Ok(found) => Some(found),
                Err(_) => return,
            },
        };
        let (own, path, modified) = (kept.clone(), self.path.clone(), source.modified.known());
        match blocking(move || own.stage(&path, &list, (modified, found))).await {
            Ok(staged) => self.context.staged_lists.lock().push(staged),
            Err(error) => note(self.context, &self.path, &error),
        }
    }
}

/// Keeps the lists of all files that this job wrote, when everything is durable.
pub(crate) async fn keep_lists(context: &Context) {
    let staged = std::mem::take(&mut *context.staged_lists.lock());
    let kept = context.config.options.kept_blocks.as_ref();
    let Some(kept) = kept.filter(|_| !staged.is_empty()) else {
        return;
    };
    let target = &context.config.target;
    let keep = staged.into_iter().map(|staged| async move {
        let found = target.metadata(&staged.path).await.ok()?;
        if !staged.is_of(&found) {
            // Somebody else has written to it.
            return None;
        }
        let (own, path) = (kept.clone(), staged.path.clone());
        let result = blocking(move || own.keep(&staged, &found)).await;
        result.err().map(|error| (path, error))
    });
    let at_once = target.capabilities().small_in_flight.max(1);
    let failed: Vec<_> = futures_util::stream::iter(keep)
        .buffer_unordered(at_once)
        .filter_map(std::future::ready)
        .collect()
        .await;
    for (path, error) in failed {
        note(context, &path, &error);
    }
    let own = kept.clone();
    let _ = blocking(move || own.prune()).await;
}

fn note(context: &Context, path: &RelPath, error: &io::Error) {
    let message = format!("cannot keep hashes of its blocks ({error}): the next run will write all of it");
    context.report.note(Some(path), message);
}

/// Runs file operations of this machine aside.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}
