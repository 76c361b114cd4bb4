//! Which file a program opens next: recent popularity, two candidates.
//!
//! A file's successor depends on the program (a compiler and a backup read the same files in other
//! orders), so entries are found by the program's name and the file. Two candidates are kept, each
//! with a score: with each opening both lose a quarter, and the one that came gains 64. A candidate
//! is predicted once it came twice in a short time, as with Noah (Amer and Long, IPCCC '01);
//! the score is the share of recent openings (Recent Popularity: Amer et al., ICDCS '02).
//!
//! A process that opens files in a known order is taken to go on with it: once [`FOLLOWED`] files in
//! a row came as expected, a candidate is predicted that came only once. So an order is worth
//! something the second time it comes.

use crate::predict::block::FILES_MAX;
use crate::table::mix;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 16;
/// Entries in a bucket.
const WAYS: usize = 4;
/// Processes whose last file is remembered. A guess: programs that run at once.
const PROCESSES_MAX: usize = 64;
/// Score of a candidate that came once.
const ONCE: u8 = 64;
/// Least score of a prediction: two of the last three openings have at least 100.
const PREDICTED: u8 = 96;
/// The same for a process that follows a known order: what came once, even if another came since.
const PREDICTED_FOLLOWING: u8 = 40;
/// Files in a row that came as expected, after which a process follows a known order. A guess.
const FOLLOWED: u8 = 2;
/// Likelihood that such a process opens the only file that ever came next. A guess: four files ahead
/// are still likelier than not to be opened soon.
const FOLLOWS: f32 = 0.8;
/// Stands for "no file": what a process opens first follows it.
const START: u32 = FILES_MAX;
/// Marks a free candidate.
const NONE: u32 = u32::MAX;

/// Who opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// A hash of the program's name: what is learned is kept by it.
    pub name: u64,
    /// The process: its openings form one sequence.
    pub pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: u32,
    files: [u32; 2],
    scores: [u8; 2],
}

const EMPTY: Entry = Entry {
    key: 0,
    files: [NONE; 2],
    scores: [0; 2],
};

#[derive(Clone, Copy, Debug)]
struct Process {
    program: Program,
    last: u32,
    /// Files in a row that came as expected.
    followed: u8,
}

/// The successors of files.
#[derive(Debug)]
pub struct Successors {
    entries: Vec<Entry>,
    /// The one that opened a file last is at the end.
    processes: Vec<Process>,
}

impl Successors {
    /// Makes a table for so many entries, and at least one bucket.
    pub(super) fn new(entries: usize) -> Self {
        Self {
            entries: vec![EMPTY; (entries / WAYS).max(1) * WAYS],
            processes: Vec::with_capacity(PROCESSES_MAX),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.processes.capacity() * size_of::<Process>()
    }

    /// A program opens a file. Returns the files that it will probably open next, likeliest first,
    /// with their likelihood.
    pub fn opened(&mut self, program: Program, file: u32) -> impl Iterator<Item = (u32, f32)> + use<> {
        let place = self
            .processes
            .iter()
            .position(|process| process.program == program);
        let new = Process {
            program,
            last: START,
            followed: 0,
        };
        let mut process = place.map_or(new, |place| self.processes.remove(place));
        let last = process.last;
        if last != file {
            let entry = self.entry(program.name, last);
            let is_known = (0..2).any(|place| entry.files[place] == file);
            process.followed = if is_known {
                process.followed.saturating_add(1)
            } else {
                0
            };
        }
        process.last = file;
        if self.processes.len() == PROCESSES_MAX {
            self.processes.remove(0);
        }
        self.processes.push(process);
        if last != file && file < FILES_MAX {
            self.learn(program.name, last, file);
        }
        self.after(program, file)
    }

    /// A process has ended.
    pub fn ended(&mut self, pid: u32) {
        self.processes.retain(|process| process.program.pid != pid);
    }

    /// Returns the files that a program opens after a file, as [`opened`](Self::opened) does.
    pub fn after(&self, program: Program, file: u32) -> impl Iterator<Item = (u32, f32)> + use<> {
        let mut known = self.processes.iter();
        let process = known.find(|process| process.program == program);
        let is_following = process.is_some_and(|process| process.followed >= FOLLOWED);
        self.successors(program.name, file, is_following)
    }

    /// Returns the files that a program opens first.
    pub fn first(&self, name: u64) -> impl Iterator<Item = (u32, f32)> + use<> {
        self.successors(name, START, false)
    }

    fn entry(&self, name: u64, file: u32) -> Entry {
        let (bucket, key) = self.place(name, file);
        let mut found = self.entries[bucket..bucket + WAYS].iter();
        found.find(|entry| entry.key == key).copied().unwrap_or(EMPTY)
    }

    fn successors(
        &self,
        name: u64,
        file: u32,
        is_following: bool,
    ) -> impl Iterator<Item = (u32, f32)> + use<> {
        let entry = self.entry(name, file);
        let sum: f32 = entry.scores.iter().copied().map(f32::from).sum();
        let (least, follows) = match is_following {
            true => (PREDICTED_FOLLOWING, FOLLOWS / sum.max(1.0)),
            false => (PREDICTED, 0.0),
        };
        let mut order = [
            (entry.files[0], entry.scores[0]),
            (entry.files[1], entry.scores[1]),
        ];
        order.sort_by_key(|(_, score)| std::cmp::Reverse(*score));
        order
            .into_iter()
            .filter(move |(_, score)| *score >= least)
            .map(move |(file, score)| {
                let score = f32::from(score);
                (file, (score / 255.0).max(score * follows))
            })
    }

    fn place(&self, name: u64, file: u32) -> (usize, u32) {
        let mixed = mix(name ^ mix(u64::from(file)));
        let buckets = (self.entries.len() / WAYS) as u64;
        let bucket = ((mixed >> 32) * buckets) >> 32;
        // 0 marks an empty entry.
        (bucket as usize * WAYS, (mixed as u32).max(1))
    }

    fn learn(&mut self, name: u64, file: u32, next: u32) {
        let (bucket, key) = self.place(name, file);
        let bucket = &mut self.entries[bucket..bucket + WAYS];
        if !bucket.iter().any(|entry| entry.key == key) {
            // Newcomers wear the others out, so an entry that is not used leaves in time.
            for entry in bucket.iter_mut() {
                entry.scores = entry.scores.map(|score| score - score / 16);
            }
            let weakest = bucket
                .iter_mut()
                .min_by_key(|entry| entry.scores[0].max(entry.scores[1]));
            *weakest.expect("a bucket has entries") = Entry { key, ..EMPTY };
        }
        let entry = bucket.iter_mut().find(|entry| entry.key == key);
        entry.expect("found or added").came(next);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.fill(EMPTY);
        self.processes.clear();
    }

    /// Forgets a file: as a successor, and what follows it for the programs in `names`.
    pub(super) fn forget_file(&mut self, file: u32, names: &[u64]) {
        for entry in &mut self.entries {
            for place in 0..2 {
                if entry.files[place] == file {
                    (entry.files[place], entry.scores[place]) = (NONE, 0);
                }
            }
            if entry.files == EMPTY.files {
                *entry = EMPTY;
            }
        }
        for name in names {
            let (bucket, key) = self.place(*name, file);
            for entry in &mut self.entries[bucket..bucket + WAYS] {
                if entry.key == key {
                    *entry = EMPTY;
                }
            }
        }
        self.processes.retain(|process| process.last != file);
    }

    /// Returns after how many files of a program another one is expected.
    pub(super) fn count(&self) -> usize {
        let is_expected = |entry: &&Entry| entry.scores.iter().any(|score| *score >= PREDICTED);
        self.entries.iter().filter(is_expected).count()
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries as they are saved.
    pub(super) fn save(&self) -> impl Iterator<Item = [u8; ENTRY_BYTES]> + '_ {
        self.entries.iter().map(|entry| {
            let mut bytes = [0; ENTRY_BYTES];
            bytes[..4].copy_from_slice(&entry.key.to_le_bytes());
            bytes[4..8].copy_from_slice(&entry.files[0].to_le_bytes());
            bytes[8..12].copy_from_slice(&entry.files[1].to_le_bytes());
            bytes[12..14].copy_from_slice(&entry.scores);
            bytes
        })
    }

    /// Sets an entry as it was saved. Returns whether it is possible.
    pub(super) fn load(&mut self, place: usize, bytes: &[u8; ENTRY_BYTES]) -> bool {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let entry = Entry {
            key: number(0),
            files: [number(4), number(8)],
            scores: [bytes[12], bytes[13]],
        };
        let is_file = |file: u32, score: u8| file < FILES_MAX || (file == NONE && score == 0);
        let is_possible = (0..2).all(|place| is_file(entry.files[place], entry.scores[place]))
            && (entry.key != 0 || entry == EMPTY)
            && bytes[14..] == [0, 0];
        if is_possible {
            self.entries[place] = entry;
        }
        is_possible
    }
}

impl Entry {
    /// Notes the file that came.
    fn came(&mut self, next: u32) {
        self.scores = self.scores.map(|score| score - score / 4);
        let weaker = usize::from(self.scores[1] <= self.scores[0]);
        let place = (0..2)
            .find(|place| self.files[*place] == next)
            .unwrap_or_else(|| {
                (self.files[weaker], self.scores[weaker]) = (next, 0);
                weaker
            });
        self.scores[place] = self.scores[place].saturating_add(ONCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: u64, pid: u32) -> Program {
        Program { name, pid }
    }

    fn files(found: impl Iterator<Item = (u32, f32)>) -> Vec<u32> {
        found.map(|(file, _)| file).collect()
    }

    #[test]
    fn a_file_that_came_twice_is_predicted_for_that_program_only() {
        let mut successors = Successors::new(256);
        for pid in 1..3 {
            assert_eq!(successors.first(7).count(), 0);
            for file in [10, 20] {
                assert_eq!(successors.opened(program(7, pid), file).count(), 0);
            }
        }
        assert_eq!(files(successors.first(7)), [10]);
        assert_eq!(files(successors.opened(program(7, 3), 10)), [20]);
        assert_eq!(files(successors.opened(program(8, 4), 10)), []);
    }

    #[test]
    fn a_process_that_follows_a_known_order_is_expected_to_go_on_the_second_time() {
        let mut successors = Successors::new(256);
        let mut predicted = |pid: u32, order: &[u32]| -> Vec<Vec<u32>> {
            let opened = order.iter();
            opened
                .map(|file| files(successors.opened(program(7, pid), *file)))
                .collect()
        };
        assert!(predicted(1, &[1, 2, 3, 4, 5]).iter().all(Vec::is_empty));
        // The first file and its successor are as expected.
        assert_eq!(
            predicted(2, &[1, 2, 9, 2, 3]),
            [vec![], vec![3], vec![], vec![], vec![]]
        );
        let likely = successors
            .opened(program(7, 3), 1)
            .chain(successors.opened(program(7, 3), 2));
        for (_, likelihood) in likely {
            assert!((0.0..=1.0).contains(&likelihood));
        }
    }

    #[test]
    fn two_processes_of_one_program_do_not_mix_their_sequences() {
        let mut successors = Successors::new(256);
        for round in 0..4 {
            let (one, other) = (program(7, 2 * round), program(7, 2 * round + 1));
            for file in 0..5 {
                successors.opened(one, 100 + file).for_each(drop);
                successors.opened(other, 200 + file).for_each(drop);
            }
        }
        assert_eq!(files(successors.opened(program(7, 90), 102)), [103]);
        assert_eq!(files(successors.opened(program(7, 91), 202)), [203]);
    }

    #[test]
    fn two_alternating_successors_are_both_kept_and_an_old_habit_gives_way() {
        let mut successors = Successors::new(64);
        let play = |successors: &mut Successors, pid: u32, next: u32| {
            successors.opened(program(1, pid), 1).for_each(drop);
            successors.opened(program(1, pid), next).for_each(drop);
        };
        for pid in 0..10 {
            play(&mut successors, pid, 2 + pid % 2);
        }
        let mut both = files(successors.opened(program(1, 99), 1));
        both.sort_unstable();
        assert_eq!(both, [2, 3]);
        for pid in 10..14 {
            play(&mut successors, pid, 9);
        }
        assert_eq!(files(successors.opened(program(1, 98), 1)), [9]);
    }

    #[test]
    fn a_forgotten_file_is_neither_successor_nor_predecessor() {
        let mut successors = Successors::new(64);
        for pid in 0..4 {
            for file in [1, 2, 3] {
                successors.opened(program(5, pid), file).for_each(drop);
            }
        }
        successors.forget_file(2, &[5]);
        assert_eq!(successors.opened(program(5, 9), 1).count(), 0);
        assert_eq!(successors.opened(program(5, 9), 2).count(), 0);
    }
}
