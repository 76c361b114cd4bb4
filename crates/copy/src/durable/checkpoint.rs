//! Checkpoints: what was written becomes durable, gets its name, and is recorded.
//!
//! Invariants:
//! * One checkpoint runs at a time.
//! * The order is flush, names, journal, counters. So what a counter shows as durable is found by
//!   the next run, whenever this one is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use ropeway_plan::durability::Flush;
use ropeway_vfs::{End, Error, ErrorKind, Timestamp, Tree, Verdict};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::durable::control::{DurabilityControl, TargetFile};
use crate::durable::lost_writes::record_lost_writes;
use crate::durable::names::give_names;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;
use crate::journal::open::Journal;
use crate::mutations::{self, Mutation};

/// Longest time between checkpoints. A guess.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);
/// A flush that took longer is followed by another one at once. A guess.
const LONG_FLUSH: Duration = Duration::from_millis(500);

/// Runs checkpoints until the sender of `stop` is dropped. A checkpoint that has begun is finished.
/// The first one comes at once: what is older than it is durable then, should a flush fail later.
pub(crate) async fn run_checkpoints(context: Arc<Context>, mut stop: oneshot::Receiver<()>) {
    if context.durability.is_touched() {
        checkpoint(&context).await;
    }
    loop {
        tokio::select! {
            biased;
            _ = &mut stop => return,
            () = context.durability.woken() => {}
            () = tokio::time::sleep(CHECKPOINT_EVERY) => {}
        }
        note_clock(&context.durability, &context.report, context.journal.as_ref());
        if context.durability.has_work() {
            checkpoint(&context).await;
        }
    }
}

/// Records in the journal that the wall clock was set back: change times on the target prove
/// nothing then.
fn note_clock(durability: &DurabilityControl, report: &Report, journal: Option<&Journal>) {
    let was_set_back = || durability.clock_was_set_back();
    if let Some(journal) = journal.filter(|_| was_set_back()) {
        report.journal_result(Some(journal.clock_stepped()));
    }
}

/// Makes everything written so far durable, names what waited for it, and records it. An error is
/// fatal: a device that could not write back has lost data.
#[tracing::instrument(level = "debug", skip_all)]
pub(crate) async fn checkpoint(context: &Arc<Context>) {
    let _one_at_a_time = context.durability.begin_checkpoint().await;
    // After a failed flush another one may succeed: it does not bring back what was lost.
    if context.report.failures.is_fatal() {
        return;
    }
    let start = Instant::now();
    let Some(first) = flush_written(context).await else {
        return;
    };
    publish(context, &first);
    // A long flush has written most of what came while it ran, too. A second one makes that durable
    // at once.
    if context.durability.has_closed_dirty()
        && start.elapsed() > LONG_FLUSH
        && let Some(second) = flush_written(context).await
    {
        publish(context, &second);
    }
}

/// What a flush made durable, as of its begin.
struct Flushed {
    landed: u64,
    files: u64,
    before: Option<Timestamp>,
    flush: Flush<TargetFile>,
    in_doubt: bool,
}

/// Flushes what was written before this call, and names what waited for that. `None` after an
/// error, which ends the job.
async fn flush_written(context: &Arc<Context>) -> Option<Flushed> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    let journal = context.journal.as_ref();
    let landed = report.live.bytes_landed.load(Ordering::Acquire);
    let files = report.live.files_done.load(Ordering::Acquire);
    // After the count: a file that grew to what was counted is marked at that or more. On a server,
    // no flush covers a file that was closed without one of its own.
    if config.target.capabilities().page_cache {
        durability.mark();
    }
    note_clock(durability, report, journal);
    let before = durability.watermark().await;
    let (flush, names) = durability.begin_flush();
    if mutations::is(Mutation::JournalBeforeFlush) {
        record(context, before, &flush);
    }
    let doubted = AtomicBool::new(flush.in_doubt);
    let start = Instant::now();
    let flushed = if !config.durability.wants_durable() {
        Ok(())
    } else if !config.target.capabilities().page_cache {
        durability
            .hold_during(flush_on_server(&*config.target, durability, &flush, &doubted))
            .await
    } else if flush.whole_tree {
        durability.hold_during(config.target.sync()).await
    } else {
        durability.hold_during(flush_open(&flush)).await
    };
    durability.end_flush(&flush, start.elapsed());
    if let Err(error) = flushed.or_else(|error| match mutations::is(Mutation::FailedFlushIgnored) {
        true => Ok(()),
        false => Err(error),
    }) {
        end_job(config, report, journal, error).await;
        return None;
    }
    let failed = give_names(context, names).await;
    Some(Flushed {
        landed: landed.saturating_sub(failed),
        files,
        before,
        in_doubt: doubted.into_inner(),
        flush,
    })
}

/// Ends the job: what was written is not durable, and cannot be made durable.
async fn end_job(config: &JobConfig, report: &Report, journal: Option<&Journal>, error: Error) {
    record_lost_writes(config, report, journal);
    let error = write_back_failed(error);
    let status = Status::of_error(&error, End::Target);
    let path = error.path.clone();
    report.fail(&path, error, End::Target).await;
    report.fatal(match status {
        Status::Network => Fatal::new(
            status,
            "the connection was lost before the server had flushed what was written",
        )
        .hint("run the same command again: it goes on where it stopped"),
        _ => Fatal::new(
            Status::TargetUnwritable,
            "the target lost data while writing it to the device",
        ),
    });
}

/// Records in the journal and the counters what is durable.
fn publish(context: &Context, flushed: &Flushed) {
    // What is in doubt was counted as landed. The try that follows counts it anew.
    if !context.config.durability.wants_durable() || flushed.in_doubt {
        return;
    }
    record(context, flushed.before, &flushed.flush);
    let live = &context.report.live;
    live.bytes_durable.fetch_max(flushed.landed, Ordering::AcqRel);
    live.files_durable.fetch_max(flushed.files, Ordering::AcqRel);
    context.durability.confirm(&flushed.flush, live);
}

/// Records in the journal what is durable.
fn record(context: &Context, before: Option<Timestamp>, flush: &Flush<TargetFile>) {
    let (Some(journal), Some(before)) = (context.journal.as_ref(), before) else {
        return;
    };
    context.durability.record(flush, |files| {
        let recorded = journal.durable(before, files);
        context.report.journal_result(Some(recorded));
    });
    // The next run must find it before this one calls anything durable.
    context.report.journal_result(Some(journal.sync()));
}

/// Flushes the open files of a local target.
async fn flush_open(flush: &Flush<TargetFile>) -> Result<(), Error> {
    for file in &flush.files {
        file.handle.0.sync(true).await?;
    }
    Ok(())
}

/// Flushes what a server has not made durable. Finished files were flushed as they were finished,
/// so the open files are left. Only if there are none, the tree is flushed: it opens files by their
/// names, and so cannot learn what the server lost. Sets `doubted` if the server lost something.
async fn flush_on_server(
    target: &dyn Tree,
    durability: &DurabilityControl,
    flush: &Flush<TargetFile>,
    doubted: &AtomicBool,
) -> Result<(), Error> {
    if flush.files.is_empty() {
        return target.sync().await;
    }
    let files: Vec<_> = flush
        .files
        .iter()
        .map(|file| (file.handle.clone(), file.attempt))
        .collect();
    let flushes = files.into_iter().map(|(file, attempt)| async move {
        match file.0.sync(true).await {
            Err(error) if error.verdict() == Verdict::Retry && error.kind != ErrorKind::DeviceError => {
                durability.doubt(attempt);
                doubted.store(true, Ordering::Release);
                Ok(())
            }
            flushed => flushed,
        }
    });
    let at_once = target.capabilities().small_in_flight.max(1);
    let flushed: Vec<Result<(), Error>> = futures_util::stream::iter(flushes)
        .buffer_unordered(at_once)
        .collect()
        .await;
    flushed.into_iter().collect()
}

/// An EIO of a flush is no passing fault: the kernel reports a lost write-back once.
fn write_back_failed(mut error: Error) -> Error {
    if error.kind == ErrorKind::DeviceError {
        error.kind = ErrorKind::Gone;
    }
    error
}
