//! Decides which files of a folder to read ahead of a program that reads one after the other, and
//! which folders to list. Pure.
//!
//! Programs take the files of a folder in the order of its listing, or of their numbers (`cp`,
//! `tar`).
//! Two files in one of these orders show a sequence: from then on the next ones are worth
//! reading. If the folder read before was a sequence, the first file of a folder is enough. The
//! same
//! holds for folders of a folder.
//!
//! Files are worth it only while the program reads them whole: one that looks at the beginning of
//! each (for its type, or a small picture) would wait for all the rest.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Kind, Name, RelPath};

use super::node_cache::Listed;

/// Folders followed. A guess: more than the programs that go through a share at the same time.
const FOLDERS_MAX: usize = 8;
/// Entries of a folder that is followed, at most: ordering more takes more than some milliseconds.
const ENTRIES_MAX: usize = 10_000;
/// Files that a program may leave out between two of a sequence. A guess.
const SKIPPED_MAX: usize = 3;

/// The orders: by listing and by number.
const ORDERS: usize = 2;

/// The folders whose files were opened last.
#[derive(Debug)]
pub(super) struct FolderAhead {
    /// Kind of the entries that matter.
    kind: Kind,
    /// The one used last at the end.
    folders: VecDeque<Folder>,
}

#[derive(Debug)]
struct Folder {
    dir: RelPath,
    listing: Listed,
    /// Indices of the files in the listing, in each order.
    orders: [Vec<usize>; ORDERS],
    /// Place of each file in each order.
    places: HashMap<Name, [usize; ORDERS]>,
    /// Place of the file opened last, and how often one followed the one before.
    last: [Option<usize>; ORDERS],
    runs: [usize; ORDERS],
    /// Whether the file read last was read whole.
    is_whole: bool,
    /// Whether files were read ahead in vain.
    is_slow: bool,
}

impl FolderAhead {
    /// Follows the entries of a kind.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            folders: VecDeque::new(),
        }
    }

    /// Takes the open of a file to read it, or the listing of a folder. Returns the files that
    /// will probably be opened next, at
    /// most `most`, in order.
    pub(super) fn on_open(
        &mut self,
        dir: &RelPath,
        listing: &Listed,
        name: &Name,
        most: usize,
    ) -> Vec<(Name, NodeStat)> {
        if listing.len() > ENTRIES_MAX {
            return Vec::new();
        }
        let last = self.folders.back();
        let before = last.map_or([0; ORDERS], |folder| folder.runs);
        let is_whole =
            self.kind == Kind::Directory || last.is_some_and(|folder| folder.is_whole && !folder.is_slow);
        let known = self.folders.iter().position(|folder| folder.dir == *dir);
        let known = known.and_then(|at| self.folders.remove(at));
        let mut folder = match known {
            Some(folder) if Arc::ptr_eq(&folder.listing, listing) => folder,
            _ => Folder {
                is_whole,
                ..Folder::new(dir, listing, self.kind)
            },
        };
        let most = if folder.is_whole && !folder.is_slow {
            most
        } else {
            0
        };
        let found = folder.on_open(name, &before, most);
        if self.folders.len() == FOLDERS_MAX {
            self.folders.pop_front();
        }
        self.folders.push_back(folder);
        found
    }

    /// Returns the files that will probably be opened after `name`, the one opened last in its
    /// folder, at most `most`, in order.
    pub(super) fn after(&self, dir: &RelPath, name: &Name, most: usize) -> Vec<(Name, NodeStat)> {
        let folder = self.folders.iter().find(|folder| folder.dir == *dir);
        let folder = folder.filter(|folder| folder.is_whole && !folder.is_slow);
        folder.map_or_else(Vec::new, |folder| folder.after(name, most))
    }

    /// Notes that files of a folder were read ahead and not opened in time. They would be read
    /// again
    /// and again, so this does not happen there any more. The folder after it begins anew.
    pub(super) fn on_unused(&mut self, dir: &RelPath) {
        if let Some(folder) = self.folders.iter_mut().find(|folder| folder.dir == *dir) {
            folder.is_slow = true;
        }
    }

    /// Notes whether a program has read a file of a folder whole.
    pub(super) fn on_read(&mut self, dir: &RelPath, is_whole: bool) {
        if let Some(folder) = self.folders.iter_mut().find(|folder| folder.dir == *dir) {
            folder.is_whole = is_whole;
        }
    }
}

impl Folder {
    fn new(dir: &RelPath, listing: &Listed, kind: Kind) -> Self {
        let is_file = |at: &usize| listing[*at].1.kind == kind;
        let by_listing: Vec<usize> = (0..listing.len()).filter(is_file).collect();
        let mut by_number = by_listing.clone();
        by_number.sort_by_key(|at| listing[*at].1.id.index);
        let mut places: HashMap<Name, [usize; ORDERS]> = HashMap::with_capacity(by_listing.len());
        for (order, files) in [&by_listing, &by_number].into_iter().enumerate() {
            for (place, at) in files.iter().enumerate() {
                places.entry(listing[*at].0.clone()).or_default()[order] = place;
            }
        }
        Self {
            dir: dir.clone(),
            listing: Arc::clone(listing),
            orders: [by_listing, by_number],
            places,
            last: [None; ORDERS],
            runs: [0; ORDERS],
            is_whole: false,
            is_slow: false,
        }
    }

    /// `before` are the runs of the folder used before.
    fn on_open(&mut self, name: &Name, before: &[usize; ORDERS], most: usize) -> Vec<(Name, NodeStat)> {
        let Some(places) = self.places.get(name) else {
            return Vec::new();
        };
        for (order, place) in places.iter().enumerate() {
            let follows = match self.last[order] {
                // Opened again.
                Some(last) if last == *place => continue,
                Some(last) => last < *place && *place - last <= 1 + SKIPPED_MAX,
                None => *place == 0 && before[order] > 1,
            };
            self.runs[order] = if follows { self.runs[order] + 1 } else { 0 };
            self.last[order] = Some(*place);
        }
        self.after(name, most)
    }

    /// Returns the files that follow the one opened last, if that is `name` and there is a sequence.
    fn after(&self, name: &Name, most: usize) -> Vec<(Name, NodeStat)> {
        let longest = if self.runs[1] > self.runs[0] { 1 } else { 0 };
        let place = self.places.get(name).map(|places| places[longest]);
        let Some(place) = place.filter(|place| self.last[longest] == Some(*place)) else {
            return Vec::new();
        };
        if self.runs[longest] == 0 {
            return Vec::new();
        }
        let next = self.orders[longest].iter().skip(place + 1).take(most);
        next.map(|at| self.listing[*at].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::{FileId, Owner, Timestamp};

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn dir(text: &str) -> RelPath {
        RelPath::root().join(&name(text))
    }

    /// Files `a`, `b`, … whose numbers are given.
    fn listing(numbers: &[u64]) -> Listed {
        let entries = numbers.iter().enumerate().map(|(at, index)| {
            let stat = NodeStat {
                kind: if *index == 0 { Kind::Directory } else { Kind::File },
                size: 1,
                allocated: 1,
                links: 1,
                id: FileId {
                    volume: 1,
                    index: *index,
                },
                mode: 0o644,
                owner: Owner { user: 0, group: 0 },
                created: Timestamp::default(),
                accessed: Timestamp::default(),
                modified: Timestamp::default(),
                changed: Timestamp::default(),
                dos_attributes: None,
            };
            (name(&char::from(b'a' + at as u8).to_string()), stat)
        });
        Arc::new(entries.collect())
    }

    fn opened(ahead: &mut FolderAhead, at: &str, listing: &Listed, file: &str) -> String {
        let found = ahead.on_open(&dir(at), listing, &name(file), 3);
        ahead.on_read(&dir(at), true);
        let names = found.iter().map(|(name, _)| name.to_string());
        names.collect()
    }

    #[test]
    fn the_second_file_in_order_shows_a_sequence() {
        let files = listing(&[1, 2, 3, 4, 0, 6, 7]);
        let mut ahead = FolderAhead::new(Kind::File);
        assert_eq!(opened(&mut ahead, "x", &files, "a"), "");
        assert_eq!(opened(&mut ahead, "x", &files, "b"), "cdf", "no folder");
        assert_eq!(opened(&mut ahead, "x", &files, "b"), "cdf", "opened twice");
        assert_eq!(opened(&mut ahead, "x", &files, "d"), "fg", "one was left out");
        assert_eq!(opened(&mut ahead, "x", &files, "a"), "", "back");
        assert_eq!(opened(&mut ahead, "x", &files, "e"), "", "a folder");
    }

    #[test]
    fn only_the_file_opened_last_in_a_sequence_has_files_after_it() {
        let files = listing(&[1, 2, 3, 4, 5]);
        let mut ahead = FolderAhead::new(Kind::File);
        let after = |ahead: &FolderAhead, file: &str| {
            let found = ahead.after(&dir("x"), &name(file), 2);
            found.iter().map(|(name, _)| name.to_string()).collect::<String>()
        };
        assert_eq!(after(&ahead, "a"), "", "an unknown folder");
        opened(&mut ahead, "x", &files, "a");
        assert_eq!(after(&ahead, "a"), "", "no sequence yet");
        opened(&mut ahead, "x", &files, "b");
        assert_eq!(after(&ahead, "b"), "cd");
        assert_eq!(after(&ahead, "a"), "", "not the last");
        assert_eq!(after(&ahead, "z"), "", "no such file");
        ahead.on_read(&dir("x"), false);
        assert_eq!(after(&ahead, "b"), "", "not read whole");
        ahead.on_read(&dir("x"), true);
        ahead.on_unused(&dir("x"));
        assert_eq!(after(&ahead, "b"), "", "read ahead in vain");
    }

    #[test]
    fn files_may_come_by_their_numbers() {
        let files = listing(&[50, 10, 40, 20, 30]);
        let mut ahead = FolderAhead::new(Kind::File);
        assert_eq!(opened(&mut ahead, "x", &files, "b"), "");
        // Both orders fit so far, then only one.
        assert_eq!(opened(&mut ahead, "x", &files, "d"), "e");
        assert_eq!(opened(&mut ahead, "x", &files, "e"), "");
        assert_eq!(opened(&mut ahead, "x", &files, "c"), "a");
    }

    #[test]
    fn the_first_file_is_enough_after_a_folder_that_was_a_sequence() {
        let files = listing(&[1, 2, 3]);
        let mut ahead = FolderAhead::new(Kind::File);
        assert_eq!(opened(&mut ahead, "x", &files, "a"), "");
        assert_eq!(opened(&mut ahead, "y", &files, "a"), "");
        for file in ["b", "c"] {
            opened(&mut ahead, "y", &files, file);
        }
        assert_eq!(opened(&mut ahead, "z", &files, "a"), "bc");
        // A new listing begins anew.
        assert_eq!(opened(&mut ahead, "x", &listing(&[1, 2]), "b"), "");
    }

    /// A program that looks at the beginning of each file, in order.
    #[test]
    fn files_that_are_not_read_whole_cause_nothing() {
        let files = listing(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut ahead = FolderAhead::new(Kind::File);
        let next = |ahead: &mut FolderAhead, at: &str, file: &str| {
            ahead.on_open(&dir(at), &files, &name(file), 3).len()
        };
        for file in ["a", "b", "c"] {
            assert_eq!(next(&mut ahead, "x", file), 0);
            ahead.on_read(&dir("x"), false);
        }
        ahead.on_read(&dir("x"), true);
        assert_eq!(next(&mut ahead, "x", "d"), 3, "one was");
        assert_eq!(next(&mut ahead, "y", "a"), 3, "so was that of the folder before");
        ahead.on_read(&dir("y"), false);
        assert_eq!(next(&mut ahead, "y", "b"), 0, "this one not");
    }

    /// Somebody who looks at pictures, one a minute.
    #[test]
    fn a_folder_whose_files_were_read_ahead_in_vain_is_given_up() {
        let files = listing(&[1, 2, 3, 4, 5]);
        let mut ahead = FolderAhead::new(Kind::File);
        assert_eq!(opened(&mut ahead, "x", &files, "a"), "");
        assert_eq!(opened(&mut ahead, "x", &files, "b"), "cde");
        ahead.on_unused(&dir("x"));
        assert_eq!(opened(&mut ahead, "x", &files, "c"), "");
        assert_eq!(opened(&mut ahead, "x", &files, "d"), "");
        assert_eq!(opened(&mut ahead, "y", &files, "a"), "", "the folder after it");
        assert_eq!(opened(&mut ahead, "y", &files, "b"), "cde");
    }

    #[test]
    fn random_files_cause_nothing_and_folders_are_bounded() {
        let numbers: Vec<u64> = (1..100).collect();
        let names: Vec<Name> = (0..99).map(|at| name(&format!("{at}"))).collect();
        let files = listing(&numbers);
        let entries = files
            .iter()
            .zip(&names)
            .map(|((_, stat), name)| (name.clone(), *stat));
        let files: Listed = Arc::new(entries.collect());
        let mut ahead = FolderAhead::new(Kind::File);
        for round in 0..50 {
            let file = &names[(round * 37) % 99];
            let at = dir(&format!("{}", round % 20));
            assert_eq!(ahead.on_open(&at, &files, file, 9), []);
            ahead.on_read(&at, true);
        }
        assert_eq!(ahead.folders.len(), FOLDERS_MAX);
    }
}
