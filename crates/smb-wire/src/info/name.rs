//! Information that holds a name ([MS-FSCC] 2.4), and `FileAllInformation`, which ends in one.

use super::{
    FileAccessInformation, FileAlignmentInformation, FileBasicInformation, FileEaInformation, FileInfoClass,
    FileInformation, FileInternalInformation, FileModeInformation, FilePositionInformation,
    FileStandardInformation, Information,
};
use crate::{Fault, Reader, Result, Text, Writer};
use bitflags::bitflags;

/// Reads a length in bytes and that much text.
fn read_name(reader: &mut Reader<'_>) -> Result<Text> {
    let length = reader.u32()?;
    let fault = reader.fault(Fault::Value);
    // A length that does not fit usize does not fit the message either.
    let bytes = reader.bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
    Text::from_le_bytes(bytes).ok_or(fault)
}

fn write_name(name: &Text, writer: &mut Writer<'_>) {
    writer.u32(name_len(name));
    name.write(writer);
}

fn name_len(name: &Text) -> u32 {
    u32::try_from(name.wire_len()).expect("names are short")
}

/// `FileNameInformation` ([MS-FSCC] 2.1.7): the path from the share's root, beginning with a backslash. Also the layout
/// of `FileAlternateNameInformation` (one 8.3 name).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileNameInformation {
    /// The name.
    pub name: Text,
}

impl Information for FileNameInformation {
    const NAME: &'static str = "FileNameInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        read_name(reader).map(|name| Self { name })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        write_name(&self.name, writer);
    }
}

impl FileInformation for FileNameInformation {
    const CLASS: FileInfoClass = FileInfoClass::Name;
}

/// `FileNormalizedNameInformation` ([MS-FSCC] 2.4.36): the path from the share's root without short names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileNormalizedNameInformation {
    /// The name.
    pub name: Text,
}

impl Information for FileNormalizedNameInformation {
    const NAME: &'static str = "FileNormalizedNameInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        read_name(reader).map(|name| Self { name })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        write_name(&self.name, writer);
    }
}

impl FileInformation for FileNormalizedNameInformation {
    const CLASS: FileInfoClass = FileInfoClass::NormalizedName;
}

/// `FileAllInformation` ([MS-FSCC] 2.4.2): nine classes at once. The name is often long: a reply cut short by a small
/// buffer (STATUS_BUFFER_OVERFLOW) does not decode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is documented at its type")]
pub struct FileAllInformation {
    pub basic: FileBasicInformation,
    pub standard: FileStandardInformation,
    pub internal: FileInternalInformation,
    pub ea: FileEaInformation,
    pub access: FileAccessInformation,
    pub position: FilePositionInformation,
    pub mode: FileModeInformation,
    pub alignment: FileAlignmentInformation,
    pub name: FileNameInformation,
}

impl Information for FileAllInformation {
    const NAME: &'static str = "FileAllInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            basic: Information::read(reader)?,
            standard: Information::read(reader)?,
            internal: Information::read(reader)?,
            ea: Information::read(reader)?,
            access: Information::read(reader)?,
            position: Information::read(reader)?,
            mode: Information::read(reader)?,
            alignment: Information::read(reader)?,
            name: Information::read(reader)?,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.basic.encode(writer);
        self.standard.encode(writer);
        self.internal.encode(writer);
        self.ea.encode(writer);
        self.access.encode(writer);
        self.position.encode(writer);
        self.mode.encode(writer);
        self.alignment.encode(writer);
        self.name.encode(writer);
    }
}

impl FileInformation for FileAllInformation {
    const CLASS: FileInfoClass = FileInfoClass::All;
}

/// Bytes of a rename's or link's fixed part with the padding of the C structure: Windows refuses shorter buffers, so
/// names of one character are padded.
const RENAME_LEN_MIN: usize = 24;

/// Everything after the first eight bytes: `RootDirectory` (0 in SMB), `FileNameLength`, `FileName`.
fn read_target(reader: &mut Reader<'_>) -> Result<Text> {
    // [MS-SMB2] 3.3.5.21.1: a root directory other than 0 is an error.
    let fault = reader.fault(Fault::Value);
    if reader.u64()? != 0 {
        return Err(fault);
    }
    read_name(reader)
}

fn write_target(name: &Text, writer: &mut Writer<'_>) {
    writer.u64(0);
    write_name(name, writer);
    // Fixed part up to the name: 20 bytes.
    writer.zeros(RENAME_LEN_MIN.saturating_sub(20 + name.wire_len()));
}

/// What renaming and linking share: whether to replace, and the target.
fn read_flagged_target(reader: &mut Reader<'_>) -> Result<(bool, Text)> {
    let replace_if_exists = reader.u8()? != 0;
    reader.skip(7)?;
    Ok((replace_if_exists, read_target(reader)?))
}

fn write_flagged_target(replace_if_exists: bool, name: &Text, writer: &mut Writer<'_>) {
    writer.u8(u8::from(replace_if_exists));
    writer.zeros(7);
    write_target(name, writer);
}

/// `FileRenameInformation` as SMB 2 lays it out (`FileRenameInformationType2`, [MS-FSCC] 2.4.42.2), to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRenameInformation {
    /// Whether a file of the new name is replaced.
    pub replace_if_exists: bool,
    /// The new path from the share's root, without a backslash at its start.
    pub name: Text,
}

impl Information for FileRenameInformation {
    const NAME: &'static str = "FileRenameInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (replace_if_exists, name) = read_flagged_target(reader)?;
        Ok(Self {
            replace_if_exists,
            name,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        write_flagged_target(self.replace_if_exists, &self.name, writer);
    }
}

impl FileInformation for FileRenameInformation {
    const CLASS: FileInfoClass = FileInfoClass::Rename;
}

/// `FileLinkInformation` as SMB 2 lays it out (`FileLinkInformationType2`, [MS-FSCC] 2.4.28.2), to set: a hard link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLinkInformation {
    /// Whether a file of the new name is replaced.
    pub replace_if_exists: bool,
    /// The new path from the share's root, without a backslash at its start.
    pub name: Text,
}

impl Information for FileLinkInformation {
    const NAME: &'static str = "FileLinkInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let (replace_if_exists, name) = read_flagged_target(reader)?;
        Ok(Self {
            replace_if_exists,
            name,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        write_flagged_target(self.replace_if_exists, &self.name, writer);
    }
}

impl FileInformation for FileLinkInformation {
    const CLASS: FileInfoClass = FileInfoClass::Link;
}

bitflags! {
    /// How to rename ([MS-FSCC] 2.4.43).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct RenameFlags: u32 {
        /// A file of the new name is replaced.
        const REPLACE_IF_EXISTS = 0x0000_0001;
        /// Replaced even if it is open: its opens live on without a name.
        const POSIX_SEMANTICS = 0x0000_0002;
        /// The pin state is not inherited from the new directory.
        const SUPPRESS_PIN_STATE_INHERITANCE = 0x0000_0004;
        /// The storage reserve is not inherited from the new directory.
        const SUPPRESS_STORAGE_RESERVE_INHERITANCE = 0x0000_0008;
        /// Fails if it would increase the volume's free space.
        const NO_INCREASE_AVAILABLE_SPACE = 0x0000_0010;
        /// Fails if it would decrease the volume's free space.
        const NO_DECREASE_AVAILABLE_SPACE = 0x0000_0020;
        /// A read-only file of the new name is replaced too.
        const IGNORE_READONLY_ATTRIBUTE = 0x0000_0040;
        /// The new place's storage reserve is resized.
        const FORCE_RESIZE_TARGET_SR = 0x0000_0080;
        /// The old place's storage reserve is resized.
        const FORCE_RESIZE_SOURCE_SR = 0x0000_0100;
        const _ = !0;
    }
}

/// `FileRenameInformationEx` ([MS-FSCC] 2.4.43), to set; Windows 10 1709 and later, NTFS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRenameInformationEx {
    /// How.
    pub flags: RenameFlags,
    /// The new path from the share's root, without a backslash at its start.
    pub name: Text,
}

impl Information for FileRenameInformationEx {
    const NAME: &'static str = "FileRenameInformationEx";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let flags = RenameFlags::from_bits_retain(reader.u32()?);
        reader.skip(4)?;
        let name = read_target(reader)?;
        Ok(Self { flags, name })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.flags.bits());
        writer.zeros(4);
        write_target(&self.name, writer);
    }
}

impl FileInformation for FileRenameInformationEx {
    const CLASS: FileInfoClass = FileInfoClass::RenameEx;
}
