//! `--checksum`: compares the content of both ends and copies what differs.

use std::sync::Arc;

use ropeway_plan::attributes_differ;

use crate::job::context::Context;
use crate::place::foreign_links::has_foreign_links;
use crate::place::task::FileTask;
use crate::transfer::links::{complete_links, fail_links};
use crate::transfer::node::{copy_file, fail_node};
use crate::transfer::special::{count_skipped, update_attributes};
use crate::verify::content::equal_content;

/// Compares the content of a file on both ends. Copies the file if it differs, and updates its
/// attributes otherwise.
pub(crate) async fn compare_file(context: &Arc<Context>, task: FileTask) {
    let source = Arc::clone(&task.folder.root().root.source);
    let target_path = task.folder.path().join(&task.name);
    let equal = equal_content(
        (&context.resources.pool, &context.report.limit),
        (&*source, &task.source_path),
        (&*context.config.target, &target_path),
    );
    match equal.await {
        Ok(true) => {
            let capabilities = context.config.target.capabilities();
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
                    &context.config.options.preserve,
                    capabilities,
                )
            });
            let link = task.link;
            let (folder, name) = (Arc::clone(&task.folder), task.name.clone());
            if (aged || differ)
                && !context.config.options.dry_run
                && has_foreign_links(&context.config, &task).await
            {
                return copy_file(context, task).await;
            }
            let mut is_done = true;
            if (aged || differ) && !context.config.options.dry_run {
                is_done = update_attributes(context, task).await;
            } else {
                context.report.item(&task.shown(), "skip", task.metadata.size);
                context.copied_nodes.add(task.token(), &task.metadata);
                count_skipped(context, &task).await;
            }
            match link {
                Some(id) if is_done => complete_links(context, id, &folder, &name).await,
                Some(id) => fail_links(context, id).await,
                None => {}
            }
        }
        Ok(false) if context.config.options.dry_run => {
            context.report.item(&task.shown(), "update", task.metadata.size)
        }
        Ok(false) => copy_file(context, task).await,
        Err(failed) => fail_node(context, task, failed).await,
    }
}
