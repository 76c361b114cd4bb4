//! Removes what an earlier run left in hidden folders and this run cannot replace.
//!
//! Such a node may be half written. It must be removed before the folder gets its name.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use ropeway_plan::Visibility;
use ropeway_plan::names::{Collision, FolderNames, case_key};
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
    /// Hashes of all names that stood there before, if that is known.
    stood: Option<Vec<u64>>,
    /// Whether names are compared without regard to case.
    ignores_case: bool,
    /// Whether a name that this run replaces may be the short name of another one.
    has_short: bool,
    hasher: BuildHasherDefault<DefaultHasher>,
    is_incomplete: bool,
}

impl Names {
    pub(super) fn of(folder: &Folder, target: &Capabilities) -> Self {
        Self {
            seen: FolderNames::new(target),
            replaced: folder.is_left_over().then(HashSet::new),
            stood: None,
            ignores_case: !target.case_sensitive,
            has_short: false,
            hasher: BuildHasherDefault::default(),
            is_incomplete: false,
        }
    }

    /// Adds a name, as [`FolderNames::insert`].
    pub(super) fn insert(&mut self, name: &Name) -> Option<Collision> {
        let collision = self.seen.insert(name);
        if self.replaced.is_some() && collision != Some(Collision::Case) {
            self.has_short |= name.as_bytes().contains(&b'~');
            let hash = self.hash(name);
            self.replaced.get_or_insert_default().insert(hash);
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
        let hashes: Vec<u64> = names.map(|name| self.hash(name)).collect();
        if let Some(replaced) = &mut self.replaced {
            for hash in hashes {
                replaced.remove(&hash);
            }
        }
    }

    /// Names with equal hashes are one name at the target, as far as is known here.
    fn hash(&self, name: &Name) -> u64 {
        match self.ignores_case {
            true => self.hasher.hash_one(case_key(name)),
            false => self.hasher.hash_one(name),
        }
    }

    /// Notes everything that stands in the folder before this run adds to it.
    pub(super) fn stand<'a>(&mut self, names: impl Iterator<Item = &'a Name>) {
        self.stood = Some(names.map(|name| self.hash(name)).collect());
    }

    /// Whether this run surely replaces all that stood there.
    fn replaces_all(&self) -> bool {
        let (Some(stood), Some(replaced)) = (&self.stood, &self.replaced) else {
            return false;
        };
        !self.is_incomplete && stood.iter().all(|hash| replaced.contains(hash))
    }

    /// Whether this run replaces what has this name, or may do so: which names beyond ASCII are one name
    /// without regard to case, only the target knows.
    fn may_have(&self, name: &Name) -> bool {
        let hash = self.hash(name);
        let replaced = self.replaced.as_ref();
        let is_replaced = replaced.is_some_and(|replaced| replaced.contains(&hash));
        is_replaced || self.ignores_case && !name.as_bytes().is_ascii()
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
    // What vanished from the source since the folder was pruned is not among the names either. A short name
    // may have led to a file with another one.
    if names.replaces_all() || !names.is_incomplete && names.ignores_case && names.has_short {
        return;
    }
    assert_eq!(
        folder.visibility(),
        Visibility::Hidden,
        "anything else is the user's"
    );
    let stays = |name: &Name| names.may_have(name);
    let cleared = clear_all_but(config, durability, report, &folder.path(), stays).await;
    if cleared.is_err() {
        folder.doubt();
    }
}
