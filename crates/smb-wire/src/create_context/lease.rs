//! Leases: what a client may cache, by file rather than by open ([MS-SMB2] 2.2.13.2.8, .10; 2.2.14.2.10, .11). Requests
//! and responses have the same form.

use crate::{LeaseKey, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// What may be cached ([MS-SMB2] 2.2.13.2.8 `LeaseState`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct LeaseState: u32 {
        /// Reads.
        const READ_CACHING = 0x0000_0001;
        /// The open itself.
        const HANDLE_CACHING = 0x0000_0002;
        /// Writes.
        const WRITE_CACHING = 0x0000_0004;
        const _ = !0;
    }
}

bitflags! {
    /// `LeaseFlags` ([MS-SMB2] 2.2.13.2.10, 2.2.14.2.10).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct LeaseFlags: u32 {
        /// In a response: the lease is being broken.
        const BREAK_IN_PROGRESS = 0x0000_0002;
        /// The parent's key holds (second version).
        const PARENT_LEASE_KEY_SET = 0x0000_0004;
        const _ = !0;
    }
}

/// `RqLs`, first version ([MS-SMB2] 2.2.13.2.8); 2.1 and later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The client's name for the lease.
    pub lease_key: LeaseKey,
    /// What is asked for, or granted.
    pub lease_state: LeaseState,
    /// 0 in a request.
    pub lease_flags: LeaseFlags,
}

impl Lease {
    /// Bytes of the context's data.
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

/// `RqLs`, second version ([MS-SMB2] 2.2.13.2.10); 3.x. Also for directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseV2 {
    /// What both versions have.
    pub lease: Lease,
    /// The lease of the directory the file is in; holds with `PARENT_LEASE_KEY_SET`.
    pub parent_lease_key: LeaseKey,
    /// Counts changes of the lease's state.
    pub epoch: u16,
}

impl LeaseV2 {
    /// Bytes of the context's data.
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
