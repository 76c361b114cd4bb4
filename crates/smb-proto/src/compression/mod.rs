//! Compressed messages of SMB 3.1.1.
//!
//! ```text
//! unchained  | ProtocolId | OriginalCompressedSegmentSize | Algorithm | Flags 0 | Offset | plain | compressed |
//! chained    | ProtocolId | OriginalCompressedSegmentSize | payload | payload | ...
//!   payload  | Algorithm | Flags (1: the first) | Length | [OriginalPayloadSize] | bytes |
//! ```
//!
//! [MS-SMB2] 2.2.42, 3.1.4.4, 3.1.5.3. Of the algorithms LZ4 and Pattern_V1 are here; LZNT1, LZ77 and LZ77+Huffman
//! ([MS-XCA]) are not, so they must not be offered in NEGOTIATE.
//!
//! Invariant: no byte is allocated for a decompressed message before its claimed size is found within the caller's
//! limit, and the result has exactly that size.

mod decompress;

pub use decompress::decompress;

/// Algorithms of both ends; the numbers are those of [MS-SMB2] 2.2.3.1.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// LZ4, its block format.
    pub lz4: bool,
    /// Runs of one byte; in chained messages only.
    pub pattern_v1: bool,
}

const PROTOCOL_ID: [u8; 4] = [0xFC, b'S', b'M', b'B'];
const NONE: u16 = 0;
const PATTERN_V1: u16 = 4;
const LZ4: u16 = 5;
const FLAG_CHAINED: u16 = 1;
/// Length in bytes of the unchained header, and of the chained one with its first payload header.
const HEADER_LEN: usize = 16;
const PAYLOAD_HEADER_LEN: usize = 8;
/// Shorter runs of one byte are left to LZ4: a guess, twice what a run costs.
const RUN_MIN: usize = 32;

/// `message` compressed, with its header; `None` if that would not be shorter. The first `plain_len` bytes stay as they
/// are (header and fixed part, which hardly compress); `chained` if the connection negotiated it.
pub fn compress(algorithms: Algorithms, chained: bool, plain_len: usize, message: &[u8]) -> Option<Vec<u8>> {
    let size = u32::try_from(message.len()).ok()?;
    let (plain, data) = message.split_at_checked(plain_len)?;
    let mut out = Vec::with_capacity(message.len().min(64 * 1024));
    out.extend(PROTOCOL_ID);
    if chained {
        out.extend(size.to_le_bytes());
        chain(algorithms, plain, data, &mut out);
    } else {
        if !algorithms.lz4 {
            return None;
        }
        out.extend((size - plain.len() as u32).to_le_bytes());
        out.extend(LZ4.to_le_bytes());
        out.extend(0_u16.to_le_bytes());
        out.extend((plain.len() as u32).to_le_bytes());
        out.extend(plain);
        out.extend(lz4_flex::block::compress(data));
    }
    (out.len() < message.len()).then_some(out)
}

/// [MS-SMB2] 3.1.4.4: what stays plain, a run at the front, what is between, a run at the back.
fn chain(algorithms: Algorithms, plain: &[u8], data: &[u8], out: &mut Vec<u8>) {
    let first_at = out.len();
    payload(out, NONE, None, plain);
    let (front, rest) = data.split_at(if algorithms.pattern_v1 {
        run(data.iter())
    } else {
        0
    });
    let back_len = if algorithms.pattern_v1 {
        run(rest.iter().rev())
    } else {
        0
    };
    let (middle, back) = rest.split_at(rest.len() - back_len);
    pattern(out, front);
    let compressed = if algorithms.lz4 {
        lz4_flex::block::compress(middle)
    } else {
        Vec::new()
    };
    if algorithms.lz4 && compressed.len() + 4 < middle.len() {
        payload(out, LZ4, Some(middle.len() as u32), &compressed);
    } else {
        payload(out, NONE, None, middle);
    }
    pattern(out, back);
    if let Some(flags) = out.get_mut(first_at + 2..first_at + 4) {
        flags.copy_from_slice(&FLAG_CHAINED.to_le_bytes());
    }
}

/// How many bytes at the start are the same, if worth a payload of their own.
fn run<'a>(mut bytes: impl Iterator<Item = &'a u8>) -> usize {
    let Some(first) = bytes.next() else { return 0 };
    let length = 1 + bytes.take_while(|byte| *byte == first).count();
    if length >= RUN_MIN { length } else { 0 }
}

/// `SMB2_COMPRESSION_PATTERN_PAYLOAD_V1` ([MS-SMB2] 2.2.42.2.2), if there is a run.
fn pattern(out: &mut Vec<u8>, run: &[u8]) {
    if let Some(byte) = run.first() {
        let mut bytes = [*byte, 0, 0, 0, 0, 0, 0, 0];
        bytes[4..].copy_from_slice(&(run.len() as u32).to_le_bytes());
        payload(out, PATTERN_V1, None, &bytes);
    }
}

/// `SMB2_COMPRESSION_CHAINED_PAYLOAD_HEADER` ([MS-SMB2] 2.2.42.2.1) and what follows it; nothing if there is nothing.
fn payload(out: &mut Vec<u8>, algorithm: u16, original_size: Option<u32>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len() + if original_size.is_some() { 4 } else { 0 };
    out.extend(algorithm.to_le_bytes());
    out.extend(0_u16.to_le_bytes());
    out.extend((length as u32).to_le_bytes());
    out.extend(original_size.map(u32::to_le_bytes).iter().flatten());
    out.extend(bytes);
}

#[cfg(test)]
mod tests;
