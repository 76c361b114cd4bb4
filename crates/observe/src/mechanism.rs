//! The ways in which other programs can be watched, and what each one cannot show.

use std::fmt;

/// A way to watch other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// BPF programs at the kernel's tracepoints of system calls.
    Bpf,
    /// The kernel's own recorder of these tracepoints.
    Tracefs,
    /// The system call that debuggers use.
    Ptrace,
    /// Notifications of a whole file system.
    Fanotify,
}

/// What is missing in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events for which there was no room, or that could not be read.
    pub events: u64,
    /// Calls of programs with another architecture's numbers (32 bits).
    pub foreign: u64,
}

impl Mechanism {
    /// Those that record single programs, the best one first.
    pub(crate) const BY_PREFERENCE: [Self; 3] = [Self::Bpf, Self::Tracefs, Self::Ptrace];

    /// Returns what it cannot show; `has_names`: whether the kernel tells it the names of files.
    pub(crate) fn unseen(self, has_names: bool) -> Vec<String> {
        let mut unseen = vec![match self {
            Self::Fanotify => "reads and writes of mapped memory",
            _ => "reads and writes of mapped memory: only mmap itself",
        }];
        match self {
            Self::Bpf => unseen.push("operations by io_uring, and of 32-bit programs: they are counted"),
            Self::Tracefs => {
                unseen.push("operations by io_uring: rings are counted; and of 32-bit programs");
                if !has_names {
                    unseen.push(
                        "names in calls that take a path: this kernel does not tell them; a file's name is shown where it is \
                         still open",
                    );
                }
            }
            Self::Ptrace => {
                unseen.push("operations by io_uring, and of 32-bit programs: they are counted");
                unseen.push("times without the tracer: each operation stops the program twice");
            }
            Self::Fanotify => {
                unseen.push("offsets, lengths, times and results; failed operations");
                unseen.push("further events of the same kind on a file before the first one was read: they are merged");
            }
        }
        unseen.into_iter().map(str::to_owned).collect()
    }

    /// Returns its name in flags and traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Tracefs => "tracefs",
            Self::Ptrace => "ptrace",
            Self::Fanotify => "fanotify",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
