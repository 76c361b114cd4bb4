//! What CREATE asks and answers.

use ropeway_smb_wire::create::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, CreateResponse, ShareAccess,
};
use ropeway_smb_wire::create_context::{OnDiskId, ResponseContext};
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::{FileAttributes, FileTime};

/// Attributes that a user sets and a copy keeps ([MS-FSCC] 2.6); the others say what the file system did.
pub(crate) const KEPT: FileAttributes = FileAttributes::READONLY
    .union(FileAttributes::HIDDEN)
    .union(FileAttributes::SYSTEM)
    .union(FileAttributes::ARCHIVE)
    .union(FileAttributes::NOT_CONTENT_INDEXED);

/// How to open a file or directory ([MS-SMB2] 2.2.13). Start from a constructor and change what differs.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// Rights asked for.
    pub access: AccessMask,
    /// Attributes of a file that is made.
    pub attributes: FileAttributes,
    /// What others may do meanwhile.
    pub share: ShareAccess,
    /// What to do if it exists, and if not.
    pub disposition: CreateDisposition,
    /// How.
    pub options: CreateOptions,
    /// Ask for an open that survives a lost connection, where the client's options and the server allow it.
    pub durable: bool,
    /// Space to reserve.
    pub allocation: Option<u64>,
    /// A security descriptor for a file that is made.
    pub security: Option<Vec<u8>>,
    /// The file as it was then (a snapshot).
    pub snapshot: Option<FileTime>,
    /// Ask for the file's id in its volume, by which a lost open is known again.
    pub query_on_disk_id: bool,
    /// Ask what the user may do.
    pub query_maximal_access: bool,
}

impl OpenFile {
    fn of(access: AccessMask, disposition: CreateDisposition, options: CreateOptions) -> Self {
        Self {
            access,
            attributes: FileAttributes::default(),
            share: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition,
            options,
            durable: false,
            allocation: None,
            security: None,
            snapshot: None,
            query_on_disk_id: true,
            query_maximal_access: false,
        }
    }

    /// An existing file, to read.
    pub fn read() -> Self {
        let access = AccessMask::FILE_GENERIC_READ;
        Self {
            durable: true,
            ..Self::of(access, CreateDisposition::Open, CreateOptions::NON_DIRECTORY_FILE)
        }
    }

    /// A file to write (and read, rename and delete).
    pub fn write(disposition: CreateDisposition) -> Self {
        let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE;
        Self {
            attributes: FileAttributes::NORMAL,
            durable: true,
            ..Self::of(access, disposition, CreateOptions::NON_DIRECTORY_FILE)
        }
    }

    /// An existing directory, to list and watch.
    pub fn directory() -> Self {
        let access = AccessMask::LIST_DIRECTORY | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        Self::of(access, CreateDisposition::Open, CreateOptions::DIRECTORY_FILE)
    }

    /// A directory to make.
    pub fn make_directory() -> Self {
        let access = AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        Self {
            attributes: FileAttributes::DIRECTORY,
            ..Self::of(access, CreateDisposition::Create, CreateOptions::DIRECTORY_FILE)
        }
    }

    /// Whatever is there, with these rights, without following a reparse point.
    pub fn metadata(access: AccessMask) -> Self {
        let options = CreateOptions::OPEN_REPARSE_POINT;
        Self::of(access | AccessMask::SYNCHRONIZE, CreateDisposition::Open, options)
    }

    /// Whatever is there, to delete or rename it, without following a reparse point.
    pub fn delete() -> Self {
        Self::metadata(AccessMask::DELETE | AccessMask::READ_ATTRIBUTES)
    }
}

/// What CREATE answered ([MS-SMB2] 2.2.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// What became of it: opened, created, overwritten.
    pub action: CreateAction,
    /// Times and attributes.
    pub basic: FileBasicInformation,
    /// Bytes allocated.
    pub allocation_size: u64,
    /// Bytes of content.
    pub end_of_file: u64,
    /// Which file it is, where the server tells.
    pub on_disk_id: Option<OnDiskId>,
    /// What the user may do, where it was asked and the server tells.
    pub maximal_access: Option<AccessMask>,
    /// Whether the open survives a lost connection.
    pub durable: bool,
}

impl Created {
    pub(crate) fn from_wire(response: &CreateResponse<'_>) -> Self {
        let mut created = Self {
            action: response.create_action,
            basic: FileBasicInformation {
                creation_time: response.creation_time,
                last_access_time: response.last_access_time,
                last_write_time: response.last_write_time,
                change_time: response.change_time,
                attributes: response.file_attributes,
            },
            allocation_size: response.allocation_size,
            end_of_file: response.end_of_file,
            on_disk_id: None,
            maximal_access: None,
            durable: false,
        };
        for context in &response.contexts {
            match context {
                ResponseContext::OnDiskId(id) => created.on_disk_id = Some(*id),
                ResponseContext::MaximalAccess(access) if access.query_status.is_success() => {
                    created.maximal_access = Some(access.maximal_access);
                }
                ResponseContext::Durable | ResponseContext::DurableV2(_) => created.durable = true,
                _ => {}
            }
        }
        created
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.basic.attributes.contains(FileAttributes::DIRECTORY)
    }
}
