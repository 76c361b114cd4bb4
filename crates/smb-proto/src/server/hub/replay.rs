//! Repeated CREATEs, recognized by their create guid ([MS-SMB2] 3.3.5.9.10).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Hub;
use super::caching::{level_of, state_of};
use super::durable::{Durability, DurableGrant};
use super::ids::{ConnectionId, OpenId, WaiterId};
use super::open::{Granted, OpenOutcome, OpenRequest};
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::{Guid, NtStatus, SessionId};

/// `ClientGuid` and `CreateGuid`.
type Key = (Guid, Guid);

/// Where a create with a guid stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// It waits for others.
    Waits(WaiterId),
    /// It is done, and the open not yet used: `IsReplayEligible`.
    Made(OpenId),
}

/// Creates that may be repeated.
#[derive(Debug, Default)]
pub(super) struct Creates {
    slots: HashMap<Key, Slot>,
    waiting: BTreeMap<WaiterId, (Key, SessionId)>,
    /// Of those that wait: their connection is lost, their session has others.
    orphans: BTreeSet<WaiterId>,
    made: HashMap<OpenId, Key>,
}

impl Creates {
    pub(super) fn wait(&mut self, key: Key, session: SessionId, waiter: WaiterId) {
        self.slots.insert(key, Slot::Waits(waiter));
        self.waiting.insert(waiter, (key, session));
    }

    /// The connection of one that may wait is lost: whether it is a create that goes on waiting, as its session lives on, so
    /// that whoever repeats it is told that it is under way (smb2.replay.dhv2-pending2n-vs-lease-sane).
    pub(super) fn orphan(&mut self, waiter: WaiterId, lives_on: impl Fn(SessionId) -> bool) -> bool {
        let waiting = self.waiting.get(&waiter);
        let goes_on = waiting.is_some_and(|(_, session)| lives_on(*session));
        if goes_on {
            self.orphans.insert(waiter);
        }
        goes_on
    }

    pub(super) fn is_orphan(&self, waiter: WaiterId) -> bool {
        self.orphans.contains(&waiter)
    }

    pub(super) fn made(&mut self, key: Key, open: OpenId, waiter: WaiterId) {
        self.done(waiter);
        self.slots.insert(key, Slot::Made(open));
        self.made.insert(open, key);
    }

    /// The request is answered, without an open.
    pub(super) fn done(&mut self, waiter: WaiterId) {
        self.orphans.remove(&waiter);
        if let Some((key, _)) = self.waiting.remove(&waiter)
            && self.slots.get(&key) == Some(&Slot::Waits(waiter))
        {
            self.slots.remove(&key);
        }
    }

    pub(super) fn done_connection(&mut self, connection: ConnectionId) {
        let at = |request| WaiterId { connection, request };
        let waiting: Vec<_> = self
            .waiting
            .range(at(0)..=at(u64::MAX))
            .map(|(waiter, _)| *waiter)
            .filter(|waiter| !self.orphans.contains(waiter))
            .collect();
        for waiter in waiting {
            self.done(waiter);
        }
    }

    /// The open is closed, or was used: its create cannot be repeated any more.
    pub(super) fn closed(&mut self, open: OpenId) {
        if let Some(key) = self.made.remove(&open)
            && self.slots.get(&key) == Some(&Slot::Made(open))
        {
            self.slots.remove(&key);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.waiting.is_empty() && self.made.is_empty() && self.orphans.is_empty()
    }
}

impl Hub {
    /// The client uses the open, so it knows of it, and will not repeat the create (`Open.IsReplayEligible`,
    /// [MS-SMB2] 3.3.1.10). [`Self::check_sequence`] says so by itself.
    pub fn used(&mut self, open: OpenId) {
        self.creates.closed(open);
    }

    /// The answer to a create whose guid is known; `None` if it is not.
    pub(super) fn open_again(&mut self, request: &OpenRequest, key: Key) -> Option<OpenOutcome> {
        let outcome = match *self.creates.slots.get(&key)? {
            Slot::Waits(waiter) if waiter == request.waiter => return None,
            // The first one may yet succeed (smb2.replay.dhv2-pending1n-vs-oplock-sane).
            Slot::Waits(_) if request.replay => Err(NtStatus::FILE_NOT_AVAILABLE),
            Slot::Waits(_) => Err(NtStatus::DUPLICATE_OBJECTID),
            Slot::Made(_) if !request.replay => Err(NtStatus::DUPLICATE_OBJECTID),
            Slot::Made(open) => self.repeat(request, open),
        };
        Some(match outcome {
            Ok(granted) => OpenOutcome::Granted(granted),
            Err(status) => OpenOutcome::Refused(status),
        })
    }

    fn repeat(&mut self, request: &OpenRequest, id: OpenId) -> Result<Granted, NtStatus> {
        let open = self
            .tables
            .opens
            .get(&id)
            .ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        if open.info.connection.is_some() && open.info.session != request.session {
            // smb2.replay.durable-reconnect-replay2.
            return Err(NtStatus::DUPLICATE_OBJECTID);
        }
        if open.info.user != request.user {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let asked = request.lease.map(|lease| lease.key);
        if open.lease.map(|name| name.key) != asked.filter(|_| open.lease.is_some() || !request.directory) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let is_absent = open.info.connection.is_none();
        if is_absent && self.session_open_count(request.session) >= self.limits.opens_per_session_max {
            return Err(NtStatus::TOO_MANY_OPENED_FILES);
        }
        let lease = open.lease;
        // The response tells what was asked for, if more is held (smb2.replay.replay-dhv2-oplock2).
        let oplock = level_of(open.oplock.state & state_of(request.oplock));
        let caches_handle = lease.is_some() || oplock == OplockLevel::Batch;
        let durable = open
            .durable
            .as_ref()
            .filter(|_| caches_handle)
            .map(Durability::grant);
        if is_absent {
            let (connection, session) = (request.connection, request.session);
            self.adopt(id, connection, session, request.tree, request.client);
        }
        Ok(Granted {
            open: id,
            oplock: if lease.is_some() {
                OplockLevel::Lease
            } else {
                oplock
            },
            lease: lease.and_then(|name| self.leases.granted(name, request.lease.as_ref())),
            durable: durable.filter(|grant| matches!(grant, DurableGrant::V2(_))),
            replayed: true,
        })
    }
}
