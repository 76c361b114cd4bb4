//! Flags and codes in the fields of CREATE.

use crate::codes::codes;
use bitflags::bitflags;

bitflags! {
    /// Access that other opens may have while the file is open ([MS-SMB2] 2.2.13).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ShareAccess: u32 {
        /// Open for reading.
        const READ = 0x0000_0001;
        /// Open for writing.
        const WRITE = 0x0000_0002;
        /// Delete or rename.
        const DELETE = 0x0000_0004;
        const _ = !0;
    }
}

bitflags! {
    /// `CreateOptions` ([MS-SMB2] 2.2.13).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct CreateOptions: u32 {
        /// The target must be a directory, or is created as one.
        const DIRECTORY_FILE = 0x0000_0001;
        /// The server responds to a write when the data is stable.
        const WRITE_THROUGH = 0x0000_0002;
        /// Hint: the client reads sequentially.
        const SEQUENTIAL_ONLY = 0x0000_0004;
        /// The server does not cache the data.
        const NO_INTERMEDIATE_BUFFERING = 0x0000_0008;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_ALERT = 0x0000_0010;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_NONALERT = 0x0000_0020;
        /// The target must not be a directory.
        const NON_DIRECTORY_FILE = 0x0000_0040;
        /// Rejected or ignored by servers.
        const COMPLETE_IF_OPLOCKED = 0x0000_0100;
        /// Fails if the file has extended attributes that the client would not understand.
        const NO_EA_KNOWLEDGE = 0x0000_0200;
        /// Hint: the client reads at random offsets.
        const RANDOM_ACCESS = 0x0000_0800;
        /// The file is deleted when its last open closes.
        const DELETE_ON_CLOSE = 0x0000_1000;
        /// The name is a file id; rejected by servers.
        const OPEN_BY_FILE_ID = 0x0000_2000;
        /// Opens for backup: the user's privileges override the DACL.
        const OPEN_FOR_BACKUP_INTENT = 0x0000_4000;
        /// Does not compress the file.
        const NO_COMPRESSION = 0x0000_8000;
        /// Rejected or ignored by servers.
        const OPEN_REMOTE_INSTANCE = 0x0000_0400;
        /// Ignored by servers.
        const OPEN_REQUIRING_OPLOCK = 0x0001_0000;
        /// Ignored by servers.
        const DISALLOW_EXCLUSIVE = 0x0002_0000;
        /// Rejected by servers.
        const RESERVE_OPFILTER = 0x0010_0000;
        /// Opens the reparse point itself, not its target.
        const OPEN_REPARSE_POINT = 0x0020_0000;
        /// Leaves content on offline storage.
        const OPEN_NO_RECALL = 0x0040_0000;
        /// Opens to query how much space the user may use.
        const OPEN_FOR_FREE_SPACE_QUERY = 0x0080_0000;
        const _ = !0;
    }
}

bitflags! {
    /// `Flags` of a CREATE response ([MS-SMB2] 2.2.14); 3.x.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct CreateResponseFlags: u8 {
        /// The last component of the path is a reparse point.
        const REPARSE_POINT = 0x01;
        const _ = !0;
    }
}

/// `CreateDisposition`: action if the file exists, or does not exist ([MS-SMB2] 2.2.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CreateDisposition {
    /// Replace an existing file; create a missing one.
    Supersede = 0,
    /// Open an existing file; fail if it is missing.
    Open = 1,
    /// Fail if the file exists; create a missing one.
    Create = 2,
    /// Open an existing file; create a missing one.
    OpenIf = 3,
    /// Truncate an existing file; fail if it is missing.
    Overwrite = 4,
    /// Truncate an existing file; create a missing one.
    OverwriteIf = 5,
}

impl CreateDisposition {
    /// Converts the number on the wire. Returns `None` for values that the specification does not
    /// have.
    pub fn from_wire(value: u32) -> Option<Self> {
        use CreateDisposition::{Create, Open, OpenIf, Overwrite, OverwriteIf, Supersede};
        [Supersede, Open, Create, OpenIf, Overwrite, OverwriteIf]
            .into_iter()
            .find(|disposition| disposition.to_wire() == value)
    }

    /// Returns the number on the wire.
    pub fn to_wire(self) -> u32 {
        self as u32
    }
}

/// Oplock level ([MS-SMB2] 2.2.13, 2.2.14, 2.2.23.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OplockLevel {
    /// No caching.
    #[default]
    None = 0x00,
    /// The client may cache reads.
    LevelII = 0x01,
    /// The client may cache reads and writes.
    Exclusive = 0x08,
    /// The client may cache reads, writes and the open itself.
    Batch = 0x09,
    /// The lease context has the caching rights.
    Lease = 0xFF,
}

impl OplockLevel {
    /// Converts the number on the wire. Returns `None` for values that the specification does not
    /// have.
    pub fn from_wire(value: u8) -> Option<Self> {
        [
            Self::None,
            Self::LevelII,
            Self::Exclusive,
            Self::Batch,
            Self::Lease,
        ]
        .into_iter()
        .find(|level| level.to_wire() == value)
    }

    /// Returns the number on the wire.
    pub fn to_wire(self) -> u8 {
        self as u8
    }
}

codes! {
    /// Degree to which the server may act as the user ([MS-SMB2] 2.2.13). The decoder keeps other
    /// numbers, because the server rejects them with a status of its own,
    /// STATUS_BAD_IMPERSONATION_LEVEL ([MS-SMB2] 3.3.5.9).
    pub struct ImpersonationLevel(u32) {
        /// Not even learn the user's identity.
        ANONYMOUS = 0;
        /// Learn the user's identity.
        IDENTIFICATION = 1;
        /// Act as the user on the server; what clients send.
        IMPERSONATION = 2;
        /// Act as the user on other machines, too.
        DELEGATE = 3;
    }
}

codes! {
    /// Action that a CREATE took ([MS-SMB2] 2.2.14). Nothing depends on unknown values, so the
    /// decoder keeps them.
    pub struct CreateAction(u32) {
        /// An existing file was replaced.
        SUPERSEDED = 0;
        /// An existing file was opened.
        OPENED = 1;
        /// A file was created.
        CREATED = 2;
        /// An existing file was truncated.
        OVERWRITTEN = 3;
    }
}
