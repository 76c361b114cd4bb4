//! Header and footer of a segment.
//!
//! The header says that a segment was begun, the footer lists its records once it is full. A
//! segment without a valid footer is read record by record.

use crate::log::record::{HEADER_BYTES, Kind, RecordHeader};
use crate::log::{PAGE, Reader, SECTOR, checksum};

/// Bytes of the footer at the end of a segment.
pub(crate) const FOOTER_BYTES: usize = 4 * PAGE;

/// Bytes of the header; the first record follows.
pub(crate) const SEGMENT_HEADER_BYTES: usize = SECTOR;

const MAGIC: u32 = u32::from_le_bytes(*b"RwSg");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"RwFt");
const FOOTER_HEADER_BYTES: usize = 20;
const ENTRY_BYTES: usize = 16;

/// Most records of a segment: as many as the footer can list.
pub(crate) const RECORDS_MAX: usize = (FOOTER_BYTES - FOOTER_HEADER_BYTES) / ENTRY_BYTES;

/// One record as the footer lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    /// Position within the segment in sectors.
    pub(crate) sector: u32,
    pub(crate) sectors: u8,
}

/// Writes the header of a segment.
pub(crate) fn encode_header(seq: u64, salt: &[u8; 32], bytes: &mut [u8]) {
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&seq.to_le_bytes());
    let crc = checksum(salt, &[&bytes[..4], &bytes[8..16]]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the number of a segment; `None` if it was never begun in this cache.
pub(crate) fn parse_header(bytes: &[u8], salt: &[u8; 32]) -> Option<u64> {
    let mut reader = Reader(bytes.get(..16)?);
    let (magic, crc, seq) = (reader.u32()?, reader.u32()?, reader.u64()?);
    (magic == MAGIC && crc == checksum(salt, &[&bytes[..4], &bytes[8..16]])).then_some(seq)
}

/// Writes the footer of a segment.
pub(crate) fn encode_footer(seq: u64, entries: &[Entry], salt: &[u8; 32], bytes: &mut [u8]) {
    assert!(entries.len() <= RECORDS_MAX, "a segment lists its records");
    bytes.fill(0);
    bytes[..4].copy_from_slice(&FOOTER_MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&seq.to_le_bytes());
    let count = u32::try_from(entries.len()).expect("at most RECORDS_MAX");
    bytes[16..20].copy_from_slice(&count.to_le_bytes());
    for (entry, into) in entries
        .iter()
        .zip(bytes[FOOTER_HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES))
    {
        into[..8].copy_from_slice(&entry.tag.to_le_bytes());
        into[8..12].copy_from_slice(&entry.sector.to_le_bytes());
        into[12] = entry.sectors;
        into[13] = entry.kind.code();
    }
    let crc = checksum(salt, &[&bytes[8..]]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the records of the segment `seq`; `None` without a valid footer of that segment.
pub(crate) fn parse_footer(bytes: &[u8], seq: u64, salt: &[u8; 32]) -> Option<Vec<Entry>> {
    let bytes = bytes.get(..FOOTER_BYTES)?;
    let mut reader = Reader(bytes);
    let is_ours = reader.u32()? == FOOTER_MAGIC && reader.u32()? == checksum(salt, &[&bytes[8..]]);
    if !is_ours || reader.u64()? != seq {
        return None;
    }
    let count = usize::try_from(reader.u32()?).ok()?;
    if count > RECORDS_MAX {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for entry in bytes[FOOTER_HEADER_BYTES..].chunks_exact(ENTRY_BYTES).take(count) {
        let mut reader = Reader(entry);
        entries.push(Entry {
            tag: reader.u64()?,
            sector: reader.u32()?,
            sectors: reader.u8()?,
            kind: Kind::parse(reader.u8()?)?,
        });
    }
    Some(entries)
}

/// Reads the records of a whole segment one after the other. Damaged records, and the gaps that
/// flushes leave up to the next page, are skipped sector by sector.
pub(crate) fn scan(bytes: &[u8], seq: u64, salt: &[u8; 32]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let end = bytes.len().saturating_sub(FOOTER_BYTES);
    let mut at = SEGMENT_HEADER_BYTES;
    while at + HEADER_BYTES <= end && entries.len() < RECORDS_MAX {
        match RecordHeader::parse(&bytes[at..end], salt) {
            Some(header) if header.segment_seq == seq => {
                let sectors = header.sectors();
                entries.push(Entry {
                    kind: header.kind,
                    tag: header.tag,
                    sector: u32::try_from(at / SECTOR).expect("a segment is small"),
                    sectors,
                });
                at += usize::from(sectors) * SECTOR;
            }
            _ => at += SECTOR,
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_footer_is_read_as_written_and_damage_is_seen(
            seq: u64, list in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u8>(), any::<bool>()), 0..200),
            flip in 0..FOOTER_BYTES * 8,
        ) {
            let entries: Vec<Entry> = list.into_iter().map(|(tag, sector, sectors, forget)| Entry {
                kind: if forget { Kind::Forget } else { Kind::Block }, tag, sector, sectors,
            }).collect();
            let mut bytes = vec![0; FOOTER_BYTES];
            encode_footer(seq, &entries, &[1; 32], &mut bytes);
            prop_assert_eq!(parse_footer(&bytes, seq, &[1; 32]), Some(entries));
            prop_assert_eq!(parse_footer(&bytes, seq ^ 1, &[1; 32]), None);
            bytes[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(parse_footer(&bytes, seq, &[1; 32]), None);
        }

        #[test]
        fn random_bytes_are_neither(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
            prop_assert_eq!(parse_footer(&bytes, 1, &[1; 32]), None);
            prop_assert_eq!(parse_header(&bytes, &[1; 32]), None);
            prop_assert!(scan(&bytes, 1, &[1; 32]).is_empty());
        }
    }

    #[test]
    fn a_segment_header_is_read_as_written() {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        encode_header(77, &[1; 32], &mut bytes);
        assert_eq!(parse_header(&bytes, &[1; 32]), Some(77));
        assert_eq!(parse_header(&bytes, &[2; 32]), None);
    }
}
