//! Small files whose content the far end may have already: operations
//! [`COPY_FILES`](super::private::PrivateOperation::COPY_FILES) and
//! [`SAME_FILES`](super::private::PrivateOperation::SAME_FILES) of the private controls (docs/adr/0040).
//!
//! COPY_FILES makes files from others of the share. The reply has a
//! [`PutStatus`](super::private_put::PutStatus) for each, in the same order; a file whose content is not the
//! one that was named is not made ([`PutStep::COMPARE`](super::private_put::PutStep::COMPARE)). A file of
//! the list ([`CopyFile`]):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the content in bytes |
//! | 4 | 2 | length of the path in bytes |
//! | 6 | 2 | flags: [`PutFlags`] |
//! | 8 | 2 | length in bytes of the path of the file to copy |
//! | 10 | 6 | reserved: 0 when sent, not read |
//! | 16 | 40 | times and attributes: FileBasicInformation ([MS-FSCC] 2.4.7) |
//! | 56 | 32 | hash of the content: BLAKE3 |
//! | 88 | | path in the share (UTF-16), path of the file to copy (UTF-16) |
//!
//! SAME_FILES tells whether files have the content that is named. The reply has a
//! [`GotFile`](super::private_get::GotFile) without content for each;
//! [`GotFlags::SAME`](super::private_get::GotFlags::SAME) says that it has. A file of the list
//! ([`SameFile`]):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the content in bytes |
//! | 4 | 2 | length of the path in bytes |
//! | 6 | 2 | flags: [`GetFlags`] |
//! | 8 | 32 | hash of the content: BLAKE3 |
//! | 40 | | path in the share (UTF-16) |

use super::private::RANGE_HASH_LEN;
use super::private_get::GetFlags;
use super::private_put::{PUT_FILES_MAX, PutFlags, path_of};
use crate::info::{FileBasicInformation, Information};
use crate::{DecodeErrorKind, Reader, Result, Text, Writer};

/// Most files of a request.
pub const SAME_FILES_MAX: usize = PUT_FILES_MAX;

/// Longest content of a file in bytes: what this project's client takes for small.
pub const SAME_FILE_MAX: u32 = (4 << 20) + 4096;

/// Most bytes that a server reads for one request, in all files. A guess: a disk reads them in some
/// tenths of a second.
pub const SAME_CONTENT_MAX: u64 = 16 << 20;

const BASIC_LEN: usize = 40;
/// Length in bytes of a file of COPY_FILES without its paths.
const COPY_FIXED_LEN: usize = 16 + BASIC_LEN + RANGE_HASH_LEN;
/// Length in bytes of a file of SAME_FILES without its path.
const SAME_FIXED_LEN: usize = 8 + RANGE_HASH_LEN;

/// A file to make from another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFile {
    /// Path in the share. Its name must be new.
    pub path: Text,
    /// Path in the share of the file to copy.
    pub from: Text,
    /// How it is made.
    pub flags: PutFlags,
    /// Its times and attributes; [`Default`] leaves those that a new file has.
    pub basic: FileBasicInformation,
    /// Length of the content in bytes.
    pub length: u32,
    /// BLAKE3 hash of the content.
    pub hash: [u8; RANGE_HASH_LEN],
}

impl CopyFile {
    /// Returns the length in bytes of a file of the list with such paths.
    pub fn len_of(path: &Text, from: &Text) -> usize {
        COPY_FIXED_LEN + path.wire_len() + from.wire_len()
    }

    /// Reads the body of the request: all files.
    ///
    /// # Errors
    /// Truncation, no file, more than [`SAME_FILES_MAX`], a path of an odd number of bytes, more content
    /// than [`SAME_FILE_MAX`] or [`SAME_CONTENT_MAX`].
    pub fn decode_list(body: &[u8]) -> Result<Vec<Self>> {
        decode_list((body, "COPY_FILES request"), Self::decode, |file| file.length)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let length = reader.u32()?;
        let path = usize::from(reader.u16()?);
        let flags = PutFlags::from_bits_retain(reader.u16()?);
        let from = usize::from(reader.u16()?);
        reader.skip(6)?;
        Ok(Self {
            length,
            flags,
            basic: FileBasicInformation::decode(reader.bytes(BASIC_LEN)?)?,
            hash: hash_of(reader)?,
            path: path_of(reader, path)?,
            from: path_of(reader, from)?,
        })
    }

    /// Appends one file of the request's body. Paths have less than 32,768 units; a longer one does not
    /// decode.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.length);
        w.u16(u16::try_from(self.path.wire_len()).unwrap_or(u16::MAX));
        w.u16(self.flags.bits());
        w.u16(u16::try_from(self.from.wire_len()).unwrap_or(u16::MAX));
        w.zeros(6);
        self.basic.encode(w);
        w.bytes(&self.hash);
        self.path.write(w);
        self.from.write(w);
    }
}

/// A file that may have a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameFile {
    /// Path in the share.
    pub path: Text,
    /// How it is read.
    pub flags: GetFlags,
    /// Length of the content in bytes.
    pub length: u32,
    /// BLAKE3 hash of the content.
    pub hash: [u8; RANGE_HASH_LEN],
}

impl SameFile {
    /// Returns the length in bytes of a file of the list with such a path.
    pub fn len_of(path: &Text) -> usize {
        SAME_FIXED_LEN + path.wire_len()
    }

    /// Reads the body of the request: all files.
    ///
    /// # Errors
    /// As for [`CopyFile::decode_list`].
    pub fn decode_list(body: &[u8]) -> Result<Vec<Self>> {
        decode_list((body, "SAME_FILES request"), Self::decode, |file| file.length)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let length = reader.u32()?;
        let path = usize::from(reader.u16()?);
        Ok(Self {
            length,
            flags: GetFlags::from_bits_retain(reader.u16()?),
            hash: hash_of(reader)?,
            path: path_of(reader, path)?,
        })
    }

    /// Appends one file of the request's body. The path has less than 32,768 units; a longer one does not
    /// decode.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.length);
        w.u16(u16::try_from(self.path.wire_len()).unwrap_or(u16::MAX));
        w.u16(self.flags.bits());
        w.bytes(&self.hash);
        self.path.write(w);
    }
}

fn hash_of(reader: &mut Reader<'_>) -> Result<[u8; RANGE_HASH_LEN]> {
    let mut hash = [0; RANGE_HASH_LEN];
    hash.copy_from_slice(reader.bytes(RANGE_HASH_LEN)?);
    Ok(hash)
}

/// Reads a list of files whose content, of these lengths, is not too much.
fn decode_list<'a, T>(
    (body, what): (&'a [u8], &'static str),
    decode: impl Fn(&mut Reader<'a>) -> Result<T>,
    length: impl Fn(&T) -> u32,
) -> Result<Vec<T>> {
    let mut reader = Reader::new(body, what);
    let mut files = Vec::new();
    let mut content = 0;
    while files.is_empty() || reader.remaining() > 0 {
        let file = decode(&mut reader)?;
        content += u64::from(length(&file));
        if files.len() == SAME_FILES_MAX || length(&file) > SAME_FILE_MAX || content > SAME_CONTENT_MAX {
            return Err(reader.error(DecodeErrorKind::Bounds));
        }
        files.push(file);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileTime;
    use crate::hostile::{attack, structure};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn copy(path: Vec<u16>, from: Vec<u16>, (flags, time, length): (u16, u64, u32)) -> CopyFile {
        CopyFile {
            path: Text::from_units(path),
            from: Text::from_units(from),
            flags: PutFlags::from_bits_retain(flags),
            basic: FileBasicInformation {
                last_write_time: FileTime(time),
                ..FileBasicInformation::default()
            },
            length,
            hash: [length as u8; 32],
        }
    }

    fn same(path: Vec<u16>, flags: u16, length: u32) -> SameFile {
        SameFile {
            path: Text::from_units(path),
            flags: GetFlags::from_bits_retain(flags),
            length,
            hash: [length as u8; 32],
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            files in vec((vec(any::<u16>(), 0..20), vec(any::<u16>(), 0..20), any::<u16>(), any::<u64>(), 0..1_000_000_u32), 1..10),
        ) {
            let copies: Vec<_> = files.iter().cloned().map(|(path, from, flags, time, length)| copy(path, from, (flags, time, length))).collect();
            let bytes = structure(|w| copies.iter().for_each(|file| file.encode(w)));
            let length: usize = copies.iter().map(|file| CopyFile::len_of(&file.path, &file.from)).sum();
            prop_assert_eq!(bytes.len(), length);
            prop_assert_eq!(CopyFile::decode_list(&bytes), Ok(copies));
            let sames: Vec<_> = files.into_iter().map(|(path, _, flags, _, length)| same(path, flags, length)).collect();
            let bytes = structure(|w| sames.iter().for_each(|file| file.encode(w)));
            let length: usize = sames.iter().map(|file| SameFile::len_of(&file.path)).sum();
            prop_assert_eq!(bytes.len(), length);
            prop_assert_eq!(SameFile::decode_list(&bytes), Ok(sames));
        }
    }

    #[test]
    fn too_many_files_or_too_much_content_are_malformed() {
        let one = |length| structure(|w| same(vec![65], 0, length).encode(w));
        assert!(SameFile::decode_list(&[]).is_err());
        assert!(SameFile::decode_list(&one(1).repeat(SAME_FILES_MAX)).is_ok());
        assert!(SameFile::decode_list(&one(1).repeat(SAME_FILES_MAX + 1)).is_err());
        assert!(SameFile::decode_list(&one(SAME_FILE_MAX)).is_ok());
        assert!(SameFile::decode_list(&one(SAME_FILE_MAX + 1)).is_err());
        assert!(SameFile::decode_list(&one(1 << 20).repeat(16)).is_ok());
        assert!(SameFile::decode_list(&one(1 << 20).repeat(17)).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let bytes = structure(|w| {
            copy(vec![65, 66], vec![67], (1, 7, 5)).encode(w);
            copy(vec![67], vec![], (0, 9, 6)).encode(w);
        });
        attack(&bytes, 0, |bytes| {
            (
                CopyFile::decode_list(bytes).is_ok(),
                SameFile::decode_list(bytes).is_ok(),
            )
        });
    }
}
