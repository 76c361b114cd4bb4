//! Gives a full folder its final name.

use std::sync::Arc;

use ropeway_plan::Temporary;
use ropeway_vfs::{Error, ErrorKind, Name, RelPath};

use crate::delete::remove::make_way;
use crate::job::context::Context;
use crate::job::root::JobRoot;
use crate::name::rename::rename_retried;

/// Tells the journal that a folder no longer has `from`, its temporary name.
pub(crate) fn has_name(context: &Context, from: &Name) {
    if let (Some(journal), Some(Temporary::Node { token, .. })) = (&context.journal, Temporary::parse(from))
        && context.config.own_user().is_some()
    {
        context.journalled(Some(journal.closed(token)));
    }
}

/// Gives a full folder its final name. A mirror removes what stands there and is no folder, now
/// that the new one is complete.
///
/// # Errors
/// It could not be renamed: something else may stand there.
pub(crate) async fn name_folder(
    context: &Arc<Context>,
    root: &Arc<JobRoot>,
    from: &RelPath,
    to: &RelPath,
) -> Result<(), Error> {
    match rename_retried(context, from, to, false).await {
        Err(error) if error.kind == ErrorKind::AlreadyExists && context.config.options.delete.is_some() => {
            if context
                .config
                .target
                .metadata(to)
                .await
                .is_ok_and(|found| found.is_dir())
            {
                return Err(error);
            }
            make_way(context, root, to).await?;
            rename_retried(context, from, to, false).await
        }
        named => named,
    }
}
