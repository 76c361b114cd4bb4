//! Leases ([MS-SMB2] 3.3.1.11 to 3.3.1.12, 3.3.5.9.8, 3.3.5.9.11, 3.3.5.22.2).

use std::collections::{BTreeSet, HashMap};

use super::Hub;
use super::caching::{AckFault, Caching, H, R, valid};
use super::ids::{FileKey, Holder, LeaseName, OpenId};
use ropeway_smb_wire::create_context::{Lease, LeaseFlags, LeaseState, LeaseV2};
use ropeway_smb_wire::oplock_break::LeaseBreak;
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus};

/// A lease as a client asks for it, in either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The client's name for it.
    pub key: LeaseKey,
    /// What is asked for.
    pub state: LeaseState,
    /// What the second version adds.
    pub v2: Option<LeaseRequestV2>,
}

/// What the second version of a lease request adds ([MS-SMB2] 2.2.13.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequestV2 {
    /// The lease of the folder the file is in, if the client says so.
    pub parent: Option<LeaseKey>,
    /// Where to count from.
    pub epoch: u16,
}

impl From<&Lease> for LeaseRequest {
    fn from(lease: &Lease) -> Self {
        Self {
            key: lease.lease_key,
            state: lease.lease_state,
            v2: None,
        }
    }
}

impl From<&LeaseV2> for LeaseRequest {
    fn from(wire: &LeaseV2) -> Self {
        let named = wire.lease.lease_flags.contains(LeaseFlags::PARENT_LEASE_KEY_SET);
        Self {
            v2: Some(LeaseRequestV2 {
                parent: named.then_some(wire.parent_lease_key),
                epoch: wire.epoch,
            }),
            ..Self::from(&wire.lease)
        }
    }
}

/// The context of the response, of the version that the lease has had from its first request on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantedLease {
    /// First version.
    V1(Lease),
    /// Second version.
    V2(LeaseV2),
}

/// A lease.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) file: FileKey,
    pub(super) caching: Caching,
    /// Counts changes; `None` in the first version.
    pub(super) epoch: Option<u16>,
    pub(super) opens: BTreeSet<OpenId>,
    /// Those of them that do more than look at attributes.
    pub(super) solid: usize,
}

/// All leases.
#[derive(Debug, Default)]
pub(super) struct Leases(HashMap<LeaseName, Held>);

impl Leases {
    pub(super) fn get(&self, name: LeaseName) -> Option<&Held> {
        self.0.get(&name)
    }

    pub(super) fn get_mut(&mut self, name: LeaseName) -> Option<&mut Held> {
        self.0.get_mut(&name)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes a lease for an open (`solid`: it does more than look at attributes), or adds to it what can be had: all that is asked for, if that is more than is held
    /// (smb2.lease.upgrade2, upgrade3).
    pub(super) fn join(
        &mut self,
        name: LeaseName,
        (open, solid): (OpenId, bool),
        file: &FileKey,
        ask: &LeaseRequest,
        can: LeaseState,
    ) {
        let held = self.0.entry(name).or_insert_with(|| Held {
            file: file.clone(),
            caching: Caching {
                state: can,
                breaking: None,
            },
            // The first grant is the first change (smb2.lease.v2_epoch1), if it is one (smb2.lease.lease-epoch).
            epoch: ask.v2.map(|v2| v2.epoch.wrapping_add(u16::from(!can.is_empty()))),
            opens: BTreeSet::new(),
            solid: 0,
        });
        if held.opens.insert(open) {
            held.solid += usize::from(solid);
        }
        let state = held.caching.state;
        let wanted = valid(ask.state);
        let more = can == wanted && can.contains(state) && can != state;
        if more && held.caching.breaking.is_none() {
            held.caching.state = can;
            held.epoch = held.epoch.map(|epoch| epoch.wrapping_add(1));
        }
    }

    /// The open has no part in it any more; the lease goes with its last one. Says whether it went.
    pub(super) fn leave(&mut self, name: LeaseName, (open, solid): (OpenId, bool)) -> bool {
        let Some(held) = self.0.get_mut(&name) else {
            return false;
        };
        if held.opens.remove(&open) {
            held.solid -= usize::from(solid);
        }
        let gone = held.opens.is_empty();
        if gone {
            self.0.remove(&name);
        }
        gone
    }

    /// The response's context.
    pub(super) fn granted(&self, name: LeaseName, ask: Option<&LeaseRequest>) -> Option<GrantedLease> {
        let held = self.0.get(&name)?;
        let mut flags = LeaseFlags::default();
        if held.caching.breaking.is_some() {
            flags |= LeaseFlags::BREAK_IN_PROGRESS;
        }
        let parent = ask.and_then(|ask| ask.v2).and_then(|v2| v2.parent);
        if held.epoch.is_some() && parent.is_some() {
            flags |= LeaseFlags::PARENT_LEASE_KEY_SET;
        }
        let lease = Lease {
            lease_key: name.key,
            lease_state: held.caching.state,
            lease_flags: flags,
        };
        Some(match held.epoch {
            None => GrantedLease::V1(lease),
            Some(epoch) => GrantedLease::V2(LeaseV2 {
                lease,
                parent_lease_key: parent.unwrap_or_default(),
                epoch,
            }),
        })
    }
}

impl LeaseRequest {
    /// What can be asked for at all: R, RH, RW or RWH; of a folder R or RH, and only in the second version
    /// ([MS-SMB2] 3.3.5.9.8, 3.3.5.9.11). `None` is no lease.
    pub(super) fn sane(&self, directory: bool) -> Option<LeaseState> {
        match (directory, self.v2) {
            (false, _) => Some(valid(self.state)),
            (true, Some(_)) => Some(valid(self.state & (R | H))),
            (true, None) => None,
        }
    }
}

impl Hub {
    /// Whether anybody holds a lease on anything.
    pub fn has_leases(&self) -> bool {
        !self.leases.0.is_empty()
    }

    /// Whether a client's lease key stands for another file already ([MS-SMB2] 3.3.5.9.8).
    pub fn is_leased_elsewhere(&self, client: Guid, key: LeaseKey, file: &FileKey) -> bool {
        !self.lease_key_fits(LeaseName { client, key }, file)
    }

    /// Handles the acknowledgment of a lease's break ([MS-SMB2] 3.3.5.22.2); the answer is the response.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` without such a lease, `STATUS_UNSUCCESSFUL` if nothing was asked,
    /// `STATUS_REQUEST_NOT_ACCEPTED` if more is kept than was left.
    pub fn lease_break_ack(
        &mut self,
        now_ms: u64,
        client: Guid,
        ack: &LeaseBreak,
    ) -> Result<LeaseBreak, NtStatus> {
        let name = LeaseName {
            client,
            key: ack.lease_key,
        };
        let held = self.leases.get_mut(name).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let next = held
            .caching
            .acknowledge(ack.lease_state)
            .map_err(|fault| match fault {
                AckFault::NotBreaking => NtStatus::UNSUCCESSFUL,
                AckFault::KeepsTooMuch => NtStatus::REQUEST_NOT_ACCEPTED,
            })?;
        self.acknowledged(now_ms, Holder::Lease(name), next);
        Ok(LeaseBreak {
            lease_key: ack.lease_key,
            lease_state: valid(ack.lease_state),
        })
    }

    /// A lease's key names one file ([MS-SMB2] 3.3.5.9.8).
    pub(super) fn lease_key_fits(&self, name: LeaseName, file: &FileKey) -> bool {
        self.leases.get(name).is_none_or(|held| held.file == *file)
    }
}
