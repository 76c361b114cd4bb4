//! SMB2 SET_INFO: changes metadata ([MS-SMB2] 2.2.39, 2.2.40).

use super::body::pad_empty;
use super::lengths::{len_u16, len_u32, named, place};
use super::query_info::InfoType;
use super::{Fault, FileId, Reader, Result, Writer};

/// Bytes of a request's fixed part.
const REQUEST_FIXED_LEN: usize = 32;

/// SMB2 SET_INFO Request ([MS-SMB2] 2.2.39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfoRequest<'a> {
    /// What kind of information.
    pub info_type: InfoType,
    /// `FileInfoClass`: which level of that kind; 0 for security and quota.
    pub info_class: u8,
    /// [`super::query_info::SecurityInformation`] for security, else 0.
    pub additional_information: u32,
    /// The open.
    pub file_id: FileId,
    /// The information.
    pub buffer: &'a [u8],
}

impl<'a> SetInfoRequest<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, an unknown `InfoType`, information outside the message.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 SET_INFO Request");
        reader.structure_size(33)?;
        let info_type = InfoType::from_wire(reader.u8()?).ok_or(reader.fault(Fault::Value))?;
        let info_class = reader.u8()?;
        let buffer_length = place(reader.u32()?);
        let buffer_offset = usize::from(reader.u16()?);
        reader.skip(2)?;
        let additional_information = reader.u32()?;
        let file_id = FileId::decode(&mut reader)?;
        let buffer = reader.slice(buffer_offset, buffer_length)?;
        Ok(Self {
            info_type,
            info_class,
            additional_information,
            file_id,
            buffer,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let start = w.position() + REQUEST_FIXED_LEN;
        w.u16(33);
        w.u8(self.info_type.to_wire());
        w.u8(self.info_class);
        w.u32(len_u32(self.buffer.len()));
        w.u16(len_u16(start));
        w.zeros(2);
        w.u32(self.additional_information);
        self.file_id.encode(w);
        w.bytes(self.buffer);
        pad_empty(w, start);
    }
}

/// SMB2 SET_INFO Response ([MS-SMB2] 2.2.40): it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfoResponse;

impl SetInfoResponse {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        named(reader, "SMB2 SET_INFO Response").structure_size(2)?;
        Ok(Self)
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack_body, body, message};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            info_type in 1_u8..=4, info_class: u8, additional_information: u32, ids: (u64, u64),
            buffer in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let request = SetInfoRequest {
                info_type: InfoType::from_wire(info_type).unwrap(),
                info_class,
                additional_information,
                file_id: FileId { persistent: ids.0, volatile: ids.1 },
                buffer: &buffer,
            };
            let bytes = message(|w| request.encode(w));
            prop_assert!(bytes.len() >= 64 + 33, "at least one byte of buffer");
            prop_assert_eq!(SetInfoRequest::decode(&mut body(&bytes)), Ok(request));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let request = SetInfoRequest {
            info_type: InfoType::File,
            info_class: 20,
            additional_information: 0,
            file_id: FileId::RELATED,
            buffer: &[0; 8],
        };
        let bytes = message(|w| request.encode(w));
        attack_body(&bytes, |reader| SetInfoRequest::decode(reader).is_ok());
        let bytes = message(|w| SetInfoResponse.encode(w));
        assert_eq!(SetInfoResponse::decode(&mut body(&bytes)), Ok(SetInfoResponse));
        attack_body(&bytes, |reader| SetInfoResponse::decode(reader).is_ok());
    }
}
