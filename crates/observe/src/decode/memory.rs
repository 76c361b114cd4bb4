//! Captured memory as numbers.

use crate::call::Captured;

/// Returns word `index` of 8 bytes.
pub(super) fn word(captured: Captured<'_>, index: usize) -> Option<u64> {
    let bytes = captured.bytes()?.get(index * 8..index * 8 + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// Returns two descriptors, as pipe(2) writes them.
pub(super) fn two_descriptors(captured: Captured<'_>) -> Option<[i32; 2]> {
    let bytes: [u8; 8] = captured.bytes()?.get(..8)?.try_into().ok()?;
    let (one, two) = bytes.split_at(4);
    let number = |bytes: &[u8]| Some(i32::from_ne_bytes(bytes.try_into().ok()?));
    Some([number(one)?, number(two)?])
}

/// Returns the sum of the lengths of vectors (`struct iovec`: address, length).
pub(super) fn vectors_length(captured: Captured<'_>) -> u64 {
    let bytes = captured.bytes().unwrap_or_default();
    let lengths = bytes.chunks_exact(16).map(|vector| {
        let length = vector[8..].try_into().expect("half of 16 bytes");
        u64::from_ne_bytes(length)
    });
    lengths.fold(0, u64::saturating_add)
}

/// Returns a captured text, without the NUL at its end.
pub(super) fn text(captured: Captured<'_>) -> Option<&[u8]> {
    let bytes = captured.bytes()?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Some(&bytes[..end])
}
