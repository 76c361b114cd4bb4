//! What an earlier run left in folders that nobody has seen yet, where this run fails: it is perhaps half written, and goes
//! before the folder gets its name.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use ropeway_plan::names::{Collision, FolderNames};
use ropeway_vfs::{Capabilities, Name};

use crate::context::Context;
use crate::delete;
use crate::folder::{Folder, Placement};

/// The names of one folder, and in one that an earlier run left, which of them this run sees to.
pub(super) struct Names {
    seen: FolderNames,
    /// Hashes: about 9 bytes a name.
    taken_on: Option<HashSet<u64>>,
    hasher: BuildHasherDefault<DefaultHasher>,
    is_missing_some: bool,
}

impl Names {
    pub(super) fn of(folder: &Folder, target: &Capabilities) -> Self {
        Self {
            seen: FolderNames::new(target),
            taken_on: folder.is_left_over().then(HashSet::new),
            hasher: BuildHasherDefault::default(),
            is_missing_some: false,
        }
    }

    /// As [`FolderNames::insert`].
    pub(super) fn insert(&mut self, name: &Name) -> Option<Collision> {
        let collision = self.seen.insert(name);
        if let Some(taken_on) = self
            .taken_on
            .as_mut()
            .filter(|_| collision != Some(Collision::Case))
        {
            taken_on.insert(self.hasher.hash_one(name));
        }
        collision
    }

    /// Something of the folder cannot be seen to.
    pub(super) fn miss(&mut self) {
        self.is_missing_some = true;
    }

    /// None of `names` can be seen to.
    pub(super) fn miss_all<'a>(&mut self, names: impl Iterator<Item = &'a Name>) {
        self.miss();
        if let Some(taken_on) = &mut self.taken_on {
            for name in names {
                taken_on.remove(&self.hasher.hash_one(name));
            }
        }
    }

    fn has(&self, name: &Name) -> bool {
        let hash = self.hasher.hash_one(name);
        self.taken_on
            .as_ref()
            .is_some_and(|taken_on| taken_on.contains(&hash))
    }
}

/// Removes what an earlier run left of a folder that cannot be entered.
pub(super) async fn remove(context: &Context, parent: &Folder, name: &Name) {
    if context.stopped() || context.options.dry_run || !parent.is_left_over() {
        return;
    }
    // The failure itself is reported.
    if delete::clear(context, &parent.path().join(name)).await.is_err() {
        parent.doubt();
    }
}

/// Removes what an earlier run left in a folder, but for the names that this run sees to, if it misses any.
pub(super) async fn remove_missed(context: &Context, folder: &Arc<Folder>, names: &Names) {
    if !names.is_missing_some || context.stopped() || context.options.dry_run || !folder.is_left_over() {
        return;
    }
    debug_assert_eq!(
        folder.placement(),
        Placement::Direct,
        "anything else is the user's"
    );
    let stays = |name: &Name| names.has(name);
    if delete::clear_all_but(context, &folder.path(), stays)
        .await
        .is_err()
    {
        folder.doubt();
    }
}
