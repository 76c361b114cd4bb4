//! Decides on one node of the walk: count it as done, collect it in a batch, or give it to a task.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::decide::{Decision, KeepReason, decide};
use ropeway_plan::{Rules, Visibility};
use ropeway_vfs::{End, EndError, Error, ErrorKind, Kind, Metadata, Op};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::delete::remove::make_way;
use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};
use crate::journal::open::Journal;
use crate::place::give_up::{fail_file, give_up};
use crate::place::shares::shares_more;
use crate::place::task::FileTask;
use crate::transfer::batch::{BATCH_BYTES, BATCH_FILES, copy_batch};
use crate::transfer::compare::compare_file;
use crate::transfer::link_table::Claim;
use crate::transfer::links::{complete_links, make_link, shared_file};
use crate::transfer::node::{copy_file, copy_special};
use crate::transfer::small::takes_short_path;
use crate::transfer::small_files::copy_small_file;
use crate::transfer::special::{count_skipped, update_attributes};
use crate::walk::walker::{Stop, Visit, Walker};

impl Walker<'_> {
    /// Returns the rules for a folder. A hidden folder holds only what earlier runs of this job
    /// left, perhaps half written. So `--update` and `--ignore-existing` protect nothing in it.
    fn rules_in(&self, visibility: Visibility) -> Rules {
        match visibility {
            Visibility::Visible => self.rules,
            Visibility::Hidden => Rules {
                update: false,
                ignore_existing: false,
                replace_special: true,
                ..self.rules
            },
        }
    }

    /// Decides on one node, and starts its copy or collects it in the batch.
    pub(super) async fn node(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if task.metadata.is_dir() {
            return self.folder_node(task);
        }
        let decision = self.decide(&mut task).await;
        if let Some(id) = shared_file(context, &task.metadata).filter(|_| wants_copy(&decision)) {
            task.link = Some(id);
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
            Decision::Create | Decision::Replace => self.hand_out(task, batch).await,
            Decision::CompareContent => self.spawn_compare(task).await,
            Decision::Skip => {
                context.report.item(&task.shown(), "skip", task.metadata.size);
                self.settled(&task).await;
            }
            Decision::AttributesOnly => {
                if context.config.options.dry_run {
                    context.report.item(&task.shown(), "attributes", 0);
                    return self.settled(&task).await;
                }
                let link = task.link;
                let (folder, name) = (Arc::clone(&task.folder), task.name.clone());
                update_attributes(context, task).await;
                if let Some(id) = link {
                    complete_links(context, id, &folder, &name).await;
                }
            }
            Decision::Keep(reason) => self.keep(&task, reason).await,
            Decision::Conflict => self.conflict(task, batch).await,
        }
    }

    /// Decides on a node that is no folder, from the metadata of both ends and the journal.
    async fn decide(&self, task: &mut FileTask) -> Decision {
        let context = self.context;
        let has_links = |node: &Metadata| node.kind == Kind::File && node.links > 1;
        if has_links(&task.metadata) || task.existing.as_ref().is_some_and(has_links) {
            context.journalled(context.journal.as_ref().map(Journal::links));
        }
        let mut decision = decide(
            &task.metadata,
            task.existing.as_ref(),
            &self.rules_in(task.folder.visibility()),
            &context.config.options.preserve,
            context.config.target.capabilities(),
        );
        let looks_equal = matches!(
            decision,
            Decision::Skip | Decision::AttributesOnly | Decision::CompareContent
        );
        // If a link replaces it all the same, it was no other version.
        task.existing_is_own = matches!(decision, Decision::Skip | Decision::AttributesOnly);
        // The same holds for what a repair replaces, and for what a run with --force replaces if it
        // continues an earlier one.
        let resumes = context
            .journal
            .as_ref()
            .is_some_and(|journal| journal.memory().resumed());
        let is_repeated = self.root.is_repair || (context.config.options.force && resumes);
        task.existing_is_own |= is_repeated && self.has_same_time(task);
        // A comparison would read the page cache, not the device.
        let is_unseen = task.folder.visibility() == Visibility::Hidden;
        if looks_equal && !self.is_trusted(task) {
            // It may lack data, and it may have replaced the version that a backup keeps.
            task.existing_is_own = self.has_same_time(task);
            decision = Decision::Replace;
        } else if looks_equal && self.may_be_unfinished(task) {
            task.existing_is_own = true;
            decision = Decision::Replace;
        } else if looks_equal && is_unseen && self.changed_since(task) {
            decision = Decision::Replace;
        } else if looks_equal
            && context.config.options.move_source
            && task.metadata.kind == Kind::File
            && self.changed_since(task)
        {
            // A move must not remove a file that only looks equal.
            decision = Decision::CompareContent;
        } else if !looks_equal && self.has_same_time(task) && !self.is_trusted(task) {
            // A power cut took a part of an earlier copy.
            task.existing_is_own = true;
        }
        if decision == Decision::AttributesOnly && shares_more(context, task).await {
            decision = Decision::Replace;
        }
        if decision == Decision::Skip && self.attributes_aged(task) {
            decision = Decision::AttributesOnly;
        }
        let is_staged = task.folder.visibility() == Visibility::Visible && !context.config.options.dry_run;
        if decision == Decision::Conflict && context.config.options.delete.is_some() && is_staged {
            // The folder in the way is removed when the copy is complete.
            decision = Decision::Replace;
        }
        decision
    }

    pub(super) fn folder_node(&mut self, task: FileTask) {
        let FileTask {
            folder,
            source_path,
            name,
            metadata,
            existing,
            ..
        } = task;
        match self.backlog.hold(&source_path) {
            Ok(held) => self.visits.push(Stop::Enter(Box::new(Visit {
                parent: folder,
                source_path,
                name,
                metadata,
                existing,
                _held: held,
            }))),
            Err(error) => self.overflow = Some(error),
        }
    }

    /// Whether a file that looks equal has all its data. A run that was interrupted before a power
    /// cut may have left holes.
    fn is_trusted(&self, task: &FileTask) -> bool {
        let Some(journal) = &self.context.journal else {
            return true;
        };
        let Some(existing) = task
            .existing
            .as_ref()
            .filter(|_| task.metadata.kind == Kind::File)
        else {
            return true;
        };
        let changed = self.context.config.change_time(existing);
        // A server flushes each file before the file gets its attributes.
        let unseen = task.folder.visibility() == Visibility::Hidden
            && self.context.config.target.capabilities().page_cache;
        match self.context.config.durability.wants_durable() {
            true => journal.trusts_device(changed, unseen),
            false => journal.trusts(changed, unseen),
        }
    }

    fn has_same_time(&self, task: &FileTask) -> bool {
        let existing = task.existing.as_ref();
        existing.is_some_and(|existing| {
            self.rules
                .granularity
                .equal(task.metadata.modified, existing.modified)
        })
    }

    /// Whether a file with the source's size and time may be unfinished: an earlier run wrote it in
    /// place or in a hidden folder, at about the time at which the source changed. Elsewhere files
    /// get their names when they are complete.
    fn may_be_unfinished(&self, task: &FileTask) -> bool {
        let is_written_there =
            task.folder.visibility() == Visibility::Hidden || self.context.config.options.inplace;
        let (Some(journal), Some(existing)) = (&self.context.journal, &task.existing) else {
            return false;
        };
        task.metadata.kind == Kind::File
            && is_written_there
            && self.has_same_time(task)
            && journal.may_be_unfinished(existing, self.rules.granularity.granularity_ns)
    }

    /// Whether the source was changed after the file of the target. Size and time may then be those
    /// of another version. The clocks of two machines cannot tell.
    fn changed_since(&self, task: &FileTask) -> bool {
        let source = task.folder.root().root.source.capabilities();
        let comparable = source.page_cache && self.context.config.target.capabilities().page_cache;
        let copied = task.existing.as_ref().and_then(|existing| existing.changed);
        comparable && copied.is_some() && task.metadata.changed > copied
    }

    /// Whether the source's attributes changed after the copy was made. Extended attributes and
    /// ACLs show in no other field, and reading them for every equal file would cost a call on each
    /// side.
    fn attributes_aged(&self, task: &FileTask) -> bool {
        let target = self.context.config.target.capabilities();
        target.xattrs && self.context.config.options.preserve.xattrs && self.changed_since(task)
    }

    async fn settled(&self, task: &FileTask) {
        self.context.copied_nodes.add(task.token(), &task.metadata);
        count_skipped(self.context, task).await;
        if let Some(id) = task.link {
            complete_links(self.context, id, &task.folder, &task.name).await;
        }
    }

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
            KeepReason::Unsupported => self.pass_over(task, "a socket cannot be copied; skipped").await,
            KeepReason::Device => {
                self.pass_over(task, "a device; skipped (--devices copies it)")
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
    async fn pass_over(&self, task: &FileTask, why: &'static str) {
        let error = Error::new(Op::Create, &task.source_path, ErrorKind::Unsupported);
        give_up(self.context, task, &error).await;
        self.context.report.note(Some(&task.shown()), why);
        self.context.report.live.files_done.fetch_add(1, Ordering::AcqRel);
        self.context
            .report
            .live
            .files_skipped
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Handles a folder, FIFO, socket or device that stands where a file must go.
    async fn conflict(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if context.config.options.delete.is_none() {
            return fail_file(context, &task, EndError::on_target(in_the_way(&task))).await;
        }
        // In a dry run this only reports. In a hidden folder it removes what an earlier run left.
        let path = task.folder.path().join(&task.name);
        if let Err(error) = make_way(context, &self.root, &path).await {
            give_up(context, &task, &error).await;
            return context.fail(&task.shown(), error, End::Target).await;
        }
        task.existing = None;
        if task.metadata.kind == Kind::File {
            self.hand_out(task, batch).await;
        } else {
            self.spawn_special(task).await;
        }
    }

    async fn hand_out(&self, task: FileTask, batch: &mut Vec<FileTask>) {
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
        if task.is_blocked() || !takes_short_path(self.context, &task) {
            return self.spawn_stream(task).await;
        }
        if let Some(small_files) = &self.context.resources.small_files {
            let permits = Arc::clone(small_files.permits());
            return self
                .spawn(&permits, move |context| async move {
                    copy_small_file(&context, task).await;
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
        let (work, context) = (work(Arc::clone(self.context)), Arc::clone(self.context));
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
