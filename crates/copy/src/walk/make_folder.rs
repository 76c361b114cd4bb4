//! Makes the folders of the target, or adopts those that an earlier run made.

use ropeway_plan::{MadeNode, Visibility};
use ropeway_vfs::{EndError, Error, ErrorKind, Metadata, Op, RelPath};

use crate::delete::clear::clear;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::journal::open::Journal;
use crate::journal::token::{Token, token_of};
use crate::place::folder::FolderInner;
use crate::place::mark::mark_folder;

/// Makes a folder under its present path. Returns whether it is new. A folder that an earlier
/// run left there is adopted if it surely belongs to this job, and removed otherwise.
pub(super) async fn make_folder(context: &Context, inner: &FolderInner) -> Result<bool, Error> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    let (path, token) = (&inner.path, token_of(inner.root.index, &inner.source_path));
    let make = || async move {
        let made = config.target.make_dir(path, 0o700).await;
        made.map_err(EndError::on_target)
    };
    let unseen = inner.visibility == Visibility::Hidden;
    if let Some(parent) = inner.parent.as_ref().filter(|_| inner.staging.is_some()) {
        mark_folder(report, context.journal.as_ref(), parent);
    }
    let made = with_retries(&config.options, report, token, make).await;
    let made = match made.map_err(|failed| failed.error) {
        Err(error) if error.kind == ErrorKind::AlreadyExists => {
            if may_adopt(config, report, context.journal.as_ref(), (inner, token)).await? {
                return Ok(false);
            }
            if !unseen {
                return Err(Error::new(Op::MakeDir, path, ErrorKind::NotADirectory));
            }
            clear(config, durability, report, path).await?;
            let made = with_retries(&config.options, report, token, make).await;
            made.map_err(|failed| failed.error)
        }
        made => made,
    };
    made?;
    if inner.staging.is_some()
        && config.own_user().is_some()
        && let Some(journal) = &context.journal
    {
        let found = config.target.metadata(path).await?;
        let made = MadeNode::of(&found, config.target.capabilities().stable_ids);
        report.journal_result(Some(journal.folder_made(token, made)));
    }
    Ok(true)
}

/// Whether this job may adopt what stands where it must make a folder.
async fn may_adopt(
    config: &JobConfig,
    report: &Report,
    journal: Option<&Journal>,
    (inner, token): (&FolderInner, Token),
) -> Result<bool, Error> {
    let look = || async {
        let found = config.target.metadata(&inner.path).await;
        found.map_err(EndError::on_target)
    };
    let found = with_retries(&config.options, report, token, look).await;
    let found = found.map_err(|failed| failed.error)?;
    if !found.is_dir() {
        return Ok(false);
    }
    let (Some(own), true) = (config.own_user(), inner.staging.is_some()) else {
        return Ok(true);
    };
    let made = journal.and_then(|journal| journal.memory().folder(token));
    let is_made = match (made, &inner.metadata) {
        (Some(made), Some(source)) => made.is(&found, source),
        _ => false,
    };
    // A folder that the journal lost is still private, since nothing in it was finished.
    let is_private = found.owner.is_some_and(|owner| owner.user == own)
        && found.mode.is_some_and(|mode| mode & 0o077 == 0);
    if !is_made && !is_private {
        return Ok(false);
    }
    // It may have its attributes already. Until it has its name, it belongs to this job alone.
    let change = ropeway_vfs::MetadataChange {
        mode: Some(0o700),
        ..Default::default()
    };
    // If this is refused, the first write reports it.
    let _ = config.target.set_metadata(&inner.path, &change).await;
    Ok(true)
}

/// Makes a folder writable for its owner. Its mode is set again at the end.
pub(super) async fn open_up(config: &JobConfig, path: &RelPath, existing: &Metadata) {
    let Some(mode) = existing.mode.filter(|mode| mode & 0o700 != 0o700) else {
        return;
    };
    if config.options.dry_run || !config.target.capabilities().modes {
        return;
    }
    let change = ropeway_vfs::MetadataChange {
        mode: Some(mode | 0o700),
        ..Default::default()
    };
    // If this is refused, the first write reports it.
    let _ = config.target.set_metadata(path, &change).await;
}
