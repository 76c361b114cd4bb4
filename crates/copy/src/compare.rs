//! `--checksum`: reads both sides and copies what differs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::attributes_differ;

use ropeway_vfs::EndError;

use crate::context::Context;
use crate::file::{self, FileTask};
use crate::walk::shares_more;
use crate::{links, special};

/// Compares a file's content on both ends; copies it if it differs, else sees to its attributes.
pub(crate) async fn compare(context: &Arc<Context>, task: FileTask) {
    let source = Arc::clone(&task.folder.root().root.source);
    let target_path = task.folder.path().join(&task.name);
    let equal = crate::verify::equal_content(
        &context.pool,
        (&*source, &task.source_path),
        (&*context.target, &target_path),
    );
    match equal.await {
        Ok(true) => {
            let capabilities = context.target.capabilities();
            let rules = &task.folder.root().rules;
            let aged = task.existing.as_ref().is_some_and(|existing| {
                task.metadata.modified.is_known()
                    && !rules.granularity.equal(task.metadata.modified, existing.modified)
            });
            let differ = task.existing.as_ref().is_some_and(|existing| {
                attributes_differ(
                    &task.metadata,
                    existing,
                    rules,
                    &context.options.preserve,
                    capabilities,
                )
            });
            let link = task.link;
            let (folder, name) = (Arc::clone(&task.folder), task.name.clone());
            if (aged || differ) && !context.options.dry_run && shares_more(context, &task).await {
                return file::copy(context, task).await;
            }
            if (aged || differ) && !context.options.dry_run {
                special::update_attributes(context, task).await;
            } else {
                context.item(&task.shown(), "skip", task.metadata.size);
                context.arrivals.add(task.token(), &task.metadata);
                special::skipped(context, &task).await;
            }
            if let Some(id) = link {
                links::complete(context, id, &folder, &name).await;
            }
        }
        Ok(false) if context.options.dry_run => context.item(&task.shown(), "update", task.metadata.size),
        Ok(false) => file::copy(context, task).await,
        Err(EndError { end, error }) => {
            let link = task.link;
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            file::give_up(context, &task, &error).await;
            context.fail(&task.shown(), error, end).await;
            if let Some(id) = link {
                links::failed(context, id).await;
            }
        }
    }
}
