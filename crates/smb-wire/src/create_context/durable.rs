//! Opens that survive a lost connection ([MS-SMB2] 2.2.13.2.3, .4, .11, .12; 2.2.14.2.3, .12).

use crate::{FileId, Guid, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of the second version ([MS-SMB2] 2.2.13.2.11).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct DurableHandleV2Flags: u32 {
        /// The open is to survive even a restart of the server.
        const PERSISTENT = 0x0000_0002;
        const _ = !0;
    }
}

/// `DHnC`: the open that survived ([MS-SMB2] 2.2.13.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableReconnect {
    /// As it was before the connection was lost.
    pub file_id: FileId,
}

impl DurableReconnect {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_DURABLE_HANDLE_RECONNECT");
        let file_id = FileId::decode(&mut reader)?;
        Ok(Self { file_id })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        self.file_id.encode(w);
    }
}

/// `DH2Q` of a request ([MS-SMB2] 2.2.13.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableRequestV2 {
    /// How long the server is to wait for a reconnect, in milliseconds; 0: the server decides.
    pub timeout_ms: u32,
    /// How durable.
    pub flags: DurableHandleV2Flags,
    /// The client's name for this open; a repeated CREATE with it finds the same open.
    pub create_guid: Guid,
}

impl DurableRequestV2 {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_DURABLE_HANDLE_REQUEST_V2");
        let timeout_ms = reader.u32()?;
        let flags = DurableHandleV2Flags::from_bits_retain(reader.u32()?);
        reader.skip(8)?;
        let create_guid = Guid(reader.array()?);
        Ok(Self {
            timeout_ms,
            flags,
            create_guid,
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.timeout_ms);
        w.u32(self.flags.bits());
        w.zeros(8);
        w.bytes(&self.create_guid.0);
    }
}

/// `DH2C`: the open that survived ([MS-SMB2] 2.2.13.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableReconnectV2 {
    /// As it was before the connection was lost.
    pub file_id: FileId,
    /// As it was when the open was made.
    pub create_guid: Guid,
    /// As granted.
    pub flags: DurableHandleV2Flags,
}

impl DurableReconnectV2 {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_DURABLE_HANDLE_RECONNECT_V2");
        Ok(Self {
            file_id: FileId::decode(&mut reader)?,
            create_guid: Guid(reader.array()?),
            flags: DurableHandleV2Flags::from_bits_retain(reader.u32()?),
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        self.file_id.encode(w);
        w.bytes(&self.create_guid.0);
        w.u32(self.flags.bits());
    }
}

/// `DH2Q` of a response ([MS-SMB2] 2.2.14.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableResponseV2 {
    /// How long the server will wait for a reconnect, in milliseconds.
    pub timeout_ms: u32,
    /// How durable.
    pub flags: DurableHandleV2Flags,
}

impl DurableResponseV2 {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_DURABLE_HANDLE_RESPONSE_V2");
        Ok(Self {
            timeout_ms: reader.u32()?,
            flags: DurableHandleV2Flags::from_bits_retain(reader.u32()?),
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.timeout_ms);
        w.u32(self.flags.bits());
    }
}
