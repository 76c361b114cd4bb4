//! Deletions of a mirror: counted before anything is touched, done after everything is copied.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::guard::{DeleteGuard, Extra};
use ropeway_vfs::{Error, ErrorKind, Metadata, Name, Op, RelPath};

use crate::context::{Context, RootContext, lock};
use crate::options::Backup;
use crate::status::{Fatal, Status};

const CHUNK: usize = 1024;

/// What a deletion pass found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    target_nodes: u64,
    extras: u64,
}

/// Counts what the mirror would delete, asks the guard, and sets it.
///
/// # Errors
/// The guard refuses; nothing was touched.
pub(crate) async fn check(context: &Arc<Context>, roots: &[Arc<RootContext>]) -> Result<(), Fatal> {
    let delete = context.options.delete.clone().unwrap_or_default();
    let (mut found, mut source_found) = (Found::default(), 0);
    for root in roots {
        let pass = Pass {
            context,
            root,
            count_only: true,
        };
        pass.run(&mut found)
            .await
            .map_err(|error| Fatal::from_error(&error, false))?;
        source_found += source_nodes(root)
            .await
            .map_err(|error| Fatal::from_error(&error, true))?;
    }
    let mut guard = DeleteGuard::new(delete.max, found.target_nodes);
    guard.delete_excluded = delete.excluded;
    guard.plan(source_found, found.extras).map_err(|refused| {
        Fatal::new(Status::Refused, refused.to_string())
            .hint("look with --dry-run; raise --max-delete if it is meant")
    })?;
    *lock(&context.guard) = Some(guard);
    Ok(())
}

/// Whether the source holds anything at all: its first entries.
async fn source_nodes(root: &RootContext) -> Result<u64, Error> {
    let mut listing = root.root.source.list(&root.root.source_path).await?;
    Ok(listing.next(CHUNK).await?.len() as u64)
}

/// Deletes what is on the target and not in the source.
pub(crate) async fn run(context: &Arc<Context>, root: &Arc<RootContext>) {
    if context.stopped() {
        return;
    }
    if let Err(fatal) = still_there(context, root).await {
        return context.fatal(fatal);
    }
    let pass = Pass {
        context,
        root,
        count_only: false,
    };
    if let Err(error) = pass.run(&mut Found::default()).await {
        context.fail(&root.root.target_path, error, false).await;
    }
}

/// The source was emptied, or its volume went, while it was copied: that is no reason to empty the target.
async fn still_there(context: &Arc<Context>, root: &Arc<RootContext>) -> Result<(), Fatal> {
    let now = source_nodes(root).await;
    if now.map_err(|error| Fatal::from_error(&error, true))? > 0 {
        return Ok(());
    }
    let pass = Pass {
        context,
        root,
        count_only: true,
    };
    let mut found = Found::default();
    let counted = pass.run(&mut found).await;
    counted.map_err(|error| Fatal::from_error(&error, false))?;
    let planned = DeleteGuard::new(None, found.target_nodes).plan(0, found.extras);
    planned.map_err(|refused| {
        Fatal::new(Status::Refused, refused.to_string()).hint("the source was emptied while it was copied")
    })
}

struct Pass<'a> {
    context: &'a Arc<Context>,
    root: &'a Arc<RootContext>,
    count_only: bool,
}

impl Pass<'_> {
    async fn run(&self, found: &mut Found) -> Result<(), Error> {
        let spec = &self.root.root;
        match self.context.target.metadata(&spec.target_path).await {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut folders = vec![RelPath::root()];
        while let Some(below) = folders.pop() {
            if self.context.stopped() {
                return Ok(());
            }
            self.folder(&below, found, &mut folders).await?;
        }
        Ok(())
    }

    /// One folder, given relative to the root. Names of the target are those of the source unless mapped.
    async fn folder(
        &self,
        below: &RelPath,
        found: &mut Found,
        folders: &mut Vec<RelPath>,
    ) -> Result<(), Error> {
        let spec = &self.root.root;
        let (source_dir, target_dir) = (
            spec.source_path.join_path(below),
            spec.target_path.join_path(below),
        );
        let sources = self.source_names(&source_dir).await;
        let mut listing = self.context.target.list(&target_dir).await?;
        let mut changed = false;
        loop {
            let entries = listing.next(CHUNK).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let path = below.join(&entry.name);
                if self.context.is_own_temporary(&entry.name) || self.is_backup(&target_dir.join(&entry.name))
                {
                    continue;
                }
                found.target_nodes += 1;
                let metadata = entry.metadata?;
                match self.fate(sources.as_ref(), &path, &entry.name, &metadata) {
                    Fate::Stays if metadata.is_dir() => folders.push(path),
                    Fate::Stays => {}
                    // Replaced by the copy, which has done that already when this pass deletes.
                    Fate::Replaced if !self.count_only => {}
                    Fate::Replaced | Fate::Extra if self.count_only => {
                        self.count(&target_dir.join(&entry.name), &metadata, found)
                            .await?;
                    }
                    Fate::Replaced | Fate::Extra => changed |= self.delete(&path).await,
                }
                if self.context.stopped() {
                    return Ok(());
                }
            }
        }
        if changed {
            self.restore_times(&source_dir, &target_dir).await;
        }
        Ok(())
    }

    /// Counts a node that would be deleted, with everything below it.
    async fn count(&self, path: &RelPath, metadata: &Metadata, found: &mut Found) -> Result<(), Error> {
        found.extras += 1;
        let mut folders = if metadata.is_dir() {
            vec![path.clone()]
        } else {
            Vec::new()
        };
        while let Some(dir) = folders.pop() {
            let mut listing = self.context.target.list(&dir).await?;
            loop {
                let entries = listing.next(CHUNK).await?;
                if entries.is_empty() {
                    break;
                }
                for entry in entries {
                    found.extras += 1;
                    found.target_nodes += 1;
                    if entry.metadata.as_ref().is_ok_and(Metadata::is_dir) {
                        folders.push(dir.join(&entry.name));
                    }
                }
            }
        }
        Ok(())
    }

    /// Names that belong into a target folder, as hashes, and whether they are folders; `None` when the source's listing failed: nothing is deleted
    /// then.
    async fn source_names(&self, dir: &RelPath) -> Option<HashMap<u64, bool>> {
        let mut names = HashMap::new();
        let mut listing = self.root.root.source.list(dir).await.ok()?;
        loop {
            let entries = listing.next(CHUNK).await.ok()?;
            if entries.is_empty() {
                return Some(names);
            }
            for entry in entries {
                let is_dir = entry.metadata.as_ref().is_ok_and(Metadata::is_dir);
                let name = self
                    .root
                    .names
                    .map(&entry.name)
                    .map_or(entry.name, |mapped| mapped.name);
                names.insert(self.name_hash(&name), is_dir);
            }
        }
    }

    fn name_hash(&self, name: &Name) -> u64 {
        let mut hasher = blake3::Hasher::new();
        if self.context.target.capabilities().case_sensitive {
            hasher.update(name.as_bytes());
        } else {
            hasher.update(String::from_utf8_lossy(name.as_bytes()).to_lowercase().as_bytes());
        }
        let mut bytes = [0; 8];
        hasher.finalize_xof().fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn is_backup(&self, path: &RelPath) -> bool {
        match &self.context.options.backup {
            Some(Backup::Directory(base)) => path.strip_prefix(base).is_some(),
            Some(Backup::Suffix(suffix)) => path.as_bytes().ends_with(suffix),
            None => false,
        }
    }

    /// What becomes of a node of the target. `sources`: `None` when the source could not be listed whole.
    fn fate(
        &self,
        sources: Option<&HashMap<u64, bool>>,
        path: &RelPath,
        name: &Name,
        metadata: &Metadata,
    ) -> Fate {
        let excluded = self.context.options.filter.excluded(path, metadata.is_dir());
        let delete_excluded = self
            .context
            .options
            .delete
            .as_ref()
            .is_some_and(|delete| delete.excluded);
        let mut guard = DeleteGuard::new(None, 0);
        guard.delete_excluded = delete_excluded;
        if guard
            .judge(Extra {
                source_listed_whole: sources.is_some(),
                excluded,
            })
            .is_err()
        {
            return Fate::Stays;
        }
        match sources.and_then(|sources| sources.get(&self.name_hash(name))) {
            _ if excluded => Fate::Extra,
            None => Fate::Extra,
            Some(is_dir) if *is_dir != metadata.is_dir() => Fate::Replaced,
            Some(_) => Fate::Stays,
        }
    }

    /// Deletes one extra node; whether the folder changed.
    async fn delete(&self, below: &RelPath) -> bool {
        let path = self.root.root.target_path.join_path(below);
        let result = match &self.context.options.backup {
            _ if self.keeps_excluded() => self.delete_unexcluded(below).await.map(drop),
            Some(backup) if !self.context.options.dry_run => self.set_aside(backup, &path).await,
            _ => remove_all(self.context, &path).await,
        };
        if let Err(error) = result {
            self.context.fail(&path, error, false).await;
            return false;
        }
        !self.context.options.dry_run
    }

    /// Whether there may be names that filters protect.
    fn keeps_excluded(&self) -> bool {
        let delete = self.context.options.delete.as_ref();
        !self.context.options.filter.is_empty() && !delete.is_some_and(|delete| delete.excluded)
    }

    /// Deletes a node and everything below it but for what filters exclude, and the folders that hold such; whether
    /// nothing is left.
    async fn delete_unexcluded(&self, below: &RelPath) -> Result<bool, Error> {
        let path = self.root.root.target_path.join_path(below);
        remove_tree(self.context, &path, Removal::Unexcluded(self)).await
    }

    async fn set_aside(&self, backup: &Backup, path: &RelPath) -> Result<(), Error> {
        admit(self.context, path)?;
        let kept = crate::file::backup_path(self.context, backup, path).await?;
        self.context.target.rename(path, &kept, true).await?;
        self.context.live.deleted.fetch_add(1, Ordering::Relaxed);
        self.context.item(path, "delete", 0);
        Ok(())
    }

    /// Deletions changed a folder's times: set them from the source again.
    async fn restore_times(&self, source_dir: &RelPath, target_dir: &RelPath) {
        if !self.context.options.preserve.times {
            return;
        }
        let Ok(metadata) = self.root.root.source.metadata(source_dir).await else {
            return;
        };
        let change = ropeway_vfs::MetadataChange {
            modified: Some(metadata.modified),
            accessed: metadata.accessed,
            ..Default::default()
        };
        if let Err(error) = self.context.target.set_metadata(target_dir, &change).await {
            self.context.fail(target_dir, error, false).await;
        }
        self.context.sync.touched();
    }
}

/// What becomes of a node of the target.
enum Fate {
    Stays,
    /// Its name belongs to a node of another kind: a folder to a file, or the reverse.
    Replaced,
    Extra,
}

/// Asks the mirror's guard for one deletion; a refusal stops the job.
fn admit(context: &Context, path: &RelPath) -> Result<(), Error> {
    let refused = match &mut *lock(&context.guard) {
        Some(guard) => guard.admit().err(),
        None => None,
    };
    match refused {
        None => Ok(()),
        Some(refused) => {
            context.fatal(Fatal::new(Status::Refused, refused.to_string()));
            Err(Error::new(Op::Remove, path, ErrorKind::Cancelled))
        }
    }
}

/// Empties a folder that an earlier run of this job left half filled of what the source has no more: nobody ever saw
/// it there, and it takes room that the rest needs. Nothing is removed if the source cannot be listed whole.
///
/// # Errors
/// The target cannot be listed, or something cannot be removed.
pub(crate) async fn prune(
    context: &Arc<Context>,
    root: &Arc<RootContext>,
    source_dir: &RelPath,
    target_dir: &RelPath,
) -> Result<(), Error> {
    let pass = Pass {
        context,
        root,
        count_only: false,
    };
    let Some(names) = pass.source_names(source_dir).await else {
        return Ok(());
    };
    let mut listing = context.target.list(target_dir).await?;
    loop {
        let entries = listing.next(CHUNK).await?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            if !context.is_own_temporary(&entry.name) && !names.contains_key(&pass.name_hash(&entry.name)) {
                remove_tree(context, &target_dir.join(&entry.name), Removal::Unseen).await?;
            }
        }
    }
}

/// Removes what no user ever saw: not counted, not guarded.
async fn remove_unseen(context: &Context, path: &RelPath, metadata: &Metadata) -> Result<(), Error> {
    context.sync.touched();
    if metadata.is_dir() {
        context.target.remove_dir(path).await
    } else {
        context.target.remove_file(path).await
    }
}

/// Removes one node, or in a dry run says so.
async fn remove_one(context: &Context, path: &RelPath, metadata: &Metadata) -> Result<(), Error> {
    admit(context, path)?;
    if !context.options.dry_run {
        if metadata.is_dir() {
            context.target.remove_dir(path).await?;
        } else {
            context.target.remove_file(path).await?;
        }
        context.sync.touched();
    }
    context.live.deleted.fetch_add(1, Ordering::Relaxed);
    context.item(path, "delete", metadata.size);
    Ok(())
}

/// Removes what stands on the target in the way of a node of another kind: not what filters exclude.
///
/// # Errors
/// It cannot be removed, or holds what is excluded.
pub(crate) async fn make_way(
    context: &Arc<Context>,
    root: &Arc<RootContext>,
    path: &RelPath,
) -> Result<(), Error> {
    let pass = Pass {
        context,
        root,
        count_only: false,
    };
    let below = path
        .strip_prefix(&root.root.target_path)
        .filter(|_| pass.keeps_excluded());
    let Some(below) = below else {
        return remove_all(context, path).await;
    };
    match pass.delete_unexcluded(&below).await? {
        true => Ok(()),
        false => Err(Error::new(Op::Remove, path, ErrorKind::NotEmpty)),
    }
}

/// Removes a node of the target and everything below it, each within the guard; a dry run only says so.
pub(crate) async fn remove_all(context: &Context, path: &RelPath) -> Result<(), Error> {
    remove_tree(context, path, Removal::Guarded).await.map(drop)
}

/// How a tree is removed.
enum Removal<'a> {
    /// What no user ever saw.
    Unseen,
    /// Each node within the guard.
    Guarded,
    /// The same but for what filters exclude, and with backups.
    Unexcluded(&'a Pass<'a>),
}

impl Removal<'_> {
    fn keeps(&self, path: &RelPath, metadata: &Metadata) -> bool {
        let Self::Unexcluded(pass) = self else {
            return false;
        };
        let below = path.strip_prefix(&pass.root.root.target_path);
        below.is_some_and(|below| pass.context.options.filter.excluded(&below, metadata.is_dir()))
    }

    async fn remove(&self, context: &Context, path: &RelPath, metadata: &Metadata) -> Result<(), Error> {
        match (self, &context.options.backup) {
            (Self::Unseen, _) => remove_unseen(context, path, metadata).await,
            (Self::Unexcluded(pass), Some(backup)) if !metadata.is_dir() && !context.options.dry_run => {
                pass.set_aside(backup, path).await
            }
            _ => remove_one(context, path, metadata).await,
        }
    }
}

/// Removes a node of the target and everything below it but for what is to be kept there and the folders that hold such;
/// whether nothing is left.
async fn remove_tree(context: &Context, path: &RelPath, how: Removal<'_>) -> Result<bool, Error> {
    let metadata = context.target.metadata(path).await?;
    if !metadata.is_dir() {
        return how.remove(context, path, &metadata).await.map(|()| true);
    }
    let mut holders: HashSet<RelPath> = HashSet::new();
    // Folders are taken twice: first their content, then themselves.
    let mut stack = vec![(path.clone(), metadata, false)];
    while let Some((dir, metadata, emptied)) = stack.pop() {
        if context.stopped() {
            return Err(Error::new(Op::Remove, path, ErrorKind::Cancelled));
        }
        if emptied {
            if !holders.contains(&dir) {
                how.remove(context, &dir, &metadata).await?;
            }
            continue;
        }
        stack.push((dir.clone(), metadata, true));
        let mut listing = context.target.list(&dir).await?;
        loop {
            let entries = listing.next(CHUNK).await?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let (child, metadata) = (dir.join(&entry.name), entry.metadata?);
                if how.keeps(&child, &metadata) {
                    let mut holder = Some(dir.clone());
                    while let Some(folder) = holder.filter(|folder| holders.insert(folder.clone())) {
                        holder = folder.parent();
                    }
                } else if metadata.is_dir() {
                    stack.push((child, metadata, false));
                } else {
                    how.remove(context, &child, &metadata).await?;
                }
            }
        }
    }
    Ok(!holders.contains(path))
}
