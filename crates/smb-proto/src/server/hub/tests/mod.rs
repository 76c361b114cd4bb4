//! Tests of the hub: by its rules, and against a naive model.

mod durable;
mod leases;
mod locks;
mod many;
mod model;
mod notify;
mod oplocks;
mod persistent;
mod posix;
mod replay;
mod restored;
mod shares;
mod steps;
mod stories;

use std::sync::Arc;

use ropeway_smb_wire::create::{AccessMask, OplockLevel, ShareAccess};
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::lock::{LockElement, LockSequence};
use ropeway_smb_wire::oplock_break::{BreakNotification, LeaseBreak};
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus, SessionId, TreeId};

use super::*;

const R: LeaseState = LeaseState::from_bits_retain(1);
const RH: LeaseState = LeaseState::from_bits_retain(3);
const RW: LeaseState = LeaseState::from_bits_retain(5);
const RWH: LeaseState = LeaseState::from_bits_retain(7);
const NONE: LeaseState = LeaseState::from_bits_retain(0);
const ALL: ShareAccess = ShareAccess::from_bits_retain(7);
const ALONE: ShareAccess = ShareAccess::from_bits_retain(0);
const READ: AccessMask = AccessMask::READ_DATA;
const STAT: AccessMask = AccessMask::READ_ATTRIBUTES;

/// A hub, its time, and the number of the last request.
struct World {
    hub: Hub,
    now: Duration,
    requests: u64,
}

impl Hub {
    fn lock_by(
        &mut self,
        now: Duration,
        open: OpenId,
        elements: &[LockElement],
        sequence: Option<LockSequence>,
        waiter: WaiterId,
    ) -> LockOutcome {
        self.lock(&RangeLockRequest {
            now,
            open,
            elements,
            sequence,
            waiter,
        })
    }
}

/// Returns a time of the hub's clock in milliseconds.
fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn world() -> World {
    World {
        hub: Hub::new(HubLimits::default()),
        now: ms(1000),
        requests: 0,
    }
}

fn file(index: u64) -> FileKey {
    FileKey {
        share_volume: 1,
        index,
        stream: None,
    }
}

fn stream(index: u64, name: &str) -> FileKey {
    FileKey {
        stream: Some(name.into()),
        ..file(index)
    }
}

fn client(number: u8) -> Guid {
    Guid([number; 16])
}

fn key(number: u8) -> LeaseKey {
    LeaseKey([number; 16])
}

fn lease(number: u8, state: LeaseState) -> LeaseRequest {
    LeaseRequest {
        key: key(number),
        state,
        v2: None,
    }
}

fn lease_v2(number: u8, state: LeaseState, epoch: u16) -> LeaseRequest {
    LeaseRequest {
        v2: Some(LeaseRequestV2 { parent: None, epoch }),
        ..lease(number, state)
    }
}

impl World {
    /// Returns a request of client 1 for file 1 with all rights, sharing all access.
    fn request(&mut self) -> OpenRequest {
        self.requests += 1;
        OpenRequest {
            file: file(1),
            path: "folder\\file".into(),
            share_id: 1,
            directory: false,
            existed: true,
            size: 100,
            overwrites: false,
            access: AccessMask::FILE_ALL,
            share_access: ALL,
            delete_on_close: false,
            oplock: OplockLevel::None,
            lease: None,
            durable: None,
            app_instance: None,
            replay: false,
            channel_sequence: 0,
            connection: ConnectionId(1),
            session: SessionId(1),
            tree: TreeId(1),
            client: client(1),
            user: Arc::from("user"),
            waiter: WaiterId {
                connection: ConnectionId(1),
                request: self.requests,
            },
        }
    }

    /// Returns a request with a lease.
    fn leased(&mut self, number: u8, state: LeaseState) -> OpenRequest {
        OpenRequest {
            lease: Some(lease(number, state)),
            ..self.request()
        }
    }

    /// Returns a request with an oplock.
    fn oplocked(&mut self, level: OplockLevel) -> OpenRequest {
        OpenRequest {
            oplock: level,
            ..self.request()
        }
    }

    fn waiter(&mut self) -> WaiterId {
        self.request().waiter
    }

    fn outcome(&mut self, request: &OpenRequest) -> OpenOutcome {
        self.hub.open(self.now, request)
    }

    #[track_caller]
    fn open(&mut self, request: &OpenRequest) -> Granted {
        match self.outcome(request) {
            OpenOutcome::Granted(granted) => granted,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(&mut self, request: &OpenRequest) -> NtStatus {
        match self.outcome(request) {
            OpenOutcome::Refused(status) => status,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn waits(&mut self, request: &OpenRequest) {
        assert_eq!(self.outcome(request), OpenOutcome::Wait);
    }

    fn close(&mut self, open: OpenId) -> Closed {
        self.hub.close(self.now, open).unwrap()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.hub.poll_event()).collect()
    }

    /// Returns the lease breaks in the event queue: key, from, to, epoch. Panics on any other
    /// event.
    #[track_caller]
    fn breaks(&mut self) -> Vec<(u8, LeaseState, LeaseState, u16)> {
        let breaks = self.events().into_iter().map(|event| match event {
            Event::Break(BreakOrder {
                notification: BreakNotification::Lease(lease),
                ..
            }) => (
                lease.lease_key.0[0],
                lease.current_lease_state,
                lease.new_lease_state,
                lease.new_epoch,
            ),
            other => panic!("{other:?}"),
        });
        breaks.collect()
    }

    /// Returns the oplock breaks in the event queue.
    #[track_caller]
    fn oplock_breaks(&mut self) -> Vec<(OpenId, OplockLevel)> {
        let breaks = self.events().into_iter().map(|event| match event {
            Event::Break(BreakOrder {
                notification: BreakNotification::Oplock(oplock),
                ..
            }) => (OpenId::from_file_id(oplock.file_id).unwrap(), oplock.oplock_level),
            other => panic!("{other:?}"),
        });
        breaks.collect()
    }

    #[track_caller]
    fn woken(&mut self) -> Vec<WaiterId> {
        let woken = self.events().into_iter().map(|event| match event {
            Event::Wake(waiter) => waiter,
            other => panic!("{other:?}"),
        });
        woken.collect()
    }

    fn ack(&mut self, number: u8, state: LeaseState) -> Result<LeaseState, NtStatus> {
        let ack = LeaseBreak {
            lease_key: key(number),
            lease_state: state,
        };
        let outcome = self.hub.lease_break_ack(self.now, client(1), &ack);
        outcome.map(|response| response.lease_state)
    }

    #[track_caller]
    fn write(&mut self, open: OpenId) {
        let waiter = self.waiter();
        let file = self.hub.info(open).unwrap().file.clone();
        let outcome = self
            .hub
            .break_caching(self.now, Some(open), &file, BreakTrigger::Write, waiter);
        assert_eq!(outcome, BreakOutcome::Ready);
    }

    /// Asserts that the tables are empty.
    #[track_caller]
    fn assert_empty(&self) {
        let hub = &self.hub;
        assert!(hub.tables.opens.is_empty(), "{:?}", hub.tables.opens);
        assert!(hub.tables.bases.is_empty(), "{:?}", hub.tables.bases);
        assert!(hub.tables.sessions.is_empty() && hub.tables.connections.is_empty());
        assert!(hub.tables.paths.is_empty(), "{:?}", hub.tables.paths);
        assert_eq!(hub.leases.len(), 0);
        assert!(hub.creates.is_empty(), "{:?}", hub.creates);
        assert!(hub.persistent.is_empty(), "{:?}", hub.persistent);
        assert!(hub.watches.is_empty(), "{:?}", hub.watches);
        assert_eq!(hub.waits.len(), 0, "{:?}", hub.waits);
        assert!(hub.due.is_empty() && hub.timers.is_empty(), "{:?}", hub.timers);
    }
}

fn state(granted: &Granted) -> LeaseState {
    match granted.lease {
        Some(GrantedLease::V1(lease)) => lease.lease_state,
        Some(GrantedLease::V2(lease)) => lease.lease.lease_state,
        None => panic!("no lease"),
    }
}

fn flags(granted: &Granted) -> u32 {
    match granted.lease {
        Some(GrantedLease::V1(lease)) => lease.lease_flags.bits(),
        Some(GrantedLease::V2(lease)) => lease.lease.lease_flags.bits(),
        None => panic!("no lease"),
    }
}

fn epoch(granted: &Granted) -> u16 {
    match granted.lease {
        Some(GrantedLease::V2(lease)) => lease.epoch,
        _ => panic!("no second version"),
    }
}

#[test]
fn file_ids_round_trip() {
    let id = OpenId(5);
    assert_eq!(OpenId::from_file_id(id.file_id()), Some(id));
    let mut wrong = id.file_id();
    wrong.volatile = 6;
    assert_eq!(OpenId::from_file_id(wrong), None);
    assert_eq!(OpenId::from_file_id(ropeway_smb_wire::FileId::RELATED), None);
    assert_eq!(OpenId::from_file_id(ropeway_smb_wire::FileId::default()), None);
}

/// [MS-SMB2] 3.3.5.2.10, smb2.replay.channel-sequence.
#[test]
fn late_requests_do_not_modify() {
    let mut world = world();
    let request = world.request();
    let open = world.open(&request).open;
    let late = Err(NtStatus::FILE_NOT_AVAILABLE);
    for replay in [false, true] {
        for (number, expected) in [
            (0, Ok(())),
            (0x8000, late),
            (0xFFFF, late),
            (0x7FFF, Ok(())),
            (0x7FFE, late),
            (0, late),
            (0x8000, Ok(())),
            (0xFFFF, Ok(())),
            (0, Ok(())),
            (1, Ok(())),
            (0, late),
            (1, Ok(())),
            (0xFFFF, late),
            (0x8000, Ok(())),
            (0xFFFF, Ok(())),
            (0, Ok(())),
        ] {
            let outcome = world.hub.check_sequence(open, number, true, replay);
            assert_eq!(
                outcome.as_ref().map(|_| ()).map_err(|status| *status),
                expected,
                "{number:#x}"
            );
            outcome
                .into_iter()
                .for_each(|ticket| world.hub.end_request(ticket));
            let read = world.hub.check_sequence(open, number, false, replay).unwrap();
            world.hub.end_request(read);
        }
    }
    // The original is still executing on a failed channel, so its replay must wait.
    let first = world.hub.check_sequence(open, 0, true, false).unwrap();
    assert_eq!(
        world.hub.check_sequence(open, 1, true, true),
        late.map(|()| unreachable!())
    );
    assert_eq!(
        world.hub.check_sequence(open, 1, true, true),
        late.map(|()| unreachable!())
    );
    world.hub.end_request(first);
    let again = world.hub.check_sequence(open, 1, true, true).unwrap();
    world.hub.end_request(again);
    world.close(open);
    world.assert_empty();
}

#[test]
fn limits_hold() {
    let mut world = world();
    world.hub.limits.opens_per_session_max = 2;
    world.hub.limits.opens_max = 3;
    let request = world.request();
    let first = world.open(&request).open;
    world.open(&request);
    assert_eq!(world.refused(&request), NtStatus::TOO_MANY_OPENED_FILES);
    let other = OpenRequest {
        session: SessionId(2),
        ..request
    };
    world.open(&other);
    assert_eq!(world.refused(&other), NtStatus::INSUFFICIENT_RESOURCES);
    world.close(first);
    world.open(&other);
    assert_eq!(world.hub.session_open_count(SessionId(2)), 2);
    assert_eq!(
        world.hub.end_tree(Duration::ZERO, SessionId(2), TreeId(2)).len(),
        0
    );
    assert_eq!(
        world.hub.end_tree(Duration::ZERO, SessionId(2), TreeId(1)).len(),
        2
    );
    assert_eq!(world.hub.end_session(Duration::ZERO, SessionId(1)).len(), 1);
    world.assert_empty();
}
