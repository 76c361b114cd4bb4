//! Negotiate contexts, by which 3.1.1 extends NEGOTIATE. Requests and responses use the same
//! structures.
//!
//! The order of a list is the sender's preference. Unknown contexts and algorithms are kept; a
//! receiver ignores them ([MS-SMB2] 3.3.5.4).

use super::codes::codes;
use super::cursor::{DecodeErrorKind, Reader, Result, Writer};
use super::lengths::{len_u16, place};
use super::text::Text;
use bitflags::bitflags;

codes! {
    /// `ContextType` ([MS-SMB2] 2.2.3.1).
    pub struct ContextType(u16) {
        /// [MS-SMB2] 2.2.3.1.1.
        PREAUTH_INTEGRITY_CAPABILITIES = 0x0001;
        /// [MS-SMB2] 2.2.3.1.2.
        ENCRYPTION_CAPABILITIES = 0x0002;
        /// [MS-SMB2] 2.2.3.1.3.
        COMPRESSION_CAPABILITIES = 0x0003;
        /// [MS-SMB2] 2.2.3.1.4.
        NETNAME_NEGOTIATE_CONTEXT_ID = 0x0005;
        /// [MS-SMB2] 2.2.3.1.5.
        TRANSPORT_CAPABILITIES = 0x0006;
        /// [MS-SMB2] 2.2.3.1.6.
        RDMA_TRANSFORM_CAPABILITIES = 0x0007;
        /// [MS-SMB2] 2.2.3.1.7.
        SIGNING_CAPABILITIES = 0x0008;
    }
}

codes! {
    /// Hash function of the preauthentication integrity ([MS-SMB2] 2.2.3.1.1).
    pub struct HashAlgorithm(u16) {
        /// SHA-512.
        SHA_512 = 0x0001;
    }
}

codes! {
    /// Encryption cipher ([MS-SMB2] 2.2.3.1.2).
    pub struct Cipher(u16) {
        /// Of a response: no common cipher.
        NONE = 0x0000;
        /// AES-128-CCM, the cipher of 3.0 and 3.0.2.
        AES_128_CCM = 0x0001;
        /// AES-128-GCM.
        AES_128_GCM = 0x0002;
        /// AES-256-CCM.
        AES_256_CCM = 0x0003;
        /// AES-256-GCM.
        AES_256_GCM = 0x0004;
    }
}

codes! {
    /// Compression algorithm ([MS-SMB2] 2.2.3.1.3).
    pub struct CompressionAlgorithm(u16) {
        /// Of a response: no common algorithm. Of a chained payload: not compressed.
        NONE = 0x0000;
        /// LZNT1 ([MS-XCA] 2.5).
        LZNT1 = 0x0001;
        /// Plain LZ77 ([MS-XCA] 2.4).
        LZ77 = 0x0002;
        /// LZ77 with Huffman ([MS-XCA] 2.2).
        LZ77_HUFFMAN = 0x0003;
        /// A run of one byte ([MS-SMB2] 2.2.42.2.2); only in chained messages.
        PATTERN_V1 = 0x0004;
        /// LZ4.
        LZ4 = 0x0005;
        /// Zstandard ([RFC 8878]), between own ends only (docs/adr/0038).
        OWN_ZSTD = 0xF25A;
        /// Between own ends only, beside [`Self::OWN_ZSTD`]: LZ4 and Pattern_V1 as well, and all of
        /// them while the line is slower than compression. Never in a message (docs/adr/0038).
        OWN_BY_LINE = 0xF24C;
    }
}

bitflags! {
    /// `Flags` of the compression capabilities ([MS-SMB2] 2.2.3.1.3).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct CompressionFlags: u32 {
        /// Chained compression is supported.
        const CHAINED = 0x0000_0001;
        const _ = !0;
    }
}

bitflags! {
    /// `Flags` of the transport capabilities ([MS-SMB2] 2.2.3.1.5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct TransportFlags: u32 {
        /// The transport (QUIC) is secure enough to do without SMB's own encryption.
        const ACCEPT_TRANSPORT_LEVEL_SECURITY = 0x0000_0001;
        const _ = !0;
    }
}

codes! {
    /// Signing algorithm ([MS-SMB2] 2.2.3.1.7).
    pub struct SigningAlgorithm(u16) {
        /// HMAC-SHA256, the algorithm of 2.x.
        HMAC_SHA256 = 0x0000;
        /// AES-CMAC, the algorithm of 3.x without negotiation.
        AES_CMAC = 0x0001;
        /// AES-GMAC.
        AES_GMAC = 0x0002;
    }
}

/// A negotiate context ([MS-SMB2] 2.2.3.1, 2.2.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context<'a> {
    /// Hash functions, and a salt that makes every negotiation unique ([MS-SMB2] 2.2.3.1.1).
    PreauthIntegrity {
        /// Hash functions; exactly one in a response.
        hash_algorithms: Vec<HashAlgorithm>,
        /// Random bytes.
        salt: &'a [u8],
    },
    /// Ciphers; exactly one in a response ([MS-SMB2] 2.2.3.1.2).
    Encryption(Vec<Cipher>),
    /// Compression algorithms ([MS-SMB2] 2.2.3.1.3).
    Compression {
        /// Whether compressed messages can be chained.
        flags: CompressionFlags,
        /// Algorithms; in a response those of both ends.
        algorithms: Vec<CompressionAlgorithm>,
    },
    /// Name by which the client addresses the server ([MS-SMB2] 2.2.3.1.4); only in requests.
    Netname(Text),
    /// Capabilities of the transport ([MS-SMB2] 2.2.3.1.5).
    Transport(TransportFlags),
    /// Transforms for data moved by RDMA, not decoded ([MS-SMB2] 2.2.3.1.6).
    RdmaTransform(&'a [u8]),
    /// Signing algorithms; exactly one in a response ([MS-SMB2] 2.2.3.1.7).
    Signing(Vec<SigningAlgorithm>),
    /// A context that the specification does not have.
    Other {
        /// Type, other than the ones above.
        context_type: ContextType,
        /// Data.
        data: &'a [u8],
    },
}

impl<'a> Context<'a> {
    /// Returns the type.
    pub fn context_type(&self) -> ContextType {
        match self {
            Self::PreauthIntegrity { .. } => ContextType::PREAUTH_INTEGRITY_CAPABILITIES,
            Self::Encryption(_) => ContextType::ENCRYPTION_CAPABILITIES,
            Self::Compression { .. } => ContextType::COMPRESSION_CAPABILITIES,
            Self::Netname(_) => ContextType::NETNAME_NEGOTIATE_CONTEXT_ID,
            Self::Transport(_) => ContextType::TRANSPORT_CAPABILITIES,
            Self::RdmaTransform(_) => ContextType::RDMA_TRANSFORM_CAPABILITIES,
            Self::Signing(_) => ContextType::SIGNING_CAPABILITIES,
            Self::Other { context_type, .. } => *context_type,
        }
    }

    /// Decodes `count` contexts at `offset` of the message, each at a multiple of 8.
    pub(super) fn decode_list(reader: &Reader<'a>, offset: usize, count: u16) -> Result<Vec<Self>> {
        let message = reader.message();
        if count == 0 {
            return Ok(Vec::new());
        }
        if offset < reader.position() {
            return Err(reader.error(DecodeErrorKind::Bounds));
        }
        let mut list = Reader::at(message, offset, "SMB2 NEGOTIATE_CONTEXT");
        let mut contexts = Vec::new();
        for index in 0..count {
            if index > 0 {
                // This lies past the end only if the message is truncated; the next read finds
                // that.
                let padding = list.position().next_multiple_of(8) - list.position();
                list.skip(padding)?;
            }
            let context_type = ContextType(list.u16()?);
            let length = usize::from(list.u16()?);
            list.skip(4)?;
            let start = list.position();
            list.skip(length)?;
            let data = message.get(..list.position()).unwrap_or_default();
            contexts.push(Self::decode(
                context_type,
                &mut Reader::at(data, start, "SMB2 NEGOTIATE_CONTEXT"),
            )?);
        }
        Ok(contexts)
    }

    /// Decodes one context's data. `reader` ends with the data.
    fn decode(context_type: ContextType, reader: &mut Reader<'a>) -> Result<Self> {
        Ok(match context_type {
            ContextType::PREAUTH_INTEGRITY_CAPABILITIES => {
                let count = reader.u16()?;
                let salt_len = usize::from(reader.u16()?);
                Self::PreauthIntegrity {
                    hash_algorithms: decode_numbers(reader, count, HashAlgorithm)?,
                    salt: reader.bytes(salt_len)?,
                }
            }
            ContextType::ENCRYPTION_CAPABILITIES => {
                let count = reader.u16()?;
                Self::Encryption(decode_numbers(reader, count, Cipher)?)
            }
            ContextType::COMPRESSION_CAPABILITIES => {
                let count = reader.u16()?;
                reader.skip(2)?;
                Self::Compression {
                    flags: CompressionFlags::from_bits_retain(reader.u32()?),
                    algorithms: decode_numbers(reader, count, CompressionAlgorithm)?,
                }
            }
            ContextType::NETNAME_NEGOTIATE_CONTEXT_ID => {
                let error = reader.error(DecodeErrorKind::Value);
                Self::Netname(Text::from_le_bytes(reader.rest()).ok_or(error)?)
            }
            ContextType::TRANSPORT_CAPABILITIES => {
                Self::Transport(TransportFlags::from_bits_retain(reader.u32()?))
            }
            ContextType::RDMA_TRANSFORM_CAPABILITIES => Self::RdmaTransform(reader.rest()),
            ContextType::SIGNING_CAPABILITIES => {
                let count = reader.u16()?;
                Self::Signing(decode_numbers(reader, count, SigningAlgorithm)?)
            }
            context_type => Self::Other {
                context_type,
                data: reader.rest(),
            },
        })
    }

    /// Appends contexts, the first at a multiple of 8. Returns the offset of the first.
    ///
    /// # Panics
    /// Panics if a list or a context is longer than 65,535 bytes.
    pub(super) fn encode_list(contexts: &[Self], w: &mut Writer<'_>) -> usize {
        w.align(8);
        let offset = w.position();
        for context in contexts {
            w.align(8);
            w.u16(context.context_type().0);
            let length_at = w.position();
            w.u16(0);
            w.u32(0);
            let start = w.position();
            context.encode(w);
            w.patch_u16(length_at, len_u16(w.position() - start));
        }
        offset
    }

    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::PreauthIntegrity {
                hash_algorithms,
                salt,
            } => {
                w.u16(len_u16(hash_algorithms.len()));
                w.u16(len_u16(salt.len()));
                hash_algorithms.iter().for_each(|algorithm| w.u16(algorithm.0));
                w.bytes(salt);
            }
            Self::Encryption(ciphers) => {
                w.u16(len_u16(ciphers.len()));
                ciphers.iter().for_each(|cipher| w.u16(cipher.0));
            }
            Self::Compression { flags, algorithms } => {
                w.u16(len_u16(algorithms.len()));
                w.u16(0);
                w.u32(flags.bits());
                algorithms.iter().for_each(|algorithm| w.u16(algorithm.0));
            }
            Self::Netname(name) => name.write(w),
            Self::Transport(flags) => w.u32(flags.bits()),
            Self::RdmaTransform(data) | Self::Other { data, .. } => w.bytes(data),
            Self::Signing(algorithms) => {
                w.u16(len_u16(algorithms.len()));
                algorithms.iter().for_each(|algorithm| w.u16(algorithm.0));
            }
        }
    }
}

/// Decodes `count` 16-bit numbers. Allocates only for those that are present.
fn decode_numbers<T>(reader: &mut Reader<'_>, count: u16, number: impl Fn(u16) -> T) -> Result<Vec<T>> {
    let bytes = reader.bytes(place(u32::from(count) * 2))?;
    let (pairs, _) = bytes.as_chunks::<2>();
    Ok(pairs
        .iter()
        .map(|pair| number(u16::from_le_bytes(*pair)))
        .collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers() -> impl Strategy<Value = Vec<u16>> {
        prop::collection::vec(any::<u16>(), 0..6)
    }

    /// Any context. Opaque data and salt come from `data`.
    pub(crate) fn any_context(data: &'static [u8]) -> impl Strategy<Value = Context<'static>> {
        let part = (0..=data.len()).prop_map(move |end| &data[..end]);
        let part = move || part.clone();
        prop_oneof![
            (numbers(), part()).prop_map(|(list, salt)| Context::PreauthIntegrity {
                hash_algorithms: list.into_iter().map(HashAlgorithm).collect(),
                salt,
            }),
            numbers().prop_map(|list| Context::Encryption(list.into_iter().map(Cipher).collect())),
            (any::<u32>(), numbers()).prop_map(|(flags, list)| Context::Compression {
                flags: CompressionFlags::from_bits_retain(flags),
                algorithms: list.into_iter().map(CompressionAlgorithm).collect(),
            }),
            numbers().prop_map(|units| Context::Netname(Text::from_units(units))),
            any::<u32>().prop_map(|flags| Context::Transport(TransportFlags::from_bits_retain(flags))),
            part().prop_map(Context::RdmaTransform),
            numbers().prop_map(|list| Context::Signing(list.into_iter().map(SigningAlgorithm).collect())),
            (9..=u16::MAX, part()).prop_map(|(number, data)| Context::Other {
                context_type: ContextType(number),
                data,
            }),
        ]
    }
}
