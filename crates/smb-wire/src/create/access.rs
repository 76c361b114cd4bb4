//! Access rights.

use bitflags::bitflags;

bitflags! {
    /// Rights to a file, directory or pipe ([MS-SMB2] 2.2.13.1, [MS-DTYP] 2.4.3). A bit whose
    /// meaning differs between files and directories has two names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AccessMask: u32 {
        /// File: read data.
        const READ_DATA = 0x0000_0001;
        /// Directory: list entries.
        const LIST_DIRECTORY = 0x0000_0001;
        /// File: write data.
        const WRITE_DATA = 0x0000_0002;
        /// Directory: create files.
        const ADD_FILE = 0x0000_0002;
        /// File: append data.
        const APPEND_DATA = 0x0000_0004;
        /// Directory: create subdirectories.
        const ADD_SUBDIRECTORY = 0x0000_0004;
        /// Read extended attributes.
        const READ_EA = 0x0000_0008;
        /// Write extended attributes.
        const WRITE_EA = 0x0000_0010;
        /// File: execute.
        const EXECUTE = 0x0000_0020;
        /// Directory: traverse.
        const TRAVERSE = 0x0000_0020;
        /// Directory: delete children.
        const DELETE_CHILD = 0x0000_0040;
        /// Read attributes and times.
        const READ_ATTRIBUTES = 0x0000_0080;
        /// Change attributes and times.
        const WRITE_ATTRIBUTES = 0x0000_0100;
        /// Delete or rename.
        const DELETE = 0x0001_0000;
        /// Read the security descriptor without the SACL.
        const READ_CONTROL = 0x0002_0000;
        /// Change the DACL.
        const WRITE_DAC = 0x0004_0000;
        /// Change the owner.
        const WRITE_OWNER = 0x0008_0000;
        /// Wait on the handle. No use over SMB, but part of what Windows requests.
        const SYNCHRONIZE = 0x0010_0000;
        /// Read and change the SACL.
        const ACCESS_SYSTEM_SECURITY = 0x0100_0000;
        /// Request all rights that the user has; in requests only.
        const MAXIMUM_ALLOWED = 0x0200_0000;
        /// All rights. The server replaces it with specific rights.
        const GENERIC_ALL = 0x1000_0000;
        /// Execute. The server replaces it with specific rights.
        const GENERIC_EXECUTE = 0x2000_0000;
        /// Write. The server replaces it with specific rights.
        const GENERIC_WRITE = 0x4000_0000;
        /// Read. The server replaces it with specific rights.
        const GENERIC_READ = 0x8000_0000;
        const _ = !0;
    }
}

impl AccessMask {
    /// The specific rights of `GENERIC_ALL` for files (`FILE_ALL_ACCESS`).
    pub const FILE_ALL: Self = Self::from_bits_retain(0x001F_01FF);
    /// The specific rights of `GENERIC_READ` for files (`FILE_GENERIC_READ`).
    pub const FILE_GENERIC_READ: Self = Self::from_bits_retain(0x0012_0089);
    /// The specific rights of `GENERIC_WRITE` for files (`FILE_GENERIC_WRITE`).
    pub const FILE_GENERIC_WRITE: Self = Self::from_bits_retain(0x0012_0116);
    /// The specific rights of `GENERIC_EXECUTE` for files (`FILE_GENERIC_EXECUTE`).
    pub const FILE_GENERIC_EXECUTE: Self = Self::from_bits_retain(0x0012_00A0);
}
