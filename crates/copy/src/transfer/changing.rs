//! Handles files that change while they are read: reads them again a few times, then does what
//! `--changing` says.
//!
//! A copy of a file that changed in every try is *torn*: its beginning may be older than its end.
//! It gets its name only if nothing stood there, or an earlier torn copy. Its modification time
//! ([`TORN`]) is one that no later run takes for that of the source, not even with `--update`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_vfs::{End, EndError, Error, ErrorKind, File, Metadata, Op, RelPath, Timestamp};

use crate::durable::control::{DurabilityControl, WaitingName};
use crate::job::context::Context;
use crate::job::environment::Sizes;
use crate::job::options::Changing;
use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;
use crate::name::rename::rename;
use crate::place::destination::Destination;
use crate::place::task::FileTask;

/// The modification time of torn copies: 2 January 1980, which FAT can hold in every time zone, and
/// older than any source.
const TORN: Timestamp = Timestamp(315_619_200_000_000_000);
/// The coarsest granularity in use, that of FAT.
const TORN_GRAIN_NS: u64 = 2_000_000_000;

/// Pauses before a small file is read again.
const SMALL_PAUSES_MS: [u64; 4] = [10, 40, 160, 320];

/// The tries that a file has left.
pub(crate) struct Rereads {
    pauses_ms: std::slice::Iter<'static, u64>,
    /// Whether there is one more try in case only the attributes changed.
    attributes: bool,
}

impl Rereads {
    pub(crate) fn of(sizes: &Sizes, size: u64) -> Self {
        let pauses_ms = match size {
            _ if size <= sizes.reread_max => SMALL_PAUSES_MS.iter(),
            _ if size <= sizes.reread_once_max => [0].iter(),
            _ => [].iter(),
        };
        Self {
            pauses_ms,
            attributes: true,
        }
    }

    /// Whether to read the file again although perhaps only its attributes changed. `true` once,
    /// however large the file is.
    pub(crate) fn for_attributes(
        &mut self,
        report: &Report,
        durability: &DurabilityControl,
        task: &FileTask,
    ) -> bool {
        let left = std::mem::take(&mut self.attributes);
        if left {
            begin_again(report, durability, task);
        }
        left
    }

    /// Whether to read the file again. Waits before that.
    pub(crate) async fn next(
        &mut self,
        report: &Report,
        durability: &DurabilityControl,
        task: &FileTask,
    ) -> bool {
        let Some(pause_ms) = self.pauses_ms.next() else {
            return false;
        };
        begin_again(report, durability, task);
        report.sleep(Duration::from_millis(*pause_ms)).await
    }
}

/// Reports that a file is read again, and forgets the progress of the last try.
fn begin_again(report: &Report, durability: &DurabilityControl, task: &FileTask) {
    report.note(
        Some(&task.shown()),
        "changed while it was copied; copied once more",
    );
    durability.close(task.token());
}

/// Whether a node of the target is a torn copy, so that nothing good is lost with it.
fn is_torn(existing: &Metadata) -> bool {
    existing.modified.equal_within(TORN, TORN_GRAIN_NS)
}

/// Returns metadata by which what a try left under the final name counts as a torn copy.
pub(crate) fn as_torn(metadata: &Metadata) -> Metadata {
    Metadata {
        modified: TORN,
        ..metadata.clone()
    }
}

/// A file on the target whose last try was torn.
pub(crate) struct Torn<'a> {
    pub(crate) target: &'a Arc<dyn File>,
    /// Its present path.
    pub(crate) path: &'a RelPath,
    /// Whether that is its final path.
    pub(crate) direct: bool,
    pub(crate) size: u64,
    pub(crate) before: &'a Metadata,
}

impl<'a> Torn<'a> {
    /// Describes a file of `size` bytes at its destination, whose source was `before`.
    pub(crate) fn of(
        target: &'a Arc<dyn File>,
        destination: &'a Destination,
        size: u64,
        before: &'a Metadata,
    ) -> Self {
        Self {
            target,
            path: &destination.path,
            direct: destination.has_final_name(),
            size,
            before,
        }
    }
}

/// Ends the copy of a file that changed in every try, as `--changing` says. `Ok`: a torn copy is
/// kept and the failure is reported.
pub(crate) async fn end_torn(
    context: &Arc<Context>,
    task: &FileTask,
    torn: Torn<'_>,
) -> Result<(), EndError> {
    let changed = || Error::new(Op::Read, &task.source_path, ErrorKind::Changed);
    let replaces = task.existing.as_ref().is_some_and(|existing| !is_torn(existing));
    match context.config.options.changing {
        Changing::Copy if !replaces => {}
        Changing::Copy | Changing::Skip => return Err(EndError::on_source(changed())),
        Changing::Fail => {
            let message = format!("{} changed while it was copied", task.shown());
            context.fatal(Fatal::new(Status::SourceUnreadable, message).hint(
                "run it again when nobody writes there; --changing copy or skip goes on with the rest",
            ));
            return Err(EndError::on_source(changed()));
        }
    }
    keep(context, task, &torn).await.map_err(EndError::on_target)?;
    context.report.live.files_failed.fetch_add(1, Ordering::Relaxed);
    context.report.failures.torn();
    let mut error = changed();
    error.source = Some(std::io::Error::other(
        "changed while it was copied; what is there may be a mixture",
    ));
    context.fail(&task.shown(), error, End::Source).await;
    Ok(())
}

/// Gives a torn copy its length, attributes and name.
async fn keep(context: &Context, task: &FileTask, torn: &Torn<'_>) -> Result<(), Error> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    torn.target.set_len(torn.size).await?;
    let mut change = config.change_of_file(report, torn.before, None);
    change.modified = Some(TORN);
    let losses = torn
        .target
        .finish(&change, config.durability.flushes_each())
        .await?;
    report.lose(&losses);
    durability.close(task.token());
    if let Some(journal) = &context.journal {
        report.journal_result(Some(journal.closed(task.token())));
    }
    let (Some(from), false) = (torn.path.file_name(), torn.direct) else {
        durability.touch();
        return Ok(());
    };
    if config.durability.names_wait() {
        durability.postpone(WaitingName {
            folder: Arc::clone(&task.folder),
            from,
            to: task.name.clone(),
            replace: true,
            token: None,
            size: 0,
            shown: task.shown(),
        });
        return Ok(());
    }
    let to = task.folder.path().join(&task.name);
    rename(config, report, torn.path, &to, task.existing.as_ref()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::Kind;

    #[test]
    fn tries_are_bounded_by_size() {
        let sizes = Sizes::default();
        let tries = |size| Rereads::of(&sizes, size).pauses_ms.count();
        assert_eq!([0, sizes.reread_max, sizes.reread_max + 1].map(tries), [4, 4, 1]);
        assert_eq!(
            [sizes.reread_once_max, sizes.reread_once_max + 1].map(tries),
            [1, 0]
        );
    }

    #[test]
    fn a_torn_copy_is_known_whatever_the_grain() {
        let node = Metadata::bare(Kind::File, 5, Timestamp(0));
        assert!(is_torn(&as_torn(&node)) && !is_torn(&node));
        // FAT and SMB can store it.
        assert_eq!(TORN.0 % 2_000_000_000, 0);
    }
}
