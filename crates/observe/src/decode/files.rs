//! What is known of processes: their descriptors, folders and names.
//!
//! A descriptor refers to an open file, and several can refer to the same one (dup(2), fork(2)): they
//! share its position. [`OpenFiles`] holds each open file once and counts its descriptors.
//!
//! Bounds: at most [`OPEN_FILES_MAX`] open files and [`PROCESSES_MAX`] processes. Beyond, nothing new is
//! remembered, and questions go to the system.

use std::collections::HashMap;
use std::rc::Rc;

/// Most open files that are remembered (a guess: some ten times the usual limit of the system).
const OPEN_FILES_MAX: usize = 1 << 20;
/// Most processes that are remembered: those of the largest machine (PID_MAX_LIMIT is 4 million, but
/// they do not run at once).
const PROCESSES_MAX: usize = 1 << 16;

/// What a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A file, folder, device or named pipe: something with a path.
    File,
    /// A pipe, socket, event counter: not recorded.
    Other,
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub(super) class: Class,
    pub(super) path: Rc<[u8]>,
    /// The position, while it is known.
    pub(super) position: Option<u64>,
    /// Whether writes go to the end.
    pub(super) appends: bool,
}

impl OpenFile {
    /// Something without a path.
    pub(super) fn other() -> Self {
        Self {
            class: Class::Other,
            path: Rc::from(&b""[..]),
            position: None,
            appends: false,
        }
    }
}

/// Number of an open file in [`OpenFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileNumber(u32);

/// All open files, with the number of descriptors that refer to each.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    slots: Vec<(u32, OpenFile)>,
    free: Vec<FileNumber>,
}

impl OpenFiles {
    fn add(&mut self, file: OpenFile) -> Option<FileNumber> {
        if let Some(number) = self.free.pop() {
            self.slots[number.0 as usize] = (1, file);
            return Some(number);
        }
        if self.slots.len() >= OPEN_FILES_MAX {
            return None;
        }
        self.slots.push((1, file));
        Some(FileNumber(self.slots.len() as u32 - 1))
    }

    fn share(&mut self, number: FileNumber) {
        self.slots[number.0 as usize].0 += 1;
    }

    fn release(&mut self, number: FileNumber) {
        let slot = &mut self.slots[number.0 as usize];
        slot.0 -= 1;
        if slot.0 == 0 {
            slot.1 = OpenFile::other();
            self.free.push(number);
        }
    }

    /// Returns an open file.
    pub(super) fn get(&self, number: FileNumber) -> &OpenFile {
        &self.slots[number.0 as usize].1
    }

    /// Returns an open file to change it.
    pub(super) fn get_mut(&mut self, number: FileNumber) -> &mut OpenFile {
        &mut self.slots[number.0 as usize].1
    }
}

/// A descriptor: what it refers to, and whether it is closed when another program is executed.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    file: FileNumber,
    closes_on_execute: bool,
}

/// One process.
#[derive(Debug, Default)]
pub(super) struct Process {
    descriptors: HashMap<i32, Descriptor>,
    /// The current folder, once it is known.
    pub(super) folder: Option<Rc<[u8]>>,
    /// Name of its program.
    pub(super) program: Option<Rc<[u8]>>,
    /// What an execve(2) under way was called with.
    pub(super) executing: Option<Rc<[u8]>>,
    /// Threads that are known to run.
    threads: u32,
}

/// All processes and open files.
#[derive(Debug, Default)]
pub(super) struct Processes {
    pub(super) files: OpenFiles,
    by_number: HashMap<u32, Process>,
}

impl Processes {
    /// Returns a process, known or new.
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Process {
        if self.by_number.len() >= PROCESSES_MAX && !self.by_number.contains_key(&number) {
            // Their ends were lost. Everything is asked for again.
            self.forget_all();
        }
        self.by_number.entry(number).or_default()
    }

    /// Returns a process, if it is known.
    pub(super) fn get(&self, number: u32) -> Option<&Process> {
        self.by_number.get(&number)
    }

    fn forget_all(&mut self) {
        self.by_number.clear();
        self.files = OpenFiles::default();
    }

    /// Returns what a descriptor refers to, if that is known.
    pub(super) fn file(&self, process: u32, descriptor: i32) -> Option<FileNumber> {
        let process = self.by_number.get(&process)?;
        process.descriptors.get(&descriptor).map(|found| found.file)
    }

    /// A descriptor refers to a newly opened file.
    pub(super) fn open(&mut self, process: u32, descriptor: i32, file: OpenFile, closes_on_execute: bool) {
        self.close(process, descriptor);
        let Some(file) = self.files.add(file) else {
            return;
        };
        let new = Descriptor {
            file,
            closes_on_execute,
        };
        self.get_mut(process).descriptors.insert(descriptor, new);
    }

    /// A descriptor is closed.
    pub(super) fn close(&mut self, process: u32, descriptor: i32) {
        let process = self.by_number.get_mut(&process);
        if let Some(closed) = process.and_then(|process| process.descriptors.remove(&descriptor)) {
            self.files.release(closed.file);
        }
    }

    /// All descriptors of a range are closed, or marked to be closed on execute.
    pub(super) fn close_range(&mut self, process: u32, first: u32, last: u32, only_mark: bool) {
        let Some(found) = self.by_number.get_mut(&process) else {
            return;
        };
        let within = |number: &i32| (first..=last).contains(&number.cast_unsigned());
        if only_mark {
            for (_, descriptor) in found.descriptors.iter_mut().filter(|(number, _)| within(number)) {
                descriptor.closes_on_execute = true;
            }
            return;
        }
        let numbers: Vec<i32> = found.descriptors.keys().copied().filter(within).collect();
        for number in numbers {
            self.close(process, number);
        }
    }

    /// A descriptor refers to the same open file as another one from now on.
    pub(super) fn duplicate(&mut self, process: u32, from: i32, to: i32, closes_on_execute: bool) {
        if from == to {
            return;
        }
        let Some(file) = self.file(process, from) else {
            // Not known: the new one is asked for when it is used.
            self.close(process, to);
            return;
        };
        self.files.share(file);
        self.close(process, to);
        let new = Descriptor {
            file,
            closes_on_execute,
        };
        self.get_mut(process).descriptors.insert(to, new);
    }

    /// Sets whether a descriptor is closed when another program is executed.
    pub(super) fn set_closes_on_execute(&mut self, process: u32, descriptor: i32, closes: bool) {
        let process = self.by_number.get_mut(&process);
        if let Some(found) = process.and_then(|process| process.descriptors.get_mut(&descriptor)) {
            found.closes_on_execute = closes;
        }
    }

    /// A process or thread was made. A process has copies of everything.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        if parent == child {
            let process = self.get_mut(parent);
            process.threads = process.threads.saturating_add(1);
            return;
        }
        self.end(child);
        let copy = self.by_number.get(&parent).map(|parent| Process {
            descriptors: parent.descriptors.clone(),
            folder: parent.folder.clone(),
            program: parent.program.clone(),
            executing: None,
            threads: 0,
        });
        let copy = copy.unwrap_or_default();
        for descriptor in copy.descriptors.values() {
            self.files.share(descriptor.file);
        }
        *self.get_mut(child) = copy;
    }

    /// Another program runs in a process: the descriptors that ask for it are closed.
    pub(super) fn execute(&mut self, process: u32, program: &[u8]) {
        let found = self.get_mut(process);
        found.program = Some(Rc::from(program));
        found.threads = 0;
        let closed = found
            .descriptors
            .iter()
            .filter(|(_, descriptor)| descriptor.closes_on_execute);
        let closed: Vec<i32> = closed.map(|(number, _)| *number).collect();
        for number in closed {
            self.close(process, number);
        }
    }

    /// A thread has ended; with the last one its process.
    pub(super) fn exit(&mut self, process: u32) {
        match self.by_number.get_mut(&process) {
            Some(found) if found.threads > 0 => found.threads -= 1,
            _ => self.end(process),
        }
    }

    fn end(&mut self, process: u32) {
        let ended = self.by_number.remove(&process).unwrap_or_default();
        for descriptor in ended.descriptors.into_values() {
            self.files.release(descriptor.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(name: &str) -> OpenFile {
        OpenFile {
            class: Class::File,
            path: Rc::from(name.as_bytes()),
            position: Some(0),
            appends: false,
        }
    }

    #[test]
    fn duplicates_share_a_position_and_copies_survive_their_parent() {
        let mut processes = Processes::default();
        processes.open(1, 3, file("a"), false);
        processes.duplicate(1, 3, 4, true);
        processes.fork(1, 2);
        let shared = processes.file(2, 4).unwrap();
        processes.files.get_mut(shared).position = Some(9);
        let seen = processes.file(1, 3).unwrap();
        assert_eq!(processes.files.get(seen).position, Some(9));
        processes.exit(1);
        processes.execute(2, b"other");
        assert!(processes.file(2, 4).is_none(), "closed on execute");
        assert_eq!(&*processes.files.get(processes.file(2, 3).unwrap()).path, b"a");
        processes.exit(2);
        assert_eq!(processes.files.free.len(), 1);
    }

    #[test]
    fn a_process_lives_as_long_as_its_threads() {
        let mut processes = Processes::default();
        processes.open(1, 3, file("a"), false);
        processes.fork(1, 1);
        processes.exit(1);
        assert!(processes.file(1, 3).is_some());
        processes.exit(1);
        assert!(processes.file(1, 3).is_none());
    }

    proptest! {
        #[test]
        fn no_open_file_is_lost_or_counted_twice(
            steps in proptest::collection::vec((0_u8..7, 0_u32..4, 0_i32..4, 0_i32..4, any::<bool>()), 0..200),
        ) {
            let mut processes = Processes::default();
            for (step, process, one, two, flag) in steps {
                match step {
                    0 => processes.open(process, one, file("a"), flag),
                    1 => processes.close(process, one),
                    2 => processes.duplicate(process, one, two, flag),
                    3 => processes.fork(process, one.cast_unsigned()),
                    4 => processes.execute(process, b"x"),
                    5 => processes.exit(process),
                    _ => processes.close_range(process, 1, two.cast_unsigned(), flag),
                }
                let mut counts = vec![0; processes.files.slots.len()];
                for process in processes.by_number.values() {
                    for descriptor in process.descriptors.values() {
                        counts[descriptor.file.0 as usize] += 1;
                    }
                }
                for (slot, count) in processes.files.slots.iter().zip(&counts) {
                    prop_assert_eq!(slot.0, *count);
                }
                let free = counts.iter().filter(|count| **count == 0).count();
                prop_assert_eq!(processes.files.free.len(), free);
            }
        }
    }
}
