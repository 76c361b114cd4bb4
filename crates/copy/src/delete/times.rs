//! Sets the times of target folders in which something was made or deleted.

use ropeway_vfs::{End, MetadataChange, RelPath};

use crate::job::context::Context;
use crate::job::root::JobRoot;

/// Sets the times of a target folder from its source, after something in it was made or deleted.
pub(crate) async fn restore_times(
    context: &Context,
    root: &JobRoot,
    source_dir: &RelPath,
    target_dir: &RelPath,
) {
    if !context.config.options.preserve.times || context.config.options.dry_run {
        return;
    }
    let Ok(metadata) = root.root.source.metadata(source_dir).await else {
        return;
    };
    let change = MetadataChange::times_of(&metadata);
    match context.config.target.set_metadata(target_dir, &change).await {
        Ok(_) => context.durability.touch(),
        Err(error) if error.kind.is_absence() => {}
        Err(error) => context.fail(target_dir, error, End::Target).await,
    }
}
