//! Information classes: what QUERY_INFO, SET_INFO and QUERY_DIRECTORY carry ([MS-FSCC] 2.4 and 2.5).
//!
//! An information structure fills a buffer of its own inside a message, so offsets, alignment and the places named in
//! [`Malformed`](super::Malformed) count from that buffer's start, and `decode` gets the buffer. Bytes after a structure's end are
//! ignored: servers pad.
//!
//! ```text
//! Information (trait)      one structure <-> one buffer
//!   file.rs, name.rs       of an open file
//!   list.rs                lists in one buffer (streams, extended attributes); Entries walks NextEntryOffset
//!   fs.rs                  of a volume
//! directory.rs             records of a directory, seven layouts of one thing
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
    AppleRecord, BadRecord, DirectoryClass, DirectoryRecord, DirectoryRecords, DirectoryWriter, ListFault,
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

/// One structure that fills one information buffer.
pub trait Information: Sized {
    /// Its name in the specification, as faults give it.
    const NAME: &'static str;

    /// Reads it; the reader stands at its start and is left at its end.
    ///
    /// # Errors
    /// The bytes are not this structure.
    fn read(reader: &mut Reader<'_>) -> Result<Self>;

    /// Appends it.
    fn encode(&self, writer: &mut Writer<'_>);

    /// From an information buffer.
    ///
    /// # Errors
    /// The bytes are not this structure.
    fn decode(buffer: &[u8]) -> Result<Self> {
        Self::read(&mut Reader::new(buffer, Self::NAME))
    }

    /// As a new buffer; for requests that carry one by reference.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut Writer::new(&mut out));
        out
    }
}

/// [`Information`] about a file, with its number.
pub trait FileInformation: Information {
    /// `FileInfoClass` on the wire.
    const CLASS: FileInfoClass;
}

/// [`Information`] about a volume, with its number.
pub trait FsInformation: Information {
    /// `FsInfoClass` on the wire.
    const CLASS: FsInfoClass;
}
