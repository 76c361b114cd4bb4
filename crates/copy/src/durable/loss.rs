//! Losses: data that the target had taken and could not write to the device.
//!
//! The kernel drops the pages that it could not write, and reports that once, to the first who
//! asks. So whoever hears of a loss records it in the journal. No later run would hear of it. A
//! server reports what it lost to each file's own flush instead.

use crate::job::config::JobConfig;
use crate::job::report::Report;
use crate::journal::open::Journal;

/// Asks the kernel, before anything of an earlier run is trusted, whether it failed to write back
/// what that run left.
pub(crate) async fn hear_of_losses(config: &JobConfig, report: &Report, journal: &Journal) {
    if !journal.memory().resumed() || !config.target.capabilities().page_cache {
        return;
    }
    if let Err(error) = config.target.sync().await {
        note_loss(config, report, Some(journal));
        // What this run writes is not what was lost.
        report.journalled(Some(journal.begin_again()));
        report.note(
            None,
            format!("{error}; what was not durable before is copied once more"),
        );
    }
}

/// Records that a flush failed.
pub(crate) fn note_loss(config: &JobConfig, report: &Report, journal: Option<&Journal>) {
    let Some(journal) = journal else {
        return;
    };
    if !config.target.capabilities().page_cache {
        return;
    }
    if let Err(error) = journal.lost() {
        report.note(
            None,
            format!(
                "the journal cannot be written ({error}), so the next run cannot know that data was lost; \
                 copy to another target, or with --force"
            ),
        );
    }
}
