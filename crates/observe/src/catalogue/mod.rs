//! The system calls that are recorded: what each one means, and what is read from memory for it.
//!
//! Numbers of calls differ between processors, names do not. [`Catalogue::of_this_machine`] gives the
//! entries their numbers.

mod table;

pub(crate) use table::TABLE;

/// What to read from the program's memory for one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Nothing,
    /// A text that ends in NUL, whose address is this argument.
    Text(u8),
    /// As many words of 8 bytes, from the address that is this argument.
    Words(u8, u8),
    /// The vectors of readv(2): address in this argument, their number in the next one.
    Vectors(u8),
}

/// How the first byte of a transfer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The descriptor's own position, which moves.
    Current,
    /// An argument; -1 means the descriptor's position (preadv2(2)).
    Arg(u8),
}

/// How the bytes asked for are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Arg(u8),
    /// The sum of the captured vectors.
    Vectors,
}

/// Where the flags of an open are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenFlags {
    Arg(u8),
    /// The first word of the captured `struct open_how`.
    How,
    /// creat(2): always these.
    Creating,
    /// open_tree(2) and the like: no flags of open(2).
    None,
}

/// What kind of thing a new descriptor is, where no path says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewDescriptor {
    /// The result is the descriptor of no file: a socket, an event counter, …
    One,
    /// Two of them are in the captured words.
    Two,
    /// The result is a file in memory; the captured text is its name.
    Memory,
    /// open_by_handle_at(2) and others: ask the system what it is.
    Unknown,
}

/// What a call does. Numbers are those of arguments; `dir` is that of the folder that a relative
/// path begins at (the current one if there is none), `flags` that of `AT_` flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The captured text is a path; the result a descriptor.
    Open {
        dir: Option<u8>,
        flags: OpenFlags,
    },
    Close,
    CloseRange,
    /// The first argument is a descriptor.
    Transfer {
        write: bool,
        place: Place,
        length: Length,
    },
    CopyRange,
    SendFile,
    Splice,
    /// An operation on the captured path, or on `dir` itself if the path is empty or null.
    Path {
        dir: Option<u8>,
        flags: Option<u8>,
    },
    /// Both captured texts are paths.
    TwoPaths {
        dirs: Option<(u8, u8)>,
    },
    /// The first captured text is what the link says, the second where it is.
    Symlink {
        dir: Option<u8>,
    },
    /// An operation on a whole descriptor, the first argument.
    Descriptor,
    /// An operation on a range of a descriptor.
    Range {
        offset: u8,
        length: u8,
    },
    SetLength {
        on_path: bool,
    },
    Advise,
    Seek,
    List,
    Map,
    ChangeDir {
        by_descriptor: bool,
    },
    Duplicate {
        to: Option<u8>,
        flags: Option<u8>,
    },
    Control,
    Ioctl,
    New(NewDescriptor),
    Execute {
        dir: Option<u8>,
    },
    /// io_uring_setup(2): the result is a ring.
    Ring,
    /// sync(2): no argument.
    Everything,
    /// An advisory lock of the first argument.
    Lock,
    Watch,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Name of the system call.
    pub(crate) name: &'static str,
    /// Kind of operation in the trace; empty if the call only changes the table of descriptors.
    pub(crate) kind: &'static str,
    pub(crate) shape: Shape,
    pub(crate) captures: [Capture; 2],
}

impl Entry {
    /// Returns the name of its tracepoints: that of the kernel's function.
    pub(crate) fn tracepoint(&self) -> &'static str {
        match self.name {
            "stat" => "newstat",
            "lstat" => "newlstat",
            "fstat" => "newfstat",
            "sendfile" => "sendfile64",
            name => name,
        }
    }
}

/// Largest number of a call.
const NUMBERS: usize = 1024;

/// The calls by their numbers.
#[derive(Clone, Debug)]
pub struct Catalogue {
    by_number: Vec<Option<&'static Entry>>,
}

impl Catalogue {
    /// Returns the calls that this processor has.
    pub fn of_this_machine() -> Self {
        let mut by_number = vec![None; NUMBERS];
        for entry in TABLE {
            let number = entry.name.parse::<syscalls::Sysno>();
            let place = number
                .ok()
                .and_then(|number| by_number.get_mut(number.id() as usize));
            if let Some(place) = place {
                *place = Some(entry);
            }
        }
        Self { by_number }
    }

    /// Returns the entry of a call.
    pub(crate) fn entry(&self, number: u32) -> Option<&'static Entry> {
        *self.by_number.get(number as usize)?
    }

    /// Returns number and entry of a call by the name of its tracepoint.
    pub(crate) fn by_tracepoint(&self, name: &str) -> Option<(u32, &'static Entry)> {
        self.entries().find(|(_, entry)| entry.tracepoint() == name)
    }

    /// Returns all calls with their numbers.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, &'static Entry)> {
        let all = self.by_number.iter().zip(0..);
        all.filter_map(|(entry, number)| Some((number, (*entry)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_call_is_there_once_and_reads_arguments_that_exist() {
        let mut names = HashSet::new();
        for entry in TABLE {
            assert!(names.insert(entry.name), "{} is there twice", entry.name);
            let is_known = entry.kind.is_empty() || ropeway_vfs::trace::KINDS.contains(&entry.kind);
            assert!(is_known, "{}: {}", entry.name, entry.kind);
            for capture in entry.captures {
                let argument = match capture {
                    Capture::Nothing => 0,
                    Capture::Text(argument) | Capture::Vectors(argument) => argument,
                    Capture::Words(argument, words) => {
                        assert!(words > 0 && words < 64, "{}", entry.name);
                        argument
                    }
                };
                assert!(argument < 6, "{}", entry.name);
            }
        }
    }

    #[test]
    fn this_processor_has_the_calls_that_programs_use() {
        let catalogue = Catalogue::of_this_machine();
        for name in [
            "openat",
            "read",
            "write",
            "newfstatat",
            "statx",
            "close",
            "mmap",
            "execve",
        ] {
            let found = catalogue.entries().any(|(_, entry)| entry.name == name);
            assert!(found, "{name}");
        }
        let number = u32::try_from(libc::SYS_openat).unwrap();
        assert_eq!(catalogue.entry(number).unwrap().name, "openat");
        assert!(catalogue.entry(u32::MAX).is_none());
    }
}
