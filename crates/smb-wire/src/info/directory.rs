//! Records of a directory: seven layouts of one thing ([MS-FSCC] 2.4).
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
use super::list::{Chain, Entries};
use crate::{Fault, FileAttributes, FileTime, Malformed, Reader, Result, Text, Writer};

/// The layout of a directory's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryClass {
    /// `FileDirectoryInformation` ([MS-FSCC] 2.4.10).
    Directory,
    /// `FileFullDirectoryInformation` ([MS-FSCC] 2.4.19): and the size of extended attributes.
    FullDirectory,
    /// `FileBothDirectoryInformation` ([MS-FSCC] 2.4.8): and the short name.
    BothDirectory,
    /// `FileIdFullDirectoryInformation` ([MS-FSCC] 2.4.23): full, and the file's number.
    IdFullDirectory,
    /// `FileIdBothDirectoryInformation` ([MS-FSCC] 2.4.22): both, and the file's number.
    IdBothDirectory,
    /// `FileNamesInformation` ([MS-FSCC] 2.4.33): names alone.
    Names,
    /// `FileIdExtdDirectoryInformation` ([MS-FSCC] 2.4.21): full, and the reparse tag and a number of 128 bits.
    IdExtdDirectory,
}

impl DirectoryClass {
    /// From the number on the wire; `None` if it is none of these.
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

    /// As a class of information, whose number is on the wire.
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

    /// Bytes of a record before its name.
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

/// What a Mac's listings tell of a file, so that the Finder need not open it: in place of the extended attributes' size and
/// the short name of `IdBothDirectory`, on connections that agreed on `SUPPORTS_READ_DIR_ATTR`. Documented only in source,
/// Apple's and Samba's.
///
/// ```text
/// EaSize        rights u32
/// ShortName     (length and reserved 0) resource fork's length u64 | Finder's information 16 bytes
/// reserved      mode u16
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppleRecord {
    /// All rights that the user has.
    pub max_access: u32,
    /// Bytes of the resource fork.
    pub resource_fork_len: u64,
    /// Type and creator (of files), flags, extended flags, and when it was added, in seconds since 2000, big endian.
    pub finder_info: [u8; 16],
    /// Kind and permissions as `st_mode` has them.
    pub mode: u16,
}

impl AppleRecord {
    /// From the fields that it lies in.
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

/// A file in a directory. What a class does not carry is 0 or empty when decoded and left out when encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryRecord {
    /// Place in the directory, if the file system has such; most say 0.
    pub file_index: u32,
    /// When the file was made.
    pub creation_time: FileTime,
    /// When it was last read or written.
    pub last_access_time: FileTime,
    /// When its content last changed.
    pub last_write_time: FileTime,
    /// When content or metadata last changed.
    pub change_time: FileTime,
    /// Bytes of content. May lag behind the file's own word while it is being written.
    pub end_of_file: u64,
    /// Bytes allocated on the volume.
    pub allocation_size: u64,
    /// Attributes.
    pub attributes: FileAttributes,
    /// Bytes of extended attributes; but see [`DirectoryRecord::reparse_tag`].
    pub ea_size: u32,
    /// Kind of reparse point; only `IdExtdDirectory` has this field.
    pub extd_reparse_tag: u32,
    /// The file's number; 64 bits in all classes but `IdExtdDirectory`. 0: it has none.
    pub file_id: u128,
    /// 8.3 name, at most 12 units; empty if there is none.
    pub short_name: Text,
    /// In `IdBothDirectory`, instead of `ea_size` and `short_name`.
    pub apple: Option<AppleRecord>,
    /// Name. `.` and `..` are records too.
    pub name: Text,
}

impl DirectoryRecord {
    /// The reparse tag, if it is a reparse point. [MS-FSCC] 2.4.8 and others: `EaSize` of a reparse point is its tag.
    pub fn reparse_tag(&self) -> Option<u32> {
        if !self.attributes.contains(FileAttributes::REPARSE_POINT) {
            return None;
        }
        Some(match self.extd_reparse_tag {
            0 => self.ea_size,
            tag => tag,
        })
    }

    /// The reader is past `NextEntryOffset`.
    fn read(
        reader: &mut Reader<'_>,
        class: DirectoryClass,
        apple: bool,
    ) -> std::result::Result<Self, ListFault> {
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
        let mut fault = None;
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
                Err(malformed) => fault = Some(malformed),
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
        let (rest, odd) = (*reader, reader.fault(Fault::Value));
        let name = reader.bytes(name_len);
        match name.and_then(|bytes| Text::from_le_bytes(bytes).ok_or(odd)) {
            Ok(name) => record.name = name,
            Err(malformed) => fault = Some(malformed),
        }
        match fault {
            None => Ok(record),
            Some(malformed) => Err(ListFault::Record(BadRecord::new(rest, name_len, malformed))),
        }
    }

    /// What follows `NextEntryOffset`.
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

    /// [MS-FSCC] 2.1.9: a number that does not fit 64 bits is told as -1.
    fn file_id_64(&self) -> u64 {
        u64::try_from(self.file_id).unwrap_or(u64::MAX)
    }
}

/// Bytes of the short name's field.
const SHORT_NAME_LEN: usize = 24;

/// The inner result is what the field holds; the outer one fails where the field is not there.
fn read_short_name(reader: &mut Reader<'_>) -> Result<Result<Text>> {
    let fault = reader.fault(Fault::Value);
    let length = usize::from(reader.u8()?);
    reader.skip(1)?;
    let field = reader.bytes(SHORT_NAME_LEN)?;
    Ok(field.get(..length).and_then(Text::from_le_bytes).ok_or(fault))
}

/// Longest name that [`BadRecord`] shows, in UTF-16 units. No file system has names of more.
const SHOWN_UNITS_MAX: usize = 255;

/// A record whose place in the list is sound and whose name or short name cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// What can be shown of the name. It need not be the name of any file.
    pub shown: Text,
    /// The fault.
    pub malformed: Malformed,
}

impl BadRecord {
    /// From a reader at the name: what is shown are whole units within the record.
    fn new(mut name: Reader<'_>, name_len: usize, malformed: Malformed) -> Self {
        let bytes = name.rest();
        let length = bytes.len().min(name_len).min(2 * SHOWN_UNITS_MAX) & !1;
        let shown = Text::from_le_bytes(&bytes[..length]).unwrap_or_default();
        Self { shown, malformed }
    }
}

/// What is wrong with a list of records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListFault {
    /// One record; those after it can be read.
    #[error("{}", .0.malformed)]
    Record(BadRecord),
    /// The list itself: where a record begins or ends. Nothing after it can be read.
    #[error("{0}")]
    List(#[from] Malformed),
}

/// The records in a QUERY_DIRECTORY response's buffer, in the server's order. Ends after a [`ListFault::List`].
#[derive(Clone, Debug)]
pub struct DirectoryRecords<'a> {
    entries: Entries<'a>,
    class: DirectoryClass,
    apple: bool,
}

impl<'a> DirectoryRecords<'a> {
    /// Records of a class in a buffer.
    pub fn new(buffer: &'a [u8], class: DirectoryClass) -> Self {
        Self {
            entries: Entries::new(buffer, class.fixed_len(), class.structure()),
            class,
            apple: false,
        }
    }

    /// Records with [`AppleRecord`]s.
    pub fn apple(buffer: &'a [u8]) -> Self {
        Self {
            apple: true,
            ..Self::new(buffer, DirectoryClass::IdBothDirectory)
        }
    }
}

impl Iterator for DirectoryRecords<'_> {
    type Item = std::result::Result<DirectoryRecord, ListFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self
            .entries
            .next()?
            .map_err(ListFault::List)
            .and_then(|mut reader| DirectoryRecord::read(&mut reader, self.class, self.apple));
        if matches!(record, Err(ListFault::List(_))) {
            self.entries.stop();
        }
        Some(record)
    }
}

/// Fills a QUERY_DIRECTORY response's buffer up to the client's `OutputBufferLength`.
#[derive(Debug)]
pub struct DirectoryWriter {
    class: DirectoryClass,
    chain: Chain,
    length_max: usize,
}

impl DirectoryWriter {
    /// Begins a list at the writer's position, of at most `length_max` bytes.
    pub fn new(writer: &Writer<'_>, class: DirectoryClass, length_max: usize) -> Self {
        Self {
            class,
            chain: Chain::new(writer, 8),
            length_max,
        }
    }

    /// Appends a record; `false`, and nothing is written, if it does not fit any more. A first record that does not fit
    /// is answered with STATUS_BUFFER_OVERFLOW or STATUS_INFO_LENGTH_MISMATCH ([MS-SMB2] 3.3.5.18).
    #[must_use]
    pub fn push(&mut self, writer: &mut Writer<'_>, record: &DirectoryRecord) -> bool {
        let end = self.chain.next_at(writer) + self.class.fixed_len() + record.name.wire_len();
        if end > self.length_max {
            return false;
        }
        self.chain.begin(writer);
        record.write(writer, self.class);
        true
    }
}
