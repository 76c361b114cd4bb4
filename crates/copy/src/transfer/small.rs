//! What batches and the pipeline of small files share: which files they take, and what happens when
//! a file is complete.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::placement::{Extras, is_plain};
use ropeway_plan::{Naming, Visibility};
use ropeway_vfs::{BatchDone, Tree};

use crate::durable::control::WaitingName;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::resources::Resources;
use crate::place::destination::Destination;
use crate::place::task::FileTask;
use crate::transfer::changing::as_torn;
use crate::transfer::links::complete_links;
use crate::transfer::pipeline::SmallFilePipeline;

/// Counts a small file that is complete, and names it or lets its name wait.
pub(crate) async fn finish_small(context: &Arc<Context>, task: &FileTask, done: &BatchDone) {
    let live = &context.report.live;
    // Before it is counted: a checkpoint that counts it must also flush it.
    context.durability.wrote_small(done.size);
    live.bytes_read.fetch_add(done.read, Ordering::Relaxed);
    live.bytes_sent.fetch_add(done.sent, Ordering::Relaxed);
    live.bytes_landed.fetch_add(done.size, Ordering::AcqRel);
    live.operations.fetch_add(2, Ordering::Relaxed);
    live.files_done.fetch_add(1, Ordering::AcqRel);
    live.bytes_done.fetch_add(done.size, Ordering::AcqRel);
    context.copied_nodes.add(task.token(), &task.metadata);
    context.report.lose(&done.losses);
    let destination = Destination::of_file(&context.config, task);
    if context.config.durability.naming(destination.spot, false) == Naming::AtCheckpoint {
        context.durability.postpone(WaitingName {
            folder: Arc::clone(&task.folder),
            from: destination.name,
            to: task.name.clone(),
            replace: true,
            token: Some(task.token()),
            size: done.size,
            shown: task.shown(),
        });
    }
    if context.config.options.report_items {
        let action = if task.existing.is_some() { "update" } else { "copy" };
        context.report.item(&task.shown(), action, done.size);
    }
    if let (Some(hashes), Some(hash)) = (&context.hashes, &done.hash)
        && let Err(error) = hashes.add(&task.final_path(), hash)
    {
        context.report.note(None, format!("cannot keep a hash: {error}"));
    }
    if let Some(id) = task.link {
        // On the heap: few small files have links, and thousands are under way.
        Box::pin(complete_links(context, id, &task.folder, &task.name)).await;
    }
}

/// Returns the task with what the batch left under its name.
pub(crate) fn with_leftover(mut task: FileTask) -> FileTask {
    if task.folder.visibility() == Visibility::Hidden && task.existing.is_none() {
        task.existing = Some(as_torn(&task.metadata));
    }
    task
}

/// Removes what an earlier run left where these files go, in a hidden folder. Each file is made
/// anew, since what is there may be of another kind or have other names. If the removal fails,
/// making the file reports it.
pub(crate) async fn clear_targets(target: &dyn Tree, tasks: &[FileTask]) {
    let left = |task: &&FileTask| task.folder.visibility() == Visibility::Hidden && task.existing.is_some();
    for task in tasks.iter().filter(left) {
        let _ = target.remove_file(&task.folder.path().join(&task.name)).await;
    }
}

/// Size up to which a file goes through this machine although both ends are on one server: one
/// round trip to get it and one to put it cost less than the ten or so of a copy inside. A guess.
const CROSSING_INSIDE_MAX: u64 = 64 << 10;

/// Whether a file may go in a batch, or through the pipeline of small files. `has_hashes` is
/// whether the job keeps hashes.
pub(crate) fn takes_short_path(
    config: &JobConfig,
    resources: &Resources,
    has_hashes: bool,
    task: &FileTask,
) -> bool {
    let extras = Extras {
        linked: task.link.is_some(),
        backup: config.options.backup.is_some(),
        taken: task.existing.is_some(),
    };
    let size_max = resources
        .small_files
        .as_ref()
        .map_or(config.environment.sizes.small_max, SmallFilePipeline::size_max);
    let inside = || !has_hashes && config.target.copies_inside(&*task.folder.root().root.source);
    let size_max = match &resources.small_files {
        Some(_) if task.metadata.size > CROSSING_INSIDE_MAX && inside() => CROSSING_INSIDE_MAX,
        _ => size_max,
    };
    config.may_batch() && task.metadata.size <= size_max && is_plain(task.folder.visibility(), extras)
}
