//! What the catalog keeps of one node.

use ropeway_vfs::{ContentHash, FileId, RelPath};

use crate::codec::{Reader, put_bytes, put_number, put_optional, put_signed};
use crate::parts::{LargeId, get_time, put_time};

/// What became of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It was copied, and is durable under its name in the stage of the claim: the number of that
    /// name.
    Copied {
        /// Number of the file in the stage.
        staged: u32,
    },
    /// It was equal on the target already.
    Equal,
    /// It was left out on purpose: a device, a socket, or what has a temporary name of Ropeway.
    Skipped,
    /// It failed, with the reason. It is tried again by `resume`.
    Failed(String),
    /// A folder, whose attributes are set at the end.
    Folder,
    /// A folder whose attributes may be in the way of those below it. They are left to the last task.
    FolderLeft,
    /// A file with several names, which is made at the end.
    Linked(FileId),
    /// A large file, which was cut into parts and gets its name when all of them are there.
    Parted {
        /// Its version.
        file: LargeId,
        /// Time of last change of content or attributes, in nanoseconds since 1970, where known.
        changed: Option<i64>,
    },
    /// A part of a large file is there and durable. The record has the length of the part as its size, and
    /// the chaining value of its BLAKE3 subtree as its hash.
    Part {
        /// The version of the file.
        file: LargeId,
        /// First byte of the part.
        start: u64,
    },
    /// A part of a large file failed, and the file with it.
    PartFailed {
        /// The version of the file.
        file: LargeId,
        /// Why.
        reason: String,
    },
    /// A large file is whole, and gets its name now.
    Joined {
        /// Its version.
        file: LargeId,
    },
    /// Only the target has it. The path is that of its folder in the source with its name on the target. It is
    /// removed at the end if nothing failed.
    Extra,
    /// It was removed from the target.
    Deleted,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its path in the source.
    pub path: RelPath,
    /// Size in bytes.
    pub size: u64,
    /// Time of last change of the copied version, in nanoseconds since 1970.
    pub modified: i64,
    /// BLAKE3 hash of the content, where it was read.
    pub hash: Option<ContentHash>,
    /// What became of it.
    pub state: State,
}

impl Record {
    /// Makes a record without a hash.
    pub fn new(path: RelPath, size: u64, modified: i64, state: State) -> Self {
        Self {
            path,
            size,
            modified,
            hash: None,
            state,
        }
    }

    /// Whether the node needs nothing more: no late pass, no further attempt.
    pub fn is_settled(&self) -> bool {
        matches!(self.state, State::Copied { .. } | State::Equal | State::Skipped)
    }

    /// Appends the record. `before` is the path of the record before it: paths share their begin.
    pub(super) fn put(&self, out: &mut Vec<u8>, before: &[u8]) {
        let path = self.path.as_bytes();
        let shared = path
            .iter()
            .zip(before)
            .take_while(|(one, two)| one == two)
            .count();
        put_number(out, shared as u64);
        put_bytes(out, &path[shared..]);
        put_number(out, self.size);
        put_signed(out, self.modified);
        put_optional(out, self.hash.as_ref().map(<[u8; 32]>::as_slice));
        match &self.state {
            State::Copied { staged } => {
                out.push(0);
                put_number(out, u64::from(*staged));
            }
            State::Equal => out.push(1),
            State::Skipped => out.push(2),
            State::Failed(reason) => {
                out.push(3);
                put_bytes(out, reason.as_bytes());
            }
            State::Folder => out.push(4),
            State::FolderLeft => out.push(12),
            State::Linked(id) => {
                out.push(5);
                put_number(out, id.volume);
                put_number(out, id.index);
            }
            State::Parted { file, changed } => {
                out.push(6);
                out.extend_from_slice(&file.0);
                put_time(out, *changed);
            }
            State::Part { file, start } => {
                out.push(7);
                out.extend_from_slice(&file.0);
                put_number(out, *start);
            }
            State::PartFailed { file, reason } => {
                out.push(8);
                out.extend_from_slice(&file.0);
                put_bytes(out, reason.as_bytes());
            }
            State::Joined { file } => {
                out.push(9);
                out.extend_from_slice(&file.0);
            }
            State::Extra => out.push(10),
            State::Deleted => out.push(11),
        }
    }

    /// Reads a record; `None` if the bytes are none.
    pub(super) fn get(reader: &mut Reader<'_>, before: &[u8]) -> Option<Self> {
        let shared = usize::try_from(reader.number()?).ok()?;
        let mut path = before.get(..shared)?.to_vec();
        path.extend_from_slice(reader.bytes()?);
        let path = RelPath::parse(&path)?;
        let (size, modified) = (reader.number()?, reader.signed()?);
        let hash = match reader.optional()? {
            Some(bytes) => Some(bytes.try_into().ok()?),
            None => None,
        };
        let text = |reader: &mut Reader<'_>| Some(String::from_utf8_lossy(reader.bytes()?).into_owned());
        let large = |reader: &mut Reader<'_>| Some(LargeId(reader.take(16)?.try_into().ok()?));
        let state = match reader.byte()? {
            0 => State::Copied {
                staged: u32::try_from(reader.number()?).ok()?,
            },
            1 => State::Equal,
            2 => State::Skipped,
            3 => State::Failed(text(reader)?),
            4 => State::Folder,
            5 => State::Linked(FileId {
                volume: reader.number()?,
                index: reader.number()?,
            }),
            6 => State::Parted {
                file: large(reader)?,
                changed: get_time(reader)?,
            },
            7 => State::Part {
                file: large(reader)?,
                start: reader.number()?,
            },
            8 => State::PartFailed {
                file: large(reader)?,
                reason: text(reader)?,
            },
            9 => State::Joined { file: large(reader)? },
            10 => State::Extra,
            11 => State::Deleted,
            12 => State::FolderLeft,
            _ => return None,
        };
        Some(Self {
            path,
            size,
            modified,
            hash,
            state,
        })
    }
}
