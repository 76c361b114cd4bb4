//! Tests' peers: valid messages, and what a hostile peer makes of them.

use super::header::HEADER_LEN;
use super::{Reader, Writer};

/// A message: a header of zeros and the body that `encode` writes.
pub(super) fn message(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    encode(&mut Writer::within(&mut out, 0));
    out
}

/// A structure that does not belong to a message of its own.
pub(super) fn structure(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

/// A reader at the body of `message`.
pub(super) fn body(message: &[u8]) -> Reader<'_> {
    Reader::at(message, HEADER_LEN, "test")
}

/// Calls `decode` with truncations, single changed bytes and fields, many random changes of `valid`, and noise. Only
/// bytes from `fixed` on are changed. The test is that nothing panics and nothing takes memory without bound.
pub(super) fn attack<T>(valid: &[u8], fixed: usize, mut decode: impl FnMut(&[u8]) -> T) {
    for end in 0..=valid.len() {
        decode(&valid[..end]);
    }
    for at in fixed..valid.len() {
        for value in [
            0,
            1,
            2,
            4,
            8,
            16,
            0x7F,
            0x80,
            0xFE,
            0xFF,
            valid[at].wrapping_add(1),
            valid[at].wrapping_sub(1),
        ] {
            let mut bytes = valid.to_vec();
            bytes[at] = value;
            decode(&bytes);
        }
        for width in [2, 4, 8] {
            let mut bytes = valid.to_vec();
            for byte in bytes[at..].iter_mut().take(width) {
                *byte = 0xFF;
            }
            decode(&bytes);
        }
    }
    let mut random = Random(valid.len() as u64);
    for _ in 0..2_000 {
        let mut bytes = valid.to_vec();
        for _ in 0..=random.below(6) {
            let at = fixed + random.below(valid.len() - fixed + 1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.byte();
            }
        }
        if random.below(3) == 0 {
            bytes.truncate(fixed + random.below(valid.len() - fixed + 1));
        }
        decode(&bytes);
    }
    for _ in 0..500 {
        let length = fixed + random.below(300);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
        decode(&bytes);
        // With the right StructureSize and small numbers, more of the structure is reached.
        for (byte, right) in bytes.iter_mut().zip(valid).take(fixed + 2) {
            *byte = *right;
        }
        for byte in bytes.iter_mut().skip(fixed + 2) {
            *byte = if *byte & 1 == 0 { *byte >> 4 } else { 0 };
        }
        decode(&bytes);
    }
}

/// [`attack`] on a message's body.
pub(super) fn attack_body<T>(valid: &[u8], mut decode: impl FnMut(&mut Reader<'_>) -> T) {
    attack(valid, HEADER_LEN, |bytes| decode(&mut body(bytes)));
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % (bound.max(1) as u64)) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}
