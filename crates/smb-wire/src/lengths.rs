//! Conversions between lengths on the wire and in memory.

use super::Reader;

/// Returns a reader at the same position whose errors name `structure`.
pub(super) fn named<'a>(reader: &Reader<'a>, structure: &'static str) -> Reader<'a> {
    Reader::at(reader.message(), reader.position(), structure)
}

/// Converts a length or offset from the wire.
pub(super) fn place(value: u32) -> usize {
    // Lossless with addresses of 32 bits or more. On other platforms no message is that long.
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a length for a 16-bit field.
///
/// # Panics
/// Panics if it does not fit: callers limit what they send.
pub(super) fn len_u16(length: usize) -> u16 {
    u16::try_from(length).expect("the caller keeps 16-bit lengths")
}

/// Converts a length for a 32-bit field.
///
/// # Panics
/// Panics if it does not fit: callers limit what they send.
pub(super) fn len_u32(length: usize) -> u32 {
    u32::try_from(length).expect("the caller keeps 32-bit lengths")
}
