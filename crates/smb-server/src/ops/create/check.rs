//! What is wrong with a CREATE before any file is looked at ([MS-SMB2] 3.3.5.9, [MS-FSA] 2.1.5.1).

use ropeway_smb_wire::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, ImpersonationLevel, ShareAccess,
};
use ropeway_smb_wire::{FileAttributes, NtStatus};

use crate::security::generic_to_specific;

/// A request that is in order by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) disposition: CreateDisposition,
    /// Rights asked for, none of them generic; MAXIMUM_ALLOWED may be among them.
    pub(super) access: AccessMask,
    pub(super) options: CreateOptions,
}

/// Rights that there are.
const RIGHTS: AccessMask = AccessMask::from_bits_retain(0xF31F_01FF);
/// CREATE_TREE_CONNECTION ([MS-FSA] 2.1.5.1): of no use over a network.
const TREE_CONNECTION: CreateOptions = CreateOptions::from_bits_retain(0x80);
/// The options that the specification has a meaning, or silence, for.
const OPTIONS: CreateOptions = CreateOptions::from_bits_retain(0x00FF_FFFF);

impl Wish {
    pub(super) fn check(request: &CreateRequest<'_>) -> Result<Self, NtStatus> {
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
        let valid = FileAttributes::from_bits_retain(0x0000_7FB7) | FileAttributes::DIRECTORY;
        if !valid.contains(request.file_attributes) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let wish = Self {
            disposition: request.disposition,
            access: generic_to_specific(request.desired_access),
            options,
        };
        let directory = options.contains(CreateOptions::DIRECTORY_FILE);
        if directory && (options.contains(CreateOptions::NON_DIRECTORY_FILE) || wish.overwrites()) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let deletes = AccessMask::DELETE | AccessMask::MAXIMUM_ALLOWED;
        if options.contains(CreateOptions::DELETE_ON_CLOSE) && !wish.access.intersects(deletes) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(wish)
    }

    /// A file that is there is emptied.
    pub(super) fn overwrites(&self) -> bool {
        matches!(
            self.disposition,
            CreateDisposition::Supersede | CreateDisposition::Overwrite | CreateDisposition::OverwriteIf
        )
    }

    /// A file that is not there is made.
    pub(super) fn creates(&self) -> bool {
        !matches!(
            self.disposition,
            CreateDisposition::Open | CreateDisposition::Overwrite
        )
    }
}
