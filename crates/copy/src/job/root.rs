//! One root of a job: a node of a source tree, its place on the target, and the rules between both
//! trees.

use std::sync::atomic::AtomicBool;

use ropeway_plan::{NameMap, Rules};
use ropeway_vfs::RelPath;

use crate::job::options::Root;
use crate::walk::balance::Balance;

/// A root, with what follows from its two trees.
pub(crate) struct JobRoot {
    pub(crate) index: u64,
    pub(crate) root: Root,
    /// Paths of the whole root on both ends. If a watch copies a part of it, the paths of `root`
    /// lie below. Filters are relative to these.
    pub(crate) whole: (RelPath, RelPath),
    pub(crate) rules: Rules,
    pub(crate) names: NameMap,
    /// Whether it is copied again because the device returned other content.
    pub(crate) is_repair: bool,
    /// Whether folders were equal so far, where digests of folders tell all that is compared.
    pub(crate) digests: Option<Balance>,
    /// Whether this run has changed anything in a folder of the target.
    pub(crate) is_changed: AtomicBool,
    /// Whether the pass before the copy found something that the pass which deletes must handle.
    pub(crate) needs_deletion: AtomicBool,
}

impl JobRoot {
    /// Whether this is a part of a root, in a round of a watch.
    pub(crate) fn is_part(&self) -> bool {
        self.whole.0 != self.root.source_path
    }

    /// Returns how messages name a node of the source.
    pub(crate) fn shown(&self, source_path: &RelPath) -> RelPath {
        self.root.source_name.join_path(source_path)
    }

    /// Returns the path on the target of a node given relative to the root. `None` if the target
    /// cannot hold one of the names.
    pub(crate) fn target_of(&self, below: &RelPath) -> Option<RelPath> {
        below
            .components()
            .try_fold(self.root.target_path.clone(), |path, name| {
                self.names.map(&name).ok().map(|mapped| path.join(&mapped.name))
            })
    }
}
