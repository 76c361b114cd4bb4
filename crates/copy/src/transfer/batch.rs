//! Copies small files in batches: all files of one folder through the same-side path, or one by one
//! through blocks.

use std::sync::Arc;

use ropeway_plan::Naming;
use ropeway_vfs::{Batch, BatchItem, CacheMode, Create, End, EndError, ErrorKind, HashAlgorithm};
use tokio::time::Instant;

use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::counters::add_wait;
use crate::place::destination::Destination;
use crate::place::folder::Folder;
use crate::place::mark::mark_folder;
use crate::place::task::FileTask;
use crate::sweep::place::note_place;
use crate::transfer::node::{copy_file, fail_node};
use crate::transfer::small::{clear_targets, finish_small, with_leftover};

/// Files of one batch: enough to make the call cheap, few enough to share a folder between threads.
/// A guess.
pub(crate) const BATCH_FILES: usize = 64;
/// Bytes of one batch. A guess.
pub(crate) const BATCH_BYTES: u64 = 4 << 20;

/// Copies small files of one folder. The caller holds the permit that bounds batches in flight.
#[tracing::instrument(name = "batch", level = "debug", skip_all, fields(files = tasks.len()))]
pub(crate) async fn copy_batch(context: &Arc<Context>, folder: &Arc<Folder>, tasks: Vec<FileTask>) {
    context.pass().await;
    if context.stopped() {
        return;
    }
    if context.config.durability.wants_durable() {
        context.durability.wait_for_room(&context.cancel).await;
    }
    let (config, root) = (&context.config, Arc::clone(folder.root()));
    mark_folder(&context.report, context.journal.as_ref(), folder);
    note_place(context, folder).await;
    clear_targets(&*config.target, &tasks).await;
    let Some(batch) = batch_of(config, context.hash_algorithm(), folder, &tasks) else {
        return one_by_one(context, tasks).await;
    };
    let bytes = tasks.iter().map(|task| task.metadata.size).sum();
    let admitted = context.report.admit(bytes).await;
    let start = Instant::now();
    let results = match config.target.copy_batch(&*root.root.source, batch) {
        Ok(running) => running.await,
        Err(_) => {
            // One by one they are admitted again.
            admitted.pay(0).await;
            return one_by_one(context, tasks).await;
        }
    };
    add_wait(&context.report.live.waits.small_files, start.elapsed());
    let read = results.iter().flatten().map(|done| done.read).sum();
    admitted.pay(read).await;
    for (task, result) in tasks.into_iter().zip(results) {
        match result {
            Ok(done) if done.source_changed => copy_file(context, with_leftover(task)).await,
            Ok(done) => finish_small(context, &task, &done).await,
            Err(EndError { end, error }) => failed(context, task, error, end).await,
        }
    }
}

/// Describes these files for one call. `hash` is how they are hashed, if they are.
fn batch_of(
    config: &JobConfig,
    hash: Option<HashAlgorithm>,
    folder: &Folder,
    tasks: &[FileTask],
) -> Option<Batch> {
    let mut items = Vec::with_capacity(tasks.len());
    for task in tasks {
        let destination = Destination::of_file(config, task);
        let naming = config.durability.naming(destination.spot, false);
        items.push(BatchItem {
            name: task.source_path.file_name()?,
            target: destination.name,
            rename_to: matches!(naming, Naming::Now { .. }).then(|| task.name.clone()),
            // The longer way looks at what is there already, and removes it.
            create: Create::New,
            metadata: task.metadata.clone(),
        });
    }
    Some(Batch {
        source_dir: tasks.first()?.source_path.parent()?,
        target_dir: folder.path(),
        items,
        preserve: config.options.preserve,
        cache: match config.options.cache {
            CacheMode::Auto => CacheMode::Keep,
            cache => cache,
        },
        hash,
        sync_each: config.durability.flushes_each(),
    })
}

async fn one_by_one(context: &Arc<Context>, tasks: Vec<FileTask>) {
    let mut running = tokio::task::JoinSet::new();
    for task in tasks {
        let Ok(permit) = Arc::clone(&context.resources.streams).acquire_owned().await else {
            return;
        };
        let context = Arc::clone(context);
        running.spawn(async move {
            copy_file(&context, task).await;
            drop(permit);
        });
    }
    while running.join_next().await.is_some() {}
}

/// Handles an error of a batch. One that may pass, or that the slower way may avoid, gets its tries
/// there.
async fn failed(context: &Arc<Context>, task: FileTask, error: ropeway_vfs::Error, end: End) {
    use ropeway_vfs::Verdict;
    if context.stopped() {
        return;
    }
    if error.verdict() == Verdict::Retry || error.kind == ErrorKind::AlreadyExists {
        return copy_file(context, with_leftover(task)).await;
    }
    fail_node(context, task, EndError { end, error }).await;
}
