//! Removes what a failed copy left on the target, and reports the failure.

use std::sync::atomic::Ordering;

use ropeway_vfs::{End, EndError, Error, Verdict};

use crate::delete::clear::clear;
use crate::job::context::Context;
use crate::job::retry::with_retries;
use crate::place::destination::Destination;
use crate::place::task::FileTask;

/// Removes what a failed copy left. In a hidden folder, also removes what an earlier run left under
/// the name of the node. On a full volume it stays for the next run.
pub(crate) async fn discard(context: &Context, task: &FileTask, error: &Error) {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    let destination = Destination::of_file(config, task);
    if destination.is_in_place() {
        // It may be half overwritten. The next run must know that it is no old version.
        context.temporaries.must_stay();
    }
    if error.verdict() == Verdict::Abort
        || report.stopped()
        || destination.is_in_place()
        || config.options.dry_run
    {
        return;
    }
    // The caller reports the failure.
    if !destination.has_final_name() {
        // If it cannot be removed, the journal still knows its name.
        let _ = config.target.remove_file(&destination.path).await;
    } else {
        // A node without data that takes the place of another has a temporary name here too.
        let temporary = Destination::of_node(config, task, true).path;
        let remove = || async {
            for path in [&destination.path, &temporary] {
                let removed = clear(config, durability, report, path).await;
                removed.map_err(EndError::on_target)?;
            }
            Ok(())
        };
        let removed = with_retries(&config.options, report, task.token(), remove).await;
        if removed.is_err() {
            task.folder.doubt();
        }
    }
}

/// Removes what a failed copy left, counts the node as failed, and reports why.
pub(crate) async fn fail_file(context: &Context, task: &FileTask, EndError { end, error }: EndError) {
    discard(context, task, &error).await;
    context.report.live.files_failed.fetch_add(1, Ordering::Relaxed);
    match end {
        End::Source => context.fail(&task.shown_source(), error, end).await,
        End::Target => context.fail(&task.shown(), error, end).await,
    }
}
