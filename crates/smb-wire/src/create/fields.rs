//! The fields of CREATE that have names.

use crate::codes::codes;
use bitflags::bitflags;

bitflags! {
    /// What others may do while a file is open ([MS-SMB2] 2.2.13).
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
    /// How to open ([MS-SMB2] 2.2.13).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct CreateOptions: u32 {
        /// It must be a directory, or becomes one.
        const DIRECTORY_FILE = 0x0000_0001;
        /// Writes are stable before they are answered.
        const WRITE_THROUGH = 0x0000_0002;
        /// Will be read in order.
        const SEQUENTIAL_ONLY = 0x0000_0004;
        /// The server's cache is not used.
        const NO_INTERMEDIATE_BUFFERING = 0x0000_0008;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_ALERT = 0x0000_0010;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_NONALERT = 0x0000_0020;
        /// It must not be a directory.
        const NON_DIRECTORY_FILE = 0x0000_0040;
        /// Refused or ignored.
        const COMPLETE_IF_OPLOCKED = 0x0000_0100;
        /// Fails if the file has extended attributes that the client would not understand.
        const NO_EA_KNOWLEDGE = 0x0000_0200;
        /// Will be read at random.
        const RANDOM_ACCESS = 0x0000_0800;
        /// Goes when its last open closes.
        const DELETE_ON_CLOSE = 0x0000_1000;
        /// The name is a file id; refused by servers.
        const OPEN_BY_FILE_ID = 0x0000_2000;
        /// For backup: privileges override the DACL.
        const OPEN_FOR_BACKUP_INTENT = 0x0000_4000;
        /// The file is not to be compressed.
        const NO_COMPRESSION = 0x0000_8000;
        /// Refused or ignored.
        const OPEN_REMOTE_INSTANCE = 0x0000_0400;
        /// Ignored by servers.
        const OPEN_REQUIRING_OPLOCK = 0x0001_0000;
        /// Ignored by servers.
        const DISALLOW_EXCLUSIVE = 0x0002_0000;
        /// Refused by servers.
        const RESERVE_OPFILTER = 0x0010_0000;
        /// The reparse point itself, not what it leads to.
        const OPEN_REPARSE_POINT = 0x0020_0000;
        /// Content on offline storage stays there.
        const OPEN_NO_RECALL = 0x0040_0000;
        /// For asking how much space the user may take.
        const OPEN_FOR_FREE_SPACE_QUERY = 0x0080_0000;
        const _ = !0;
    }
}

bitflags! {
    /// `Flags` of a CREATE response ([MS-SMB2] 2.2.14); 3.x.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct CreateResponseFlags: u8 {
        /// The last part of the path is a reparse point.
        const REPARSE_POINT = 0x01;
        const _ = !0;
    }
}

/// What to do if the file exists, or does not ([MS-SMB2] 2.2.13 `CreateDisposition`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CreateDisposition {
    /// Replace it, or make it.
    Supersede = 0,
    /// Open it, or fail.
    Open = 1,
    /// Fail, or make it.
    Create = 2,
    /// Open it, or make it.
    OpenIf = 3,
    /// Empty it, or fail.
    Overwrite = 4,
    /// Empty it, or make it.
    OverwriteIf = 5,
}

impl CreateDisposition {
    /// From the wire; `None` for values the specification does not have.
    pub fn from_wire(value: u32) -> Option<Self> {
        use CreateDisposition::{Create, Open, OpenIf, Overwrite, OverwriteIf, Supersede};
        [Supersede, Open, Create, OpenIf, Overwrite, OverwriteIf]
            .into_iter()
            .find(|disposition| disposition.to_wire() == value)
    }

    /// To the wire.
    pub fn to_wire(self) -> u32 {
        self as u32
    }
}

/// An oplock ([MS-SMB2] 2.2.13, 2.2.14, 2.2.23.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OplockLevel {
    /// None.
    #[default]
    None = 0x00,
    /// Reads may be cached.
    LevelII = 0x01,
    /// Reads and writes may be cached.
    Exclusive = 0x08,
    /// Reads, writes and the open itself may be cached.
    Batch = 0x09,
    /// The lease context says.
    Lease = 0xFF,
}

impl OplockLevel {
    /// From the wire; `None` for values the specification does not have.
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

    /// To the wire.
    pub fn to_wire(self) -> u8 {
        self as u8
    }
}

codes! {
    /// How far the server may act as the user ([MS-SMB2] 2.2.13). Others than these four are for the server to refuse
    /// with a status of its own, STATUS_BAD_IMPERSONATION_LEVEL ([MS-SMB2] 3.3.5.9).
    pub struct ImpersonationLevel(u32) {
        /// Not even know who it is.
        ANONYMOUS = 0;
        /// Know who it is.
        IDENTIFICATION = 1;
        /// Act as the user on its own machine; what clients send.
        IMPERSONATION = 2;
        /// Act as the user on other machines too.
        DELEGATE = 3;
    }
}

codes! {
    /// What a CREATE did ([MS-SMB2] 2.2.14). Nothing depends on values that are not here, so they are no fault.
    pub struct CreateAction(u32) {
        /// Replaced a file.
        SUPERSEDED = 0;
        /// Opened a file.
        OPENED = 1;
        /// Made a file.
        CREATED = 2;
        /// Emptied a file.
        OVERWRITTEN = 3;
    }
}
