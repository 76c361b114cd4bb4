//! SMB2 LOCK: byte ranges ([MS-SMB2] 2.2.26, 2.2.27).
//!
//! `StructureSize` is 48: the fixed 24 bytes and one lock, because a request has at least one.

pub use super::bare::LockResponse;
use super::lengths::{len_u16, named};
use super::{Fault, FileId, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of one lock ([MS-SMB2] 2.2.26.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct LockFlags: u32 {
        /// Others may read.
        const SHARED_LOCK = 0x0000_0001;
        /// Others may neither read nor write.
        const EXCLUSIVE_LOCK = 0x0000_0002;
        /// Ends a lock of the same range.
        const UNLOCK = 0x0000_0004;
        /// Fails instead of waiting.
        const FAIL_IMMEDIATELY = 0x0000_0010;
        const _ = !0;
    }
}

/// `LockSequenceNumber` and `LockSequenceIndex`: recognise a request sent again after a reconnect; reserved in 2.0.2
/// ([MS-SMB2] 2.2.26, 3.3.5.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockSequence(pub u32);

impl LockSequence {
    /// Packs a number of 4 bits and an index of 28 bits.
    ///
    /// # Panics
    /// If one is larger.
    pub fn new(number: u8, index: u32) -> Self {
        assert!(number < 1 << 4 && index < 1 << 28, "4 and 28 bits");
        Self(index << 4 | u32::from(number))
    }

    /// Counts the uses of the index.
    pub fn number(self) -> u8 {
        (self.0 & 0xF) as u8
    }

    /// Which of the open's 64 sequences, from 1; 0 for none.
    pub fn index(self) -> u32 {
        self.0 >> 4
    }
}

/// SMB2_LOCK_ELEMENT ([MS-SMB2] 2.2.26.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockElement {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What to do.
    pub flags: LockFlags,
}

/// Bytes of one element.
const ELEMENT_LEN: usize = 24;

/// SMB2 LOCK Request ([MS-SMB2] 2.2.26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open.
    pub file_id: FileId,
    /// Recognises a repetition.
    pub lock_sequence: LockSequence,
    /// At least one; either all unlock or none does, which the server checks ([MS-SMB2] 3.3.5.14).
    pub locks: Vec<LockElement>,
}

impl LockRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, no lock at all.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 LOCK Request");
        reader.structure_size(48)?;
        let count = usize::from(reader.u16()?);
        if count == 0 {
            return Err(reader.fault(Fault::Value));
        }
        let lock_sequence = LockSequence(reader.u32()?);
        let file_id = FileId::decode(&mut reader)?;
        if reader.remaining() / ELEMENT_LEN < count {
            return Err(reader.fault(Fault::Truncated));
        }
        let locks = (0..count)
            .map(|_| {
                let offset = reader.u64()?;
                let length = reader.u64()?;
                let flags = LockFlags::from_bits_retain(reader.u32()?);
                reader.skip(4)?;
                Ok(LockElement {
                    offset,
                    length,
                    flags,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            file_id,
            lock_sequence,
            locks,
        })
    }

    /// Appends the body.
    ///
    /// # Panics
    /// If there is no lock, or more than 65535.
    pub fn encode(&self, w: &mut Writer<'_>) {
        assert!(!self.locks.is_empty(), "a request has at least one lock");
        w.u16(48);
        w.u16(len_u16(self.locks.len()));
        w.u32(self.lock_sequence.0);
        self.file_id.encode(w);
        for lock in &self.locks {
            w.u64(lock.offset);
            w.u64(lock.length);
            w.u32(lock.flags.bits());
            w.zeros(4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack_body, body, message};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            persistent: u64, volatile: u64, number in 0_u8..16, index in 0_u32..1 << 28,
            locks in proptest::collection::vec(any::<(u64, u64, u32)>(), 1..20),
        ) {
            let request = LockRequest {
                file_id: FileId { persistent, volatile },
                lock_sequence: LockSequence::new(number, index),
                locks: locks
                    .into_iter()
                    .map(|(offset, length, flags)| LockElement { offset, length, flags: LockFlags::from_bits_retain(flags) })
                    .collect(),
            };
            let bytes = message(|w| request.encode(w));
            prop_assert_eq!(bytes.len(), 64 + 48 + 24 * (request.locks.len() - 1));
            let decoded = LockRequest::decode(&mut body(&bytes)).unwrap();
            prop_assert_eq!((decoded.lock_sequence.number(), decoded.lock_sequence.index()), (number, index));
            prop_assert_eq!(decoded, request);
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let lock = LockElement {
            offset: 1,
            length: 2,
            flags: LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY,
        };
        let request = LockRequest {
            file_id: FileId::default(),
            lock_sequence: LockSequence::new(1, 64),
            locks: vec![lock; 3],
        };
        let mut bytes = message(|w| request.encode(w));
        attack_body(&bytes, |reader| LockRequest::decode(reader).is_ok());
        bytes[66] = 0;
        assert_eq!(
            LockRequest::decode(&mut body(&bytes)).unwrap_err().fault,
            Fault::Value
        );
        let bytes = message(|w| LockResponse.encode(w));
        assert_eq!(LockResponse::decode(&mut body(&bytes)), Ok(LockResponse));
        attack_body(&bytes, |reader| LockResponse::decode(reader).is_ok());
    }
}
