//! What the catalog says of a task that is done.

use crate::catalog::losses::Losses;
use crate::codec::{Reader, put_number};
use crate::task::TaskId;

/// Sums over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sums {
    /// Nodes that are no folders.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Files that this claim copied.
    pub copied: u64,
    /// Bytes of these copies.
    pub copied_bytes: u64,
    /// Files that failed, and folders that could not be listed.
    pub failed: u64,
    /// Nodes left out on purpose: devices, sockets, and what has a temporary name of Ropeway.
    pub skipped: u64,
    /// Folders.
    pub folders: u64,
    /// Files with several names that are left to the phase of links.
    pub linked: u64,
    /// Parts that large files were cut into.
    pub parts: u64,
    /// Nodes that only the target had. A folder counts once, with everything in it.
    pub extra: u64,
    /// Of these, nodes that were removed.
    pub deleted: u64,
    /// Of these, nodes that could not be removed.
    pub kept: u64,
}

impl Sums {
    const COUNT: usize = 12;

    fn as_array(&self) -> [u64; Self::COUNT] {
        [
            self.files,
            self.bytes,
            self.copied,
            self.copied_bytes,
            self.failed,
            self.skipped,
            self.folders,
            self.linked,
            self.parts,
            self.extra,
            self.deleted,
            self.kept,
        ]
    }

    fn of_array(sums: [u64; Self::COUNT]) -> Self {
        let [
            files,
            bytes,
            copied,
            copied_bytes,
            failed,
            skipped,
            folders,
            linked,
            parts,
            extra,
            deleted,
            kept,
        ] = sums;
        Self {
            files,
            bytes,
            copied,
            copied_bytes,
            failed,
            skipped,
            folders,
            linked,
            parts,
            extra,
            deleted,
            kept,
        }
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        let (own, other) = (self.as_array(), other.as_array());
        *self = Self::of_array(std::array::from_fn(|at| own[at].saturating_add(other[at])));
    }
}

/// The content of `done/TASK`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Round of the task.
    pub round: u32,
    /// What it came to.
    pub sums: Sums,
    /// Tasks that it gave away, whichever claim of it did.
    pub given: Vec<TaskId>,
    /// Segments that its claims have published, so that a missing one is noticed.
    pub segments: u64,
    /// Epoch of the claim that ended it.
    pub epoch: u32,
    /// Attributes that the target could not keep. After a kill some may be counted twice.
    pub losses: Losses,
    /// Whether each round does all of this again, so that only the losses of the last one count.
    pub again: bool,
}

/// Bytes of the checksum at the end: the first of a BLAKE3 hash of the rest.
const CHECKSUM: usize = 8;

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let hash = blake3::hash(bytes);
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

impl Done {
    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, u64::from(self.round));
        self.sums
            .as_array()
            .iter()
            .for_each(|sum| put_number(&mut out, *sum));
        put_number(&mut out, self.given.len() as u64);
        self.given.iter().for_each(|task| out.extend_from_slice(&task.0));
        put_number(&mut out, self.segments);
        put_number(&mut out, u64::from(self.epoch));
        self.losses.put(&mut out);
        out.push(u8::from(self.again));
        let checksum = checksum(&out);
        out.extend_from_slice(&checksum);
        out
    }

    /// Parses the bytes; `None` if they are something else, or damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, found) = bytes.split_last_chunk()?;
        if *found != checksum(bytes) {
            return None;
        }
        let mut reader = Reader::new(bytes);
        let round = u32::try_from(reader.number()?).ok()?;
        let mut sums = [0; Sums::COUNT];
        for sum in &mut sums {
            *sum = reader.number()?;
        }
        let count = reader.count()?;
        let mut given = Vec::new();
        for _ in 0..count {
            given.push(TaskId(reader.take(16)?.try_into().ok()?));
        }
        let segments = reader.number()?;
        let epoch = u32::try_from(reader.number()?).ok()?;
        let losses = Losses::get(&mut reader)?;
        let again = reader.byte()? != 0;
        reader.end()?;
        Some(Self {
            round,
            sums: Sums::of_array(sums),
            given,
            segments,
            epoch,
            losses,
            again,
        })
    }
}

#[cfg(test)]
mod tests {
    use ropeway_vfs::Loss;

    use super::*;

    #[test]
    fn what_is_done_is_read_as_written() {
        let sums = Sums {
            files: 3,
            bytes: u64::MAX,
            linked: 9,
            ..Sums::default()
        };
        let done = Done {
            round: 7,
            sums,
            given: vec![TaskId([1; 16]), TaskId([2; 16])],
            segments: 5,
            epoch: 2,
            losses: Losses([(Loss::Acl, 3)].into()),
            again: true,
        };
        let bytes = done.encode();
        assert_eq!(Done::decode(&bytes), Some(done.clone()));
        for end in 0..bytes.len() {
            assert_eq!(Done::decode(&bytes[..end]), None);
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[end] ^= 1 << bit;
                assert_eq!(Done::decode(&damaged), None, "bit {bit} of byte {end}");
            }
        }
        let mut twice = sums;
        twice.add(&sums);
        assert_eq!((twice.files, twice.bytes, twice.linked), (6, u64::MAX, 18));
    }
}
