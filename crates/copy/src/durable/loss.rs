//! Losses: data that the target had taken and could not write to the device.
//!
//! The kernel drops the pages that it could not write, and reports that once, to the first who
//! asks. So whoever hears of a loss records it in the journal. No later run would hear of it. A
//! server reports what it lost to each file's own flush instead.

use crate::job::context::Context;

/// Asks the kernel, before anything of an earlier run is trusted, whether it failed to write back
/// what that run left.
pub(crate) async fn hear_of_losses(context: &Context) {
    let Some(journal) = &context.journal else {
        return;
    };
    if !journal.memory().resumed() || !context.config.target.capabilities().page_cache {
        return;
    }
    if let Err(error) = context.config.target.sync().await {
        note_loss(context);
        // What this run writes is not what was lost.
        context.journalled(Some(journal.begin_again()));
        context.report.note(
            None,
            format!("{error}; what was not durable before is copied once more"),
        );
    }
}

/// Records that a flush failed.
pub(crate) fn note_loss(context: &Context) {
    let Some(journal) = &context.journal else {
        return;
    };
    if !context.config.target.capabilities().page_cache {
        return;
    }
    if let Err(error) = journal.lost() {
        context.report.note(
            None,
            format!(
                "the journal cannot be written ({error}), so the next run cannot know that data was lost; \
                 copy to another target, or with --force"
            ),
        );
    }
}
