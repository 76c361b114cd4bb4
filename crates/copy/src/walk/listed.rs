//! Paths of `--files-from` that the source does not have.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use ropeway_vfs::{End, Error, ErrorKind, RelPath};

use crate::job::context::Context;
use crate::job::root::JobRoot;

/// Questions to the source in flight. A guess.
const LOOKS_IN_FLIGHT: usize = 64;

/// The listed paths that the walks have met, relative to any root.
#[derive(Debug, Default)]
pub(crate) struct ListedPaths(Mutex<HashSet<RelPath>>);

impl ListedPaths {
    /// Notes a path that is listed and exists.
    pub(crate) fn meet(&self, path: &RelPath) {
        self.0.lock().insert(path.clone());
    }
}

/// Reports each listed path that no root has. A path below a folder that could not be listed is looked
/// at itself.
pub(crate) async fn report_missing(context: &Arc<Context>, roots: &[Arc<JobRoot>]) {
    let met = std::mem::take(&mut *context.listed_paths.0.lock());
    let filter = &context.config.options.filter;
    let unmet = filter
        .listed()
        .filter(|path| !path.is_root() && !met.contains(path));
    let looks = unmet.map(|path| async move { missing_error(&path, roots).await.map(|error| (path, error)) });
    let mut looks = futures_util::stream::iter(looks).buffered(LOOKS_IN_FLIGHT);
    while let Some(look) = looks.next().await {
        if context.stopped() {
            return;
        }
        if let Some((path, error)) = look {
            context.report.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&path, error, End::Source).await;
        }
    }
}

/// Returns the error of a path that no root has.
async fn missing_error(path: &RelPath, roots: &[Arc<JobRoot>]) -> Option<Error> {
    let mut missing = None;
    for root in roots {
        match root.root.source.metadata(&root.whole.0.join_path(path)).await {
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                missing = Some(error);
            }
            // It exists but takes no part, or its folder was reported already.
            _ => return None,
        }
    }
    missing
}
