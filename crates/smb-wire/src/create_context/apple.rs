//! `AAPL`: what a server can do for a Mac, and what a Mac says it is.
//!
//! Apple documents the context only in source (`smb2_aapl` in its open SMB client): a command, a reserved word, a map
//! of the questions, then the answers in the map's order. Other commands than the server query (file id to path) stay
//! opaque.

use crate::lengths::{len_u32, place};
use crate::{Fault, Reader, Result, Text, Writer};
use bitflags::bitflags;

/// `kAAPL_SERVER_QUERY`.
const SERVER_QUERY: u32 = 1;

bitflags! {
    /// Which questions are asked or answered.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AppleReplyMap: u64 {
        /// What the server can do.
        const SERVER_CAPS = 0x1;
        /// What the volume can do.
        const VOLUME_CAPS = 0x2;
        /// What machine it is.
        const MODEL_INFO = 0x4;
        const _ = !0;
    }
}

bitflags! {
    /// What client or server can do.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AppleServerCaps: u64 {
        /// Directory entries carry Mac metadata.
        const SUPPORTS_READ_DIR_ATTR = 0x1;
        /// `copyfile` on the server.
        const SUPPORTS_OSX_COPYFILE = 0x2;
        /// It is a Unix.
        const UNIX_BASED = 0x4;
        /// NFS permissions in access control entries.
        const SUPPORTS_NFS_ACE = 0x8;
        const _ = !0;
    }
}

bitflags! {
    /// What the volume can do.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AppleVolumeCaps: u64 {
        /// File ids can be resolved to paths.
        const SUPPORT_RESOLVE_ID = 0x1;
        /// Names differ by case.
        const CASE_SENSITIVE = 0x2;
        /// FLUSH reaches the medium (`F_FULLFSYNC`).
        const SUPPORTS_FULL_SYNC = 0x4;
        const _ = !0;
    }
}

/// The server query of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppleServerQuery {
    /// What is asked.
    pub request_map: AppleReplyMap,
    /// What the client can do.
    pub client_caps: AppleServerCaps,
}

impl AppleServerQuery {
    /// `None` for other commands.
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

/// The server query's answer; what was not answered is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppleReply {
    /// What the server can do.
    pub server_caps: Option<AppleServerCaps>,
    /// What the volume can do.
    pub volume_caps: Option<AppleVolumeCaps>,
    /// What machine it is, such as `MacSamba`.
    pub model: Option<Text>,
}

impl AppleReply {
    /// `None` for other commands.
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
            reply.model = Some(Text::from_le_bytes(model).ok_or(reader.fault(Fault::Value))?);
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
