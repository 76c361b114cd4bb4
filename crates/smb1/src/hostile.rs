//! Test helpers: valid messages, and hostile variations of them.

use ropeway_smb_wire::Writer;

use crate::header::{HEADER_LEN, Header};
use crate::message::Block;

/// Returns a message: a header and what `encode` writes after it.
pub(crate) fn message(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    Header::default().encode(&mut w);
    encode(&mut w);
    out
}

/// Returns a structure that is not a message itself.
pub(crate) fn structure(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

/// Calls `decode` with hostile variations of `valid`: truncations, single changed bytes and fields,
/// many random changes, and noise. Only bytes from `fixed` on are changed. The test passes if
/// nothing panics and no call allocates without bound.
pub(crate) fn attack<T>(valid: &[u8], fixed: usize, mut decode: impl FnMut(&[u8]) -> T) {
    for end in 0..=valid.len() {
        decode(&valid[..end]);
    }
    for at in fixed..valid.len() {
        for value in [0, 1, 2, 4, 8, 16, 0x7F, 0x80, 0xFE, 0xFF] {
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
    for _ in 0..300 {
        let length = fixed + random.usize(..300);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        decode(&bytes);
        // With the right beginning, decoding gets further.
        for (byte, right) in bytes.iter_mut().zip(valid).take(fixed + 2) {
            *byte = *right;
        }
        decode(&bytes);
    }
}

/// Checks the codec of a block in both directions: `valid` messages come back byte by byte, and
/// whatever decodes from hostile bytes means the same after it was encoded again.
pub(crate) fn check<T: PartialEq + std::fmt::Debug>(
    valid: &[T],
    decode: impl for<'a> Fn(&Block<'a>) -> Option<T>,
    encode: impl Fn(&T, &mut Writer<'_>),
) {
    for value in valid {
        let bytes = message(|w| encode(value, w));
        let block = Block::first(&bytes).unwrap();
        assert_eq!(decode(&block).as_ref(), Some(value), "{bytes:02x?}");
        attack(&bytes, HEADER_LEN, |bytes| {
            let Some(value) = Block::first(bytes).ok().and_then(|block| decode(&block)) else {
                return;
            };
            let again = message(|w| encode(&value, w));
            let block = Block::first(&again).unwrap();
            assert_eq!(
                decode(&block).as_ref(),
                Some(&value),
                "from {bytes:02x?}\nto   {again:02x?}"
            );
        });
    }
}
