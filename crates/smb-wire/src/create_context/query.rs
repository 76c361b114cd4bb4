//! Answers to the queries in a CREATE ([MS-SMB2] 2.2.14.2.5, 2.2.14.2.9).

use crate::create::AccessMask;
use crate::{NtStatus, Reader, Result, Writer};

/// `MxAc` of a response: the user's maximal access ([MS-SMB2] 2.2.14.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaximalAccess {
    /// Status of the query. `maximal_access` is valid only on success.
    pub query_status: NtStatus,
    /// All rights of the user.
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

/// `QFid` of a response: the file's id on disk ([MS-SMB2] 2.2.14.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDiskId {
    /// Id of the file in its volume.
    pub disk_file_id: u64,
    /// Id of the volume.
    pub volume_id: u64,
    /// Reserved. Kept because servers with 128-bit ids use it.
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
