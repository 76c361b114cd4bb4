//! How what was learned is saved: with the cache's checkpoint, or as a file.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `ROPEPRED` |
//! | 4 | version of the format |
//! | 8 | blocks of the cache |
//! | 4 each class | precision: right and all, in hundredths |
//! | 9 each cell | pairs |
//! | 16 each entry | successors |
//! | 16 each entry | calendar |
//! | 4 | CRC-32 of all before |
//!
//! Numbers are little-endian. All lengths follow from the number of blocks, which the reader knows:
//! nothing is allocated because a file says so. What is under way (streams, fetches) is not saved.

use crate::predict::class::CLASSES;
use crate::predict::superfetch::Superfetch;
use crate::predict::{calendar, pairs, successors};

/// Version of the format.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"ROPEPRED";
const HEADER_BYTES: usize = 8 + 4 + 8;
const CLASS_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 4;

/// Reasons for not using saved predictions. The caller begins without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It does not begin as saved predictions do.
    #[error("these are no saved predictions")]
    Foreign,
    /// It has another version.
    #[error("the predictions are saved in version {0} of the format, not {VERSION}")]
    OtherVersion(u32),
    /// It belongs to a cache of another size.
    #[error("the predictions belong to a cache of {0} blocks")]
    OtherSize(u64),
    /// It is cut short, or too long.
    #[error("the saved predictions have {found} bytes, not {expected}")]
    OtherLength {
        /// Bytes that it has.
        found: usize,
        /// Bytes that it should have.
        expected: usize,
    },
    /// Its checksum is wrong.
    #[error("the saved predictions are damaged")]
    Damaged,
    /// It holds a value that is never written.
    #[error("the saved predictions hold an impossible value")]
    Impossible,
}

/// Reads from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], DecodeError> {
        let (first, rest) = self.0.split_first_chunk::<BYTES>().ok_or(DecodeError::Foreign)?;
        self.0 = rest;
        Ok(*first)
    }
}

fn possible(is_possible: bool) -> Result<(), DecodeError> {
    is_possible.then_some(()).ok_or(DecodeError::Impossible)
}

impl Superfetch {
    fn encoded_bytes(&self) -> usize {
        HEADER_BYTES
            + CLASSES * CLASS_BYTES
            + self.blocks.pairs.cells() * pairs::PAIR_BYTES
            + self.files.entries() * successors::ENTRY_BYTES
            + self.calendar.entries() * calendar::ENTRY_BYTES
            + CHECKSUM_BYTES
    }

    /// Returns what was learned as bytes, for a cache of so many blocks.
    pub fn encode(&self, blocks: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(blocks as u64).to_le_bytes());
        for (right, all) in self.blocks.trials.save() {
            bytes.extend_from_slice(&right.to_le_bytes());
            bytes.extend_from_slice(&all.to_le_bytes());
        }
        bytes.extend(self.blocks.pairs.save().flatten());
        bytes.extend(self.files.save().flatten());
        bytes.extend(self.calendar.save().flatten());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        assert_eq!(bytes.len(), self.encoded_bytes(), "the lengths of the format");
        bytes
    }

    /// Returns what was learned, for a cache of so many blocks.
    pub fn decode(bytes: &[u8], blocks: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader(bytes);
        if reader.take()? != *MAGIC {
            return Err(DecodeError::Foreign);
        }
        let version = u32::from_le_bytes(reader.take()?);
        if version != VERSION {
            return Err(DecodeError::OtherVersion(version));
        }
        let size = u64::from_le_bytes(reader.take()?);
        if size != blocks as u64 {
            return Err(DecodeError::OtherSize(size));
        }
        let mut learned = Self::new(blocks);
        let (found, expected) = (bytes.len(), learned.encoded_bytes());
        if found != expected {
            return Err(DecodeError::OtherLength { found, expected });
        }
        let (body, checksum) = bytes.split_at(found - CHECKSUM_BYTES);
        if checksum != crc32fast::hash(body).to_le_bytes() {
            return Err(DecodeError::Damaged);
        }
        for class in 0..CLASSES {
            let [r0, r1, a0, a1] = reader.take()?;
            let (right, all) = (u16::from_le_bytes([r0, r1]), u16::from_le_bytes([a0, a1]));
            possible(learned.blocks.trials.load(class, right, all))?;
        }
        for cell in 0..learned.blocks.pairs.cells() {
            possible(learned.blocks.pairs.load(cell, &reader.take()?))?;
        }
        for entry in 0..learned.files.entries() {
            possible(learned.files.load(entry, &reader.take()?))?;
        }
        for entry in 0..learned.calendar.entries() {
            possible(learned.calendar.load(entry, &reader.take()?))?;
        }
        Ok(learned)
    }
}
