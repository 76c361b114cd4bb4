//! Renames nodes of the target, also if the reply of the server is lost.

use ropeway_vfs::{EndError, Error, ErrorKind, Metadata, RelPath, Tree, Verdict};

use crate::job::config::JobConfig;
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::journal::token::token_of;

/// Renames a node. If the connection is lost, the call may have been carried out all the same: then
/// nothing is left at `from`, which is a name of this job, and something new is at `to`. `replaced`
/// is what stood at `to` before; if it is still there, nothing was renamed.
#[tracing::instrument(name = "rename", level = "debug", skip_all, fields(to = %to))]
pub(crate) async fn rename(
    target: &dyn Tree,
    from: &RelPath,
    to: &RelPath,
    replace: bool,
    replaced: Option<&Metadata>,
) -> Result<(), Error> {
    let is_open = |error: &Error| error.verdict() == Verdict::Retry || error.kind == ErrorKind::NotFound;
    match target.rename(from, to, replace).await {
        Err(error) if is_open(&error) && was_renamed(target, from, to, replaced).await => Ok(()),
        renamed => renamed,
    }
}

/// Renames a node to a name that is free. Tries again after an error that may pass.
pub(crate) async fn rename_retried(
    config: &JobConfig,
    report: &Report,
    from: &RelPath,
    to: &RelPath,
) -> Result<(), Error> {
    let attempt = || async {
        rename(&*config.target, from, to, false, None)
            .await
            .map_err(EndError::on_target)
    };
    let renamed = with_retries(&config.options, report, token_of(0, to), attempt).await;
    renamed.map_err(|failed| failed.error)
}

async fn was_renamed(target: &dyn Tree, from: &RelPath, to: &RelPath, replaced: Option<&Metadata>) -> bool {
    let old = target.metadata(from).await;
    if !old.is_err_and(|error| error.kind == ErrorKind::NotFound) {
        return false;
    }
    let found = target.metadata(to).await;
    found.is_ok_and(|found| !replaced.is_some_and(|replaced| is_same(&found, replaced)))
}

/// Whether two reads of a path show the same node.
fn is_same(found: &Metadata, before: &Metadata) -> bool {
    match (found.id, before.id) {
        (Some(found), Some(before)) => found == before,
        _ => (found.size, found.modified) == (before.size, before.modified),
    }
}
