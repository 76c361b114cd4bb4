//! Compressed messages, 3.1.1 only ([MS-SMB2] 2.2.42). What the algorithms do is not decided here.
//!
//! Unchained, one stretch at the message's end is compressed. Chained, the message is cut into payloads, each with an
//! algorithm of its own; plain stretches and runs of one byte cost next to nothing. Sizes are what the sender claims:
//! whoever decompresses checks them against what it is willing to take, and then against what came out.

use super::cursor::{Fault, Malformed, Reader, Result, Writer};
use super::frame::Protocol;
use super::lengths::{len_u32, named, place};
use super::negotiate_context::CompressionAlgorithm;

/// SMB2_COMPRESSION_FLAG_CHAINED ([MS-SMB2] 2.2.42).
const FLAG_CHAINED: u16 = 0x0001;
/// Where `Flags` lies in both forms ([MS-SMB2] 2.2.42.1, 2.2.42.2.1).
const FLAGS_OFFSET: usize = 10;

/// A compressed message ([MS-SMB2] 2.2.42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressedMessage<'a> {
    /// A plain part and a compressed one.
    Unchained(Unchained<'a>),
    /// Payloads.
    Chained(Chained<'a>),
}

impl<'a> CompressedMessage<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 COMPRESSION_TRANSFORM_HEADER");
        let fault = reader.fault(Fault::Signature);
        let start = reader.position();
        if reader.array::<4>()? != Protocol::Compression.id() {
            return Err(fault);
        }
        let original_size = reader.u32()?;
        let mut ahead = reader;
        ahead.seek(start.saturating_add(FLAGS_OFFSET))?;
        let fault = ahead.fault(Fault::Value);
        match ahead.u16()? {
            0 => Unchained::decode(original_size, &mut reader).map(Self::Unchained),
            FLAG_CHAINED => Ok(Self::Chained(Chained {
                original_size,
                payloads: reader.rest(),
            })),
            _ => Err(fault),
        }
    }

    /// The length of the message once decompressed, as the sender claims.
    pub fn original_len(&self) -> usize {
        match self {
            Self::Unchained(message) => message.plain.len().saturating_add(place(message.original_size)),
            Self::Chained(message) => place(message.original_size),
        }
    }
}

/// One stretch compressed ([MS-SMB2] 2.2.42.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unchained<'a> {
    /// Length of the compressed part once decompressed, in bytes.
    pub original_size: u32,
    /// How it is compressed; never [`CompressionAlgorithm::NONE`].
    pub algorithm: CompressionAlgorithm,
    /// The message's beginning as it is.
    pub plain: &'a [u8],
    /// The rest, compressed.
    pub compressed: &'a [u8],
}

impl<'a> Unchained<'a> {
    /// Length of the header in bytes.
    pub const HEADER_LEN: usize = 16;

    fn decode(original_size: u32, reader: &mut Reader<'a>) -> Result<Self> {
        let fault = reader.fault(Fault::Value);
        let algorithm = CompressionAlgorithm(reader.u16()?);
        if algorithm == CompressionAlgorithm::NONE {
            return Err(fault);
        }
        reader.skip(2)?;
        let offset = place(reader.u32()?);
        let bounds = reader.fault(Fault::Bounds);
        let plain = reader.bytes(offset).map_err(|_| bounds)?;
        Ok(Self {
            original_size,
            algorithm,
            plain,
            compressed: reader.rest(),
        })
    }

    /// Appends only the header; the plain part and the compressed one are to follow.
    ///
    /// # Panics
    /// If the algorithm is none.
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

/// Payloads, each with its own algorithm ([MS-SMB2] 2.2.42.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chained<'a> {
    /// Length of the message once decompressed, in bytes.
    pub original_size: u32,
    payloads: &'a [u8],
}

impl<'a> Chained<'a> {
    /// Length in bytes of what stands before the first payload's header.
    pub const HEADER_LEN: usize = 8;

    /// The payloads in order; after an error there is nothing more.
    pub fn payloads(&self) -> Payloads<'a> {
        Payloads {
            rest: Some(Reader::new(
                self.payloads,
                "SMB2_COMPRESSION_CHAINED_PAYLOAD_HEADER",
            )),
            first: true,
        }
    }

    /// Appends what stands before the first payload.
    pub fn encode_header(original_size: u32, w: &mut Writer<'_>) {
        w.bytes(&Protocol::Compression.id());
        w.u32(original_size);
    }
}

/// One payload of a chained message ([MS-SMB2] 2.2.42.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainedPayload<'a> {
    /// How it is compressed.
    pub algorithm: CompressionAlgorithm,
    /// Its length once decompressed, in bytes. On the wire for compressing algorithms only; of the others it follows
    /// from the data.
    pub original_size: u32,
    /// The data; of [`CompressionAlgorithm::PATTERN_V1`] a [`PatternV1`].
    pub data: &'a [u8],
}

impl<'a> ChainedPayload<'a> {
    /// Whether `OriginalPayloadSize` is on the wire ([MS-SMB2] 2.2.42.2.1).
    fn has_original_size(algorithm: CompressionAlgorithm) -> Result<bool> {
        match algorithm {
            CompressionAlgorithm::NONE | CompressionAlgorithm::PATTERN_V1 => Ok(false),
            CompressionAlgorithm::LZNT1
            | CompressionAlgorithm::LZ77
            | CompressionAlgorithm::LZ77_HUFFMAN
            | CompressionAlgorithm::LZ4 => Ok(true),
            _ => Err(Malformed {
                structure: "SMB2_COMPRESSION_CHAINED_PAYLOAD_HEADER",
                fault: Fault::Value,
                at: 0,
            }),
        }
    }

    fn decode(reader: &mut Reader<'a>, first: bool) -> Result<Self> {
        let algorithm = CompressionAlgorithm(reader.u16()?);
        let fault = reader.fault(Fault::Value);
        let chained = reader.u16()? == FLAG_CHAINED;
        let sized = Self::has_original_size(algorithm).map_err(|_| fault)?;
        if chained != first {
            return Err(fault);
        }
        let bounds = reader.fault(Fault::Bounds);
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
            // Exact: a slice of a message, whose length fits 32 bits.
            (None, _) => u32::try_from(data.len()).map_err(|_| bounds)?,
        };
        Ok(Self {
            algorithm,
            original_size,
            data,
        })
    }

    /// Appends only the header; the data is to follow.
    ///
    /// # Panics
    /// If the algorithm is none of the specification.
    pub fn encode_header(&self, first: bool, w: &mut Writer<'_>) {
        let sized = Self::has_original_size(self.algorithm).expect("an algorithm of the specification");
        w.u16(self.algorithm.0);
        w.u16(if first { FLAG_CHAINED } else { 0 });
        w.u32(len_u32(self.data.len() + if sized { 4 } else { 0 }));
        if sized {
            w.u32(self.original_size);
        }
    }
}

/// See [`Chained::payloads`].
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
    /// The byte.
    pub pattern: u8,
    /// How many times.
    pub repetitions: u32,
}

impl PatternV1 {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Reads a payload's data, which must be 8 bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`], [`Fault::Bounds`].
    pub fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_COMPRESSION_PATTERN_PAYLOAD_V1");
        let pattern = reader.u8()?;
        reader.skip(3)?;
        let repetitions = reader.u32()?;
        if reader.remaining() > 0 {
            return Err(reader.fault(Fault::Bounds));
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
    fn known_bytes_of_a_chain() {
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
    fn chains_are_strict() {
        // The second payload calls itself the first.
        let bytes = b"\xFCSMB\x02\0\0\0\0\0\x01\0\x01\0\0\0a\0\0\x01\0\x01\0\0\0b";
        let CompressedMessage::Chained(message) = decode(bytes).unwrap() else {
            panic!("chained")
        };
        let outcomes: Vec<_> = message.payloads().collect();
        assert!(outcomes[0].is_ok());
        assert_eq!(
            (outcomes.len(), outcomes[1].unwrap_err().fault),
            (2, Fault::Value)
        );
        // A length that does not hold OriginalPayloadSize.
        let bytes = b"\xFCSMB\x02\0\0\0\x02\0\x01\0\x03\0\0\0abcdefg";
        let CompressedMessage::Chained(message) = decode(bytes).unwrap() else {
            panic!("chained")
        };
        assert_eq!(
            message.payloads().next().unwrap().unwrap_err().fault,
            Fault::Bounds
        );
    }

    #[test]
    fn unchained_messages_are_strict() {
        let bytes = b"\xFCSMB\x02\0\0\0\x01\0\0\0\x09\0\0\0abcdefgh";
        assert_eq!(
            decode(bytes).unwrap_err().fault,
            Fault::Bounds,
            "a plain part past the end"
        );
        let bytes = b"\xFCSMB\x02\0\0\0\0\0\0\0\0\0\0\0abcdefgh";
        assert_eq!(decode(bytes).unwrap_err().fault, Fault::Value, "no algorithm");
        let bytes = b"\xFCSMB\x02\0\0\0\x01\0\x02\0\0\0\0\0abcdefgh";
        assert_eq!(decode(bytes).unwrap_err().fault, Fault::Value, "unknown flags");
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
        fn chains_round_trip(
            original_size: u32,
            parts in prop::collection::vec((0..=5_u16, any::<u32>(), any::<Vec<u8>>()), 1..6),
        ) {
            let patterns: Vec<Vec<u8>> = parts
                .iter()
                .map(|part| hostile::structure(|w| PatternV1 { pattern: 1, repetitions: part.1 }.encode(w)))
                .collect();
            let payloads: Vec<ChainedPayload<'_>> = parts
                .iter()
                .zip(&patterns)
                .map(|((algorithm, size, data), pattern)| match CompressionAlgorithm(*algorithm) {
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
