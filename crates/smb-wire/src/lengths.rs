//! Numbers between wire and memory.

use super::Reader;

/// The same place in the same message; faults will name `structure`.
pub(super) fn named<'a>(reader: &Reader<'a>, structure: &'static str) -> Reader<'a> {
    Reader::at(reader.message(), reader.position(), structure)
}

/// A `u32` from the wire as a length or offset.
pub(super) fn place(value: u32) -> usize {
    // Exact on every platform with at least 32-bit addresses; on others no message is that long.
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A length that must fit a 16-bit field.
///
/// # Panics
/// If it does not: callers bound what they send.
pub(super) fn len_u16(length: usize) -> u16 {
    u16::try_from(length).expect("the caller keeps 16-bit lengths")
}

/// A length that must fit a 32-bit field.
///
/// # Panics
/// If it does not: callers bound what they send.
pub(super) fn len_u32(length: usize) -> u32 {
    u32::try_from(length).expect("the caller keeps 32-bit lengths")
}
