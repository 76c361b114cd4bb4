//! The creates that a client may replay, by their create guid ([MS-SMB2] 3.3.5.9.10).

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use ropeway_smb_wire::{Guid, SessionId};

use super::ids::{ConnectionId, OpenId, WaiterId};

/// `ClientGuid` and `CreateGuid`.
pub(super) type Key = (Guid, Guid);

/// The state of a create with a guid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// It waits.
    WaitQueue(WaiterId),
    /// It is done and its open not used yet: `IsReplayEligible`.
    Made(OpenId),
}

/// The creates that may be replayed.
#[derive(Debug, Default)]
pub(super) struct CreateReplays {
    pub(super) slots: HashMap<Key, Slot>,
    waiting: BTreeMap<WaiterId, (Key, SessionId)>,
    /// Waiting creates whose connection is lost while their session has other channels.
    orphans: BTreeSet<WaiterId>,
    made: HashMap<OpenId, Key>,
}

impl CreateReplays {
    pub(super) fn wait(&mut self, key: Key, session: SessionId, waiter: WaiterId) {
        self.slots.insert(key, Slot::WaitQueue(waiter));
        self.waiting.insert(waiter, (key, session));
    }

    /// Handles the loss of the waiter's connection. Returns whether the waiter is a create that
    /// keeps waiting because its session continues. A client that replays it then learns that it is
    /// in progress (smb2.replay.dhv2-pending2n-vs-lease-sane).
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

    /// Makes the create of a restored open replayable, unless another one has its guid.
    pub(super) fn restored(&mut self, key: Key, open: OpenId) {
        if let Entry::Vacant(slot) = self.slots.entry(key) {
            slot.insert(Slot::Made(open));
            self.made.insert(open, key);
        }
    }

    /// Whether the create of an open may be replayed: `Open.IsReplayEligible`.
    pub(super) fn is_replayable(&self, open: OpenId) -> bool {
        self.made.contains_key(&open)
    }

    /// Removes a create that was answered without an open.
    pub(super) fn done(&mut self, waiter: WaiterId) {
        self.orphans.remove(&waiter);
        if let Some((key, _)) = self.waiting.remove(&waiter)
            && self.slots.get(&key) == Some(&Slot::WaitQueue(waiter))
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

    /// Ends the replay of a create: its open was closed or used.
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
