//! Small files: batches of one folder through the same-side path, else one by one through blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_vfs::{Batch, BatchDone, BatchItem, CacheMode, Create, End, EndError, ErrorKind};
use tokio::time::Instant;

use crate::changing;
use crate::context::Context;
use crate::crossing::Crossing;
use crate::durable::PendingRename;
use crate::file::{self, FileTask};
use crate::folder::{Folder, Placement};
use crate::leftovers;
use crate::links;
use crate::progress::add_wait;

/// Files of one batch: enough to make the hand-over cheap, few enough to share a folder between threads.
pub(crate) const BATCH_FILES: usize = 64;
/// Bytes of one batch.
pub(crate) const BATCH_BYTES: u64 = 4 << 20;

/// Copies small files of one folder. The permit that bounds batches in flight is held by the caller.
pub(crate) async fn copy_batch(context: &Arc<Context>, folder: &Arc<Folder>, tasks: Vec<FileTask>) {
    if context.stopped() {
        return;
    }
    if context.wants_durable() {
        context.sync.wait_for_room(context).await;
    }
    let root = Arc::clone(folder.root());
    folder.marks(context);
    leftovers::before(context, folder).await;
    make_way(context, &tasks).await;
    let Some(batch) = batch_of(context, folder, &tasks) else {
        return one_by_one(context, tasks).await;
    };
    let start = Instant::now();
    let results = match context.target.copy_batch(&*root.root.source, batch) {
        Ok(running) => running.await,
        Err(_) => return one_by_one(context, tasks).await,
    };
    add_wait(&context.live.waits.small_files, start.elapsed());
    for (task, result) in tasks.into_iter().zip(results) {
        match result {
            Ok(done) if done.source_changed => file::copy(context, leftover(task)).await,
            Ok(done) => finished(context, task, &done).await,
            Err(EndError { end, error }) => failed(context, task, error, end).await,
        }
    }
}

/// Removes what an earlier run left where these files go, in a folder that nobody has seen yet. Each is made anew, since
/// what is there may be of another kind, or have other names. If the removal fails, making the file says so.
pub(crate) async fn make_way(context: &Context, tasks: &[FileTask]) {
    let left = |task: &&FileTask| task.folder.placement() == Placement::Direct && task.existing.is_some();
    for task in tasks.iter().filter(left) {
        let _ = context
            .target
            .remove_file(&task.folder.path().join(&task.name))
            .await;
    }
}

fn batch_of(context: &Context, folder: &Folder, tasks: &[FileTask]) -> Option<Batch> {
    let temporary = folder.placement() == Placement::Temporary;
    let mut items = Vec::with_capacity(tasks.len());
    for task in tasks {
        let target = if temporary {
            context.temporary_of(task.token())
        } else {
            task.name.clone()
        };
        let name = task.source_path.file_name()?;
        items.push(BatchItem {
            name,
            target,
            rename_to: (temporary && !context.postpones()).then(|| task.name.clone()),
            // What is there already is removed by the longer way, which looks at it.
            create: Create::New,
            metadata: task.metadata.clone(),
        });
    }
    Some(Batch {
        source_dir: tasks.first()?.source_path.parent()?,
        target_dir: folder.path(),
        items,
        preserve: context.options.preserve,
        cache: match context.options.cache {
            CacheMode::Auto => CacheMode::Keep,
            cache => cache,
        },
        hash: context.hashes.is_some(),
        sync_each: context.flushes_each(),
    })
}

async fn one_by_one(context: &Arc<Context>, tasks: Vec<FileTask>) {
    let mut running = tokio::task::JoinSet::new();
    for task in tasks {
        let Ok(permit) = Arc::clone(&context.streams).acquire_owned().await else {
            return;
        };
        let context = Arc::clone(context);
        running.spawn(async move {
            file::copy(&context, task).await;
            drop(permit);
        });
    }
    while running.join_next().await.is_some() {}
}

pub(crate) async fn finished(context: &Arc<Context>, task: FileTask, done: &BatchDone) {
    let live = &context.live;
    // Before it is counted: a checkpoint that counts it must also sync it.
    context.sync.wrote_small(done.size);
    live.bytes_read.fetch_add(done.read, Ordering::Relaxed);
    live.bytes_sent.fetch_add(done.sent, Ordering::Relaxed);
    live.bytes_landed.fetch_add(done.size, Ordering::AcqRel);
    live.files_done.fetch_add(1, Ordering::AcqRel);
    live.bytes_done.fetch_add(done.size, Ordering::AcqRel);
    context.arrivals.add(task.token(), &task.metadata);
    context.lose(&done.losses);
    if task.folder.placement() == Placement::Temporary && context.postpones() {
        context.sync.postpone(PendingRename {
            folder: Arc::clone(&task.folder),
            from: context.temporary_of(task.token()),
            to: task.name.clone(),
            replace: true,
            token: Some(task.token()),
            size: done.size,
            shown: task.shown(),
        });
    }
    if context.options.report_items {
        let action = if task.existing.is_some() { "update" } else { "copy" };
        context.item(&task.shown(), action, done.size);
    }
    if let (Some(hashes), Some(hash)) = (&context.hashes, &done.hash)
        && let Err(error) = hashes.add(&task.landed(), hash)
    {
        context.note(None, format!("cannot keep a hash: {error}"));
    }
    if let Some(id) = task.link {
        links::complete(context, id, &task.folder, &task.name).await;
    }
}

/// The same task, with what the batch left under its name known to be there.
pub(crate) fn leftover(mut task: FileTask) -> FileTask {
    if task.folder.placement() == Placement::Direct && task.existing.is_none() {
        task.existing = Some(changing::as_torn(&task.metadata));
    }
    task
}

/// A passing error, or one that the slower way may avoid, gets its tries there.
async fn failed(context: &Arc<Context>, task: FileTask, error: ropeway_vfs::Error, end: End) {
    use ropeway_vfs::Verdict;
    if context.stopped() {
        return;
    }
    if error.verdict() == Verdict::Retry || error.kind == ErrorKind::AlreadyExists {
        return file::copy(context, leftover(task)).await;
    }
    file::give_up(context, &task, &error).await;
    let link = task.link;
    context.live.files_failed.fetch_add(1, Ordering::Relaxed);
    context.fail(&task.shown(), error, end).await;
    if let Some(id) = link {
        links::failed(context, id).await;
    }
}

/// Up to this size a file crosses this machine though both ends lie on one server: a round trip to get it and one to put it
/// cost less than the ten or so of a copy inside. A guess.
const CROSSING_INSIDE_MAX: u64 = 64 << 10;

/// Whether a file may go through the batch path, or across with many others in flight.
pub(crate) fn fits(context: &Context, task: &FileTask) -> bool {
    let temporary = task.folder.placement() == Placement::Temporary;
    // A replaced file that is kept, or one that others are linked to, takes the path that does that.
    let special = (temporary && (task.link.is_some() || context.options.backup.is_some()))
        || (!temporary && task.link.is_some() && task.existing.is_some());
    let size_max = context
        .crossing
        .as_ref()
        .map_or(context.environment.sizes.small_max, Crossing::size_max);
    let inside =
        || context.hashes.is_none() && context.target.copies_inside(&*task.folder.root().root.source);
    let size_max = match &context.crossing {
        Some(_) if task.metadata.size > CROSSING_INSIDE_MAX && inside() => CROSSING_INSIDE_MAX,
        _ => size_max,
    };
    context.may_batch() && task.metadata.size <= size_max && !special
}
