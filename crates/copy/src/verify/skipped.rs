//! Records the hashes of files, including those that need no copy.

use ropeway_vfs::{ContentHash, End};

use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;
use crate::place::task::FileTask;
use crate::transfer::source::open_source;
use crate::verify::content::hash_file;
use crate::verify::hashes::Hashes;

/// Adds the hash of a file to those of the job.
pub(crate) fn record_hash(report: &Report, hashes: &Hashes, task: &FileTask, hash: &ContentHash) {
    if let Err(error) = hashes.add(&task.final_path(), hash) {
        report.fatal(Fatal::new(
            Status::TargetUnwritable,
            format!("cannot keep the hashes: {error}"),
        ));
    }
}

/// Hashes a file that was not copied in this run (skipped, linked, adopted) from its source, so
/// that the whole job is verified.
pub(crate) async fn hash_skipped(context: &Context, task: &FileTask) {
    let Some(hashes) = context
        .hashes
        .as_ref()
        .filter(|_| !context.config.options.dry_run)
    else {
        return;
    };
    let cache = context
        .config
        .cache_of(task.locality(), task.metadata.size)
        .source;
    let hashed = async {
        let source = open_source(task, cache).await.map_err(|failed| failed.error)?;
        let pool = (&context.resources.pool, &*context.report.limit);
        hash_file(hashes.algorithm(), pool, &*source).await
    };
    match hashed.await {
        Ok(hash) => record_hash(&context.report, hashes, task, &hash),
        Err(error) => context.fail(&task.shown_source(), error, End::Source).await,
    }
}
