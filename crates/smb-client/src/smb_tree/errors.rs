//! Maps errors of the client to errors of a tree.

use std::io;

use ropeway_smb_wire::NtStatus;
use ropeway_vfs::{Error, ErrorKind, Op, RelPath, Verdict};

use crate::error::{Error as ClientError, LostReason, Unprotected};

/// Returns the tree's error for a client error of an operation on a path.
pub fn tree_error(op: Op, path: &RelPath, error: ClientError) -> Error {
    Error {
        op,
        path: path.clone(),
        kind: kind_of(&error),
        source: Some(io::Error::other(error)),
    }
}

/// Returns an error that the tree itself found, with a message.
pub fn with_message(op: Op, path: &RelPath, kind: ErrorKind, sentence: impl Into<String>) -> Error {
    Error {
        op,
        path: path.clone(),
        kind,
        source: Some(io::Error::other(sentence.into())),
    }
}

fn kind_of(error: &ClientError) -> ErrorKind {
    match error {
        ClientError::PeerRefused { status, .. } => {
            kind_of_status(*status).unwrap_or_else(|| match error.verdict() {
                Verdict::Retry => ErrorKind::Busy,
                Verdict::Abort => ErrorKind::Gone,
                Verdict::Skip => ErrorKind::Other,
            })
        }
        ClientError::PeerMisbehaved(_) => ErrorKind::PeerMisbehaved,
        ClientError::InvalidReply(_) => ErrorKind::InvalidReply,
        ClientError::ReferralRefused { .. } => ErrorKind::PermissionDenied,
        ClientError::Tampered(_) => ErrorKind::Tampered,
        ClientError::Local { source, .. } => match ErrorKind::of(source) {
            ErrorKind::Other => ErrorKind::Network,
            kind => kind,
        },
        ClientError::Lost(LostReason::ClientClosed) => ErrorKind::Gone,
        ClientError::Lost(LostReason::NotBack) => ErrorKind::Unreachable,
        ClientError::Lost(_) => ErrorKind::Network,
        ClientError::Login(_) | ClientError::Kerberos(_) | ClientError::Unprotected(Unprotected::Guest) => {
            ErrorKind::Authentication
        }
        ClientError::Unprotected(_) | ClientError::NoSmb1 => ErrorKind::Unreachable,
        _ => ErrorKind::Misuse,
    }
}

/// Returns the kind of a status; `None` if only its verdict decides.
fn kind_of_status(status: NtStatus) -> Option<ErrorKind> {
    use ErrorKind as K;
    Some(match status {
        NtStatus::OBJECT_NAME_NOT_FOUND
        | NtStatus::OBJECT_PATH_NOT_FOUND
        | NtStatus::NO_SUCH_FILE
        | NtStatus::NOT_FOUND
        | NtStatus::FILE_DELETED => K::NotFound,
        NtStatus::OBJECT_NAME_COLLISION => K::AlreadyExists,
        NtStatus::ACCESS_DENIED
        | NtStatus::CANNOT_DELETE
        | NtStatus::PRIVILEGE_NOT_HELD
        | NtStatus::INVALID_OWNER
        | NtStatus::NETWORK_ACCESS_DENIED
        | NtStatus::VIRUS_INFECTED => K::PermissionDenied,
        NtStatus::DISK_FULL | NtStatus::QUOTA_EXCEEDED | NtStatus::DISK_QUOTA_EXCEEDED => K::NoSpace,
        NtStatus::FILE_TOO_LARGE => K::FileTooLarge,
        NtStatus::MEDIA_WRITE_PROTECTED => K::ReadOnly,
        NtStatus::OBJECT_NAME_INVALID
        | NtStatus::ILLEGAL_CHARACTER
        | NtStatus::NAME_TOO_LONG
        | NtStatus::OBJECT_PATH_INVALID
        | NtStatus::OBJECT_PATH_SYNTAX_BAD => K::NameRefused,
        NtStatus::NOT_A_DIRECTORY => K::NotADirectory,
        NtStatus::FILE_IS_A_DIRECTORY => K::IsADirectory,
        NtStatus::DIRECTORY_NOT_EMPTY => K::NotEmpty,
        NtStatus::TOO_MANY_LINKS => K::TooManyLinks,
        NtStatus::NOT_SAME_DEVICE => K::CrossDevice,
        NtStatus::STOPPED_ON_SYMLINK => K::SymbolicLink,
        NtStatus::NOT_SUPPORTED
        | NtStatus::NOT_IMPLEMENTED
        | NtStatus::INVALID_DEVICE_REQUEST
        | NtStatus::INVALID_INFO_CLASS
        | NtStatus::CTL_FILE_NOT_SUPPORTED
        | NtStatus::EAS_NOT_SUPPORTED
        | NtStatus::DEVICE_FEATURE_NOT_SUPPORTED => K::Unsupported,
        NtStatus::DATA_ERROR
        | NtStatus::CRC_ERROR
        | NtStatus::DATA_CHECKSUM_ERROR
        | NtStatus::IO_DEVICE_ERROR
        | NtStatus::UNEXPECTED_IO_ERROR
        | NtStatus::DISK_CORRUPT_ERROR
        | NtStatus::FILE_CORRUPT_ERROR => K::DeviceError,
        NtStatus::SHARING_VIOLATION
        | NtStatus::FILE_LOCK_CONFLICT
        | NtStatus::LOCK_NOT_GRANTED
        | NtStatus::DELETE_PENDING
        | NtStatus::USER_MAPPED_FILE => K::Busy,
        NtStatus::IO_TIMEOUT => K::TimedOut,
        NtStatus::CANCELLED => K::Interrupted,
        NtStatus::INSUFFICIENT_RESOURCES
        | NtStatus::INSUFF_SERVER_RESOURCES
        | NtStatus::NO_MEMORY
        | NtStatus::TOO_MANY_OPENED_FILES => K::ServerExhausted,
        NtStatus::BAD_NETWORK_NAME
        | NtStatus::NETWORK_NAME_DELETED
        | NtStatus::VOLUME_DISMOUNTED
        | NtStatus::SHARE_UNAVAILABLE
        | NtStatus::NO_SUCH_DEVICE => K::Gone,
        NtStatus::USER_SESSION_DELETED => K::Authentication,
        status if status.refuses_login() => K::Authentication,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: NtStatus) -> ErrorKind {
        kind_of(&ClientError::PeerRefused { op: "open", status })
    }

    #[test]
    fn statuses_have_kinds() {
        assert_eq!(kind(NtStatus::OBJECT_NAME_NOT_FOUND), ErrorKind::NotFound);
        assert_eq!(kind(NtStatus::DISK_FULL), ErrorKind::NoSpace);
        assert_eq!(kind(NtStatus::PASSWORD_MUST_CHANGE), ErrorKind::Authentication);
        assert_eq!(kind(NtStatus::SHARING_VIOLATION).verdict(), Verdict::Retry);
        for status in [
            NtStatus::INSUFFICIENT_RESOURCES,
            NtStatus::INSUFF_SERVER_RESOURCES,
            NtStatus::NO_MEMORY,
            NtStatus::TOO_MANY_OPENED_FILES,
        ] {
            assert_eq!(
                kind(status),
                ErrorKind::ServerExhausted,
                "not a limit of this machine"
            );
            assert_eq!(kind(status).verdict(), Verdict::Retry);
        }
        assert_eq!(kind(NtStatus(0xC0FF_EE00)), ErrorKind::Other);
        assert_eq!(
            kind_of(&ClientError::Lost(LostReason::TimedOut)).verdict(),
            Verdict::Retry
        );
        assert_eq!(
            kind_of(&ClientError::Lost(LostReason::NotBack)),
            ErrorKind::Unreachable
        );
        assert_eq!(
            kind_of(&ClientError::Lost(LostReason::ClientClosed)).verdict(),
            Verdict::Abort
        );
    }

    #[test]
    fn errors_contain_the_servers_message() {
        let refused = ClientError::PeerRefused {
            op: "open",
            status: NtStatus::ACCESS_DENIED,
        };
        let path = RelPath::parse(b"dir/file").unwrap();
        let text = tree_error(Op::Open, &path, refused).to_string();
        assert!(
            text.contains("dir/file") && text.contains("STATUS_ACCESS_DENIED"),
            "{text}"
        );
    }
}
