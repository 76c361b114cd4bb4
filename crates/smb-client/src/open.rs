//! The parameters and the result of CREATE.

use ropeway_smb_wire::create::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, CreateResponse, ShareAccess,
};
use ropeway_smb_wire::create_context::{OnDiskId, PrivateReply, ResponseContext};
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::{FileAttributes, FileTime, LeaseKey};

/// Attributes that a user sets and a copy keeps ([MS-FSCC] 2.6). The others report what the file
/// system did.
pub(crate) const KEPT: FileAttributes = FileAttributes::READONLY
    .union(FileAttributes::HIDDEN)
    .union(FileAttributes::SYSTEM)
    .union(FileAttributes::ARCHIVE)
    .union(FileAttributes::NOT_CONTENT_INDEXED);

/// How to open a file or directory ([MS-SMB2] 2.2.13). Start from a constructor and change the
/// fields that differ.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// Requested access rights.
    pub access: AccessMask,
    /// Attributes of a newly created file.
    pub attributes: FileAttributes,
    /// Access that other opens may have at the same time.
    pub share: ShareAccess,
    /// What to do if the path exists, and if it does not.
    pub disposition: CreateDisposition,
    /// Create options.
    pub options: CreateOptions,
    /// Whether to request a durable handle, which survives a lost connection, where the client's
    /// options and the server allow it.
    pub durable: bool,
    /// Whether to request a lease on a directory, where the server has such leases. Only a listing
    /// of a store sets it.
    pub directory_lease: bool,
    /// The key of the client's lease on the folder. The server does not break that lease for what
    /// this open changes ([MS-SMB2] 3.3.1.4 `ParentLeaseKey`); the client knows of it already.
    pub parent_lease: Option<LeaseKey>,
    /// Bytes to allocate.
    pub allocation: Option<u64>,
    /// Security descriptor of a newly created file.
    pub security: Option<Vec<u8>>,
    /// Opens the file as it was at this time (a snapshot).
    pub snapshot: Option<FileTime>,
    /// Whether to request the file's id on its volume, which identifies the file when it is opened
    /// again.
    pub query_on_disk_id: bool,
    /// Whether to request the maximal access of the user.
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
            directory_lease: false,
            parent_lease: None,
            allocation: None,
            security: None,
            snapshot: None,
            query_on_disk_id: true,
            query_maximal_access: false,
        }
    }

    /// Opens an existing file for reading.
    pub fn read() -> Self {
        let access = AccessMask::FILE_GENERIC_READ;
        Self {
            durable: true,
            ..Self::of(access, CreateDisposition::Open, CreateOptions::NON_DIRECTORY_FILE)
        }
    }

    /// Opens a file for writing, reading, renaming and deleting.
    pub fn write(disposition: CreateDisposition) -> Self {
        let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE;
        Self {
            attributes: FileAttributes::NORMAL,
            durable: true,
            ..Self::of(access, disposition, CreateOptions::NON_DIRECTORY_FILE)
        }
    }

    /// Opens an existing directory for listing and watching.
    pub fn directory() -> Self {
        let access = AccessMask::LIST_DIRECTORY | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        Self::of(access, CreateDisposition::Open, CreateOptions::DIRECTORY_FILE)
    }

    /// Creates a directory.
    pub fn make_directory() -> Self {
        let access = AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        Self {
            attributes: FileAttributes::DIRECTORY,
            ..Self::of(access, CreateDisposition::Create, CreateOptions::DIRECTORY_FILE)
        }
    }

    /// Opens a node of any kind with these access rights. Does not follow a reparse point.
    pub fn metadata(access: AccessMask) -> Self {
        let options = CreateOptions::OPEN_REPARSE_POINT;
        Self::of(access | AccessMask::SYNCHRONIZE, CreateDisposition::Open, options)
    }

    /// Opens a node of any kind for deleting or renaming. Does not follow a reparse point.
    pub fn delete() -> Self {
        Self::metadata(AccessMask::DELETE | AccessMask::READ_ATTRIBUTES)
    }
}

/// The result of CREATE ([MS-SMB2] 2.2.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Whether the file was opened, created or overwritten.
    pub action: CreateAction,
    /// Times and attributes.
    pub basic: FileBasicInformation,
    /// Bytes allocated.
    pub allocation_size: u64,
    /// Bytes of content.
    pub end_of_file: u64,
    /// The file's id on its volume, if the server reports it.
    pub on_disk_id: Option<OnDiskId>,
    /// The maximal access of the user, if it was requested and the server reports it.
    pub maximal_access: Option<AccessMask>,
    /// Whether the handle is durable: it survives a lost connection.
    pub durable: bool,
    /// The private controls of the share, if the client asked for them and the server has any.
    pub(crate) private: Option<PrivateReply>,
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
            private: None,
        };
        for context in &response.contexts {
            match context {
                ResponseContext::OnDiskId(id) => created.on_disk_id = Some(*id),
                ResponseContext::MaximalAccess(access) if access.query_status.is_success() => {
                    created.maximal_access = Some(access.maximal_access);
                }
                ResponseContext::Private(reply) => created.private = Some(*reply),
                ResponseContext::Durable | ResponseContext::DurableV2(_) => created.durable = true,
                _ => {}
            }
        }
        created
    }

    /// Returns whether the node is a directory.
    pub fn is_directory(&self) -> bool {
        self.basic.attributes.contains(FileAttributes::DIRECTORY)
    }
}
