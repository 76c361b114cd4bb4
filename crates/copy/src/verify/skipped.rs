//! Records the hashes of files, also of those that need no copy.

use ropeway_vfs::End;

use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};
use crate::place::task::FileTask;
use crate::transfer::source::open_source;
use crate::verify::content::hash_file;

pub(crate) fn record_hash(context: &Context, task: &FileTask, hash: &[u8; 32]) {
    if let Some(hashes) = &context.hashes
        && let Err(error) = hashes.add(&task.landed(), hash)
    {
        context.fatal(Fatal::new(
            Status::TargetUnwritable,
            format!("cannot keep the hashes: {error}"),
        ));
    }
}

/// Hashes a file from its source that was not copied in this run (skipped, linked, adopted), so
/// that the whole job is verified.
pub(crate) async fn hash_skipped(context: &Context, task: &FileTask) {
    if context.hashes.is_none() || context.config.options.dry_run {
        return;
    }
    let cache = context.config.cache_of(task.metadata.size).source;
    let hashed = async {
        let source = open_source(task, cache).await.map_err(|failed| failed.error)?;
        hash_file(&context.resources.pool, &*source).await
    };
    match hashed.await {
        Ok(hash) => record_hash(context, task, &hash),
        Err(error) => context.fail(&task.shown(), error, End::Source).await,
    }
}
