//! Copies small files from one side to the other: each whole, in one call on each side, hundreds in
//! flight across folders.
//!
//! ```text
//!   permit -> block of the class that fits -> source.get_small -> target.put_small
//!          -> counted as a file of a batch is
//! ```
//!
//! If a call costs a round trip, the number of files under way decides the speed. Memory is bounded
//! by four pools of blocks (4 KiB, a page more than 64 KiB, 1 MiB, a page more than 4 MiB). A file takes
//! one block of the smallest class that holds it. It waits if none is free, or if the blocks in use
//! reach the size of [`ROOM`](crate::transfer::pipeline). Blocks that one class does not need
//! return their memory when another needs it. A file that is not plain (it outgrew its block,
//! changed while it was read, met an error that may pass, or has holes worth keeping) takes the
//! long way, through `copy_file`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_block::{Block, BlockMut};
use ropeway_plan::Naming;
use ropeway_vfs::{
    BatchDone, Create, End, EndError, Error, ErrorKind, GetSmall, GotSmall, PutDone, PutSmall, Verdict,
};
use tokio::time::Instant;

use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::counters::add_wait;
use crate::place::destination::Destination;
use crate::place::mark::mark_folder;
use crate::place::task::FileTask;
use crate::sweep::place::note_place;
use crate::transfer::file::check_identity;
use crate::transfer::moved::Moved;
use crate::transfer::node::{copy_file, fail_node};
use crate::transfer::small::{clear_targets, finish_small, with_leftover};

/// Size from which a file with holes takes the long way. A smaller hole is not worth the round
/// trips. A guess.
const SPARSE_MIN: u64 = 64 << 10;

/// Copies one small file. The caller holds the permit.
#[tracing::instrument(name = "small_file", level = "debug", skip_all, fields(path = %task.shown()))]
pub(crate) async fn copy_small_file(context: &Arc<Context>, task: Box<FileTask>) {
    context.pass().await;
    if context.stopped() {
        return;
    }
    let Some(small_files) = context
        .resources
        .small_files
        .as_ref()
        .filter(|_| !is_worth_holes(&context.config, &task))
    else {
        return the_long_way(context, task).await;
    };
    if context.config.durability.wants_durable() {
        context.durability.wait_for_room(&context.cancel).await;
    }
    context.resources.follow_line();
    let (_room, block) = small_files
        .block(&context.resources.pool, task.metadata.size)
        .await;
    if context.stopped() {
        return;
    }
    let admitted = context.report.admit(task.metadata.size).await;
    let moved = Moved::of(context, &task);
    let (block, got) = get(context, &task, block, moved.as_ref()).await;
    let crossed = match &got {
        Ok(got) if got.reused => 0,
        _ => block.len() as u64,
    };
    admitted.pay(crossed).await;
    let stable_ids = task.folder.root().root.source.capabilities().stable_ids;
    let is_listed = |got: &GotSmall| check_identity(&task, &got.metadata, stable_ids).is_ok();
    let got = match got {
        Ok(got) if got.whole && is_listed(&got) => got,
        Ok(_) => {
            drop(block);
            return the_long_way(context, task).await;
        }
        Err(error) => {
            drop(block);
            return Box::pin(failed(context, task, error, End::Source)).await;
        }
    };
    let size = block.len() as u64;
    let mut done = BatchDone {
        read: crossed,
        sent: crossed,
        size,
        hash: context.hash_algorithm().map(|algorithm| algorithm.hash(&block)),
        ..BatchDone::default()
    };
    let content = (!block.is_empty()).then(|| block.freeze());
    match put(context, &task, (content, moved), &got).await {
        Ok(put) => {
            if put.reused || crossed == 0 {
                done.sent = 0;
                context
                    .report
                    .live
                    .bytes_reused
                    .fetch_add(size, Ordering::Relaxed);
            }
            done.losses = put.losses;
            finish_small(context, &task, &done).await;
        }
        Err(error) => Box::pin(failed(context, task, error, End::Target)).await,
    }
}

/// Copies a file by the long way. It has a future of its own on the heap: thousands of small files are under
/// way, and few take it.
async fn the_long_way(context: &Arc<Context>, task: Box<FileTask>) {
    Box::pin(copy_file(context, *task)).await;
}

/// Whether the holes of this file must be kept, which only the long way does.
fn is_worth_holes(config: &JobConfig, task: &FileTask) -> bool {
    task.metadata.size >= SPARSE_MIN && task.metadata.is_sparse() && config.target.capabilities().sparse
}

async fn get(
    context: &Context,
    task: &FileTask,
    block: BlockMut,
    moved: Option<&Moved>,
) -> (BlockMut, Result<GotSmall, Error>) {
    let (config, report) = (&context.config, &context.report);
    let (block, is_known) = match moved {
        Some(moved) if !moved.is_far => moved.read(config, task, block).await,
        _ => (block, false),
    };
    let get = GetSmall {
        path: task.source_path.clone(),
        size: task.metadata.size,
        xattrs: config.wants_xattrs(&*task.folder.root().root.source, &task.metadata),
        cache: config.cache_of(task.locality(), task.metadata.size).source,
        is_known,
    };
    let start = Instant::now();
    let got = task.folder.root().root.source.get_small(get, block).await;
    add_wait(&report.live.waits.source, start.elapsed());
    got
}

async fn put(
    context: &Context,
    task: &FileTask,
    (content, moved): (Option<Block>, Option<Moved>),
    got: &GotSmall,
) -> Result<PutDone, Error> {
    let (config, report) = (&context.config, &context.report);
    let destination = Destination::of_file(config, task);
    mark_folder(report, context.journal.as_ref(), &task.folder);
    if !destination.has_final_name() {
        // On the heap: it waits for nothing but once a folder.
        Box::pin(note_place(context, &task.folder)).await;
    }
    clear_targets(&*config.target, std::slice::from_ref(task)).await;
    let naming = config.durability.naming(destination.spot, false);
    let put = PutSmall {
        path: destination.path,
        // The longer way looks at what is there already, and removes it.
        create: Create::New,
        content,
        change: config.change_of_file(report, &got.metadata, got.xattrs.clone()),
        sync: config.durability.flushes_each(),
        rename_to: matches!(naming, Naming::Now { .. }).then(|| task.folder.path().join(&task.name)),
        cache: config.cache_of(task.locality(), task.metadata.size).target,
        same_as: moved.filter(|moved| moved.is_far).map(|moved| moved.path),
    };
    let start = Instant::now();
    let result = config.target.put_small(put).await;
    add_wait(&report.live.waits.target, start.elapsed());
    result
}

/// Handles an error. One that may pass, or that the slower way may avoid, gets its tries there.
async fn failed(context: &Arc<Context>, task: Box<FileTask>, error: Error, end: End) {
    if context.stopped() {
        return;
    }
    let slower = matches!(error.kind, ErrorKind::AlreadyExists | ErrorKind::Unsupported);
    if error.verdict() == Verdict::Retry || slower {
        let task = match end {
            End::Source => task,
            End::Target => Box::new(with_leftover(*task)),
        };
        return the_long_way(context, task).await;
    }
    fail_node(context, *task, EndError { end, error }).await;
}
