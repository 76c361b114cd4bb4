//! The durable state of an open ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.10).

use ropeway_smb_wire::Guid;
use ropeway_smb_wire::create_context::{DurableHandleV2Flags, DurableResponseV2};

/// A client's request for a durable open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableOpenRequest {
    /// `DHnQ`.
    V1,
    /// `DH2Q`.
    V2 {
        /// The client's id of the create.
        create_guid: Guid,
        /// How long to wait for the client to return; 0: the server decides.
        timeout_ms: u32,
        /// Whether the open should be persistent: survive a restart of the server, too. Set this
        /// only where the owner can keep the open's state ([`Hub::persistent_open`]).
        ///
        /// [`Hub::persistent_open`]: super::Hub::persistent_open
        persistent: bool,
    },
}

/// The durable context of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableGrant {
    /// `DHnQ`.
    V1,
    /// `DH2Q`.
    V2(DurableResponseV2),
}

/// The durable state of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durability {
    /// Present in version 2 only.
    pub(super) create_guid: Option<Guid>,
    pub(super) timeout_ms: u32,
    /// `Open.IsPersistent` ([MS-SMB2] 3.3.1.10).
    pub(super) persistent: bool,
}

impl Durability {
    pub(super) fn grant(&self) -> DurableGrant {
        match self.create_guid {
            None => DurableGrant::V1,
            Some(_) => DurableGrant::V2(DurableResponseV2 {
                timeout_ms: self.timeout_ms,
                flags: match self.persistent {
                    true => DurableHandleV2Flags::PERSISTENT,
                    false => DurableHandleV2Flags::default(),
                },
            }),
        }
    }
}
