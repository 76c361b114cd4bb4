//! Requests extended attributes early.

use ropeway_vfs::{Metadata, RelPath};

use crate::job::config::JobConfig;
use crate::job::root::JobRoot;
use crate::place::early_xattrs::EarlyXattrs;

/// Requests the extended attributes of a folder from a remote source. Returns `None` if they are
/// not needed, or the source is local.
pub(super) fn early_xattrs(
    config: &JobConfig,
    root: &JobRoot,
    path: &RelPath,
    metadata: &Metadata,
) -> Option<EarlyXattrs> {
    let source = &root.root.source;
    let is_worth_it = source.capabilities().remote && !config.options.dry_run;
    (is_worth_it && config.wants_xattrs(&**source, metadata)).then(|| EarlyXattrs::request(source, path))
}
