//! Gives a full folder its final name.

use ropeway_plan::Temporary;
use ropeway_vfs::{Error, ErrorKind, Name, RelPath};

use crate::delete::remove::free_name;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::report::Report;
use crate::job::root::JobRoot;
use crate::journal::open::Journal;
use crate::name::rename::rename_retried;

/// Records in the journal that a folder no longer has its temporary name `from`.
pub(crate) fn record_named(config: &JobConfig, report: &Report, journal: Option<&Journal>, from: &Name) {
    if let (Some(journal), Some(Temporary::Node { token, .. })) = (journal, Temporary::parse(from))
        && config.own_user().is_some()
    {
        report.journal_result(Some(journal.closed(token)));
    }
}

/// Gives a full folder its final name. A mirror removes what stands there and is no folder, now
/// that the new one is complete.
///
/// # Errors
/// It could not be renamed: something else may stand there.
pub(crate) async fn name_folder(
    context: &Context,
    root: &JobRoot,
    from: &RelPath,
    to: &RelPath,
) -> Result<(), Error> {
    let (config, report) = (&context.config, &context.report);
    match rename_retried(config, report, from, to).await {
        Err(error) if error.kind == ErrorKind::AlreadyExists && config.options.delete.is_some() => {
            let found = config.target.metadata(to).await;
            if found.is_ok_and(|found| found.is_dir()) {
                return Err(error);
            }
            free_name(context, root, to).await?;
            rename_retried(config, report, from, to).await
        }
        named => named,
    }
}
