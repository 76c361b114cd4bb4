//! Compressed messages of SMB 3.1.1 ([MS-SMB2] 2.2.42): the framing, not the algorithms.
//!
//! An unchained message has one compressed part, at its end. A chained message consists of
//! payloads, each with its own algorithm, so plain parts and runs of one byte cost almost nothing.
//! Sizes are the sender's claims. Code that decompresses must check them against its own limit
//! first, and against the result afterwards.

use super::cursor::{DecodeError, DecodeErrorKind, Reader, Result, Writer};
use super::frame::Protocol;
use super::lengths::{len_u32, named, place};
use super::negotiate_context::CompressionAlgorithm;

/// SMB2_COMPRESSION_FLAG_CHAINED ([MS-SMB2] 2.2.42).
const FLAG_CHAINED: u16 = 0x0001;
/// Offset of `Flags` in both forms ([MS-SMB2] 2.2.42.1, 2.2.42.2.1).
const FLAGS_OFFSET: usize = 10;

/// A compressed message ([MS-SMB2] 2.2.42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressedMessage<'a> {
    /// A plain part, then a compressed one.
    Unchained(Unchained<'a>),
    /// Several payloads.
    Chained(Chained<'a>),
}

impl<'a> CompressedMessage<'a> {
    /// Decodes a whole message.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 COMPRESSION_TRANSFORM_HEADER");
        let error = reader.error(DecodeErrorKind::Signature);
        let start = reader.position();
        if reader.array::<4>()? != Protocol::Compression.id() {
            return Err(error);
        }
        let original_size = reader.u32()?;
        let mut ahead = reader;
        ahead.seek(start.saturating_add(FLAGS_OFFSET))?;
        let error = ahead.error(DecodeErrorKind::Value);
        match ahead.u16()? {
            0 => Unchained::decode(original_size, &mut reader).map(Self::Unchained),
            FLAG_CHAINED => Ok(Self::Chained(Chained {
                original_size,
                payloads: reader.rest(),
            })),
            _ => Err(error),
        }
    }

    /// Returns the length of the decompressed message, as the sender claims it.
    pub fn original_len(&self) -> usize {
        match self {
            Self::Unchained(message) => message.plain.len().saturating_add(place(message.original_size)),
            Self::Chained(message) => place(message.original_size),
        }
    }
}

/// A message with one compressed part ([MS-SMB2] 2.2.42.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unchained<'a> {
    /// Decompressed length of the compressed part, in bytes.
    pub original_size: u32,
    /// Algorithm; never [`CompressionAlgorithm::NONE`].
    pub algorithm: CompressionAlgorithm,
    /// Beginning of the message, uncompressed.
    pub plain: &'a [u8],
    /// Rest of the message, compressed.
    pub compressed: &'a [u8],
}

impl<'a> Unchained<'a> {
    /// Length of the header in bytes.
    pub const HEADER_LEN: usize = 16;

    fn decode(original_size: u32, reader: &mut Reader<'a>) -> Result<Self> {
        let error = reader.error(DecodeErrorKind::Value);
        let algorithm = CompressionAlgorithm(reader.u16()?);
        if algorithm == CompressionAlgorithm::NONE {
            return Err(error);
        }
        reader.skip(2)?;
        let offset = place(reader.u32()?);
        let bounds = reader.error(DecodeErrorKind::Bounds);
        let plain = reader.bytes(offset).map_err(|_| bounds)?;
        Ok(Self {
            original_size,
            algorithm,
            plain,
            compressed: reader.rest(),
        })
    }

    /// Appends the header only. The plain part and the compressed part must follow.
    ///
    /// # Panics
    /// Panics if the algorithm is `NONE`.
    pub fn encode_header(&self, w: &mut Writer<'_>) {
        assert_ne!(
            self.algorithm,
            CompressionAlgorithm::NONE,
            "what is not compressed is sent as it is"
        );
        w.bytes(&Protocol::Compression.id());
        w.u32(self.original_size);
        w.u16(self.algorithm.0);
        w.u16(0);
        w.u32(len_u32(self.plain.len()));
    }
}

/// A message of several payloads, each with its own algorithm ([MS-SMB2] 2.2.42.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chained<'a> {
    /// Length of the decompressed message, in bytes.
    pub original_size: u32,
    payloads: &'a [u8],
}

impl<'a> Chained<'a> {
    /// Length in bytes of what precedes the first payload's header.
    pub const HEADER_LEN: usize = 8;

    /// Iterates over the payloads in order. The iteration ends after an error.
    pub fn payloads(&self) -> Payloads<'a> {
        Payloads {
            rest: Some(Reader::new(
                self.payloads,
                "SMB2_COMPRESSION_CHAINED_PAYLOAD_HEADER",
            )),
            first: true,
        }
    }

    /// Appends what precedes the first payload.
    pub fn encode_header(original_size: u32, w: &mut Writer<'_>) {
        w.bytes(&Protocol::Compression.id());
        w.u32(original_size);
    }
}

/// One payload of a chained message ([MS-SMB2] 2.2.42.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainedPayload<'a> {
    /// Algorithm.
    pub algorithm: CompressionAlgorithm,
    /// Decompressed length in bytes. It is on the wire for compressing algorithms only; for the
    /// others it follows from the data.
    pub original_size: u32,
    /// Data. For [`CompressionAlgorithm::PATTERN_V1`] it is a [`PatternV1`].
    pub data: &'a [u8],
}

impl<'a> ChainedPayload<'a> {
    /// Returns whether `OriginalPayloadSize` is on the wire ([MS-SMB2] 2.2.42.2.1).
    fn has_original_size(algorithm: CompressionAlgorithm) -> Result<bool> {
        match algorithm {
            CompressionAlgorithm::NONE | CompressionAlgorithm::PATTERN_V1 => Ok(false),
            CompressionAlgorithm::LZNT1
            | CompressionAlgorithm::LZ77
            | CompressionAlgorithm::LZ77_HUFFMAN
            | CompressionAlgorithm::LZ4
            | CompressionAlgorithm::OWN_ZSTD => Ok(true),
            _ => Err(DecodeError {
                structure: "SMB2_COMPRESSION_CHAINED_PAYLOAD_HEADER",
                kind: DecodeErrorKind::Value,
                at: 0,
            }),
        }
    }

    fn decode(reader: &mut Reader<'a>, first: bool) -> Result<Self> {
        let algorithm = CompressionAlgorithm(reader.u16()?);
        let error = reader.error(DecodeErrorKind::Value);
        let chained = reader.u16()? == FLAG_CHAINED;
        let sized = Self::has_original_size(algorithm).map_err(|_| error)?;
        if chained != first {
            return Err(error);
        }
        let bounds = reader.error(DecodeErrorKind::Bounds);
        let mut length = place(reader.u32()?);
        let claimed = if sized {
            length = length.checked_sub(4).ok_or(bounds)?;
            Some(reader.u32()?)
        } else {
            None
        };
        let data = reader.bytes(length)?;
        let original_size = match (claimed, algorithm) {
            (Some(size), _) => size,
            (None, CompressionAlgorithm::PATTERN_V1) => PatternV1::decode(data)?.repetitions,
            // Lossless: part of a message whose length fits 32 bits.
            (None, _) => u32::try_from(data.len()).map_err(|_| bounds)?,
        };
        Ok(Self {
            algorithm,
            original_size,
            data,
        })
    }

    /// Appends the header only. The data must follow.
    ///
    /// # Panics
    /// Panics if neither the specification nor docs/adr/0038 has the algorithm.
    pub fn encode_header(&self, first: bool, w: &mut Writer<'_>) {
        let sized = Self::has_original_size(self.algorithm).expect("an algorithm of messages");
        w.u16(self.algorithm.0);
        w.u16(if first { FLAG_CHAINED } else { 0 });
        w.u32(len_u32(self.data.len() + if sized { 4 } else { 0 }));
        if sized {
            w.u32(self.original_size);
        }
    }
}

/// Iterator over the payloads of a chained message, see [`Chained::payloads`].
#[derive(Clone, Debug)]
pub struct Payloads<'a> {
    rest: Option<Reader<'a>>,
    first: bool,
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Result<ChainedPayload<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = self.rest.take().filter(|reader| reader.remaining() > 0)?;
        // Each payload takes at least its header, so the iteration ends.
        let payload = ChainedPayload::decode(&mut reader, std::mem::take(&mut self.first));
        if payload.is_ok() {
            self.rest = Some(reader);
        }
        Some(payload)
    }
}

impl std::iter::FusedIterator for Payloads<'_> {}

/// A run of one byte ([MS-SMB2] 2.2.42.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternV1 {
    /// Repeated byte.
    pub pattern: u8,
    /// Length of the run in bytes.
    pub repetitions: u32,
}

impl PatternV1 {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Decodes a payload's data, which must have 8 bytes.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`], [`DecodeErrorKind::Bounds`].
    pub fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_COMPRESSION_PATTERN_PAYLOAD_V1");
        let pattern = reader.u8()?;
        reader.skip(3)?;
        let repetitions = reader.u32()?;
        if reader.remaining() > 0 {
            return Err(reader.error(DecodeErrorKind::Bounds));
        }
        Ok(Self { pattern, repetitions })
    }

    /// Appends 8 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.pattern);
        w.zeros(3);
        w.u32(self.repetitions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Result<CompressedMessage<'_>> {
        CompressedMessage::decode(&mut Reader::new(bytes, "test"))
    }

    fn encoded(original_size: u32, payloads: &[ChainedPayload<'_>]) -> Vec<u8> {
        hostile::structure(|w| {
            Chained::encode_header(original_size, w);
            for (index, payload) in payloads.iter().enumerate() {
                payload.encode_header(index == 0, w);
                w.bytes(payload.data);
            }
        })
    }

    #[test]
    fn known_bytes_of_a_chained_message() {
        let bytes = b"\xFCSMB\x0C\x01\0\0\
            \0\0\x01\0\x04\0\0\0head\
            \x04\0\0\0\x08\0\0\0\xAA\0\0\0\0\x01\0\0\
            \x02\0\0\0\x07\0\0\0\x08\0\0\0xyz";
        let CompressedMessage::Chained(message) = decode(bytes).unwrap() else {
            panic!("chained")
        };
        let payloads: Vec<_> = message.payloads().map(Result::unwrap).collect();
        let sizes: Vec<_> = payloads.iter().map(|payload| payload.original_size).collect();
        assert_eq!(sizes, [4, 256, 8]);
        assert_eq!(sizes.iter().sum::<u32>(), message.original_size);
        let pattern = PatternV1::decode(payloads[1].data).unwrap();
        assert_eq!(
            pattern,
            PatternV1 {
                pattern: 0xAA,
                repetitions: 256
            }
        );
        assert_eq!(hostile::structure(|w| pattern.encode(w)), payloads[1].data);
        assert_eq!(encoded(message.original_size, &payloads), bytes);
    }

    #[test]
    fn chained_messages_are_strict() {
        // The second payload has the flag of the first one.
        let bytes = b"\xFCSMB\x02\0\0\0\0\0\x01\0\x01\0\0\0a\0\0\x01\0\x01\0\0\0b";
        let CompressedMessage::Chained(message) = decode(bytes).unwrap() else {
            panic!("chained")
        };
        let outcomes: Vec<_> = message.payloads().collect();
        assert!(outcomes[0].is_ok());
        assert_eq!(
            (outcomes.len(), outcomes[1].unwrap_err().kind),
            (2, DecodeErrorKind::Value)
        );
        // A length too small for OriginalPayloadSize.
        let bytes = b"\xFCSMB\x02\0\0\0\x02\0\x01\0\x03\0\0\0abcdefg";
        let CompressedMessage::Chained(message) = decode(bytes).unwrap() else {
            panic!("chained")
        };
        assert_eq!(
            message.payloads().next().unwrap().unwrap_err().kind,
            DecodeErrorKind::Bounds
        );
    }

    #[test]
    fn unchained_messages_are_strict() {
        let bytes = b"\xFCSMB\x02\0\0\0\x01\0\0\0\x09\0\0\0abcdefgh";
        assert_eq!(
            decode(bytes).unwrap_err().kind,
            DecodeErrorKind::Bounds,
            "a plain part past the end"
        );
        let bytes = b"\xFCSMB\x02\0\0\0\0\0\0\0\0\0\0\0abcdefgh";
        assert_eq!(
            decode(bytes).unwrap_err().kind,
            DecodeErrorKind::Value,
            "no algorithm"
        );
        let bytes = b"\xFCSMB\x02\0\0\0\x01\0\x02\0\0\0\0\0abcdefgh";
        assert_eq!(
            decode(bytes).unwrap_err().kind,
            DecodeErrorKind::Value,
            "unknown flags"
        );
    }

    #[test]
    fn hostile_messages() {
        let pattern = b"\xAA\0\0\0\0\x01\0\0";
        let payloads = [
            ChainedPayload {
                algorithm: CompressionAlgorithm::NONE,
                original_size: 4,
                data: b"head",
            },
            ChainedPayload {
                algorithm: CompressionAlgorithm::PATTERN_V1,
                original_size: 256,
                data: pattern,
            },
            ChainedPayload {
                algorithm: CompressionAlgorithm::LZ4,
                original_size: 99,
                data: b"compressed",
            },
        ];
        let mut bytes = encoded(359, &payloads);
        for _ in 0..2 {
            hostile::attack(&bytes, 0, |bytes| match decode(bytes) {
                Ok(CompressedMessage::Chained(message)) => {
                    assert!(message.payloads().count() <= bytes.len() / 8);
                }
                Ok(message) => drop(message.original_len()),
                Err(_) => {}
            });
            // The same bytes unchained.
            bytes[8] = 1;
            bytes[FLAGS_OFFSET] = 0;
        }
    }

    /// Returns an algorithm of a message by number.
    fn of_message(number: u16) -> CompressionAlgorithm {
        match number {
            6 => CompressionAlgorithm::OWN_ZSTD,
            number => CompressionAlgorithm(number),
        }
    }

    proptest! {
        #[test]
        fn unchained_messages_round_trip(
            original_size: u32, algorithm in 1..u16::MAX, plain: Vec<u8>, compressed: Vec<u8>,
        ) {
            let message = Unchained {
                original_size,
                algorithm: CompressionAlgorithm(algorithm),
                plain: &plain,
                compressed: &compressed,
            };
            let mut bytes = hostile::structure(|w| message.encode_header(w));
            prop_assert_eq!(bytes.len(), Unchained::HEADER_LEN);
            bytes.extend_from_slice(&plain);
            bytes.extend_from_slice(&compressed);
            let decoded = decode(&bytes).unwrap();
            prop_assert_eq!(decoded.original_len(), plain.len() + original_size as usize);
            prop_assert_eq!(decoded, CompressedMessage::Unchained(message));
        }

        #[test]
        fn chained_messages_round_trip(
            original_size: u32,
            parts in prop::collection::vec((0..=6_u16, any::<u32>(), any::<Vec<u8>>()), 1..6),
        ) {
            let patterns: Vec<Vec<u8>> = parts
                .iter()
                .map(|part| hostile::structure(|w| PatternV1 { pattern: 1, repetitions: part.1 }.encode(w)))
                .collect();
            let payloads: Vec<ChainedPayload<'_>> = parts
                .iter()
                .zip(&patterns)
                .map(|((algorithm, size, data), pattern)| match of_message(*algorithm) {
                    algorithm @ CompressionAlgorithm::NONE => {
                        ChainedPayload { algorithm, original_size: data.len() as u32, data }
                    }
                    algorithm @ CompressionAlgorithm::PATTERN_V1 => {
                        ChainedPayload { algorithm, original_size: *size, data: pattern }
                    }
                    algorithm => ChainedPayload { algorithm, original_size: *size, data },
                })
                .collect();
            let bytes = encoded(original_size, &payloads);
            let Ok(CompressedMessage::Chained(message)) = decode(&bytes) else {
                panic!("chained")
            };
            prop_assert_eq!(message.original_size, original_size);
            let decoded: Vec<_> = message.payloads().map(Result::unwrap).collect();
            prop_assert_eq!(decoded, payloads);
        }
    }
}
