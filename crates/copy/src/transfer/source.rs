//! The source of one file.

use std::sync::Arc;

use ropeway_vfs::{CacheMode, EndError, File, Metadata, OpenOptions, Xattr};

use crate::job::config::JobConfig;
use crate::place::task::FileTask;

/// Opens the source for reading.
#[tracing::instrument(name = "open", level = "debug", skip_all)]
pub(crate) async fn open_source(task: &FileTask, cache: CacheMode) -> Result<Arc<dyn File>, EndError> {
    let source = &task.folder.root().root.source;
    source
        .open(&task.source_path, OpenOptions::read(cache))
        .await
        .map_err(EndError::on_source)
}

/// Returns the metadata of an opened file, with what only the listing before it showed, if the file
/// is still the same.
pub(crate) fn with_listed(mut opened: Metadata, listed: &Metadata) -> Metadata {
    let same =
        (opened.modified, opened.changed, opened.size) == (listed.modified, listed.changed, listed.size);
    if same && opened.has_xattrs.is_none() {
        opened.has_xattrs = listed.has_xattrs;
    }
    opened
}

/// Returns the extended attributes to copy. `None`: leave them as they are.
pub(crate) async fn source_xattrs(
    config: &JobConfig,
    task: &FileTask,
    source: &Arc<dyn File>,
    before: &Metadata,
) -> Result<Option<Vec<Xattr>>, EndError> {
    if !config.wants_xattrs(&*task.folder.root().root.source, before) {
        return Ok(None);
    }
    source.xattrs().await.map(Some).map_err(EndError::on_source)
}
