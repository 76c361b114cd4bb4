//! Removes the temporary names of this job when it is done.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::job::context::Context;
use crate::mutations::{self, Mutation};
use crate::sweep::account::account_swept;
use crate::sweep::place::{is_resumed, known_places};
use crate::sweep::{removal, search};

/// Removes all temporary names of a job that is done. Returns whether that left each folder with
/// its times, also after a power cut.
pub(crate) async fn sweep_after(context: &Context) -> bool {
    if context.config.options.dry_run {
        say(context);
        return true;
    }
    let interrupted = context.cancel.is_cancelled() && !context.watch_ended();
    if interrupted || context.report.failures.is_fatal() {
        return false;
    }
    let failed_before = context.report.failures.items();
    let mut is_flushed = true;
    let temporaries = &context.temporaries;
    temporaries.own.notes_end().await;
    let looking = temporaries.looking.lock().take();
    if let Some(looking) = looking {
        // It ends by itself: each of its steps has its tries.
        let _ = looking.await;
    }
    let (had_probe, mut has_removed) = sweep_own(context).await;
    if !temporaries.keep_journal() {
        has_removed |= had_probe || temporaries.own.holds().await;
        let swept = temporaries.own.finish(temporaries.single.as_ref()).await;
        temporaries.keep_if(&swept);
        account_swept(context, swept).await;
        let is_mutated = mutations::is(Mutation::NamesNotFlushed);
        let is_far = context.config.target.capabilities().far;
        // Otherwise a power cut would bring them back, and without the journal no run knows of
        // them.
        if has_removed
            && context.config.durability.wants_durable()
            && !is_far
            && !is_mutated
            && let Err(error) = context.config.target.sync().await
        {
            temporaries.must_stay();
            is_flushed = false;
            let why = "a power cut may bring temporary names back, which the same command removes";
            context.report.note(None, format!("{error}; {why}"));
        }
    }
    say(context);
    is_flushed && !context.stopped() && context.report.failures.items() == failed_before
}

/// Removes the temporary names of this job, where it may have left any. Returns whether the target
/// was tested with a probe, and whether something was removed.
async fn sweep_own(context: &Context) -> (bool, bool) {
    let temporaries = &context.temporaries;
    let retried = context.report.live.retries.load(Ordering::Relaxed) > 0;
    let mut had_probe = context.report.probe.was_made();
    let was_refused = temporaries.own.was_refused().await;
    let mut has_removed = false;
    if is_resumed(context) || retried || was_refused || context.report.failures.items() > 0 {
        match context.report.probe.remove().await {
            Ok(was_there) => had_probe |= was_there,
            Err(_) => temporaries.must_stay(),
        }
        let mut without_claim = Vec::new();
        if is_resumed(context) {
            // The begin of this run may have failed to find or to take them.
            let (all, without) = temporaries.own.take_left(temporaries.claim_folders()).await;
            if !all {
                temporaries.must_stay();
            }
            without_claim = without;
        }
        let known = known_places(context).await.into_iter();
        let mut places = removal::each_once(known.chain(without_claim).collect());
        let mut swept = removal::places(&*context.config.target, places.clone(), temporaries.nonce).await;
        if context
            .journal
            .as_ref()
            .is_some_and(|journal| journal.outlived_a_boot())
        {
            // A power cut may have lost what journal and claim said about places.
            let goes_on = || !context.stopped();
            let roots = temporaries.roots.clone();
            let found = search::remove_below(
                &*context.config.target,
                roots,
                temporaries.nonce,
                goes_on,
                &mut swept,
            )
            .await;
            places.extend(found);
        }
        if swept.failed.is_empty() {
            let (all, removed) =
                removal::claims(&*context.config.target, &places, temporaries.nonce, &mut swept).await;
            if !all {
                temporaries.must_stay();
            }
            has_removed |= removed;
        }
        has_removed |= swept.names > 0;
        temporaries.keep_if(&swept);
        account_swept(context, swept).await;
    }
    (had_probe, has_removed)
}

fn say(context: &Context) {
    let count = |number: &AtomicU64| number.swap(0, Ordering::Relaxed);
    let temporaries = &context.temporaries;
    let names = |number: u64| match number {
        1 => "1 temporary name".to_owned(),
        number => format!("{number} temporary names"),
    };
    match count(&temporaries.swept) {
        0 => {}
        number => context.report.note(
            None,
            format!("removed {} that ended runs had left", names(number)),
        ),
    }
    match count(&temporaries.unknown) {
        0 => {}
        number => {
            let message = "of other runs left alone: whether those have ended cannot be told here; \
                           `ropeway jobs sweep --all DIR` removes them";
            context.report.note(None, format!("{} {message}", names(number)));
        }
    }
    match count(&temporaries.in_source) {
        0 => {}
        number => context.report.note(
            None,
            format!("{} of other runs in the source skipped", names(number)),
        ),
    }
}
