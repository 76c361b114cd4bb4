//! Rights.

use bitflags::bitflags;

bitflags! {
    /// Rights to a file, directory or pipe ([MS-SMB2] 2.2.13.1, [MS-DTYP] 2.4.3). Bits that mean one thing for files
    /// and another for directories have two names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AccessMask: u32 {
        /// File: read content.
        const READ_DATA = 0x0000_0001;
        /// Directory: list it.
        const LIST_DIRECTORY = 0x0000_0001;
        /// File: write content.
        const WRITE_DATA = 0x0000_0002;
        /// Directory: make files in it.
        const ADD_FILE = 0x0000_0002;
        /// File: write at its end.
        const APPEND_DATA = 0x0000_0004;
        /// Directory: make directories in it.
        const ADD_SUBDIRECTORY = 0x0000_0004;
        /// Read extended attributes.
        const READ_EA = 0x0000_0008;
        /// Write extended attributes.
        const WRITE_EA = 0x0000_0010;
        /// File: execute it.
        const EXECUTE = 0x0000_0020;
        /// Directory: pass through it.
        const TRAVERSE = 0x0000_0020;
        /// Directory: delete what is in it.
        const DELETE_CHILD = 0x0000_0040;
        /// Read attributes and times.
        const READ_ATTRIBUTES = 0x0000_0080;
        /// Change attributes and times.
        const WRITE_ATTRIBUTES = 0x0000_0100;
        /// Delete or rename it.
        const DELETE = 0x0001_0000;
        /// Read its security descriptor without the SACL.
        const READ_CONTROL = 0x0002_0000;
        /// Change its DACL.
        const WRITE_DAC = 0x0004_0000;
        /// Change its owner.
        const WRITE_OWNER = 0x0008_0000;
        /// Wait for it; of no use over SMB, but part of what Windows asks for.
        const SYNCHRONIZE = 0x0010_0000;
        /// Read and change its SACL.
        const ACCESS_SYSTEM_SECURITY = 0x0100_0000;
        /// As much as is allowed; in requests only.
        const MAXIMUM_ALLOWED = 0x0200_0000;
        /// Everything; the server puts specific rights in its place.
        const GENERIC_ALL = 0x1000_0000;
        /// Execute; the server puts specific rights in its place.
        const GENERIC_EXECUTE = 0x2000_0000;
        /// Write; the server puts specific rights in its place.
        const GENERIC_WRITE = 0x4000_0000;
        /// Read; the server puts specific rights in its place.
        const GENERIC_READ = 0x8000_0000;
        const _ = !0;
    }
}

impl AccessMask {
    /// What `GENERIC_ALL` means for files (`FILE_ALL_ACCESS`).
    pub const FILE_ALL: Self = Self::from_bits_retain(0x001F_01FF);
    /// What `GENERIC_READ` means for files (`FILE_GENERIC_READ`).
    pub const FILE_GENERIC_READ: Self = Self::from_bits_retain(0x0012_0089);
    /// What `GENERIC_WRITE` means for files (`FILE_GENERIC_WRITE`).
    pub const FILE_GENERIC_WRITE: Self = Self::from_bits_retain(0x0012_0116);
    /// What `GENERIC_EXECUTE` means for files (`FILE_GENERIC_EXECUTE`).
    pub const FILE_GENERIC_EXECUTE: Self = Self::from_bits_retain(0x0012_00A0);
}
