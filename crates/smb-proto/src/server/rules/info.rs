//! Rules of QUERY_INFO and SET_INFO ([MS-SMB2] 3.3.5.20, 3.3.5.21).

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileInfoClass, FsInfoClass};

/// Checks a query of a file and returns the bytes that the response needs at least.
///
/// The length is that of the C structure, padding and first unit of a name included (smb2.getinfo of smbtorture finds so on
/// Windows); it is 0 for lists whose entries are sent whole or not at all.
///
/// # Errors
/// STATUS_INVALID_INFO_CLASS, STATUS_ACCESS_DENIED, STATUS_INFO_LENGTH_MISMATCH.
pub fn check_query_file(
    class: FileInfoClass,
    granted: AccessMask,
    length_max: usize,
) -> Result<usize, NtStatus> {
    let fixed = query_file_len(class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    if !granted.contains(query_file_access(class)) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    check_room(fixed, length_max)
}

/// Checks a query of a volume and returns the bytes that the response needs at least.
///
/// # Errors
/// STATUS_INVALID_INFO_CLASS, STATUS_INFO_LENGTH_MISMATCH.
pub fn check_query_fs(class: FsInfoClass, length_max: usize) -> Result<usize, NtStatus> {
    let fixed = query_fs_len(class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    check_room(fixed, length_max)
}

/// Checks whether a class can be set through an open with these rights ([MS-SMB2] 3.3.5.21.1).
///
/// # Errors
/// STATUS_INVALID_INFO_CLASS, STATUS_ACCESS_DENIED.
pub fn check_set_file(class: FileInfoClass, granted: AccessMask) -> Result<(), NtStatus> {
    let needed = set_file_access(class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    match granted.contains(needed) {
        true => Ok(()),
        false => Err(NtStatus::ACCESS_DENIED),
    }
}

fn check_room(fixed: usize, length_max: usize) -> Result<usize, NtStatus> {
    match length_max < fixed {
        true => Err(NtStatus::INFO_LENGTH_MISMATCH),
        false => Ok(fixed),
    }
}

/// The rights that a query needs ([MS-SMB2] 3.3.5.20.1); classes that it does not name need none.
fn query_file_access(class: FileInfoClass) -> AccessMask {
    match class {
        FileInfoClass::Basic
        | FileInfoClass::All
        | FileInfoClass::NetworkOpen
        | FileInfoClass::AttributeTag => AccessMask::READ_ATTRIBUTES,
        FileInfoClass::FullEa => AccessMask::READ_EA,
        _ => AccessMask::default(),
    }
}

/// Length in bytes of a class's fixed part; `None` if no file is asked for it.
fn query_file_len(class: FileInfoClass) -> Option<usize> {
    Some(match class {
        FileInfoClass::Basic => 40,
        FileInfoClass::Standard => 24,
        FileInfoClass::Internal | FileInfoClass::Position | FileInfoClass::AttributeTag => 8,
        FileInfoClass::Name | FileInfoClass::AlternateName | FileInfoClass::NormalizedName => 8,
        FileInfoClass::Ea | FileInfoClass::Access | FileInfoClass::Mode | FileInfoClass::Alignment => 4,
        FileInfoClass::All => 104,
        FileInfoClass::Stream => 32,
        FileInfoClass::Compression => 16,
        FileInfoClass::NetworkOpen => 56,
        FileInfoClass::Id => 24,
        FileInfoClass::FullEa => 0,
        FileInfoClass::Pipe => 8,
        FileInfoClass::PipeLocal => 40,
        FileInfoClass::PipeRemote => 16,
        _ => return None,
    })
}

/// Length in bytes of a class's fixed part; `None` if no volume is asked for it.
fn query_fs_len(class: FsInfoClass) -> Option<usize> {
    Some(match class {
        FsInfoClass::Volume | FsInfoClass::Size => 24,
        FsInfoClass::Device => 8,
        FsInfoClass::Attribute => 16,
        FsInfoClass::Control => 48,
        FsInfoClass::FullSize => 32,
        FsInfoClass::ObjectId => 64,
        FsInfoClass::SectorSize => 28,
        _ => return None,
    })
}

/// The rights that setting a class needs ([MS-SMB2] 3.3.5.21.1); `None` if it cannot be set.
fn set_file_access(class: FileInfoClass) -> Option<AccessMask> {
    Some(match class {
        FileInfoClass::Basic => AccessMask::WRITE_ATTRIBUTES,
        FileInfoClass::EndOfFile | FileInfoClass::Allocation | FileInfoClass::ValidDataLength => {
            AccessMask::WRITE_DATA
        }
        FileInfoClass::FullEa => AccessMask::WRITE_EA,
        FileInfoClass::Rename
        | FileInfoClass::RenameEx
        | FileInfoClass::Disposition
        | FileInfoClass::DispositionEx => AccessMask::DELETE,
        FileInfoClass::Link | FileInfoClass::Position | FileInfoClass::Mode => AccessMask::default(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_needs_a_known_class_its_right_and_room() {
        let read = AccessMask::READ_ATTRIBUTES;
        assert_eq!(check_query_file(FileInfoClass::Basic, read, 40), Ok(40));
        assert_eq!(
            check_query_file(FileInfoClass::Basic, read, 39),
            Err(NtStatus::INFO_LENGTH_MISMATCH)
        );
        // The right is checked before the room.
        assert_eq!(
            check_query_file(FileInfoClass::Basic, AccessMask::WRITE_DATA, 0),
            Err(NtStatus::ACCESS_DENIED)
        );
        assert_eq!(
            check_query_file(FileInfoClass::Rename, read, 4096),
            Err(NtStatus::INVALID_INFO_CLASS)
        );
        assert_eq!(
            check_query_file(FileInfoClass::Standard, AccessMask::default(), 24),
            Ok(24)
        );
        assert_eq!(check_query_fs(FsInfoClass::SectorSize, 28), Ok(28));
        assert_eq!(
            check_query_fs(FsInfoClass::SectorSize, 27),
            Err(NtStatus::INFO_LENGTH_MISMATCH)
        );
    }

    #[test]
    fn setting_needs_the_right_of_its_class() {
        for (class, right) in [
            (FileInfoClass::Basic, AccessMask::WRITE_ATTRIBUTES),
            (FileInfoClass::EndOfFile, AccessMask::WRITE_DATA),
            (FileInfoClass::FullEa, AccessMask::WRITE_EA),
            (FileInfoClass::RenameEx, AccessMask::DELETE),
            (FileInfoClass::Disposition, AccessMask::DELETE),
        ] {
            assert_eq!(check_set_file(class, right), Ok(()), "{class:?}");
            let others = AccessMask::FILE_ALL.difference(right);
            assert_eq!(
                check_set_file(class, others),
                Err(NtStatus::ACCESS_DENIED),
                "{class:?}"
            );
        }
        assert_eq!(
            check_set_file(FileInfoClass::Position, AccessMask::default()),
            Ok(())
        );
        assert_eq!(
            check_set_file(FileInfoClass::Standard, AccessMask::FILE_ALL),
            Err(NtStatus::INVALID_INFO_CLASS)
        );
    }
}
