//! System calls as the mechanisms report them, before anything is known about descriptors and paths.

/// Largest number of bytes of a path that a mechanism reads from a program's memory (PATH_MAX of
/// linux/limits.h, with its NUL).
pub const TEXT_MAX: usize = 4096;

/// Largest number of other bytes of one argument: 64 vectors of readv(2).
pub const BYTES_MAX: usize = 1024;

/// What was read from the program's memory for one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Captured<'a> {
    /// Nothing was to be read, or the mechanism cannot read memory.
    #[default]
    Nothing,
    /// The bytes; a text without its NUL.
    Bytes(&'a [u8]),
    /// The memory could not be read. A program that passes such a pointer gets EFAULT.
    Unreadable,
}

impl<'a> Captured<'a> {
    /// Returns the bytes, if there are any.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Nothing | Self::Unreadable => None,
        }
    }
}

/// One system call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawCall<'a> {
    /// The thread.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Number of the system call on this architecture.
    pub number: u32,
    /// Begin, in nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End, by the same clock.
    pub end_ns: u64,
    /// The kernel's result: a negative errno for an error.
    pub result: i64,
    /// The six arguments, as passed.
    pub args: [u64; 6],
    /// What the catalogue wants from memory, in its order.
    pub captured: [Captured<'a>; 2],
    /// Position of the descriptor that is the first argument, after the call; `None` if the mechanism
    /// does not know it.
    pub position: Option<u64>,
}

/// What a mechanism reports, in the order in which it happened in each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawEvent<'a> {
    /// A call has ended.
    Call(RawCall<'a>),
    /// A program is about to be executed: `end_ns` and `result` have no meaning yet. The call itself
    /// follows, without what it captured: the old memory is gone by then.
    Entered(RawCall<'a>),
    /// A call did not end: the thread did. `result` has no meaning.
    Unfinished(RawCall<'a>),
    /// A new thread or process.
    Fork {
        /// The thread that made it.
        parent: u32,
        /// Its process.
        parent_process: u32,
        /// The new thread.
        child: u32,
        /// Its process: that of the parent for a thread.
        child_process: u32,
    },
    /// A process executes another program. Descriptors that ask for it are closed.
    Execute {
        /// The process.
        process: u32,
        /// Name of the program (at most 15 bytes).
        program: &'a [u8],
    },
    /// A thread has ended.
    Exit {
        /// The thread.
        thread: u32,
        /// Its process.
        process: u32,
    },
}
