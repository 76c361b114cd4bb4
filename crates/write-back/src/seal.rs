//! Seals the records of one part of a journal.
//!
//! Each part has a key of its own, derived (HKDF-SHA-256) from the journal's key and a random salt
//! in the part's header. Only the process that made a part appends to it, so the number of the
//! record is a nonce that is never used twice, whatever crashes, and also if a copy of the disk is
//! brought back.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::record::RECORD_MAX;

/// Bytes of a part's header: magic number, salt, number of the file, number of the part.
pub(crate) const HEADER: usize = 8 + 32 + 8 + 4;
/// Bytes before a sealed record: its length, twice, the second time inverted.
pub(crate) const LENGTHS: usize = 8;
/// Bytes of the seal.
pub(crate) const TAG: usize = 16;

const MAGIC: &[u8; 8] = b"RWBACK01";

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

/// The seal of one part.
#[derive(Debug)]
pub(crate) struct Seal {
    key: LessSafeKey,
    file: u64,
    part: u32,
}

impl Seal {
    fn new(key: &[u8; 32], salt: &[u8], file: u64, part: u32) -> Self {
        let mut derived = [0; 32];
        Salt::new(HKDF_SHA256, salt)
            .extract(key)
            .expand(&[b"ropeway write-back journal"], Length)
            .and_then(|output| output.fill(&mut derived))
            .expect("HKDF gives 32 bytes");
        let unbound = UnboundKey::new(&AES_256_GCM, &derived).expect("a key of 32 bytes");
        Self {
            key: LessSafeKey::new(unbound),
            file,
            part,
        }
    }

    /// Makes the seal and the header of a new part.
    pub(crate) fn make(key: &[u8; 32], salt: &[u8; 32], file: u64, part: u32) -> (Self, Vec<u8>) {
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(salt);
        header.extend_from_slice(&file.to_le_bytes());
        header.extend_from_slice(&part.to_le_bytes());
        (Self::new(key, salt, file, part), header)
    }

    /// Returns the seal of a part by its header; `None` for another file.
    pub(crate) fn of_header(key: &[u8; 32], header: &[u8; HEADER], file: u64, part: u32) -> Option<Self> {
        let (salt, rest) = header.strip_prefix(MAGIC)?.split_at(32);
        let is_it = rest[..8] == file.to_le_bytes() && rest[8..] == part.to_le_bytes();
        is_it.then(|| Self::new(key, salt, file, part))
    }

    /// Appends the sealed record to `out`. `number` counts the records of the part.
    pub(crate) fn seal(&self, number: u64, plain: Vec<u8>, out: &mut Vec<u8>) {
        assert!(plain.len() <= RECORD_MAX, "a record has a largest size");
        let length = plain.len() as u32 + TAG as u32;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        let mut sealed = plain;
        self.key
            .seal_in_place_append_tag(nonce(number), self.aad(length), &mut sealed)
            .expect("records are within the limit of GCM");
        out.extend_from_slice(&sealed);
    }

    /// Opens a sealed record in place.
    pub(crate) fn open<'a>(&self, number: u64, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let length = u32::try_from(sealed.len()).ok()?;
        let opened = self.key.open_in_place(nonce(number), self.aad(length), sealed);
        opened.ok().map(|plain| &*plain)
    }

    fn aad(&self, length: u32) -> Aad<[u8; 16]> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.file.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.part.to_le_bytes());
        bytes[12..].copy_from_slice(&length.to_le_bytes());
        Aad::from(bytes)
    }
}

/// Returns the length of the sealed record that follows; `None` where no record begins.
pub(crate) fn length_of(bytes: [u8; LENGTHS]) -> Option<usize> {
    let [a, b, c, d, e, f, g, h] = bytes;
    let (length, check) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let length = (length == !check).then_some(length as usize)?;
    (length > TAG && length <= RECORD_MAX + TAG).then_some(length)
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_opens_in_its_place_only() {
        let (seal, header) = Seal::make(&[1; 32], &[2; 32], 3, 4);
        let mut out = Vec::new();
        seal.seal(5, b"what was written".to_vec(), &mut out);
        let (lengths, sealed) = out.split_first_chunk().unwrap();
        assert_eq!(length_of(*lengths), Some(sealed.len()));
        let header: &[u8; HEADER] = header.as_slice().try_into().unwrap();
        let again = Seal::of_header(&[1; 32], header, 3, 4).unwrap();
        assert_eq!(again.open(5, &mut sealed.to_vec()).unwrap(), b"what was written");
        assert_eq!(again.open(6, &mut sealed.to_vec()), None);
        assert!(Seal::of_header(&[1; 32], header, 3, 5).is_none());
        let other = Seal::of_header(&[9; 32], header, 3, 4).unwrap();
        assert_eq!(other.open(5, &mut sealed.to_vec()), None);
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(again.open(5, &mut flipped), None);
        }
        assert_eq!(length_of([0; LENGTHS]), None);
    }
}
