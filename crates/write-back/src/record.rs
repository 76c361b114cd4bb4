//! The records of a journal, and their encoding. Pure.
//!
//! A record is encoded without its length; the seal around it has that. Integers are little-endian.

use ropeway_vfs::store::NodeChange;
use ropeway_vfs::{FileId, RelPath, Timestamp};

/// Most bytes of data in one record. Larger writes are split.
pub(crate) const DATA_MAX: usize = 256 << 10;
/// Most bytes of an encoded record: data, or a path and the fixed fields.
pub(crate) const RECORD_MAX: usize = DATA_MAX + (64 << 10);
/// Longest path in a record, in bytes.
const PATH_MAX: usize = 60 << 10;

/// What tells two versions of a far file apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) id: FileId,
    pub(crate) size: u64,
    pub(crate) created: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
}

/// The state of a file's backlog without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) path: RelPath,
    /// The far file as the journal expects it.
    pub(crate) base: Version,
    /// Number of the first record after this one.
    pub(crate) next: u64,
    /// Length of the file as near clients see it.
    pub(crate) size: u64,
    /// Bytes of the far file that are still part of it.
    pub(crate) far_valid: u64,
    /// The least length that was set since the round under way began.
    pub(crate) least: Option<u64>,
    /// The record that set the length last, 0 if none is pending.
    pub(crate) length_from: u64,
    /// Times and attributes to set, and the record that said so last (0: none).
    pub(crate) change: NodeChange,
    pub(crate) change_from: u64,
    /// When data were last known to be on their way to the far file.
    pub(crate) draining: Option<Timestamp>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The first record of each part.
    Snapshot(Box<Snapshot>),
    /// Bytes were written.
    Data {
        offset: u64,
        at: Timestamp,
        bytes: &'a [u8],
    },
    /// The length was set.
    Length { length: u64, at: Timestamp },
    /// Times or attributes were set.
    Change(NodeChange),
    /// Data are on their way to the far file at this time. `begins`: from now on; else still.
    Draining { at: Timestamp, begins: bool },
    /// The far file has what the records up to `mark` say, flushed, and is now of this version.
    Drained { mark: u64, version: Version },
    /// The far file is of this version by own changes, not all of them flushed.
    Touched(Version),
    /// The far file's last name is about to be removed by a near client.
    Removing,
    /// It was; nothing of this file is wanted any more.
    Removed,
    /// Others have changed the far file: it stays, and the backlog is saved under another name. The
    /// file with that name, once it exists.
    Conflict(Option<(RelPath, FileId)>),
}

const SNAPSHOT: u8 = 1;
const DATA: u8 = 2;
const LENGTH: u8 = 3;
const CHANGE: u8 = 4;
const DRAINING: u8 = 5;
const DRAINED: u8 = 6;
const TOUCHED: u8 = 7;
const REMOVING: u8 = 8;
const REMOVED: u8 = 9;
const CONFLICT: u8 = 10;

impl Record<'_> {
    /// Appends the encoding. `synced` is the number of records known to be on the disk.
    pub(crate) fn encode(&self, synced: u64, out: &mut Vec<u8>) {
        let mut put = Put(out);
        put.u64(synced);
        match self {
            Self::Snapshot(snapshot) => {
                put.u8(SNAPSHOT);
                put.snapshot(snapshot);
            }
            Self::Data { offset, at, bytes } => {
                put.u8(DATA);
                put.u64(*offset);
                put.time(*at);
                put.0.extend_from_slice(bytes);
            }
            Self::Length { length, at } => {
                put.u8(LENGTH);
                put.u64(*length);
                put.time(*at);
            }
            Self::Change(change) => {
                put.u8(CHANGE);
                put.change(change);
            }
            Self::Draining { at, begins } => {
                put.u8(DRAINING);
                put.time(*at);
                put.u8(u8::from(*begins));
            }
            Self::Drained { mark, version } => {
                put.u8(DRAINED);
                put.u64(*mark);
                put.version(version);
            }
            Self::Touched(version) => {
                put.u8(TOUCHED);
                put.version(version);
            }
            Self::Removing => put.u8(REMOVING),
            Self::Removed => put.u8(REMOVED),
            Self::Conflict(saved) => {
                put.u8(CONFLICT);
                put.u8(u8::from(saved.is_some()));
                if let Some((path, id)) = saved {
                    put.path(path);
                    put.u64(id.volume);
                    put.u64(id.index);
                }
            }
        }
    }
}

/// Bytes of an encoded data record before its data.
pub(crate) const DATA_AT: usize = 8 + 1 + 8 + 16;

/// Returns the number of records known to be on the disk, and the record. `None` for what no
/// version of this program has written.
pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, Record<'_>)> {
    let mut take = Take(bytes);
    let synced = take.u64()?;
    let record = match take.u8()? {
        SNAPSHOT => Record::Snapshot(Box::new(take.snapshot()?)),
        DATA => {
            let (offset, at) = (take.u64()?, take.time()?);
            let bytes = std::mem::take(&mut take.0);
            offset.checked_add(bytes.len() as u64)?;
            (!bytes.is_empty() && bytes.len() <= DATA_MAX).then_some(Record::Data { offset, at, bytes })?
        }
        LENGTH => Record::Length {
            length: take.u64()?,
            at: take.time()?,
        },
        CHANGE => Record::Change(take.change()?),
        DRAINING => Record::Draining {
            at: take.time()?,
            begins: take.u8()? != 0,
        },
        DRAINED => Record::Drained {
            mark: take.u64()?,
            version: take.version()?,
        },
        TOUCHED => Record::Touched(take.version()?),
        REMOVING => Record::Removing,
        REMOVED => Record::Removed,
        CONFLICT => match take.u8()? {
            0 => Record::Conflict(None),
            _ => Record::Conflict(Some((take.path()?, take.id()?))),
        },
        _ => return None,
    };
    take.0.is_empty().then_some((synced, record))
}

struct Put<'a>(&'a mut Vec<u8>);

impl Put<'_> {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn time(&mut self, time: Timestamp) {
        self.0.extend_from_slice(&time.0.to_le_bytes());
    }

    fn version(&mut self, version: &Version) {
        self.u64(version.id.volume);
        self.u64(version.id.index);
        self.u64(version.size);
        self.time(version.created);
        self.time(version.modified);
        self.time(version.changed);
    }

    fn path(&mut self, path: &RelPath) {
        self.u64(path.as_bytes().len() as u64);
        self.0.extend_from_slice(path.as_bytes());
    }

    fn change(&mut self, change: &NodeChange) {
        let times = [change.created, change.accessed, change.modified, change.changed];
        for time in times {
            self.u8(u8::from(time.is_some()));
            self.time(time.unwrap_or_default());
        }
        self.u64(change.dos_attributes.map_or(u64::MAX, u64::from));
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        self.path(&snapshot.path);
        self.version(&snapshot.base);
        self.u64(snapshot.next);
        self.u64(snapshot.size);
        self.u64(snapshot.far_valid);
        self.u64(snapshot.least.unwrap_or(u64::MAX));
        self.u64(snapshot.length_from);
        self.change(&snapshot.change);
        self.u64(snapshot.change_from);
        self.u8(u8::from(snapshot.draining.is_some()));
        self.time(snapshot.draining.unwrap_or_default());
    }
}

struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.bytes().map(|bytes| Timestamp(i128::from_le_bytes(bytes)))
    }

    fn id(&mut self) -> Option<FileId> {
        Some(FileId {
            volume: self.u64()?,
            index: self.u64()?,
        })
    }

    fn version(&mut self) -> Option<Version> {
        Some(Version {
            id: self.id()?,
            size: self.u64()?,
            created: self.time()?,
            modified: self.time()?,
            changed: self.time()?,
        })
    }

    fn path(&mut self) -> Option<RelPath> {
        let length = usize::try_from(self.u64()?).ok()?;
        if length > PATH_MAX {
            return None;
        }
        let (path, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        RelPath::parse(path)
    }

    fn change(&mut self) -> Option<NodeChange> {
        let mut times = [None; 4];
        for time in &mut times {
            let is_set = self.u8()? != 0;
            let value = self.time()?;
            *time = is_set.then_some(value);
        }
        let [created, accessed, modified, changed] = times;
        let dos_attributes = match self.u64()? {
            u64::MAX => None,
            bits => Some(u32::try_from(bits).ok()?),
        };
        Some(NodeChange {
            created,
            accessed,
            modified,
            changed,
            dos_attributes,
        })
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        Some(Snapshot {
            path: self.path()?,
            base: self.version()?,
            next: self.u64()?,
            size: self.u64()?,
            far_valid: self.u64()?,
            least: Some(self.u64()?).filter(|least| *least != u64::MAX),
            length_from: self.u64()?,
            change: self.change()?,
            change_from: self.u64()?,
            draining: {
                let is_draining = self.u8()? != 0;
                let at = self.time()?;
                is_draining.then_some(at)
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_time(random: &mut fastrand::Rng) -> Timestamp {
        Timestamp(i128::from(random.i64(..)))
    }

    fn any_version(random: &mut fastrand::Rng) -> Version {
        Version {
            id: FileId {
                volume: random.u64(..),
                index: random.u64(..),
            },
            size: random.u64(..),
            created: any_time(random),
            modified: any_time(random),
            changed: any_time(random),
        }
    }

    fn any_change(random: &mut fastrand::Rng) -> NodeChange {
        let mut time = || random.bool().then(|| Timestamp(i128::from(random.i64(..))));
        NodeChange {
            created: time(),
            accessed: time(),
            modified: time(),
            changed: time(),
            dos_attributes: random.bool().then(|| random.u32(..)),
        }
    }

    fn any_path(random: &mut fastrand::Rng) -> RelPath {
        let name = "n".repeat(random.usize(1..200));
        RelPath::parse(format!("dir/{name}").as_bytes()).unwrap()
    }

    fn any_record<'a>(random: &mut fastrand::Rng, bytes: &'a [u8]) -> Record<'a> {
        let version = any_version(random);
        match random.u8(0..10) {
            0 => Record::Snapshot(Box::new(Snapshot {
                path: any_path(random),
                base: version,
                next: random.u64(..),
                size: random.u64(..),
                far_valid: random.u64(..),
                least: random.bool().then(|| random.u64(..u64::MAX)),
                length_from: random.u64(..),
                change: any_change(random),
                change_from: random.u64(..),
                draining: random.bool().then(|| any_time(random)),
            })),
            1 | 2 => Record::Data {
                offset: random.u64(..1 << 60),
                at: any_time(random),
                bytes,
            },
            3 => Record::Length {
                length: random.u64(..),
                at: any_time(random),
            },
            4 => Record::Change(any_change(random)),
            5 => Record::Draining {
                at: any_time(random),
                begins: random.bool(),
            },
            6 => Record::Drained {
                mark: random.u64(..),
                version,
            },
            7 => Record::Touched(version),
            8 => [Record::Removing, Record::Removed][random.usize(0..2)].clone(),
            _ => Record::Conflict(random.bool().then(|| (any_path(random), version.id))),
        }
    }

    #[test]
    fn records_are_read_as_they_were_written_and_garbage_is_refused() {
        for seed in 0..5000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let data: Vec<u8> = (0..random.usize(1..300)).map(|_| random.u8(..)).collect();
            let record = any_record(&mut random, &data);
            let mut bytes = Vec::new();
            record.encode(seed, &mut bytes);
            assert_eq!(decode(&bytes), Some((seed, record.clone())), "{seed}");
            if !matches!(record, Record::Data { .. }) {
                let cut = random.usize(0..bytes.len());
                assert_eq!(decode(&bytes[..cut]), None, "{seed}: cut at {cut}");
                bytes.push(0);
                assert_eq!(decode(&bytes), None, "{seed}: longer");
                bytes.pop();
            }
            // Whatever it says, it is read without a panic.
            let at = random.usize(0..bytes.len());
            bytes[at] ^= 1 << random.u8(0..8);
            let _ = decode(&bytes);
        }
    }
}
