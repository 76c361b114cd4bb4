//! Compressed messages of SMB 3.1.1.
//!
//! ```text
//! unchained  | ProtocolId | OriginalCompressedSegmentSize | Algorithm | Flags 0 | Offset |
//!            | plain | compressed |
//! chained    | ProtocolId | OriginalCompressedSegmentSize | payload | payload | ...
//!   payload  | Algorithm | Flags (1: the first) | Length | [OriginalPayloadSize] | bytes |
//! ```
//!
//! [MS-SMB2] 2.2.42, 3.1.4.4, 3.1.5.3. Implemented algorithms: LZ4, LZNT1 and Pattern_V1, and
//! between own ends Zstandard (docs/adr/0038). LZ77 and LZ77+Huffman ([MS-XCA]) are missing, so
//! NEGOTIATE must not offer them. Servers before Windows Server 2025 have no LZ4.
//!
//! How strongly a sender compresses is a [`CompressionLevel`], which [`SlowLine`] finds from what
//! TCP reports of the line.
//!
//! Crates examined for the missing ones: `rust-lzxpress` 0.7.1 (2018 edition; a single match can
//! make it allocate 4 GiB, and reading past its input panics), `xpress-huffman` 0.1.3 (decodes
//! only; lacks 32-bit lengths, and drops what its bit window still holds at the end of the input),
//! `ms-compress` 0.2.1 (LGPL, and needs a newer compiler than ours). None of them is safe with a
//! peer's bytes.
//!
//! Invariant: nothing is allocated for a decompressed message before its claimed size is checked
//! against the caller's limit, and the result has exactly that size.

mod decompress;
mod sampler;
mod saved;
mod slow_line;
mod zstd;

use ropeway_smb_wire::compression::{Chained, ChainedPayload, CompressedMessage, PatternV1, Unchained};
use ropeway_smb_wire::negotiate_context::{CompressionAlgorithm, CompressionFlags};
use ropeway_smb_wire::{Reader, Writer};

pub use decompress::decompress;
pub use sampler::CompressionSampler;
pub use saved::Saved;
pub use slow_line::{CoreSpeed, LineSample, SlowLine};

/// Set of algorithms that both ends support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// LZ4 in its block format. Preferred.
    pub lz4: bool,
    /// LZNT1 ([MS-XCA] 2.5).
    pub lznt1: bool,
    /// Pattern_V1: runs of one byte. In chained messages only.
    pub pattern_v1: bool,
    /// Zstandard, between own ends. Preferred where it is allowed, see [`Compression::at`].
    pub zstd: bool,
}

/// How strongly a sender compresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompressionLevel {
    /// Not at all.
    #[default]
    None,
    /// With LZ4, or what else is fast.
    Fast,
    /// With Zstandard.
    Strong,
}

/// Compression supported by both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// The algorithms.
    pub algorithms: Algorithms,
    /// Whether chained payloads are supported.
    pub chained: bool,
    /// Whether a sender compresses only while the line is slower than that (between own ends).
    pub by_line: bool,
}

impl Compression {
    /// Returns what a negotiated context allows.
    pub fn from_wire(flags: CompressionFlags, list: &[CompressionAlgorithm]) -> Self {
        Self {
            algorithms: Algorithms::from_wire(list),
            chained: flags.contains(CompressionFlags::CHAINED),
            by_line: list.contains(&CompressionAlgorithm::OWN_BY_LINE),
        }
    }

    /// Returns whether any algorithm is available.
    pub fn is_some(self) -> bool {
        !self.algorithms.is_empty()
    }

    /// Returns what a sender uses at this level. Where compression was asked for whatever the line,
    /// the level only adds to it.
    #[must_use]
    pub fn at(self, level: CompressionLevel) -> Self {
        let algorithms = match level {
            CompressionLevel::None if self.by_line => Algorithms::default(),
            CompressionLevel::Strong => self.algorithms,
            _ => Algorithms {
                zstd: false,
                ..self.algorithms
            },
        };
        Self { algorithms, ..self }
    }
}

impl Algorithms {
    /// Returns the implemented ones of a negotiated list.
    pub fn from_wire(list: &[CompressionAlgorithm]) -> Self {
        let by_line = list.contains(&CompressionAlgorithm::OWN_BY_LINE);
        Self {
            lz4: by_line || list.contains(&CompressionAlgorithm::LZ4),
            lznt1: list.contains(&CompressionAlgorithm::LZNT1),
            pattern_v1: by_line || list.contains(&CompressionAlgorithm::PATTERN_V1),
            zstd: list.contains(&CompressionAlgorithm::OWN_ZSTD),
        }
    }

    /// Returns the algorithms of a compressed message, as far as it can be parsed.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let list: Vec<_> = match CompressedMessage::decode(&mut Reader::new(bytes, "compressed message")) {
            Ok(CompressedMessage::Unchained(message)) => vec![message.algorithm],
            // A message has four payloads as a rule.
            Ok(CompressedMessage::Chained(message)) => message
                .payloads()
                .map_while(Result::ok)
                .map(|payload| payload.algorithm)
                .take(8)
                .collect(),
            Err(_) => Vec::new(),
        };
        Self::from_wire(&list)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn contains(self, algorithm: CompressionAlgorithm) -> bool {
        match algorithm {
            CompressionAlgorithm::LZ4 => self.lz4,
            CompressionAlgorithm::LZNT1 => self.lznt1,
            CompressionAlgorithm::PATTERN_V1 => self.pattern_v1,
            CompressionAlgorithm::OWN_ZSTD => self.zstd,
            CompressionAlgorithm::OWN_BY_LINE => self.zstd && self.lz4 && self.pattern_v1,
            _ => false,
        }
    }

    /// Compresses with the best general algorithm (one for more than runs). Returns `None` if the
    /// set has none.
    fn compress(self, data: &[u8]) -> Option<(CompressionAlgorithm, Vec<u8>)> {
        if self.zstd {
            return Some((CompressionAlgorithm::OWN_ZSTD, zstd::compress(data)?));
        }
        if self.lz4 {
            return Some((CompressionAlgorithm::LZ4, lz4_flex::block::compress(data)));
        }
        self.lznt1.then(|| {
            let mut out = Vec::new();
            lznt1::compress(data, &mut out);
            (CompressionAlgorithm::LZNT1, out)
        })
    }
}

/// Shortest run that becomes a Pattern_V1 payload. A guess: twice what such a payload costs.
const RUN_MIN: usize = 32;

/// Compresses like [`compress`], but returns `None` unless it saves enough for the work it gives
/// the other end.
pub fn compress_if_worthwhile(
    algorithms: Algorithms,
    chained: bool,
    plain_len: usize,
    message: &[u8],
) -> Option<Vec<u8>> {
    compress(algorithms, chained, plain_len, message)
        .filter(|compressed| sampler::saves(algorithms, compressed.len(), message.len()))
}

/// Compresses `message` and puts the transform header before it. Returns `None` if that would not
/// be shorter.
///
/// The first `plain_len` bytes stay plain: the header and fixed part, which hardly compress.
/// `chained` says whether the connection negotiated chaining.
pub fn compress(algorithms: Algorithms, chained: bool, plain_len: usize, message: &[u8]) -> Option<Vec<u8>> {
    let size = u32::try_from(message.len()).ok()?;
    let (plain, data) = message.split_at_checked(plain_len)?;
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    if chained {
        Chained::encode_header(size, &mut writer);
        chain(algorithms, plain, data, &mut writer);
    } else {
        let (algorithm, compressed) = algorithms.compress(data)?;
        let header = Unchained {
            // Lossless: part of a message whose length fits `u32`.
            original_size: data.len() as u32,
            algorithm,
            plain,
            compressed: &compressed,
        };
        header.encode_header(&mut writer);
        writer.bytes(plain);
        writer.bytes(&compressed);
    }
    (out.len() < message.len()).then_some(out)
}

/// Writes the payloads of a chained message ([MS-SMB2] 3.1.4.4): the plain part, a run at the
/// front, the middle, a run at the back.
fn chain(algorithms: Algorithms, plain: &[u8], data: &[u8], writer: &mut Writer<'_>) {
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
    let (front, back) = (pattern(front), pattern(back));
    let compressed = algorithms.compress(middle);
    // A compressed payload's header is 4 bytes longer.
    let middle_as = match &compressed {
        Some((algorithm, compressed)) if compressed.len() + 4 < middle.len() => (*algorithm, &compressed[..]),
        _ => (CompressionAlgorithm::NONE, middle),
    };
    let payloads = [
        (CompressionAlgorithm::NONE, plain),
        (CompressionAlgorithm::PATTERN_V1, &front),
        middle_as,
        (CompressionAlgorithm::PATTERN_V1, &back),
    ];
    let mut first = true;
    for (algorithm, data) in payloads {
        if data.is_empty() {
            continue;
        }
        let payload = ChainedPayload {
            algorithm,
            // On the wire for the middle only. Lossless: part of a message whose length fits `u32`.
            original_size: middle.len() as u32,
            data,
        };
        payload.encode_header(std::mem::take(&mut first), writer);
        writer.bytes(data);
    }
}

/// Returns the number of equal bytes at the start, or 0 if too few for a payload of their own.
fn run<'a>(mut bytes: impl Iterator<Item = &'a u8>) -> usize {
    let Some(first) = bytes.next() else { return 0 };
    let length = 1 + bytes.take_while(|byte| *byte == first).count();
    if length >= RUN_MIN { length } else { 0 }
}

/// Encodes a run as a payload; empty for no run.
fn pattern(run: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(pattern) = run.first() {
        let run = PatternV1 {
            pattern: *pattern,
            // Lossless: part of a message whose length fits `u32`.
            repetitions: run.len() as u32,
        };
        run.encode(&mut Writer::new(&mut out));
    }
    out
}

#[cfg(test)]
mod tests;
