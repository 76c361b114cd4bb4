//! Leases: caching rights of a client for a file rather than for an open ([MS-SMB2] 2.2.13.2.8,
//! .10; 2.2.14.2.10, .11). Requests and responses have the same form.

use crate::{LeaseKey, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// Caching rights ([MS-SMB2] 2.2.13.2.8 `LeaseState`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct LeaseState: u32 {
        /// The client may cache reads.
        const READ_CACHING = 0x0000_0001;
        /// The client may cache the open itself.
        const HANDLE_CACHING = 0x0000_0002;
        /// The client may cache writes.
        const WRITE_CACHING = 0x0000_0004;
        const _ = !0;
    }
}

bitflags! {
    /// `LeaseFlags` ([MS-SMB2] 2.2.13.2.10, 2.2.14.2.10).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct LeaseFlags: u32 {
        /// Of a response: the lease is being broken.
        const BREAK_IN_PROGRESS = 0x0000_0002;
        /// The parent's key is valid (version 2).
        const PARENT_LEASE_KEY_SET = 0x0000_0004;
        const _ = !0;
    }
}

/// `RqLs` version 1 ([MS-SMB2] 2.2.13.2.8); SMB 2.1 and later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Client's identifier of the lease.
    pub lease_key: LeaseKey,
    /// Requested or granted rights.
    pub lease_state: LeaseState,
    /// 0 in a request.
    pub lease_flags: LeaseFlags,
}

impl Lease {
    /// Length of the context's data in bytes.
    pub const LEN: usize = 32;

    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        Self::decode_from(&mut Reader::new(data, "SMB2_CREATE_REQUEST_LEASE"))
    }

    fn decode_from(reader: &mut Reader<'_>) -> Result<Self> {
        let lease = Self {
            lease_key: LeaseKey(reader.array()?),
            lease_state: LeaseState::from_bits_retain(reader.u32()?),
            lease_flags: LeaseFlags::from_bits_retain(reader.u32()?),
        };
        // LeaseDuration: reserved.
        reader.skip(8)?;
        Ok(lease)
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.lease_key.0);
        w.u32(self.lease_state.bits());
        w.u32(self.lease_flags.bits());
        w.zeros(8);
    }
}

/// `RqLs` version 2 ([MS-SMB2] 2.2.13.2.10); SMB 3.x. Directories can have it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseV2 {
    /// Fields of version 1.
    pub lease: Lease,
    /// Lease of the file's directory; valid with `PARENT_LEASE_KEY_SET`.
    pub parent_lease_key: LeaseKey,
    /// Counter of the lease's state changes.
    pub epoch: u16,
}

impl LeaseV2 {
    /// Length of the context's data in bytes.
    pub const LEN: usize = 52;

    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_REQUEST_LEASE_V2");
        let lease = Lease::decode_from(&mut reader)?;
        let parent_lease_key = LeaseKey(reader.array()?);
        let epoch = reader.u16()?;
        reader.skip(2)?;
        Ok(Self {
            lease,
            parent_lease_key,
            epoch,
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        self.lease.encode(w);
        w.bytes(&self.parent_lease_key.0);
        w.u16(self.epoch);
        w.zeros(2);
    }
}
