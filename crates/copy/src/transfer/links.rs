//! Makes hard links: the first name of a file is copied, the others are linked to that copy.
//!
//! The waiting names are in the link table. A name that cannot be linked is copied as a file of its
//! own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::Visibility;
use ropeway_vfs::{
    CacheMode, EndError, Error, ErrorKind, FileId, Kind, Loss, Metadata, Name, OpenOptions, RelPath,
};

use crate::delete::clear::make_anew;
use crate::delete::remove::free_name;
use crate::durable::lost_writes::record_lost_writes;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::journal::open::Journal;
use crate::name::backup::{keep_backup, record_link};
use crate::name::rename::rename;
use crate::place::destination::Destination;
use crate::place::failure::fail_file;
use crate::place::folder::Folder;
use crate::place::mark::mark_folder;
use crate::sweep::place::note_place;
use crate::transfer::file::copy_file_alone;
use crate::transfer::link_table::{LinkPlace, LinkTarget, LinkTask};
use crate::transfer::special::copy_special_alone;
use crate::verify::skipped::hash_skipped;

/// Links the waiting names of a file to its copy, which stands under `name` in `folder`.
pub(crate) async fn complete_links(context: &Arc<Context>, id: FileId, folder: &Folder, name: &Name) {
    let place = Arc::new(LinkPlace {
        folder_path: folder.path(),
        folder_shown: folder.inner().shown.clone(),
        name: name.clone(),
        is_hidden: folder.visibility() == Visibility::Hidden,
    });
    for waiter in context.link_table.ready(id, &place) {
        make_link(context, waiter, LinkTarget(Arc::clone(&place))).await;
    }
}

/// Copies the next waiting name of a file whose copy failed.
pub(crate) async fn fail_links(context: &Arc<Context>, id: FileId) {
    // Its other names are linked to it. So it must have its own name, and its data must be durable,
    // before.
    while let Some(next) = context.link_table.next_first(id) {
        let (folder, name) = (Arc::clone(&next.folder), next.name.clone());
        let copied = if next.metadata.kind == Kind::File {
            Box::pin(copy_file_alone(context, next)).await
        } else {
            Box::pin(copy_special_alone(context, &next)).await
        };
        if copied {
            complete_links(context, id, &folder, &name).await;
            return;
        }
    }
}

/// Makes one more name of a copied file.
pub(crate) async fn make_link(context: &Arc<Context>, task: LinkTask, target: LinkTarget) {
    context.pass().await;
    if context.stopped() {
        return;
    }
    let size = if task.metadata.kind == Kind::File {
        task.metadata.size
    } else {
        0
    };
    let shown = task.shown();
    match is_still_one(&context.config, &context.report, &task).await {
        Ok(true) => {}
        Ok(false) => return copy_by_itself(context, task).await,
        Err(error) => return fail_file(context, &task, EndError::on_source(error)).await,
    }
    match make(context, &task, &target.0).await {
        Ok(made) => {
            if made != Linked::Kept {
                context.copied_nodes.add(task.token(), &task.metadata);
            }
            let live = &context.report.live;
            live.files_done.fetch_add(1, Ordering::AcqRel);
            live.bytes_done.fetch_add(size, Ordering::AcqRel);
            live.bytes_landed.fetch_add(size, Ordering::AcqRel);
            if made == Linked::Now {
                context.report.item(&shown, "link", size);
            } else {
                live.files_skipped.fetch_add(1, Ordering::Relaxed);
                live.bytes_skipped.fetch_add(size, Ordering::Relaxed);
                context.report.item(&shown, "skip", size);
            }
            if task.metadata.kind == Kind::File {
                hash_skipped(context, &task).await;
            }
        }
        Err(error)
            if matches!(
                error.kind,
                ErrorKind::TooManyLinks | ErrorKind::CrossDevice | ErrorKind::Unsupported
            ) =>
        {
            context.report.lose(&[Loss::HardLink]);
            copy_by_itself(context, task).await;
        }
        Err(error) => fail_file(context, &task, EndError::on_target(error)).await,
    }
}

/// Copies a name as a file of its own.
async fn copy_by_itself(context: &Arc<Context>, mut task: LinkTask) {
    task.link = None;
    if task.metadata.kind == Kind::File {
        Box::pin(copy_file_alone(context, task)).await;
    } else {
        Box::pin(copy_special_alone(context, &task)).await;
    }
}

/// Whether a name still belongs to the file to which it belonged when it was listed. If another
/// program replaced it meanwhile, the copy of the others may be no version of it.
async fn is_still_one(config: &JobConfig, report: &Report, task: &LinkTask) -> Result<bool, Error> {
    let source = &task.folder.root().root.source;
    if !source.capabilities().stable_ids {
        return Ok(true);
    }
    let look = || async {
        let found = source.metadata(&task.source_path).await;
        found.map_err(EndError::on_source)
    };
    match with_retries(&config.options, report, task.token(), look).await {
        Ok(now) => Ok(now.id.is_none() || now.id == task.link),
        Err(failed) => Err(failed.error),
    }
}

/// The result of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linked {
    Now,
    /// The link existed already.
    Before,
    /// Another file stands there, and stays.
    Kept,
}

/// Makes a hard link to a copy. Its folder may get its final name at any moment, and with it the
/// copy its path `shown`.
async fn link(config: &JobConfig, (copy, shown): (&RelPath, &RelPath), path: &RelPath) -> Result<(), Error> {
    match config.target.make_hard_link(copy, path).await {
        Err(error) if error.kind == ErrorKind::NotFound && copy != shown => {
            config.target.make_hard_link(shown, path).await
        }
        linked => linked,
    }
}

/// Flushes a copy that is about to get a name that users see. Its paths are as in [`link`].
async fn make_durable(
    config: &JobConfig,
    report: &Report,
    journal: Option<&Journal>,
    (copy, shown): (&RelPath, &RelPath),
) -> Result<(), Error> {
    let durability = config.durability;
    if !durability.wants_durable() || durability.flushes_each() {
        return Ok(());
    }
    let options = OpenOptions::read(CacheMode::Keep);
    let file = match config.target.open(copy, options).await {
        Err(error) if error.kind == ErrorKind::NotFound => config.target.open(shown, options).await?,
        opened => opened?,
    };
    let flushed = file.sync(false).await;
    if flushed.is_err() {
        record_lost_writes(config, report, journal);
    }
    flushed
}

async fn make(context: &Arc<Context>, task: &LinkTask, place: &LinkPlace) -> Result<Linked, Error> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    let (tree, journal) = (&config.target, context.journal.as_ref());
    let dir = task.folder.path();
    let path = dir.join(&task.name);
    let (mut first, shown) = (
        place.folder_path.join(&place.name),
        place.folder_shown.join(&place.name),
    );
    let copied = match tree.metadata(&first).await {
        Ok(metadata) => metadata,
        // Its folder has its final name by now.
        Err(error) if error.kind == ErrorKind::NotFound => {
            first.clone_from(&shown);
            tree.metadata(&first).await?
        }
        Err(error) => return Err(error),
    };
    let existing = if task.folder.inner().fresh {
        None
    } else {
        tree.metadata(&path).await.ok()
    };
    if let Some(existing) = &existing {
        if existing.id.is_some() && existing.id == copied.id {
            return Ok(Linked::Before);
        }
        if existing.is_dir() && config.options.delete.is_none() {
            return Err(Error::new(ropeway_vfs::Op::Link, &path, ErrorKind::IsADirectory));
        }
        if config.options.ignore_existing && task.folder.visibility() == Visibility::Visible {
            return Ok(Linked::Kept);
        }
    }
    durability.touch();
    let destination = Destination::of_node(config, task, existing.is_some());
    if destination.has_final_name() {
        link(config, (&first, &shown), &path).await?;
        return Ok(Linked::Now);
    }
    let is_seen = task.folder.visibility() == Visibility::Visible;
    if place.is_hidden && is_seen && copied.kind == Kind::File {
        make_durable(config, report, journal, (&first, &shown)).await?;
    }
    keep_backup(config, journal, task).await?;
    record_link(config, journal, task, &copied)?;
    let temporary = destination.path;
    mark_folder(report, journal, &task.folder);
    note_place(context, &task.folder).await;
    let make = || link(config, (&first, &shown), &temporary);
    make_anew(config, durability, report, &temporary, make).await?;
    let named = async {
        let is_blocked = existing.as_ref().is_some_and(Metadata::is_dir);
        if is_blocked {
            free_name(context, task.folder.root(), &path).await?;
        }
        let replaced = existing.as_ref().filter(|_| !is_blocked);
        rename(config, report, &temporary, &path, replaced).await
    };
    if let Err(error) = named.await {
        // Best effort. The caller reports the failure.
        let _ = tree.remove_file(&temporary).await;
        return Err(error);
    }
    // If another run made the same link meanwhile, rename(2) does nothing and leaves both names.
    match tree.remove_file(&temporary).await {
        Err(error) if error.kind != ErrorKind::NotFound => Err(error),
        _ => Ok(Linked::Now),
    }
}

/// Returns the identity of a file with several names, if hard links are kept.
pub(crate) fn shared_file(config: &JobConfig, report: &Report, metadata: &Metadata) -> Option<FileId> {
    // A dry run makes no first copy for which the others could wait.
    let off = !config.options.hard_links || config.options.dry_run;
    if metadata.kind == Kind::Directory || metadata.links < 2 || off {
        return None;
    }
    if !config.target.capabilities().hard_links {
        report.lose(&[Loss::HardLink]);
        return None;
    }
    metadata.id
}
