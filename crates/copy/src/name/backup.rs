//! Keeps what is replaced or deleted under another name.
//!
//! As with `rsync --backup-dir`, the newest version replaces the one before, file by file. A folder
//! that is deleted a second time is merged into its backup. If an older backup is of another kind
//! (a file where a folder must be kept, or the reverse), it stays and gets a number (`name.~1~`).

use std::io;

use ropeway_block::Pool;
use ropeway_plan::{MadeNode, Version, Visibility};
use ropeway_vfs::{
    CacheMode, Create, Error, ErrorKind, File, Loss, Metadata, MetadataChange, Name, Op, OpenOptions,
    Preserve, RelPath, Tree,
};

use crate::delete::above::Above;
use crate::delete::clear::clear;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::options::Backup;
use crate::journal::open::Journal;
use crate::journal::token::Token;
use crate::place::mark::mark_folder;
use crate::place::task::FileTask;

/// Largest number of numbered backups of one name. A guess that nobody reaches.
const NUMBER_MAX: u32 = 10_000;
/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// Keeps what is about to be replaced, if the user wants that. It gets one more link, so that its
/// name is never free. Without hard links it is renamed; if an earlier try has done that, nothing is
/// left to keep.
pub(crate) async fn keep_backup(
    config: &JobConfig,
    journal: Option<&Journal>,
    task: &FileTask,
) -> Result<(), Error> {
    let target = &*config.target;
    let (Some(backup), Some(existing)) = (&config.options.backup, &task.existing) else {
        return Ok(());
    };
    // Nothing in a hidden folder belongs to the user.
    if existing.is_dir() || task.folder.visibility() == Visibility::Hidden {
        return Ok(());
    }
    let path = task.folder.path().join(&task.name);
    let kept = place(target, backup, &path).await?;
    if is_kept_already(config, journal, task, &kept).await? {
        return Ok(());
    }
    free(target, backup, &kept, false).await?;
    let result = match target.make_hard_link(&path, &kept).await {
        // The newest version replaces the one before.
        Err(error) if error.kind == ErrorKind::AlreadyExists => replace_with_link(target, &path, &kept).await,
        linked => linked,
    };
    let result = match result {
        Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
            target.rename(&path, &kept, true).await
        }
        result => result,
    };
    match result {
        Err(error) if error.kind == ErrorKind::NotFound => match target.metadata(&path).await {
            Err(absent) if absent.kind == ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        },
        result => result,
    }
}

/// Makes a hard link to `path` in the place of an older backup. That stays if nothing is at `path`:
/// then it may be the only version.
async fn replace_with_link(target: &dyn Tree, path: &RelPath, kept: &RelPath) -> Result<(), Error> {
    target.metadata(path).await?;
    match target.remove_file(kept).await {
        Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    target.make_hard_link(path, kept).await
}

/// Whether the backup holds the user's version already. Then an earlier run made the copy that
/// stands in its place.
async fn is_kept_already(
    config: &JobConfig,
    journal: Option<&Journal>,
    task: &FileTask,
    kept: &RelPath,
) -> Result<bool, Error> {
    if !task.existing_is_own && !was_overwritten(config, journal, task) {
        return Ok(false);
    }
    match config.target.metadata(kept).await {
        Ok(found) => Ok(!found.is_dir()),
        Err(error) if error.kind.is_absence() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Moves what stands at `path` to the place of its backup. A folder is moved with everything in it;
/// `above` is where it was found. A link that a server follows is moved as it is. A file that
/// `is_kept` is removed if its backup is there. Calls `goes_on` before each step.
///
/// # Errors
/// The place cannot be made, or a rename failed; or `goes_on` returned `false`
/// ([`ErrorKind::Cancelled`]). What was not moved is where it was.
pub(crate) async fn move_to_backup(
    target: &dyn Tree,
    backup: &Backup,
    path: &RelPath,
    above: Option<Above>,
    (goes_on, is_kept): (impl Fn() -> bool, impl Fn(&Metadata) -> bool),
) -> Result<(), Error> {
    let kept = place(target, backup, path).await?;
    // A folder to merge is visited twice: first for its content, then for itself.
    let mut stack = vec![(path.clone(), kept, above, false)];
    while let Some((from, to, above, emptied)) = stack.pop() {
        if !goes_on() {
            return Err(Error::new(Op::Rename, path, ErrorKind::Cancelled));
        }
        if emptied {
            target.remove_dir(&from).await?;
            continue;
        }
        let merges = free(target, backup, &to, above.is_some()).await?;
        let Some(above) = above.filter(|_| merges) else {
            match merges {
                true => replace_backup(target, &from, &to, &is_kept).await?,
                false => target.rename(&from, &to, above.is_none()).await?,
            }
            continue;
        };
        let mut listing = target.list(&from).await?;
        let mut entries = listing.next(CHUNK).await?;
        if above.prove(target, &from, &*listing).is_err() {
            free(target, backup, &to, false).await?;
            target.rename(&from, &to, false).await?;
            continue;
        }
        stack.push((from.clone(), to.clone(), None, true));
        while !entries.is_empty() {
            for entry in entries {
                let is_dir = entry.metadata?.is_dir();
                let above = is_dir.then(|| Above::of(&*listing));
                stack.push((from.join(&entry.name), to.join(&entry.name), above, false));
            }
            entries = listing.next(CHUNK).await?;
        }
    }
    Ok(())
}

/// Moves a file to the place of an older backup. It is only removed if that backup holds what it
/// replaced (`is_kept`), or is a link to it: a run that made the backup failed before it could
/// replace the file.
async fn replace_backup(
    target: &dyn Tree,
    from: &RelPath,
    to: &RelPath,
    is_kept: impl Fn(&Metadata) -> bool,
) -> Result<(), Error> {
    let (found, older) = (target.metadata(from).await?, target.metadata(to).await?);
    let is_link = match found.id.zip(older.id) {
        Some((found, older)) => Some(found == older),
        None if target.capabilities().hard_links => None,
        None => Some(false),
    };
    if is_link == Some(true) || is_kept(&found) {
        return target.remove_file(from).await;
    }
    if is_link.is_none() {
        // rename(2) would do nothing if both names were links to one file.
        target.remove_file(to).await?;
    }
    target.rename(from, to, true).await
}

/// Renames an older backup of another kind. Returns whether one of the same kind stands there.
async fn free(target: &dyn Tree, backup: &Backup, kept: &RelPath, is_dir: bool) -> Result<bool, Error> {
    let older = match target.metadata(kept).await {
        Ok(older) => older,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if older.is_dir() == is_dir {
        return Ok(true);
    }
    let refused = || Error::new(Op::Rename, kept, ErrorKind::AlreadyExists);
    let name = kept.file_name().ok_or_else(refused)?;
    let (stem, suffix) = match backup {
        Backup::Suffix(suffix) => (
            name.as_bytes().strip_suffix(&**suffix).unwrap_or(name.as_bytes()),
            &**suffix,
        ),
        Backup::Directory { .. } => (name.as_bytes(), &b""[..]),
    };
    for number in 1..=NUMBER_MAX {
        let numbered = [stem, format!(".~{number}~").as_bytes(), suffix].concat();
        let numbered = Name::new(&numbered).ok_or_else(refused)?;
        let numbered = kept.parent().unwrap_or_default().join(&numbered);
        match target.rename(kept, &numbered, false).await {
            Err(error) if matches!(error.kind, ErrorKind::AlreadyExists | ErrorKind::NotEmpty) => {}
            renamed => return renamed.map(|()| false),
        }
    }
    Err(refused())
}

/// Returns the place of a backup, as `rsync --backup-dir` has it, and makes its folders.
async fn place(target: &dyn Tree, backup: &Backup, path: &RelPath) -> Result<RelPath, Error> {
    let misnamed = || Error::new(Op::Rename, path, ErrorKind::NameRefused);
    let (base, top) = match backup {
        Backup::Suffix(suffix) => {
            let name = path.file_name().ok_or_else(misnamed)?;
            let name = Name::new(&[name.as_bytes(), suffix].concat()).ok_or_else(misnamed)?;
            return Ok(path.parent().unwrap_or_default().join(&name));
        }
        Backup::Directory { base, top } => (base, top),
    };
    let mut at = RelPath::root();
    let kept = base.join_path(&path.strip_prefix(top).ok_or_else(misnamed)?);
    let parent = kept.parent().unwrap_or_default();
    for name in parent.components() {
        at = at.join(&name);
        match target.make_dir(&at, 0o755).await {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                // An older backup may be a file where a folder is needed now. What lies above the
                // backups may not.
                let is_backup = at.strip_prefix(base).is_some_and(|below| !below.is_root());
                if is_backup && !free(target, backup, &at, true).await? {
                    target.make_dir(&at, 0o755).await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Copies a file that is about to be overwritten in place. The copy is durable under its name
/// before the first byte changes. Each version is kept once. What a killed run left half written is
/// no version.
///
/// # Errors
/// The copy cannot be made. Nothing was overwritten.
pub(crate) async fn copy_to_backup(
    context: &Context,
    task: &FileTask,
    (source, version): (&Metadata, &Version),
) -> Result<(), Error> {
    let (config, report, durability, kept_versions) = (
        &context.config,
        &context.report,
        &context.durability,
        &context.kept_versions,
    );
    let (target, journal) = (&*config.target, context.journal.as_ref());
    let (Some(backup), Some(existing)) = (&config.options.backup, &task.existing) else {
        return Ok(());
    };
    let token = task.token();
    let overwrites = || {
        record_kept(config, journal, task, (version, existing))?;
        kept_versions.add(token);
        Ok(())
    };
    if kept_versions.contains(token) {
        return Ok(());
    }
    if was_begun(journal, token, existing, source) {
        return overwrites();
    }
    let path = task.folder.path().join(&task.name);
    let kept = place(target, backup, &path).await?;
    if is_kept_already(config, journal, task, &kept).await? {
        return overwrites();
    }
    free(target, backup, &kept, false).await?;
    mark_folder(report, journal, &task.folder);
    let temporary = task.folder.path().join(&config.temporary_of(token));
    let copied = async {
        let old = target.open(&path, OpenOptions::read(CacheMode::Keep)).await?;
        clear(config, durability, report, &temporary).await?;
        let goes_on = || !report.stopped();
        let pool = &context.resources.pool;
        let losses = copy_file(target, pool, (&*old, existing), &temporary, goes_on).await?;
        report.lose(&losses);
        target.rename(&temporary, &kept, true).await?;
        target.sync_dir(&kept.parent().unwrap_or_default()).await
    };
    if let Err(error) = copied.await {
        // Best effort. The caller reports the failure.
        let _ = target.remove_file(&temporary).await;
        return Err(error);
    }
    durability.touch();
    overwrites()
}

/// Records that the old content of a file is kept, before it is overwritten or replaced. If this
/// run is killed, the next one does not take `made`, which stands there then, for a version of the
/// user.
///
/// # Errors
/// It cannot be recorded. The file may not be changed.
fn record_kept(
    config: &JobConfig,
    journal: Option<&Journal>,
    task: &FileTask,
    (version, made): (&Version, &Metadata),
) -> Result<(), Error> {
    let Some(journal) = journal else {
        return Ok(());
    };
    let made = MadeNode::of(made, config.target.capabilities().stable_ids);
    journal.kept(task.token(), *version, made).map_err(|error| {
        let path = task.folder.path().join(&task.name);
        let sentence = format!("it stays as it is, since the journal cannot record its backup ({error})");
        Error {
            source: Some(io::Error::other(sentence)),
            ..Error::new(Op::Write, &path, ErrorKind::Other)
        }
    })
}

/// Records that a hard link to `copy` takes the place of a file whose backup is made. Only where
/// nodes have no identity: elsewhere the next run sees that the link is there.
///
/// # Errors
/// It cannot be recorded. The file may not be replaced.
pub(crate) fn record_link(
    config: &JobConfig,
    journal: Option<&Journal>,
    task: &FileTask,
    copy: &Metadata,
) -> Result<(), Error> {
    let has_backup = config.options.backup.is_some()
        && task.folder.visibility() == Visibility::Visible
        && task.existing.as_ref().is_some_and(|existing| !existing.is_dir());
    if !has_backup || copy.id.is_some() {
        return Ok(());
    }
    let stable_ids = task.folder.root().root.source.capabilities().stable_ids;
    let version = Version::of(&task.metadata, stable_ids);
    record_kept(config, journal, task, (&version, copy))
}

/// Whether an earlier run overwrote this very file and did not make it durable.
fn was_begun(journal: Option<&Journal>, token: Token, existing: &Metadata, source: &Metadata) -> bool {
    let record = journal.and_then(|journal| journal.memory().file(token));
    // A finished file that the journal still knows may not be durable: a power cut can leave it
    // half written as well.
    record.is_some_and(|record| record.target.is_some_and(|made| made.is(existing, source)))
}

/// Whether an earlier run overwrote or replaced the file that has this name now, perhaps under
/// another name of it. A power cut may have left it the attributes of the version that is kept.
fn was_overwritten(config: &JobConfig, journal: Option<&Journal>, task: &FileTask) -> bool {
    // Otherwise files get their names when they are complete: another version is somebody else's.
    let is_overwriting = !config.durability.names_are_durable();
    let (Some(journal), Some(existing)) = (journal, &task.existing) else {
        return false;
    };
    let memory = journal.memory();
    memory.is_kept(task.token(), existing, &task.metadata)
        || is_overwriting && memory.has_made(existing, &task.metadata)
}

/// Copies a file of the target with its attributes to a name that is free, and makes the copy
/// durable. Returns the attributes that were lost. Calls `goes_on` before each block.
///
/// # Errors
/// The file cannot be copied, or `goes_on` returned `false` ([`ErrorKind::Cancelled`]).
async fn copy_file(
    tree: &dyn Tree,
    pool: &Pool,
    (source, existing): (&dyn File, &Metadata),
    to: &RelPath,
    goes_on: impl Fn() -> bool,
) -> Result<Vec<Loss>, Error> {
    let options = OpenOptions::write(Create::New, CacheMode::Keep);
    let target = tree.open(to, options).await?;
    if !target.reflink_from(source).await? {
        copy_data(pool, source, &*target, goes_on).await?;
    }
    let xattrs = match tree.capabilities().takes_xattrs() {
        true => Some(source.xattrs().await?),
        false => None,
    };
    let mut change = MetadataChange::of(existing, &Preserve::default(), xattrs);
    if !tree.capabilities().creation_times {
        change.created = None;
    }
    target.finish(&change, true).await
}

async fn copy_data(
    pool: &Pool,
    source: &dyn File,
    target: &dyn File,
    goes_on: impl Fn() -> bool,
) -> Result<(), Error> {
    let size = source.metadata().await?.size;
    let mut at = 0;
    while let Some(extent) = source.next_extent(at).await? {
        let end = (extent.offset + extent.length).min(size);
        at = extent.offset;
        while at < end {
            if !goes_on() {
                return Err(Error::new(Op::Read, source.path(), ErrorKind::Cancelled));
            }
            let block = pool.get().await;
            let length = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(block.capacity());
            let (block, read) = source.read_at(block, at, length).await;
            read?;
            let read = block.len() as u64;
            if read == 0 {
                break;
            }
            target.write_at(block.freeze(), at).await?;
            at += read;
        }
        if at < end {
            break;
        }
    }
    target.set_len(size).await
}
