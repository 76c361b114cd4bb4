//! Limits of response buffers ([MS-SMB2] 3.3.5.20.1).

use ropeway_smb_wire::{DecodeError, DecodeErrorKind, NtStatus, Text, Writer};

/// A complete response (STATUS_SUCCESS) or a truncated one (STATUS_BUFFER_OVERFLOW), or an error.
pub(crate) type OutputResult = Result<(NtStatus, Vec<u8>), NtStatus>;

/// Truncates a structure whose first `fixed` bytes must fit; the name after them may be cut.
///
/// # Errors
/// STATUS_INFO_LENGTH_MISMATCH.
pub(crate) fn truncated(mut bytes: Vec<u8>, fixed: usize, length_max: usize) -> OutputResult {
    if length_max < fixed {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    if bytes.len() <= length_max {
        return Ok((NtStatus::SUCCESS, bytes));
    }
    bytes.truncate(length_max);
    Ok((NtStatus::BUFFER_OVERFLOW, bytes))
}

/// Returns how many entries of a list fit. Each begins at a multiple of `alignment`.
pub(crate) fn count_fitting(
    lengths: impl Iterator<Item = usize>,
    alignment: usize,
    length_max: usize,
) -> usize {
    let mut end = 0_usize;
    lengths
        .take_while(|length| {
            end = end.next_multiple_of(alignment) + length;
            end <= length_max
        })
        .count()
}

/// Returns the status for malformed data of a request.
pub(crate) fn malformed(malformed: &DecodeError) -> NtStatus {
    match malformed.kind {
        DecodeErrorKind::Truncated => NtStatus::INFO_LENGTH_MISMATCH,
        _ => NtStatus::INVALID_PARAMETER,
    }
}

/// Returns the bytes that `encode` writes.
pub(crate) fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

/// Checks that the whole response fits.
///
/// # Errors
/// STATUS_BUFFER_TOO_SMALL.
pub(crate) fn check_length(bytes: Vec<u8>, length_max: usize) -> Result<Vec<u8>, NtStatus> {
    if bytes.len() > length_max {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    Ok(bytes)
}

/// Appends UTF-16 units.
pub(crate) fn append(text: &mut Vec<u16>, more: &Text) {
    text.extend_from_slice(more.units());
}
