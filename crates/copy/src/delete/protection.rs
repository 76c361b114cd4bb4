//! What a deletion leaves: names that filters exclude, and backups.

use ropeway_vfs::{Metadata, RelPath};

use crate::job::config::JobConfig;
use crate::job::options::Backup;
use crate::job::root::JobRoot;

/// The nodes of the target that a deletion leaves, by the options of the job.
pub(super) struct Protection<'a> {
    pub(super) config: &'a JobConfig,
    pub(super) root: &'a JobRoot,
}

impl Protection<'_> {
    /// Whether a node of the target is a backup, or holds all of them.
    pub(super) fn is_backup(&self, path: &RelPath) -> bool {
        match &self.config.options.backup {
            Some(Backup::Directory { base, .. }) => path.strip_prefix(base).is_some(),
            Some(Backup::Suffix(suffix)) => path.as_bytes().ends_with(suffix),
            None => false,
        }
    }

    /// Whether a node below a deleted one stays: excluded names, and backups.
    pub(super) fn keeps(&self, path: &RelPath, metadata: &Metadata) -> bool {
        if self.is_backup(path) {
            return true;
        }
        self.protects(path, metadata)
    }

    /// Whether filters protect a node below a deleted one.
    pub(super) fn protects(&self, path: &RelPath, metadata: &Metadata) -> bool {
        let below = path.strip_prefix(&self.root.whole.1);
        self.keeps_excluded()
            && below.is_some_and(|below| self.config.options.filter.excluded(&below, metadata.is_dir()))
    }

    /// Whether there may be names that filters protect.
    fn keeps_excluded(&self) -> bool {
        let delete = self.config.options.delete.as_ref();
        !self.config.options.filter.is_empty() && !delete.is_some_and(|delete| delete.excluded)
    }

    /// Whether the folder of backups is this folder or lies below it.
    pub(super) fn holds_backups(&self, path: &RelPath) -> bool {
        match &self.config.options.backup {
            Some(Backup::Directory { base, .. }) => base.strip_prefix(path).is_some(),
            _ => false,
        }
    }
}
