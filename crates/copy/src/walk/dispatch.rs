//! What happens to one node of the walk: decided, counted as done, collected in a batch or handed to a task.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::Rules;
use ropeway_plan::decide::{Decision, KeepReason, decide};
use ropeway_vfs::{End, Error, ErrorKind, Kind, Metadata, Op};

use tokio::sync::Semaphore;

use super::{Stop, Visit, Walker};
use crate::compare;
use crate::context::Context;
use crate::crossing;
use crate::file::{self, FileTask};
use crate::folder::Placement;
use crate::journal::Journal;
use crate::links::{self, Claim, Links};
use crate::small::{self, BATCH_BYTES, BATCH_FILES};
use crate::special;
use crate::status::{Fatal, Status};

impl Walker<'_> {
    /// The rules in a folder. One that nobody has seen yet holds only what earlier runs of this job left, perhaps half
    /// written: `--update` and `--ignore-existing` protect nothing in it.
    fn rules_in(&self, placement: Placement) -> Rules {
        match placement {
            Placement::Temporary => self.rules,
            Placement::Direct => Rules {
                update: false,
                ignore_existing: false,
                replace_special: true,
                ..self.rules
            },
        }
    }

    /// Decides on one node and hands it out, or collects it in the batch.
    pub(super) async fn node(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if task.metadata.is_dir() {
            return self.folder_node(task);
        }
        let decision = self.decide(&mut task).await;
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

    /// What is to be done with a node that is no folder, by the metadata of both ends and by what the journal knows.
    async fn decide(&self, task: &mut FileTask) -> Decision {
        let context = self.context;
        let has_links = |node: &Metadata| node.kind == Kind::File && node.links > 1;
        if has_links(&task.metadata) || task.existing.as_ref().is_some_and(has_links) {
            context.journalled(context.journal.as_ref().map(Journal::links));
        }
        let mut decision = decide(
            &task.metadata,
            task.existing.as_ref(),
            &self.rules_in(task.folder.placement()),
            &context.options.preserve,
            context.target.capabilities(),
        );
        let looks_equal = matches!(
            decision,
            Decision::Skip | Decision::AttributesOnly | Decision::CompareContent
        );
        // Where it is replaced all the same, by a link, it is no other version.
        task.existing_is_own = matches!(decision, Decision::Skip | Decision::AttributesOnly);
        // So is what a repair replaces, or a run with --force that goes on with an earlier one.
        let resumes = context
            .journal
            .as_ref()
            .is_some_and(|journal| journal.memory().resumed());
        let is_repeated = self.root.is_repair || (context.options.force && resumes);
        task.existing_is_own |= is_repeated && self.has_same_time(task);
        // To compare what cannot be trusted would read the page cache, not the device.
        let is_unseen = task.folder.placement() == Placement::Direct;
        if looks_equal && !self.is_trusted(task) {
            // It may lack data, and may have replaced the version that a backup keeps.
            task.existing_is_own = self.has_same_time(task);
            decision = Decision::Replace;
        } else if looks_equal && self.may_be_unfinished(task) {
            task.existing_is_own = true;
            decision = Decision::Replace;
        } else if looks_equal && is_unseen && self.changed_since(task) {
            decision = Decision::Replace;
        } else if looks_equal
            && context.options.move_source
            && task.metadata.kind == Kind::File
            && self.changed_since(task)
        {
            // What only looks equal is not removed.
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
        let is_staged = task.folder.placement() == Placement::Temporary && !context.options.dry_run;
        if decision == Decision::Conflict && context.options.delete.is_some() && is_staged {
            // The folder in the way goes when the copy is complete.
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

    /// Whether a file that looks equal is really there (an unfinished run before a power cut may have left holes).
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
        let changed = self.context.change_time(existing);
        // A server flushes each file before it is given its attributes.
        let unseen =
            task.folder.placement() == Placement::Direct && self.context.target.capabilities().page_cache;
        match self.context.wants_durable() {
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

    /// Whether a file of the source's size and time may be one that an earlier run did not write to its end: the source
    /// changed about when that run wrote. Elsewhere files get their names when they are whole.
    fn may_be_unfinished(&self, task: &FileTask) -> bool {
        let is_written_there = task.folder.placement() == Placement::Direct || self.context.options.inplace;
        let (Some(journal), Some(existing)) = (&self.context.journal, &task.existing) else {
            return false;
        };
        task.metadata.kind == Kind::File
            && is_written_there
            && self.has_same_time(task)
            && journal.may_be_unfinished(existing, self.rules.granularity.granularity_ns)
    }

    /// Whether the source was changed after the target's file was: size and time may be those of another version. The
    /// clocks of two machines cannot tell.
    fn changed_since(&self, task: &FileTask) -> bool {
        let source = task.folder.root().root.source.capabilities();
        let comparable = source.page_cache && self.context.target.capabilities().page_cache;
        let copied = task.existing.as_ref().and_then(|existing| existing.changed);
        comparable && copied.is_some() && task.metadata.changed > copied
    }

    /// Whether the source's attributes changed after the copy was made: extended attributes and ACLs show in no other
    /// field, and reading them of every equal file would cost a call on each side.
    fn attributes_aged(&self, task: &FileTask) -> bool {
        let target = self.context.target.capabilities();
        target.xattrs && self.context.options.preserve.xattrs && self.changed_since(task)
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
                self.context.failures.not_held();
                file::give_up(self.context, task, &error).await;
                self.context.fail(&task.shown(), error, End::Target).await;
            }
            KeepReason::Unsupported => self.pass_over(task, "a socket cannot be copied; skipped").await,
            KeepReason::Device => {
                self.pass_over(task, "a device; skipped (--devices copies it)")
                    .await;
            }
            KeepReason::Exists | KeepReason::Newer => {
                self.context.item(&task.shown(), "skip", task.metadata.size);
                special::skipped(self.context, task).await;
            }
        }
    }

    /// Leaves a node of the source out: said and counted, and no error.
    async fn pass_over(&self, task: &FileTask, why: &'static str) {
        let error = Error::new(Op::Create, &task.source_path, ErrorKind::Unsupported);
        file::give_up(self.context, task, &error).await;
        self.context.note(Some(&task.shown()), why);
        self.context.live.files_done.fetch_add(1, Ordering::AcqRel);
        self.context.live.files_skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// A folder stands where a file must be, or a FIFO, socket or device.
    async fn conflict(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if context.options.delete.is_none() {
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            let error = in_the_way(&task);
            file::give_up(context, &task, &error).await;
            return context.fail(&task.shown(), error, End::Target).await;
        }
        // In a dry run this lists what would go. In a folder under a temporary name it is of an earlier run.
        let path = task.folder.path().join(&task.name);
        if let Err(error) = crate::delete::make_way(context, &self.root, &path).await {
            file::give_up(context, &task, &error).await;
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
        if task.is_blocked() || !small::fits(self.context, &task) {
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
        let (work, context) = (work(Arc::clone(self.context)), Arc::clone(self.context));
        tokio::spawn(async move {
            let guard = PanicGuard(context);
            work.await;
            drop(guard);
            drop(permit);
        });
    }
}

/// Ends the job when a task of it panics: its nodes are neither done nor reported.
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

/// The error of a node that is not replaced unasked.
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

/// Whether the target's file has names that are other files of the source: new attributes would be theirs, too, and the next
/// run would set them back.
pub(crate) async fn shares_more(context: &Context, task: &FileTask) -> bool {
    let Some(existing) = task.existing.as_ref().filter(|existing| existing.links > 1) else {
        return false;
    };
    let expected = match context.options.hard_links {
        true => task.metadata.links,
        false => 1,
    };
    let path = task.folder.path().join(&task.name);
    // Looked at again: this run may have linked names to it since.
    let links = match context.target.metadata(&path).await {
        Ok(now) => now.links,
        Err(_) => existing.links,
    };
    links > expected
}

fn wants_copy(decision: &Decision) -> bool {
    !matches!(decision, Decision::Keep(_) | Decision::Conflict)
}
