//! Sets the times of target folders in which something was made or deleted.

use ropeway_vfs::{End, MetadataChange, RelPath};

use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::report::Report;
use crate::job::root::JobRoot;

/// Sets the times of a target folder from its source, after something in it was made or deleted.
pub(crate) async fn restore_times(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    (root, source_dir): (&JobRoot, &RelPath),
    target_dir: &RelPath,
) {
    if !config.options.preserve.times || config.options.dry_run {
        return;
    }
    let Ok(metadata) = root.root.source.metadata(source_dir).await else {
        return;
    };
    let change = MetadataChange::times_of(&metadata);
    match config.target.set_metadata(target_dir, &change).await {
        Ok(_) => durability.touch(),
        Err(error) if error.kind.is_absence() => {}
        Err(error) => report.fail(target_dir, error, End::Target).await,
    }
}
