//! Renaming on the target: a lost answer costs nothing.

use ropeway_vfs::{Error, ErrorKind, RelPath, Verdict};

use crate::context::{Context, token_of};

/// Renames. If it fails in a way that leaves open whether it was done (a connection that is lost, now or before), what is
/// there tells: `from` is a name of this job's own, so nobody else took it away.
pub(crate) async fn rename(
    context: &Context,
    from: &RelPath,
    to: &RelPath,
    replace: bool,
) -> Result<(), Error> {
    let is_open = |error: &Error| error.verdict() == Verdict::Retry || error.kind == ErrorKind::NotFound;
    match context.target.rename(from, to, replace).await {
        Err(error) if is_open(&error) && was_renamed(context, from, to).await => Ok(()),
        renamed => renamed,
    }
}

/// The same, tried again after what may pass.
pub(crate) async fn rename_retried(
    context: &Context,
    from: &RelPath,
    to: &RelPath,
    replace: bool,
) -> Result<(), Error> {
    let attempt = || async {
        rename(context, from, to, replace)
            .await
            .map_err(|error| (error, false))
    };
    let renamed = context.with_retries(token_of(0, to), attempt).await;
    renamed.map_err(|(error, _)| error)
}

async fn was_renamed(context: &Context, from: &RelPath, to: &RelPath) -> bool {
    let old = context.target.metadata(from).await;
    old.is_err_and(|error| error.kind == ErrorKind::NotFound) && context.target.metadata(to).await.is_ok()
}
