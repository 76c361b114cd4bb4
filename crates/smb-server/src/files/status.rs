//! The table of a store's errors and their NTSTATUS.

use ropeway_smb_wire::NtStatus;
use ropeway_vfs::{Error, ErrorKind};

/// Returns the NTSTATUS for an error ([MS-ERREF] 2.3.1).
pub(crate) fn of(error: &Error) -> NtStatus {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Gone => NtStatus::OBJECT_NAME_NOT_FOUND,
        ErrorKind::AlreadyExists => NtStatus::OBJECT_NAME_COLLISION,
        ErrorKind::PermissionDenied | ErrorKind::SymbolicLink => NtStatus::ACCESS_DENIED,
        ErrorKind::NoSpace => NtStatus::DISK_FULL,
        ErrorKind::ReadOnly => NtStatus::MEDIA_WRITE_PROTECTED,
        ErrorKind::NameRefused => NtStatus::OBJECT_NAME_INVALID,
        ErrorKind::NotADirectory => NtStatus::NOT_A_DIRECTORY,
        ErrorKind::IsADirectory => NtStatus::FILE_IS_A_DIRECTORY,
        ErrorKind::NotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
        ErrorKind::TooManyLinks => NtStatus::TOO_MANY_LINKS,
        ErrorKind::CrossDevice => NtStatus::NOT_SAME_DEVICE,
        ErrorKind::FileTooLarge | ErrorKind::Misuse => NtStatus::INVALID_PARAMETER,
        ErrorKind::Unsupported => NtStatus::NOT_SUPPORTED,
        ErrorKind::Busy => NtStatus::SHARING_VIOLATION,
        ErrorKind::Exhausted => NtStatus::INSUFFICIENT_RESOURCES,
        ErrorKind::TimedOut => NtStatus::IO_TIMEOUT,
        _ => NtStatus::UNEXPECTED_IO_ERROR,
    }
}
