//! The header of every message ([MS-CIFS] 2.2.3.1).

use bitflags::bitflags;
use ropeway_smb_wire::frame::Protocol;
use ropeway_smb_wire::{DecodeErrorKind, NtStatus, Reader, Result, Writer};

use crate::dos_error;
use crate::words::flag_fields;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 32;

/// Offset of `SecurityFeatures`, which holds the signature.
pub const SIGNATURE_OFFSET: usize = 14;

macro_rules! commands {
    ($($(#[$meta:meta])* $name:ident = $value:literal;)*) => {
        impl Command {
            $($(#[$meta])* pub const $name: Self = Self($value);)*
        }

        impl std::fmt::Debug for Command {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(other) => write!(f, "Command({other:#04x})"),
                }
            }
        }
    };
}

/// Command code ([MS-CIFS] 2.2.2.1). Unknown numbers are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command(pub u8);

commands! {
    /// SMB_COM_CREATE_DIRECTORY.
    CREATE_DIRECTORY = 0x00;
    /// SMB_COM_DELETE_DIRECTORY.
    DELETE_DIRECTORY = 0x01;
    /// SMB_COM_OPEN.
    OPEN = 0x02;
    /// SMB_COM_CREATE.
    CREATE = 0x03;
    /// SMB_COM_CLOSE.
    CLOSE = 0x04;
    /// SMB_COM_FLUSH.
    FLUSH = 0x05;
    /// SMB_COM_DELETE.
    DELETE = 0x06;
    /// SMB_COM_RENAME.
    RENAME = 0x07;
    /// SMB_COM_QUERY_INFORMATION.
    QUERY_INFORMATION = 0x08;
    /// SMB_COM_SET_INFORMATION.
    SET_INFORMATION = 0x09;
    /// SMB_COM_READ.
    READ = 0x0A;
    /// SMB_COM_WRITE.
    WRITE = 0x0B;
    /// SMB_COM_LOCK_BYTE_RANGE.
    LOCK_BYTE_RANGE = 0x0C;
    /// SMB_COM_UNLOCK_BYTE_RANGE.
    UNLOCK_BYTE_RANGE = 0x0D;
    /// SMB_COM_CREATE_TEMPORARY.
    CREATE_TEMPORARY = 0x0E;
    /// SMB_COM_CREATE_NEW.
    CREATE_NEW = 0x0F;
    /// SMB_COM_CHECK_DIRECTORY.
    CHECK_DIRECTORY = 0x10;
    /// SMB_COM_PROCESS_EXIT.
    PROCESS_EXIT = 0x11;
    /// SMB_COM_SEEK.
    SEEK = 0x12;
    /// SMB_COM_LOCK_AND_READ.
    LOCK_AND_READ = 0x13;
    /// SMB_COM_WRITE_AND_UNLOCK.
    WRITE_AND_UNLOCK = 0x14;
    /// SMB_COM_SET_INFORMATION2.
    SET_INFORMATION2 = 0x22;
    /// SMB_COM_QUERY_INFORMATION2.
    QUERY_INFORMATION2 = 0x23;
    /// SMB_COM_LOCKING_ANDX.
    LOCKING_ANDX = 0x24;
    /// SMB_COM_TRANSACTION.
    TRANSACTION = 0x25;
    /// SMB_COM_TRANSACTION_SECONDARY.
    TRANSACTION_SECONDARY = 0x26;
    /// SMB_COM_ECHO.
    ECHO = 0x2B;
    /// SMB_COM_WRITE_AND_CLOSE.
    WRITE_AND_CLOSE = 0x2C;
    /// SMB_COM_OPEN_ANDX.
    OPEN_ANDX = 0x2D;
    /// SMB_COM_READ_ANDX.
    READ_ANDX = 0x2E;
    /// SMB_COM_WRITE_ANDX.
    WRITE_ANDX = 0x2F;
    /// SMB_COM_TRANSACTION2.
    TRANSACTION2 = 0x32;
    /// SMB_COM_TRANSACTION2_SECONDARY.
    TRANSACTION2_SECONDARY = 0x33;
    /// SMB_COM_FIND_CLOSE2.
    FIND_CLOSE2 = 0x34;
    /// SMB_COM_TREE_CONNECT.
    TREE_CONNECT = 0x70;
    /// SMB_COM_TREE_DISCONNECT.
    TREE_DISCONNECT = 0x71;
    /// SMB_COM_NEGOTIATE.
    NEGOTIATE = 0x72;
    /// SMB_COM_SESSION_SETUP_ANDX.
    SESSION_SETUP_ANDX = 0x73;
    /// SMB_COM_LOGOFF_ANDX.
    LOGOFF_ANDX = 0x74;
    /// SMB_COM_TREE_CONNECT_ANDX.
    TREE_CONNECT_ANDX = 0x75;
    /// SMB_COM_QUERY_INFORMATION_DISK.
    QUERY_INFORMATION_DISK = 0x80;
    /// SMB_COM_SEARCH.
    SEARCH = 0x81;
    /// SMB_COM_FIND.
    FIND = 0x82;
    /// SMB_COM_FIND_UNIQUE.
    FIND_UNIQUE = 0x83;
    /// SMB_COM_FIND_CLOSE.
    FIND_CLOSE = 0x84;
    /// SMB_COM_NT_TRANSACT.
    NT_TRANSACT = 0xA0;
    /// SMB_COM_NT_TRANSACT_SECONDARY.
    NT_TRANSACT_SECONDARY = 0xA1;
    /// SMB_COM_NT_CREATE_ANDX.
    NT_CREATE_ANDX = 0xA2;
    /// SMB_COM_NT_CANCEL.
    NT_CANCEL = 0xA4;
    /// SMB_COM_NT_RENAME.
    NT_RENAME = 0xA5;
    /// SMB_COM_NO_ANDX_COMMAND.
    NO_ANDX_COMMAND = 0xFF;
}

impl Command {
    /// Returns whether the words of request and response begin with an [`AndX`](crate::AndX).
    pub fn has_andx(self) -> bool {
        matches!(
            self,
            Self::LOCKING_ANDX
                | Self::OPEN_ANDX
                | Self::READ_ANDX
                | Self::WRITE_ANDX
                | Self::SESSION_SETUP_ANDX
                | Self::LOGOFF_ANDX
                | Self::TREE_CONNECT_ANDX
                | Self::NT_CREATE_ANDX
        )
    }
}

bitflags! {
    /// `Flags` of the header.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// The server supports LOCK_AND_READ and WRITE_AND_UNLOCK.
        const LOCK_AND_READ_OK = 0x01;
        /// Paths ignore case.
        const CASE_INSENSITIVE = 0x08;
        /// Paths have their canonical form.
        const CANONICALIZED_PATHS = 0x10;
        /// An open asks for an exclusive oplock (core commands only).
        const OPLOCK = 0x20;
        /// That oplock is a batch oplock.
        const OPBATCH = 0x40;
        /// The message comes from the server.
        const REPLY = 0x80;
        const _ = !0;
    }
}

bitflags! {
    /// `Flags2` of the header ([MS-SMB] 2.2.3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags2: u16 {
        /// The sender knows long names.
        const LONG_NAMES = 0x0001;
        /// The sender knows extended attributes.
        const EAS = 0x0002;
        /// The message is signed.
        const SECURITY_SIGNATURE = 0x0004;
        /// The sender requires signatures.
        const SECURITY_SIGNATURE_REQUIRED = 0x0010;
        /// Paths hold long names.
        const IS_LONG_NAME = 0x0040;
        /// A path may lead through a snapshot (`@GMT-…`).
        const REPARSE_PATH = 0x0400;
        /// Session setup carries SPNEGO tokens.
        const EXTENDED_SECURITY = 0x0800;
        /// Paths are DFS paths.
        const DFS = 0x1000;
        /// The open's right to execute also allows reading.
        const PAGING_IO = 0x2000;
        /// The status is an NTSTATUS.
        const NT_STATUS = 0x4000;
        /// Strings are UTF-16.
        const UNICODE = 0x8000;
        const _ = !0;
    }
}

flag_fields!(Flags: u8, Flags2: u16);

/// The header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The command.
    pub command: Command,
    /// The status of a response. Without [`Flags2::NT_STATUS`] it was a DOS error on the wire.
    pub status: NtStatus,
    /// Flags.
    pub flags: Flags,
    /// More flags.
    pub flags2: Flags2,
    /// The process (`PIDHigh` and `PIDLow`).
    pub pid: u32,
    /// The signature.
    pub signature: [u8; 8],
    /// The tree.
    pub tid: u16,
    /// The session.
    pub uid: u16,
    /// The request's number, which its response repeats.
    pub mid: u16,
}

impl Header {
    /// `TID` and `UID` of a request without a tree or session.
    pub const NONE: u16 = 0xFFFF;
    /// `MID` of an oplock break, which answers no request ([MS-CIFS] 2.2.4.32.1).
    pub const MID_BREAK: u16 = 0xFFFF;

    /// Reads the header.
    ///
    /// # Errors
    /// Truncation, another protocol's magic number.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(message, "SMB_Header");
        if reader.array::<4>()? != Protocol::Smb1.id() {
            return Err(reader.error(DecodeErrorKind::Signature));
        }
        let command = Command(reader.u8()?);
        let status = reader.array::<4>()?;
        let flags = Flags::from_bits_retain(reader.u8()?);
        let flags2 = Flags2::from_bits_retain(reader.u16()?);
        let pid_high = reader.u16()?;
        let signature = reader.array()?;
        reader.skip(2)?;
        let tid = reader.u16()?;
        let pid_low = reader.u16()?;
        let status = match flags2.contains(Flags2::NT_STATUS) {
            true => NtStatus(u32::from_le_bytes(status)),
            false => dos_error::DosError::from_bytes(status).to_status(),
        };
        Ok(Self {
            command,
            status,
            flags,
            flags2,
            pid: u32::from(pid_high) << 16 | u32::from(pid_low),
            signature,
            tid,
            uid: reader.u16()?,
            mid: reader.u16()?,
        })
    }

    /// Appends the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&Protocol::Smb1.id());
        w.u8(self.command.0);
        match self.flags2.contains(Flags2::NT_STATUS) {
            true => w.u32(self.status.0),
            false => w.bytes(&dos_error::DosError::of(self.status).to_bytes()),
        }
        w.u8(self.flags.bits());
        w.u16(self.flags2.bits());
        w.u16((self.pid >> 16) as u16);
        w.bytes(&self.signature);
        w.zeros(2);
        w.u16(self.tid);
        w.u16(self.pid as u16);
        w.u16(self.uid);
        w.u16(self.mid);
    }

    /// Returns whether strings of the message are UTF-16.
    pub fn is_unicode(&self) -> bool {
        self.flags2.contains(Flags2::UNICODE)
    }

    /// Returns the header of a response to this request.
    pub fn reply(&self, status: NtStatus) -> Self {
        Self {
            status,
            flags: self.flags | Flags::REPLY,
            signature: [0; 8],
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile;

    proptest! {
        #[test]
        fn headers_round_trip(
            command: u8, status: u32, flags: u8, flags2: u16, pid: u32, signature: [u8; 8],
            tid: u16, uid: u16, mid: u16,
        ) {
            let header = Header {
                command: Command(command),
                status: NtStatus(status),
                flags: Flags::from_bits_retain(flags),
                flags2: Flags2::from_bits_retain(flags2) | Flags2::NT_STATUS,
                pid, signature, tid, uid, mid,
            };
            let bytes = hostile::structure(|w| header.encode(w));
            prop_assert_eq!(bytes.len(), HEADER_LEN);
            prop_assert_eq!(&bytes[SIGNATURE_OFFSET..][..8], &signature);
            prop_assert_eq!(Header::decode(&bytes), Ok(header));
        }
    }

    #[test]
    fn old_statuses_are_translated() {
        let mut header = Header {
            status: NtStatus::ACCESS_DENIED,
            ..Header::default()
        };
        let bytes = hostile::structure(|w| header.encode(w));
        assert_eq!(bytes[5..9], [1, 0, 5, 0], "ERRDOS, ERRnoaccess");
        assert_eq!(Header::decode(&bytes).unwrap().status, NtStatus::ACCESS_DENIED);
        header.flags2 = Flags2::NT_STATUS;
        let bytes = hostile::structure(|w| header.encode(w));
        assert_eq!(bytes[5..9], 0xC000_0022_u32.to_le_bytes());
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let bytes = hostile::structure(|w| Header::default().encode(w));
        hostile::attack(&bytes, 0, |bytes| Header::decode(bytes).is_ok());
        assert_eq!(
            Header::decode(b"\xFESMB").unwrap_err().kind,
            DecodeErrorKind::Signature
        );
    }
}
