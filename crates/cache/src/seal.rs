//! Compression, encryption and tags of blocks.
//!
//! A block is compressed with LZ4 where that saves 12 %, then sealed with AES-256-GCM. The key of the
//! block, its length and whether it is compressed are authenticated with it, so a block that is
//! found in a wrong place cannot be opened. All keys are derived from the caller's key and the salt
//! of the cache with HKDF-SHA-256; a new salt makes everything older unreadable.
//!
//! The nonce is the epoch of the cache and a counter. The epoch is raised and synced at each open
//! before the first block is sealed, so no nonce is used twice, also after a crash. A copy of the
//! device that is brought back (a snapshot of a virtual machine) would repeat epochs: give such a
//! copy another key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::hmac;

use crate::key::{FileKey, KEY_BYTES, Key};
use crate::log::record::{BLOCK_MAX, Kind, RecordHeader};

/// Bytes that sealing adds.
pub(crate) const SEAL_BYTES: usize = 16;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 12;

/// A compressed block has at most 88 % of its length: less is not worth the time to expand it.
const WORTHWHILE_PERCENT: usize = 88;

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(key: &[u8; 32], salt: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    let mut derived = [0; 32];
    Salt::new(HKDF_SHA256, salt)
        .extract(key)
        .expand(&[purpose], Length(32))
        .and_then(|output| output.fill(&mut derived))
        .expect("HKDF gives up to 8,160 bytes");
    derived
}

/// Returns the value in the superblock that tells whether a key is the right one.
pub(crate) fn key_check(key: &[u8; 32], salt: &[u8; 32]) -> [u8; 16] {
    let derived = derive(key, salt, b"ropeway cache check");
    derived[..16].try_into().expect("16 of 32 bytes")
}

/// Seals and opens blocks of one cache.
#[derive(Debug)]
pub(crate) struct Sealer {
    seal: LessSafeKey,
    tag: hmac::Key,
    epoch: u32,
    counter: AtomicU64,
}

impl Sealer {
    pub(crate) fn new(key: &[u8; 32], salt: &[u8; 32], epoch: u32) -> Self {
        let seal = derive(key, salt, b"ropeway cache seal");
        let unbound = UnboundKey::new(&AES_256_GCM, &seal).expect("a key of 32 bytes");
        Self {
            seal: LessSafeKey::new(unbound),
            tag: hmac::Key::new(hmac::HMAC_SHA256, &derive(key, salt, b"ropeway cache tag")),
            epoch,
            counter: AtomicU64::new(0),
        }
    }

    /// Returns the file's half of the tags of all its blocks.
    pub(crate) fn file_tag(&self, file: &FileKey) -> u32 {
        let hash = hmac::sign(&self.tag, &file.encode());
        u32::from_le_bytes(hash.as_ref()[..4].try_into().expect("4 of 32 bytes"))
    }

    /// Returns the tag of a block.
    pub(crate) fn tag(&self, key: &Key) -> u64 {
        let hash = hmac::sign(&self.tag, &key.encode());
        let low = u32::from_le_bytes(hash.as_ref()[..4].try_into().expect("4 of 32 bytes"));
        u64::from(self.file_tag(&key.file)) << 32 | u64::from(low)
    }

    /// Returns the record of a block: header (without the segment's number) and sealed body.
    pub(crate) fn seal(&self, key: &Key, plain: &[u8]) -> (RecordHeader, Vec<u8>) {
        assert!(plain.len() <= BLOCK_MAX, "a block has at most 64 KiB");
        let compressed = lz4_flex::block::compress(plain);
        let is_compressed = compressed.len() * 100 <= plain.len() * WORTHWHILE_PERCENT;
        let mut body = if is_compressed { compressed } else { plain.to_vec() };
        let mut nonce = [0; NONCE_BYTES];
        nonce[..4].copy_from_slice(&self.epoch.to_le_bytes());
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        nonce[4..].copy_from_slice(&count.to_le_bytes());
        let raw_len = u32::try_from(plain.len()).expect("at most 64 KiB");
        let aad = aad(key, raw_len, is_compressed);
        self.seal
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body)
            .expect("64 KiB are within the limit of GCM");
        let header = RecordHeader {
            kind: Kind::Block,
            tag: self.tag(key),
            segment_seq: 0,
            raw_len,
            stored_len: u32::try_from(body.len()).expect("at most 64 KiB and a seal"),
            nonce,
            is_compressed,
        };
        (header, body)
    }

    /// Opens a body; `None` if it is not the block of this key. What is compressed is opened in
    /// place first.
    pub(crate) fn open(&self, key: &Key, header: &RecordHeader, body: &mut [u8]) -> Option<Arc<[u8]>> {
        let aad = aad(key, header.raw_len, header.is_compressed);
        let nonce = Nonce::assume_unique_for_key(header.nonce);
        let raw_len = usize::try_from(header.raw_len).ok()?;
        if raw_len > BLOCK_MAX || body.len() < SEAL_BYTES {
            return None;
        }
        // The memory that the caller gets, so that nothing is copied once more.
        let mut block: Arc<[u8]> = std::iter::repeat_n(0, raw_len).collect();
        let plain = Arc::get_mut(&mut block)?;
        if header.is_compressed {
            let compressed: &[u8] = self.seal.open_in_place(nonce, aad, body).ok()?;
            let expanded = lz4_flex::block::decompress_into(compressed, plain).ok()?;
            return (expanded == raw_len).then_some(block);
        }
        let (sealed, seal) = body.split_at(body.len() - SEAL_BYTES);
        if sealed.len() != raw_len {
            return None;
        }
        let opened = self.seal.open_separate_gather(nonce, aad, sealed, seal, plain);
        opened.is_ok().then_some(block)
    }
}

fn aad(key: &Key, raw_len: u32, is_compressed: bool) -> Aad<[u8; KEY_BYTES + 5]> {
    let mut bytes = [0; KEY_BYTES + 5];
    bytes[..KEY_BYTES].copy_from_slice(&key.encode());
    bytes[KEY_BYTES..KEY_BYTES + 4].copy_from_slice(&raw_len.to_le_bytes());
    bytes[KEY_BYTES + 4] = u8::from(is_compressed);
    Aad::from(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::Version;

    fn key(block: u64) -> Key {
        Key {
            file: FileKey {
                share: [1; 16],
                volume: 2,
                file: 3,
            },
            version: Version {
                change_time: 4,
                size: 5,
                lease_epoch: 6,
            },
            block,
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_with_its_key_only(
            mut plain in proptest::collection::vec(any::<u8>(), 0..5000), zeros in 0_usize..5000, flip in any::<usize>(),
        ) {
            plain.resize(plain.len() + zeros, 0);
            let sealer = Sealer::new(&[7; 32], &[8; 32], 9);
            let (header, body) = sealer.seal(&key(1), &plain);
            prop_assert_eq!(sealer.open(&key(1), &header, &mut body.clone()), Some(Arc::from(plain)));
            prop_assert_eq!(sealer.open(&key(2), &header, &mut body.clone()), None);
            let other = Sealer::new(&[7; 32], &[9; 32], 9);
            prop_assert_eq!(other.open(&key(1), &header, &mut body.clone()), None);
            let mut flipped = body.clone();
            flipped[flip % body.len()] ^= 1;
            prop_assert_eq!(sealer.open(&key(1), &header, &mut flipped), None);
            let longer = RecordHeader { raw_len: header.raw_len + 1, ..header };
            prop_assert_eq!(sealer.open(&key(1), &longer, &mut body.clone()), None);
        }
    }

    #[test]
    fn tags_share_the_half_of_their_file() {
        let sealer = Sealer::new(&[7; 32], &[8; 32], 9);
        assert_eq!(sealer.tag(&key(1)) >> 32, sealer.tag(&key(2)) >> 32);
        assert_ne!(sealer.tag(&key(1)), sealer.tag(&key(2)));
    }
}
