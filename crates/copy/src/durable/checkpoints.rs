//! Checkpoints: what was written becomes durable, gets its name, and is recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use ropeway_vfs::{End, Error, ErrorKind, Name, Timestamp, Verdict};
use tokio::sync::oneshot;

use super::{OpenFile, PendingRename};
use crate::context::Context;
use crate::folder::{Folder, has_name, name_folder};
use crate::journal::Token;
use crate::mutations::{self, Mutation};
use crate::status::{Fatal, Status};

/// Longest time between checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);
/// A sync that took longer is followed by another before anything is called durable.
const LONG_SYNC: Duration = Duration::from_millis(500);

/// Runs checkpoints until the sender of `stop` is dropped; a checkpoint that has begun is finished. The first one comes
/// at once: what is older than it is durable then, should a flush fail later.
pub(crate) async fn run_checkpoints(context: Arc<Context>, mut stop: oneshot::Receiver<()>) {
    if context.sync.is_touched() {
        checkpoint(&context).await;
    }
    loop {
        tokio::select! {
            biased;
            _ = &mut stop => return,
            () = context.sync.wake.notified() => {}
            () = tokio::time::sleep(CHECKPOINT_EVERY) => {}
        }
        note_clock(&context);
        if context.sync.has_work() {
            checkpoint(&context).await;
        }
    }
}

/// Tells the journal when the wall clock was set back: change times of the target mean nothing then.
fn note_clock(context: &Context) {
    if let Some(journal) = context.journal.as_ref().filter(|_| context.sync.was_set_back()) {
        context.journalled(Some(journal.clock_stepped()));
    }
}

/// Makes everything written so far durable, names what waited for it, and records it. An error is fatal: a device
/// that lost a write-back has lost data.
pub(crate) async fn checkpoint(context: &Arc<Context>) {
    let _one_at_a_time = context.sync.checkpoint.lock().await;
    // After a failed flush another one may succeed: it does not bring back what was lost.
    if context.failures.is_fatal() {
        return;
    }
    let start = tokio::time::Instant::now();
    let Some(first) = sync_written(context).await else {
        return;
    };
    publish(context, &first);
    // A long sync has written most of what came while it ran, too: what took its time is called durable soon after it.
    let more = context.sync.dirty_closed.load(Ordering::Acquire) > 0;
    if more
        && start.elapsed() > LONG_SYNC
        && let Some(second) = sync_written(context).await
    {
        publish(context, &second);
    }
}

/// What a sync covered, as of its begin.
struct Synced {
    landed: u64,
    files: u64,
    before: Option<Timestamp>,
    open: Vec<OpenPart>,
}

/// An open file as of a sync's begin.
struct OpenPart {
    token: Token,
    open: Arc<OpenFile>,
    written: u64,
    sent: u64,
}

/// Syncs what was written before this call, and names what waited for that. `None` after an error, which ends the job.
async fn sync_written(context: &Arc<Context>) -> Option<Synced> {
    let control = &context.sync;
    let landed = context.live.bytes_landed.load(Ordering::Acquire);
    let files = context.live.files_done.load(Ordering::Acquire);
    note_clock(context);
    let before = control.watermark().await;
    let renames = std::mem::take(&mut *control.pending.lock());
    let dirty_open = control.dirty_open.load(Ordering::Acquire);
    let open: Vec<OpenPart> = control
        .open
        .lock()
        .iter()
        .map(|(token, open)| OpenPart {
            token: *token,
            open: Arc::clone(open),
            written: open.written.load(Ordering::Acquire),
            sent: open.sent.load(Ordering::Acquire),
        })
        .collect();
    let touched = control.dirty_tree.swap(false, Ordering::AcqRel);
    let dirty_closed = control.dirty_closed.swap(0, Ordering::AcqRel);
    control.syncing_closed.store(dirty_closed, Ordering::Release);
    control.room.notify_waiters();
    if mutations::is(Mutation::JournalBeforeFlush) {
        record(context, before, &open);
    }
    let whole_tree = touched || dirty_closed > 0 || !renames.is_empty();
    let start = tokio::time::Instant::now();
    let synced = if !context.wants_durable() {
        Ok(())
    } else if !context.target.capabilities().page_cache {
        control.awaiting(flush_on_server(context, &open)).await
    } else if whole_tree {
        control.awaiting(context.target.sync()).await
    } else {
        control.awaiting(sync_open(&open)).await
    };
    control.observe(dirty_open + dirty_closed, start.elapsed());
    control.syncing_closed.store(0, Ordering::Release);
    for part in &open {
        control.cleaned(&part.open, part.sent);
    }
    control.room.notify_waiters();
    if let Err(error) = synced.or_else(|error| match mutations::is(Mutation::FailedFlushIgnored) {
        true => Ok(()),
        false => Err(error),
    }) {
        give_up(context, error).await;
        return None;
    }
    let failed = name_pending(context, renames).await;
    Some(Synced {
        landed: landed.saturating_sub(failed),
        files,
        before,
        open,
    })
}

/// Asks the kernel, before anything of an earlier run is trusted, whether it failed to write back what that run left: it
/// tells the first who asks.
pub(crate) async fn hear_of_losses(context: &Context) {
    let Some(journal) = &context.journal else {
        return;
    };
    if !journal.memory().resumed() || !context.target.capabilities().page_cache {
        return;
    }
    if let Err(error) = context.target.sync().await {
        note_loss(context);
        // What this run writes is not what was lost.
        context.journalled(Some(journal.begin_again()));
        context.note(
            None,
            format!("{error}; what was not durable before is copied once more"),
        );
    }
}

/// Records that a flush failed. The kernel drops the pages that it could not write, and reports that once: no later run
/// would hear of it. (A server reports what it lost to each file's own flush.)
pub(crate) fn note_loss(context: &Context) {
    let Some(journal) = &context.journal else {
        return;
    };
    if !context.target.capabilities().page_cache {
        return;
    }
    if let Err(error) = journal.lost() {
        context.note(
            None,
            format!(
                "the journal cannot be written ({error}), so the next run cannot know that data was lost; \
                 copy to another target, or with --force"
            ),
        );
    }
}

/// Ends the job: what was written is not durable, and cannot be made so.
async fn give_up(context: &Context, error: Error) {
    note_loss(context);
    let error = write_back_failed(error);
    let status = Status::of_error(&error, End::Target);
    let path = error.path.clone();
    context.fail(&path, error, End::Target).await;
    context.fatal(match status {
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

/// Tells the counters and the journal what is durable.
fn publish(context: &Context, synced: &Synced) {
    // What is in doubt was counted as landed; the try that follows counts it anew.
    if !context.wants_durable() || synced.open.iter().any(|part| part.open.is_in_doubt()) {
        return;
    }
    // The journal first: whoever reads the counters and kills this process finds the same in the next run.
    record(context, synced.before, &synced.open);
    let live = &context.live;
    live.bytes_durable.fetch_max(synced.landed, Ordering::AcqRel);
    live.files_durable.fetch_max(synced.files, Ordering::AcqRel);
    for part in &synced.open {
        part.open.durable.fetch_max(part.written, Ordering::AcqRel);
        context.sync.settled(&part.open, 0, live);
    }
}

/// Tells the journal what is durable.
fn record(context: &Context, before: Option<Timestamp>, open: &[OpenPart]) {
    if let (Some(journal), Some(before)) = (&context.journal, before) {
        let files = open.iter().map(|part| (part.token, part.written)).collect();
        context.journalled(Some(journal.durable(before, files)));
    }
}

async fn sync_open(open: &[OpenPart]) -> Result<(), Error> {
    for part in open {
        part.open.file.sync(true).await?;
    }
    Ok(())
}

/// Makes durable what a server has, file by file. Finished files were flushed as they were finished
/// ([`Context::flushes_each`]); those that are not are looked for when nothing is open any more, since the tree would flush
/// by name, and learn nothing of what the server lost.
async fn flush_on_server(context: &Context, open: &[OpenPart]) -> Result<(), Error> {
    if open.is_empty() {
        return context.target.sync().await;
    }
    let files: Vec<Arc<OpenFile>> = open.iter().map(|part| Arc::clone(&part.open)).collect();
    let flushes = files.into_iter().map(|open| async move {
        match open.file.sync(true).await {
            Err(error) if error.verdict() == Verdict::Retry && error.kind != ErrorKind::DeviceError => {
                open.in_doubt.store(true, Ordering::Release);
                Ok(())
            }
            flushed => flushed,
        }
    });
    let at_once = context.target.capabilities().small_in_flight.max(1);
    let flushed: Vec<Result<(), Error>> = futures_util::stream::iter(flushes)
        .buffer_unordered(at_once)
        .collect()
        .await;
    flushed.into_iter().collect()
}

/// An EIO of a sync is not a passing fault: the kernel reports a lost write-back once.
fn write_back_failed(mut error: Error) -> Error {
    if error.kind == ErrorKind::DeviceError {
        error.kind = ErrorKind::Gone;
    }
    error
}

/// Gives the waiting nodes their names, folder by folder. Returns the bytes of those that got none.
async fn name_pending(context: &Arc<Context>, renames: Vec<PendingRename>) -> u64 {
    let failed = AtomicU64::new(0);
    let mut groups: Vec<(Arc<Folder>, Vec<PendingRename>)> = Vec::new();
    for rename in renames {
        match groups.last_mut() {
            Some((folder, group)) if Arc::ptr_eq(folder, &rename.folder) => group.push(rename),
            _ => groups.push((Arc::clone(&rename.folder), vec![rename])),
        }
    }
    for (folder, group) in groups {
        let dir = folder.path();
        let named = group.iter().filter(|rename| !rename.replace).map(|rename| async {
            let (from, to) = (dir.join(&rename.from), dir.join(&rename.to));
            let mut result = context.target.rename(&from, &to, false).await;
            if result
                .as_ref()
                .is_err_and(|error| error.kind == ErrorKind::AlreadyExists)
            {
                result = name_folder(context, folder.root(), &from, &to).await;
            }
            failed.fetch_add(renamed(context, rename, result).await, Ordering::Relaxed);
        });
        // Together where each is a round trip.
        let at_once = context.target.capabilities().small_in_flight.max(1);
        futures_util::stream::iter(named)
            .for_each_concurrent(at_once, |naming| naming)
            .await;
        let replacing: Vec<&PendingRename> = group.iter().filter(|rename| rename.replace).collect();
        let pairs: Vec<(Name, Name)> = replacing
            .iter()
            .map(|rename| (rename.from.clone(), rename.to.clone()))
            .collect();
        if !pairs.is_empty() {
            let results = context.target.rename_in(&dir, &pairs).await;
            for (rename, result) in replacing.into_iter().zip(results) {
                failed.fetch_add(renamed(context, rename, result).await, Ordering::Relaxed);
            }
        }
    }
    failed.into_inner()
}

/// Records what came of a rename. Returns the bytes that count no more.
async fn renamed(context: &Context, rename: &PendingRename, result: Result<(), Error>) -> u64 {
    context.sync.touched();
    match result {
        Ok(()) => match (&context.journal, rename.token) {
            (Some(journal), Some(token)) => context.journalled(Some(journal.closed(token))),
            (Some(_), None) => has_name(context, &rename.from),
            (None, _) => {}
        },
        Err(error) => {
            let landed = &context.live.bytes_landed;
            landed.fetch_sub(rename.size, Ordering::AcqRel);
            if let Some(token) = rename.token {
                context.arrivals.take_back(token);
                if matches!(error.verdict(), Verdict::Skip) {
                    // Best effort: the failure itself is reported.
                    let temporary = rename.folder.path().join(&rename.from);
                    let _ = context.target.remove_file(&temporary).await;
                }
            }
            context
                .live
                .files_done
                .fetch_sub(u64::from(rename.token.is_some()), Ordering::AcqRel);
            context.live.bytes_done.fetch_sub(rename.size, Ordering::AcqRel);
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&rename.shown, error, End::Target).await;
            return rename.size;
        }
    }
    0
}
