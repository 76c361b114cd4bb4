//! Levels of TRANS2_QUERY_PATH_INFORMATION and TRANS2_QUERY_FILE_INFORMATION that [MS-FSCC] has not
//! ([MS-CIFS] 2.2.8.3). All others are structures of [MS-FSCC] (`ropeway_smb_wire::info`).

use ropeway_smb_wire::{FileTime, Reader, Result, Writer};

use crate::dos_time::DosTime;
use crate::strings::Str;
use crate::words::{Reserved, words};

words! {
    /// SMB_INFO_STANDARD; SMB_INFO_QUERY_EA_SIZE has the size of the extended attributes after it.
    pub struct InfoStandard {
        /// Time of creation.
        creation: DosTime,
        /// Time of the last access.
        last_access: DosTime,
        /// Time of the last write.
        last_write: DosTime,
        /// Length of the content; of longer files the lower 32 bits.
        file_size: u32,
        /// Allocated bytes.
        allocation_size: u32,
        /// Attributes.
        file_attributes: u16,
    }
}

words! {
    /// What SMB_QUERY_FILE_ALL_INFO has before the name.
    pub struct AllWords {
        /// Time of creation.
        creation_time: FileTime,
        /// Time of the last access.
        last_access_time: FileTime,
        /// Time of the last change of the content.
        last_write_time: FileTime,
        /// Time of the last change of content or attributes.
        change_time: FileTime,
        /// Attributes.
        file_attributes: u32,
        /// Reserved.
        reserved1: Reserved<4>,
        /// Allocated bytes.
        allocation_size: u64,
        /// Length of the content in bytes.
        end_of_file: u64,
        /// Number of names.
        number_of_links: u32,
        /// Whether the file will be deleted.
        delete_pending: bool,
        /// Whether it is a folder.
        is_directory: bool,
        /// Reserved.
        reserved2: Reserved<2>,
        /// Bytes of the extended attributes.
        ea_size: u32,
        /// Bytes of the name.
        name_length: u32,
    }
}

/// SMB_QUERY_FILE_ALL_INFO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllInfo {
    /// Everything but the name.
    pub words: AllWords,
    /// Path from the share's top.
    pub name: Str,
}

impl AllInfo {
    /// Decodes the data. A name that is cut off or left out is empty: clients do not need it.
    ///
    /// # Errors
    /// Truncation before the name.
    pub fn decode(data: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB_QUERY_FILE_ALL_INFO");
        let words = AllWords::read(&mut reader)?;
        let length = usize::try_from(words.name_length).unwrap_or(usize::MAX);
        let name = match length <= reader.remaining() {
            true => Str::read(&mut reader, is_unicode, length)?,
            false => Str::empty(is_unicode),
        };
        Ok(Self {
            words: AllWords {
                name_length: name.as_bytes().len() as u32,
                ..words
            },
            name,
        })
    }

    /// Returns the data.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        let words = AllWords {
            name_length: self.name.as_bytes().len() as u32,
            ..self.words
        };
        words.write(&mut w);
        w.bytes(self.name.as_bytes());
        out
    }
}

/// Returns data with at least `length` bytes, padded with zeros: servers leave out reserved fields
/// at the end of a structure.
pub fn padded(data: &[u8], length: usize) -> Vec<u8> {
    let mut padded = data.to_vec();
    padded.resize(padded.len().max(length), 0);
    padded
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    #[test]
    fn all_info_round_trips() {
        let info = AllInfo {
            words: AllWords {
                creation_time: FileTime(5),
                end_of_file: 6 << 32,
                is_directory: true,
                name_length: 6,
                ..AllWords::default()
            },
            name: Str::unicode(&Text::from("\\ab")),
        };
        let bytes = info.to_bytes();
        assert_eq!(bytes.len(), 72 + 6);
        assert_eq!(AllInfo::decode(&bytes, true), Ok(info));
        assert!(AllInfo::decode(&bytes[..72], true).unwrap().name.is_empty());
        hostile::attack(&bytes, 0, |bytes| AllInfo::decode(bytes, true).is_ok());
        let standard = hostile::structure(|w| InfoStandard::default().write(w));
        assert_eq!(standard.len(), 22);
        assert_eq!(padded(b"ab", 4), b"ab\0\0");
        assert_eq!(padded(b"abcdef", 4), b"abcdef");
    }
}
