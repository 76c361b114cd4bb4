//! One record of a segment: a sealed block, or the order to forget a file.

use crate::log::{Reader, SECTOR, checksum};
use crate::seal::{NONCE_BYTES, SEAL_BYTES};

/// Largest block in bytes.
pub(crate) const BLOCK_MAX: usize = 64 * 1024;

/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: usize = 48;

/// Largest record in bytes.
pub(crate) const RECORD_MAX: usize = (HEADER_BYTES + BLOCK_MAX + SEAL_BYTES).next_multiple_of(SECTOR);

const MAGIC: u32 = u32::from_le_bytes(*b"RwBk");

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A sealed block.
    Block,
    /// Blocks in earlier records with the same upper half of the tag are void.
    Forget,
}

impl Kind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Block => 1,
            Self::Forget => 2,
        }
    }

    pub(crate) fn parse(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Block),
            2 => Some(Self::Forget),
            _ => None,
        }
    }
}

/// The header in front of a sealed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    /// Number of the segment that the record was written to; older records in the same place have
    /// another.
    pub(crate) segment_seq: u64,
    pub(crate) raw_len: u32,
    pub(crate) stored_len: u32,
    pub(crate) nonce: [u8; NONCE_BYTES],
    pub(crate) is_compressed: bool,
}

impl RecordHeader {
    /// Returns the sectors of header and body.
    pub(crate) fn sectors(&self) -> u8 {
        let bytes = HEADER_BYTES + self.stored_len as usize;
        u8::try_from(bytes.div_ceil(SECTOR)).expect("a record has at most 129 sectors")
    }

    pub(crate) fn encode(&self, salt: &[u8; 32]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment_seq.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[32..44].copy_from_slice(&self.nonce);
        bytes[44] = self.kind.code();
        bytes[45] = u8::from(self.is_compressed);
        let crc = checksum(salt, &[&bytes[8..]]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses a header; `None` if it is damaged or of another cache.
    pub(crate) fn parse(bytes: &[u8], salt: &[u8; 32]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let mut reader = Reader(bytes);
        let is_ours = reader.u32()? == MAGIC && reader.u32()? == checksum(salt, &[&bytes[8..]]);
        if !is_ours {
            return None;
        }
        let parsed = Self {
            tag: reader.u64()?,
            segment_seq: reader.u64()?,
            raw_len: reader.u32()?,
            stored_len: reader.u32()?,
            nonce: reader.take()?,
            kind: Kind::parse(reader.u8()?)?,
            is_compressed: reader.u8()? == 1,
        };
        let fits =
            parsed.raw_len as usize <= BLOCK_MAX && parsed.stored_len as usize <= BLOCK_MAX + SEAL_BYTES;
        fits.then_some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_is_read_as_written_and_damage_is_seen(
            tag: u64, segment_seq: u64, raw_len in 0..=65536_u32, stored_len in 0..=65552_u32, nonce: [u8; 12],
            is_compressed: bool, forget: bool, flip in 0..HEADER_BYTES * 8,
        ) {
            let kind = if forget { Kind::Forget } else { Kind::Block };
            let header = RecordHeader { kind, tag, segment_seq, raw_len, stored_len, nonce, is_compressed };
            let mut bytes = header.encode(&[3; 32]);
            prop_assert_eq!(RecordHeader::parse(&bytes, &[3; 32]), Some(header));
            prop_assert_eq!(RecordHeader::parse(&bytes, &[4; 32]), None);
            bytes[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(RecordHeader::parse(&bytes, &[3; 32]), None);
        }

        #[test]
        fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(RecordHeader::parse(&bytes, &[3; 32]), None);
        }
    }
}
