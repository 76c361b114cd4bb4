//! SMB2 QUERY_INFO: metadata of a file, file system, security descriptor or quota ([MS-SMB2] 2.2.37, 2.2.38).

use super::body::{decode_output, encode_output, pad_empty};
use super::lengths::{len_u16, len_u32, named, place};
use super::{Fault, FileId, Reader, Result, Writer};
use bitflags::bitflags;

/// What kind of information ([MS-SMB2] 2.2.37 `InfoType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum InfoType {
    /// Of a file ([MS-FSCC] 2.4).
    File = 1,
    /// Of its file system ([MS-FSCC] 2.5).
    FileSystem = 2,
    /// The security descriptor ([MS-DTYP] 2.4.6).
    Security = 3,
    /// Quotas ([MS-FSCC] 2.4.36).
    Quota = 4,
}

impl InfoType {
    /// From the wire; `None` for values the specification does not have.
    pub fn from_wire(value: u8) -> Option<Self> {
        [Self::File, Self::FileSystem, Self::Security, Self::Quota]
            .into_iter()
            .find(|kind| kind.to_wire() == value)
    }

    /// To the wire.
    pub fn to_wire(self) -> u8 {
        self as u8
    }
}

bitflags! {
    /// `AdditionalInformation` for security: which parts of the descriptor ([MS-SMB2] 2.2.37, 2.2.39).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SecurityInformation: u32 {
        /// The owner.
        const OWNER = 0x0000_0001;
        /// The group.
        const GROUP = 0x0000_0002;
        /// Who may do what.
        const DACL = 0x0000_0004;
        /// What is audited.
        const SACL = 0x0000_0008;
        /// The integrity label.
        const LABEL = 0x0000_0010;
        /// Resource attributes.
        const ATTRIBUTE = 0x0000_0020;
        /// The central access policy.
        const SCOPE = 0x0000_0040;
        /// Everything, for backup.
        const BACKUP = 0x0001_0000;
        const _ = !0;
    }
}

bitflags! {
    /// `Flags` of QUERY_INFO, for extended attributes ([MS-SMB2] 2.2.37).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct QueryInfoFlags: u32 {
        /// From the beginning.
        const RESTART_SCAN = 0x0000_0001;
        /// One entry only.
        const RETURN_SINGLE_ENTRY = 0x0000_0002;
        /// From the index in `additional_information`.
        const INDEX_SPECIFIED = 0x0000_0004;
        const _ = !0;
    }
}

/// Bytes of a request's fixed part.
const REQUEST_FIXED_LEN: usize = 40;

/// SMB2 QUERY_INFO Request ([MS-SMB2] 2.2.37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryInfoRequest<'a> {
    /// What kind of information.
    pub info_type: InfoType,
    /// `FileInfoClass`: which level of that kind; 0 for security and quota.
    pub info_class: u8,
    /// Bytes that the response may carry.
    pub output_buffer_length: u32,
    /// [`SecurityInformation`] for security, the index of the first extended attribute with `INDEX_SPECIFIED`, else 0.
    pub additional_information: u32,
    /// How to list extended attributes.
    pub flags: QueryInfoFlags,
    /// The open.
    pub file_id: FileId,
    /// Which extended attributes (FILE_GET_EA_INFORMATION) or quotas (SMB2_QUERY_QUOTA_INFO), else empty.
    pub input: &'a [u8],
}

impl<'a> QueryInfoRequest<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, an unknown `InfoType`, input outside the message.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 QUERY_INFO Request");
        reader.structure_size(41)?;
        let info_type = InfoType::from_wire(reader.u8()?).ok_or(reader.fault(Fault::Value))?;
        let info_class = reader.u8()?;
        let output_buffer_length = reader.u32()?;
        let input_offset = usize::from(reader.u16()?);
        reader.skip(2)?;
        let input_length = place(reader.u32()?);
        let additional_information = reader.u32()?;
        let flags = QueryInfoFlags::from_bits_retain(reader.u32()?);
        let file_id = FileId::decode(&mut reader)?;
        let input = reader.slice(input_offset, input_length)?;
        Ok(Self {
            info_type,
            info_class,
            output_buffer_length,
            additional_information,
            flags,
            file_id,
            input,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let buffer = w.position() + REQUEST_FIXED_LEN;
        w.u16(41);
        w.u8(self.info_type.to_wire());
        w.u8(self.info_class);
        w.u32(self.output_buffer_length);
        w.u16(if self.input.is_empty() { 0 } else { len_u16(buffer) });
        w.zeros(2);
        w.u32(len_u32(self.input.len()));
        w.u32(self.additional_information);
        w.u32(self.flags.bits());
        self.file_id.encode(w);
        w.bytes(self.input);
        pad_empty(w, buffer);
    }
}

/// SMB2 QUERY_INFO Response ([MS-SMB2] 2.2.38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryInfoResponse<'a> {
    /// The information asked for.
    pub output: &'a [u8],
}

impl<'a> QueryInfoResponse<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, information outside the message.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let output = decode_output(reader, "SMB2 QUERY_INFO Response")?;
        Ok(Self { output })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        encode_output(w, self.output);
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
            info_type in 1_u8..=4, info_class: u8, numbers: [u32; 3], ids: (u64, u64),
            input in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let request = QueryInfoRequest {
                info_type: InfoType::from_wire(info_type).unwrap(),
                info_class,
                output_buffer_length: numbers[0],
                additional_information: numbers[1],
                flags: QueryInfoFlags::from_bits_retain(numbers[2]),
                file_id: FileId { persistent: ids.0, volatile: ids.1 },
                input: &input,
            };
            let bytes = message(|w| request.encode(w));
            prop_assert!(bytes.len() >= 64 + 41, "at least one byte of buffer");
            prop_assert_eq!(QueryInfoRequest::decode(&mut body(&bytes)), Ok(request));
            let response = QueryInfoResponse { output: &input };
            let bytes = message(|w| response.encode(w));
            prop_assert_eq!(QueryInfoResponse::decode(&mut body(&bytes)), Ok(response));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let request = QueryInfoRequest {
            info_type: InfoType::Security,
            info_class: 0,
            output_buffer_length: 4096,
            additional_information: (SecurityInformation::OWNER | SecurityInformation::DACL).bits(),
            flags: QueryInfoFlags::default(),
            file_id: FileId::RELATED,
            input: &[1; 9],
        };
        let bytes = message(|w| request.encode(w));
        attack_body(&bytes, |reader| QueryInfoRequest::decode(reader).is_ok());
        let bytes = message(|w| QueryInfoResponse { output: &[1; 9] }.encode(w));
        attack_body(&bytes, |reader| QueryInfoResponse::decode(reader).is_ok());
    }
}
