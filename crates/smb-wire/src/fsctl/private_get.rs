//! Small files read with one request: operation [`GET_FILES`](super::private::PrivateOperation::GET_FILES)
//! of the private controls (docs/adr/0039).
//!
//! The input is a list of files. The reply has an entry for each of them, in the same order
//! ([`GotFile`]). A file of the list:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | bytes wanted, from the first one on |
//! | 4 | 2 | length of the path in bytes |
//! | 6 | 2 | flags: [`GetFlags`] |
//! | 8 | | path in the share (UTF-16) |
//!
//! An entry of the reply:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | status |
//! | 4 | 4 | length of the content in bytes |
//! | 8 | 56 | times, sizes, attributes: FileNetworkOpenInformation ([MS-FSCC] 2.4.34) |
//! | 64 | 4 | flags: [`GotFlags`] |
//! | 68 | | content |

use bitflags::bitflags;

use super::private::PRIVATE_HEADER_LEN;
use super::private_put::{PUT_FILES_MAX, path_of};
use crate::info::{FileNetworkOpenInformation, Information};
use crate::{DecodeErrorKind, NtStatus, Reader, Result, Text, Writer};

/// Most files of a request: as many as are made by one.
pub const GET_FILES_MAX: usize = PUT_FILES_MAX;

/// Most bytes of a reply, with the header of the private controls.
pub const GET_OUTPUT_MAX: usize = 64 << 10;

/// Length in bytes of a file of the list without its path.
const REQUEST_FIXED_LEN: usize = 8;
/// Length of FileNetworkOpenInformation in bytes.
const INFO_LEN: usize = 56;
/// Length in bytes of an entry of the reply without the content.
pub const GOT_FIXED_LEN: usize = 8 + INFO_LEN + 4;

bitflags! {
    /// How a file is read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GetFlags: u16 {
        /// Only if it has neither named streams nor extended attributes. Otherwise the status is
        /// STATUS_NOT_SUPPORTED.
        const PLAIN_ONLY = 1;
        const _ = !0;
    }

    /// What is known of a file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GotFlags: u32 {
        /// It changed while it was read.
        const CHANGED = 1;
        /// In SAME_FILES: it has the content that was named.
        const SAME = 2;
        const _ = !0;
    }
}

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetFile {
    /// Path in the share.
    pub path: Text,
    /// How it is read.
    pub flags: GetFlags,
    /// Bytes wanted.
    pub length: u32,
}

impl GetFile {
    /// Returns the length in bytes of a file of the list with such a path.
    pub fn len_of(path: &Text) -> usize {
        REQUEST_FIXED_LEN + path.wire_len()
    }

    /// Returns the length in bytes of a reply that has all content wanted, with its header.
    pub fn reply_len<'a>(files: impl IntoIterator<Item = &'a Self>) -> u64 {
        let entries = files
            .into_iter()
            .map(|file| GOT_FIXED_LEN as u64 + u64::from(file.length));
        PRIVATE_HEADER_LEN as u64 + entries.sum::<u64>()
    }

    /// Reads the body of the request: all files.
    ///
    /// # Errors
    /// Truncation, no file, more than [`GET_FILES_MAX`], a path of an odd number of bytes.
    pub fn decode_list(body: &[u8]) -> Result<Vec<Self>> {
        let mut reader = Reader::new(body, "GET_FILES request");
        let mut files = Vec::new();
        while files.is_empty() || reader.remaining() > 0 {
            if files.len() == GET_FILES_MAX {
                return Err(reader.error(DecodeErrorKind::Bounds));
            }
            let length = reader.u32()?;
            let path = usize::from(reader.u16()?);
            let flags = GetFlags::from_bits_retain(reader.u16()?);
            files.push(Self {
                path: path_of(&mut reader, path)?,
                flags,
                length,
            });
        }
        Ok(files)
    }

    /// Appends one file of the request's body. The path has less than 32,768 units; a longer one does not
    /// decode.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.length);
        w.u16(u16::try_from(self.path.wire_len()).unwrap_or(u16::MAX));
        w.u16(self.flags.bits());
        self.path.write(w);
    }
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GotFile<'a> {
    /// Success, or why it was not read. The rest is empty then.
    pub status: NtStatus,
    /// Times, sizes and attributes when it was opened.
    pub info: FileNetworkOpenInformation,
    /// What is known besides.
    pub flags: GotFlags,
    /// As much of the content as was wanted, or less: the file may be shorter.
    pub content: &'a [u8],
}

impl<'a> GotFile<'a> {
    /// Reads the body of the reply.
    ///
    /// # Errors
    /// A cut entry.
    pub fn decode_list(body: &'a [u8]) -> Result<Vec<Self>> {
        let mut reader = Reader::new(body, "GET_FILES reply");
        let mut all = Vec::new();
        while reader.remaining() > 0 {
            let status = NtStatus(reader.u32()?);
            let length = reader.u32()? as usize;
            all.push(Self {
                status,
                info: FileNetworkOpenInformation::decode(reader.bytes(INFO_LEN)?)?,
                flags: GotFlags::from_bits_retain(reader.u32()?),
                content: reader.bytes(length)?,
            });
        }
        Ok(all)
    }

    /// Appends one entry of the reply's body. The content has less than 4 GiB; longer content does not
    /// decode.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.status.0);
        w.u32(u32::try_from(self.content.len()).unwrap_or(u32::MAX));
        self.info.encode(w);
        w.u32(self.flags.bits());
        w.bytes(self.content);
    }

    /// Returns the entry of a file that was not read.
    pub fn failed(status: NtStatus) -> Self {
        Self {
            status,
            info: FileNetworkOpenInformation::default(),
            flags: GotFlags::default(),
            content: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileTime;
    use crate::hostile::{attack, structure};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn file(path: Vec<u16>, flags: u16, length: u32) -> GetFile {
        GetFile {
            path: Text::from_units(path),
            flags: GetFlags::from_bits_retain(flags),
            length,
        }
    }

    fn got(status: u32, time: u64, flags: u32, content: &[u8]) -> GotFile<'_> {
        GotFile {
            info: FileNetworkOpenInformation {
                last_write_time: FileTime(time),
                end_of_file: time / 2,
                ..FileNetworkOpenInformation::default()
            },
            flags: GotFlags::from_bits_retain(flags),
            content,
            ..GotFile::failed(NtStatus(status))
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            files in vec((vec(any::<u16>(), 0..20), any::<u16>(), 0..50_u32), 1..10),
            contents in vec((any::<u32>(), any::<u64>(), any::<u32>(), vec(any::<u8>(), 0..50)), 0..10),
        ) {
            let files: Vec<_> = files.into_iter().map(|(path, flags, length)| file(path, flags, length)).collect();
            let bytes = structure(|w| files.iter().for_each(|file| file.encode(w)));
            prop_assert_eq!(bytes.len(), files.iter().map(|file| GetFile::len_of(&file.path)).sum::<usize>());
            prop_assert_eq!(GetFile::decode_list(&bytes), Ok(files));
            let all: Vec<_> = contents.iter().map(|(status, time, flags, content)| got(*status, *time, *flags, content)).collect();
            let bytes = structure(|w| all.iter().for_each(|one| one.encode(w)));
            let wanted: Vec<_> = contents.iter().map(|(.., content)| file(vec![65], 0, content.len() as u32)).collect();
            prop_assert_eq!((PRIVATE_HEADER_LEN + bytes.len()) as u64, GetFile::reply_len(&wanted));
            prop_assert_eq!(GotFile::decode_list(&bytes), Ok(all));
        }
    }

    #[test]
    fn too_many_files_or_none_are_malformed() {
        let one = structure(|w| file(vec![65], 0, 7).encode(w));
        assert!(GetFile::decode_list(&[]).is_err());
        assert!(GetFile::decode_list(&one.repeat(GET_FILES_MAX)).is_ok());
        assert!(GetFile::decode_list(&one.repeat(GET_FILES_MAX + 1)).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let request = structure(|w| {
            file(vec![65, 66], 1, 7).encode(w);
            file(vec![67], 0, u32::MAX).encode(w);
        });
        let reply = structure(|w| {
            got(0, 3, 1, b"content").encode(w);
            got(7, 0, 0, b"").encode(w);
        });
        for bytes in [request, reply] {
            attack(&bytes, 0, |bytes| {
                (
                    GetFile::decode_list(bytes).is_ok(),
                    GotFile::decode_list(bytes).is_ok(),
                )
            });
        }
    }
}
