//! SMB2 CLOSE: ends an open and can return the file's last state ([MS-SMB2] 2.2.15, 2.2.16).

use super::lengths::named;
use super::{FileAttributes, FileId, FileTime, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of CLOSE, both ways ([MS-SMB2] 2.2.15).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct CloseFlags: u16 {
        /// The response should carry times, sizes and attributes.
        const POSTQUERY_ATTRIB = 0x0001;
        const _ = !0;
    }
}

/// SMB2 CLOSE Request ([MS-SMB2] 2.2.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseRequest {
    /// Whether the response should carry the file's state.
    pub flags: CloseFlags,
    /// The open to close.
    pub file_id: FileId,
}

impl CloseRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 CLOSE Request");
        reader.structure_size(24)?;
        let flags = CloseFlags::from_bits_retain(reader.u16()?);
        reader.skip(4)?;
        let file_id = FileId::decode(&mut reader)?;
        Ok(Self { flags, file_id })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(24);
        w.u16(self.flags.bits());
        w.zeros(4);
        self.file_id.encode(w);
    }
}

/// SMB2 CLOSE Response ([MS-SMB2] 2.2.16). Without `POSTQUERY_ATTRIB` in `flags` all other fields
/// are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseResponse {
    /// `POSTQUERY_ATTRIB` if the fields below are valid.
    pub flags: CloseFlags,
    /// Time of creation.
    pub creation_time: FileTime,
    /// Time of the last read.
    pub last_access_time: FileTime,
    /// Time of the last data write.
    pub last_write_time: FileTime,
    /// Time of the last change of any kind.
    pub change_time: FileTime,
    /// Bytes allocated on disk.
    pub allocation_size: u64,
    /// Length in bytes.
    pub end_of_file: u64,
    /// Attributes.
    pub file_attributes: FileAttributes,
}

impl CloseResponse {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 CLOSE Response");
        reader.structure_size(60)?;
        let flags = CloseFlags::from_bits_retain(reader.u16()?);
        reader.skip(4)?;
        Ok(Self {
            flags,
            creation_time: FileTime(reader.u64()?),
            last_access_time: FileTime(reader.u64()?),
            last_write_time: FileTime(reader.u64()?),
            change_time: FileTime(reader.u64()?),
            allocation_size: reader.u64()?,
            end_of_file: reader.u64()?,
            file_attributes: FileAttributes::from_bits_retain(reader.u32()?),
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(60);
        w.u16(self.flags.bits());
        w.zeros(4);
        w.u64(self.creation_time.0);
        w.u64(self.last_access_time.0);
        w.u64(self.last_write_time.0);
        w.u64(self.change_time.0);
        w.u64(self.allocation_size);
        w.u64(self.end_of_file);
        w.u32(self.file_attributes.bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack_body, body, message};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(flags: u16, numbers: [u64; 8], attributes: u32) {
            let request = CloseRequest {
                flags: CloseFlags::from_bits_retain(flags),
                file_id: FileId { persistent: numbers[0], volatile: numbers[1] },
            };
            let bytes = message(|w| request.encode(w));
            prop_assert_eq!(bytes.len(), 64 + 24);
            prop_assert_eq!(CloseRequest::decode(&mut body(&bytes)), Ok(request));
            let response = CloseResponse {
                flags: CloseFlags::from_bits_retain(flags),
                creation_time: FileTime(numbers[2]),
                last_access_time: FileTime(numbers[3]),
                last_write_time: FileTime(numbers[4]),
                change_time: FileTime(numbers[5]),
                allocation_size: numbers[6],
                end_of_file: numbers[7],
                file_attributes: FileAttributes::from_bits_retain(attributes),
            };
            let bytes = message(|w| response.encode(w));
            prop_assert_eq!(bytes.len(), 64 + 60);
            prop_assert_eq!(CloseResponse::decode(&mut body(&bytes)), Ok(response));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let bytes = message(|w| CloseResponse::default().encode(w));
        attack_body(&bytes, |reader| CloseResponse::decode(reader).is_ok());
        attack_body(&bytes, |reader| CloseRequest::decode(reader).is_ok());
    }
}
