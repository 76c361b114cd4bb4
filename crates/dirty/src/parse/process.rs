//! Files of `/proc/PID`: what a process made dirty, and what it may still write to.

use super::number;

/// Longest name that is kept, in characters; the kernel's own limit is 15 bytes, and 63 for its
/// workers.
const NAME_MAX: usize = 64;
/// Longest path that is kept, in bytes (PATH_MAX).
const PATH_MAX: usize = 4096;

/// `/proc/PID/io` (proc_pid_io(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Bytes that the process made dirty, or wrote past the page cache: the kernel counts when a
    /// page becomes dirty, not when it is written back.
    pub dirtied_bytes: u64,
    /// Dirty bytes that were dropped again, since the file was truncated or removed.
    pub cancelled_bytes: u64,
}

impl Io {
    /// Parses the file.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self {
            dirtied_bytes: number(text, "write_bytes")?,
            cancelled_bytes: number(text, "cancelled_write_bytes").unwrap_or(0),
        })
    }
}

/// The part of `/proc/PID/stat` that tells processes apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the program.
    pub name: String,
    /// State, one letter (`D`: waits and cannot be interrupted).
    pub state: char,
    /// Parent process.
    pub parent: u32,
    /// Clock ticks from the start of the machine to that of the process: with the id it names a
    /// process, since ids are used again.
    pub start_ticks: u64,
}

impl Stat {
    /// Parses the file. The name in parentheses may hold anything, parentheses too.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, rest) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Self {
            name: name.chars().take(NAME_MAX).collect(),
            state,
            parent,
            // Field 22; the parent is field 4.
            start_ticks: fields.nth(17)?.parse().ok()?,
        })
    }
}

/// A file mapped for shared writing (a line of proc_pid_maps(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMap {
    /// Device of the file.
    pub device: (u32, u32),
    /// Its inode number.
    pub inode: u64,
    /// Its path.
    pub path: String,
}

impl SharedMap {
    /// Parses a line; `None` for mappings that cannot make pages of a file dirty.
    pub fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let (_range, rights, _offset, device) = (word()?, word()?, word()?, word()?);
        if !(rights.contains('w') && rights.ends_with('s')) {
            return None;
        }
        let inode = word()?.parse().ok().filter(|inode| *inode != 0)?;
        let (major, minor) = device.split_once(':')?;
        let path = rest.trim();
        Some(Self {
            device: (
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ),
            inode,
            path: (path.starts_with('/') && path.len() <= PATH_MAX).then(|| path.to_owned())?,
        })
    }
}

/// Returns whether a task waits because too much is dirty, by the name of the kernel's function in
/// `/proc/PID/wchan`. The compiler may put the first function into one of its callers.
pub fn is_held(wchan: &str) -> bool {
    let name = wchan.split(['.', '+']).next().unwrap_or("");
    matches!(
        name,
        "balance_dirty_pages" | "balance_dirty_pages_ratelimited" | "balance_dirty_pages_ratelimited_flags"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dirtied_bytes_are_found() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 4096\ncancelled_write_bytes: 8\n";
        let io = Io::parse(text).unwrap();
        assert_eq!((io.dirtied_bytes, io.cancelled_bytes), (4096, 8));
        assert_eq!(Io::parse("wchar: 2\n"), None);
    }

    #[test]
    fn names_may_hold_parentheses() {
        let text = "7 (a) b (c) D 1 7 5 0 -1 4194560 100 200 0 0 10 20 3 4 20 0 1 0 99 1000 10";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) b (c", 'D', 1));
        assert_eq!(stat.start_ticks, 99);
        assert_eq!(Stat::parse("7 (cut) D 1 7"), None);
    }

    #[test]
    fn only_shared_writable_files_count() {
        let map = |rights| format!("7f0000000000-7f0000001000 {rights} 00000000 fe:10 4711    /data/a b.db");
        let found = SharedMap::parse(&map("rw-s")).unwrap();
        assert_eq!(
            (found.device, found.inode, found.path.as_str()),
            ((254, 16), 4711, "/data/a b.db")
        );
        assert_eq!(SharedMap::parse(&map("rw-p")), None);
        assert_eq!(SharedMap::parse(&map("r--s")), None);
        assert_eq!(
            SharedMap::parse("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 "),
            None
        );
    }

    #[test]
    fn the_kernels_functions_are_known_by_all_their_names() {
        for name in [
            "balance_dirty_pages",
            "balance_dirty_pages_ratelimited_flags",
            "balance_dirty_pages.isra.0",
        ] {
            assert!(is_held(name), "{name}");
        }
        for name in [
            "0",
            "",
            "balance_pgdat",
            "wait_on_page_writeback",
            "folio_wait_bit_common",
        ] {
            assert!(!is_held(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn nothing_in_proc_breaks_it(text in "[()a-z0-9 :./\n-]{0,120}") {
            _ = (Io::parse(&text), Stat::parse(&text), is_held(&text));
            if let Some(map) = SharedMap::parse(&text) {
                prop_assert!(map.path.starts_with('/') && map.inode > 0);
            }
        }
    }
}
