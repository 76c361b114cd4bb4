//! SMB2 QUERY_DIRECTORY: names in a directory ([MS-SMB2] 2.2.33, 2.2.34). What the answer holds is a chain of
//! directory entries of the asked information class.

use super::body::{decode_output, encode_output, pad_empty};
use super::lengths::{len_u16, named};
use super::{Fault, FileId, Reader, Result, Text, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of QUERY_DIRECTORY ([MS-SMB2] 2.2.33).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct QueryDirectoryFlags: u8 {
        /// From the beginning, same pattern.
        const RESTART_SCANS = 0x01;
        /// One entry only.
        const RETURN_SINGLE_ENTRY = 0x02;
        /// From `file_index`.
        const INDEX_SPECIFIED = 0x04;
        /// From the beginning, with the request's pattern.
        const REOPEN = 0x10;
        const _ = !0;
    }
}

/// Bytes of a request's fixed part.
const REQUEST_FIXED_LEN: usize = 32;

/// SMB2 QUERY_DIRECTORY Request ([MS-SMB2] 2.2.33).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryDirectoryRequest {
    /// `FileInformationClass` of the entries wanted ([MS-FSCC] 2.4).
    pub information_class: u8,
    /// Where to begin, how much to answer.
    pub flags: QueryDirectoryFlags,
    /// Where to begin with `INDEX_SPECIFIED`.
    pub file_index: u32,
    /// The open directory.
    pub file_id: FileId,
    /// Which names, `*` for all.
    pub pattern: Text,
    /// Bytes of entries that the response may carry.
    pub output_buffer_length: u32,
}

impl QueryDirectoryRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, a pattern outside the message or with half a unit.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 QUERY_DIRECTORY Request");
        reader.structure_size(33)?;
        let information_class = reader.u8()?;
        let flags = QueryDirectoryFlags::from_bits_retain(reader.u8()?);
        let file_index = reader.u32()?;
        let file_id = FileId::decode(&mut reader)?;
        let name_offset = usize::from(reader.u16()?);
        let name_length = usize::from(reader.u16()?);
        let output_buffer_length = reader.u32()?;
        let pattern = reader.slice(name_offset, name_length)?;
        let pattern = Text::from_le_bytes(pattern).ok_or(reader.fault(Fault::Value))?;
        Ok(Self {
            information_class,
            flags,
            file_index,
            file_id,
            pattern,
            output_buffer_length,
        })
    }

    /// Appends the body.
    ///
    /// # Panics
    /// If the pattern is longer than 65535 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let buffer = w.position() + REQUEST_FIXED_LEN;
        w.u16(33);
        w.u8(self.information_class);
        w.u8(self.flags.bits());
        w.u32(self.file_index);
        self.file_id.encode(w);
        w.u16(len_u16(buffer));
        w.u16(len_u16(self.pattern.wire_len()));
        w.u32(self.output_buffer_length);
        self.pattern.write(w);
        pad_empty(w, buffer);
    }
}

/// SMB2 QUERY_DIRECTORY Response ([MS-SMB2] 2.2.34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryDirectoryResponse<'a> {
    /// The chain of entries.
    pub output: &'a [u8],
}

impl<'a> QueryDirectoryResponse<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, entries outside the message.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let output = decode_output(reader, "SMB2 QUERY_DIRECTORY Response")?;
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
            information_class: u8, flags: u8, file_index: u32, ids: (u64, u64), output_buffer_length: u32,
            units in proptest::collection::vec(any::<u16>(), 0..40),
            output in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let request = QueryDirectoryRequest {
                information_class,
                flags: QueryDirectoryFlags::from_bits_retain(flags),
                file_index,
                file_id: FileId { persistent: ids.0, volatile: ids.1 },
                pattern: Text::from_units(units),
                output_buffer_length,
            };
            let bytes = message(|w| request.encode(w));
            prop_assert!(bytes.len() >= 64 + 33, "at least one byte of buffer");
            prop_assert_eq!(QueryDirectoryRequest::decode(&mut body(&bytes)), Ok(request));
            let response = QueryDirectoryResponse { output: &output };
            let bytes = message(|w| response.encode(w));
            prop_assert_eq!(QueryDirectoryResponse::decode(&mut body(&bytes)), Ok(response));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let request = QueryDirectoryRequest {
            information_class: 37,
            flags: QueryDirectoryFlags::REOPEN,
            file_index: 0,
            file_id: FileId::RELATED,
            pattern: "*.txt".into(),
            output_buffer_length: 65536,
        };
        attack_body(&message(|w| request.encode(w)), |reader| {
            QueryDirectoryRequest::decode(reader).is_ok()
        });
        let response = QueryDirectoryResponse { output: &[3; 20] };
        attack_body(&message(|w| response.encode(w)), |reader| {
            QueryDirectoryResponse::decode(reader).is_ok()
        });
    }
}
