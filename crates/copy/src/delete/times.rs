//! Times of target folders in which something was made or deleted.

use ropeway_vfs::{Error, ErrorKind, MetadataChange, RelPath};

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
    let change = MetadataChange {
        modified: metadata.modified.known(),
        accessed: metadata.accessed,
        ..Default::default()
    };
    match context.target.set_metadata(target_dir, &change).await {
        Ok(_) => context.sync.touched(),
        Err(error) if is_absence(&error) => {}
        Err(error) => context.fail(target_dir, error, false).await,
    }
}

/// Whether an error says that there is no such node.
pub(crate) fn is_absence(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}
