//! Copies symbolic links, FIFOs and devices, and updates nodes whose attributes alone differ.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::attributes_differ;
use ropeway_vfs::{EndError, Error, Kind, RelPath, Tree, Verdict};

use crate::delete::clear::make_anew;
use crate::delete::remove::free_name;
use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::name::backup::keep_backup;
use crate::name::rename::rename;
use crate::place::destination::Destination;
use crate::place::failure::fail_file;
use crate::place::mark::mark_folder;
use crate::place::task::FileTask;
use crate::sweep::place::note_place;
use crate::verify::skipped::hash_skipped;

/// Copies such a node. Returns whether that succeeded.
#[tracing::instrument(name = "node", level = "debug", skip_all, fields(path = %task.shown()))]
pub(crate) async fn copy_special_alone(context: &Arc<Context>, task: &FileTask) -> bool {
    context.pass().await;
    if context.stopped() {
        return false;
    }
    let token = task.token();
    let report = &context.report;
    match with_retries(&context.config.options, report, token, || make(context, task)).await {
        Ok(changed) => {
            context.report.live.files_done.fetch_add(1, Ordering::AcqRel);
            context.copied_nodes.add(token, &task.metadata);
            if changed {
                context.durability.touch();
                context.report.item(&task.shown(), "copy", 0);
            } else {
                context.report.live.files_skipped.fetch_add(1, Ordering::Relaxed);
                context.report.item(&task.shown(), "skip", 0);
            }
            true
        }
        Err(failed) => {
            fail_file(context, task, failed).await;
            false
        }
    }
}

async fn make(context: &Arc<Context>, task: &FileTask) -> Result<bool, EndError> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
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
    let is_equal = is_equal(config, task, text.as_deref(), &to)
        .await
        .map_err(EndError::on_target)?;
    if is_equal && !config.options.force {
        let set = set_attributes(config, durability, report, task, (&to, true)).await;
        return set.map(|()| false);
    }
    if config.options.dry_run {
        return Ok(true);
    }
    let destination = Destination::of_node(config, task, task.existing.is_some());
    if !destination.has_final_name() {
        mark_folder(report, context.journal.as_ref(), &task.folder);
        note_place(context, &task.folder).await;
    }
    let spot = destination.path;
    let make = || create(&*config.target, task, text.as_deref(), &spot);
    make_anew(config, durability, report, &spot, make)
        .await
        .map_err(EndError::on_target)?;
    let named = give_name(context, task, &spot, (&to, is_equal)).await;
    if let Err(EndError { error, .. }) = &named
        && error.verdict() == Verdict::Skip
    {
        // Best effort. The caller reports the failure.
        let _ = config.target.remove_file(&spot).await;
    }
    named.map(|()| true)
}

/// Sets the attributes and the final name of a node that was made. `is_equal` is whether one like
/// it has this name already, which is no version to keep.
async fn give_name(
    context: &Arc<Context>,
    task: &FileTask,
    spot: &RelPath,
    (to, is_equal): (&RelPath, bool),
) -> Result<(), EndError> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    set_attributes(config, durability, report, task, (spot, false)).await?;
    if spot != to {
        if !is_equal {
            let kept = keep_backup(config, context.journal.as_ref(), task).await;
            kept.map_err(EndError::on_target)?;
        }
        let mut replaced = task.existing.as_ref();
        if task.is_blocked() {
            free_name(context, task.folder.root(), to)
                .await
                .map_err(EndError::on_target)?;
            replaced = None;
        }
        rename(config, report, spot, to, replaced)
            .await
            .map_err(EndError::on_target)?;
    }
    Ok(())
}

async fn create(
    target: &dyn Tree,
    task: &FileTask,
    text: Option<&[u8]>,
    spot: &RelPath,
) -> Result<(), Error> {
    match text {
        Some(text) => target.make_symlink(spot, text).await,
        None => target.make_special(spot, &task.metadata).await,
    }
}

/// Whether the target has such a node already, whatever its attributes.
async fn is_equal(
    config: &JobConfig,
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
    match config.target.read_link(to).await {
        Ok(found) => Ok(found == text),
        // It is replaced.
        Err(_) if config.options.force => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the attributes of a node from its source. `compare`: only if they differ.
async fn set_attributes(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    task: &FileTask,
    (path, compare): (&RelPath, bool),
) -> Result<(), EndError> {
    if config.options.dry_run {
        return Ok(());
    }
    if compare && let Some(existing) = &task.existing {
        let capabilities = config.target.capabilities();
        let rules = &task.folder.root().rules;
        let same_time = !task.metadata.modified.is_known()
            || rules.granularity.equal(task.metadata.modified, existing.modified);
        let preserve = &config.options.preserve;
        let differ = attributes_differ(&task.metadata, existing, rules, preserve, capabilities);
        if !differ && (same_time || !config.options.preserve.times) {
            return Ok(());
        }
    }
    let source = &task.folder.root().root.source;
    let wants_xattrs = config.wants_xattrs(&**source, &task.metadata);
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
    let change = config.change_of(report, &task.metadata, xattrs);
    let losses = config
        .target
        .set_metadata(path, &change)
        .await
        .map_err(EndError::on_target)?;
    report.lose(&losses);
    durability.touch();
    Ok(())
}

/// Updates the attributes of an equal file. Returns whether that succeeded.
pub(crate) async fn update_attributes(context: &Arc<Context>, task: FileTask) -> bool {
    let to = task.folder.path().join(&task.name);
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    match set_attributes(config, durability, report, &task, (&to, false)).await {
        Ok(()) => {
            context.copied_nodes.add(task.token(), &task.metadata);
            context.report.item(&task.shown(), "attributes", 0);
            count_skipped(context, &task).await;
            true
        }
        Err(EndError { end, error }) => {
            context.report.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&task.shown(), error, end).await;
            false
        }
    }
}

/// Counts a file that needs no copy.
pub(crate) async fn count_skipped(context: &Context, task: &FileTask) {
    let size = task.metadata.size;
    let live = &context.report.live;
    live.files_done.fetch_add(1, Ordering::AcqRel);
    live.files_skipped.fetch_add(1, Ordering::Relaxed);
    live.bytes_done.fetch_add(size, Ordering::AcqRel);
    live.bytes_skipped.fetch_add(size, Ordering::Relaxed);
    live.bytes_landed.fetch_add(size, Ordering::AcqRel);
    hash_skipped(context, task).await;
}
