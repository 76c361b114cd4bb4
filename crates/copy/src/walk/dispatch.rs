//! What happens to one node of the walk: decided, counted as done, collected in a batch or handed to a task.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::decide::{Decision, KeepReason, decide};
use ropeway_vfs::{Error, ErrorKind, Kind, Op};

use tokio::sync::Semaphore;

use super::{Stop, Visit, Walker};
use crate::compare;
use crate::context::Context;
use crate::crossing;
use crate::file::{self, FileTask};
use crate::links::{self, Claim, Links};
use crate::small::{self, BATCH_BYTES, BATCH_FILES};
use crate::special;

impl Walker<'_> {
    /// Decides on one node and hands it out, or collects it in the batch.
    pub(super) async fn node(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if task.metadata.is_dir() {
            return self.folder_node(task).await;
        }
        let mut decision = decide(
            &task.metadata,
            task.existing.as_ref(),
            &self.root.rules,
            &context.options.preserve,
            context.target.capabilities(),
        );
        if matches!(decision, Decision::Skip | Decision::AttributesOnly) && !self.is_trusted(&task) {
            decision = Decision::Replace;
        }
        if decision == Decision::Skip && self.attributes_aged(&task) {
            decision = Decision::AttributesOnly;
        }
        if let Some(id) = Links::concerns(context, &task.metadata).filter(|_| wants_copy(&decision)) {
            task.link = Some(id);
            match context.links.claim(id, task) {
                Claim::First(first) => task = first,
                Claim::Waits => return,
                Claim::Link(task, target) => return links::link(context, task, target).await,
            }
        }
        if task.metadata.kind != Kind::File && !matches!(decision, Decision::Keep(_) | Decision::Conflict) {
            return self.spawn_special(task).await;
        }
        match decision {
            Decision::Create | Decision::Replace => self.hand_out(task, batch).await,
            Decision::CompareContent => self.spawn_compare(task).await,
            Decision::Skip => {
                context.item(&task.shown(), "skip", task.metadata.size);
                self.settled(&task).await;
            }
            Decision::AttributesOnly => {
                if context.options.dry_run {
                    context.item(&task.shown(), "attributes", 0);
                    return self.settled(&task).await;
                }
                let link = task.link;
                let (folder, name) = (Arc::clone(&task.folder), task.name.clone());
                special::update_attributes(context, task).await;
                if let Some(id) = link {
                    links::complete(context, id, &folder, &name).await;
                }
            }
            Decision::Keep(reason) => self.keep(&task, reason).await,
            Decision::Conflict => self.conflict(task, batch).await,
        }
    }

    async fn folder_node(&mut self, task: FileTask) {
        let existing = task.existing.clone();
        if existing.as_ref().is_some_and(|existing| !existing.is_dir())
            && self.context.options.delete.is_some()
        {
            // A mirror replaces what stands in the way; a rename over it is impossible for a folder.
            let path = task.folder.path().join(&task.name);
            if let Err(error) = crate::delete::make_way(self.context, &self.root, &path).await {
                return self.context.fail(&task.shown(), error, false).await;
            }
            let FileTask {
                folder,
                source_path,
                name,
                metadata,
                ..
            } = task;
            self.visits.push(Stop::Enter(Box::new(Visit {
                parent: folder,
                source_path,
                name,
                metadata,
                existing: None,
            })));
            return;
        }
        let FileTask {
            folder,
            source_path,
            name,
            metadata,
            existing,
            ..
        } = task;
        self.visits.push(Stop::Enter(Box::new(Visit {
            parent: folder,
            source_path,
            name,
            metadata,
            existing,
        })));
    }

    /// Whether a file that looks equal is really there (an unfinished run before a power cut may have left holes).
    fn is_trusted(&self, task: &FileTask) -> bool {
        let Some(journal) = &self.context.journal else {
            return true;
        };
        let (memory, existing) = (journal.memory(), task.existing.as_ref());
        if !memory.resumed() || task.metadata.kind != Kind::File {
            return true;
        }
        let fine = self.context.target.capabilities().time_granularity_ns < 1_000_000_000;
        memory.trust_whole(
            existing.and_then(|existing| existing.changed).filter(|_| fine),
            journal.boot(),
        )
    }

    /// Whether the source's attributes changed after the copy was made: extended attributes and ACLs show in no other
    /// field, and reading them of every equal file would cost a call on each side.
    fn attributes_aged(&self, task: &FileTask) -> bool {
        let source = task.folder.root().root.source.capabilities();
        let target = self.context.target.capabilities();
        let comparable = source.page_cache && target.page_cache && target.xattrs;
        let copied = task.existing.as_ref().and_then(|existing| existing.changed);
        comparable
            && self.context.options.preserve.xattrs
            && copied.is_some()
            && task.metadata.changed > copied
    }

    async fn settled(&self, task: &FileTask) {
        self.context.arrivals.add(task.token(), &task.metadata);
        special::skipped(self.context, task).await;
        if let Some(id) = task.link {
            links::complete(self.context, id, &task.folder, &task.name).await;
        }
    }

    async fn keep(&self, task: &FileTask, reason: KeepReason) {
        match reason {
            KeepReason::Unsupported if task.metadata.kind != Kind::Socket => {
                self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
                let op = if task.metadata.kind == Kind::Symlink {
                    Op::Link
                } else {
                    Op::Create
                };
                let error = Error::new(op, &task.source_path, ErrorKind::Unsupported);
                self.context.fail(&task.shown(), error, false).await;
            }
            KeepReason::Unsupported => {
                self.context
                    .note(Some(&task.shown()), "a socket cannot be copied; skipped");
                self.context.live.files_done.fetch_add(1, Ordering::AcqRel);
                self.context.live.files_skipped.fetch_add(1, Ordering::Relaxed);
            }
            KeepReason::Exists | KeepReason::Newer => {
                self.context.item(&task.shown(), "skip", task.metadata.size);
                special::skipped(self.context, task).await;
            }
        }
    }

    /// A folder stands where a file must be.
    async fn conflict(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if context.options.delete.is_none() {
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            let error = Error::new(Op::Create, &task.source_path, ErrorKind::IsADirectory);
            return context.fail(&task.shown(), error, false).await;
        }
        let path = task.folder.path().join(&task.name);
        if let Err(error) = crate::delete::make_way(context, &self.root, &path).await {
            return context.fail(&task.shown(), error, false).await;
        }
        task.existing = None;
        if task.metadata.kind == Kind::File {
            self.hand_out(task, batch).await;
        } else {
            self.spawn_special(task).await;
        }
    }

    async fn hand_out(&self, task: FileTask, batch: &mut Vec<FileTask>) {
        if self.context.options.dry_run {
            let action = if task.existing.is_some() { "update" } else { "copy" };
            self.context.item(&task.shown(), action, task.metadata.size);
            self.context.live.files_done.fetch_add(1, Ordering::AcqRel);
            self.context
                .live
                .bytes_done
                .fetch_add(task.metadata.size, Ordering::AcqRel);
            return;
        }
        if !small::fits(self.context, &task) {
            return self.spawn_stream(task).await;
        }
        if let Some(crossing) = &self.context.crossing {
            let permits = Arc::clone(crossing.permits());
            return self
                .spawn(&permits, move |context| async move {
                    crossing::copy(&context, task).await;
                })
                .await;
        }
        batch.push(task);
        let bytes: u64 = batch.iter().map(|task| task.metadata.size).sum();
        if batch.len() >= BATCH_FILES || bytes >= BATCH_BYTES {
            self.flush(batch).await;
        }
    }

    pub(super) async fn flush(&self, batch: &mut Vec<FileTask>) {
        let Some(folder) = batch.first().map(|task| Arc::clone(&task.folder)) else {
            return;
        };
        let tasks = std::mem::take(batch);
        self.spawn(&self.context.batches, move |context| async move {
            small::copy_batch(&context, &folder, tasks).await;
        })
        .await;
    }

    async fn spawn_stream(&self, task: FileTask) {
        self.spawn(&self.context.streams, move |context| async move {
            file::copy(&context, task).await
        })
        .await;
    }

    async fn spawn_special(&self, task: FileTask) {
        self.spawn(&self.context.batches, move |context| async move {
            special::copy(&context, task).await
        })
        .await;
    }

    /// `--checksum`: reads both sides and copies if they differ.
    async fn spawn_compare(&self, task: FileTask) {
        self.spawn(&self.context.streams, move |context| async move {
            compare::compare(&context, task).await
        })
        .await;
    }

    /// Waits for one of `permits` and runs `work` with it in a task of its own.
    async fn spawn<F>(&self, permits: &Arc<Semaphore>, work: impl FnOnce(Arc<Context>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Permits are never closed; if they were, the job would be over.
        let Ok(permit) = Arc::clone(permits).acquire_owned().await else {
            return;
        };
        let work = work(Arc::clone(self.context));
        tokio::spawn(async move {
            work.await;
            drop(permit);
        });
    }
}

fn wants_copy(decision: &Decision) -> bool {
    !matches!(decision, Decision::Keep(_) | Decision::Conflict)
}
