//! Times of target folders in which something was made or deleted.

use ropeway_vfs::{End, MetadataChange, RelPath};

use crate::context::{Context, RootContext};

/// Sets a target folder's times from its source, after something in it was made or deleted.
pub(crate) async fn restore_times(
    context: &Context,
    root: &RootContext,
    source_dir: &RelPath,
    target_dir: &RelPath,
) {
    if !context.options.preserve.times || context.options.dry_run {
        return;
    }
    let Ok(metadata) = root.root.source.metadata(source_dir).await else {
        return;
    };
    let change = MetadataChange::times_of(&metadata);
    match context.target.set_metadata(target_dir, &change).await {
        Ok(_) => context.sync.touched(),
        Err(error) if error.kind.is_absence() => {}
        Err(error) => context.fail(target_dir, error, End::Target).await,
    }
}
