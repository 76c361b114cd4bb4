//! `AAPL`: the context in which a Mac and a server exchange their capabilities.
//!
//! Apple documents the context only in source (`smb2_aapl` in its open SMB client): a command, a
//! reserved word, a bit map of the questions, then the answers in the map's order. The server query
//! is decoded. Other commands (file id to path) stay opaque.

use crate::lengths::{len_u32, place};
use crate::{DecodeErrorKind, Reader, Result, Text, Writer};
use bitflags::bitflags;

/// `kAAPL_SERVER_QUERY`.
const SERVER_QUERY: u32 = 1;

bitflags! {
    /// Bit map of the questions or answers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AppleReplyMap: u64 {
        /// Capabilities of the server.
        const SERVER_CAPS = 0x1;
        /// Capabilities of the volume.
        const VOLUME_CAPS = 0x2;
        /// Model of the machine.
        const MODEL_INFO = 0x4;
        const _ = !0;
    }
}

bitflags! {
    /// Capabilities of a client or server.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AppleServerCaps: u64 {
        /// Directory entries carry Mac metadata.
        const SUPPORTS_READ_DIR_ATTR = 0x1;
        /// `copyfile` runs on the server.
        const SUPPORTS_OSX_COPYFILE = 0x2;
        /// The system is a Unix.
        const UNIX_BASED = 0x4;
        /// NFS permissions in access control entries.
        const SUPPORTS_NFS_ACE = 0x8;
        const _ = !0;
    }
}

bitflags! {
    /// Capabilities of a volume.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AppleVolumeCaps: u64 {
        /// File ids can be resolved to paths.
        const SUPPORT_RESOLVE_ID = 0x1;
        /// Names are case-sensitive.
        const CASE_SENSITIVE = 0x2;
        /// FLUSH reaches the medium (`F_FULLFSYNC`).
        const SUPPORTS_FULL_SYNC = 0x4;
        const _ = !0;
    }
}

/// The server query of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppleServerQuery {
    /// Questions.
    pub request_map: AppleReplyMap,
    /// Capabilities of the client.
    pub client_caps: AppleServerCaps,
}

impl AppleServerQuery {
    /// Decodes the query. Returns `None` for other commands.
    pub(super) fn decode(data: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(data, "AAPL request");
        if reader.u32()? != SERVER_QUERY {
            return Ok(None);
        }
        reader.skip(4)?;
        Ok(Some(Self {
            request_map: AppleReplyMap::from_bits_retain(reader.u64()?),
            client_caps: AppleServerCaps::from_bits_retain(reader.u64()?),
        }))
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u32(SERVER_QUERY);
        w.u32(0);
        w.u64(self.request_map.bits());
        w.u64(self.client_caps.bits());
    }
}

/// Response to the server query. Fields without an answer are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppleReply {
    /// Capabilities of the server.
    pub server_caps: Option<AppleServerCaps>,
    /// Capabilities of the volume.
    pub volume_caps: Option<AppleVolumeCaps>,
    /// Model of the machine, such as `MacSamba`.
    pub model: Option<Text>,
}

impl AppleReply {
    /// Decodes the response. Returns `None` for other commands.
    pub(super) fn decode(data: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(data, "AAPL response");
        if reader.u32()? != SERVER_QUERY {
            return Ok(None);
        }
        reader.skip(4)?;
        let map = AppleReplyMap::from_bits_retain(reader.u64()?);
        let mut reply = Self::default();
        if map.contains(AppleReplyMap::SERVER_CAPS) {
            reply.server_caps = Some(AppleServerCaps::from_bits_retain(reader.u64()?));
        }
        if map.contains(AppleReplyMap::VOLUME_CAPS) {
            reply.volume_caps = Some(AppleVolumeCaps::from_bits_retain(reader.u64()?));
        }
        if map.contains(AppleReplyMap::MODEL_INFO) {
            reader.skip(4)?;
            let length = place(reader.u32()?);
            let model = reader.bytes(length)?;
            reply.model = Some(Text::from_le_bytes(model).ok_or(reader.error(DecodeErrorKind::Value))?);
        }
        Ok(Some(reply))
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        let mut map = AppleReplyMap::default();
        if self.server_caps.is_some() {
            map |= AppleReplyMap::SERVER_CAPS;
        }
        if self.volume_caps.is_some() {
            map |= AppleReplyMap::VOLUME_CAPS;
        }
        if self.model.is_some() {
            map |= AppleReplyMap::MODEL_INFO;
        }
        w.u32(SERVER_QUERY);
        w.u32(0);
        w.u64(map.bits());
        if let Some(caps) = self.server_caps {
            w.u64(caps.bits());
        }
        if let Some(caps) = self.volume_caps {
            w.u64(caps.bits());
        }
        if let Some(model) = &self.model {
            w.u32(0);
            w.u32(len_u32(model.wire_len()));
            model.write(w);
        }
    }
}
