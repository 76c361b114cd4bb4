//! Information of fixed size about an open file ([MS-FSCC] 2.4).

use super::field::{flag_fields, information};
use crate::create::AccessMask;
use crate::{FileAttributes, FileTime};
use bitflags::bitflags;

information! {
    /// `FileBasicInformation` ([MS-FSCC] 2.4.7): times and attributes, to ask and to set.
    ///
    /// To set, a time may be [`FileTime::KEEP`] (0: leave it), [`FileTime::FREEZE`] (-1: leave it, and stop changing it
    /// for operations through this open) or [`FileTime::THAW`] (-2: change it for them again); attributes of 0 are left
    /// as they are, and [`FileAttributes::NORMAL`] takes all away. [`Default`] changes nothing.
    pub struct FileBasicInformation: FileInformation = FileInfoClass::Basic, reserved 4 {
        /// When the file was made.
        creation_time: FileTime,
        /// When it was last read or written.
        last_access_time: FileTime,
        /// When its content last changed.
        last_write_time: FileTime,
        /// When content or metadata last changed.
        change_time: FileTime,
        /// Attributes.
        attributes: FileAttributes,
    }
}

information! {
    /// `FileStandardInformation` ([MS-FSCC] 2.4.47).
    pub struct FileStandardInformation: FileInformation = FileInfoClass::Standard, reserved 2 {
        /// Bytes allocated on the volume.
        allocation_size: u64,
        /// Bytes of content.
        end_of_file: u64,
        /// Hard links that are not to be deleted.
        number_of_links: u32,
        /// Whether the file is to be deleted when its last open is closed.
        delete_pending: bool,
        /// Whether it is a directory.
        directory: bool,
    }
}

information! {
    /// `FileInternalInformation` ([MS-FSCC] 2.4.27).
    pub struct FileInternalInformation: FileInformation = FileInfoClass::Internal, reserved 0 {
        /// Number of the file, unique in the volume; 0 where the file system has none.
        index_number: u64,
    }
}

information! {
    /// `FileEaInformation` ([MS-FSCC] 2.4.12).
    pub struct FileEaInformation: FileInformation = FileInfoClass::Ea, reserved 0 {
        /// Bytes of all extended attributes.
        ea_size: u32,
    }
}

information! {
    /// `FileAccessInformation` ([MS-FSCC] 2.4.1): what this open was granted.
    pub struct FileAccessInformation: FileInformation = FileInfoClass::Access, reserved 0 {
        /// Rights.
        access_flags: AccessMask,
    }
}

information! {
    /// `FilePositionInformation` ([MS-FSCC] 2.4.40). Of no effect in SMB, where each request says its offset.
    pub struct FilePositionInformation: FileInformation = FileInfoClass::Position, reserved 0 {
        /// Bytes from the start.
        current_byte_offset: u64,
    }
}

bitflags! {
    /// How a file was opened ([MS-FSCC] 2.4.31).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ModeFlags: u32 {
        /// Writes go to the medium before they are answered.
        const WRITE_THROUGH = 0x0000_0002;
        /// Access is sequential.
        const SEQUENTIAL_ONLY = 0x0000_0004;
        /// Without the server's cache.
        const NO_INTERMEDIATE_BUFFERING = 0x0000_0008;
        /// Synchronous, can be interrupted.
        const SYNCHRONOUS_IO_ALERT = 0x0000_0010;
        /// Synchronous, cannot be interrupted.
        const SYNCHRONOUS_IO_NONALERT = 0x0000_0020;
        /// Deleted when closed.
        const DELETE_ON_CLOSE = 0x0000_1000;
        const _ = !0;
    }
}

bitflags! {
    /// How to delete ([MS-FSCC] 2.4.11).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct DispositionFlags: u32 {
        /// Delete when the last open is closed; without it, a deletion asked for before is taken back.
        const DELETE = 0x0000_0001;
        /// The name goes when this open is closed, not the last one.
        const POSIX_SEMANTICS = 0x0000_0002;
        /// Check for a mapped image first.
        const FORCE_IMAGE_SECTION_CHECK = 0x0000_0004;
        /// Act on the open's delete-on-close state.
        const ON_CLOSE = 0x0000_0008;
        /// Even if the file is read-only.
        const IGNORE_READONLY_ATTRIBUTE = 0x0000_0010;
        const _ = !0;
    }
}

flag_fields!(ModeFlags, DispositionFlags);

information! {
    /// `FileModeInformation` ([MS-FSCC] 2.4.31).
    pub struct FileModeInformation: FileInformation = FileInfoClass::Mode, reserved 0 {
        /// How the file was opened.
        mode: ModeFlags,
    }
}

information! {
    /// `FileAlignmentInformation` ([MS-FSCC] 2.4.3).
    pub struct FileAlignmentInformation: FileInformation = FileInfoClass::Alignment, reserved 0 {
        /// Alignment that the device wants of buffers, in bytes, minus 1.
        alignment_requirement: u32,
    }
}

information! {
    /// `FileNetworkOpenInformation` ([MS-FSCC] 2.4.34): what CREATE answers, in one structure.
    pub struct FileNetworkOpenInformation: FileInformation = FileInfoClass::NetworkOpen, reserved 4 {
        /// When the file was made.
        creation_time: FileTime,
        /// When it was last read or written.
        last_access_time: FileTime,
        /// When its content last changed.
        last_write_time: FileTime,
        /// When content or metadata last changed.
        change_time: FileTime,
        /// Bytes allocated on the volume.
        allocation_size: u64,
        /// Bytes of content.
        end_of_file: u64,
        /// Attributes.
        attributes: FileAttributes,
    }
}

information! {
    /// `FileAttributeTagInformation` ([MS-FSCC] 2.4.6).
    pub struct FileAttributeTagInformation: FileInformation = FileInfoClass::AttributeTag, reserved 0 {
        /// Attributes.
        attributes: FileAttributes,
        /// What kind of reparse point, if the attributes say it is one ([MS-FSCC] 2.1.2.1).
        reparse_tag: u32,
    }
}

information! {
    /// `FileEndOfFileInformation` ([MS-FSCC] 2.4.14), to set.
    pub struct FileEndOfFileInformation: FileInformation = FileInfoClass::EndOfFile, reserved 0 {
        /// Bytes of content from now on.
        end_of_file: u64,
    }
}

information! {
    /// `FileAllocationInformation` ([MS-FSCC] 2.4.4), to set. Below the end of the file it cuts content off.
    pub struct FileAllocationInformation: FileInformation = FileInfoClass::Allocation, reserved 0 {
        /// Bytes to allocate.
        allocation_size: u64,
    }
}

information! {
    /// `FileDispositionInformation` ([MS-FSCC] 2.4.11), to set.
    pub struct FileDispositionInformation: FileInformation = FileInfoClass::Disposition, reserved 0 {
        /// Delete when the last open is closed; `false` takes that back.
        delete_pending: bool,
    }
}

information! {
    /// `FileDispositionInformationEx`, to set; Windows 10 1709 and later, NTFS.
    pub struct FileDispositionInformationEx: FileInformation = FileInfoClass::DispositionEx, reserved 0 {
        /// What to do.
        flags: DispositionFlags,
    }
}

information! {
    /// `FileCompressionInformation` ([MS-FSCC] 2.4.9).
    pub struct FileCompressionInformation: FileInformation = FileInfoClass::Compression, reserved 3 {
        /// Bytes of the compressed content.
        compressed_file_size: u64,
        /// 0: none, 2: LZNT1; others are the file system's own.
        compression_format: u16,
        /// Compression units are 2 to this power of bytes.
        compression_unit_shift: u8,
        /// Chunks are 2 to this power of bytes.
        chunk_shift: u8,
        /// Clusters are 2 to this power of bytes.
        cluster_shift: u8,
    }
}

information! {
    /// `FileIdInformation` ([MS-FSCC] 2.4.26).
    pub struct FileIdInformation: FileInformation = FileInfoClass::Id, reserved 0 {
        /// Serial number of the volume.
        volume_serial_number: u64,
        /// Number of the file, unique in the volume.
        file_id: [u8; 16],
    }
}

information! {
    /// `FilePipeInformation` ([MS-FSCC] 2.4.37).
    pub struct FilePipeInformation: FileInformation = FileInfoClass::Pipe, reserved 0 {
        /// 0: a stream of bytes, 1: messages.
        read_mode: u32,
        /// 0: calls wait, 1: they do not.
        completion_mode: u32,
    }
}
