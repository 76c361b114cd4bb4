//! Information of fixed size about an open file ([MS-FSCC] 2.4).

use super::field::{flag_fields, information};
use crate::create::AccessMask;
use crate::{FileAttributes, FileTime};
use bitflags::bitflags;

information! {
    /// `FileBasicInformation` ([MS-FSCC] 2.4.7): times and attributes, to query and to set.
    ///
    /// When set, a time may be [`FileTime::KEEP`] (0: unchanged), [`FileTime::FREEZE`] (-1:
    /// unchanged, and operations through this open no longer change it) or [`FileTime::THAW`] (-2:
    /// operations through this open change it again). Attributes of 0 stay unchanged, and
    /// [`FileAttributes::NORMAL`] clears all. [`Default`] changes nothing.
    pub struct FileBasicInformation: FileInformation = FileInfoClass::Basic, reserved 4 {
        /// Time of creation.
        creation_time: FileTime,
        /// Time of the last read or write.
        last_access_time: FileTime,
        /// Time of the last change of content.
        last_write_time: FileTime,
        /// Time of the last change of content or metadata.
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
        /// Length of the content in bytes.
        end_of_file: u64,
        /// Number of hard links, without those pending deletion.
        number_of_links: u32,
        /// Whether the file is deleted when its last open closes.
        delete_pending: bool,
        /// Whether it is a directory.
        directory: bool,
    }
}

information! {
    /// `FileInternalInformation` ([MS-FSCC] 2.4.27).
    pub struct FileInternalInformation: FileInformation = FileInfoClass::Internal, reserved 0 {
        /// File id, unique in the volume; 0 if the file system has none.
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
    /// `FileAccessInformation` ([MS-FSCC] 2.4.1): the rights granted to this open.
    pub struct FileAccessInformation: FileInformation = FileInfoClass::Access, reserved 0 {
        /// Rights.
        access_flags: AccessMask,
    }
}

information! {
    /// `FilePositionInformation` ([MS-FSCC] 2.4.40). Without effect in SMB, where each request
    /// carries its offset.
    pub struct FilePositionInformation: FileInformation = FileInfoClass::Position, reserved 0 {
        /// Bytes from the start.
        current_byte_offset: u64,
    }
}

bitflags! {
    /// Mode in which a file was opened ([MS-FSCC] 2.4.31).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ModeFlags: u32 {
        /// Writes are on the medium before the response.
        const WRITE_THROUGH = 0x0000_0002;
        /// Access is sequential.
        const SEQUENTIAL_ONLY = 0x0000_0004;
        /// The server does not cache the data.
        const NO_INTERMEDIATE_BUFFERING = 0x0000_0008;
        /// Synchronous, can be interrupted.
        const SYNCHRONOUS_IO_ALERT = 0x0000_0010;
        /// Synchronous, cannot be interrupted.
        const SYNCHRONOUS_IO_NONALERT = 0x0000_0020;
        /// The file is deleted when it is closed.
        const DELETE_ON_CLOSE = 0x0000_1000;
        const _ = !0;
    }
}

bitflags! {
    /// How to delete a file ([MS-FSCC] 2.4.11).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct DispositionFlags: u32 {
        /// Delete when the last open closes. Without this flag a pending deletion is cancelled.
        const DELETE = 0x0000_0001;
        /// The name disappears when this open closes, not the last one.
        const POSIX_SEMANTICS = 0x0000_0002;
        /// Check for a mapped image first.
        const FORCE_IMAGE_SECTION_CHECK = 0x0000_0004;
        /// Change the open's delete-on-close state.
        const ON_CLOSE = 0x0000_0008;
        /// Delete a read-only file, too.
        const IGNORE_READONLY_ATTRIBUTE = 0x0000_0010;
        const _ = !0;
    }
}

flag_fields!(ModeFlags, DispositionFlags);

information! {
    /// `FileModeInformation` ([MS-FSCC] 2.4.31).
    pub struct FileModeInformation: FileInformation = FileInfoClass::Mode, reserved 0 {
        /// Mode in which the file was opened.
        mode: ModeFlags,
    }
}

information! {
    /// `FileAlignmentInformation` ([MS-FSCC] 2.4.3).
    pub struct FileAlignmentInformation: FileInformation = FileInfoClass::Alignment, reserved 0 {
        /// Buffer alignment that the device requires, in bytes, minus 1.
        alignment_requirement: u32,
    }
}

information! {
    /// `FileNetworkOpenInformation` ([MS-FSCC] 2.4.34): the data of a CREATE response in one
    /// structure.
    pub struct FileNetworkOpenInformation: FileInformation = FileInfoClass::NetworkOpen, reserved 4 {
        /// Time of creation.
        creation_time: FileTime,
        /// Time of the last read or write.
        last_access_time: FileTime,
        /// Time of the last change of content.
        last_write_time: FileTime,
        /// Time of the last change of content or metadata.
        change_time: FileTime,
        /// Bytes allocated on the volume.
        allocation_size: u64,
        /// Length of the content in bytes.
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
        /// Reparse tag, if the attributes include `REPARSE_POINT` ([MS-FSCC] 2.1.2.1).
        reparse_tag: u32,
    }
}

information! {
    /// `FileEndOfFileInformation` ([MS-FSCC] 2.4.14), to set.
    pub struct FileEndOfFileInformation: FileInformation = FileInfoClass::EndOfFile, reserved 0 {
        /// New length of the content in bytes.
        end_of_file: u64,
    }
}

information! {
    /// `FileAllocationInformation` ([MS-FSCC] 2.4.4), to set. A value below the end of the file
    /// truncates the content.
    pub struct FileAllocationInformation: FileInformation = FileInfoClass::Allocation, reserved 0 {
        /// Bytes to allocate.
        allocation_size: u64,
    }
}

information! {
    /// `FileDispositionInformation` ([MS-FSCC] 2.4.11), to set.
    pub struct FileDispositionInformation: FileInformation = FileInfoClass::Disposition, reserved 0 {
        /// Delete when the last open closes; `false` cancels a pending deletion.
        delete_pending: bool,
    }
}

information! {
    /// `FileDispositionInformationEx`, to set; Windows 10 1709 and later, NTFS.
    pub struct FileDispositionInformationEx: FileInformation = FileInfoClass::DispositionEx, reserved 0 {
        /// How to delete.
        flags: DispositionFlags,
    }
}

information! {
    /// `FileCompressionInformation` ([MS-FSCC] 2.4.9).
    pub struct FileCompressionInformation: FileInformation = FileInfoClass::Compression, reserved 3 {
        /// Bytes of the compressed content.
        compressed_file_size: u64,
        /// 0: none, 2: LZNT1; other numbers belong to the file system.
        compression_format: u16,
        /// Size of a compression unit as a power of 2 of bytes.
        compression_unit_shift: u8,
        /// Size of a chunk as a power of 2 of bytes.
        chunk_shift: u8,
        /// Size of a cluster as a power of 2 of bytes.
        cluster_shift: u8,
    }
}

information! {
    /// `FileIdInformation` ([MS-FSCC] 2.4.26).
    pub struct FileIdInformation: FileInformation = FileInfoClass::Id, reserved 0 {
        /// Serial number of the volume.
        volume_serial_number: u64,
        /// File id, unique in the volume.
        file_id: [u8; 16],
    }
}

information! {
    /// `FilePipeInformation` ([MS-FSCC] 2.4.37).
    pub struct FilePipeInformation: FileInformation = FileInfoClass::Pipe, reserved 0 {
        /// 0: byte stream, 1: messages.
        read_mode: u32,
        /// 0: calls wait, 1: calls do not wait.
        completion_mode: u32,
    }
}
