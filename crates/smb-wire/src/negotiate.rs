//! NEGOTIATE: dialect, limits, and what both sides can do ([MS-SMB2] 2.2.3, 2.2.4).

use super::cursor::{Fault, Reader, Result, Writer};
use super::ids::Guid;
use super::lengths::{len_u16, len_u32, named, place};
use super::negotiate_context::Context;
use super::time::FileTime;
use bitflags::bitflags;

/// A revision of the protocol; later ones are greater ([MS-SMB2] 2.2.3, 2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// SMB 2.0.2: Windows Vista SP1.
    Smb202,
    /// SMB 2.1: Windows 7.
    Smb210,
    /// SMB 3.0: Windows 8.
    Smb300,
    /// SMB 3.0.2: Windows 8.1.
    Smb302,
    /// SMB 3.1.1: Windows 10.
    Smb311,
}

impl Dialect {
    /// All of them, oldest first.
    pub const ALL: [Self; 5] = [
        Self::Smb202,
        Self::Smb210,
        Self::Smb300,
        Self::Smb302,
        Self::Smb311,
    ];

    /// `DialectRevision` in the answer to an SMB 1 NEGOTIATE with "SMB 2.???": negotiate again with SMB 2
    /// ([MS-SMB2] 3.3.5.3.2).
    pub const WILDCARD_CODE: u16 = 0x02FF;

    /// From the number on the wire.
    pub const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            0x0202 => Self::Smb202,
            0x0210 => Self::Smb210,
            0x0300 => Self::Smb300,
            0x0302 => Self::Smb302,
            0x0311 => Self::Smb311,
            _ => return None,
        })
    }

    /// The number on the wire.
    pub const fn code(self) -> u16 {
        match self {
            Self::Smb202 => 0x0202,
            Self::Smb210 => 0x0210,
            Self::Smb300 => 0x0300,
            Self::Smb302 => 0x0302,
            Self::Smb311 => 0x0311,
        }
    }

    /// As people write it: "3.1.1".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smb202 => "2.0.2",
            Self::Smb210 => "2.1",
            Self::Smb300 => "3.0",
            Self::Smb302 => "3.0.2",
            Self::Smb311 => "3.1.1",
        }
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The server's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectRevision {
    /// This dialect.
    Dialect(Dialect),
    /// 2.FF: SMB 2, and a NEGOTIATE of SMB 2 is to follow.
    Wildcard,
}

bitflags! {
    /// `SecurityMode` ([MS-SMB2] 2.2.3); one byte of it in SESSION_SETUP.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SecurityMode: u16 {
        /// Signatures are possible.
        const SIGNING_ENABLED = 0x0001;
        /// Signatures are demanded.
        const SIGNING_REQUIRED = 0x0002;
        const _ = !0;
    }
}

bitflags! {
    /// `Capabilities` of client and server ([MS-SMB2] 2.2.3, 2.2.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct Capabilities: u32 {
        /// DFS.
        const DFS = 0x0000_0001;
        /// Leases (2.1 on).
        const LEASING = 0x0000_0002;
        /// Requests that cost more than one credit (2.1 on).
        const LARGE_MTU = 0x0000_0004;
        /// Several connections for one session (3.x).
        const MULTI_CHANNEL = 0x0000_0008;
        /// Persistent handles (3.x).
        const PERSISTENT_HANDLES = 0x0000_0010;
        /// Leases on folders (3.x).
        const DIRECTORY_LEASING = 0x0000_0020;
        /// Encryption (3.0 and 3.0.2; 3.1.1 has a context for it).
        const ENCRYPTION = 0x0000_0040;
        /// Unasked notifications (3.1.1).
        const NOTIFICATIONS = 0x0000_0080;
        const _ = !0;
    }
}

/// What the client offers ([MS-SMB2] 2.2.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiateRequest<'a> {
    /// How the client signs.
    pub security_mode: SecurityMode,
    /// What the client can do; 0 if it offers 2.x only.
    pub capabilities: Capabilities,
    /// The client; the same on all its connections.
    pub client_guid: Guid,
    /// The dialects offered. Decoding drops unknown ones, so it may be empty.
    pub dialects: Vec<Dialect>,
    /// Contexts; only with 3.1.1 among the dialects.
    pub contexts: Vec<Context<'a>>,
}

impl<'a> NegotiateRequest<'a> {
    const NAME: &'static str = "SMB2 NEGOTIATE Request";

    /// Reads a request.
    ///
    /// # Errors
    /// [`Fault`]; no dialect at all is [`Fault::Value`].
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, Self::NAME);
        reader.structure_size(36)?;
        let dialect_count = reader.u16()?;
        if dialect_count == 0 {
            return Err(reader.fault(Fault::Value));
        }
        let security_mode = SecurityMode::from_bits_retain(reader.u16()?);
        reader.skip(2)?;
        let capabilities = Capabilities::from_bits_retain(reader.u32()?);
        let client_guid = Guid(reader.array()?);
        // ClientStartTime of 2.x and 3.0.x, if 3.1.1 is not offered.
        let context_offset = place(reader.u32()?);
        let context_count = reader.u16()?;
        reader.skip(2)?;
        let (codes, _) = reader.bytes(usize::from(dialect_count) * 2)?.as_chunks::<2>();
        let dialects: Vec<_> = codes
            .iter()
            .filter_map(|code| Dialect::from_code(u16::from_le_bytes(*code)))
            .collect();
        let contexts = if dialects.contains(&Dialect::Smb311) {
            Context::decode_list(&reader, context_offset, context_count)?
        } else {
            Vec::new()
        };
        Ok(Self {
            security_mode,
            capabilities,
            client_guid,
            dialects,
            contexts,
        })
    }

    /// Appends a request.
    ///
    /// # Panics
    /// If there is no dialect, or there are contexts without 3.1.1.
    pub fn encode(&self, w: &mut Writer<'_>) {
        assert!(!self.dialects.is_empty(), "some dialect is offered");
        assert!(
            self.contexts.is_empty() || self.dialects.contains(&Dialect::Smb311),
            "contexts belong to 3.1.1"
        );
        w.u16(36);
        w.u16(len_u16(self.dialects.len()));
        w.u16(self.security_mode.bits());
        w.u16(0);
        w.u32(self.capabilities.bits());
        w.bytes(&self.client_guid.0);
        let contexts_at = w.position();
        w.u64(0);
        for dialect in &self.dialects {
            w.u16(dialect.code());
        }
        if !self.contexts.is_empty() {
            let offset = Context::encode_list(&self.contexts, w);
            w.patch_u32(contexts_at, len_u32(offset));
            w.patch_u16(contexts_at + 4, len_u16(self.contexts.len()));
        }
    }
}

/// What the server chose ([MS-SMB2] 2.2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiateResponse<'a> {
    /// How the server signs.
    pub security_mode: SecurityMode,
    /// The dialect.
    pub dialect: DialectRevision,
    /// The server.
    pub server_guid: Guid,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// The most bytes of a query, a change or a notification.
    pub max_transact_size: u32,
    /// The most bytes of a READ.
    pub max_read_size: u32,
    /// The most bytes of a WRITE.
    pub max_write_size: u32,
    /// The server's clock.
    pub system_time: FileTime,
    /// When the server started; mostly 0.
    pub server_start_time: FileTime,
    /// The first token of the login (SPNEGO's NegTokenInit2), perhaps empty.
    pub security_buffer: &'a [u8],
    /// Contexts; only in 3.1.1.
    pub contexts: Vec<Context<'a>>,
}

impl<'a> NegotiateResponse<'a> {
    const NAME: &'static str = "SMB2 NEGOTIATE Response";

    /// Reads a response.
    ///
    /// # Errors
    /// [`Fault`]; an unknown dialect is [`Fault::Value`].
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, Self::NAME);
        reader.structure_size(65)?;
        let security_mode = SecurityMode::from_bits_retain(reader.u16()?);
        let fault = reader.fault(Fault::Value);
        let dialect = match reader.u16()? {
            Dialect::WILDCARD_CODE => DialectRevision::Wildcard,
            code => DialectRevision::Dialect(Dialect::from_code(code).ok_or(fault)?),
        };
        let context_count = reader.u16()?;
        let server_guid = Guid(reader.array()?);
        let capabilities = Capabilities::from_bits_retain(reader.u32()?);
        let max_transact_size = reader.u32()?;
        let max_read_size = reader.u32()?;
        let max_write_size = reader.u32()?;
        let system_time = FileTime(reader.u64()?);
        let server_start_time = FileTime(reader.u64()?);
        let security_offset = usize::from(reader.u16()?);
        let security_len = usize::from(reader.u16()?);
        let context_offset = place(reader.u32()?);
        let contexts = if dialect == DialectRevision::Dialect(Dialect::Smb311) {
            Context::decode_list(&reader, context_offset, context_count)?
        } else {
            Vec::new()
        };
        Ok(Self {
            security_mode,
            dialect,
            server_guid,
            capabilities,
            max_transact_size,
            max_read_size,
            max_write_size,
            system_time,
            server_start_time,
            security_buffer: reader.slice(security_offset, security_len)?,
            contexts,
        })
    }

    /// Appends a response.
    ///
    /// # Panics
    /// If there are contexts without 3.1.1, or the token is longer than 65,535 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        assert!(
            self.contexts.is_empty() || self.dialect == DialectRevision::Dialect(Dialect::Smb311),
            "contexts belong to 3.1.1"
        );
        w.u16(65);
        w.u16(self.security_mode.bits());
        w.u16(match self.dialect {
            DialectRevision::Dialect(dialect) => dialect.code(),
            DialectRevision::Wildcard => Dialect::WILDCARD_CODE,
        });
        w.u16(len_u16(self.contexts.len()));
        w.bytes(&self.server_guid.0);
        w.u32(self.capabilities.bits());
        w.u32(self.max_transact_size);
        w.u32(self.max_read_size);
        w.u32(self.max_write_size);
        w.u64(self.system_time.0);
        w.u64(self.server_start_time.0);
        w.u16(len_u16(w.position() + 8));
        w.u16(len_u16(self.security_buffer.len()));
        let contexts_at = w.position();
        w.u32(0);
        w.bytes(self.security_buffer);
        if !self.contexts.is_empty() {
            let offset = Context::encode_list(&self.contexts, w);
            w.patch_u32(contexts_at, len_u32(offset));
        }
    }
}

#[cfg(test)]
#[path = "negotiate_tests.rs"]
pub(super) mod tests;
