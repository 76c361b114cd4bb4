//! TREE_CONNECT: enters a share ([MS-SMB2] 2.2.9, 2.2.10).

use super::create::AccessMask;
use super::cursor::{Fault, Reader, Result, Writer};
use super::lengths::{len_u16, named};
use super::text::Text;
use bitflags::bitflags;

bitflags! {
    /// `Flags` of the request (3.1.1; [MS-SMB2] 2.2.9).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct TreeConnectFlags: u16 {
        /// The client already uses the cluster that owns the share.
        const CLUSTER_RECONNECT = 0x0001;
        /// The client can be sent to the share's owner.
        const REDIRECT_TO_OWNER = 0x0002;
        /// An extension with contexts follows ([MS-SMB2] 2.2.9.1). Its contexts are not decoded, nor ever sent.
        const EXTENSION_PRESENT = 0x0004;
        const _ = !0;
    }
}

/// Asks to enter a share ([MS-SMB2] 2.2.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeConnectRequest {
    /// Flags.
    pub flags: TreeConnectFlags,
    /// `\\server\share`.
    pub path: Text,
}

impl TreeConnectRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 TREE_CONNECT Request");
        reader.structure_size(9)?;
        let flags = TreeConnectFlags::from_bits_retain(reader.u16()?);
        let fault = reader.fault(Fault::Value);
        let offset = usize::from(reader.u16()?);
        let length = usize::from(reader.u16()?);
        let path = Text::from_le_bytes(reader.slice(offset, length)?).ok_or(fault)?;
        Ok(Self { flags, path })
    }

    /// Appends a request.
    ///
    /// # Panics
    /// If the path is longer than 65,535 bytes or there should be an extension.
    pub fn encode(&self, w: &mut Writer<'_>) {
        assert!(
            !self.flags.intersects(TreeConnectFlags::EXTENSION_PRESENT),
            "extensions are not sent"
        );
        w.u16(9);
        w.u16(self.flags.bits());
        w.u16(len_u16(w.position() + 4));
        w.u16(len_u16(self.path.wire_len()));
        self.path.write(w);
    }
}

/// What is shared ([MS-SMB2] 2.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShareType {
    /// A tree of files.
    Disk,
    /// Named pipes: `IPC$`.
    Pipe,
    /// A printer.
    Print,
}

impl ShareType {
    /// From the number on the wire.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Disk),
            2 => Some(Self::Pipe),
            3 => Some(Self::Print),
            _ => None,
        }
    }

    /// The number on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Disk => 1,
            Self::Pipe => 2,
            Self::Print => 3,
        }
    }
}

bitflags! {
    /// `ShareFlags` ([MS-SMB2] 2.2.10).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ShareFlags: u32 {
        /// In DFS.
        const DFS = 0x0000_0001;
        /// The root of a DFS namespace.
        const DFS_ROOT = 0x0000_0002;
        /// The offline caching, two bits: 0x00 manual, 0x10 automatic, 0x20 for programs, 0x30 none.
        const CACHING_MASK = 0x0000_0030;
        /// Files are not to be opened exclusively.
        const RESTRICT_EXCLUSIVE_OPENS = 0x0000_0100;
        /// Open files can be deleted.
        const FORCE_SHARED_DELETE = 0x0000_0200;
        /// Listings may be cached.
        const ALLOW_NAMESPACE_CACHING = 0x0000_0400;
        /// Listings leave out what the user may not read.
        const ACCESS_BASED_DIRECTORY_ENUM = 0x0000_0800;
        /// No exclusive caching.
        const FORCE_LEVELII_OPLOCK = 0x0000_1000;
        /// Hashes for branch caches, version 1.
        const ENABLE_HASH_V1 = 0x0000_2000;
        /// Hashes for branch caches, version 2.
        const ENABLE_HASH_V2 = 0x0000_4000;
        /// The server demands encryption for this share (3.x).
        const ENCRYPT_DATA = 0x0000_8000;
        /// Identity remoting (3.1.1).
        const IDENTITY_REMOTING = 0x0004_0000;
        /// The server wishes compression for this share (3.1.1).
        const COMPRESS_DATA = 0x0010_0000;
        /// The share wants a connection of its own.
        const ISOLATED_TRANSPORT = 0x0020_0000;
        const _ = !0;
    }
}

bitflags! {
    /// `Capabilities` of a share ([MS-SMB2] 2.2.10).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ShareCapabilities: u32 {
        /// In DFS.
        const DFS = 0x0000_0008;
        /// Persistent handles survive the server's failure (3.x).
        const CONTINUOUS_AVAILABILITY = 0x0000_0010;
        /// On several nodes of a cluster at once (3.x).
        const SCALEOUT = 0x0000_0020;
        /// On a cluster: watch for its moves (3.x).
        const CLUSTER = 0x0000_0040;
        /// One node is better than the others (3.0.2).
        const ASYMMETRIC = 0x0000_0080;
        /// Clients are sent to the owner (3.1.1).
        const REDIRECT_TO_OWNER = 0x0000_0100;
        const _ = !0;
    }
}

/// The share is entered; its tree id is in the header ([MS-SMB2] 2.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeConnectResponse {
    /// What it is.
    pub share_type: ShareType,
    /// Flags.
    pub share_flags: ShareFlags,
    /// What it can do.
    pub capabilities: ShareCapabilities,
    /// What the user may do at most.
    pub maximal_access: AccessMask,
}

impl TreeConnectResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// [`Fault`]; an unknown kind of share is [`Fault::Value`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 TREE_CONNECT Response");
        reader.structure_size(16)?;
        let fault = reader.fault(Fault::Value);
        let share_type = ShareType::from_code(reader.u8()?).ok_or(fault)?;
        reader.skip(1)?;
        Ok(Self {
            share_type,
            share_flags: ShareFlags::from_bits_retain(reader.u32()?),
            capabilities: ShareCapabilities::from_bits_retain(reader.u32()?),
            maximal_access: AccessMask::from_bits_retain(reader.u32()?),
        })
    }

    /// Appends a response.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(16);
        w.u8(self.share_type.code());
        w.u8(0);
        w.u32(self.share_flags.bits());
        w.u32(self.capabilities.bits());
        w.u32(self.maximal_access.bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HEADER_LEN;
    use crate::hostile;
    use proptest::prelude::*;

    /// [MS-SMB2] 4.1: the client enters `IPC$`, the server answers.
    #[test]
    fn the_specifications_example() {
        let request = TreeConnectRequest {
            flags: TreeConnectFlags::default(),
            path: r"\\s\IPC$".into(),
        };
        let bytes = hostile::message(|w| request.encode(w));
        assert_eq!(
            &bytes[HEADER_LEN..],
            b"\x09\0\0\0\x48\0\x10\0\\\0\\\0s\0\\\0I\0P\0C\0$\0"
        );
        let body = b"\x10\0\x02\0\x30\0\0\0\0\0\0\0\xFF\x01\x1F\0";
        let response = TreeConnectResponse::decode(&mut Reader::new(body, "test")).unwrap();
        assert_eq!(response.share_type, ShareType::Pipe);
        assert_eq!(response.share_flags, ShareFlags::CACHING_MASK);
        assert_eq!(response.maximal_access, AccessMask::from_bits_retain(0x001F_01FF));
        assert_eq!(hostile::structure(|w| response.encode(w)), body);
    }

    #[test]
    fn an_extension_is_passed_over() {
        let mut bytes = hostile::message(|w| {
            w.u16(9);
            w.u16(TreeConnectFlags::EXTENSION_PRESENT.bits());
            w.u16(64 + 8 + 16);
            w.u16(4);
        });
        bytes.extend([0; 16]);
        bytes.extend(b"\\\0x\0");
        let request = TreeConnectRequest::decode(&mut hostile::body(&bytes)).unwrap();
        assert_eq!(request.path, r"\x".into());
    }

    #[test]
    fn odd_paths_and_unknown_shares_are_refused() {
        let bytes = hostile::message(|w| {
            w.u16(9);
            w.u16(0);
            w.u16(72);
            w.u16(3);
            w.bytes(b"abc");
        });
        let outcome = TreeConnectRequest::decode(&mut hostile::body(&bytes));
        assert_eq!(outcome.unwrap_err().fault, Fault::Value);
        let body = b"\x10\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let outcome = TreeConnectResponse::decode(&mut Reader::new(body, "test"));
        assert_eq!(outcome.unwrap_err().fault, Fault::Value);
    }

    proptest! {
        #[test]
        fn requests_round_trip(flags: u16, units: Vec<u16>) {
            let request = TreeConnectRequest {
                flags: TreeConnectFlags::from_bits_retain(flags).difference(TreeConnectFlags::EXTENSION_PRESENT),
                path: Text::from_units(units),
            };
            let bytes = hostile::message(|w| request.encode(w));
            prop_assert_eq!(TreeConnectRequest::decode(&mut hostile::body(&bytes)), Ok(request));
        }

        #[test]
        fn responses_round_trip(share in 1..=3_u8, flags: u32, capabilities: u32, maximal_access: u32) {
            let response = TreeConnectResponse {
                share_type: ShareType::from_code(share).unwrap(),
                share_flags: ShareFlags::from_bits_retain(flags),
                capabilities: ShareCapabilities::from_bits_retain(capabilities),
                maximal_access: AccessMask::from_bits_retain(maximal_access),
            };
            let bytes = hostile::message(|w| response.encode(w));
            prop_assert_eq!(TreeConnectResponse::decode(&mut hostile::body(&bytes)), Ok(response));
        }
    }

    #[test]
    fn hostile_messages() {
        let request = TreeConnectRequest {
            flags: TreeConnectFlags::default(),
            path: r"\\server\share".into(),
        };
        hostile::attack_body(&hostile::message(|w| request.encode(w)), |reader| {
            let _ = TreeConnectRequest::decode(reader);
            let _ = TreeConnectResponse::decode(reader);
        });
    }
}
