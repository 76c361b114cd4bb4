//! Hands out the nodes of the walk: counts one as done, collects it in a batch, or gives it to a
//! task of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::decide::{Decision, KeepReason};
use ropeway_vfs::{EndError, Error, ErrorKind, Kind, Op};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::delete::remove::make_way;
use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};
use crate::job::root::JobRoot;
use crate::place::failure::{discard, fail_file};
use crate::place::task::FileTask;
use crate::transfer::batch::{BATCH_BYTES, BATCH_FILES, copy_batch};
use crate::transfer::compare::compare_file;
use crate::transfer::link_table::Claim;
use crate::transfer::links::{complete_links, fail_links, make_link, shared_file};
use crate::transfer::node::{copy_file, copy_special};
use crate::transfer::small::takes_short_path;
use crate::transfer::small_files::copy_small_file;
use crate::transfer::special::{count_skipped, update_attributes};
use crate::walk::decision::Decider;

/// Hands out the nodes of one root that are no folders.
pub(super) struct Dispatcher<'a> {
    context: &'a Arc<Context>,
    root: &'a Arc<JobRoot>,
    pub(super) decider: Decider<'a>,
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(context: &'a Arc<Context>, root: &'a Arc<JobRoot>) -> Self {
        let journal = context.journal.as_ref();
        Self {
            context,
            root,
            decider: Decider::new(&context.config, &context.report, journal, root),
        }
    }

    /// Decides on one node, and starts its copy or collects it in the batch.
    pub(super) async fn node(&self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        context.pass().await;
        let decision = self.decider.decide(&mut task).await;
        if !matches!(decision, Decision::Skip | Decision::Keep(_)) {
            task.folder.note_change();
        }
        if let Some(id) =
            shared_file(&context.config, &context.report, &task.metadata).filter(|_| wants_copy(&decision))
        {
            task.link = Some(id);
            task.folder.note_change();
            match context.link_table.claim(id, task) {
                Claim::First(first) => task = first,
                Claim::Waits => return,
                Claim::Link(task, target) => return make_link(context, task, target).await,
            }
        }
        if task.metadata.kind != Kind::File && !matches!(decision, Decision::Keep(_) | Decision::Conflict) {
            return self.spawn_special(task).await;
        }
        match decision {
            Decision::Create | Decision::Replace => self.start_copy(task, batch).await,
            Decision::CompareContent => self.spawn_compare(task).await,
            Decision::Skip => {
                context.report.item(&task.shown(), "skip", task.metadata.size);
                self.count_equal(&task).await;
            }
            Decision::AttributesOnly => {
                if context.config.options.dry_run {
                    context.report.item(&task.shown(), "attributes", 0);
                    return self.count_equal(&task).await;
                }
                let link = task.link;
                let (folder, name) = (Arc::clone(&task.folder), task.name.clone());
                let is_updated = update_attributes(context, task).await;
                match link {
                    Some(id) if is_updated => complete_links(context, id, &folder, &name).await,
                    Some(id) => fail_links(context, id).await,
                    None => {}
                }
            }
            Decision::Keep(reason) => self.keep(&task, reason).await,
            Decision::Conflict => self.conflict(task, batch).await,
        }
    }

    /// Counts a node that needs no copy, and links its other names.
    async fn count_equal(&self, task: &FileTask) {
        self.context.copied_nodes.add(task.token(), &task.metadata);
        count_skipped(self.context, task).await;
        if let Some(id) = task.link {
            complete_links(self.context, id, &task.folder, &task.name).await;
        }
    }

    /// Reports and counts a node that stays as it is, or that the target cannot hold.
    async fn keep(&self, task: &FileTask, reason: KeepReason) {
        match reason {
            KeepReason::Unsupported if task.metadata.kind != Kind::Socket => {
                let op = if task.metadata.kind == Kind::Symlink {
                    Op::Link
                } else {
                    Op::Create
                };
                let error = Error::new(op, &task.source_path, ErrorKind::Unsupported);
                self.context.report.failures.not_held();
                fail_file(self.context, task, EndError::on_target(error)).await;
            }
            KeepReason::Unsupported => {
                self.skip_unsupported(task, "a socket cannot be copied; skipped")
                    .await
            }
            KeepReason::Device => {
                self.skip_unsupported(task, "a device; skipped (--devices copies it)")
                    .await;
            }
            KeepReason::Exists | KeepReason::Newer => {
                self.context
                    .report
                    .item(&task.shown(), "skip", task.metadata.size);
                count_skipped(self.context, task).await;
            }
        }
    }

    /// Skips a node of the source. This is reported and counted, but is no error.
    async fn skip_unsupported(&self, task: &FileTask, why: &'static str) {
        let error = Error::new(Op::Create, &task.source_path, ErrorKind::Unsupported);
        discard(self.context, task, &error).await;
        self.context.report.note(Some(&task.shown()), why);
        self.context.report.live.files_done.fetch_add(1, Ordering::AcqRel);
        self.context
            .report
            .live
            .files_skipped
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Handles a folder, FIFO, socket or device that stands where another node must go.
    async fn conflict(&self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if context.config.options.delete.is_none() {
            return fail_file(context, &task, EndError::on_target(in_the_way(&task))).await;
        }
        // In a dry run this only reports. In a hidden folder it removes what an earlier run left.
        let path = task.folder.path().join(&task.name);
        if let Err(error) = make_way(context, self.root, &path).await {
            return fail_file(context, &task, EndError::on_target(error)).await;
        }
        task.existing = None;
        if task.metadata.kind == Kind::File {
            self.start_copy(task, batch).await;
        } else {
            self.spawn_special(task).await;
        }
    }

    /// Starts the copy of a file, or collects it in the batch.
    async fn start_copy(&self, task: FileTask, batch: &mut Vec<FileTask>) {
        if self.context.config.options.dry_run {
            let action = if task.existing.is_some() { "update" } else { "copy" };
            self.context
                .report
                .item(&task.shown(), action, task.metadata.size);
            self.context.report.live.files_done.fetch_add(1, Ordering::AcqRel);
            self.context
                .report
                .live
                .bytes_done
                .fetch_add(task.metadata.size, Ordering::AcqRel);
            return;
        }
        let has_hashes = self.context.hashes.is_some();
        if task.is_blocked()
            || !takes_short_path(&self.context.config, &self.context.resources, has_hashes, &task)
        {
            return self.spawn_stream(task).await;
        }
        if let Some(small_files) = &self.context.resources.small_files {
            let permits = Arc::clone(small_files.permits());
            // On the heap, so that each layer of the future holds a pointer to it.
            let task = Box::new(task);
            return self
                .spawn(&permits, move |context| async move {
                    copy_small_file(&context, task).await;
                })
                .await;
        }
        batch.push(task);
        let bytes: u64 = batch.iter().map(|task| task.metadata.size).sum();
        let bytes_max = BATCH_BYTES.min(self.context.report.limit.piece_max());
        if batch.len() >= BATCH_FILES || bytes >= bytes_max {
            self.flush(batch).await;
        }
    }

    /// Starts the copy of the collected files.
    pub(super) async fn flush(&self, batch: &mut Vec<FileTask>) {
        let Some(folder) = batch.first().map(|task| Arc::clone(&task.folder)) else {
            return;
        };
        let tasks = std::mem::take(batch);
        self.spawn(&self.context.resources.batches, move |context| async move {
            copy_batch(&context, &folder, tasks).await;
        })
        .await;
    }

    async fn spawn_stream(&self, task: FileTask) {
        self.spawn(&self.context.resources.streams, move |context| async move {
            copy_file(&context, task).await
        })
        .await;
    }

    async fn spawn_special(&self, task: FileTask) {
        self.spawn(&self.context.resources.batches, move |context| async move {
            copy_special(&context, task).await
        })
        .await;
    }

    /// `--checksum`: compares both ends, and copies the file if they differ.
    async fn spawn_compare(&self, task: FileTask) {
        self.spawn(&self.context.resources.streams, move |context| async move {
            compare_file(&context, task).await
        })
        .await;
    }

    /// Waits for one of `permits`, and runs `work` with it in its own task.
    async fn spawn<F>(&self, permits: &Arc<Semaphore>, work: impl FnOnce(Arc<Context>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(permits).acquire_owned().await else {
            return;
        };
        // On the heap: the future of the task would hold it twice, where it is moved from and to.
        let work = Box::pin(work(Arc::clone(self.context)));
        let context = Arc::clone(self.context);
        let task = async move {
            let guard = PanicGuard(context);
            work.await;
            drop(guard);
            drop(permit);
        };
        tokio::spawn(task.in_current_span());
    }
}

/// Ends the job when one of its tasks panics: the nodes of that task are neither done nor reported.
struct PanicGuard(Arc<Context>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let message =
                "a part of the copy failed by a fault of this program; what it had in hand is not complete";
            self.0.fatal(
                Fatal::new(Status::TargetUnwritable, message)
                    .hint("run the same command again, and report this"),
            );
        }
    }
}

/// Returns the error for a node that is replaced by a mirror only.
fn in_the_way(task: &FileTask) -> Error {
    let what = match task.existing.as_ref().map(|existing| existing.kind) {
        Some(Kind::Fifo) => "a FIFO",
        Some(Kind::Socket) => "a socket",
        Some(Kind::CharDevice | Kind::BlockDevice) => "a device",
        _ => return Error::new(Op::Create, &task.source_path, ErrorKind::IsADirectory),
    };
    let mut error = Error::new(Op::Create, &task.source_path, ErrorKind::AlreadyExists);
    error.source = Some(std::io::Error::other(format!(
        "{what} stands there, which only mirror replaces; remove it first"
    )));
    error
}

fn wants_copy(decision: &Decision) -> bool {
    !matches!(decision, Decision::Keep(_) | Decision::Conflict)
}
