//! Removes what an earlier run left in hidden folders and this run cannot replace.
//!
//! Such a node may be half written. It must be removed before the folder gets its name.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use ropeway_plan::Visibility;
use ropeway_plan::names::{Collision, FolderNames};
use ropeway_vfs::{Capabilities, Name};

use crate::delete::clear::{clear, clear_all_but};
use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::report::Report;
use crate::place::folder::Folder;

/// The names of one folder. For a folder that an earlier run left, also which of them this run
/// replaces.
pub(super) struct Names {
    seen: FolderNames,
    /// Hashes of the names that this run replaces: about 9 bytes for each name.
    replaced: Option<HashSet<u64>>,
    hasher: BuildHasherDefault<DefaultHasher>,
    is_incomplete: bool,
}

impl Names {
    pub(super) fn of(folder: &Folder, target: &Capabilities) -> Self {
        Self {
            seen: FolderNames::new(target),
            replaced: folder.is_left_over().then(HashSet::new),
            hasher: BuildHasherDefault::default(),
            is_incomplete: false,
        }
    }

    /// Adds a name, as [`FolderNames::insert`].
    pub(super) fn insert(&mut self, name: &Name) -> Option<Collision> {
        let collision = self.seen.insert(name);
        if let Some(replaced) = self
            .replaced
            .as_mut()
            .filter(|_| collision != Some(Collision::Case))
        {
            replaced.insert(self.hasher.hash_one(name));
        }
        collision
    }

    /// Notes that this run cannot replace something of the folder.
    pub(super) fn miss(&mut self) {
        self.is_incomplete = true;
    }

    /// Notes that this run can replace none of `names`.
    pub(super) fn miss_all<'a>(&mut self, names: impl Iterator<Item = &'a Name>) {
        self.miss();
        if let Some(replaced) = &mut self.replaced {
            for name in names {
                replaced.remove(&self.hasher.hash_one(name));
            }
        }
    }

    fn has(&self, name: &Name) -> bool {
        let hash = self.hasher.hash_one(name);
        self.replaced
            .as_ref()
            .is_some_and(|replaced| replaced.contains(&hash))
    }
}

/// Removes what an earlier run left of a folder that this run cannot enter.
pub(super) async fn remove_unentered(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    (parent, name): (&Folder, &Name),
) {
    if report.stopped() || config.options.dry_run || !parent.is_left_over() {
        return;
    }
    // The caller reports the failure.
    if clear(config, durability, report, &parent.path().join(name))
        .await
        .is_err()
    {
        parent.doubt();
    }
}

/// Removes what an earlier run left in a folder and this run does not replace.
pub(super) async fn remove_unreplaced(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    folder: &Folder,
    names: &Names,
) {
    if report.stopped() || config.options.dry_run || !folder.is_left_over() {
        return;
    }
    // What vanished from the source since the folder was pruned is not among the names either.
    // Without letter case, a name on the target may be another spelling of one that is replaced.
    if !names.is_incomplete && !config.target.capabilities().case_sensitive {
        return;
    }
    assert_eq!(
        folder.visibility(),
        Visibility::Hidden,
        "anything else is the user's"
    );
    let stays = |name: &Name| names.has(name);
    let cleared = clear_all_but(config, durability, report, &folder.path(), stays).await;
    if cleared.is_err() {
        folder.doubt();
    }
}
