//! Compression of the storm's requests: valid, in more variants than normal clients use.

use ropeway_smb_proto::compression::{Algorithms, compress};
use ropeway_smb_wire::Writer;
use ropeway_smb_wire::compression::{Chained, ChainedPayload, PatternV1, Unchained};
use ropeway_smb_wire::negotiate_context::CompressionAlgorithm;

use crate::chance::Random;

/// Returns an LZ4 block that holds `data` as literals.
fn lz4_literals(data: &[u8]) -> Vec<u8> {
    let mut out = vec![(data.len().min(15) as u8) << 4];
    if let Some(mut rest) = data.len().checked_sub(15) {
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(data);
    out
}

/// Returns LZNT1 chunks that hold `data` uncompressed ([MS-XCA] 2.5.1.2).
fn lznt1_literals(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in data.chunks(4096) {
        // Signature 3, not compressed, the size minus one.
        out.extend_from_slice(&(0x3000 | (chunk.len() as u16 - 1)).to_le_bytes());
        out.extend_from_slice(chunk);
    }
    out
}

/// Returns a Zstandard frame that holds `data` in raw blocks ([RFC 8878] 3.1.1).
fn zstd_literals(data: &[u8]) -> Vec<u8> {
    // The magic number; a single segment with a content size of 4 bytes.
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0xA0];
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    let mut rest = data;
    loop {
        let (block, after) = rest.split_at(rest.len().min(100_000));
        let header = (block.len() as u32) << 3 | u32::from(after.is_empty());
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.extend_from_slice(block);
        rest = after;
        if rest.is_empty() {
            return out;
        }
    }
}

fn pick(random: &mut Random, algorithms: Algorithms) -> Option<CompressionAlgorithm> {
    let has = [
        (CompressionAlgorithm::LZ4, algorithms.lz4),
        (CompressionAlgorithm::LZNT1, algorithms.lznt1),
        (CompressionAlgorithm::OWN_ZSTD, algorithms.zstd),
    ];
    let those: Vec<_> = has
        .into_iter()
        .filter_map(|(algorithm, has)| has.then_some(algorithm))
        .collect();
    (!those.is_empty()).then(|| those[random.below(those.len())])
}

fn literals(algorithm: CompressionAlgorithm, data: &[u8]) -> Vec<u8> {
    match algorithm {
        CompressionAlgorithm::LZ4 => lz4_literals(data),
        CompressionAlgorithm::OWN_ZSTD => zstd_literals(data),
        _ => lznt1_literals(data),
    }
}

/// Compresses messages. Returns them unchanged if no negotiated algorithm fits.
pub(crate) fn pack(
    random: &mut Random,
    (algorithms, chained): (Algorithms, bool),
    plain: Vec<u8>,
) -> Vec<u8> {
    let keep = random.below(plain.len() + 1);
    if random.percent(30)
        && let Some(out) = compress(algorithms, chained, keep.min(64), &plain)
    {
        return out;
    }
    if chained {
        return chain(random, algorithms, &plain);
    }
    let Some(algorithm) = pick(random, algorithms) else {
        return plain;
    };
    let compressed = literals(algorithm, &plain[keep..]);
    let header = Unchained {
        original_size: (plain.len() - keep) as u32,
        algorithm,
        plain: &plain[..keep],
        compressed: &compressed,
    };
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    header.encode_header(&mut writer);
    writer.bytes(&plain[..keep]);
    writer.bytes(&compressed);
    out
}

/// Splits messages into payloads of random length, each with its own algorithm.
fn chain(random: &mut Random, algorithms: Algorithms, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    Chained::encode_header(plain.len() as u32, &mut writer);
    let (mut rest, mut first) = (plain, true);
    while !rest.is_empty() {
        let run = rest.iter().take_while(|byte| **byte == rest[0]).count();
        let length = 1 + random.below(rest.len().min(200));
        let (algorithm, part, data) = if algorithms.pattern_v1 && run > 3 && random.percent(80) {
            let mut data = Vec::new();
            let pattern = PatternV1 {
                pattern: rest[0],
                repetitions: run as u32,
            };
            pattern.encode(&mut Writer::new(&mut data));
            (CompressionAlgorithm::PATTERN_V1, &rest[..run], data)
        } else {
            let part = &rest[..length];
            match pick(random, algorithms).filter(|_| random.percent(50)) {
                Some(algorithm) => (algorithm, part, literals(algorithm, part)),
                None => (CompressionAlgorithm::NONE, part, part.to_vec()),
            }
        };
        let payload = ChainedPayload {
            algorithm,
            original_size: part.len() as u32,
            data: &data,
        };
        payload.encode_header(std::mem::take(&mut first), &mut writer);
        writer.bytes(&data);
        rest = &rest[part.len()..];
    }
    out
}
