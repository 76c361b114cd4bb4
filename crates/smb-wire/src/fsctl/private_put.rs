//! Small files made in one request: operation [`PUT_FILES`](super::private::PrivateOperation::PUT_FILES)
//! of the private controls (docs/adr/0039).
//!
//! The input is a list of files, each with its path, times, attributes and content. The reply has an
//! entry for each of them, in the same order ([`PutStatus`]). A file of the list:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the content in bytes |
//! | 4 | 2 | length of the path in bytes |
//! | 6 | 2 | flags: [`PutFlags`] |
//! | 8 | 40 | times and attributes: FileBasicInformation ([MS-FSCC] 2.4.7) |
//! | 48 | | path in the share (UTF-16), content |

use bitflags::bitflags;

use crate::codes::codes;
use crate::info::{FileBasicInformation, Information};
use crate::{DecodeErrorKind, NtStatus, Reader, Result, Text, Writer};

/// Most files of a request. A guess: a line of 75 ms holds a dozen such requests at 20,000 files a
/// second.
pub const PUT_FILES_MAX: usize = 128;

/// Most bytes of a request's input, with the header of the private controls.
pub const PUT_INPUT_MAX: usize = 64 << 10;

/// Length in bytes of a file without its path and content.
const FIXED_LEN: usize = 8 + BASIC_LEN;
/// Length of FileBasicInformation in bytes.
const BASIC_LEN: usize = 40;
/// Length in bytes of an entry of the reply.
pub const PUT_STATUS_LEN: usize = 8;

bitflags! {
    /// How a file is made.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PutFlags: u16 {
        /// The content is durable before the times and attributes are set.
        const FLUSH = 1;
        const _ = !0;
    }
}

/// A file to make. Its name must be new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutFile<'a> {
    /// Path in the share.
    pub path: Text,
    /// How it is made.
    pub flags: PutFlags,
    /// Its times and attributes; [`Default`] leaves those that a new file has.
    pub basic: FileBasicInformation,
    /// Its content.
    pub content: &'a [u8],
}

impl<'a> PutFile<'a> {
    /// Returns the length in bytes of a file with such a path and content.
    pub fn len_of(path: &Text, content: usize) -> usize {
        FIXED_LEN + path.wire_len() + content
    }

    /// Reads the body of the request: all files.
    ///
    /// # Errors
    /// Truncation, no file, more than [`PUT_FILES_MAX`], a path of an odd number of bytes.
    pub fn decode_list(body: &'a [u8]) -> Result<Vec<Self>> {
        let mut reader = Reader::new(body, "PUT_FILES request");
        let mut files = Vec::new();
        while files.is_empty() || reader.remaining() > 0 {
            if files.len() == PUT_FILES_MAX {
                return Err(reader.error(DecodeErrorKind::Bounds));
            }
            files.push(Self::decode(&mut reader)?);
        }
        Ok(files)
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let content = reader.u32()? as usize;
        let path = usize::from(reader.u16()?);
        let flags = PutFlags::from_bits_retain(reader.u16()?);
        let basic = FileBasicInformation::decode(reader.bytes(BASIC_LEN)?)?;
        Ok(Self {
            path: path_of(reader, path)?,
            flags,
            basic,
            content: reader.bytes(content)?,
        })
    }

    /// Appends one file of the request's body. The path has less than 32,768 units, the content less than
    /// [`PUT_INPUT_MAX`] bytes; a longer one does not decode.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(u32::try_from(self.content.len()).unwrap_or(u32::MAX));
        w.u16(u16::try_from(self.path.wire_len()).unwrap_or(u16::MAX));
        w.u16(self.flags.bits());
        self.basic.encode(w);
        self.path.write(w);
        w.bytes(self.content);
    }
}

/// Reads a path of this many bytes.
pub(super) fn path_of(reader: &mut Reader<'_>, length: usize) -> Result<Text> {
    Text::from_le_bytes(reader.bytes(length)?).ok_or_else(|| reader.error(DecodeErrorKind::Value))
}

codes! {
    /// What a server does for a file, in this order.
    pub struct PutStep(u32) {
        /// Makes the file.
        CREATE = 0;
        /// Writes its content.
        WRITE = 1;
        /// Makes that durable.
        FLUSH = 2;
        /// Sets times and attributes.
        ATTRIBUTES = 3;
        /// Closes the file.
        CLOSE = 4;
        /// Before all others, in COPY_FILES: reads the file to copy, and compares it with what was named.
        COMPARE = 5;
    }
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutStatus {
    /// Success, or why the step failed. The steps behind it were not done, and what the steps before it
    /// made is left.
    pub status: NtStatus,
    /// The step that failed; the last one after success.
    pub step: PutStep,
}

impl PutStatus {
    /// Reads the body of the reply.
    ///
    /// # Errors
    /// A cut entry.
    pub fn decode_list(body: &[u8]) -> Result<Vec<Self>> {
        let mut reader = Reader::new(body, "PUT_FILES reply");
        let mut all = Vec::with_capacity(body.len() / PUT_STATUS_LEN);
        while reader.remaining() > 0 {
            all.push(Self {
                status: NtStatus(reader.u32()?),
                step: PutStep(reader.u32()?),
            });
        }
        Ok(all)
    }

    /// Appends one entry of the reply's body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.status.0);
        w.u32(self.step.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use crate::{FileAttributes, FileTime};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn file(path: Vec<u16>, flags: u16, time: u64, content: &[u8]) -> PutFile<'_> {
        PutFile {
            path: Text::from_units(path),
            flags: PutFlags::from_bits_retain(flags),
            basic: FileBasicInformation {
                last_write_time: FileTime(time),
                attributes: FileAttributes::HIDDEN,
                ..FileBasicInformation::default()
            },
            content,
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            files in vec((vec(any::<u16>(), 0..20), any::<u16>(), any::<u64>(), vec(any::<u8>(), 0..50)), 1..10),
            statuses in vec((any::<u32>(), any::<u32>()), 0..10),
        ) {
            let files: Vec<_> = files.iter().map(|(path, flags, time, content)| file(path.clone(), *flags, *time, content)).collect();
            let bytes = structure(|w| files.iter().for_each(|file| file.encode(w)));
            let length: usize = files.iter().map(|file| PutFile::len_of(&file.path, file.content.len())).sum();
            prop_assert_eq!(bytes.len(), length);
            prop_assert_eq!(PutFile::decode_list(&bytes), Ok(files));
            let statuses: Vec<_> = statuses.into_iter().map(|(status, step)| PutStatus { status: NtStatus(status), step: PutStep(step) }).collect();
            let bytes = structure(|w| statuses.iter().for_each(|status| status.encode(w)));
            prop_assert_eq!(bytes.len(), statuses.len() * PUT_STATUS_LEN);
            prop_assert_eq!(PutStatus::decode_list(&bytes), Ok(statuses));
        }
    }

    #[test]
    fn too_many_files_or_none_are_malformed() {
        let one = structure(|w| file(vec![65], 0, 0, b"x").encode(w));
        assert!(PutFile::decode_list(&[]).is_err());
        assert!(PutFile::decode_list(&one.repeat(PUT_FILES_MAX)).is_ok());
        assert!(PutFile::decode_list(&one.repeat(PUT_FILES_MAX + 1)).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let bytes = structure(|w| {
            file(vec![65, 66], 1, 7, b"content").encode(w);
            file(vec![67], 0, 9, b"").encode(w);
        });
        attack(&bytes, 0, |bytes| {
            (
                PutFile::decode_list(bytes).is_ok(),
                PutStatus::decode_list(bytes).is_ok(),
            )
        });
    }
}
