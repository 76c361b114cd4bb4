//! Extended attributes of a folder, requested when the folder is begun.
//!
//! They are needed when the folder is full. On a source that is far away, a request at that time
//! would cost a round trip.

use std::sync::Arc;

use ropeway_vfs::{Error, RelPath, Tree, Xattr};
use tokio::task::JoinHandle;

/// A request for the extended attributes of a folder.
pub(crate) struct EarlyXattrs(JoinHandle<Result<Vec<Xattr>, Error>>);

impl EarlyXattrs {
    /// Asks `source` for the extended attributes of the folder at `path`.
    pub(crate) fn request(source: &Arc<dyn Tree>, path: &RelPath) -> Self {
        let (source, path) = (Arc::clone(source), path.clone());
        Self(tokio::spawn(async move { source.xattrs(&path).await }))
    }

    /// Returns the extended attributes. `None` if the request failed; then the caller must ask
    /// again.
    pub(crate) async fn answer(mut self) -> Option<Vec<Xattr>> {
        (&mut self.0).await.ok()?.ok()
    }
}

impl Drop for EarlyXattrs {
    fn drop(&mut self) {
        self.0.abort();
    }
}
