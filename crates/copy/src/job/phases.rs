//! The phases of a job, in order.
//!
//! ```text
//!   count and check -> sweep -> copy -> delete (mirror) -> flush -> read back
//!                   -> (move: sweep -> remove the sources) -> watch -> sweep
//! ```
//!
//! A move sweeps before it removes the sources: the removal of a claim changes the time of its
//! folder, which only the source tells if the run ends just then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_vfs::End;
use ropeway_vfs::event::{Event, Phase};
use tokio::task::JoinHandle;

use crate::delete::mirror::{check_deletions, delete_first};
use crate::delete::moved::remove_moved;
use crate::durable::checkpoint::checkpoint;
use crate::durable::lost_writes::find_lost_writes;
use crate::job::context::Context;
use crate::job::options::Options;
use crate::job::outcome::{Fatal, Outcome, Status};
use crate::job::pass::copy_roots;
use crate::job::report::Report;
use crate::job::root::JobRoot;
use crate::job::stall::watch_for_stall;
use crate::job::watch::{begin_watch, follow};
use crate::mutations::{self, Mutation};
use crate::sweep::begin::sweep_before;
use crate::sweep::end::sweep_after;
use crate::transfer::blocks::keep_lists;
use crate::verify::hashes::Hashes;
use crate::verify::manifest::{ManifestError, publish_manifest};
use crate::verify::read_back::read_back;
use crate::verify::repair::repair;
use crate::walk::count::{count_during_copy, preflight};
use crate::walk::listed::report_missing;

/// When a job reached its states, as times since its start.
#[derive(Default)]
pub(crate) struct Times {
    /// Whether it came to the first write. Otherwise a guard refused it, or its ends could not be used.
    has_begun: bool,
    perceived: Duration,
    durable: Option<Duration>,
    verified: Option<Duration>,
}

/// Runs all phases of a job.
pub(crate) async fn run_phases(context: &Arc<Context>, roots: &[Arc<JobRoot>]) -> Times {
    let mut times = Times::default();
    match before(context, roots).await {
        Ok(true) => {}
        Ok(false) => return times,
        Err(fatal) => {
            context.fatal(fatal);
            return times;
        }
    }
    times.has_begun = true;
    let watches = if context.config.options.watch && !context.config.options.dry_run {
        match begin_watch(roots).await {
            Ok(watches) => Some(watches),
            Err(error) => {
                context.fatal(Fatal::from_error(&error, End::Source));
                return times;
            }
        }
    } else {
        None
    };
    context.report.emit(Event::Phase {
        phase: Phase::Copying,
    });
    let besides = begin_beside(context, roots);
    let landed = copy_roots(context, roots).await;
    report_missing(context, roots).await;
    note_nothing_included(context);
    for beside in besides.into_iter().flatten() {
        beside.abort();
    }
    if context.config.options.delete.is_some() {
        delete_first(context, roots).await;
    }
    times.perceived = landed;
    let mut has_swept = false;
    if !context.config.options.dry_run {
        make_durable(context, &mut times).await;
        verify_phase(context, roots, &mut times).await;
        let is_safe = times.durable.is_some() && context.report.failures.differences() == 0;
        if is_safe && !context.stopped() {
            keep_lists(context).await;
        }
        if context.config.options.move_source && is_safe && !context.stopped() {
            has_swept = sweep_and_move(context, roots).await;
        }
    }
    if let Some(hashes) = &context.hashes {
        write_manifest(&context.config.options, &context.report, hashes, roots);
    }
    if let Some(watches) = watches
        && !context.stopped()
    {
        follow(context, watches).await;
        has_swept = false;
    }
    if !has_swept {
        sweep_after(context).await;
    }
    context.report.emit(Event::Phase { phase: Phase::Done });
    times
}

/// Begins what runs beside the copy until it ends.
fn begin_beside(context: &Arc<Context>, roots: &[Arc<JobRoot>]) -> [Option<JoinHandle<()>>; 2] {
    let options = &context.config.options;
    let counting = options
        .count
        .then(|| tokio::spawn(count_during_copy(Arc::clone(context), roots.to_vec())));
    let watching = options
        .timeout
        .map(|timeout| tokio::spawn(watch_for_stall(Arc::clone(context), roots.to_vec(), timeout)));
    [counting, watching]
}

/// Says so if patterns that only include took no file.
fn note_nothing_included(context: &Context) {
    let filter = &context.config.options.filter;
    let walked = context.report.live.walked_files.load(Ordering::Acquire);
    if filter.takes_included_only() && walked == 0 && !context.stopped() {
        context.report.note(
            None,
            "--include took no file: its patterns are those of gitignore, and case counts",
        );
    }
}

/// Runs what must succeed before the first write. Returns whether the job goes on.
async fn before(context: &Arc<Context>, roots: &[Arc<JobRoot>]) -> Result<bool, Fatal> {
    let options = &context.config.options;
    if let Some(journal) = &context.journal {
        find_lost_writes(&context.config, &context.report, journal).await;
    }
    let only_deletions = options.dry_run && options.only_deletions;
    if only_deletions {
        check_deletions(context, roots).await?;
        if !roots
            .iter()
            .any(|root| root.needs_deletion.load(Ordering::Acquire))
        {
            return Ok(false);
        }
    }
    if options.preflight || options.delete.is_some() {
        context.report.emit(Event::Phase {
            phase: Phase::Preflight,
        });
        preflight(&context.config, &context.report, context.resumed(), roots).await?;
    }
    if options.delete.is_some() && !only_deletions {
        check_deletions(context, roots).await?;
    }
    sweep_before(context, roots).await;
    Ok(true)
}

/// Removes the sources of a move after a sweep. Returns whether another sweep is not needed.
async fn sweep_and_move(context: &Arc<Context>, roots: &[Arc<JobRoot>]) -> bool {
    let is_settled = sweep_after(context).await;
    let failed = context.report.failures.items();
    for root in roots.iter().filter(|_| is_settled) {
        remove_moved(context, root).await;
    }
    // After a failure the target is tested with a folder.
    context.report.failures.items() == failed
}

/// Makes everything durable.
async fn make_durable(context: &Arc<Context>, times: &mut Times) {
    if !context.config.durability.wants_durable() {
        return;
    }
    // Files and folders that were equal may have been made by others and may not be durable yet.
    let live = &context.report.live;
    let found_equal =
        live.files_skipped.load(Ordering::Relaxed) > 0 || live.directories.load(Ordering::Relaxed) > 0;
    if found_equal && context.config.target.capabilities().page_cache {
        context.durability.touch();
    }
    if !context.report.failures.is_fatal() {
        checkpoint(context).await;
        if context.durability.is_touched() && !mutations::is(Mutation::NamesNotFlushed) {
            checkpoint(context).await;
        }
    }
    if !context.report.failures.is_fatal() {
        times.durable = Some(context.report.live.elapsed());
    }
}

/// Reads back what was copied, and repairs what differs.
async fn verify_phase(context: &Arc<Context>, roots: &[Arc<JobRoot>], times: &mut Times) {
    let (Some(hashes), true) = (&context.hashes, context.config.options.verify.read_back) else {
        return;
    };
    if context.stopped() {
        return;
    }
    context.report.emit(Event::Phase {
        phase: Phase::Verifying,
    });
    let begin = context.report.live.elapsed();
    match hashes.flush() {
        Ok(spool) => {
            let differing = read_back(&context.config, &context.resources.pool, &context.report, spool).await;
            repair(context, roots, hashes, differing).await;
        }
        Err(error) => {
            context.fatal(Fatal::new(
                Status::Differs,
                format!("nothing was verified: {error}"),
            ));
        }
    }
    times.verified = Some(context.report.live.elapsed().saturating_sub(begin));
}

/// Writes the manifest that the user asked for.
fn write_manifest(options: &Options, report: &Report, hashes: &Hashes, roots: &[Arc<JobRoot>]) {
    let Some(manifest) = &options.verify.manifest else {
        return;
    };
    if report.stopped() {
        return;
    }
    let prefix = match roots {
        [root] => root.root.target_path.clone(),
        _ => Default::default(),
    };
    let published = hashes
        .flush()
        .map_err(ManifestError::from)
        .and_then(|spool| publish_manifest((spool, hashes.algorithm()), manifest, &prefix));
    if let Err(error) = published {
        report.fatal(Fatal::new(
            Status::TargetUnwritable,
            format!("cannot write the manifest {}: {error}", manifest.display()),
        ));
    }
}

/// Removes the journal of a finished job, and returns how the job ended.
pub(crate) fn conclude(context: &Context, times: &Times) -> Outcome {
    let mut summary = context.report.summary(context.resumed());
    summary.perceived = times.perceived;
    summary.durable = times.durable;
    summary.verified = times.verified;
    let interrupted = context.cancel.is_cancelled() && !context.report.failures.is_fatal();
    let status = match context.report.failures.status(summary.counters.files_done) {
        Status::Done | Status::SomeFailed if interrupted && !context.watch_ended() => Status::Interrupted,
        status => status,
    };
    if let Some(hashes) = &context.hashes {
        hashes.remove();
    }
    let fatal = context.report.failures.take_fatal();
    let is_untouched = fatal.is_some() && !times.has_begun && !context.resumed();
    if let Some(journal) = context.journal.as_ref().filter(|_| is_untouched) {
        // There is nothing to go on with.
        let _ = journal.finish();
    }
    if let Some(journal) = &context.journal
        && fatal.is_none()
        && !interrupted
        && !context.temporaries.keep_journal()
        // Without it, the next run would take a half overwritten file for an old version.
        && context.kept_versions.is_empty()
        // It may know of files that an earlier run left half written, and to which this run did not
        // come because something failed.
        && !(context.report.failures.items() > 0 && journal.memory().has_doubts())
    {
        // A journal that stays costs the next run only a look.
        let _ = journal.finish();
    }
    let (fatal, hint) = fatal.map_or((None, None), |fatal| (Some(fatal.message), fatal.hint));
    Outcome {
        summary,
        status,
        fatal,
        hint,
    }
}
