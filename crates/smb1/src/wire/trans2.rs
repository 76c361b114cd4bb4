//! Subcommands of TRANSACTION2 ([MS-CIFS] 2.2.6) and their parameters, except those of listings.

use ropeway_smb_wire::{Reader, Result, Writer};

use crate::strings::Str;
use crate::words::{Reserved, words};

/// `Setup[0]` of TRANSACTION2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subcommand(pub u16);

impl Subcommand {
    /// TRANS2_OPEN2.
    pub const OPEN2: Self = Self(0x00);
    /// TRANS2_FIND_FIRST2.
    pub const FIND_FIRST2: Self = Self(0x01);
    /// TRANS2_FIND_NEXT2.
    pub const FIND_NEXT2: Self = Self(0x02);
    /// TRANS2_QUERY_FS_INFORMATION.
    pub const QUERY_FS_INFORMATION: Self = Self(0x03);
    /// TRANS2_SET_FS_INFORMATION.
    pub const SET_FS_INFORMATION: Self = Self(0x04);
    /// TRANS2_QUERY_PATH_INFORMATION.
    pub const QUERY_PATH_INFORMATION: Self = Self(0x05);
    /// TRANS2_SET_PATH_INFORMATION.
    pub const SET_PATH_INFORMATION: Self = Self(0x06);
    /// TRANS2_QUERY_FILE_INFORMATION.
    pub const QUERY_FILE_INFORMATION: Self = Self(0x07);
    /// TRANS2_SET_FILE_INFORMATION.
    pub const SET_FILE_INFORMATION: Self = Self(0x08);
    /// TRANS2_CREATE_DIRECTORY.
    pub const CREATE_DIRECTORY: Self = Self(0x0D);
    /// TRANS2_GET_DFS_REFERRAL.
    pub const GET_DFS_REFERRAL: Self = Self(0x10);
}

/// An information level ([MS-CIFS] 2.2.2.3). Levels from [`Level::PASSTHROUGH`] on are those of
/// [MS-FSCC] plus that number ([MS-SMB] 2.2.2.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level(pub u16);

impl Level {
    /// What is added to an information class of [MS-FSCC].
    pub const PASSTHROUGH: u16 = 1000;

    /// SMB_INFO_STANDARD, SMB_INFO_ALLOCATION of volumes.
    pub const STANDARD: Self = Self(0x0001);
    /// SMB_INFO_QUERY_EA_SIZE, SMB_INFO_SET_EAS, SMB_INFO_VOLUME of volumes.
    pub const EA_SIZE: Self = Self(0x0002);
    /// SMB_INFO_QUERY_EAS_FROM_LIST.
    pub const EAS_FROM_LIST: Self = Self(0x0003);
    /// SMB_INFO_QUERY_ALL_EAS.
    pub const ALL_EAS: Self = Self(0x0004);
    /// SMB_INFO_IS_NAME_VALID.
    pub const IS_NAME_VALID: Self = Self(0x0006);
    /// SMB_QUERY_FILE_BASIC_INFO, SMB_SET_FILE_BASIC_INFO.
    pub const BASIC: Self = Self(0x0101);
    /// SMB_QUERY_FILE_STANDARD_INFO, and SMB_SET_FILE_DISPOSITION_INFO when it is set.
    pub const FILE_STANDARD: Self = Self(0x0102);
    /// SMB_QUERY_FILE_EA_INFO, and SMB_SET_FILE_ALLOCATION_INFO when it is set.
    pub const EA: Self = Self(0x0103);
    /// SMB_QUERY_FILE_NAME_INFO, and SMB_SET_FILE_END_OF_FILE_INFO when it is set.
    pub const NAME: Self = Self(0x0104);
    /// SMB_QUERY_FILE_ALL_INFO.
    pub const ALL: Self = Self(0x0107);
    /// SMB_QUERY_FILE_ALT_NAME_INFO.
    pub const ALT_NAME: Self = Self(0x0108);
    /// SMB_QUERY_FILE_STREAM_INFO.
    pub const STREAM: Self = Self(0x0109);
    /// SMB_QUERY_FILE_COMPRESSION_INFO.
    pub const COMPRESSION: Self = Self(0x010B);

    /// SMB_INFO_ALLOCATION.
    pub const FS_ALLOCATION: Self = Self(0x0001);
    /// SMB_INFO_VOLUME.
    pub const FS_VOLUME_OLD: Self = Self(0x0002);
    /// SMB_QUERY_FS_VOLUME_INFO.
    pub const FS_VOLUME: Self = Self(0x0102);
    /// SMB_QUERY_FS_SIZE_INFO.
    pub const FS_SIZE: Self = Self(0x0103);
    /// SMB_QUERY_FS_DEVICE_INFO.
    pub const FS_DEVICE: Self = Self(0x0104);
    /// SMB_QUERY_FS_ATTRIBUTE_INFO.
    pub const FS_ATTRIBUTE: Self = Self(0x0105);

    /// SMB_SET_FILE_DISPOSITION_INFO.
    pub const SET_DISPOSITION: Self = Self(0x0102);
    /// SMB_SET_FILE_ALLOCATION_INFO.
    pub const SET_ALLOCATION: Self = Self(0x0103);
    /// SMB_SET_FILE_END_OF_FILE_INFO.
    pub const SET_END_OF_FILE: Self = Self(0x0104);

    /// Returns the level of an information class of [MS-FSCC].
    pub fn passthrough(class: u8) -> Self {
        Self(Self::PASSTHROUGH + u16::from(class))
    }

    /// Returns the information class of a level of [MS-FSCC].
    pub fn class(self) -> Option<u8> {
        u8::try_from(self.0.checked_sub(Self::PASSTHROUGH)?).ok()
    }
}

impl crate::words::Field for Level {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u16().map(Self)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.0);
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::STANDARD
    }
}

words! {
    /// Parameters of TRANS2_QUERY_FILE_INFORMATION.
    pub struct QueryFile {
        /// The open file.
        fid: u16,
        /// What to return.
        level: Level,
    }
}

words! {
    /// Parameters of TRANS2_SET_FILE_INFORMATION.
    pub struct SetFile {
        /// The open file.
        fid: u16,
        /// What to set.
        level: Level,
        /// Reserved.
        reserved: Reserved<2>,
    }
}

/// Parameters of TRANS2_QUERY_PATH_INFORMATION and TRANS2_SET_PATH_INFORMATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLevel {
    /// What to return or to set.
    pub level: Level,
    /// The path in the share.
    pub path: Str,
}

impl PathLevel {
    /// Decodes the parameters.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(parameters, "Trans2_Parameters");
        let level = Level(reader.u16()?);
        reader.skip(4)?;
        Ok(Self {
            level,
            path: Str::read_z(&mut reader, is_unicode)?,
        })
    }

    /// Returns the parameters.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.u16(self.level.0);
        w.u32(0);
        self.path.write_z(&mut w);
        out
    }
}

/// Parameters of TRANS2_CREATE_DIRECTORY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateDirectory {
    /// The path in the share.
    pub path: Str,
}

impl CreateDirectory {
    /// Decodes the parameters.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(parameters, "Trans2_Parameters");
        reader.skip(4)?;
        Ok(Self {
            path: Str::read_z(&mut reader, is_unicode)?,
        })
    }
}

/// Returns the bytes of fixed parameters.
pub fn to_bytes(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut Writer::new(&mut out));
    out
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    #[test]
    fn parameters_round_trip() {
        for is_unicode in [true, false] {
            let request = PathLevel {
                level: Level::passthrough(6),
                path: match is_unicode {
                    true => Str::unicode(&Text::from("\\ä")),
                    false => Str::oem(b"\\a"),
                },
            };
            let bytes = request.to_bytes();
            assert_eq!(PathLevel::decode(&bytes, is_unicode), Ok(request));
            hostile::attack(&bytes, 0, |bytes| {
                _ = CreateDirectory::decode(bytes, is_unicode);
                PathLevel::decode(bytes, is_unicode).is_ok()
            });
        }
        assert_eq!(Level(1006).class(), Some(6));
        assert_eq!(Level::ALL.class(), None);
    }
}
