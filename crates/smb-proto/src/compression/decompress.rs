//! Decompression of a peer's message. The input is untrusted until the result has the claimed size.

use super::Algorithms;
use ropeway_smb_wire::compression::{Chained, CompressedMessage, PatternV1, Unchained};
use ropeway_smb_wire::negotiate_context::CompressionAlgorithm;
use ropeway_smb_wire::{DecodeError, DecodeErrorKind, Reader, Result};

/// Decompresses the message in `bytes`, which begin with the transform header.
///
/// `algorithms` and `chained` are what the connection negotiated. `limit` is the longest message
/// allowed in bytes: 256, plus a header, plus the largest transfer ([MS-SMB2] 3.2.5.1.10,
/// 3.3.5.2.13).
///
/// # Errors
/// The message is malformed, too long, or uses what was not negotiated. [MS-SMB2] closes the
/// connection for each of these.
pub fn decompress(bytes: &[u8], algorithms: Algorithms, chained: bool, limit: usize) -> Result<Vec<u8>> {
    let message = CompressedMessage::decode(&mut Reader::new(bytes, NAME))?;
    let size = message.original_len();
    if size > limit {
        return Err(error(DecodeErrorKind::Bounds));
    }
    let mut out = Vec::with_capacity(size);
    match message {
        CompressedMessage::Unchained(message) => unchained(&message, algorithms, &mut out)?,
        CompressedMessage::Chained(message) if chained => chain(&message, algorithms, size, &mut out)?,
        CompressedMessage::Chained(_) => return Err(error(DecodeErrorKind::Value)),
    }
    if out.len() != size {
        return Err(error(DecodeErrorKind::Truncated));
    }
    Ok(out)
}

const NAME: &str = "SMB2 COMPRESSION_TRANSFORM_HEADER";

/// Makes an error without an offset, because the fault shows after its bytes were read.
fn error(kind: DecodeErrorKind) -> DecodeError {
    Reader::new(&[], NAME).error(kind)
}

/// Decompresses an unchained message ([MS-SMB2] 3.1.5.2).
fn unchained(message: &Unchained<'_>, algorithms: Algorithms, out: &mut Vec<u8>) -> Result<()> {
    // [MS-SMB2] 2.2.42.1: Pattern_V1 occurs in chained messages only.
    let is_pattern = message.algorithm == CompressionAlgorithm::PATTERN_V1;
    let is_none = message.algorithm == CompressionAlgorithm::OWN_BY_LINE;
    if is_pattern || is_none || !algorithms.contains(message.algorithm) {
        return Err(error(DecodeErrorKind::Value));
    }
    out.extend_from_slice(message.plain);
    let original_size = message.original_size as usize;
    match message.algorithm {
        CompressionAlgorithm::LZNT1 => lznt1(message.compressed, original_size, out),
        CompressionAlgorithm::OWN_ZSTD => zstd(message.compressed, original_size, out),
        _ => lz4(message.compressed, original_size, out),
    }
}

/// Decompresses a chained message ([MS-SMB2] 3.1.5.3). `out` never grows past `size`.
fn chain(message: &Chained<'_>, algorithms: Algorithms, size: usize, out: &mut Vec<u8>) -> Result<()> {
    for payload in message.payloads() {
        let payload = payload?;
        if payload.algorithm != CompressionAlgorithm::NONE && !algorithms.contains(payload.algorithm) {
            return Err(error(DecodeErrorKind::Value));
        }
        let original_size = payload.original_size as usize;
        if original_size > size - out.len() {
            return Err(error(DecodeErrorKind::Bounds));
        }
        match payload.algorithm {
            CompressionAlgorithm::NONE => out.extend_from_slice(payload.data),
            CompressionAlgorithm::PATTERN_V1 => {
                let run = PatternV1::decode(payload.data)?;
                out.resize(out.len() + original_size, run.pattern);
            }
            CompressionAlgorithm::LZNT1 => lznt1(payload.data, original_size, out)?,
            CompressionAlgorithm::OWN_ZSTD => zstd(payload.data, original_size, out)?,
            _ => lz4(payload.data, original_size, out)?,
        }
    }
    Ok(())
}

/// Decompresses LZ4 and appends exactly `original_size` bytes.
fn lz4(compressed: &[u8], original_size: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + original_size, 0);
    match lz4_flex::block::decompress_into(compressed, &mut out[start..]) {
        Ok(length) if length == original_size => Ok(()),
        _ => Err(error(DecodeErrorKind::Value)),
    }
}

/// Decompresses Zstandard and appends exactly `original_size` bytes.
fn zstd(compressed: &[u8], original_size: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + original_size, 0);
    match super::zstd::decompress_into(compressed, &mut out[start..]) {
        Some(length) if length == original_size => Ok(()),
        _ => Err(error(DecodeErrorKind::Value)),
    }
}

/// Most bytes that one chunk of LZNT1 decompresses to ([MS-XCA] 2.5).
const CHUNK_MAX: usize = 4096;

/// Decompresses LZNT1 and appends exactly `original_size` bytes. It works chunk by chunk, so it
/// never produces more than was claimed.
fn lznt1(compressed: &[u8], original_size: usize, out: &mut Vec<u8>) -> Result<()> {
    let value = error(DecodeErrorKind::Value);
    let end = out.len() + original_size;
    let mut rest = compressed;
    let mut chunk = Vec::with_capacity(CHUNK_MAX);
    while let Some((header, _)) = rest.split_first_chunk() {
        let header = u16::from_le_bytes(*header);
        if header == 0 {
            break;
        }
        // The header has the length of the whole chunk less 3.
        let (whole, after) = rest
            .split_at_checked(usize::from(header & 0x0FFF) + 3)
            .ok_or(value)?;
        chunk.clear();
        ::lznt1::decompress(whole, &mut chunk).map_err(|_| value)?;
        if chunk.len() > CHUNK_MAX || chunk.len() > end - out.len() {
            return Err(value);
        }
        out.extend_from_slice(&chunk);
        rest = after;
    }
    match out.len() == end {
        true => Ok(()),
        false => Err(value),
    }
}
