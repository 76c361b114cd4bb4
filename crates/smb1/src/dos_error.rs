//! Errors of DOS and OS/2, which peers without NTSTATUS use ([MS-CIFS] 2.2.2.4).

use ropeway_smb_wire::NtStatus;

/// ERRDOS: errors of the operating system.
const DOS: u8 = 1;
/// ERRSRV: errors of the server.
const SRV: u8 = 2;
/// ERRHRD: errors of the hardware.
const HRD: u8 = 3;

/// Returns whether a status is an error, those of SMB 1 alone included, which look like successes.
pub fn is_error(status: NtStatus) -> bool {
    status.is_error() || is_old(status)
}

/// Whether a status is a class and a code, see [`status`].
fn is_old(status: NtStatus) -> bool {
    matches!(status.0 & 0xFFFF, 1..=3) && status.0 >> 28 == 0 && status.0 >> 16 != 0
}

/// A class and a code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DosError {
    /// `ErrorClass`; 0 for success.
    pub class: u8,
    /// `ErrorCode`.
    pub code: u16,
}

/// Statuses that SMB 1 alone has: an error of class ERRSRV in the two lower bytes and its code in
/// the upper ones ([MS-CIFS] 2.2.2.4).
pub mod status {
    use ropeway_smb_wire::NtStatus;

    /// STATUS_INVALID_SMB: the message is malformed.
    pub const INVALID_SMB: NtStatus = NtStatus(0x0001_0002);
    /// STATUS_SMB_BAD_TID: there is no such tree.
    pub const BAD_TID: NtStatus = NtStatus(0x0005_0002);
    /// STATUS_SMB_BAD_COMMAND: the command is unknown.
    pub const BAD_COMMAND: NtStatus = NtStatus(0x0016_0002);
    /// STATUS_SMB_BAD_UID: there is no such session.
    pub const BAD_UID: NtStatus = NtStatus(0x005B_0002);
    /// STATUS_SMB_USE_STANDARD: raw reads and writes are not possible now.
    pub const USE_STANDARD: NtStatus = NtStatus(0x00FB_0002);
}

/// Pairs for both directions. Of several entries with one status or one error, the first counts.
const TABLE: &[(u8, u16, NtStatus)] = &[
    (DOS, 1, NtStatus::INVALID_DEVICE_REQUEST),
    (DOS, 1, NtStatus::NOT_IMPLEMENTED),
    (DOS, 2, NtStatus::OBJECT_NAME_NOT_FOUND),
    (DOS, 2, NtStatus::NO_SUCH_FILE),
    (DOS, 2, NtStatus::NO_SUCH_DEVICE),
    (DOS, 3, NtStatus::OBJECT_PATH_NOT_FOUND),
    (DOS, 3, NtStatus::OBJECT_PATH_INVALID),
    (DOS, 3, NtStatus::OBJECT_PATH_SYNTAX_BAD),
    (DOS, 4, NtStatus::TOO_MANY_OPENED_FILES),
    (DOS, 5, NtStatus::ACCESS_DENIED),
    (DOS, 5, NtStatus::CANNOT_DELETE),
    (DOS, 5, NtStatus::DELETE_PENDING),
    (DOS, 5, NtStatus::FILE_DELETED),
    (DOS, 5, NtStatus::FILE_IS_A_DIRECTORY),
    (DOS, 5, NtStatus::PRIVILEGE_NOT_HELD),
    (DOS, 5, NtStatus::NETWORK_ACCESS_DENIED),
    (DOS, 6, NtStatus::INVALID_HANDLE),
    (DOS, 6, NtStatus::FILE_CLOSED),
    (DOS, 8, NtStatus::INSUFF_SERVER_RESOURCES),
    (DOS, 8, NtStatus::NO_MEMORY),
    (DOS, 8, NtStatus::INSUFFICIENT_RESOURCES),
    (DOS, 13, NtStatus::DATA_ERROR),
    (DOS, 16, NtStatus::DIRECTORY_NOT_EMPTY),
    (DOS, 145, NtStatus::DIRECTORY_NOT_EMPTY),
    (DOS, 17, NtStatus::NOT_SAME_DEVICE),
    (DOS, 18, NtStatus::NO_MORE_FILES),
    (DOS, 31, NtStatus::UNSUCCESSFUL),
    (DOS, 32, NtStatus::SHARING_VIOLATION),
    (DOS, 33, NtStatus::FILE_LOCK_CONFLICT),
    (DOS, 33, NtStatus::LOCK_NOT_GRANTED),
    (DOS, 38, NtStatus::END_OF_FILE),
    (DOS, 50, NtStatus::NOT_SUPPORTED),
    (DOS, 80, NtStatus::OBJECT_NAME_COLLISION),
    (DOS, 183, NtStatus::OBJECT_NAME_COLLISION),
    (DOS, 87, NtStatus::INVALID_PARAMETER),
    (DOS, 112, NtStatus::DISK_FULL),
    (DOS, 123, NtStatus::OBJECT_NAME_INVALID),
    (DOS, 124, NtStatus::INVALID_INFO_CLASS),
    (DOS, 158, NtStatus::RANGE_NOT_LOCKED),
    (DOS, 230, NtStatus::INVALID_PIPE_STATE),
    (DOS, 231, NtStatus::PIPE_NOT_AVAILABLE),
    (DOS, 231, NtStatus::PIPE_BUSY),
    (DOS, 232, NtStatus::PIPE_CLOSING),
    (DOS, 233, NtStatus::PIPE_DISCONNECTED),
    (DOS, 234, NtStatus::BUFFER_OVERFLOW),
    (DOS, 234, NtStatus::BUFFER_TOO_SMALL),
    (DOS, 267, NtStatus::NOT_A_DIRECTORY),
    (DOS, 282, NtStatus::EAS_NOT_SUPPORTED),
    (SRV, 2, NtStatus::LOGON_FAILURE),
    (SRV, 2, NtStatus::WRONG_PASSWORD),
    (SRV, 2, NtStatus::NO_SUCH_USER),
    (SRV, 6, NtStatus::BAD_NETWORK_NAME),
    (SRV, 7, NtStatus::BAD_DEVICE_TYPE),
    (SRV, 88, NtStatus::IO_TIMEOUT),
    (SRV, 91, NtStatus::USER_SESSION_DELETED),
    (SRV, 2239, NtStatus::ACCOUNT_EXPIRED),
    (SRV, 2240, NtStatus::INVALID_WORKSTATION),
    (SRV, 2241, NtStatus::INVALID_LOGON_HOURS),
    (SRV, 2242, NtStatus::PASSWORD_EXPIRED),
    (HRD, 19, NtStatus::MEDIA_WRITE_PROTECTED),
    (HRD, 21, NtStatus::DEVICE_NOT_READY),
    (HRD, 21, NtStatus::NO_MEDIA_IN_DEVICE),
    (HRD, 23, NtStatus::CRC_ERROR),
    (HRD, 31, NtStatus::IO_DEVICE_ERROR),
    (HRD, 32, NtStatus::SHARING_VIOLATION),
    (HRD, 33, NtStatus::FILE_LOCK_CONFLICT),
    (HRD, 34, NtStatus::WRONG_VOLUME),
    (HRD, 39, NtStatus::DISK_FULL),
];

impl DosError {
    /// Returns the error of a status. Statuses without one become ERRHRD, ERRgeneral, as servers do.
    pub fn of(status: NtStatus) -> Self {
        if status == NtStatus::SUCCESS {
            return Self::default();
        }
        if let Some((class, code, _)) = TABLE.iter().find(|(.., known)| *known == status) {
            return Self {
                class: *class,
                code: *code,
            };
        }
        match is_old(status) {
            true => Self {
                class: (status.0 & 0xFF) as u8,
                code: (status.0 >> 16) as u16,
            },
            false => Self { class: HRD, code: 31 },
        }
    }

    /// Returns the status of an error. Errors of known classes without one keep class and code, see
    /// [`status`].
    pub fn to_status(self) -> NtStatus {
        if self.class == 0 {
            return NtStatus::SUCCESS;
        }
        let found = TABLE
            .iter()
            .find(|(class, code, _)| (*class, *code) == (self.class, self.code));
        match found {
            Some((.., status)) => *status,
            None if self.class <= HRD && (1..0x1000).contains(&self.code) => {
                NtStatus(u32::from(self.code) << 16 | u32::from(self.class))
            }
            None => NtStatus::UNSUCCESSFUL,
        }
    }

    /// Reads the four bytes of a header's `Status`.
    pub(crate) fn from_bytes([class, _, low, high]: [u8; 4]) -> Self {
        Self {
            class,
            code: u16::from_le_bytes([low, high]),
        }
    }

    /// Returns the four bytes of a header's `Status`.
    pub(crate) fn to_bytes(self) -> [u8; 4] {
        let [low, high] = self.code.to_le_bytes();
        [self.class, 0, low, high]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_matter_survive_the_way_there_and_back() {
        for status in [
            NtStatus::SUCCESS,
            NtStatus::OBJECT_NAME_NOT_FOUND,
            NtStatus::OBJECT_PATH_NOT_FOUND,
            NtStatus::ACCESS_DENIED,
            NtStatus::SHARING_VIOLATION,
            NtStatus::OBJECT_NAME_COLLISION,
            NtStatus::NO_MORE_FILES,
            NtStatus::DISK_FULL,
            NtStatus::CRC_ERROR,
            status::BAD_UID,
            status::BAD_COMMAND,
        ] {
            let same = DosError::of(status).to_status();
            assert!(
                same == status || same == NtStatus::USER_SESSION_DELETED,
                "{status} {same}"
            );
        }
        assert_eq!(
            DosError::of(NtStatus::VIRUS_INFECTED),
            DosError { class: 3, code: 31 }
        );
    }

    #[test]
    fn every_error_has_a_status_that_is_an_error() {
        for class in 1..=255 {
            for code in (0..=4_000).chain([0x1000, 0x8000, 0xFFFF]) {
                let status = DosError { class, code }.to_status();
                let is_known = is_error(status) || status.is_warning();
                assert!(is_known, "{class} {code}");
            }
        }
        assert!(!is_error(NtStatus::SUCCESS) && !is_error(NtStatus::NO_MORE_FILES));
        assert!(is_error(status::BAD_TID) && !is_error(NtStatus::NOTIFY_ENUM_DIR));
    }
}
