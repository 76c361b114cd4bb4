//! A compressed message, hostile until it has its size.

use super::{Algorithms, FLAG_CHAINED, HEADER_LEN, LZ4, NONE, PATTERN_V1, PAYLOAD_HEADER_LEN, PROTOCOL_ID};
use crate::wire::{Fault, Reader, Result};

/// The message that `bytes`, which begin with the transform header, stand for. `algorithms` and `chained` are what the
/// connection negotiated. `limit` is the longest message allowed, in bytes: 256, a header and the largest transfer
/// ([MS-SMB2] 3.2.5.1.10, 3.3.5.2.13).
///
/// # Errors
/// Every fault is one for which [MS-SMB2] has the connection closed.
pub fn decompress(bytes: &[u8], algorithms: Algorithms, chained: bool, limit: usize) -> Result<Vec<u8>> {
    let mut reader = Reader::new(bytes, "SMB2 COMPRESSION_TRANSFORM_HEADER");
    if bytes.len() < HEADER_LEN {
        return Err(reader.fault(Fault::Truncated));
    }
    if reader.array()? != PROTOCOL_ID {
        return Err(reader.fault(Fault::Signature));
    }
    let original_size = reader.u32()? as usize;
    if original_size > limit {
        return Err(reader.fault(Fault::Bounds));
    }
    // The flags of the first payload are at the same place as those of the unchained header.
    let mut peek = reader;
    peek.skip(2)?;
    match peek.u16()? {
        FLAG_CHAINED if chained => decompress_chained(reader, algorithms, original_size),
        0 => decompress_unchained(reader, algorithms, original_size, limit),
        _ => Err(reader.fault(Fault::Value)),
    }
}

fn decompress_unchained(
    mut reader: Reader<'_>,
    algorithms: Algorithms,
    original_size: usize,
    limit: usize,
) -> Result<Vec<u8>> {
    if reader.u16()? != LZ4 || !algorithms.lz4 {
        return Err(reader.fault(Fault::Value));
    }
    reader.skip(2)?;
    let offset = reader.u32()? as usize;
    let plain = reader.bytes(offset)?;
    let size = offset
        .checked_add(original_size)
        .filter(|size| *size <= limit)
        .ok_or(reader.fault(Fault::Bounds))?;
    let mut message = Vec::with_capacity(size);
    message.extend_from_slice(plain);
    lz4(&mut reader, original_size, &mut message)?;
    Ok(message)
}

/// [MS-SMB2] 3.1.5.3.
fn decompress_chained(mut reader: Reader<'_>, algorithms: Algorithms, size: usize) -> Result<Vec<u8>> {
    let mut message = Vec::with_capacity(size);
    // Every link takes at least a header's bytes of the input, so the loop is bound by it.
    while reader.remaining() > 0 {
        if reader.remaining() < PAYLOAD_HEADER_LEN {
            return Err(reader.fault(Fault::Truncated));
        }
        let algorithm = reader.u16()?;
        reader.skip(2)?;
        let length = reader.u32()? as usize;
        let left = size - message.len();
        let at = reader.position();
        let bytes = reader.bytes(length)?;
        let mut payload = Reader::at(
            &reader.message()[..at + length],
            at,
            "SMB2_COMPRESSION_CHAINED_PAYLOAD_HEADER",
        );
        match algorithm {
            NONE if length <= left => message.extend_from_slice(bytes),
            PATTERN_V1 if algorithms.pattern_v1 => {
                let [byte, _, _, _] = payload.array()?;
                let repetitions = payload.u32()? as usize;
                if repetitions > left {
                    return Err(payload.fault(Fault::Bounds));
                }
                message.resize(message.len() + repetitions, byte);
            }
            LZ4 if algorithms.lz4 => {
                let original_size = payload.u32()? as usize;
                if original_size > left {
                    return Err(payload.fault(Fault::Bounds));
                }
                lz4(&mut payload, original_size, &mut message)?;
            }
            NONE => return Err(payload.fault(Fault::Bounds)),
            _ => return Err(payload.fault(Fault::Value)),
        }
    }
    if message.len() != size {
        return Err(reader.fault(Fault::Truncated));
    }
    Ok(message)
}

/// Appends what the rest of `reader` decompresses to, exactly `original_size` bytes.
fn lz4(reader: &mut Reader<'_>, original_size: usize, message: &mut Vec<u8>) -> Result<()> {
    let start = message.len();
    message.resize(start + original_size, 0);
    let fault = reader.fault(Fault::Value);
    match lz4_flex::block::decompress_into(reader.rest(), &mut message[start..]) {
        Ok(length) if length == original_size => Ok(()),
        _ => Err(fault),
    }
}
