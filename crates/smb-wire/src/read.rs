//! SMB2 READ ([MS-SMB2] 2.2.19, 2.2.20).
//!
//! A reply's payload is not part of what is decoded: [`ReadResponse::decode_head`] needs the header and 16 bytes, and
//! says where the payload lies, so that it can be received straight into the block that awaits it.

use super::codes::codes;
use super::header::HEADER_LEN;
use super::lengths::{len_u32, named};
use super::{FileId, Payload, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of a READ request ([MS-SMB2] 2.2.19); before 3.0.2 the field is reserved.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ReadFlags: u8 {
        /// The server's cache is not to be used (3.0.2).
        const UNBUFFERED = 0x01;
        /// The response may be compressed (3.1.1).
        const REQUEST_COMPRESSED = 0x02;
        const _ = !0;
    }
}

codes! {
    /// How a payload travels ([MS-SMB2] 2.2.19, 2.2.21 `Channel`); before 3.0 the field is reserved and to be ignored.
    pub struct Channel(u32) {
        /// Inside the message.
        NONE = 0;
        /// By RDMA, described by the channel information.
        RDMA_V1 = 1;
        /// By RDMA, and the server invalidates the token (3.0.2).
        RDMA_V1_INVALIDATE = 2;
        /// By RDMA, transformed (3.1.1).
        RDMA_TRANSFORM = 3;
    }
}

/// Bytes of a READ response's fixed part.
pub const READ_RESPONSE_FIXED_LEN: usize = 16;

/// Where our own responses' payload begins, in bytes from the header.
pub const READ_DATA_OFFSET: usize = HEADER_LEN + READ_RESPONSE_FIXED_LEN;

/// SMB2 READ Request ([MS-SMB2] 2.2.19). Channel information is neither sent nor kept: there is no RDMA here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The open.
    pub file_id: FileId,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes wanted.
    pub length: u32,
    /// With fewer bytes than this before the file's end the server is to fail the request.
    pub minimum_count: u32,
    /// How to read.
    pub flags: ReadFlags,
    /// How the payload travels; decoders of dialects before 3.0 ignore it.
    pub channel: Channel,
}

impl ReadRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 READ Request");
        reader.structure_size(49)?;
        // Padding: where the client would like the data in the response; a server may ignore it, and ours does.
        reader.skip(1)?;
        let flags = ReadFlags::from_bits_retain(reader.u8()?);
        let length = reader.u32()?;
        let offset = reader.u64()?;
        let file_id = FileId::decode(&mut reader)?;
        let minimum_count = reader.u32()?;
        let channel = Channel(reader.u32()?);
        // RemainingBytes, ReadChannelInfoOffset, ReadChannelInfoLength.
        reader.skip(8)?;
        Ok(Self {
            file_id,
            offset,
            length,
            minimum_count,
            flags,
            channel,
        })
    }

    /// Sets [`ReadFlags::REQUEST_COMPRESSED`] in an encoded body.
    pub fn allow_compressed(body: &mut [u8]) {
        /// Behind `StructureSize` and `Padding`.
        const FLAGS: usize = 3;
        if let Some(flags) = body.get_mut(FLAGS) {
            *flags |= ReadFlags::REQUEST_COMPRESSED.bits();
        }
    }

    /// Appends the body, with the one byte of buffer that a server may insist on.
    ///
    /// # Panics
    /// If the channel is not `NONE`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        assert_eq!(self.channel, Channel::NONE, "no RDMA");
        w.u16(49);
        w.u8(READ_DATA_OFFSET as u8);
        w.u8(self.flags.bits());
        w.u32(self.length);
        w.u64(self.offset);
        self.file_id.encode(w);
        w.u32(self.minimum_count);
        w.u32(self.channel.0);
        // RemainingBytes, ReadChannelInfoOffset, ReadChannelInfoLength, and the one byte of buffer.
        w.zeros(9);
    }
}

/// SMB2 READ Response without its payload ([MS-SMB2] 2.2.20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadResponse {
    /// Bytes sent by another channel (RDMA); 0 here.
    pub data_remaining: u32,
}

impl ReadResponse {
    /// Reads the fixed part; the reader's message needs no more than the header and 16 bytes.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, a payload that begins inside the fixed part. Whether the payload ends
    /// inside the message is asked with [`Payload::range`].
    pub fn decode_head(reader: &mut Reader<'_>) -> Result<(Self, Payload)> {
        let mut reader = named(reader, "SMB2 READ Response");
        reader.structure_size(17)?;
        let offset = usize::from(reader.u8()?);
        reader.skip(1)?;
        let length = reader.u32()?;
        let data_remaining = reader.u32()?;
        reader.skip(4)?;
        let payload = Payload::announced(&reader, offset, length)?;
        Ok((Self { data_remaining }, payload))
    }

    /// Reads fixed part and payload of a message that is all there.
    ///
    /// # Errors
    /// Those of [`Self::decode_head`]; a payload that ends outside the message.
    pub fn decode<'a>(reader: &mut Reader<'a>) -> Result<(Self, &'a [u8])> {
        let (response, payload) = Self::decode_head(reader)?;
        let body = reader.position();
        let mut after = named(reader, "SMB2 READ Response");
        after.seek(body + READ_RESPONSE_FIXED_LEN)?;
        Ok((response, payload.of(&after)?))
    }

    /// Appends the fixed part; `length` bytes of payload are to follow directly.
    pub fn encode_head(&self, w: &mut Writer<'_>, length: u32) {
        w.u16(17);
        // From the header, so the place of the body in the message decides.
        let offset = w.position() - 2 + READ_RESPONSE_FIXED_LEN;
        w.u8(u8::try_from(offset).expect("the body follows the header"));
        w.zeros(1);
        w.u32(length);
        w.u32(self.data_remaining);
        w.zeros(4);
    }

    /// Appends fixed part and payload; copies the payload, so only for what is small: pipes, tests.
    pub fn encode(&self, w: &mut Writer<'_>, data: &[u8]) {
        self.encode_head(w, len_u32(data.len()));
        w.bytes(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;
    use crate::hostile::{attack_body, body, message};
    use proptest::prelude::*;

    fn request() -> ReadRequest {
        ReadRequest {
            file_id: FileId {
                persistent: 1,
                volatile: 2,
            },
            offset: 1 << 40,
            length: 1 << 20,
            minimum_count: 1,
            flags: ReadFlags::UNBUFFERED | ReadFlags::REQUEST_COMPRESSED,
            channel: Channel::NONE,
        }
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            persistent: u64, volatile: u64, offset: u64, length: u32, minimum_count: u32, flags: u8,
        ) {
            let request = ReadRequest {
                file_id: FileId { persistent, volatile },
                offset,
                length,
                minimum_count,
                flags: ReadFlags::from_bits_retain(flags),
                channel: Channel::NONE,
            };
            let bytes = message(|w| request.encode(w));
            prop_assert_eq!(bytes.len(), 64 + 49, "one byte of buffer");
            prop_assert_eq!(ReadRequest::decode(&mut body(&bytes)), Ok(request));
        }

        #[test]
        fn responses_round_trip(data_remaining: u32, data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let response = ReadResponse { data_remaining };
            let bytes = message(|w| response.encode(w, &data));
            prop_assert_eq!(bytes.len(), 80 + data.len());
            prop_assert_eq!(ReadResponse::decode(&mut body(&bytes)), Ok((response, &data[..])));
            let (head, payload) = ReadResponse::decode_head(&mut body(&bytes[..80])).unwrap();
            prop_assert_eq!(head, response);
            prop_assert_eq!(payload, Payload { offset: 80, length: data.len() as u32 });
        }
    }

    #[test]
    fn the_flag_of_compressed_answers_is_set_in_place() {
        let mut request = request();
        request.flags = ReadFlags::UNBUFFERED;
        let mut bytes = message(|w| request.encode(w));
        ReadRequest::allow_compressed(&mut bytes[HEADER_LEN..]);
        request.flags = ReadFlags::UNBUFFERED | ReadFlags::REQUEST_COMPRESSED;
        assert_eq!(ReadRequest::decode(&mut body(&bytes)), Ok(request));
    }

    #[test]
    fn a_payload_may_begin_later_but_not_earlier() {
        let mut bytes = message(|w| ReadResponse::default().encode(w, b"abcdef"));
        bytes[66] = 82;
        assert!(ReadResponse::decode(&mut body(&bytes)).is_err(), "ends outside");
        bytes[68] = 4;
        assert_eq!(ReadResponse::decode(&mut body(&bytes)).unwrap().1, b"cdef");
        bytes[66] = 79;
        let fault = ReadResponse::decode_head(&mut body(&bytes)).unwrap_err();
        assert_eq!(
            (fault.fault, fault.structure),
            (Fault::Bounds, "SMB2 READ Response")
        );
    }

    #[test]
    fn hostile_bytes_never_panic() {
        attack_body(&message(|w| request().encode(w)), |reader| {
            ReadRequest::decode(reader).is_ok()
        });
        let bytes = message(|w| ReadResponse::default().encode(w, &[9; 40]));
        attack_body(&bytes, |reader| ReadResponse::decode(reader).is_ok());
    }
}
