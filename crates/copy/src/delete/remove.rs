//! Removes trees of the target, or moves them to the backup, except what must stay.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use ropeway_vfs::{
    Backlog, DirEntry, DuplicateFolders, End, Error, ErrorKind, Held, Metadata, Op, RelPath, Tree,
};
use tokio::sync::Semaphore;

use crate::delete::above::{Above, is_link};
use crate::delete::batch::{folders_at_once, next_batch, nodes_at_once};
use crate::delete::clear::clear_unless;
use crate::delete::guard::admit_deletion;
use crate::delete::nodes::{CHUNK, is_mount_point};
use crate::delete::pass::Pass;
use crate::delete::protection::Protection;
use crate::job::context::Context;
use crate::job::options::Backup;
use crate::job::root::JobRoot;
use crate::journal::open::Journal;
use crate::journal::token::token_of;
use crate::name::backup::move_to_backup;
use crate::name::rename::rename_retried;
use crate::sweep::others::may_be_alive;

/// Removes nodes of the target. It reports what must stay, and continues.
pub(super) struct Removal<'a> {
    context: &'a Context,
    /// Number of nodes removed at a time, in all folders.
    at_once: usize,
    turns: Semaphore,
    pub(super) protection: Protection<'a>,
    /// Bounds the folders still to visit.
    pub(super) backlog: Backlog,
    /// The node whose name is needed at once, and the name that it gets before it is removed.
    aside: Option<(&'a RelPath, RelPath)>,
}

impl<'a> Removal<'a> {
    pub(super) fn new(context: &'a Context, root: &'a JobRoot) -> Self {
        let config = &context.config;
        let in_order = config.options.backup.is_some() || config.options.dry_run;
        let at_once = match in_order {
            // Backups share folders, which are made when they are missing.
            true => 1,
            false => nodes_at_once(&*config.target),
        };
        Self {
            context,
            at_once,
            turns: Semaphore::new(at_once),
            protection: Protection { config, root },
            backlog: Backlog::of(&*config.target),
            aside: None,
        }
    }

    /// Returns the number of folders that are listed or emptied at a time.
    pub(super) fn folders_at_once(&self) -> usize {
        folders_at_once(self.at_once)
    }

    /// Deletes extra nodes of a folder, several at a time: only folders, or none. Returns whether the folder
    /// that held them changed.
    pub(super) async fn delete_all(&self, nodes: Vec<(RelPath, Metadata)>, above: Above) -> bool {
        let at_once = match nodes.first() {
            Some((_, metadata)) if metadata.is_dir() => self.folders_at_once(),
            _ => self.at_once,
        };
        let deletions = nodes
            .into_iter()
            .map(|(path, metadata)| async move { self.delete(&path, &metadata, above).await });
        let changed: Vec<bool> = futures_util::stream::iter(deletions)
            .buffer_unordered(at_once)
            .collect()
            .await;
        changed.contains(&true)
    }

    /// Deletes one extra node, unless the job was stopped. Returns whether the folder changed.
    async fn delete(&self, path: &RelPath, metadata: &Metadata, above: Above) -> bool {
        self.context.pass().await;
        if self.context.stopped() {
            return false;
        }
        match self.clear(path, metadata, above).await {
            Ok(_) => !self.context.config.options.dry_run,
            Err(error) if error.kind.is_absence() => true,
            Err(error) => {
                self.failed(path, error).await;
                false
            }
        }
    }

    /// Removes a node and everything below it, or moves it to the backup, except what must stay and
    /// the folders that hold such nodes. Returns whether nothing is left.
    async fn clear(&self, path: &RelPath, metadata: &Metadata, above: Above) -> Result<bool, Error> {
        if let Some(backup) = self
            .context
            .config
            .options
            .backup
            .as_ref()
            .filter(|_| !self.context.config.options.dry_run)
            && (!metadata.is_dir() || self.may_move_whole(path, metadata, above).await?)
        {
            self.back_up(backup, path, metadata.is_dir().then_some(above))
                .await?;
            return Ok(true);
        }
        self.remove_tree(path, above).await
    }

    /// Whether nothing below a folder must stay, so that one rename moves all of it to the backup.
    async fn may_move_whole(&self, path: &RelPath, metadata: &Metadata, above: Above) -> Result<bool, Error> {
        if self.protection.holds_backups(path) {
            return Ok(false);
        }
        let volume = metadata.id.map(|id| id.volume);
        let mut folders = vec![(path.clone(), above, Held::default())];
        let target = &*self.context.config.target;
        while let Some((dir, above, _held)) = folders.pop() {
            let mut listing = target.list(&dir).await?;
            loop {
                let entries = listing.next(CHUNK).await?;
                // A link is moved as it is.
                if entries.is_empty() || above.prove(target, &dir, &*listing).is_err() {
                    break;
                }
                for entry in entries {
                    let metadata = entry.metadata?;
                    let child = dir.join(&entry.name);
                    let stays = is_mount_point(&metadata, volume)
                        || self.protection.protects(&child, &metadata)
                        || may_be_alive(self.context, &child).await;
                    if stays {
                        return Ok(false);
                    }
                    if metadata.is_dir() {
                        let held = self.backlog.hold(&child)?;
                        folders.push((child, Above::of(&*listing), held));
                    }
                }
            }
        }
        Ok(true)
    }
    /// Moves a node to its backup if the guard allows it.
    async fn back_up(&self, backup: &Backup, path: &RelPath, above: Option<Above>) -> Result<(), Error> {
        let context = self.context;
        admit_deletion(&context.delete_guard, &context.report, path)?;
        let goes_on = || !context.stopped();
        let memory = context.journal.as_ref().map(Journal::memory);
        let is_kept = |found: &Metadata| memory.is_some_and(|memory| memory.has_kept(found));
        let target = &*context.config.target;
        move_to_backup(target, backup, path, above, (goes_on, is_kept)).await?;
        context.durability.touch();
        context.report.live.deleted.fetch_add(1, Ordering::Relaxed);
        context.report.item(path, "delete", 0);
        Ok(())
    }

    /// Removes one node if the guard allows it. In a dry run, only reports it.
    async fn remove_one(&self, path: &RelPath, metadata: &Metadata) -> Result<(), Error> {
        let context = self.context;
        admit_deletion(&context.delete_guard, &context.report, path)?;
        if !context.config.options.dry_run {
            match self.aside.as_ref().filter(|(node, _)| *node == path) {
                Some((_, aside)) => self.remove_aside(path, metadata, aside).await?,
                None => remove_node(&*context.config.target, path, metadata).await?,
            }
            context.durability.touch();
        }
        context.report.live.deleted.fetch_add(1, Ordering::Relaxed);
        context.report.item(path, "delete", metadata.size);
        Ok(())
    }

    /// Gives a node a temporary name, and removes it there. A server keeps the name of a removed node
    /// until the last client has closed it.
    async fn remove_aside(&self, path: &RelPath, metadata: &Metadata, aside: &RelPath) -> Result<(), Error> {
        let (config, report) = (&self.context.config, &self.context.report);
        rename_retried(config, report, path, aside).await?;
        match remove_node(&*config.target, aside, metadata).await {
            Err(error) if !error.kind.is_absence() => {
                // It stays, so it gets its name back. The first error says why.
                let _ = rename_retried(config, report, aside, path).await;
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Removes one node if the guard allows it, with a backup. Returns whether its name is free
    /// again.
    async fn remove(&self, path: &RelPath, metadata: &Metadata) -> Result<bool, Error> {
        let turn = self.turns.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        match &self.context.config.options.backup {
            Some(backup) if !metadata.is_dir() && !self.context.config.options.dry_run => {
                self.back_up(backup, path, None).await?;
                // With a suffix the backup stays in this folder.
                Ok(matches!(backup, Backup::Directory { .. }))
            }
            _ => self.remove_one(path, metadata).await.map(|()| true),
        }
    }

    /// Whether a node below the removed one must stay.
    async fn stays(&self, path: &RelPath, metadata: &Metadata, volume: Option<u64>) -> bool {
        if is_mount_point(metadata, volume) {
            self.report_mount_point(path).await;
            return true;
        }
        self.protection.keeps(path, metadata) || may_be_alive(self.context, path).await
    }

    /// Removes a node and everything below it, except what must stay and the folders that hold such
    /// nodes. Returns whether nothing is left.
    async fn remove_tree(&self, path: &RelPath, above: Above) -> Result<bool, Error> {
        let metadata = self.context.config.target.metadata(path).await?;
        if !metadata.is_dir() {
            return self.remove(path, &metadata).await.map(|_| true);
        }
        let holders = Mutex::new(HashSet::new());
        // Each folder is visited twice: first for its content, then for itself.
        let mut stack = vec![(path.clone(), metadata, Some(above), Held::default())];
        while !stack.is_empty() {
            self.context.pass().await;
            if self.context.stopped() {
                return Err(Error::new(Op::Remove, path, ErrorKind::Cancelled));
            }
            let batch = next_batch(&mut stack, self.folders_at_once(), |(dir, _, above, _)| {
                (dir, above.is_none())
            });
            if batch.iter().all(|(_, _, above, _)| above.is_none()) {
                let empty = batch.iter().filter(|(dir, ..)| !holders.lock().contains(dir));
                let removals = empty.map(|(dir, metadata, ..)| self.remove(dir, metadata));
                join_all(removals)
                    .await
                    .into_iter()
                    .collect::<Result<Vec<bool>, Error>>()?;
                continue;
            }
            let inner = join_all(batch.iter().map(|folder| self.empty(folder, &holders))).await;
            for ((dir, metadata, _, held), inner) in batch.into_iter().zip(inner) {
                let inner = match inner {
                    Ok(folders) => folders,
                    // The target of the link stays, and so does the link.
                    Err(error) if is_link(&error) && dir != *path => {
                        self.failed(&dir, error).await;
                        hold(&holders, &dir);
                        Vec::new()
                    }
                    Err(error) => return Err(error),
                };
                stack.push((dir, metadata, None, held));
                stack.extend(inner);
            }
        }
        Ok(!holders.lock().contains(path))
    }

    /// Removes everything in a folder that is no folder. Returns its folders.
    async fn empty(
        &self,
        (dir, metadata, above, _): &StackedFolder,
        holders: &Mutex<HashSet<RelPath>>,
    ) -> Result<Vec<StackedFolder>, Error> {
        if self.protection.holds_backups(dir) {
            hold(holders, dir);
        }
        let (target, volume) = (&*self.context.config.target, metadata.id.map(|id| id.volume));
        let mut listing = target.list(dir).await?;
        let (mut folders, mut twins) = (Vec::new(), DuplicateFolders::default());
        loop {
            let entries = listing.next(CHUNK).await?;
            if let Some(above) = above {
                above.prove(target, dir, &*listing)?;
            }
            if entries.is_empty() {
                break;
            }
            let mut files = Vec::new();
            for entry in entries {
                let (child, metadata) = (dir.join(&entry.name), entry.metadata?);
                if listing.origin().is_some() {
                    twins.add(&metadata);
                }
                if self.stays(&child, &metadata, volume).await {
                    hold(holders, dir);
                } else if metadata.is_dir() {
                    let held = self.backlog.hold(&child)?;
                    folders.push((child, metadata, Some(Above::of(&*listing)), held));
                } else {
                    files.push((child, metadata));
                }
            }
            if !self.remove_files(&files).await? {
                hold(holders, dir);
            }
        }
        let mut single = Vec::with_capacity(folders.len());
        for (child, metadata, above, held) in folders {
            match twins.check(&child, metadata.id) {
                Ok(()) => single.push((child, metadata, above, held)),
                Err(error) => {
                    self.failed(&child, error).await;
                    hold(holders, dir);
                }
            }
        }
        Ok(single)
    }

    /// Removes files of a folder, several at a time. Returns whether their names are free again. After an
    /// error no others are begun.
    async fn remove_files(&self, files: &[(RelPath, Metadata)]) -> Result<bool, Error> {
        let (mut files, mut under_way) = (files.iter(), FuturesUnordered::new());
        let mut outcome = Ok(true);
        loop {
            while outcome.is_ok()
                && under_way.len() < self.at_once
                && let Some((path, metadata)) = files.next()
            {
                under_way.push(self.remove(path, metadata));
            }
            match under_way.next().await {
                Some(Ok(is_free)) => outcome = outcome.map(|are_free| are_free && is_free),
                Some(Err(error)) => outcome = outcome.and(Err(error)),
                None => return outcome,
            }
        }
    }

    /// Reports that another volume is mounted where something should be deleted. Neither it nor its
    /// content is touched.
    pub(super) async fn report_mount_point(&self, path: &RelPath) {
        if self.context.config.options.one_file_system {
            let message = "another file system is mounted here; kept (-x)";
            return self.context.report.note(Some(path), message);
        }
        let mut error = Error::new(Op::Remove, path, ErrorKind::Busy);
        error.source = Some(std::io::Error::other(
            "another file system is mounted here, and is not emptied; unmount it, or exclude it",
        ));
        self.context.fail(path, error, End::Target).await;
    }

    async fn failed(&self, path: &RelPath, error: Error) {
        self.context.fail(path, error, End::Target).await;
    }
}

/// Removes from a folder that an earlier run of this job left half filled what the source no longer
/// has, or has as another kind. Nobody ever saw it there, and it takes room that the rest needs.
/// Nothing is removed if the source cannot be listed completely. `listed`: all that the folder holds, if that
/// is known. Returns whether nothing of it had to go; `false` if it was not known.
///
/// # Errors
/// The target cannot be listed, or something cannot be removed.
pub(crate) async fn prune<'a>(
    context: &Context,
    root: &JobRoot,
    source_dir: &RelPath,
    target_dir: &RelPath,
    listed: Option<impl Iterator<Item = &'a DirEntry>>,
) -> Result<bool, Error> {
    let pass = Pass::new(context, root, false, true).await;
    let Ok(names) = pass.source_hashes(source_dir).await else {
        return Ok(listed.is_some());
    };
    let stays = |entry: &DirEntry| {
        let is_dir = names.get(&pass.name_hash(&entry.name));
        // A node whose metadata cannot be read is removed as well: nobody can know what it is.
        let found = entry.metadata.as_ref();
        found.is_ok_and(|found| Some(&found.is_dir()) == is_dir)
    };
    let (config, durability) = (&context.config, &context.durability);
    let may_stay = |entry: &DirEntry| config.is_own_temporary(&entry.name) || stays(entry);
    if listed.is_some_and(|mut listed| listed.all(may_stay)) {
        return Ok(true);
    }
    clear_unless(config, durability, &context.report, target_dir, stays).await?;
    Ok(false)
}

/// Removes what stands on the target in the way of a node of another kind, or moves it to the
/// backup. What filters exclude and other volumes stay.
///
/// # Errors
/// It cannot be removed, or holds something that must stay.
pub(crate) async fn make_way(context: &Context, root: &JobRoot, path: &RelPath) -> Result<(), Error> {
    clear_way(Removal::new(context, root), path).await
}

/// Does what [`make_way`] does for a complete node, which waits under a temporary name in the same
/// folder and gets the name next. The name is free at once, even if a client has the old node open:
/// a server that removes such a node keeps its name until it is closed, so that neither the old nor
/// the new version would have the name in the end.
///
/// # Errors
/// As [`make_way`]. The old node is still there, except for what a folder held.
pub(crate) async fn free_name(context: &Context, root: &JobRoot, path: &RelPath) -> Result<(), Error> {
    let token = !token_of(root.index, path);
    let folder = path.parent().unwrap_or_default();
    let aside = folder.join(&context.config.temporary_of(token));
    let removal = Removal {
        aside: Some((path, aside)),
        ..Removal::new(context, root)
    };
    clear_way(removal, path).await
}

async fn clear_way(removal: Removal<'_>, path: &RelPath) -> Result<(), Error> {
    let context = removal.context;
    let metadata = match context.config.target.metadata(path).await {
        Ok(metadata) => metadata,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let kept = |why: &'static str| {
        let mut error = Error::new(Op::Remove, path, ErrorKind::NotEmpty);
        error.source = Some(std::io::Error::other(why));
        error
    };
    let mut above = Above::Named;
    if metadata.is_dir() {
        let parent = context
            .config
            .target
            .metadata(&path.parent().unwrap_or_default())
            .await?;
        above = Above::In(parent.id);
        if is_mount_point(&metadata, parent.id.map(|id| id.volume)) {
            return Err(kept("another file system is mounted here, and is not emptied"));
        }
    }
    match removal.clear(path, &metadata, above).await? {
        true => Ok(()),
        false => Err(kept(
            "the folder holds what filters exclude or another file system",
        )),
    }
}

async fn remove_node(target: &dyn Tree, path: &RelPath, metadata: &Metadata) -> Result<(), Error> {
    match metadata.is_dir() {
        true => target.remove_dir(path).await,
        false => target.remove_file(path).await,
    }
}

/// A folder on the stack of a removal. Without [`Above`], its content is gone already.
type StackedFolder = (RelPath, Metadata, Option<Above>, Held);

/// Marks a folder and those above it as holding something that must stay.
fn hold(holders: &Mutex<HashSet<RelPath>>, dir: &RelPath) {
    let mut holders = holders.lock();
    let mut holder = Some(dir.clone());
    while let Some(folder) = holder.filter(|folder| holders.insert(folder.clone())) {
        holder = folder.parent();
    }
}
