//! LOCKING_ANDX ([MS-CIFS] 2.2.4.32), and the older locks of bytes (2.2.4.13, 2.2.4.14).

use bitflags::bitflags;
use ropeway_smb_wire::{DecodeErrorKind, Result, Writer};

use crate::message::{AndX, Block, write_block};
use crate::words::{flag_fields, words};

bitflags! {
    /// `TypeOfLock`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct LockType: u8 {
        /// Shared locks; without it, exclusive ones.
        const SHARED_LOCK = 0x01;
        /// An oplock is broken (from the server) or given up (from the client).
        const OPLOCK_RELEASE = 0x02;
        /// The type of a lock changes in one step.
        const CHANGE_LOCKTYPE = 0x04;
        /// Locks that wait are cancelled.
        const CANCEL_LOCK = 0x08;
        /// Ranges have 64 bits.
        const LARGE_FILES = 0x10;
        const _ = !0;
    }
}

flag_fields!(LockType: u8);

words! {
    /// Words of the request.
    pub struct LockingWords {
        /// The command that follows.
        andx: AndX,
        /// The open file.
        fid: u16,
        /// What to do.
        lock_type: LockType,
        /// After a break: none 0, level II 1.
        new_oplock_level: u8,
        /// Milliseconds to wait; all ones: for ever.
        timeout: u32,
        /// Number of ranges to unlock.
        unlocks: u16,
        /// Number of ranges to lock.
        locks: u16,
    }
}

/// A range of bytes of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// The process.
    pub pid: u16,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Maximum number of ranges in one request: 65,535 bytes hold 6,553 short ones.
const RANGES_MAX: usize = 6_553;

/// LOCKING_ANDX request, of a client or, for an oplock break, of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockingRequest {
    /// The words; the numbers of ranges are set when the request is encoded.
    pub words: LockingWords,
    /// Ranges to unlock.
    pub unlocks: Vec<Range>,
    /// Ranges to lock.
    pub locks: Vec<Range>,
}

impl LockingRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 8.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        let words = LockingWords::read(&mut block.words_exactly(8)?)?;
        let is_large = words.lock_type.contains(LockType::LARGE_FILES);
        let mut bytes = block.bytes();
        let each = if is_large { 20 } else { 10 };
        let total = usize::from(words.unlocks) + usize::from(words.locks);
        if total > RANGES_MAX || bytes.remaining() < total * each {
            return Err(bytes.error(DecodeErrorKind::Bounds));
        }
        let mut ranges = |count: u16| -> Result<Vec<Range>> {
            (0..count).map(|_| Range::read(&mut bytes, is_large)).collect()
        };
        Ok(Self {
            words,
            unlocks: ranges(words.unlocks)?,
            locks: ranges(words.locks)?,
        })
    }

    /// Appends the block.
    ///
    /// # Panics
    /// If there are more ranges than 65,535 bytes hold.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let words = LockingWords {
            unlocks: self.unlocks.len() as u16,
            locks: self.locks.len() as u16,
            ..self.words
        };
        let is_large = words.lock_type.contains(LockType::LARGE_FILES);
        write_block(
            w,
            |w| words.write(w),
            |w| {
                for range in self.unlocks.iter().chain(&self.locks) {
                    range.write(w, is_large);
                }
            },
        );
    }
}

impl Range {
    fn read(reader: &mut ropeway_smb_wire::Reader<'_>, is_large: bool) -> Result<Self> {
        let pid = reader.u16()?;
        if !is_large {
            return Ok(Self {
                pid,
                offset: u64::from(reader.u32()?),
                length: u64::from(reader.u32()?),
            });
        }
        reader.skip(2)?;
        // The upper half comes first.
        let mut number = || -> Result<u64> {
            let high = u64::from(reader.u32()?);
            Ok(high << 32 | u64::from(reader.u32()?))
        };
        Ok(Self {
            pid,
            offset: number()?,
            length: number()?,
        })
    }

    fn write(self, w: &mut Writer<'_>, is_large: bool) {
        w.u16(self.pid);
        if !is_large {
            w.u32(self.offset as u32);
            w.u32(self.length as u32);
            return;
        }
        w.u16(0);
        for number in [self.offset, self.length] {
            w.u32((number >> 32) as u32);
            w.u32(number as u32);
        }
    }
}

words! {
    /// LOCK_BYTE_RANGE and UNLOCK_BYTE_RANGE requests.
    pub struct ByteRangeRequest {
        /// The open file.
        fid: u16,
        /// Bytes.
        count: u32,
        /// First byte.
        offset: u32,
    }
}

impl ByteRangeRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 5.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        Self::read(&mut block.words_exactly(5)?)
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.write(w), |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;

    #[test]
    fn requests_round_trip() {
        let range = |pid, offset| Range {
            pid,
            offset,
            length: 10,
        };
        let small = LockingRequest {
            words: LockingWords {
                fid: 1,
                unlocks: 1,
                locks: 2,
                timeout: u32::MAX,
                ..LockingWords::default()
            },
            unlocks: vec![range(1, 2)],
            locks: vec![range(3, 4), range(5, 6)],
        };
        let mut large = small.clone();
        large.words.lock_type = LockType::LARGE_FILES | LockType::SHARED_LOCK;
        large.locks[0].offset = 7 << 40;
        hostile::check(
            &[small, large],
            |block| LockingRequest::decode(block).ok(),
            |request, w| request.encode(w),
        );
        let old = ByteRangeRequest {
            fid: 1,
            count: 2,
            offset: 3,
        };
        hostile::check(
            &[old],
            |block| ByteRangeRequest::decode(block).ok(),
            |request, w| request.encode(w),
        );
    }
}
