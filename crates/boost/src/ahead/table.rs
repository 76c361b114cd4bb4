//! The numbers that predictions give to files. Pure, and bounded.

use std::collections::HashMap;

use ropeway_cache::FileKey;
use ropeway_vfs::RelPath;

/// Files looked at to find one that gives its number up. A guess: nearly the least recently used.
const LOOKED_AT: usize = 16;

/// A file that predictions know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) key: FileKey,
    /// Where it was opened last.
    pub(super) path: RelPath,
    /// Blocks that were asked for: up to the last one.
    pub(super) blocks: u64,
    used: u64,
}

/// A number that was taken from a file: what was learned of it has to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) number: u32,
    pub(super) blocks: u64,
}

/// The files by number.
#[derive(Debug)]
pub(super) struct Table {
    files: Vec<Known>,
    numbers: HashMap<FileKey, u32>,
    files_max: usize,
    hand: usize,
    uses: u64,
}

impl Table {
    /// Makes a table for so many files, at least one.
    pub(super) fn new(files_max: usize) -> Self {
        Self {
            files: Vec::new(),
            numbers: HashMap::new(),
            files_max: files_max.max(1),
            hand: 0,
            uses: 0,
        }
    }

    /// Returns the number of a file, and what has to be forgotten for that.
    pub(super) fn number(&mut self, key: FileKey, path: &RelPath) -> (u32, Option<Taken>) {
        self.uses += 1;
        if let Some(number) = self.numbers.get(&key).copied() {
            let file = &mut self.files[number as usize];
            file.used = self.uses;
            if file.path != *path {
                file.path = path.clone();
            }
            return (number, None);
        }
        let known = Known {
            key,
            path: path.clone(),
            blocks: 0,
            used: self.uses,
        };
        if self.files.len() < self.files_max {
            // The bound fits into 32 bits: a number of predictions has 24.
            let number = self.files.len() as u32;
            self.files.push(known);
            self.numbers.insert(key, number);
            return (number, None);
        }
        let candidates = (0..LOOKED_AT).map(|step| (self.hand + step) % self.files.len());
        let oldest = candidates
            .min_by_key(|place| self.files[*place].used)
            .unwrap_or(0);
        self.hand = (self.hand + LOOKED_AT) % self.files.len();
        let before = std::mem::replace(&mut self.files[oldest], known);
        self.numbers.remove(&before.key);
        let number = oldest as u32;
        self.numbers.insert(key, number);
        let taken = Taken {
            number,
            blocks: before.blocks,
        };
        (number, Some(taken))
    }

    /// Notes that a block of a file was asked for.
    pub(super) fn asked(&mut self, number: u32, block: u64) {
        if let Some(file) = self.files.get_mut(number as usize) {
            file.blocks = file.blocks.max(block.saturating_add(1));
        }
    }

    /// Returns a file by its number.
    pub(super) fn get(&self, number: u32) -> Option<&Known> {
        self.files.get(number as usize)
    }

    /// Returns all files in the order of their numbers.
    pub(super) fn files(&self) -> &[Known] {
        &self.files
    }

    /// Adds a file that was saved, with the next number. Returns whether it is possible.
    pub(super) fn load(&mut self, key: FileKey, path: RelPath, blocks: u64) -> bool {
        if self.files.len() >= self.files_max || self.numbers.contains_key(&key) {
            return false;
        }
        self.numbers.insert(key, self.files.len() as u32);
        self.files.push(Known {
            key,
            path,
            blocks,
            used: 0,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(file: u128) -> FileKey {
        FileKey {
            share: [1; 16],
            volume: 2,
            file,
        }
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_file_keeps_its_number_and_has_the_path_of_its_last_opening() {
        let mut table = Table::new(9);
        assert_eq!(table.number(key(7), &path("a")), (0, None));
        assert_eq!(table.number(key(8), &path("b")), (1, None));
        assert_eq!(table.number(key(7), &path("c")), (0, None));
        table.asked(0, 4);
        table.asked(0, 2);
        let known = table.get(0).unwrap();
        assert_eq!((known.path.clone(), known.blocks), (path("c"), 5));
        assert_eq!(
            (table.numbers.get(&key(8)), table.numbers.get(&key(9))),
            (Some(&1), None)
        );
        table.asked(77, 1);
        assert_eq!(table.get(77), None);
    }

    #[test]
    fn a_full_table_takes_the_number_of_a_file_that_was_not_used_for_long() {
        let mut table = Table::new(4);
        for file in 0..4 {
            table.number(key(file), &path("f"));
            table.asked(file as u32, file as u64);
        }
        table.number(key(0), &path("f"));
        let (number, taken) = table.number(key(9), &path("g"));
        assert_eq!((number, taken), (1, Some(Taken { number: 1, blocks: 2 })));
        assert_eq!(table.numbers.get(&key(1)), None);
        assert_eq!(table.files().len(), 4);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let file = random.u128(0..40);
            let (number, _) = table.number(key(file), &path("x"));
            assert_eq!(table.get(number).unwrap().key, key(file));
            assert_eq!(table.numbers.len(), table.files.len());
        }
    }
}
