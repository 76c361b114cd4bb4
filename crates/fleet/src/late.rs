//! The late passes: what can be done only when all files are there.
//!
//! * **Folders** get their attributes, the deepest first: a folder that becomes read-only must not
//!   be in the way of those below it, and nothing may change its time afterwards ([`Folders`]).
//! * **Files with several names** are grouped by the number of their inode, without the device, which
//!   has another number on each machine. Each group belongs to one task, whichever folders its names
//!   are in, so no two workers make the same link ([`Groups`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ropeway_vfs::{FileId, RelPath};

use crate::task::shard_of;

/// Folders in memory at once. With paths of 100 bytes they take about 15 MiB.
const FOLDERS_MAX: usize = 100_000;

/// Names of one task of links in memory: ten times what the coordinator aims at. With paths of 100
/// bytes they take about 200 MiB.
const NAMES_MAX: usize = 1_000_000;

/// Collects folders over one or several passes through the catalog, the deepest first.
#[derive(Debug)]
pub struct Folders {
    held_max: usize,
    /// Only folders before this place are wanted: deeper ones are done. The order is that of
    /// [`place`].
    end: Option<(usize, RelPath)>,
    /// With the last round in which each was listed.
    held: BTreeMap<(usize, RelPath), u32>,
    overflow: bool,
}

/// Returns where a folder stands: by depth, then by path.
fn place(path: RelPath) -> (usize, RelPath) {
    (path.components().count(), path)
}

impl Default for Folders {
    fn default() -> Self {
        Self::new(FOLDERS_MAX)
    }
}

impl Folders {
    /// Makes an empty collection that holds at most `held_max` folders.
    pub fn new(held_max: usize) -> Self {
        Self {
            held_max: held_max.max(1),
            end: None,
            held: BTreeMap::new(),
            overflow: false,
        }
    }

    /// Adds a folder that was listed in this round. Of too many the deepest are kept.
    pub fn add(&mut self, path: RelPath, listed: u32) {
        let place = place(path);
        if self.end.as_ref().is_some_and(|end| place >= *end) {
            return;
        }
        let last = self.held.entry(place).or_insert(listed);
        *last = listed.max(*last);
        if self.held.len() > self.held_max {
            self.overflow = true;
            self.held.pop_first();
        }
    }

    /// Ends a pass: returns the folders to handle now, the deepest first, with the last round in which each was listed,
    /// and whether another pass is needed.
    pub fn take(&mut self) -> (Vec<(RelPath, u32)>, bool) {
        let again = std::mem::take(&mut self.overflow);
        self.end = self.held.first_key_value().map(|(place, _)| place.clone());
        let held = std::mem::take(&mut self.held);
        let deepest_first = held.into_iter().rev();
        (
            deepest_first.map(|((_, path), listed)| (path, listed)).collect(),
            again,
        )
    }
}

/// Returns which of `shards` tasks makes the names of a file.
pub fn owner_of(id: FileId, shards: u32) -> u32 {
    shard_of(blake3::hash(&id.index.to_le_bytes()).as_bytes(), shards)
}

/// The files with several names of one task.
#[derive(Debug)]
pub struct Groups {
    shard: u32,
    shards: u32,
    /// The names of each number, with the last round in which each was listed.
    groups: BTreeMap<u64, BTreeMap<RelPath, u32>>,
    count: usize,
}

impl Groups {
    /// Makes the empty groups of one task of `shards`.
    pub fn new(shard: u32, shards: u32) -> Self {
        Self {
            shard,
            shards,
            groups: BTreeMap::new(),
            count: 0,
        }
    }

    /// Adds a name of a file, if the file is one of this task's and there is room.
    /// `listed`: the round in which it was listed.
    pub fn add(&mut self, id: FileId, path: RelPath, listed: u32) {
        if owner_of(id, self.shards) == self.shard && !self.is_full() {
            match self.groups.entry(id.index).or_default().entry(path) {
                Entry::Vacant(place) => {
                    place.insert(listed);
                    self.count += 1;
                }
                Entry::Occupied(mut place) => *place.get_mut() = listed.max(*place.get()),
            }
        }
    }

    /// Whether there is no room for further names. The tasks are as many as the sums of the catalog
    /// ask for, so its segments then say something else.
    pub fn is_full(&self) -> bool {
        self.count >= NAMES_MAX
    }

    /// Returns the names of each number, sorted, with the last round in which each was listed: those of one file, or of
    /// a few on different devices.
    pub fn finish(self) -> impl Iterator<Item = Vec<(RelPath, u32)>> {
        self.groups.into_values().map(|paths| paths.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn folders_come_deepest_first_in_as_many_passes_as_memory_needs() {
        let all = ["", "a", "a/b", "a/b/c", "d", "d/e", "f", "a/b/c/g"].map(path);
        for held_max in 1..10 {
            let mut folders = Folders::new(held_max);
            let mut order = Vec::new();
            loop {
                // The catalog may name a folder twice.
                all.iter()
                    .chain(&all)
                    .cloned()
                    .for_each(|path| folders.add(path, 0));
                let (now, again) = folders.take();
                assert!(now.len() <= held_max);
                order.extend(now);
                if !again {
                    break;
                }
            }
            assert_eq!(order.len(), all.len(), "{held_max}: {order:?}");
            assert!(order.is_sorted_by_key(|(path, _)| std::cmp::Reverse(path.components().count())));
        }
    }

    #[test]
    fn each_file_belongs_to_one_task_and_has_all_its_names_there() {
        let id = |index| FileId { volume: 1, index };
        let mut sizes = Vec::new();
        for shard in 0..4 {
            let mut groups = Groups::new(shard, 4);
            for index in 0..100 {
                groups.add(id(index), path(&format!("z{index}")), 0);
                groups.add(id(index), path(&format!("a{index}")), 2);
                groups.add(id(index), path(&format!("a{index}")), 1);
            }
            let found: Vec<_> = groups.finish().collect();
            assert!(found.iter().all(|names| names.len() == 2 && names[0] < names[1]));
            assert!(found.iter().all(|names| (names[0].1, names[1].1) == (2, 0)));
            sizes.push(found.len());
        }
        assert_eq!(sizes.iter().sum::<usize>(), 100);
        assert!(sizes.iter().all(|size| *size > 10), "{sizes:?}");
    }
}
