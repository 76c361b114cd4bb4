//! Finishes folders of the target when they are full.
//!
//! The finisher sets the attributes of a folder (times last, so that nothing below changes them any
//! more), names it if it has a temporary name, and releases its parent. So folders finish from the
//! leaves up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_vfs::{End, EndError, Error, ErrorKind, Loss, MetadataChange, Name, Op, RelPath, Verdict, Xattr};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::durable::control::{DurabilityControl, WaitingName};
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::journal::token::token_of;
use crate::name::folder::{name_folder, record_named};
use crate::place::folder::{Folder, FolderInner};
use crate::sweep::temporaries::Temporaries;

/// Finishes folders as they are released, until every sender is gone. The channel is unbounded, but
/// holds no more than the folders that are being filled.
pub(crate) async fn run_finisher(context: Arc<Context>, mut folders: mpsc::UnboundedReceiver<FolderInner>) {
    let at_once = if context.resources.needs_many_calls() {
        FINISHED_AT_ONCE
    } else {
        1
    };
    let mut running = JoinSet::new();
    while let Some(folder) = folders.recv().await {
        while running.len() >= at_once {
            running.join_next().await;
        }
        let context = Arc::clone(&context);
        running.spawn(async move { finish(&context, folder).await }.in_current_span());
    }
    while running.join_next().await.is_some() {}
}

/// Number of folders finished at once if each takes two round trips. The order does not depend on
/// it: a folder is sent only after everything in it.
const FINISHED_AT_ONCE: usize = 64;

#[tracing::instrument(name = "folder", level = "debug", skip_all, fields(path = %folder.shown))]
async fn finish(context: &Arc<Context>, mut folder: FolderInner) {
    // Not the folder that the copy goes into.
    let is_counted = folder.metadata.is_some();
    if !context.stopped() && !context.config.options.dry_run {
        let (change, has_all) = change_of(&context.config, &context.report, &mut folder).await;
        // After a failure something may have been made and removed again.
        let is_undisturbed = has_all && context.report.failures.items() == 0;
        let change = match change {
            Some(change) if is_undisturbed && folder.is_still_equal() => {
                let is_equal = has_xattrs(&context.config, &folder, &change).await;
                (!is_equal).then_some(change)
            }
            change => change,
        };
        let was_staged = folder.staging.is_some();
        let staging = take_staging(&context.temporaries, &mut folder);
        if was_staged && staging.is_none() {
            let mut error = Error::new(Op::Rename, &folder.shown, ErrorKind::NotEmpty);
            let why = "it keeps its temporary name, since what a failure left in it cannot be removed; run the same command again";
            error.source = Some(std::io::Error::other(why));
            context.fail(&folder.shown, error, End::Target).await;
        }
        let is_set = match (change, staging) {
            (Some(change), Some(((_, to), parent))) if !context.config.durability.names_wait() => {
                finish_named(context, &folder, &change, (&parent, &to)).await
            }
            (change, staging) => {
                let mut is_set = false;
                if let Some(change) = change {
                    let set = set_attributes(&context.config, &context.report, &folder.path, &change).await;
                    is_set =
                        report_attributes(&context.report, &context.durability, &folder.shown, set).await;
                }
                if let Some(((from, to), parent)) = staging {
                    name(context, &parent, from, to).await;
                }
                is_set
            }
        };
        if is_set && has_all {
            let token = token_of(folder.root.index, &folder.source_path);
            context.copied_nodes.add_folder(token);
        }
    }
    let counted = u64::from(is_counted);
    context
        .report
        .live
        .directories
        .fetch_add(counted, Ordering::Relaxed);
    drop(folder.parent.take());
    if let Some(done) = folder.done.take() {
        let _ = done.send(());
    }
}

/// Takes the temporary and the final name of a folder, and its parent. Returns `None` if the folder
/// has its final name, or must keep the temporary one because it is doubtful.
fn take_staging(temporaries: &Temporaries, folder: &mut FolderInner) -> Option<((Name, Name), Arc<Folder>)> {
    let staging = folder.staging.take().zip(folder.parent.clone());
    if !folder.is_doubtful.load(Ordering::Acquire) {
        return staging;
    }
    match (&staging, &folder.parent) {
        (Some(_), _) => temporaries.must_stay(),
        (None, Some(parent)) => parent.doubt(),
        (None, None) => {}
    }
    None
}

/// Returns the attributes that a folder gets from its source, and whether all of them could be read.
async fn change_of(
    config: &JobConfig,
    report: &Report,
    folder: &mut FolderInner,
) -> (Option<MetadataChange>, bool) {
    let Some(metadata) = folder.metadata.take() else {
        return (None, false);
    };
    let mut has_all = true;
    let early = match folder.xattrs.take() {
        Some(early) => early.answer().await,
        None => None,
    };
    let xattrs = if early.is_some() {
        early
    } else if config.wants_xattrs(&*folder.root.root.source, &metadata) {
        match folder.root.root.source.xattrs(&folder.source_path).await {
            Ok(xattrs) => Some(xattrs),
            Err(error) => {
                report
                    .fail(&folder.root.shown(&folder.source_path), error, End::Source)
                    .await;
                has_all = false;
                None
            }
        }
    } else {
        None
    };
    // Servers give a new folder no extended attributes. Asking for them would cost a round trip.
    let is_new = folder.existing.is_none() && config.target.capabilities().remote;
    let xattrs = xattrs.filter(|xattrs| !is_new || !xattrs.is_empty());
    let mut change = config.change_of(report, &metadata, xattrs);
    if !has_all {
        // The next run must see that something is missing.
        change.modified = None;
    }
    if change.mode.is_none() && folder.existing.is_none() && config.target.capabilities().modes {
        change.mode = Some(0o755);
    }
    (Some(change), has_all)
}

/// Whether a folder of the target has just the extended attributes that it is to get. No listing shows them.
async fn has_xattrs(config: &JobConfig, folder: &FolderInner, change: &MetadataChange) -> bool {
    let Some(wanted) = &change.xattrs else {
        return true;
    };
    if !config.target.capabilities().takes_xattrs() {
        return true;
    }
    let has_none = folder.existing.as_ref().and_then(|existing| existing.has_xattrs) == Some(false);
    if has_none && wanted.is_empty() {
        return true;
    }
    let present = config.target.xattrs(&folder.path).await;
    present.is_ok_and(|present| {
        let is_wanted = |xattr: &Xattr| wanted.contains(xattr);
        present.len() == wanted.len() && present.iter().all(is_wanted)
    })
}

/// Sets the attributes of a folder. Tries again after an error that may pass.
async fn set_attributes(
    config: &JobConfig,
    report: &Report,
    path: &RelPath,
    change: &MetadataChange,
) -> Result<Vec<Loss>, Error> {
    let attempt = || async {
        let set = config.target.set_metadata(path, change).await;
        set.map_err(EndError::on_target)
    };
    let set = with_retries(&config.options, report, token_of(0, path), attempt).await;
    set.map_err(|failed| failed.error)
}

/// Reports the result of setting the attributes of a folder. Returns whether they are set.
async fn report_attributes(
    report: &Report,
    durability: &DurabilityControl,
    shown: &RelPath,
    set: Result<Vec<Loss>, Error>,
) -> bool {
    let is_set = set.is_ok();
    match set {
        Ok(losses) => report.lose(&losses),
        Err(error) => report.fail(shown, error, End::Target).await,
    }
    durability.touch();
    is_set
}

/// Sets the attributes and the final name at once. Returns whether the attributes are set.
async fn finish_named(
    context: &Arc<Context>,
    folder: &FolderInner,
    change: &MetadataChange,
    (parent, to): (&Folder, &Name),
) -> bool {
    let (config, report, journal) = (&context.config, &context.report, context.journal.as_ref());
    let path = parent.path().join(to);
    let (set, named) = config.target.finish_dir(&folder.path, change, &path).await;
    let may_pass = |error: &Error| error.verdict() == Verdict::Retry;
    let named = match named {
        Err(error) if may_pass(&error) || error.kind == ErrorKind::AlreadyExists => {
            name_folder(context, &folder.root, &folder.path, &path).await
        }
        named => named,
    };
    let set = match set {
        Err(error) if may_pass(&error) && named.is_ok() => {
            set_attributes(config, report, &path, change).await
        }
        set => set,
    };
    let is_set = report_attributes(report, &context.durability, &folder.shown, set).await;
    match (named, folder.path.file_name()) {
        (Ok(()), Some(from)) => record_named(config, report, journal, &from),
        (Ok(()), None) => {}
        (Err(error), _) => report.fail(&parent.shown(to), error, End::Target).await,
    }
    is_set
}

/// Gives a full folder its final name, or lets the name wait for the next checkpoint.
async fn name(context: &Arc<Context>, parent: &Arc<Folder>, from: Name, to: Name) {
    let shown = parent.shown(&to);
    let rename = WaitingName {
        folder: Arc::clone(parent),
        from,
        to,
        replace: false,
        token: None,
        size: 0,
        shown,
    };
    if context.config.durability.names_wait() {
        context.durability.postpone(rename);
        return;
    }
    let dir = parent.path();
    let (from, to) = (dir.join(&rename.from), dir.join(&rename.to));
    match name_folder(context, parent.root(), &from, &to).await {
        Ok(()) => {
            let journal = context.journal.as_ref();
            record_named(&context.config, &context.report, journal, &rename.from);
        }
        Err(error) => context.fail(&rename.shown, error, End::Target).await,
    }
}
