//! What was written and not flushed: so that `sync` makes durable what it says.
//!
//! SMB has no flush of a share; each file is flushed by an open of its own ([MS-SMB2] 2.2.17). So the tree remembers
//! every file written since its last flush, follows its renames, and `sync` flushes each: those still open through
//! their handles, closed ones by opening them again.
//!
//! A name that a file got after its flush is not durable with it: a server that loses power may come back with the old
//! name. So the tree remembers the folders in which names or attributes changed, too, and `sync` flushes these
//! ([MS-SMB2] 3.3.5.11 does not exclude directories; Samba and `ropeway serve` call fsync on them).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ropeway_vfs::RelPath;

/// Files remembered: a bound on memory and on the time that a rename takes to follow them.
const FILES_MAX: usize = 1024;

/// Folders remembered; with more the topmost one stands for all. On file systems with one journal for all (ext4, XFS,
/// NTFS) any of them makes all earlier changes of names durable.
const FOLDERS_MAX: usize = 1024;

/// Number of an entry.
pub(super) type Ticket = u64;

#[derive(Default)]
struct Files {
    next: Ticket,
    paths: HashMap<Ticket, RelPath>,
    /// More was written than can be remembered.
    forgotten: bool,
}

/// The files written and not flushed.
#[derive(Default)]
pub(super) struct Dirty(Mutex<Files>);

impl Dirty {
    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a file; the ticket is for [`clean`](Self::clean).
    pub(super) fn add(&self, path: &RelPath) -> Ticket {
        let mut files = self.lock();
        files.next += 1;
        let ticket = files.next;
        if files.paths.len() < FILES_MAX {
            files.paths.insert(ticket, path.clone());
        } else {
            files.forgotten = true;
        }
        ticket
    }

    /// It is flushed.
    pub(super) fn clean(&self, ticket: Ticket) {
        self.lock().paths.remove(&ticket);
    }

    /// A node, and all below it, is called otherwise now.
    pub(super) fn renamed(&self, from: &RelPath, to: &RelPath) {
        let mut files = self.lock();
        for path in files.paths.values_mut() {
            if let Some(rest) = path.strip_prefix(from) {
                *path = to.join_path(&rest);
            }
        }
    }

    /// What is to be flushed now, and whether more was forgotten.
    pub(super) fn all(&self) -> (Vec<(Ticket, RelPath)>, bool) {
        let mut files = self.lock();
        let forgotten = std::mem::take(&mut files.forgotten);
        let paths = files.paths.iter();
        (
            paths.map(|(ticket, path)| (*ticket, path.clone())).collect(),
            forgotten,
        )
    }
}

/// Nodes whose names or attributes changed since the last flush, by the folder that holds them.
#[derive(Default)]
pub(super) struct Changed(Mutex<BTreeSet<RelPath>>);

impl Changed {
    /// Something happened to this node: its name, its attributes, or what it holds.
    pub(super) fn add(&self, path: &RelPath) {
        let folder = path.parent().unwrap_or_default();
        let mut folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if folders.len() >= FOLDERS_MAX {
            folders.clear();
            folders.insert(RelPath::root());
        }
        folders.insert(folder);
    }

    /// The folders to flush, which are forgotten.
    pub(super) fn take(&self) -> BTreeSet<RelPath> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What [`take`](Self::take) gave was not flushed.
    pub(super) fn put_back(&self, folders: BTreeSet<RelPath>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(folders);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn renames_are_followed_and_flushed_files_forgotten() {
        let dirty = Dirty::default();
        let one = dirty.add(&path("dir/tmp"));
        dirty.add(&path("dir/other"));
        dirty.add(&path("dirt"));
        dirty.renamed(&path("dir/tmp"), &path("dir/final"));
        dirty.renamed(&path("dir"), &path("new"));
        dirty.clean(one);
        let (mut files, forgotten) = dirty.all();
        files.sort_by(|one, two| one.1.cmp(&two.1));
        let paths: Vec<_> = files.into_iter().map(|(_, path)| path.to_string()).collect();
        assert_eq!(paths, ["dirt", "new/other"]);
        assert!(!forgotten);
    }

    #[test]
    fn what_is_too_much_is_told_once() {
        let dirty = Dirty::default();
        for number in 0..=FILES_MAX {
            dirty.add(&path(&number.to_string()));
        }
        let (files, forgotten) = dirty.all();
        assert!(forgotten && files.len() == FILES_MAX);
        assert!(!dirty.all().1);
    }

    #[test]
    fn folders_of_changed_names_are_bounded_and_kept_until_flushed() {
        let changed = Changed::default();
        changed.add(&path("dir/file"));
        changed.add(&path("dir/other"));
        changed.add(&path("top"));
        let taken = changed.take();
        assert_eq!(taken.len(), 2);
        assert!(changed.take().is_empty());
        changed.put_back(taken);
        for number in 0..3 * FOLDERS_MAX {
            changed.add(&path(&format!("d{number}/file")));
        }
        let taken = changed.take();
        assert!(taken.len() <= FOLDERS_MAX && taken.contains(&RelPath::root()));
    }
}
