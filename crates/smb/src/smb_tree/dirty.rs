//! What was written and not flushed: so that `sync` makes durable what it says.
//!
//! SMB has no flush of a share; each file is flushed by an open of its own ([MS-SMB2] 2.2.17). So the tree remembers
//! every file written since its last flush, follows its renames, and `sync` flushes each: those still open through
//! their handles, closed ones by opening them again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ropeway_vfs::RelPath;

/// Files remembered: a bound on memory and on the time that a rename takes to follow them.
const FILES_MAX: usize = 1024;

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
}
