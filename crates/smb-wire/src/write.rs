//! SMB2 WRITE ([MS-SMB2] 2.2.21, 2.2.22).
//!
//! The payload is not part of an encoded head: [`WriteRequest::encode_head`] writes 48 bytes that say it follows
//! directly, and the block is sent after them as it is. A server reads the head and then receives the payload into a
//! block of its own.

use super::header::HEADER_LEN;
use super::lengths::{len_u16, len_u32, named};
use super::read::Channel;
use super::{Fault, FileId, Payload, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of a WRITE request ([MS-SMB2] 2.2.21).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct WriteFlags: u32 {
        /// On stable storage before the response (2.1).
        const WRITE_THROUGH = 0x0000_0001;
        /// The server's cache is not to be used (3.0.2).
        const WRITE_UNBUFFERED = 0x0000_0002;
        const _ = !0;
    }
}

/// Bytes of a WRITE request's fixed part.
pub const WRITE_REQUEST_FIXED_LEN: usize = 48;

/// Where our own requests' payload begins, in bytes from the header.
pub const WRITE_DATA_OFFSET: usize = HEADER_LEN + WRITE_REQUEST_FIXED_LEN;

/// The farthest a payload may begin ([MS-SMB2] 3.3.5.13).
const DATA_OFFSET_MAX: usize = 0x100;

/// SMB2 WRITE Request without its payload ([MS-SMB2] 2.2.21). Channel information is neither sent nor kept: there is
/// no RDMA here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// The open.
    pub file_id: FileId,
    /// First byte in the file.
    pub offset: u64,
    /// How to write.
    pub flags: WriteFlags,
    /// How the payload travels; decoders of dialects before 3.0 ignore it.
    pub channel: Channel,
}

impl WriteRequest {
    /// Reads the fixed part; the reader's message needs no more than the header and 48 bytes.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, a payload that begins inside the fixed part or beyond byte 256. Whether
    /// it ends inside the message is asked with [`Payload::range`].
    pub fn decode_head(reader: &mut Reader<'_>) -> Result<(Self, Payload)> {
        let mut reader = named(reader, "SMB2 WRITE Request");
        reader.structure_size(49)?;
        let data_offset = usize::from(reader.u16()?);
        let length = reader.u32()?;
        let offset = reader.u64()?;
        let file_id = FileId::decode(&mut reader)?;
        let channel = Channel(reader.u32()?);
        // RemainingBytes, WriteChannelInfoOffset, WriteChannelInfoLength.
        reader.skip(8)?;
        let flags = WriteFlags::from_bits_retain(reader.u32()?);
        // [MS-SMB2] 3.3.5.13
        if data_offset > DATA_OFFSET_MAX {
            return Err(reader.fault(Fault::Bounds));
        }
        let payload = Payload::announced(&reader, data_offset, length)?;
        let request = Self {
            file_id,
            offset,
            flags,
            channel,
        };
        Ok((request, payload))
    }

    /// Reads fixed part and payload of a message that is all there.
    ///
    /// # Errors
    /// Those of [`Self::decode_head`]; a payload that ends outside the message.
    pub fn decode<'a>(reader: &mut Reader<'a>) -> Result<(Self, &'a [u8])> {
        let (request, payload) = Self::decode_head(reader)?;
        let body = reader.position();
        let mut after = named(reader, "SMB2 WRITE Request");
        after.seek(body + WRITE_REQUEST_FIXED_LEN)?;
        Ok((request, payload.of(&after)?))
    }

    /// Appends the fixed part; `length` bytes of payload are to follow directly.
    ///
    /// # Panics
    /// If the channel is not `NONE`.
    pub fn encode_head(&self, w: &mut Writer<'_>, length: u32) {
        assert_eq!(self.channel, Channel::NONE, "no RDMA");
        let data_offset = w.position() + WRITE_REQUEST_FIXED_LEN;
        w.u16(49);
        w.u16(len_u16(data_offset));
        w.u32(length);
        w.u64(self.offset);
        self.file_id.encode(w);
        w.u32(self.channel.0);
        w.zeros(8);
        w.u32(self.flags.bits());
    }

    /// Appends fixed part and payload; copies the payload, so only for what is small: compounds of small files,
    /// pipes, tests.
    pub fn encode(&self, w: &mut Writer<'_>, data: &[u8]) {
        self.encode_head(w, len_u32(data.len()));
        w.bytes(data);
    }
}

/// SMB2 WRITE Response ([MS-SMB2] 2.2.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResponse {
    /// Bytes written.
    pub count: u32,
}

impl WriteResponse {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 WRITE Response");
        reader.structure_size(17)?;
        reader.skip(2)?;
        let count = reader.u32()?;
        // Remaining, WriteChannelInfoOffset, WriteChannelInfoLength: reserved.
        reader.skip(8)?;
        Ok(Self { count })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(17);
        w.zeros(2);
        w.u32(self.count);
        w.zeros(8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack_body, body, message};
    use proptest::prelude::*;

    const REQUEST: WriteRequest = WriteRequest {
        file_id: FileId {
            persistent: 3,
            volatile: 4,
        },
        offset: 5,
        flags: WriteFlags::WRITE_THROUGH,
        channel: Channel::NONE,
    };

    proptest! {
        #[test]
        fn requests_round_trip(
            persistent: u64, volatile: u64, offset: u64, flags: u32,
            data in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let request = WriteRequest {
                file_id: FileId { persistent, volatile },
                offset,
                flags: WriteFlags::from_bits_retain(flags),
                channel: Channel::NONE,
            };
            let bytes = message(|w| request.encode(w, &data));
            prop_assert_eq!(bytes.len(), WRITE_DATA_OFFSET + data.len());
            prop_assert_eq!(WriteRequest::decode(&mut body(&bytes)), Ok((request, &data[..])));
            let (head, payload) = WriteRequest::decode_head(&mut body(&bytes[..112])).unwrap();
            prop_assert_eq!(head, request);
            prop_assert_eq!(payload, Payload { offset: 112, length: data.len() as u32 });
        }

        #[test]
        fn responses_round_trip(count: u32) {
            let bytes = message(|w| WriteResponse { count }.encode(w));
            prop_assert_eq!(bytes.len(), 64 + 16);
            prop_assert_eq!(WriteResponse::decode(&mut body(&bytes)), Ok(WriteResponse { count }));
        }
    }

    #[test]
    fn a_payload_beyond_byte_256_is_refused() {
        let mut bytes = message(|w| REQUEST.encode(w, &[1; 300]));
        bytes[68..70].copy_from_slice(&[8, 0]);
        bytes[66..68].copy_from_slice(&[0x00, 0x01]);
        assert!(WriteRequest::decode(&mut body(&bytes)).is_ok());
        bytes[66..68].copy_from_slice(&[0x01, 0x01]);
        assert_eq!(
            WriteRequest::decode(&mut body(&bytes)).unwrap_err().fault,
            Fault::Bounds
        );
        bytes[66..68].copy_from_slice(&[111, 0]);
        assert_eq!(
            WriteRequest::decode(&mut body(&bytes)).unwrap_err().fault,
            Fault::Bounds
        );
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let bytes = message(|w| REQUEST.encode(w, &[9; 40]));
        attack_body(&bytes, |reader| WriteRequest::decode(reader).is_ok());
        let bytes = message(|w| WriteResponse { count: 7 }.encode(w));
        attack_body(&bytes, |reader| WriteResponse::decode(reader).is_ok());
    }
}
