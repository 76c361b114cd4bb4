//! Tracks unflushed writes, so that `sync` makes them durable.
//!
//! SMB cannot flush a whole share; each file is flushed through a handle of its own ([MS-SMB2]
//! 2.2.17). So the tree remembers every file written since its last flush and follows its renames.
//! `sync` flushes each: open files through their handles, closed ones by opening them again.
//!
//! A flush does not make a later rename durable: a server that loses power may come back with the
//! old name. So the tree also remembers the folders in which names or attributes changed, and
//! `sync` flushes these ([MS-SMB2] 3.3.5.11 does not exclude directories; Samba and `ropeway serve`
//! call fsync on them).

use std::collections::{BTreeSet, HashMap};

use futures_util::StreamExt as _;
use parking_lot::{Mutex, MutexGuard};
use ropeway_vfs::{ErrorKind, Op, RelPath, Result};

use super::errors::with_message;

/// Maximum number of files remembered: bounds memory.
const FILES_MAX: usize = 100_000;

/// Maximum number of folders remembered; with more, the topmost one stands for all. On file systems
/// with one journal (ext4, XFS, NTFS) flushing any folder makes all earlier changes of names
/// durable.
const FOLDERS_MAX: usize = 1024;

/// The number of a remembered file.
pub(crate) type Ticket = u64;

#[derive(Default)]
struct Files {
    next: Ticket,
    paths: HashMap<Ticket, RelPath>,
    /// The same by path, so that a rename finds what lies beneath.
    tickets: BTreeSet<(RelPath, Ticket)>,
    /// Whether more files were written than can be remembered.
    forgotten: bool,
}

impl Files {
    fn remove(&mut self, ticket: Ticket) -> Option<RelPath> {
        let path = self.paths.remove(&ticket)?;
        self.tickets.remove(&(path.clone(), ticket));
        Some(path)
    }

    /// Returns the files at a path.
    fn at(&self, path: &RelPath) -> impl Iterator<Item = Ticket> {
        let range = self
            .tickets
            .range((path.clone(), 0)..=(path.clone(), Ticket::MAX));
        range.map(|(_, ticket)| *ticket)
    }

    /// Returns the files at a path and beneath it.
    fn beneath(&self, path: &RelPath) -> Vec<Ticket> {
        let from = self.tickets.range((path.clone(), 0)..);
        // Names like `a-b` sort between `a` and `a/b`.
        from.take_while(|(at, _)| at.as_bytes().starts_with(path.as_bytes()))
            .filter(|(at, _)| at.strip_prefix(path).is_some())
            .map(|(_, ticket)| *ticket)
            .collect()
    }
}

/// The files with unflushed writes.
#[derive(Default)]
pub struct DirtyFiles(Mutex<Files>);

impl DirtyFiles {
    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.lock()
    }

    /// Remembers a file. Returns the ticket for [`clean`](Self::clean).
    pub fn add(&self, path: &RelPath) -> Ticket {
        let mut files = self.lock();
        files.next += 1;
        let ticket = files.next;
        if files.paths.len() < FILES_MAX {
            files.paths.insert(ticket, path.clone());
            files.tickets.insert((path.clone(), ticket));
        } else {
            files.forgotten = true;
        }
        ticket
    }

    /// Returns the number of files remembered.
    pub(crate) fn len(&self) -> usize {
        self.lock().paths.len()
    }

    /// Notes that a file was flushed.
    pub fn clean(&self, ticket: Ticket) {
        self.lock().remove(ticket);
    }

    /// Whether a file at this path waits for a flush, or may do so.
    pub(crate) fn holds(&self, path: &RelPath) -> bool {
        let files = self.lock();
        files.forgotten || files.at(path).next().is_some()
    }

    /// Returns the files at a path, for [`clean`](Self::clean) once they are removed: there may be a new one
    /// at the path then.
    pub(crate) fn at(&self, path: &RelPath) -> Vec<Ticket> {
        self.lock().at(path).collect()
    }

    /// Forgets a file that was removed.
    pub fn forget(&self, path: &RelPath) {
        self.at(path).into_iter().for_each(|ticket| self.clean(ticket));
    }

    /// Follows a rename of a node, and of all below it.
    pub fn renamed(&self, from: &RelPath, to: &RelPath) {
        let mut files = self.lock();
        for ticket in files.beneath(from) {
            let Some(path) = files.remove(ticket) else {
                continue;
            };
            let rest = path.strip_prefix(from).unwrap_or_default();
            let path = to.join_path(&rest);
            files.tickets.insert((path.clone(), ticket));
            files.paths.insert(ticket, path);
        }
    }

    /// Flushes each file by its path, at most `at_once` at a time.
    ///
    /// # Errors
    /// Files that could not be flushed stay remembered. Also fails once if more files were written
    /// without a flush than can be remembered.
    pub async fn flush_all<F>(&self, at_once: usize, flush: impl Fn(RelPath) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let (files, forgotten) = self.all();
        let flush = &flush;
        let flushes = files.into_iter().map(|(ticket, path)| async move {
            match flush(path).await {
                // It was removed meanwhile, so there is nothing to flush.
                Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::IsADirectory) => {}
                result => result?,
            }
            self.clean(ticket);
            Ok(())
        });
        let flushed: Vec<Result<()>> = futures_util::stream::iter(flushes)
            .buffer_unordered(at_once)
            .collect()
            .await;
        flushed.into_iter().collect::<Result<()>>()?;
        if forgotten {
            let sentence = "more files were written without a flush than can be tracked";
            return Err(with_message(
                Op::Sync,
                &RelPath::root(),
                ErrorKind::Other,
                sentence,
            ));
        }
        Ok(())
    }

    /// Returns the files to flush, and whether any were forgotten since the last call.
    fn all(&self) -> (Vec<(Ticket, RelPath)>, bool) {
        let mut files = self.lock();
        let forgotten = std::mem::take(&mut files.forgotten);
        let paths = files.paths.iter();
        (
            paths.map(|(ticket, path)| (*ticket, path.clone())).collect(),
            forgotten,
        )
    }
}

/// The parent folders of nodes whose names or attributes changed since the last flush.
#[derive(Default)]
pub(crate) struct ChangedFolders(Mutex<BTreeSet<RelPath>>);

impl ChangedFolders {
    /// Notes a change of a node: its name, its attributes or its content.
    pub(crate) fn add(&self, path: &RelPath) {
        let folder = path.parent().unwrap_or_default();
        let mut folders = self.0.lock();
        if folders.len() >= FOLDERS_MAX {
            folders.clear();
            folders.insert(RelPath::root());
        }
        folders.insert(folder);
    }

    /// Takes the folders to flush.
    pub(crate) fn take(&self) -> BTreeSet<RelPath> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Returns folders from [`take`](Self::take) that could not be flushed.
    pub(crate) fn put_back(&self, folders: BTreeSet<RelPath>) {
        self.0.lock().extend(folders);
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
        let dirty = DirtyFiles::default();
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

    /// Any sequence of changes agrees with a plain list.
    #[test]
    fn changes_agree_with_a_list() {
        let random_path = |random: &mut fastrand::Rng| {
            let depth = random.usize(1..4);
            let names: Vec<_> = (0..depth)
                .map(|_| ["a", "a-b", "b", "a.c"][random.usize(0..4)])
                .collect();
            path(&names.join("/"))
        };
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (dirty, mut list) = (DirtyFiles::default(), Vec::new());
            for _ in 0..60 {
                let (one, two) = (random_path(&mut random), random_path(&mut random));
                match random.u8(0..5) {
                    0 | 1 => list.push((dirty.add(&one), one)),
                    2 => {
                        dirty.forget(&one);
                        list.retain(|(_, at)| *at != one);
                    }
                    3 => {
                        dirty.renamed(&one, &two);
                        for (_, at) in &mut list {
                            if let Some(rest) = at.strip_prefix(&one) {
                                *at = two.join_path(&rest);
                            }
                        }
                    }
                    _ if list.is_empty() => {}
                    _ => dirty.clean(list.swap_remove(random.usize(0..list.len())).0),
                }
                let mut all = dirty.all().0;
                all.sort();
                list.sort();
                assert_eq!(all, list, "seed {seed}");
                assert_eq!(dirty.lock().tickets.len(), list.len());
            }
        }
    }

    #[test]
    fn an_overflow_is_reported_once() {
        let dirty = DirtyFiles::default();
        for number in 0..=FILES_MAX {
            dirty.add(&path(&number.to_string()));
        }
        let (files, forgotten) = dirty.all();
        assert!(forgotten && files.len() == FILES_MAX);
        assert!(!dirty.all().1);
    }

    #[test]
    fn folders_of_changed_names_are_bounded_and_kept_until_flushed() {
        let changed = ChangedFolders::default();
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
