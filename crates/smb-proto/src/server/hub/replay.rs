//! Replayed requests: CREATEs, recognized by their create guid ([MS-SMB2] 3.3.5.9.10), and requests
//! of a failed channel, detected by the channel sequence (3.3.5.2.10).

use std::time::Duration;

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::OplockLevel;

use super::Hub;
use super::caching::{level_of, state_of};
use super::create_replays::{Key, Slot};
use super::durability::{Durability, DurableGrant};
use super::ids::OpenId;
use super::open::{Granted, OpenOutcome, OpenRequest};

impl Hub {
    /// Notes that the client uses the open. It knows the open and will not replay the create
    /// (`Open.IsReplayEligible`, [MS-SMB2] 3.3.1.10). [`Self::check_sequence`] does this by itself.
    pub fn used(&mut self, open: OpenId) {
        self.creates.closed(open);
    }

    /// Returns the outcome of a create whose guid is known; `None` if it is not.
    pub(super) fn replay_create(
        &mut self,
        now: Duration,
        request: &OpenRequest,
        key: Key,
    ) -> Option<OpenOutcome> {
        let Some(slot) = self.creates.slots.get(&key) else {
            // The client has used the open, so it must have got the response.
            return (request.replay && self.is_persistent_create(request, key))
                .then_some(OpenOutcome::Refused(NtStatus::FILE_NOT_AVAILABLE));
        };
        let outcome = match *slot {
            Slot::WaitQueue(waiter) if waiter == request.waiter => return None,
            // The first create may still succeed (smb2.replay.dhv2-pending1n-vs-oplock-sane).
            Slot::WaitQueue(_) if request.replay => Err(NtStatus::FILE_NOT_AVAILABLE),
            Slot::WaitQueue(_) => Err(NtStatus::DUPLICATE_OBJECTID),
            Slot::Made(_) if !request.replay => Err(NtStatus::DUPLICATE_OBJECTID),
            Slot::Made(open) => self.replay_open(now, request, open),
        };
        Some(match outcome {
            Ok(granted) => OpenOutcome::Granted(granted),
            Err(status) => OpenOutcome::Refused(status),
        })
    }

    fn replay_open(&mut self, now: Duration, request: &OpenRequest, id: OpenId) -> Result<Granted, NtStatus> {
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
        // If more is held than requested, the response names what was requested
        // (smb2.replay.replay-dhv2-oplock2).
        let oplock = level_of(open.oplock.state & state_of(request.oplock));
        let caches_handle = lease.is_some() || oplock == OplockLevel::Batch;
        let durable = open
            .durable
            .as_ref()
            .filter(|durable| caches_handle || durable.persistent)
            .map(Durability::grant);
        if is_absent {
            self.renew_lease(id, request.lease.as_ref());
            let (connection, session) = (request.connection, request.session);
            self.attach_client(id, connection, session, request.tree, request.client);
        }
        let granted = Granted {
            open: id,
            oplock: if lease.is_some() {
                OplockLevel::Lease
            } else {
                oplock
            },
            lease: lease.and_then(|name| self.leases.granted(name, request.lease.as_ref())),
            durable: durable.filter(|grant| matches!(grant, DurableGrant::V2(_))),
            replayed: true,
        };
        if is_absent {
            self.send_kept_break(now, id);
        }
        Ok(granted)
    }
}

/// A counted request. Return it with the response.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request is counted until its ticket comes back"]
pub struct CountedRequest {
    open: OpenId,
    /// The sequence it was counted under; `None` if it was not counted.
    number: Option<u16>,
}

impl Hub {
    /// Checks and counts a request of dialect 3.x on an open ([MS-SMB2] 3.3.5.2.10). `modifies`:
    /// WRITE, SET_INFO, IOCTL.
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open; `STATUS_FILE_NOT_AVAILABLE` for a modifying
    /// request that is outdated, or that is a replay while the original may still be executing.
    pub fn check_sequence(
        &mut self,
        id: OpenId,
        sequence: u16,
        modifies: bool,
        replay: bool,
    ) -> Result<CountedRequest, NtStatus> {
        let open = self.tables.opens.get_mut(&id).ok_or(NtStatus::FILE_CLOSED)?;
        let before = open.sequence.number();
        let begun = open.sequence.begin(sequence, modifies, replay);
        if open.sequence.number() != before {
            self.persistent.changed_if(open);
        }
        let number = begun?;
        self.used(id);
        Ok(CountedRequest { open: id, number })
    }

    /// Ends the count of an answered request ([MS-SMB2] 3.3.4.1).
    pub fn end_request(&mut self, ticket: CountedRequest) {
        if let (Some(open), Some(number)) = (self.tables.opens.get_mut(&ticket.open), ticket.number) {
            open.sequence.end(number);
        }
    }
}
