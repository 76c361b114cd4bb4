//! Private controls: what this project's client asks of this project's server alone
//! (docs/adr/0033).
//!
//! One control code carries all of them. Its input and output begin with a header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | version: [`VERSION`] |
//! | 2 | 2 | operation: [`PrivateOperation`] |
//! | 4 | 4 | reserved: 0 when sent, not read |
//! | 8 | | body of the operation |
//!
//! A client sends only operations that the server has listed in its answer to the create context
//! [`PrivateQuery`](crate::create_context::PrivateQuery). To add one, give it the next number and
//! bit here, and let the server list it; the version changes only if this header does.

use crate::codes::codes;
use crate::{DecodeErrorKind, Reader, Result, Writer};
use bitflags::bitflags;

/// The version described here, and the only one so far.
pub const VERSION: u16 = 1;

/// Length of the header in bytes.
pub const PRIVATE_HEADER_LEN: usize = 8;

/// Length in bytes of a chunk's hash: half of a BLAKE3 hash. Two different chunks have the same one
/// with a chance that needs no attention, and the hash of the whole range is compared in the end.
pub const CHUNK_HASH_LEN: usize = 16;

/// Length in bytes of a chunk in a reply.
pub const CHUNK_ENTRY_LEN: usize = 4 + CHUNK_HASH_LEN;

/// Length in bytes of a range's hash: BLAKE3.
pub const RANGE_HASH_LEN: usize = 32;

codes! {
    /// Number of a private operation, at most 63.
    pub struct PrivateOperation(u16) {
        /// Cuts a range of a file into chunks by their content, and returns their hashes.
        CHUNKS = 1;
        /// Returns the hash of a range of a file.
        RANGE_HASH = 2;
        /// Returns a digest of what a folder holds.
        FOLDER_DIGEST = 3;
        /// Makes small files. The request names no open.
        PUT_FILES = 4;
        /// Reads small files. The request names no open.
        GET_FILES = 5;
        /// Makes small files from others of the share. The request names no open.
        COPY_FILES = 6;
        /// Tells whether small files have a content. The request names no open.
        SAME_FILES = 7;
    }
}

bitflags! {
    /// A set of operations: bit N stands for operation N.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct PrivateOperations: u64 {
        /// [`PrivateOperation::CHUNKS`].
        const CHUNKS = 1 << 1;
        /// [`PrivateOperation::RANGE_HASH`].
        const RANGE_HASH = 1 << 2;
        /// [`PrivateOperation::FOLDER_DIGEST`].
        const FOLDER_DIGEST = 1 << 3;
        /// [`PrivateOperation::PUT_FILES`].
        const PUT_FILES = 1 << 4;
        /// [`PrivateOperation::GET_FILES`].
        const GET_FILES = 1 << 5;
        /// [`PrivateOperation::COPY_FILES`].
        const COPY_FILES = 1 << 6;
        /// [`PrivateOperation::SAME_FILES`].
        const SAME_FILES = 1 << 7;
        const _ = !0;
    }
}

/// Input or output of the control: the header, and the body of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateMessage<'a> {
    /// Version of the header.
    pub version: u16,
    /// Operation.
    pub operation: PrivateOperation,
    /// Body.
    pub body: &'a [u8],
}

impl<'a> PrivateMessage<'a> {
    /// Creates a message of this version.
    pub fn new(operation: PrivateOperation, body: &'a [u8]) -> Self {
        Self {
            version: VERSION,
            operation,
            body,
        }
    }

    /// Reads the IOCTL's input or output.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "private control");
        let version = reader.u16()?;
        let operation = PrivateOperation(reader.u16()?);
        reader.skip(4)?;
        Ok(Self {
            version,
            operation,
            body: reader.rest(),
        })
    }

    /// Appends the IOCTL's input or output.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.version);
        w.u16(self.operation.0);
        w.zeros(4);
        w.bytes(self.body);
    }
}

/// Request of [`PrivateOperation::CHUNKS`], on a file that is open for reading.
///
/// The first chunk begins at `offset`, and no chunk reaches beyond the range or the end of the
/// file. The server may stop earlier, at the end of any chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunksRequest {
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u64,
    /// Average length of a chunk in bytes.
    pub average: u32,
}

impl ChunksRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// Truncation; a range that ends beyond 2^63.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(body, "CHUNKS request");
        let (offset, length) = range(&mut reader)?;
        Ok(Self {
            offset,
            length,
            average: reader.u32()?,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.offset);
        w.u64(self.length);
        w.u32(self.average);
        w.zeros(4);
    }
}

/// A chunk in a reply. It begins where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Length in bytes; not 0.
    pub length: u32,
    /// First half of the BLAKE3 hash of its content.
    pub hash: [u8; CHUNK_HASH_LEN],
}

impl ChunkEntry {
    /// Reads the body of the reply: all chunks.
    ///
    /// # Errors
    /// A cut entry, an empty chunk.
    pub fn decode_list(body: &[u8]) -> Result<Vec<Self>> {
        let mut reader = Reader::new(body, "CHUNKS reply");
        let mut entries = Vec::with_capacity(body.len() / CHUNK_ENTRY_LEN);
        while reader.remaining() > 0 {
            let length = reader.u32()?;
            if length == 0 {
                return Err(reader.error(DecodeErrorKind::Value));
            }
            entries.push(Self {
                length,
                hash: reader.array()?,
            });
        }
        Ok(entries)
    }

    /// Appends one chunk of the reply's body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.length);
        w.bytes(&self.hash);
    }
}

/// Request of [`PrivateOperation::RANGE_HASH`], on a file that is open for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeHashRequest {
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u64,
}

impl RangeHashRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// Truncation; a range that ends beyond 2^63.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let (offset, length) = range(&mut Reader::new(body, "RANGE_HASH request"))?;
        Ok(Self { offset, length })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.offset);
        w.u64(self.length);
    }
}

/// Reply to [`PrivateOperation::RANGE_HASH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeHashReply {
    /// Bytes hashed: less than asked for at the end of the file.
    pub length: u64,
    /// BLAKE3 hash of these bytes.
    pub hash: [u8; RANGE_HASH_LEN],
}

impl RangeHashReply {
    /// Reads the body.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(body, "RANGE_HASH reply");
        Ok(Self {
            length: reader.u64()?,
            hash: reader.array()?,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.length);
        w.bytes(&self.hash);
    }
}

/// Reads offset and length of a range. Offsets of files are signed ([MS-FSA] 2.1.5.2).
fn range(reader: &mut Reader<'_>) -> Result<(u64, u64)> {
    let (offset, length) = (reader.u64()?, reader.u64()?);
    let end = offset.checked_add(length);
    match end.is_some_and(|end| i64::try_from(end).is_ok()) {
        true => Ok((offset, length)),
        false => Err(reader.error(DecodeErrorKind::Bounds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    const MAX: u64 = i64::MAX as u64;

    proptest! {
        #[test]
        fn round_trip(
            operation: u16, body in proptest::collection::vec(any::<u8>(), 0..50), offset in 0..=MAX, length: u64,
            average: u32, chunks in proptest::collection::vec((1_u32.., any::<[u8; 16]>()), 0..20), hash: [u8; 32],
        ) {
            let message = PrivateMessage::new(PrivateOperation(operation), &body);
            let bytes = structure(|w| message.encode(w));
            prop_assert_eq!(bytes.len(), PRIVATE_HEADER_LEN + body.len());
            prop_assert_eq!(PrivateMessage::decode(&bytes), Ok(message));
            let length = length % (MAX - offset + 1);
            let request = ChunksRequest { offset, length, average };
            prop_assert_eq!(ChunksRequest::decode(&structure(|w| request.encode(w))), Ok(request));
            let request = RangeHashRequest { offset, length };
            prop_assert_eq!(RangeHashRequest::decode(&structure(|w| request.encode(w))), Ok(request));
            let reply = RangeHashReply { length, hash };
            prop_assert_eq!(RangeHashReply::decode(&structure(|w| reply.encode(w))), Ok(reply));
            let entries: Vec<_> = chunks.into_iter().map(|(length, hash)| ChunkEntry { length, hash }).collect();
            let bytes = structure(|w| entries.iter().for_each(|entry| entry.encode(w)));
            prop_assert_eq!(bytes.len(), entries.len() * CHUNK_ENTRY_LEN);
            prop_assert_eq!(ChunkEntry::decode_list(&bytes), Ok(entries));
        }
    }

    #[test]
    fn a_set_has_the_bits_of_its_operations() {
        for (operation, set) in [
            (PrivateOperation::CHUNKS, PrivateOperations::CHUNKS),
            (PrivateOperation::RANGE_HASH, PrivateOperations::RANGE_HASH),
            (PrivateOperation::FOLDER_DIGEST, PrivateOperations::FOLDER_DIGEST),
            (PrivateOperation::PUT_FILES, PrivateOperations::PUT_FILES),
            (PrivateOperation::GET_FILES, PrivateOperations::GET_FILES),
            (PrivateOperation::COPY_FILES, PrivateOperations::COPY_FILES),
            (PrivateOperation::SAME_FILES, PrivateOperations::SAME_FILES),
        ] {
            assert_eq!(1 << operation.0, set.bits());
        }
    }

    #[test]
    fn empty_chunks_and_endless_ranges_are_malformed() {
        let entry = ChunkEntry {
            length: 0,
            hash: [1; 16],
        };
        assert!(ChunkEntry::decode_list(&structure(|w| entry.encode(w))).is_err());
        let request = RangeHashRequest {
            offset: MAX,
            length: 1,
        };
        assert!(RangeHashRequest::decode(&structure(|w| request.encode(w))).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic() {
        attack(&[1; 60], 0, |bytes| {
            (
                PrivateMessage::decode(bytes).is_ok(),
                ChunksRequest::decode(bytes).is_ok(),
                ChunkEntry::decode_list(bytes).is_ok(),
                RangeHashRequest::decode(bytes).is_ok(),
                RangeHashReply::decode(bytes).is_ok(),
            )
        });
    }
}
