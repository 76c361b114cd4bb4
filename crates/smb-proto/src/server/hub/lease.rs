//! Leases ([MS-SMB2] 3.3.1.11 to 3.3.1.12, 3.3.5.9.8, 3.3.5.9.11, 3.3.5.22.2).

use std::collections::{BTreeSet, HashMap};

use ropeway_smb_wire::LeaseKey;
use ropeway_smb_wire::create_context::{Lease, LeaseFlags, LeaseState, LeaseV2};

use super::caching::{Caching, H, R, valid};
use super::ids::{FileKey, LeaseName, OpenId};

/// A client's request for a lease, in either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The client's key for the lease.
    pub key: LeaseKey,
    /// The caching asked for.
    pub state: LeaseState,
    /// The fields of version 2.
    pub v2: Option<LeaseRequestV2>,
}

/// The fields that version 2 adds to a lease request ([MS-SMB2] 2.2.13.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequestV2 {
    /// The lease on the parent folder, if the client names it.
    pub parent: Option<LeaseKey>,
    /// The initial epoch.
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

/// The lease context of the response, in the version of the lease's first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantedLease {
    /// Version 1.
    V1(Lease),
    /// Version 2.
    V2(LeaseV2),
}

/// A lease.
#[derive(Debug)]
pub(super) struct LeaseEntry {
    pub(super) file: FileKey,
    pub(super) is_folder: bool,
    pub(super) caching: Caching,
    /// Number of state changes; `None` in version 1.
    pub(super) epoch: Option<u16>,
    pub(super) opens: BTreeSet<OpenId>,
    /// Number of its opens with more than stat access.
    pub(super) non_stat: usize,
}

/// All leases, and how many of them are on folders.
#[derive(Debug, Default)]
pub(super) struct Leases(HashMap<LeaseName, LeaseEntry>, usize);

impl Leases {
    pub(super) fn get(&self, name: LeaseName) -> Option<&LeaseEntry> {
        self.0.get(&name)
    }

    pub(super) fn get_mut(&mut self, name: LeaseName) -> Option<&mut LeaseEntry> {
        self.0.get_mut(&name)
    }

    /// Number of leases on folders.
    pub(super) fn folders(&self) -> usize {
        self.1
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an open to a lease, creating the lease if needed. An existing lease is upgraded to
    /// `can` if that is all that was asked for and more than it holds (smb2.lease.upgrade2,
    /// upgrade3). `non_stat`: the open has more than stat access.
    pub(super) fn join(
        &mut self,
        name: LeaseName,
        (open, non_stat): (OpenId, bool),
        file: &FileKey,
        ask: &LeaseRequest,
        can: LeaseState,
        is_folder: bool,
    ) {
        self.1 += usize::from(is_folder && !self.0.contains_key(&name));
        let held = self.0.entry(name).or_insert_with(|| LeaseEntry {
            file: file.clone(),
            is_folder,
            caching: Caching {
                state: can,
                breaking: None,
            },
            // The first grant counts as a change (smb2.lease.v2_epoch1), unless nothing was granted
            // (smb2.lease.lease-epoch).
            epoch: ask.v2.map(|v2| v2.epoch.wrapping_add(u16::from(!can.is_empty()))),
            opens: BTreeSet::new(),
            non_stat: 0,
        });
        if held.opens.insert(open) {
            held.non_stat += usize::from(non_stat);
        }
        let state = held.caching.state;
        let wanted = valid(ask.state);
        let more = can == wanted && can.contains(state) && can != state;
        if more && held.caching.breaking.is_none() {
            held.caching.state = can;
            held.epoch = held.epoch.map(|epoch| epoch.wrapping_add(1));
        }
    }

    /// Adds a restored open to a lease, creating the lease if needed. Records of opens of one lease
    /// were written one by one: the lower state and the later epoch apply. The client knows the
    /// state of the later epoch, here as `kept`; if less than that is left, it must see a change.
    pub(super) fn restore(
        &mut self,
        name: LeaseName,
        (open, non_stat): (OpenId, bool),
        file: &FileKey,
        (kept, epoch): (LeaseState, Option<u16>),
        state: LeaseState,
        is_folder: bool,
    ) {
        self.1 += usize::from(is_folder && !self.0.contains_key(&name));
        let held = self.0.entry(name).or_insert_with(|| LeaseEntry {
            file: file.clone(),
            is_folder,
            caching: Caching {
                state: kept,
                breaking: None,
            },
            epoch,
            opens: BTreeSet::new(),
            non_stat: 0,
        });
        let mut known = held.caching.state;
        if let (Some(held), Some(epoch)) = (&mut held.epoch, epoch)
            && epoch.wrapping_sub(*held) < 0x8000
        {
            (*held, known) = (epoch, kept);
        }
        held.lower(known, valid(held.caching.state & state));
        if held.opens.insert(open) {
            held.non_stat += usize::from(non_stat);
        }
    }

    /// Removes an open from a lease. Returns whether the lease went with its last open.
    pub(super) fn leave(&mut self, name: LeaseName, (open, non_stat): (OpenId, bool)) -> bool {
        let Some(held) = self.0.get_mut(&name) else {
            return false;
        };
        if held.opens.remove(&open) {
            held.non_stat -= usize::from(non_stat);
        }
        let gone = held.opens.is_empty();
        if gone {
            self.1 -= usize::from(held.is_folder);
            self.0.remove(&name);
        }
        gone
    }

    /// Returns the lease context of the response.
    pub(super) fn granted(&self, name: LeaseName, ask: Option<&LeaseRequest>) -> Option<GrantedLease> {
        let held = self.0.get(&name)?;
        let mut flags = LeaseFlags::default();
        // A break that the client was not told of yet follows the response
        // (smb2.persistent-open-reconnect-contended).
        let unsent = held.caching.breaking.is_some_and(|breaking| breaking.unsent);
        if held.caching.breaking.is_some() && !unsent {
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
                epoch: epoch.wrapping_sub(u16::from(unsent)),
            }),
        })
    }
}

impl LeaseEntry {
    /// Lowers the state without a break. `known` is what the client knows.
    pub(super) fn lower(&mut self, known: LeaseState, state: LeaseState) {
        self.caching.state = state;
        if state != known {
            self.epoch = self.epoch.map(|epoch| epoch.wrapping_add(1));
        }
    }
}

impl LeaseRequest {
    /// Returns the valid part of the requested state: R, RH, RW or RWH; for a folder R or RH, and
    /// only in version 2 ([MS-SMB2] 3.3.5.9.8, 3.3.5.9.11). `None` means no lease.
    pub(super) fn supported_state(&self, directory: bool) -> Option<LeaseState> {
        match (directory, self.v2) {
            (false, _) => Some(valid(self.state)),
            (true, Some(_)) => Some(valid(self.state & (R | H))),
            (true, None) => None,
        }
    }
}
