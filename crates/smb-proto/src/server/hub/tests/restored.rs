//! Persistent opens after a restart of the server.

use proptest::prelude::*;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockSequence};

use super::durable::back;
use super::persistent::wish;
use super::*;

impl World {
    /// Returns the hub of a server that starts with what was kept of all opens.
    fn restart(&mut self) -> World {
        let mut ids: Vec<_> = self.hub.tables.opens.keys().copied().collect();
        ids.sort();
        let mut new = world();
        for id in ids {
            if let Some(kept) = self.hub.persistent_open(id) {
                new.hub.restore(new.now, &kept, 100).unwrap();
            }
        }
        new
    }

    fn kept(&self, open: OpenId) -> PersistentOpen {
        self.hub.persistent_open(open).unwrap()
    }

    fn restores(&mut self, kept: &PersistentOpen) -> Result<(), RestoreError> {
        self.hub.restore(self.now, kept, 100)
    }
}

fn return_to(open: OpenId, guid: u8) -> ReconnectRequest {
    ReconnectRequest {
        persistent: true,
        ..back(open, Some(guid))
    }
}

#[test]
fn a_restored_open_waits_for_its_client() {
    let mut before = world();
    let request = before.persistent(7);
    let open = before.open(&request).open;
    before.lock_first_byte(open);
    let mut world = before.restart();
    assert_eq!(world.kept(open), before.kept(open));
    let other = world.stranger();
    assert_eq!(world.refused(&other), NtStatus::FILE_NOT_AVAILABLE);
    world.hub.reconnect(world.now, &return_to(open, 7)).unwrap();
    // Its lock still excludes others.
    let second = world.open(&other).open;
    assert_eq!(
        world.hub.check_io(second, 0, 1, false),
        Err(NtStatus::FILE_LOCK_CONFLICT)
    );
    assert_eq!(world.hub.check_io(open, 0, 1, true), Ok(()));
    assert!(second > open, "numbers do not return");
    world.close(second);
    world.close(open);
    world.assert_empty();
}

#[test]
fn a_restored_open_expires() {
    let mut before = world();
    let request = OpenRequest {
        delete_on_close: true,
        ..before.persistent(7)
    };
    before.open(&request);
    let mut world = before.restart();
    assert_eq!(world.hub.poll_timeout(), Some(world.now + ms(5000)));
    world.hub.handle_timeout(world.now + ms(5000));
    let events = world.events();
    assert!(matches!(&events[..], [Event::Expired(closed)] if closed.delete.is_some()));
    world.assert_empty();
}

#[test]
fn creates_are_replayed_after_a_restart() {
    for used in [false, true] {
        let mut before = world();
        let request = before.persistent(7);
        let open = before.open(&request).open;
        if used {
            before.hub.used(open);
        }
        let mut world = before.restart();
        let replay = OpenRequest {
            replay: true,
            ..world.persistent(7)
        };
        match used {
            false => assert_eq!(world.open(&replay).open, open),
            true => assert_eq!(world.refused(&replay), NtStatus::FILE_NOT_AVAILABLE),
        }
    }
}

#[test]
fn a_lock_request_is_recognized_after_a_restart() {
    let mut before = world();
    let request = before.persistent(7);
    let open = before.open(&request).open;
    let sequence = LockSequence::new(3, 5);
    let element = |flags| LockElement {
        offset: 0,
        length: 1,
        flags,
    };
    let lock = [element(LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY)];
    let waiter = before.waiter();
    let outcome = before
        .hub
        .lock_by(before.now, open, &lock, Some(sequence), waiter);
    assert_eq!(outcome, LockOutcome::Granted);
    let mut world = before.restart();
    world.hub.reconnect(world.now, &return_to(open, 7)).unwrap();
    let waiter = world.waiter();
    let again = world.hub.lock_by(world.now, open, &lock, Some(sequence), waiter);
    assert_eq!(again, LockOutcome::Granted, "carried out before");
    assert_eq!(world.hub.lock_count(open), 1);
    let unlock = [element(LockFlags::UNLOCK)];
    let outcome = world.hub.lock_by(world.now, open, &unlock, None, waiter);
    assert_eq!(outcome, LockOutcome::Granted);
}

/// Records of one lease were written one by one.
#[test]
fn the_later_state_of_a_lease_applies() {
    let mut before = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 4)),
        ..before.persistent(7)
    };
    let one = before.open(&request).open;
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 4)),
        ..before.persistent(8)
    };
    let two = before.open(&request).open;
    let old = before.kept(one);
    let other = before.stranger();
    before.waits(&other);
    let new = before.kept(two);
    let mut world = world();
    world.restores(&old).unwrap();
    world.restores(&new).unwrap();
    for open in [one, two] {
        let held = KeptCaching::Lease {
            key: key(1),
            state: RWH,
            epoch: Some(6),
        };
        let kept = world.kept(open);
        assert_eq!((kept.caching, kept.breaking), (held, Some(to(RH, RH))));
    }
}

/// Its record was written before the other open got the lock.
#[test]
fn a_lock_that_changed_hands_is_lost_alone() {
    let mut before = world();
    let request = before.persistent(7);
    let one = before.open(&request).open;
    let request = before.persistent(8);
    let two = before.open(&request).open;
    before.lock_first_byte(one);
    let mut old = before.kept(one);
    let other = KeptLock {
        offset: 10,
        length: 5,
        exclusive: true,
    };
    old.locks.push(other);
    let new = PersistentOpen {
        locks: old.locks[..1].to_vec(),
        ..before.kept(two)
    };
    let mut world = world();
    world.restores(&new).unwrap();
    world.hub.drop_taken_locks(&mut old);
    world.restores(&old).unwrap();
    assert_eq!(world.kept(one).locks, [other]);
    assert_eq!(world.kept(two).locks, new.locks);
}

fn to(requested: LeaseState, required: LeaseState) -> KeptBreak {
    KeptBreak { requested, required }
}

/// The client may have data that it did not write yet.
#[test]
fn a_break_in_progress_is_repeated_after_a_restart() {
    let mut before = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0)),
        share_access: ALL,
        ..before.persistent(7)
    };
    let open = before.open(&request).open;
    let other = before.stranger();
    before.waits(&other);
    assert_eq!(before.breaks(), [(1, RWH, RH, 2)]);
    let mut world = before.restart();
    assert_eq!(world.kept(open), before.kept(open));
    let other = world.stranger();
    world.waits(&other);
    assert_eq!(world.breaks(), [], "nobody is there to be told");
    let request = ReconnectRequest {
        lease: Some(lease_v2(1, RWH, 1)),
        ..return_to(open, 7)
    };
    let again = world.hub.reconnect(world.now, &request).unwrap();
    assert_eq!((state(&again), epoch(&again), flags(&again)), (RWH, 1, 0));
    assert_eq!(world.breaks(), [(1, RWH, RH, 2)]);
    assert_eq!(world.ack(1, RH), Ok(RH));
    assert_eq!(world.woken(), [other.waiter]);
    world.open(&other);
}

/// A client that does not return holds others up for as long as one that does not answer.
#[test]
fn a_break_in_progress_ends_after_a_restart() {
    let mut before = world();
    let request = OpenRequest {
        oplock: OplockLevel::Batch,
        share_access: ALL,
        durable: Some(DurableOpenRequest::V2 {
            create_guid: client(7),
            timeout_ms: 300_000,
            persistent: true,
        }),
        ..before.request()
    };
    before.open(&request);
    let other = before.stranger();
    before.waits(&other);
    let mut world = before.restart();
    let other = world.stranger();
    world.waits(&other);
    world.now += ms(35_000);
    world.hub.handle_timeout(world.now);
    assert_eq!(world.woken(), [other.waiter]);
    assert_eq!(world.refused(&other), NtStatus::FILE_NOT_AVAILABLE);
}

/// A lock of one open says nothing about the lease that another one shares with it.
#[test]
fn opens_of_a_lease_keep_it_beside_their_locks() {
    let mut before = world();
    let mut opens = Vec::new();
    for guid in [7, 8] {
        let request = OpenRequest {
            lease: Some(lease_v2(1, RWH, 4)),
            ..before.persistent(guid)
        };
        opens.push(before.open(&request).open);
    }
    before.lock_first_byte(opens[0]);
    let world = before.restart();
    for open in opens {
        assert_eq!(world.kept(open), before.kept(open));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut before = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0)),
        ..before.persistent(7)
    };
    let open = before.open(&request).open;
    before.lock_first_byte(open);
    let good = before.kept(open);
    let with = |id: u64, change: &dyn Fn(&mut PersistentOpen)| {
        let mut kept = PersistentOpen {
            id: OpenId(id),
            ..good.clone()
        };
        change(&mut kept);
        kept
    };
    let mut world = world();
    world.restores(&good).unwrap();
    let far = KeptLock {
        offset: u64::MAX,
        length: 2,
        exclusive: true,
    };
    for (kept, expected) in [
        (good.clone(), RestoreError::Number),
        (with(0, &|_| {}), RestoreError::Number),
        (with(u64::MAX, &|_| {}), RestoreError::Number),
        (with(2, &|kept| kept.share_access = ALONE), RestoreError::Denied),
        (with(2, &|kept| kept.file = file(2)), RestoreError::LeaseElsewhere),
        (with(2, &|_| {}), RestoreError::Lock),
        (with(2, &|kept| kept.locks = vec![far]), RestoreError::Lock),
        (
            with(2, &|kept| kept.locks = vec![far; 10_001]),
            RestoreError::TooMany,
        ),
    ] {
        assert_eq!(world.restores(&kept), Err(expected), "{kept:?}");
        assert_eq!(world.hub.open_count(), 1);
    }
    // Nobody caches writes while another open writes, whatever the records say. Each client learns of it.
    let second = with(3, &|kept| {
        kept.locks.clear();
        kept.caching = KeptCaching::Oplock(RWH);
    });
    world.restores(&second).unwrap();
    assert_eq!(world.kept(OpenId(3)).caching, KeptCaching::Oplock(NONE));
    let lowered = KeptCaching::Lease {
        key: key(1),
        state: RH,
        epoch: Some(2),
    };
    assert_eq!(world.kept(open).caching, lowered);
}

/// An open of a random client, and what it does.
#[derive(Clone, Debug)]
struct Step {
    file: u64,
    client: u8,
    caching: u8,
    delete_on_close: bool,
    locks: Vec<(u64, u64, bool)>,
    deletes: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let lock = (0..1000_u64, 1..50_u64, any::<bool>());
    let flags = (any::<bool>(), any::<bool>());
    let locks = prop::collection::vec(lock, 0..4);
    (1..4_u64, 1..4_u8, 0..8_u8, flags, locks).prop_map(|(file, client, caching, flags, locks)| Step {
        file,
        client,
        caching,
        delete_on_close: flags.0,
        locks,
        deletes: flags.1,
    })
}

fn request_of(world: &mut World, number: u8, step: &Step) -> OpenRequest {
    let (oplock, lease) = match step.caching {
        0 => (OplockLevel::None, None),
        1 => (OplockLevel::LevelII, None),
        2 => (OplockLevel::Exclusive, None),
        3 => (OplockLevel::Batch, None),
        4 => (OplockLevel::None, Some(lease_v2(number, R, 3))),
        5 => (OplockLevel::None, Some(lease_v2(number, RH, 3))),
        6 => (OplockLevel::None, Some(lease_v2(number, RW, 3))),
        _ => (OplockLevel::None, Some(lease(number, RWH))),
    };
    OpenRequest {
        file: file(step.file),
        path: format!("file {}", step.file).as_str().into(),
        directory: step.file == 3,
        client: client(step.client),
        connection: ConnectionId(step.client.into()),
        session: SessionId(step.client.into()),
        delete_on_close: step.delete_on_close,
        durable: wish(number),
        oplock,
        lease,
        ..world.request()
    }
}

proptest! {
    /// What is restored is what was kept, and is kept again as it was.
    #[test]
    fn restored_opens_are_as_before(steps in prop::collection::vec(step(), 1..12)) {
        let mut before = world();
        for (number, step) in (1_u8..).zip(&steps) {
            let request = request_of(&mut before, number, step);
            let OpenOutcome::Granted(granted) = before.outcome(&request) else {
                before.hub.forget(request.waiter);
                continue;
            };
            for (offset, length, exclusive) in step.locks.iter().filter(|_| step.file != 3) {
                let kind = if *exclusive { LockFlags::EXCLUSIVE_LOCK } else { LockFlags::SHARED_LOCK };
                let lock = LockElement { offset: *offset, length: *length, flags: kind | LockFlags::FAIL_IMMEDIATELY };
                let waiter = before.waiter();
                before.hub.lock_by(before.now, granted.open, &[lock], None, waiter);
            }
            if step.deletes {
                before.hub.set_delete_pending(granted.open, true).unwrap();
            }
            before.events();
        }
        let after = before.restart();
        prop_assert_eq!(after.hub.open_count(), before.hub.open_count());
        let ids: Vec<_> = before.hub.tables.opens.keys().copied().collect();
        for id in ids {
            let (old, new) = (before.kept(id), after.kept(id));
            // Caching that others are told to give up may be gone already; no more may be there.
            let state = |kept: &PersistentOpen| match kept.caching {
                KeptCaching::Oplock(state) | KeptCaching::Lease { state, .. } => state,
            };
            prop_assert!(state(&old).contains(state(&new)), "{:?} {:?}", old, new);
            if state(&old) == state(&new) {
                prop_assert_eq!((old.caching, old.breaking), (new.caching, new.breaking));
            }
            prop_assert_eq!(PersistentOpen { caching: old.caching, breaking: old.breaking, ..new }, old);
        }
        let mut again = World { hub: Hub::new(HubLimits::default()), ..world() };
        let mut ids: Vec<_> = after.hub.tables.opens.keys().copied().collect();
        ids.sort();
        for id in &ids {
            again.restores(&after.kept(*id)).unwrap();
        }
        for id in ids {
            prop_assert_eq!(again.kept(id), after.kept(id));
        }
    }
}
