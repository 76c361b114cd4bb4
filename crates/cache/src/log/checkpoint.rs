//! The checkpoint: the index as it was at one moment.
//!
//! It lists the segments that were in use, and the blocks in them. A segment that it does not list
//! may have been written since; only those are looked at after a restart. So a segment that was
//! freed is used again only after the next checkpoint.

use crate::index::Place;
use crate::log::Reader;

const HEADER_BYTES: usize = 24;
/// Where the number of blocks stands.
pub(crate) const COUNT_AT: usize = 16;
const ENTRY_BYTES: usize = 18;

/// One block of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) tag: u64,
    pub(crate) place: Place,
    /// Use count and age, as the policy saved them.
    pub(crate) code: u8,
    pub(crate) age: u32,
}

/// The fields of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Segments with higher numbers are newer than the checkpoint.
    pub(crate) covered_seq: u64,
    /// Number of each segment in use, 0 for one that may be written.
    pub(crate) segments: Vec<u64>,
    pub(crate) blocks: Vec<Saved>,
}

/// Returns the beginning of a checkpoint, up to the first block.
pub(crate) fn encode_head(covered_seq: u64, segments: &[u64], blocks: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bytes_for(segments.len(), 0));
    bytes.extend_from_slice(&covered_seq.to_le_bytes());
    bytes.extend_from_slice(&(segments.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(blocks as u64).to_le_bytes());
    for seq in segments {
        bytes.extend_from_slice(&seq.to_le_bytes());
    }
    bytes
}

/// Returns the bytes of a checkpoint.
pub(crate) fn bytes_for(segments: usize, blocks: usize) -> usize {
    HEADER_BYTES + segments * 8 + blocks * ENTRY_BYTES
}

impl Saved {
    /// Appends the block to a checkpoint.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.tag.to_le_bytes());
        bytes.extend_from_slice(&self.place.sector.to_le_bytes());
        bytes.push(self.place.sectors);
        bytes.push(self.code);
        bytes.extend_from_slice(&self.age.to_le_bytes());
    }
}

impl Checkpoint {
    /// Parses a checkpoint whose CRC was right.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let covered_seq = reader.u64()?;
        let segments = usize::try_from(reader.u64()?).ok()?;
        let blocks = usize::try_from(reader.u64()?).ok()?;
        // Bounded by the bytes that are there, so that nothing is allocated for a false count.
        if segments > bytes.len() / 8 || blocks > bytes.len() / ENTRY_BYTES {
            return None;
        }
        if bytes_for(segments, blocks) != bytes.len() {
            return None;
        }
        let segments = (0..segments).map(|_| reader.u64()).collect::<Option<_>>()?;
        let saved = |_| {
            Some(Saved {
                tag: reader.u64()?,
                place: Place {
                    sector: reader.u32()?,
                    sectors: reader.u8().filter(|sectors| *sectors > 0)?,
                },
                code: reader.u8()?,
                age: reader.u32()?,
            })
        };
        let blocks = (0..blocks).map(saved).collect::<Option<_>>()?;
        Some(Self {
            covered_seq,
            segments,
            blocks,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_checkpoint_is_read_as_written(
            covered_seq: u64, segments in proptest::collection::vec(any::<u64>(), 0..50),
            blocks in proptest::collection::vec((any::<u64>(), any::<u32>(), 1..=255_u8, any::<u8>(), any::<u32>()), 0..50),
            cut in 1..1000_usize,
        ) {
            let blocks = blocks.into_iter().map(|(tag, sector, sectors, code, age)| Saved {
                tag, place: Place { sector, sectors }, code, age,
            }).collect();
            let checkpoint = Checkpoint { covered_seq, segments, blocks };
            let mut bytes = encode_head(checkpoint.covered_seq, &checkpoint.segments, checkpoint.blocks.len());
            checkpoint.blocks.iter().for_each(|saved| saved.encode(&mut bytes));
            prop_assert_eq!(bytes.len(), bytes_for(checkpoint.segments.len(), checkpoint.blocks.len()));
            prop_assert_eq!(Checkpoint::parse(&bytes), Some(checkpoint));
            prop_assert_eq!(Checkpoint::parse(&bytes[..bytes.len() - cut.min(bytes.len())]), None);
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let _ = Checkpoint::parse(&bytes);
        }
    }
}
