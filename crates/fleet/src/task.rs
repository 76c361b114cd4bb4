//! Tasks: the pieces of work that a queue hands out.
//!
//! ```text
//!   phase 0  Folder      entries of a folder between two names, with everything below them
//!            Part        a range of a large file
//!   phase 1  Join        large files whose parts are there get their attributes and names
//!   phase 2  Links       files with several names, by the owner of (device, inode)
//!   phase 3  Delete      what the source does not have; only if nothing failed
//!   phase 4  FolderShare attributes of folders that are in nobody's way, if there are many
//!   phase 5  FolderTimes attributes of the other folders, the deepest first
//! ```
//!
//! A task is identified by its content ([`TaskId`]), so the same task has the same name whoever
//! makes it, and offering it twice offers it once.

use std::fmt;

use ropeway_vfs::{Name, RelPath, Timestamp};

use crate::codec::{Reader, put_bytes, put_number, put_optional};
use crate::parts::Part;

/// Largest number of entries of one task. A message for each of 10^9 files would be too many for
/// any queue; 50,000 tasks are not.
pub const TASK_ENTRIES_MAX: usize = 20_000;

/// Identity of a task: the first 128 bits of the BLAKE3 hash of its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub [u8; 16]);

impl TaskId {
    /// Number of characters of its text.
    pub const TEXT: usize = 32;

    /// Returns the folder of its segments: its first byte.
    pub fn folder(self) -> u8 {
        self.0[0]
    }

    /// Parses the text that `Display` writes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != Self::TEXT {
            return None;
        }
        let mut id = [0; 16];
        for (byte, digits) in id.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Some(Self(id))
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; Self::TEXT];
        for (digits, byte) in text.chunks_exact_mut(2).zip(self.0) {
            digits[0] = DIGITS[usize::from(byte >> 4)];
            digits[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Names of a folder in the order of their bytes: those after one name, up to and with another. On a
/// target that ignores case, their keys take the place of the names ([`crate::cut::Entry`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NameRange {
    /// The range begins behind this name; `None`: at the first name.
    pub after: Option<Name>,
    /// The last name of the range; `None`: no end.
    pub until: Option<Name>,
}

impl NameRange {
    /// Whether it holds every name.
    pub fn is_all(&self) -> bool {
        self.after.is_none() && self.until.is_none()
    }

    /// Whether it holds this name.
    pub fn contains(&self, name: &Name) -> bool {
        self.after.as_ref().is_none_or(|after| name > after)
            && self.until.as_ref().is_none_or(|until| name <= until)
    }
}

/// Which entries of a folder a task covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Those in a range.
    Range(NameRange),
    /// These names only: what failed before and is tried again.
    Names(Vec<Name>),
}

impl Scope {
    /// All entries of a folder.
    pub fn all() -> Self {
        Self::Range(NameRange::default())
    }

    /// Whether it covers this name.
    pub fn contains(&self, name: &Name) -> bool {
        match self {
            Self::Range(range) => range.contains(name),
            Self::Names(names) => names.contains(name),
        }
    }
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Copies entries of a folder and everything below them.
    Folder {
        /// The folder in the source.
        path: RelPath,
        /// Its entries that take part.
        scope: Scope,
    },
    /// Copies a range of a large file.
    Part(Part),
    /// Gives one share of the large files of this round their attributes and names.
    Join {
        /// Number of this share, below `shards`.
        shard: u32,
        /// Number of shares.
        shards: u32,
    },
    /// Makes the files of one share of all (device, inode) that have several names.
    Links {
        /// Number of this share, below `shards`.
        shard: u32,
        /// Number of shares.
        shards: u32,
    },
    /// Removes one share of what only the target has.
    Delete {
        /// Number of this share, below `shards`.
        shard: u32,
        /// Number of shares.
        shards: u32,
    },
    /// Sets the attributes of one share of the folders: of those that are in nobody's way then.
    FolderShare {
        /// Number of this share, below `shards`.
        shard: u32,
        /// Number of shares.
        shards: u32,
    },
    /// Sets the attributes of all folders, the deepest first.
    FolderTimes,
}

/// A piece of work for one worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Number of times that the job was resumed before. What failed is tried again as a task of
    /// the next round.
    pub round: u32,
    /// What it does.
    pub work: Work,
}

impl Task {
    /// Makes the task that covers a whole tree.
    pub fn root() -> Self {
        Self::folder(0, RelPath::root(), Scope::all())
    }

    /// Makes a task of a folder.
    pub fn folder(round: u32, path: RelPath, scope: Scope) -> Self {
        Self {
            round,
            work: Work::Folder { path, scope },
        }
    }

    /// Returns the number of names that it lists.
    pub fn names(&self) -> usize {
        match &self.work {
            Work::Folder {
                scope: Scope::Names(names),
                ..
            } => names.len(),
            _ => 0,
        }
    }

    /// Returns its identity.
    pub fn id(&self) -> TaskId {
        let hash = blake3::hash(&self.encode());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_bytes()[..16]);
        TaskId(id)
    }

    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, u64::from(self.round));
        match &self.work {
            Work::Folder { path, scope } => put_folder(&mut out, path, scope),
            Work::Links { shard, shards } => put_share(&mut out, 2, *shard, *shards),
            Work::FolderTimes => out.push(3),
            Work::FolderShare { shard, shards } => put_share(&mut out, 7, *shard, *shards),
            Work::Part(part) => {
                out.push(4);
                part.put(&mut out);
            }
            Work::Join { shard, shards } => put_share(&mut out, 5, *shard, *shards),
            Work::Delete { shard, shards } => put_share(&mut out, 6, *shard, *shards),
        }
        out
    }

    /// Parses the bytes; `None` if they are no task.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let round = u32::try_from(reader.number()?).ok()?;
        let work = match reader.byte()? {
            0 => Work::Folder {
                path: RelPath::parse(reader.bytes()?)?,
                scope: Scope::Range(NameRange {
                    after: optional_name(&mut reader)?,
                    until: optional_name(&mut reader)?,
                }),
            },
            1 => {
                let path = RelPath::parse(reader.bytes()?)?;
                let count = reader.count()?;
                let names = (0..count).map(|_| Name::new(reader.bytes()?));
                Work::Folder {
                    path,
                    scope: Scope::Names(names.collect::<Option<_>>()?),
                }
            }
            2 => share(&mut reader).map(|(shard, shards)| Work::Links { shard, shards })?,
            3 => Work::FolderTimes,
            7 => share(&mut reader).map(|(shard, shards)| Work::FolderShare { shard, shards })?,
            4 => Work::Part(Part::get(&mut reader, round)?),
            5 => share(&mut reader).map(|(shard, shards)| Work::Join { shard, shards })?,
            6 => share(&mut reader).map(|(shard, shards)| Work::Delete { shard, shards })?,
            _ => return None,
        };
        reader.end()?;
        Some(Self { round, work })
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Folder { path, scope } => match scope {
                Scope::Range(range) if range.is_all() => write!(f, "folder {path}"),
                Scope::Range(NameRange { after, until }) => {
                    let end =
                        |name: &Option<Name>| name.as_ref().map(ToString::to_string).unwrap_or_default();
                    write!(f, "folder {path} ({}..{}]", end(after), end(until))
                }
                Scope::Names(names) => write!(f, "{} names in {path}", names.len()),
            },
            Work::Part(part) => write!(
                f,
                "bytes {} to {} of {}",
                part.range.start, part.range.end, part.file.path
            ),
            Work::Join { shard, shards } => write!(f, "large files {}/{shards}", shard + 1),
            Work::Links { shard, shards } => write!(f, "hard links {}/{shards}", shard + 1),
            Work::Delete { shard, shards } => write!(f, "deletions {}/{shards}", shard + 1),
            Work::FolderShare { shard, shards } => {
                write!(f, "attributes of folders {}/{shards}", shard + 1)
            }
            Work::FolderTimes => f.write_str("attributes of folders"),
        }
    }
}

fn put_share(out: &mut Vec<u8>, kind: u8, shard: u32, shards: u32) {
    out.push(kind);
    put_number(out, u64::from(shard));
    put_number(out, u64::from(shards));
}

fn share(reader: &mut Reader<'_>) -> Option<(u32, u32)> {
    let shard = u32::try_from(reader.number()?).ok()?;
    let shards = u32::try_from(reader.number()?).ok()?;
    (shard < shards).then_some((shard, shards))
}

fn put_folder(out: &mut Vec<u8>, path: &RelPath, scope: &Scope) {
    match scope {
        Scope::Range(NameRange { after, until }) => {
            out.push(0);
            put_bytes(out, path.as_bytes());
            put_optional(out, after.as_ref().map(Name::as_bytes));
            put_optional(out, until.as_ref().map(Name::as_bytes));
        }
        Scope::Names(names) => {
            out.push(1);
            put_bytes(out, path.as_bytes());
            put_number(out, names.len() as u64);
            names.iter().for_each(|name| put_bytes(out, name.as_bytes()));
        }
    }
}

fn optional_name(reader: &mut Reader<'_>) -> Option<Option<Name>> {
    match reader.optional()? {
        Some(bytes) => Name::new(bytes).map(Some),
        None => Some(None),
    }
}

/// Returns a time in nanoseconds as the catalog keeps it. Times that 64 bits cannot hold (before
/// 1677 and after 2262) are clamped.
pub fn nanoseconds(time: Timestamp) -> i64 {
    time.0.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Returns which of `shards` tasks has what this hash is of.
pub(crate) fn shard_of(hash: &[u8], shards: u32) -> u32 {
    let head = hash.first_chunk().copied().unwrap_or_default();
    (u64::from_be_bytes(head) % u64::from(shards.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{LargeFile, PartLimits};
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Name> {
        "[a-z]{1,6}".prop_map(|text| Name::new(text.as_bytes()).unwrap())
    }

    fn path() -> impl Strategy<Value = RelPath> {
        prop::collection::vec(name(), 1..4)
            .prop_map(|names| names.iter().fold(RelPath::root(), |path, name| path.join(name)))
    }

    fn work() -> impl Strategy<Value = Work> {
        prop_oneof![
            (path(), prop::option::of(name()), prop::option::of(name())).prop_map(|(path, after, until)| {
                Work::Folder {
                    path,
                    scope: Scope::Range(NameRange { after, until }),
                }
            }),
            (path(), prop::collection::vec(name(), 0..5)).prop_map(|(path, names)| Work::Folder {
                path,
                scope: Scope::Names(names)
            }),
            (0..9_u32).prop_map(|shard| Work::Links { shard, shards: 9 }),
            (0..9_u32).prop_map(|shard| Work::Join { shard, shards: 9 }),
            (0..9_u32).prop_map(|shard| Work::Delete { shard, shards: 9 }),
            (0..9_u32).prop_map(|shard| Work::FolderShare { shard, shards: 9 }),
            Just(Work::FolderTimes),
        ]
    }

    fn part() -> impl Strategy<Value = Task> {
        let times = (any::<i64>(), any::<Option<i64>>());
        (
            any::<u32>(),
            path(),
            times,
            1..1_u64 << 40,
            any::<prop::sample::Index>(),
        )
            .prop_map(|(round, path, (modified, changed), size, index)| {
                let file = LargeFile {
                    round,
                    path,
                    size,
                    modified,
                    changed,
                };
                let parts: Vec<Part> = file.parts(PartLimits::default()).collect();
                Task {
                    round,
                    work: Work::Part(index.get(&parts).clone()),
                }
            })
    }

    proptest! {
        #[test]
        fn tasks_are_read_as_written(round: u32, work in work()) {
            let task = Task { round, work };
            prop_assert_eq!(Task::decode(&task.encode()), Some(task.clone()));
            prop_assert_eq!(TaskId::parse(task.id().to_string().as_bytes()), Some(task.id()));
        }

        #[test]
        fn parts_are_read_as_written(task in part()) {
            prop_assert_eq!(Task::decode(&task.encode()), Some(task));
        }

        #[test]
        fn hostile_tasks_never_panic(bytes: Vec<u8>) {
            if let Some(task) = Task::decode(&bytes) {
                prop_assert_eq!(Task::decode(&task.encode()), Some(task));
            }
        }
    }
}
