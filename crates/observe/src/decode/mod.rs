//! From system calls to operations on files: descriptors become paths, positions become offsets.
//!
//! [`Decoder`] follows what each process opens, duplicates and closes, so that it can name the file of
//! a call that has only a descriptor. It asks the system ([`System`]) only for what was there before:
//! descriptors that a program inherited, or got from others. It performs no I/O itself.

mod calls;
mod files;
mod memory;
mod path;

use std::rc::Rc;
use std::time::Duration;

use ropeway_vfs::trace::{By, Record};

use self::files::{Class, FileNumber, OpenFile, Processes};
use self::path::join;
use crate::call::{Captured, RawCall, RawEvent};
use crate::catalogue::Catalogue;

/// What can be asked about running processes; each answer is missing if the process has ended.
pub trait System {
    /// Returns what `/proc/PROCESS/fd/DESCRIPTOR` says: a path, or text such as `pipe:[12]`.
    fn descriptor(&self, process: u32, descriptor: i32) -> Option<Vec<u8>>;
    /// Returns position and flags (open(2)) of a descriptor.
    fn position(&self, process: u32, descriptor: i32) -> Option<(u64, u32)>;
    /// Returns the current folder.
    fn folder(&self, process: u32) -> Option<Vec<u8>>;
    /// Returns the name of the program.
    fn program(&self, process: u32) -> Option<Vec<u8>>;
}

/// The path of a node whose name no one knows.
const UNKNOWN: &[u8] = b"?";

/// Follows processes and decodes their calls.
#[derive(Debug)]
pub struct Decoder<S> {
    catalogue: Catalogue,
    system: S,
    processes: Processes,
    /// The trace's zero, by the clock of the calls.
    zero_ns: u64,
    rings: u64,
}

/// An operation before it is recorded.
struct Operation<'a> {
    kind: &'static str,
    path: &'a [u8],
    to: &'a [u8],
    offset: u64,
    length: u64,
    result: i64,
}

impl<'a> Operation<'a> {
    fn on(kind: &'static str, path: &'a [u8]) -> Self {
        Self {
            kind,
            path,
            to: &[],
            offset: 0,
            length: 0,
            result: 0,
        }
    }
}

/// Receives the operations.
pub type Sink<'s> = &'s mut dyn FnMut(Record<'_>);

impl<S: System> Decoder<S> {
    /// Makes a decoder. Times are counted from `zero_ns` (CLOCK_MONOTONIC).
    pub fn new(catalogue: Catalogue, system: S, zero_ns: u64) -> Self {
        Self {
            catalogue,
            system,
            processes: Processes::default(),
            zero_ns,
            rings: 0,
        }
    }

    /// Returns how many io_urings programs made.
    pub fn rings(&self) -> u64 {
        self.rings
    }

    /// A process runs already: it has this many threads, and these descriptors.
    pub fn attached(&mut self, process: u32, threads: u32, descriptors: &[i32]) {
        for _ in 1..threads {
            self.processes.fork(process, process);
        }
        for descriptor in descriptors {
            self.file(process, *descriptor);
        }
        self.folder(process);
        self.program(process);
    }

    /// Takes an event, and passes on the operation that it was, if it was one.
    pub fn take(&mut self, event: RawEvent<'_>, sink: Sink<'_>) {
        match event {
            RawEvent::Call(call) => self.call(&call, sink),
            RawEvent::Unfinished(mut call) => {
                call.result = -i64::from(libc::EINTR);
                self.call(&call, sink);
            }
            RawEvent::Entered(call) => self.entered(&call),
            RawEvent::Fork {
                parent_process,
                child_process,
                ..
            } => self.processes.fork(parent_process, child_process),
            RawEvent::Execute { process, program } => self.processes.execute(process, program),
            RawEvent::Exit { process, .. } => self.processes.exit(process),
        }
    }

    /// Passes an operation on.
    fn emit(&mut self, call: &RawCall<'_>, operation: &Operation<'_>, sink: Sink<'_>) {
        let name = self.catalogue.entry(call.number).map_or("", |entry| entry.name);
        let program = self.program(call.process);
        sink(Record {
            start: Duration::from_nanos(call.start_ns.saturating_sub(self.zero_ns)),
            duration: Duration::from_nanos(call.end_ns.saturating_sub(call.start_ns)),
            end: None,
            kind: operation.kind,
            path: operation.path,
            to: operation.to,
            offset: operation.offset,
            length: operation.length,
            result: operation.result,
            by: By {
                process: Some(call.process),
                thread: Some(call.thread),
                program: &program,
                call: name,
                ..By::default()
            },
        });
    }

    fn program(&mut self, process: u32) -> Rc<[u8]> {
        let known = self
            .processes
            .get(process)
            .and_then(|found| found.program.clone());
        known.unwrap_or_else(|| {
            let name = self.system.program(process).unwrap_or_default();
            let name: Rc<[u8]> = Rc::from(name);
            self.processes.get_mut(process).program = Some(Rc::clone(&name));
            name
        })
    }

    /// Returns the current folder of a process; empty if nobody knows it.
    fn folder(&mut self, process: u32) -> Rc<[u8]> {
        let known = self.processes.get(process).and_then(|found| found.folder.clone());
        known.unwrap_or_else(|| {
            let folder = self.system.folder(process).unwrap_or_default();
            let folder: Rc<[u8]> = Rc::from(folder);
            self.processes.get_mut(process).folder = Some(Rc::clone(&folder));
            folder
        })
    }

    /// Returns the open file of a descriptor. One that is not known is asked for once.
    fn file(&mut self, process: u32, descriptor: i32) -> Option<FileNumber> {
        if let Some(known) = self.processes.file(process, descriptor) {
            return Some(known);
        }
        let link = self.system.descriptor(process, descriptor)?;
        let class = match link.first() {
            Some(b'/') => Class::File,
            _ => Class::Other,
        };
        let (position, flags) = match self.system.position(process, descriptor) {
            Some((position, flags)) => (Some(position), flags.cast_signed()),
            None => (None, 0),
        };
        let file = OpenFile {
            class,
            path: Rc::from(link.strip_suffix(b" (deleted)").unwrap_or(&link)),
            // The position may have moved since the call that asks for it.
            position: position.filter(|position| *position == 0),
            appends: flags & libc::O_APPEND != 0,
        };
        let closes = flags & libc::O_CLOEXEC != 0;
        self.processes.open(process, descriptor, file, closes);
        self.processes.file(process, descriptor)
    }

    /// Returns the path of a descriptor, or `fd N` if nobody knows it; `None` if it is no file.
    fn descriptor_path(&mut self, process: u32, descriptor: i32) -> Option<Rc<[u8]>> {
        match self.file(process, descriptor) {
            Some(number) => {
                let file = self.processes.files.get(number);
                (file.class == Class::File).then(|| Rc::clone(&file.path))
            }
            None => Some(Rc::from(format!("fd {descriptor}").into_bytes())),
        }
    }

    /// Returns the folder that a relative path begins at.
    fn base(&mut self, process: u32, dir: Option<i32>) -> Rc<[u8]> {
        match dir {
            None | Some(libc::AT_FDCWD) => self.folder(process),
            Some(descriptor) => self
                .descriptor_path(process, descriptor)
                .unwrap_or_else(|| Rc::from(UNKNOWN)),
        }
    }

    /// Whether an argument means a descriptor that is no file: an empty text, or none, beside it.
    fn is_other(&mut self, process: u32, dir: Option<i32>, captured: Captured<'_>) -> bool {
        let is_itself = match memory::text(captured) {
            Some(text) => text.is_empty(),
            None => captured == Captured::Unreadable,
        };
        let descriptor = dir.filter(|descriptor| *descriptor != libc::AT_FDCWD);
        match descriptor {
            Some(descriptor) if is_itself => self.descriptor_path(process, descriptor).is_none(),
            _ => false,
        }
    }

    /// Returns the absolute path of an argument. Without a text it is the folder itself.
    fn resolve(&mut self, process: u32, dir: Option<i32>, captured: Captured<'_>) -> Rc<[u8]> {
        match memory::text(captured) {
            Some(text) if text.first() == Some(&b'/') => Rc::from(join(b"", text)),
            Some(text) => {
                let base = self.base(process, dir);
                Rc::from(join(&base, text))
            }
            None if captured == Captured::Unreadable => match dir {
                // A null pointer means the descriptor itself (utimensat(2)).
                Some(descriptor) if descriptor != libc::AT_FDCWD => self.base(process, dir),
                _ => Rc::from(UNKNOWN),
            },
            None => Rc::from(UNKNOWN),
        }
    }
}

#[cfg(test)]
mod tests;
