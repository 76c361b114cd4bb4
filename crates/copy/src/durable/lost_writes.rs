//! Lost writes: data that the target had accepted and could not write to the device.
//!
//! The kernel drops the pages that it could not write, and reports this once, to the first flush
//! that follows. No later run would learn of it, so it is recorded in the journal. A server instead
//! fails the flush of each file that lost data.

use crate::job::config::JobConfig;
use crate::job::report::Report;
use crate::journal::open::Journal;

/// Flushes the target before anything of an earlier run is trusted, and records whether the kernel
/// failed to write back what that run left.
pub(crate) async fn find_lost_writes(config: &JobConfig, report: &Report, journal: &Journal) {
    if !journal.memory().resumed() || !config.target.capabilities().page_cache {
        return;
    }
    if let Err(error) = config.target.sync().await {
        record_lost_writes(config, report, Some(journal));
        // What this run writes is not what was lost.
        report.journal_result(Some(journal.begin_again().await));
        report.note(
            None,
            format!("{error}; what was not durable before is copied once more"),
        );
    }
}

/// Records in the journal that a flush failed, so that no later run trusts what was written before.
pub(crate) fn record_lost_writes(config: &JobConfig, report: &Report, journal: Option<&Journal>) {
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
