//! TREE_CONNECT_ANDX ([MS-CIFS] 2.2.4.55, [MS-SMB] 2.2.4.7), and the older TREE_CONNECT (2.2.4.50).

use bitflags::bitflags;
use ropeway_smb_wire::{Result, Writer};

use crate::message::{AndX, Block, write_block};
use crate::strings::Str;
use crate::words::{flag_fields, words};

bitflags! {
    /// `Flags` of the request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TreeFlags: u16 {
        /// Disconnect the tree of the header first.
        const DISCONNECT = 0x0001;
        /// The session's key is to be protected as in [MS-SMB] 3.2.5.4.
        const EXTENDED_SIGNATURES = 0x0004;
        /// The response may have the words of [MS-SMB].
        const EXTENDED_RESPONSE = 0x0008;
        const _ = !0;
    }
}

bitflags! {
    /// `OptionalSupport` of the response.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OptionalSupport: u16 {
        /// Exclusive search bits.
        const SEARCH_BITS = 0x0001;
        /// The share is in DFS.
        const IN_DFS = 0x0002;
        /// `SMB_CSC_MASK`: how clients may keep files.
        const CACHING = 0x000C;
        /// Short names are made up.
        const UNIQUE_NAMES = 0x0010;
        const _ = !0;
    }
}

flag_fields!(TreeFlags: u16, OptionalSupport: u16);

/// Service name of a share with files.
pub const SERVICE_DISK: &[u8] = b"A:";
/// Service name of named pipes.
pub const SERVICE_IPC: &[u8] = b"IPC";
/// Service name that stands for any share.
pub const SERVICE_ANY: &[u8] = b"?????";

words! {
    /// Words of the request.
    struct RequestWords {
        andx: AndX,
        flags: TreeFlags,
        password_length: u16,
    }
}

/// TREE_CONNECT_ANDX request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeConnectRequest {
    /// The command that follows.
    pub andx: AndX,
    /// How to connect.
    pub flags: TreeFlags,
    /// Password of the share, where shares have passwords; else one zero.
    pub password: Vec<u8>,
    /// `\\server\share`.
    pub path: Str,
    /// Kind of the share, e.g. [`SERVICE_ANY`].
    pub service: Vec<u8>,
}

impl TreeConnectRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let words = RequestWords::read(&mut block.words_exactly(4)?)?;
        let mut bytes = block.bytes();
        Ok(Self {
            andx: words.andx,
            flags: words.flags,
            password: bytes.bytes(usize::from(words.password_length))?.to_vec(),
            path: Str::read_z(&mut bytes, is_unicode)?,
            service: Str::read_z(&mut bytes, false)?.as_bytes().to_vec(),
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let words = RequestWords {
            andx: self.andx,
            flags: self.flags,
            password_length: self.password.len() as u16,
        };
        write_block(
            w,
            |w| words.write(w),
            |w| {
                w.bytes(&self.password);
                self.path.write_z(w);
                Str::oem(&self.service).write_z(w);
            },
        );
    }
}

/// TREE_CONNECT_ANDX response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeConnectResponse {
    /// The command that follows.
    pub andx: AndX,
    /// What the share can do.
    pub optional_support: OptionalSupport,
    /// Maximum rights of the user and of guests, in the extended response.
    pub access: Option<(u32, u32)>,
    /// Kind of the share.
    pub service: Vec<u8>,
    /// Name of the file system.
    pub file_system: Str,
}

impl TreeConnectResponse {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let mut words = block.words();
        let andx = AndX::read(&mut words)?;
        // An old server leaves the word out.
        let optional_support = match block.word_count() {
            0..3 => OptionalSupport::default(),
            _ => OptionalSupport::from_bits_retain(words.u16()?),
        };
        let access = match block.word_count() {
            0..7 => None,
            _ => Some((words.u32()?, words.u32()?)),
        };
        let mut bytes = block.bytes();
        Ok(Self {
            andx,
            optional_support,
            access,
            service: Str::read_z(&mut bytes, false)?.as_bytes().to_vec(),
            file_system: Str::read_z(&mut bytes, is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |w| {
                self.andx.write(w);
                w.u16(self.optional_support.bits());
                if let Some((user, guest)) = self.access {
                    w.u32(user);
                    w.u32(guest);
                }
            },
            |w| {
                Str::oem(&self.service).write_z(w);
                self.file_system.write_z(w);
            },
        );
    }
}

/// TREE_CONNECT request of core clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldTreeConnectRequest {
    /// `\\server\share`.
    pub path: Str,
    /// Password of the share.
    pub password: Str,
    /// Kind of the share.
    pub service: Str,
}

impl OldTreeConnectRequest {
    /// Decodes the block. Its strings are bytes, whatever the header says ([MS-CIFS] 2.2.4.50.1).
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        let mut bytes = block.bytes();
        Ok(Self {
            path: Str::read_formatted(&mut bytes, false)?,
            password: Str::read_formatted(&mut bytes, false)?,
            service: Str::read_formatted(&mut bytes, false)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |_| {},
            |w| {
                self.path.write_formatted(w);
                self.password.write_formatted(w);
                self.service.write_formatted(w);
            },
        );
    }
}

words! {
    /// Words of the response to the older TREE_CONNECT.
    pub struct OldTreeConnectResponse {
        /// Largest message that the server receives, in bytes.
        max_buffer_size: u16,
        /// The tree.
        tid: u16,
    }
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    #[test]
    fn requests_round_trip() {
        let request = TreeConnectRequest {
            andx: AndX::NONE,
            flags: TreeFlags::EXTENDED_RESPONSE,
            password: vec![0],
            path: Str::unicode(&Text::from("\\\\host\\share")),
            service: SERVICE_ANY.to_vec(),
        };
        hostile::check(
            &[request],
            |block| TreeConnectRequest::decode(block, true).ok(),
            |request, w| request.encode(w),
        );
        let old = OldTreeConnectRequest {
            path: Str::oem(b"\\\\host\\share"),
            password: Str::oem(b""),
            service: Str::oem(SERVICE_DISK),
        };
        hostile::check(
            &[old],
            |block| OldTreeConnectRequest::decode(block).ok(),
            |request, w| request.encode(w),
        );
    }

    #[test]
    fn responses_round_trip() {
        let response = TreeConnectResponse {
            optional_support: OptionalSupport::SEARCH_BITS,
            access: Some((0x1F_01FF, 0)),
            service: SERVICE_DISK.to_vec(),
            file_system: Str::unicode(&Text::from("NTFS")),
            ..TreeConnectResponse::default()
        };
        let short = TreeConnectResponse {
            access: None,
            ..response.clone()
        };
        hostile::check(
            &[response, short],
            |block| TreeConnectResponse::decode(block, true).ok(),
            |response, w| response.encode(w),
        );
    }
}
