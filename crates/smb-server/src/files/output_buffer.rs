//! How an answer is cut to the length that a client has room for ([MS-SMB2] 3.3.5.20.1).

use ropeway_smb_wire::{DecodeError, DecodeErrorKind, NtStatus, Text, Writer};

/// An answer, whole (STATUS_SUCCESS) or cut (STATUS_BUFFER_OVERFLOW); or why there is none.
pub(crate) type OutputResult = Result<(NtStatus, Vec<u8>), NtStatus>;

/// A structure of `fixed` bytes that may be followed by a name: it has to have room, the name may be cut.
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

/// How many entries of a list fit, each of which begins at a multiple of `alignment`.
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

/// The status of a request whose data are not what they should be.
pub(crate) fn malformed(malformed: &DecodeError) -> NtStatus {
    match malformed.kind {
        DecodeErrorKind::Truncated => NtStatus::INFO_LENGTH_MISMATCH,
        _ => NtStatus::INVALID_PARAMETER,
    }
}

/// What `encode` writes, as new bytes.
pub(crate) fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

/// A buffer that must hold what follows whole.
///
/// # Errors
/// STATUS_BUFFER_TOO_SMALL.
pub(crate) fn check_length(bytes: Vec<u8>, length_max: usize) -> Result<Vec<u8>, NtStatus> {
    if bytes.len() > length_max {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    Ok(bytes)
}

/// `units` behind text.
pub(crate) fn append(text: &mut Vec<u16>, more: &Text) {
    text.extend_from_slice(more.units());
}
