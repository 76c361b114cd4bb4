//! Large files: how one is cut into parts for several workers, and how the parts become one file again.
//!
//! The parts of a file are written into one file of the catalog, `large/FILE`, which gets its attributes and
//! its name when all of them are there ([`Joins`]). A part is a subtree of the BLAKE3 tree of the whole
//! content (section 2.1 of the paper), so the hash of the file follows from those of its parts, and nothing
//! is read again.
//!
//! **The fence.** A worker that slept may still have `large/FILE` open, and write into it when the file has its
//! name already. It is one that lost its claim of a part, so there is a later claim of that part. Such a file is
//! copied inside the target before it gets its name: what the sleeper has open is then another file.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use blake3::hazmat::{ChainingValue, Mode, left_subtree_len, max_subtree_len};
use blake3::hazmat::{merge_subtrees_non_root, merge_subtrees_root};
use ropeway_vfs::{ContentHash, Kind, Metadata, RelPath};

use crate::catalog::{Record, State};
use crate::claim::Epoch;
use crate::codec::{Reader, put_bytes, put_number, put_signed};
use crate::task::{Task, Work, nanoseconds, shard_of};

/// Most parts that a file is cut into at first. Further ones are made while a worker is idle.
const PARTS_MAX: u64 = 1_024;

/// Most parts in memory of one task that joins: about 200 bytes each.
const HELD_MAX: usize = 1_000_000;

/// Smallest part that is cut off for an idle worker. A guess: below it, the new task costs more than it brings.
const SPLIT_MIN: u64 = 32 << 20;

/// Which files are cut, and into what.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    /// Size of the smallest file that is cut.
    pub file_min: u64,
    /// Length of a part, a power of two of at least 1,024. Files with more than 1,024 parts have longer ones.
    pub length: u64,
    /// Smallest part that is cut off for an idle worker.
    pub split_min: u64,
}

impl Default for PartLimits {
    fn default() -> Self {
        Self {
            file_min: 8 << 30,
            length: 1 << 30,
            split_min: SPLIT_MIN,
        }
    }
}

/// Identity of one version of a large file in one round: the first 128 bits of the BLAKE3 hash of what is
/// known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LargeId(pub [u8; 16]);

impl fmt::Display for LargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One version of a large file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LargeFile {
    /// Round in which it is copied.
    pub round: u32,
    /// Its path in the source.
    pub path: RelPath,
    /// Size in bytes.
    pub size: u64,
    /// Time of last change of the content, in nanoseconds since 1970.
    pub modified: i64,
    /// Time of last change of content or attributes, where the source has one.
    pub changed: Option<i64>,
}

impl LargeFile {
    /// Takes the version that a listing shows.
    pub fn listed(round: u32, path: RelPath, metadata: &Metadata) -> Self {
        Self {
            round,
            path,
            size: metadata.size,
            modified: nanoseconds(metadata.modified),
            changed: metadata.changed.map(nanoseconds),
        }
    }

    /// Returns its identity.
    pub fn id(&self) -> LargeId {
        let mut bytes = Vec::new();
        put_number(&mut bytes, u64::from(self.round));
        self.put(&mut bytes);
        let hash = blake3::hash(&bytes);
        LargeId(hash.as_bytes().first_chunk().copied().unwrap_or_default())
    }

    /// Whether these are the attributes of this version.
    pub fn is(&self, found: &Metadata) -> bool {
        let same_change = match (self.changed, found.changed.map(nanoseconds)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        found.kind == Kind::File
            && found.size == self.size
            && nanoseconds(found.modified) == self.modified
            && same_change
    }

    /// Cuts it into parts.
    pub fn parts(&self, limits: PartLimits) -> impl Iterator<Item = Part> + '_ {
        let least = self.size.div_ceil(PARTS_MAX).next_power_of_two();
        let length = limits.length.max(least);
        (0..self.size.div_ceil(length)).map(move |number| Part {
            file: self.clone(),
            range: number * length..self.size.min((number + 1) * length),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.path.as_bytes());
        put_number(out, self.size);
        put_signed(out, self.modified);
        put_time(out, self.changed);
    }
}

/// Appends a time that may be unknown.
pub(crate) fn put_time(out: &mut Vec<u8>, time: Option<i64>) {
    out.push(u8::from(time.is_some()));
    if let Some(time) = time {
        put_signed(out, time);
    }
}

/// Reads what [`put_time`] wrote.
pub(crate) fn get_time(reader: &mut Reader<'_>) -> Option<Option<i64>> {
    match reader.byte()? {
        0 => Some(None),
        1 => reader.signed().map(Some),
        _ => None,
    }
}

/// A range of a large file: a subtree of the BLAKE3 tree of its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The file.
    pub file: LargeFile,
    /// The range in bytes; never empty.
    pub range: Range<u64>,
}

impl Part {
    /// Returns the task that copies it.
    pub fn task(self) -> Task {
        Task {
            round: self.file.round,
            work: Work::Part(self),
        }
    }

    /// Cuts off the second half for another worker, if the first `taken` bytes of the part lie in the first
    /// half and both halves have at least `least` bytes.
    pub fn split(&mut self, taken: u64, least: u64) -> Option<Self> {
        let length = self.range.end - self.range.start;
        // The left subtree: a power of two.
        let left = (length > blake3::CHUNK_LEN as u64).then(|| left_subtree_len(length))?;
        if taken > left || left < least || length - left < least {
            return None;
        }
        let middle = self.range.start + left;
        let rest = Self {
            file: self.file.clone(),
            range: middle..self.range.end,
        };
        self.range.end = middle;
        Some(rest)
    }

    /// Leaves out what earlier claims of the task gave away: always the end of what was left.
    pub fn without(mut self, given: &[Task]) -> Self {
        for task in given {
            if let Work::Part(given) = &task.work
                && self.range.contains(&given.range.start)
            {
                self.range.end = given.range.start;
            }
        }
        self
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.file.put(out);
        put_number(out, self.range.start);
        put_number(out, self.range.end);
    }

    /// Reads a part of a file of this round; `None` if the bytes are none, or no subtree of its content.
    pub(crate) fn get(reader: &mut Reader<'_>, round: u32) -> Option<Self> {
        let file = LargeFile {
            round,
            path: RelPath::parse(reader.bytes()?)?,
            size: reader.number()?,
            modified: reader.signed()?,
            changed: get_time(reader)?,
        };
        let range = reader.number()?..reader.number()?;
        let is_inside = range.start < range.end && range.end <= file.size;
        (is_inside && is_subtree(&range)).then_some(Self { file, range })
    }
}

/// Whether a range that does not begin in the middle of a chunk may be hashed alone.
fn is_subtree(range: &Range<u64>) -> bool {
    range.start.is_multiple_of(blake3::CHUNK_LEN as u64)
        && max_subtree_len(range.start).is_none_or(|most| range.end - range.start <= most)
}

/// A large file, as the records of a round tell it.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The version.
    pub file: LargeFile,
    /// Ends of the parts that are there, and the chaining values of their subtrees, by their begins.
    parts: BTreeMap<u64, (u64, ChainingValue)>,
    /// Why a part failed.
    pub failed: Option<String>,
    /// Whether a part was claimed a second time, so that a worker may have the file open still.
    pub may_be_open: bool,
    /// Whether an earlier claim of the task that joins has published the file.
    pub is_joined: bool,
}

impl Joining {
    /// Returns the hash of the content; `None` if parts are missing.
    pub fn hash(&self) -> Option<ContentHash> {
        let size = self.file.size;
        // A file is cut in two at least: the value of one part would not be the hash of the whole.
        let middle = (size > blake3::CHUNK_LEN as u64).then(|| left_subtree_len(size))?;
        let (left, right) = (self.subtree(0..middle)?, self.subtree(middle..size)?);
        Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
    }

    /// Returns the chaining value of a subtree.
    fn subtree(&self, range: Range<u64>) -> Option<ChainingValue> {
        if let Some((end, value)) = self.parts.get(&range.start)
            && *end == range.end
        {
            return Some(*value);
        }
        let length = range.end.checked_sub(range.start)?;
        if length <= blake3::CHUNK_LEN as u64 {
            return None;
        }
        let middle = range.start + left_subtree_len(length);
        let left = self.subtree(range.start..middle)?;
        let right = self.subtree(middle..range.end)?;
        Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
    }
}

/// The large files of one task that joins.
#[derive(Debug)]
pub struct Joins {
    share: (u32, u32),
    files: BTreeMap<LargeId, Joining>,
    /// Parts, and what became of files, in the order in which they were read: a file may be listed after them.
    loose: Vec<(LargeId, Loose)>,
}

#[derive(Debug)]
enum Loose {
    Part {
        range: Range<u64>,
        value: ChainingValue,
        again: bool,
    },
    Failed(String),
    Joined,
}

impl Joins {
    /// Makes the empty collection of one task of `shards`.
    pub fn new(shard: u32, shards: u32) -> Self {
        Self {
            share: (shard, shards),
            files: BTreeMap::new(),
            loose: Vec::new(),
        }
    }

    /// Adds a record of the given round, from a segment of a claim with this epoch. Others than those of large
    /// files are ignored.
    pub fn add(&mut self, round: u32, epoch: Epoch, record: Record) {
        let (shard, shards) = self.share;
        let is_own = |id: &LargeId| owner_of(*id, shards) == shard;
        if self.is_full() {
            return;
        }
        match record.state {
            State::Parted { file, changed } if is_own(&file) => {
                let version = LargeFile {
                    round,
                    path: record.path,
                    size: record.size,
                    modified: record.modified,
                    changed,
                };
                self.files.entry(file).or_insert_with(|| Joining {
                    file: version,
                    parts: BTreeMap::new(),
                    failed: None,
                    may_be_open: false,
                    is_joined: false,
                });
            }
            State::Part { file, start } if is_own(&file) => {
                let Some(value) = record.hash else { return };
                let part = Loose::Part {
                    range: start..start.saturating_add(record.size),
                    value,
                    again: epoch > Epoch(1),
                };
                self.loose.push((file, part));
            }
            State::PartFailed { file, reason } if is_own(&file) => {
                self.loose.push((file, Loose::Failed(reason)));
            }
            State::Joined { file } if is_own(&file) => self.loose.push((file, Loose::Joined)),
            _ => {}
        }
    }

    /// Whether there is no room for more. The tasks are as many as the sums of the catalog ask for, so its
    /// segments then say something else.
    pub fn is_full(&self) -> bool {
        self.files.len() + self.loose.len() >= HELD_MAX
    }

    /// Returns the files with what is known of them.
    pub fn finish(mut self) -> impl Iterator<Item = Joining> {
        for (id, loose) in self.loose {
            let Some(file) = self.files.get_mut(&id) else {
                continue;
            };
            match loose {
                Loose::Part { range, value, again } => {
                    file.parts.insert(range.start, (range.end, value));
                    file.may_be_open |= again;
                }
                Loose::Failed(reason) => file.failed = Some(reason),
                Loose::Joined => file.is_joined = true,
            }
        }
        self.files.into_values()
    }
}

/// Returns which of `shards` tasks joins a file.
fn owner_of(id: LargeId, shards: u32) -> u32 {
    shard_of(&id.0, shards)
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
