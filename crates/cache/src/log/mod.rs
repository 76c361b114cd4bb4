//! The format on the device: codecs without I/O.
//!
//! ```text
//! 0         superblock, even generations ([`superblock`])
//! 4096      superblock, odd generations
//! 8192      checkpoint slot 0, checkpoint slot 1 ([`checkpoint`])
//! data      segments of equal size:
//!           | header 512 | record | record | … | (unused) | footer 16 KiB |   ([`segment`], [`record`])
//! ```
//!
//! Numbers are little-endian. Records begin at multiples of 512 bytes. Pages of 4 KiB are written once
//! in the life of a segment, so a torn write never damages what was synced before.

pub(crate) mod checkpoint;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod superblock;

/// Bytes of a sector, in which places are counted.
pub(crate) const SECTOR: usize = 512;

/// Bytes of a page: unit and alignment of all writes.
pub(crate) const PAGE: usize = 4096;

/// Returns the CRC-32 of bytes, bound to one cache by its salt.
pub(crate) fn checksum(salt: &[u8; 32], parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(salt);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Reads numbers from a slice, one after the other.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
