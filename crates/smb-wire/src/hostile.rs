//! Test helpers: valid messages, and hostile variations of them.

use super::header::HEADER_LEN;
use super::{Reader, Writer};

/// Returns a message: a header of zeros and the body that `encode` writes.
pub(super) fn message(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    encode(&mut Writer::within(&mut out, 0));
    out
}

/// Returns a structure that is not a message itself.
pub(super) fn structure(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

/// Returns a reader at the body of `message`.
pub(super) fn body(message: &[u8]) -> Reader<'_> {
    Reader::at(message, HEADER_LEN, "test")
}

/// Calls `decode` with hostile variations of `valid`: truncations, single changed bytes and fields,
/// many random changes, and noise. Only bytes from `fixed` on are changed. The test passes if
/// nothing panics and no call allocates without bound.
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
    let mut random = fastrand::Rng::with_seed(valid.len() as u64);
    for _ in 0..2_000 {
        let mut bytes = valid.to_vec();
        for _ in 0..=random.usize(..6) {
            let at = fixed + random.usize(..=valid.len() - fixed);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.u8(..);
            }
        }
        if random.usize(..3) == 0 {
            bytes.truncate(fixed + random.usize(..=valid.len() - fixed));
        }
        decode(&bytes);
    }
    for _ in 0..500 {
        let length = fixed + random.usize(..300);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        decode(&bytes);
        // With the right StructureSize and small numbers, decoding gets further into the structure.
        for (byte, right) in bytes.iter_mut().zip(valid).take(fixed + 2) {
            *byte = *right;
        }
        for byte in bytes.iter_mut().skip(fixed + 2) {
            *byte = if *byte & 1 == 0 { *byte >> 4 } else { 0 };
        }
        decode(&bytes);
    }
}

/// Runs [`attack`] on a message's body.
pub(super) fn attack_body<T>(valid: &[u8], mut decode: impl FnMut(&mut Reader<'_>) -> T) {
    attack(valid, HEADER_LEN, |bytes| decode(&mut body(bytes)));
}
