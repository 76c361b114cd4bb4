//! Information classes: the data of QUERY_INFO, SET_INFO and QUERY_DIRECTORY ([MS-FSCC] 2.4 and
//! 2.5).
//!
//! An information structure fills its own buffer inside a message. Offsets, alignment and the
//! positions in [`DecodeError`](super::DecodeError) count from that buffer's start, and `decode`
//! gets the buffer. Bytes after a structure's end are ignored, because servers pad.
//!
//! ```text
//! Information (trait)      one structure <-> one buffer
//!   file.rs, name.rs       of an open file
//!   list.rs                lists in one buffer (streams, extended attributes); Entries walks
//!   NextEntryOffset
//!   fs.rs                  of a volume
//! directory.rs             records of a directory in seven layouts
//! ```

mod class;
mod directory;
mod field;
mod file;
mod fs;
mod list;
mod name;
#[cfg(test)]
mod tests;

pub use class::{FileInfoClass, FsInfoClass};
pub use directory::{
    AppleRecord, BadRecord, DirectoryClass, DirectoryRecord, DirectoryRecords, DirectoryWriter, ListError,
};
pub use file::{
    DispositionFlags, FileAccessInformation, FileAlignmentInformation, FileAllocationInformation,
    FileAttributeTagInformation, FileBasicInformation, FileCompressionInformation,
    FileDispositionInformation, FileDispositionInformationEx, FileEaInformation, FileEndOfFileInformation,
    FileIdInformation, FileInternalInformation, FileModeInformation, FileNetworkOpenInformation,
    FilePipeInformation, FilePositionInformation, FileStandardInformation, ModeFlags,
};
pub use fs::{
    FileFsAttributeInformation, FileFsDeviceInformation, FileFsFullSizeInformation,
    FileFsObjectIdInformation, FileFsSectorSizeInformation, FileFsSizeInformation, FileFsVolumeInformation,
    FsAttributes, FsDeviceCharacteristics, FsDeviceType, SectorFlags,
};
pub use list::{Entries, FileFullEaInformation, FileStreamInformation, FullEa, StreamEntry};
pub use name::{
    FileAllInformation, FileLinkInformation, FileNameInformation, FileNormalizedNameInformation,
    FileRenameInformation, FileRenameInformationEx, RenameFlags,
};

use super::{Reader, Result, Writer};

/// A structure that fills one information buffer.
pub trait Information: Sized {
    /// Name in the specification, for errors.
    const NAME: &'static str;

    /// Reads the structure and leaves the reader at its end.
    ///
    /// # Errors
    /// The bytes are not this structure.
    fn read(reader: &mut Reader<'_>) -> Result<Self>;

    /// Appends the structure.
    fn encode(&self, writer: &mut Writer<'_>);

    /// Decodes an information buffer.
    ///
    /// # Errors
    /// The bytes are not this structure.
    fn decode(buffer: &[u8]) -> Result<Self> {
        Self::read(&mut Reader::new(buffer, Self::NAME))
    }

    /// Returns the structure in a new buffer, for requests that borrow one.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut Writer::new(&mut out));
        out
    }
}

/// [`Information`] about a file, with the number of its class.
pub trait FileInformation: Information {
    /// `FileInfoClass` on the wire.
    const CLASS: FileInfoClass;
}

/// [`Information`] about a volume, with the number of its class.
pub trait FsInformation: Information {
    /// `FsInfoClass` on the wire.
    const CLASS: FsInfoClass;
}
