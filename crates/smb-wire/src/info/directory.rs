//! Records of a directory in seven layouts ([MS-FSCC] 2.4).
//!
//! ```text
//! all          NextEntryOffset u32 | FileIndex u32
//! not Names    4 times u64 | EndOfFile u64 | AllocationSize u64 | FileAttributes u32
//! all          FileNameLength u32
//! Full, Both…  EaSize u32
//! IdExtd       ReparsePointTag u32 | FileId 16 bytes
//! Both, IdBoth ShortNameLength u8 | reserved u8 | ShortName 24 bytes
//! IdBoth       reserved u16 | FileId u64           IdFull  reserved u32 | FileId u64
//! all          FileName
//! ```

use super::FileInfoClass;
use super::list::{Entries, ListWriter};
use crate::{DecodeError, DecodeErrorKind, FileAttributes, FileTime, Reader, Result, Text, Writer};

/// Layout of a directory's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryClass {
    /// `FileDirectoryInformation` ([MS-FSCC] 2.4.10).
    Directory,
    /// `FileFullDirectoryInformation` ([MS-FSCC] 2.4.19): adds the size of the extended attributes.
    FullDirectory,
    /// `FileBothDirectoryInformation` ([MS-FSCC] 2.4.8): adds the short name.
    BothDirectory,
    /// `FileIdFullDirectoryInformation` ([MS-FSCC] 2.4.23): full, plus the file id.
    IdFullDirectory,
    /// `FileIdBothDirectoryInformation` ([MS-FSCC] 2.4.22): both, plus the file id.
    IdBothDirectory,
    /// `FileNamesInformation` ([MS-FSCC] 2.4.33): names only.
    Names,
    /// `FileIdExtdDirectoryInformation` ([MS-FSCC] 2.4.21): full, plus the reparse tag and a
    /// 128-bit file id.
    IdExtdDirectory,
}

impl DirectoryClass {
    /// Converts the number on the wire. Returns `None` if it is not a directory class.
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match FileInfoClass::from_u8(number)? {
            FileInfoClass::Directory => Self::Directory,
            FileInfoClass::FullDirectory => Self::FullDirectory,
            FileInfoClass::BothDirectory => Self::BothDirectory,
            FileInfoClass::IdFullDirectory => Self::IdFullDirectory,
            FileInfoClass::IdBothDirectory => Self::IdBothDirectory,
            FileInfoClass::Names => Self::Names,
            FileInfoClass::IdExtdDirectory => Self::IdExtdDirectory,
            _ => return None,
        })
    }

    /// Returns the information class, whose number is on the wire.
    pub fn info_class(self) -> FileInfoClass {
        match self {
            Self::Directory => FileInfoClass::Directory,
            Self::FullDirectory => FileInfoClass::FullDirectory,
            Self::BothDirectory => FileInfoClass::BothDirectory,
            Self::IdFullDirectory => FileInfoClass::IdFullDirectory,
            Self::IdBothDirectory => FileInfoClass::IdBothDirectory,
            Self::Names => FileInfoClass::Names,
            Self::IdExtdDirectory => FileInfoClass::IdExtdDirectory,
        }
    }

    /// Returns the length in bytes of what precedes a record's name.
    pub fn fixed_len(self) -> usize {
        match self {
            Self::Directory => 64,
            Self::FullDirectory => 68,
            Self::BothDirectory => 94,
            Self::IdFullDirectory => 80,
            Self::IdBothDirectory => 104,
            Self::Names => 12,
            Self::IdExtdDirectory => 88,
        }
    }

    fn structure(self) -> &'static str {
        match self {
            Self::Directory => "FileDirectoryInformation",
            Self::FullDirectory => "FileFullDirectoryInformation",
            Self::BothDirectory => "FileBothDirectoryInformation",
            Self::IdFullDirectory => "FileIdFullDirectoryInformation",
            Self::IdBothDirectory => "FileIdBothDirectoryInformation",
            Self::Names => "FileNamesInformation",
            Self::IdExtdDirectory => "FileIdExtdDirectoryInformation",
        }
    }

    fn has_ea_size(self) -> bool {
        !matches!(self, Self::Directory | Self::Names)
    }

    fn has_short_name(self) -> bool {
        matches!(self, Self::BothDirectory | Self::IdBothDirectory)
    }
}

/// Mac metadata in a directory record, so that the Finder need not open the file.
///
/// On connections that negotiated `SUPPORTS_READ_DIR_ATTR` it replaces the extended attributes'
/// size and the short name of `IdBothDirectory`. Documented only in Apple's and Samba's source.
///
/// ```text
/// EaSize        rights u32
/// ShortName     (length and reserved 0) resource fork's length u64 | Finder's information 16 bytes
/// reserved      mode u16
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppleRecord {
    /// All rights of the user.
    pub max_access: u32,
    /// Length of the resource fork in bytes.
    pub resource_fork_len: u64,
    /// Type and creator (of files), flags, extended flags, and the time of addition in seconds
    /// since 2000; big-endian.
    pub finder_info: [u8; 16],
    /// File type and permissions as in `st_mode`.
    pub mode: u16,
}

impl AppleRecord {
    /// Reads the metadata from the fields that hold it.
    fn read(max_access: u32, short_name: &[u8; SHORT_NAME_LEN], mode: u16) -> Self {
        let (fork, finder) = short_name.split_at(8);
        let mut record = Self {
            max_access,
            mode,
            ..Self::default()
        };
        let mut length = [0; 8];
        length.copy_from_slice(fork);
        record.resource_fork_len = u64::from_le_bytes(length);
        record.finder_info.copy_from_slice(finder);
        record
    }
}

/// A file in a directory. Fields that a class does not carry are 0 or empty after decoding, and
/// omitted when encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryRecord {
    /// Position in the directory on file systems that have one; most send 0.
    pub file_index: u32,
    /// Time of creation.
    pub creation_time: FileTime,
    /// Time of the last read or write.
    pub last_access_time: FileTime,
    /// Time of the last change of content.
    pub last_write_time: FileTime,
    /// Time of the last change of content or metadata.
    pub change_time: FileTime,
    /// Length of the content in bytes. It may lag behind while the file is being written.
    pub end_of_file: u64,
    /// Bytes allocated on the volume.
    pub allocation_size: u64,
    /// Attributes.
    pub attributes: FileAttributes,
    /// Bytes of extended attributes, or a reparse tag: see [`DirectoryRecord::reparse_tag`].
    pub ea_size: u32,
    /// Reparse tag of `IdExtdDirectory`; the other classes do not have this field.
    pub extd_reparse_tag: u32,
    /// File id, 64 bits in all classes except `IdExtdDirectory`; 0 if the file has none.
    pub file_id: u128,
    /// 8.3 name of at most 12 units; empty if the file has none.
    pub short_name: Text,
    /// Mac metadata; in `IdBothDirectory` it replaces `ea_size` and `short_name`.
    pub apple: Option<AppleRecord>,
    /// Name. Directories also list `.` and `..`.
    pub name: Text,
}

impl DirectoryRecord {
    /// Returns the reparse tag, if the file is a reparse point. [MS-FSCC] 2.4.8 and others:
    /// `EaSize` of a reparse point is its tag.
    pub fn reparse_tag(&self) -> Option<u32> {
        if !self.attributes.contains(FileAttributes::REPARSE_POINT) {
            return None;
        }
        Some(match self.extd_reparse_tag {
            0 => self.ea_size,
            tag => tag,
        })
    }

    /// Reads a record. The reader stands after `NextEntryOffset`.
    fn read(
        reader: &mut Reader<'_>,
        class: DirectoryClass,
        apple: bool,
    ) -> std::result::Result<Self, ListError> {
        let mut record = Self {
            file_index: reader.u32()?,
            ..Self::default()
        };
        if class != DirectoryClass::Names {
            record.creation_time = FileTime::read(reader)?;
            record.last_access_time = FileTime::read(reader)?;
            record.last_write_time = FileTime::read(reader)?;
            record.change_time = FileTime::read(reader)?;
            record.end_of_file = reader.u64()?;
            record.allocation_size = reader.u64()?;
            record.attributes = FileAttributes::from_bits_retain(reader.u32()?);
        }
        let name_len = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let mut error = None;
        if class.has_ea_size() {
            record.ea_size = reader.u32()?;
        }
        let apple = apple && class == DirectoryClass::IdBothDirectory;
        let mut instead = [0; SHORT_NAME_LEN];
        if apple {
            reader.skip(2)?;
            instead = reader.array()?;
        } else if class.has_short_name() {
            match read_short_name(reader)? {
                Ok(name) => record.short_name = name,
                Err(malformed) => error = Some(malformed),
            }
        }
        match class {
            DirectoryClass::IdExtdDirectory => {
                record.extd_reparse_tag = reader.u32()?;
                record.file_id = u128::from_le_bytes(reader.array()?);
            }
            DirectoryClass::IdBothDirectory => {
                let reserved = reader.u16()?;
                if apple {
                    let max_access = std::mem::take(&mut record.ea_size);
                    record.apple = Some(AppleRecord::read(max_access, &instead, reserved));
                }
                record.file_id = u128::from(reader.u64()?);
            }
            DirectoryClass::IdFullDirectory => {
                reader.skip(4)?;
                record.file_id = u128::from(reader.u64()?);
            }
            _ => {}
        }
        let (rest, odd) = (*reader, reader.error(DecodeErrorKind::Value));
        let name = reader.bytes(name_len);
        match name.and_then(|bytes| Text::from_le_bytes(bytes).ok_or(odd)) {
            Ok(name) => record.name = name,
            Err(malformed) => error = Some(malformed),
        }
        match error {
            None => Ok(record),
            Some(malformed) => Err(ListError::Record(BadRecord::new(rest, name_len, malformed))),
        }
    }

    /// Writes what follows `NextEntryOffset`.
    fn write(&self, writer: &mut Writer<'_>, class: DirectoryClass) {
        writer.u32(self.file_index);
        if class != DirectoryClass::Names {
            self.creation_time.write(writer);
            self.last_access_time.write(writer);
            self.last_write_time.write(writer);
            self.change_time.write(writer);
            writer.u64(self.end_of_file);
            writer.u64(self.allocation_size);
            writer.u32(self.attributes.bits());
        }
        writer.u32(u32::try_from(self.name.wire_len()).expect("names are short"));
        let apple = self.apple.filter(|_| class == DirectoryClass::IdBothDirectory);
        if class.has_ea_size() {
            writer.u32(apple.map_or(self.ea_size, |apple| apple.max_access));
        }
        if let Some(apple) = apple {
            writer.u16(0);
            writer.u64(apple.resource_fork_len);
            writer.bytes(&apple.finder_info);
        } else if class.has_short_name() {
            let length = self.short_name.wire_len();
            assert!(length <= SHORT_NAME_LEN, "a short name has at most 12 units");
            writer.u8(u8::try_from(length).unwrap_or(0));
            writer.u8(0);
            self.short_name.write(writer);
            writer.zeros(SHORT_NAME_LEN - length);
        }
        match class {
            DirectoryClass::IdExtdDirectory => {
                writer.u32(self.extd_reparse_tag);
                writer.bytes(&self.file_id.to_le_bytes());
            }
            DirectoryClass::IdBothDirectory => {
                writer.u16(apple.map_or(0, |apple| apple.mode));
                writer.u64(self.file_id_64());
            }
            DirectoryClass::IdFullDirectory => {
                writer.u32(0);
                writer.u64(self.file_id_64());
            }
            _ => {}
        }
        self.name.write(writer);
    }

    /// Returns the file id, or -1 if it does not fit 64 bits ([MS-FSCC] 2.1.9).
    fn file_id_64(&self) -> u64 {
        u64::try_from(self.file_id).unwrap_or(u64::MAX)
    }
}

/// Length of the short name's field in bytes.
const SHORT_NAME_LEN: usize = 24;

/// Reads the short name. The inner result is the field's content; the outer one fails if the field
/// is missing.
fn read_short_name(reader: &mut Reader<'_>) -> Result<Result<Text>> {
    let error = reader.error(DecodeErrorKind::Value);
    let length = usize::from(reader.u8()?);
    reader.skip(1)?;
    let field = reader.bytes(SHORT_NAME_LEN)?;
    Ok(field.get(..length).and_then(Text::from_le_bytes).ok_or(error))
}

/// Longest name that [`BadRecord`] shows, in UTF-16 units. No file system has longer names.
const SHOWN_UNITS_MAX: usize = 255;

/// A malformed record at a valid place in the list: its name or short name cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The part of the name that can be shown. A file of this name may not exist.
    pub shown: Text,
    /// The error.
    pub malformed: DecodeError,
}

impl BadRecord {
    /// Creates the value from a reader at the name. It shows the whole units inside the record.
    fn new(mut name: Reader<'_>, name_len: usize, malformed: DecodeError) -> Self {
        let bytes = name.rest();
        let length = bytes.len().min(name_len).min(2 * SHOWN_UNITS_MAX) & !1;
        let shown = Text::from_le_bytes(&bytes[..length]).unwrap_or_default();
        Self { shown, malformed }
    }
}

/// Errors in a list of records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// One record is malformed. The records after it can be read.
    #[error("{}", .0.malformed)]
    Record(BadRecord),
    /// The list is malformed: a record begins or ends at an invalid place. Nothing after it can be
    /// read.
    #[error("{0}")]
    List(#[from] DecodeError),
}

/// Iterator over the records in a QUERY_DIRECTORY response's buffer, in the server's order. Ends
/// after a [`ListError::List`].
#[derive(Clone, Debug)]
pub struct DirectoryRecords<'a> {
    entries: Entries<'a>,
    class: DirectoryClass,
    apple: bool,
}

impl<'a> DirectoryRecords<'a> {
    /// Iterates over records of a class.
    pub fn new(buffer: &'a [u8], class: DirectoryClass) -> Self {
        Self {
            entries: Entries::new(buffer, class.fixed_len(), class.structure()),
            class,
            apple: false,
        }
    }

    /// Iterates over records with [`AppleRecord`]s.
    pub fn apple(buffer: &'a [u8]) -> Self {
        Self {
            apple: true,
            ..Self::new(buffer, DirectoryClass::IdBothDirectory)
        }
    }
}

impl Iterator for DirectoryRecords<'_> {
    type Item = std::result::Result<DirectoryRecord, ListError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self
            .entries
            .next()?
            .map_err(ListError::List)
            .and_then(|mut reader| DirectoryRecord::read(&mut reader, self.class, self.apple));
        if matches!(record, Err(ListError::List(_))) {
            self.entries.stop();
        }
        Some(record)
    }
}

/// Fills the buffer of a QUERY_DIRECTORY response up to the client's `OutputBufferLength`.
#[derive(Debug)]
pub struct DirectoryWriter {
    class: DirectoryClass,
    list: ListWriter,
    length_max: usize,
}

impl DirectoryWriter {
    /// Begins a list of at most `length_max` bytes at the writer's position.
    pub fn new(writer: &Writer<'_>, class: DirectoryClass, length_max: usize) -> Self {
        Self {
            class,
            list: ListWriter::new(writer, 8),
            length_max,
        }
    }

    /// Appends a record. Returns `false` and writes nothing if it does not fit. If the first record
    /// does not fit, the response is STATUS_BUFFER_OVERFLOW or STATUS_INFO_LENGTH_MISMATCH
    /// ([MS-SMB2] 3.3.5.18).
    #[must_use]
    pub fn push(&mut self, writer: &mut Writer<'_>, record: &DirectoryRecord) -> bool {
        let end = self.list.next_at(writer) + self.class.fixed_len() + record.name.wire_len();
        if end > self.length_max {
            return false;
        }
        self.list.begin(writer);
        record.write(writer, self.class);
        true
    }
}
