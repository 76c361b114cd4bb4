//! Answers to what a CREATE asks along the way ([MS-SMB2] 2.2.14.2.5, 2.2.14.2.9).

use crate::create::AccessMask;
use crate::{NtStatus, Reader, Result, Writer};

/// `MxAc` of a response: what the user may do ([MS-SMB2] 2.2.14.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaximalAccess {
    /// Outcome of the question; only with success `maximal_access` holds.
    pub query_status: NtStatus,
    /// All that the user may.
    pub maximal_access: AccessMask,
}

impl MaximalAccess {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_QUERY_MAXIMAL_ACCESS_RESPONSE");
        Ok(Self {
            query_status: NtStatus(reader.u32()?),
            maximal_access: AccessMask::from_bits_retain(reader.u32()?),
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.query_status.0);
        w.u32(self.maximal_access.bits());
    }
}

/// `QFid` of a response: which file it is ([MS-SMB2] 2.2.14.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDiskId {
    /// The file in its volume.
    pub disk_file_id: u64,
    /// The volume.
    pub volume_id: u64,
    /// Reserved, and kept because servers with 128-bit ids use it.
    pub reserved: [u8; 16],
}

impl OnDiskId {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_QUERY_ON_DISK_ID");
        Ok(Self {
            disk_file_id: reader.u64()?,
            volume_id: reader.u64()?,
            reserved: reader.array()?,
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.disk_file_id);
        w.u64(self.volume_id);
        w.bytes(&self.reserved);
    }
}
