//! Removes within a job what no user ever saw.

use ropeway_vfs::{DirEntry, Error, ErrorKind, Name, RelPath};

use crate::delete::above::Above;
use crate::delete::nodes::CHUNK;
use crate::delete::unseen::remove_unseen;
use crate::job::context::Context;

/// Removes everything in a hidden folder except some names.
///
/// # Errors
/// It cannot be listed, or something cannot be removed.
pub(crate) async fn clear_all_but(
    context: &Context,
    dir: &RelPath,
    stays: impl Fn(&Name) -> bool,
) -> Result<(), Error> {
    clear_unless(context, dir, |entry| stays(&entry.name)).await
}

pub(super) async fn clear_unless(
    context: &Context,
    dir: &RelPath,
    stays: impl Fn(&DirEntry) -> bool,
) -> Result<(), Error> {
    let mut listing = context.config.target.list(dir).await?;
    loop {
        let entries = listing.next(CHUNK).await?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            if !context.config.is_own_temporary(&entry.name) && !stays(&entry) {
                clear(context, &dir.join(&entry.name)).await?;
            }
        }
    }
}

/// Removes what an earlier run or try of this job left under a name that no user ever saw, whatever
/// it is. It is no error if nothing is there.
///
/// # Errors
/// It cannot be removed.
pub(crate) async fn clear(context: &Context, path: &RelPath) -> Result<(), Error> {
    context.durability.touch();
    let goes_on = || !context.stopped();
    match remove_unseen(&*context.config.target, path, Above::Named, true, goes_on).await {
        Err(error) if error.kind != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
