//! The superblock: shape, epoch and checkpoint of a cache.
//!
//! Two copies at 0 and 4096 are written one after the other; the valid one with the higher generation counts.
//! All fields lie in the first sector, which a power cut leaves either old or new.

use crate::log::{PAGE, Reader, SECTOR, checksum};

/// Format that this program writes.
pub(crate) const FORMAT: u32 = 1;

/// Bytes of both copies.
pub(crate) const SUPERBLOCKS_BYTES: usize = 2 * PAGE;

const MAGIC: [u8; 16] = *b"ropeway cache\x1a\r\n";

/// Where a checkpoint lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct CheckpointPlace {
    /// Slot, 0 or 1.
    pub(crate) slot: u8,
    /// Bytes; 0 if there is no checkpoint.
    pub(crate) len: u64,
    pub(crate) crc: u32,
}

/// The fields of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) generation: u64,
    pub(crate) epoch: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) segments: u32,
    /// Bytes of one checkpoint slot.
    pub(crate) checkpoint_bytes: u64,
    pub(crate) salt: [u8; 32],
    pub(crate) key_check: [u8; 16],
    pub(crate) checkpoint: CheckpointPlace,
}

/// What a superblock's page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A superblock of this format.
    Valid(Superblock),
    /// A superblock of a later format.
    Newer(u32),
    /// A superblock that is damaged.
    Damaged,
    /// Zeros only.
    Blank,
    /// Something else.
    Foreign,
}

impl Superblock {
    /// Returns the position of the first segment.
    pub(crate) fn data_start(&self) -> u64 {
        SUPERBLOCKS_BYTES as u64 + 2 * self.checkpoint_bytes
    }

    /// Returns the bytes of the whole cache.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.data_start() + u64::from(self.segments) * u64::from(self.segment_bytes)
    }

    /// Returns the position of a checkpoint slot.
    pub(crate) fn slot_start(&self, slot: u8) -> u64 {
        SUPERBLOCKS_BYTES as u64 + u64::from(slot) * self.checkpoint_bytes
    }

    /// Returns the position of the copy for this generation.
    pub(crate) fn position(&self) -> u64 {
        (self.generation % 2) * PAGE as u64
    }

    pub(crate) fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        let mut at = 24;
        let mut put = |bytes: &[u8]| {
            page[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&self.generation.to_le_bytes());
        put(&self.epoch.to_le_bytes());
        put(&self.segment_bytes.to_le_bytes());
        put(&self.segments.to_le_bytes());
        put(&self.checkpoint_bytes.to_le_bytes());
        put(&self.salt);
        put(&self.key_check);
        put(&[self.checkpoint.slot]);
        put(&self.checkpoint.len.to_le_bytes());
        put(&self.checkpoint.crc.to_le_bytes());
        page[..16].copy_from_slice(&MAGIC);
        page[16..20].copy_from_slice(&FORMAT.to_le_bytes());
        let crc = checksum(&[0; 32], &[&page[..20], &page[24..SECTOR]]);
        page[20..24].copy_from_slice(&crc.to_le_bytes());
    }

    /// Parses a page.
    pub(crate) fn parse(page: &[u8]) -> Found {
        if page.iter().all(|byte| *byte == 0) {
            return Found::Blank;
        }
        let Some(sector) = page.get(..SECTOR).filter(|sector| sector[..16] == MAGIC) else {
            return Found::Foreign;
        };
        let mut reader = Reader(&sector[16..]);
        let (format, crc) = (reader.u32(), reader.u32());
        let is_intact = crc == Some(checksum(&[0; 32], &[&sector[..20], &sector[24..]]));
        match format {
            Some(format) if is_intact && format > FORMAT => Found::Newer(format),
            Some(FORMAT) if is_intact => Self::fields(&mut reader).map_or(Found::Damaged, Found::Valid),
            _ => Found::Damaged,
        }
    }

    fn fields(reader: &mut Reader<'_>) -> Option<Self> {
        let superblock = Self {
            generation: reader.u64()?,
            epoch: reader.u32()?,
            segment_bytes: reader.u32()?,
            segments: reader.u32()?,
            checkpoint_bytes: reader.u64()?,
            salt: reader.take()?,
            key_check: reader.take()?,
            checkpoint: CheckpointPlace {
                slot: reader.u8()?,
                len: reader.u64()?,
                crc: reader.u32()?,
            },
        };
        let is_sound = superblock.segments > 0
            && (superblock.segment_bytes as usize).is_multiple_of(PAGE)
            && (superblock.checkpoint_bytes as usize).is_multiple_of(PAGE)
            && superblock.checkpoint_bytes < 1 << 48
            && superblock.checkpoint.slot < 2
            && superblock.checkpoint.len <= superblock.checkpoint_bytes;
        is_sound.then_some(superblock)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_superblock_is_read_as_written_and_damage_is_seen(
            generation: u64, epoch: u32, pages in 1..1000_u32, segments in 1..1000_u32, slot in 0..2_u8, crc: u32,
            salt: [u8; 32], key_check: [u8; 16], flip in 0..SECTOR * 8,
        ) {
            let superblock = Superblock {
                generation, epoch, segment_bytes: pages * 4096, segments, checkpoint_bytes: 8192, salt, key_check,
                checkpoint: CheckpointPlace { slot, len: 4096, crc },
            };
            let mut page = vec![0; PAGE];
            superblock.encode(&mut page);
            prop_assert_eq!(Superblock::parse(&page), Found::Valid(superblock));
            page[flip / 8] ^= 1 << (flip % 8);
            let expected = if flip < 128 { Found::Foreign } else { Found::Damaged };
            prop_assert_eq!(Superblock::parse(&page), expected);
        }
    }

    #[test]
    fn blank_and_foreign_pages_are_told_apart() {
        assert_eq!(Superblock::parse(&[0; PAGE]), Found::Blank);
        assert_eq!(Superblock::parse(&[b'x'; PAGE]), Found::Foreign);
    }
}
