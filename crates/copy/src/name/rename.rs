//! Renames nodes of the target, also if the reply of the server is lost.
//!
//! If the connection is lost, a rename may have been carried out all the same. Then nothing is left
//! at its source, which is a name of this job, and something new is at its target.

use ropeway_vfs::{EndError, Error, ErrorKind, Metadata, RelPath, Tree, Verdict};

use crate::job::config::JobConfig;
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::journal::token::token_of;

/// Renames a node, and replaces what stands at `to`. `replaced` is what stood there before; if it
/// is still there, nothing was renamed.
///
/// # Errors
/// The node was not renamed. Or a connection was lost, and whether the node was renamed could not
/// be found out in all tries.
#[tracing::instrument(name = "rename", level = "debug", skip_all, fields(to = %to))]
pub(crate) async fn rename(
    config: &JobConfig,
    report: &Report,
    from: &RelPath,
    to: &RelPath,
    replaced: Option<&Metadata>,
) -> Result<(), Error> {
    match config.target.rename(from, to, true).await {
        Err(error) if is_open(&error) => {
            let look = || async {
                let found = was_renamed(&*config.target, from, to, replaced).await;
                found.map_err(EndError::on_target)
            };
            let found = with_retries(&config.options, report, token_of(0, to), look).await;
            outcome(found.map_err(|failed| failed.error), error)
        }
        renamed => renamed,
    }
}

/// Renames a node to a name that is free. Tries again after an error that may pass.
///
/// # Errors
/// As [`rename`].
pub(crate) async fn rename_retried(
    config: &JobConfig,
    report: &Report,
    from: &RelPath,
    to: &RelPath,
) -> Result<(), Error> {
    let attempt = || async {
        let renamed = match config.target.rename(from, to, false).await {
            Err(error) if is_open(&error) => {
                outcome(was_renamed(&*config.target, from, to, None).await, error)
            }
            renamed => renamed,
        };
        renamed.map_err(EndError::on_target)
    };
    let renamed = with_retries(&config.options, report, token_of(0, to), attempt).await;
    renamed.map_err(|failed| failed.error)
}

/// Whether a rename that failed with this error may have been carried out, now or by an earlier
/// try.
fn is_open(error: &Error) -> bool {
    error.verdict() == Verdict::Retry || error.kind == ErrorKind::NotFound
}

/// Returns the result of a rename that failed with `error`, given whether it was carried out. If
/// that is not known, it is the error of the look: nothing at the old name is no failure of the
/// rename.
fn outcome(was_renamed: Result<bool, Error>, error: Error) -> Result<(), Error> {
    match was_renamed {
        Ok(true) => Ok(()),
        Ok(false) => Err(error),
        Err(unknown) => Err(unknown),
    }
}

/// Whether a rename was carried out, by what stands at both names now.
///
/// # Errors
/// One that may pass, so that it is not known.
async fn was_renamed(
    target: &dyn Tree,
    from: &RelPath,
    to: &RelPath,
    replaced: Option<&Metadata>,
) -> Result<bool, Error> {
    let may_pass = |error: &Error| error.verdict() == Verdict::Retry;
    match target.metadata(from).await {
        Err(error) if may_pass(&error) => return Err(error),
        Err(error) if error.kind == ErrorKind::NotFound => {}
        _ => return Ok(false),
    }
    match target.metadata(to).await {
        Ok(found) => Ok(!replaced.is_some_and(|replaced| is_same(&found, replaced))),
        Err(error) if may_pass(&error) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Whether two reads of a path show the same node.
fn is_same(found: &Metadata, before: &Metadata) -> bool {
    match (found.id, before.id) {
        (Some(found), Some(before)) => found == before,
        _ => (found.size, found.modified) == (before.size, before.modified),
    }
}
