//! Links, FIFOs and devices, and nodes that need new attributes only.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::attributes_differ;
use ropeway_vfs::{EndError, Error, ErrorKind, Kind, RelPath, Verdict};

use crate::context::Context;
use crate::delete;
use crate::file::{self, FileTask};
use crate::folder::Placement;
use crate::leftovers;
use crate::links;
use crate::naming::rename;

/// Copies a symbolic link, FIFO or device, and whatever waits to be linked to it; an equal one is left alone.
pub(crate) async fn copy(context: &Arc<Context>, task: FileTask) {
    let done = copy_alone(context, &task).await;
    match task.link {
        Some(id) if done => links::complete(context, id, &task.folder, &task.name).await,
        Some(id) => links::failed(context, id).await,
        None => {}
    }
}

/// Copies such a node; whether that succeeded.
pub(crate) async fn copy_alone(context: &Arc<Context>, task: &FileTask) -> bool {
    if context.stopped() {
        return false;
    }
    let token = task.token();
    match context.with_retries(token, || make(context, task)).await {
        Ok(changed) => {
            context.live.files_done.fetch_add(1, Ordering::AcqRel);
            context.arrivals.add(token, &task.metadata);
            if changed {
                context.sync.touched();
                context.item(&task.shown(), "copy", 0);
            } else {
                context.live.files_skipped.fetch_add(1, Ordering::Relaxed);
                context.item(&task.shown(), "skip", 0);
            }
            true
        }
        Err(EndError { end, error }) => {
            file::give_up(context, task, &error).await;
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&task.shown(), error, end).await;
            false
        }
    }
}

async fn make(context: &Arc<Context>, task: &FileTask) -> Result<bool, EndError> {
    let source = &task.folder.root().root.source;
    let text = if task.metadata.kind == Kind::Symlink {
        Some(
            source
                .read_link(&task.source_path)
                .await
                .map_err(EndError::on_source)?,
        )
    } else {
        None
    };
    let to = task.folder.path().join(&task.name);
    let is_equal = is_equal(context, task, text.as_deref(), &to)
        .await
        .map_err(EndError::on_target)?;
    if is_equal && !context.options.force {
        return set_attributes(context, task, &to, true).await.map(|()| false);
    }
    if context.options.dry_run {
        return Ok(true);
    }
    let direct = task.folder.placement() == Placement::Direct && task.existing.is_none();
    let spot = if direct {
        to.clone()
    } else {
        task.folder.marks(context);
        leftovers::before(context, &task.folder).await;
        task.folder.path().join(&context.temporary_of(task.token()))
    };
    match create(context, task, text.as_deref(), &spot).await {
        Err(error) if error.kind == ErrorKind::AlreadyExists => {
            crate::delete::clear(context, &spot)
                .await
                .map_err(EndError::on_target)?;
            create(context, task, text.as_deref(), &spot)
                .await
                .map_err(EndError::on_target)?;
        }
        result => result.map_err(EndError::on_target)?,
    }
    let named = give_name(context, task, &spot, (&to, is_equal)).await;
    if let Err(EndError { error, .. }) = &named
        && error.verdict() == Verdict::Skip
    {
        // Best effort: the failure itself is reported.
        let _ = context.target.remove_file(&spot).await;
    }
    named.map(|()| true)
}

/// Attributes and final name of a node that was made. `is_equal`: one like it has this name, and is no version to keep.
async fn give_name(
    context: &Arc<Context>,
    task: &FileTask,
    spot: &RelPath,
    (to, is_equal): (&RelPath, bool),
) -> Result<(), EndError> {
    set_attributes(context, task, spot, false).await?;
    if spot != to {
        if !is_equal {
            file::keep_backup(context, task)
                .await
                .map_err(EndError::on_target)?;
        }
        let mut replaced = task.existing.as_ref();
        if task.is_blocked() {
            delete::make_way(context, task.folder.root(), to)
                .await
                .map_err(EndError::on_target)?;
            replaced = None;
        }
        rename(context, spot, to, true, replaced)
            .await
            .map_err(EndError::on_target)?;
    }
    Ok(())
}

async fn create(
    context: &Context,
    task: &FileTask,
    text: Option<&[u8]>,
    spot: &RelPath,
) -> Result<(), Error> {
    match text {
        Some(text) => context.target.make_symlink(spot, text).await,
        None => context.target.make_special(spot, &task.metadata).await,
    }
}

/// Whether the target has such a node already, whatever its attributes.
async fn is_equal(
    context: &Context,
    task: &FileTask,
    text: Option<&[u8]>,
    to: &RelPath,
) -> Result<bool, Error> {
    let Some(existing) = &task.existing else {
        return Ok(false);
    };
    if existing.kind != task.metadata.kind {
        return Ok(false);
    }
    let Some(text) = text else {
        return Ok(existing.device == task.metadata.device);
    };
    match context.target.read_link(to).await {
        Ok(found) => Ok(found == text),
        // It is replaced.
        Err(_) if context.options.force => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets a node's attributes from its source. `compare`: only if they differ.
async fn set_attributes(
    context: &Context,
    task: &FileTask,
    path: &RelPath,
    compare: bool,
) -> Result<(), EndError> {
    if context.options.dry_run {
        return Ok(());
    }
    if compare && let Some(existing) = &task.existing {
        let capabilities = context.target.capabilities();
        let rules = &task.folder.root().rules;
        let same_time = !task.metadata.modified.is_known()
            || rules.granularity.equal(task.metadata.modified, existing.modified);
        let preserve = &context.options.preserve;
        let differ = attributes_differ(&task.metadata, existing, rules, preserve, capabilities);
        if !differ && (same_time || !context.options.preserve.times) {
            return Ok(());
        }
    }
    let source = &task.folder.root().root.source;
    let wants_xattrs = context.wants_xattrs(&**source, &task.metadata);
    let xattrs = if wants_xattrs {
        Some(
            source
                .xattrs(&task.source_path)
                .await
                .map_err(EndError::on_source)?,
        )
    } else {
        None
    };
    let change = context.change_of(&task.metadata, xattrs);
    let losses = context
        .target
        .set_metadata(path, &change)
        .await
        .map_err(EndError::on_target)?;
    context.lose(&losses);
    context.sync.touched();
    Ok(())
}

/// An equal file that differs in attributes only.
pub(crate) async fn update_attributes(context: &Arc<Context>, task: FileTask) {
    let to = task.folder.path().join(&task.name);
    match set_attributes(context, &task, &to, false).await {
        Ok(()) => {
            context.arrivals.add(task.token(), &task.metadata);
            context.item(&task.shown(), "attributes", 0);
            skipped(context, &task).await;
        }
        Err(EndError { end, error }) => {
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&task.shown(), error, end).await;
        }
    }
}

/// Counts a file that needs no copy.
pub(crate) async fn skipped(context: &Context, task: &FileTask) {
    let size = task.metadata.size;
    let live = &context.live;
    live.files_done.fetch_add(1, Ordering::AcqRel);
    live.files_skipped.fetch_add(1, Ordering::Relaxed);
    live.bytes_done.fetch_add(size, Ordering::AcqRel);
    live.bytes_skipped.fetch_add(size, Ordering::Relaxed);
    live.bytes_landed.fetch_add(size, Ordering::AcqRel);
    file::hash_skipped(context, task).await;
}
