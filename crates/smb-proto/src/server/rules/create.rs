//! Rules of CREATE ([MS-SMB2] 3.3.5.9, [MS-FSA] 2.1.5.1).

use ropeway_smb_wire::create::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, CreateRequest, ImpersonationLevel,
    ShareAccess,
};
use ropeway_smb_wire::{FileAttributes, NtStatus};

/// All access rights of the specification ([MS-SMB2] 2.2.13.1).
const RIGHTS: AccessMask = AccessMask::from_bits_retain(0xF31F_01FF);
/// CREATE_TREE_CONNECTION ([MS-FSA] 2.1.5.1), which has no use over a network.
const TREE_CONNECTION: CreateOptions = CreateOptions::from_bits_retain(0x80);
/// The options that the specification defines or ignores ([MS-SMB2] 2.2.13).
const OPTIONS: CreateOptions = CreateOptions::from_bits_retain(0x00FF_FFFF);
/// The attributes that a request may name ([MS-FSCC] 2.6; smb2.create.gentest of smbtorture finds these on Windows). For
/// others it gets STATUS_INVALID_PARAMETER.
pub const VALID_ATTRIBUTES: FileAttributes = FileAttributes::from_bits_retain(0x0000_7FB7);

/// A CREATE request that is valid by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateIntent {
    /// What to do with a file that exists, or does not.
    pub disposition: CreateDisposition,
    /// Rights asked for, none of them generic; MAXIMUM_ALLOWED may be among them.
    pub access: AccessMask,
    /// Options as sent.
    pub options: CreateOptions,
    /// Attributes as sent.
    pub attributes: FileAttributes,
}

/// A file or folder that exists, as far as [`CreateIntent::check_existing`] needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Existing {
    /// It is a folder.
    pub directory: bool,
    /// Its attributes.
    pub attributes: FileAttributes,
    /// The request names a stream of it, be it the unnamed one (`name::$DATA`).
    pub names_stream: bool,
}

impl CreateIntent {
    /// Checks a request before any file is looked up.
    ///
    /// # Errors
    /// STATUS_BAD_IMPERSONATION_LEVEL, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_ACCESS_DENIED.
    pub fn new(request: &CreateRequest<'_>) -> Result<Self, NtStatus> {
        let options = request.options;
        if request.impersonation_level.0 > ImpersonationLevel::DELEGATE.0 {
            return Err(NtStatus::BAD_IMPERSONATION_LEVEL);
        }
        if !OPTIONS.contains(options) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if options
            .intersects(TREE_CONNECTION | CreateOptions::OPEN_BY_FILE_ID | CreateOptions::RESERVE_OPFILTER)
        {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let all = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
        if !all.contains(request.share_access) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if !RIGHTS.contains(request.desired_access) || request.desired_access.is_empty() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if !(VALID_ATTRIBUTES | FileAttributes::DIRECTORY).contains(request.file_attributes) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let intent = Self {
            disposition: request.disposition,
            access: generic_to_specific(request.desired_access),
            options,
            attributes: request.file_attributes,
        };
        let directory = options.contains(CreateOptions::DIRECTORY_FILE);
        if directory && (options.contains(CreateOptions::NON_DIRECTORY_FILE) || intent.overwrites()) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let deletes = AccessMask::DELETE | AccessMask::MAXIMUM_ALLOWED;
        if options.contains(CreateOptions::DELETE_ON_CLOSE) && !intent.access.intersects(deletes) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(intent)
    }

    /// Whether a file that exists is emptied.
    pub fn overwrites(&self) -> bool {
        matches!(
            self.disposition,
            CreateDisposition::Supersede | CreateDisposition::Overwrite | CreateDisposition::OverwriteIf
        )
    }

    /// Whether a file that does not exist is created.
    pub fn creates(&self) -> bool {
        !matches!(
            self.disposition,
            CreateDisposition::Open | CreateDisposition::Overwrite
        )
    }

    /// Checks whether a file that does not exist may be created on a share.
    ///
    /// # Errors
    /// STATUS_OBJECT_NAME_NOT_FOUND if the disposition creates nothing, STATUS_ACCESS_DENIED on a read-only share,
    /// STATUS_CANNOT_DELETE for a read-only file that is to be deleted on close ([MS-FSA] 2.1.5.1.1).
    pub fn check_missing(&self, read_only_share: bool) -> Result<(), NtStatus> {
        if !self.creates() {
            return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
        }
        if read_only_share {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if self.options.contains(CreateOptions::DELETE_ON_CLOSE)
            && self.attributes.contains(FileAttributes::READONLY)
        {
            return Err(NtStatus::CANNOT_DELETE);
        }
        Ok(())
    }

    /// Checks whether a file that exists is what the request wants, and may be replaced if the request replaces it
    /// ([MS-FSA] 2.1.5.1.2).
    ///
    /// # Errors
    /// STATUS_OBJECT_NAME_COLLISION, STATUS_FILE_IS_A_DIRECTORY, STATUS_NOT_A_DIRECTORY; STATUS_ACCESS_DENIED for a
    /// hidden or system file whose replacement does not say so too ([MS-FSA] 2.1.5.1.2.1).
    pub fn check_existing(&self, existing: Existing) -> Result<(), NtStatus> {
        if self.disposition == CreateDisposition::Create {
            return Err(NtStatus::OBJECT_NAME_COLLISION);
        }
        let not_directory = self.options.contains(CreateOptions::NON_DIRECTORY_FILE) || existing.names_stream;
        if existing.directory && not_directory {
            return Err(NtStatus::FILE_IS_A_DIRECTORY);
        }
        if !existing.directory && self.options.contains(CreateOptions::DIRECTORY_FILE) {
            return Err(NtStatus::NOT_A_DIRECTORY);
        }
        if !self.overwrites() {
            return Ok(());
        }
        if existing.directory {
            return Err(NtStatus::FILE_IS_A_DIRECTORY);
        }
        for guarded in [FileAttributes::HIDDEN, FileAttributes::SYSTEM] {
            if existing.attributes.contains(guarded) && !self.attributes.contains(guarded) {
                return Err(NtStatus::ACCESS_DENIED);
            }
        }
        Ok(())
    }

    /// The action that the response reports ([MS-SMB2] 2.2.14).
    pub fn action(&self, created: bool) -> CreateAction {
        match (created, self.disposition) {
            (true, _) => CreateAction::CREATED,
            (false, CreateDisposition::Supersede) => CreateAction::SUPERSEDED,
            (false, _) if self.overwrites() => CreateAction::OVERWRITTEN,
            (false, _) => CreateAction::OPENED,
        }
    }
}

/// Replaces generic rights by those that they mean for files ([MS-DTYP] 2.4.3); other rights stay.
pub fn generic_to_specific(mask: AccessMask) -> AccessMask {
    let mut specific = mask;
    for (generic, rights) in [
        (AccessMask::GENERIC_ALL, AccessMask::FILE_ALL),
        (AccessMask::GENERIC_READ, AccessMask::FILE_GENERIC_READ),
        (AccessMask::GENERIC_WRITE, AccessMask::FILE_GENERIC_WRITE),
        (AccessMask::GENERIC_EXECUTE, AccessMask::FILE_GENERIC_EXECUTE),
    ] {
        if mask.contains(generic) {
            specific = specific.difference(generic) | rights;
        }
    }
    specific
}

#[cfg(test)]
mod tests {
    use super::*;
    use CreateDisposition::{Create, Open, OpenIf, Overwrite, OverwriteIf, Supersede};

    fn intent(disposition: CreateDisposition) -> CreateIntent {
        CreateIntent {
            disposition,
            access: AccessMask::READ_DATA,
            options: CreateOptions::empty(),
            attributes: FileAttributes::empty(),
        }
    }

    const FILE: Existing = Existing {
        directory: false,
        attributes: FileAttributes::ARCHIVE,
        names_stream: false,
    };
    const FOLDER: Existing = Existing {
        directory: true,
        attributes: FileAttributes::DIRECTORY,
        names_stream: false,
    };

    /// The table of [MS-FSA] 2.1.5.1.1 and 2.1.5.1.2: a missing file, an existing file, an existing folder.
    #[test]
    fn each_disposition_does_what_the_table_says() {
        let collision = Err(NtStatus::OBJECT_NAME_COLLISION);
        let missing = Err(NtStatus::OBJECT_NAME_NOT_FOUND);
        let folder = Err(NtStatus::FILE_IS_A_DIRECTORY);
        for (disposition, when_missing, of_file, of_folder, action) in [
            (Supersede, Ok(()), Ok(()), folder, CreateAction::SUPERSEDED),
            (Open, missing, Ok(()), Ok(()), CreateAction::OPENED),
            (Create, Ok(()), collision, collision, CreateAction::OPENED),
            (OpenIf, Ok(()), Ok(()), Ok(()), CreateAction::OPENED),
            (Overwrite, missing, Ok(()), folder, CreateAction::OVERWRITTEN),
            (OverwriteIf, Ok(()), Ok(()), folder, CreateAction::OVERWRITTEN),
        ] {
            let intent = intent(disposition);
            assert_eq!(intent.check_missing(false), when_missing, "{disposition:?}");
            assert_eq!(intent.check_existing(FILE), of_file, "{disposition:?}");
            assert_eq!(intent.check_existing(FOLDER), of_folder, "{disposition:?}");
            assert_eq!(intent.action(false), action, "{disposition:?}");
            assert_eq!(intent.action(true), CreateAction::CREATED);
        }
    }

    #[test]
    fn nothing_is_created_on_a_read_only_share() {
        assert_eq!(intent(OpenIf).check_missing(true), Err(NtStatus::ACCESS_DENIED));
        assert_eq!(
            intent(Open).check_missing(true),
            Err(NtStatus::OBJECT_NAME_NOT_FOUND)
        );
    }

    #[test]
    fn a_read_only_file_is_not_created_to_be_deleted_on_close() {
        let intent = CreateIntent {
            options: CreateOptions::DELETE_ON_CLOSE,
            attributes: FileAttributes::READONLY,
            ..intent(Create)
        };
        assert_eq!(intent.check_missing(false), Err(NtStatus::CANNOT_DELETE));
    }

    #[test]
    fn options_about_folders_are_kept() {
        let wants_file = CreateIntent {
            options: CreateOptions::NON_DIRECTORY_FILE,
            ..intent(Open)
        };
        assert_eq!(
            wants_file.check_existing(FOLDER),
            Err(NtStatus::FILE_IS_A_DIRECTORY)
        );
        let wants_folder = CreateIntent {
            options: CreateOptions::DIRECTORY_FILE,
            ..intent(Open)
        };
        assert_eq!(wants_folder.check_existing(FILE), Err(NtStatus::NOT_A_DIRECTORY));
        let stream = Existing {
            names_stream: true,
            ..FOLDER
        };
        assert_eq!(
            intent(Open).check_existing(stream),
            Err(NtStatus::FILE_IS_A_DIRECTORY)
        );
    }

    #[test]
    fn hidden_and_system_files_are_replaced_by_such_only() {
        for guarded in [FileAttributes::HIDDEN, FileAttributes::SYSTEM] {
            let existing = Existing {
                attributes: guarded,
                ..FILE
            };
            assert_eq!(intent(Open).check_existing(existing), Ok(()));
            assert_eq!(
                intent(OverwriteIf).check_existing(existing),
                Err(NtStatus::ACCESS_DENIED)
            );
            let too = CreateIntent {
                attributes: guarded,
                ..intent(OverwriteIf)
            };
            assert_eq!(too.check_existing(existing), Ok(()));
        }
    }

    #[test]
    fn generic_rights_become_those_of_files() {
        let mask = AccessMask::GENERIC_READ | AccessMask::DELETE;
        assert_eq!(
            generic_to_specific(mask),
            AccessMask::FILE_GENERIC_READ | AccessMask::DELETE
        );
        assert_eq!(generic_to_specific(AccessMask::GENERIC_ALL), AccessMask::FILE_ALL);
    }
}
