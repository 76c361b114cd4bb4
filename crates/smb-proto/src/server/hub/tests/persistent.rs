//! Persistent opens while the server runs ([MS-SMB2] 3.3.5.9, 3.3.5.9.10, 3.3.5.9.12, 3.3.7.1), after
//! smb2.persistent-open and smb2.persistent-open-reconnect-contended.

use ropeway_smb_wire::create_context::{DurableHandleV2Flags, DurableResponseV2};
use ropeway_smb_wire::lock::{LockElement, LockFlags};

use super::durable::back;
use super::*;

pub(super) fn wish(guid: u8) -> Option<DurableOpenRequest> {
    Some(DurableOpenRequest::V2 {
        create_guid: client(guid),
        timeout_ms: 5000,
        persistent: true,
    })
}

/// Returns the reconnect to a persistent open.
fn return_to(open: OpenId, guid: u8) -> ReconnectRequest {
    ReconnectRequest {
        persistent: true,
        ..back(open, Some(guid))
    }
}

const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE_LOCK;

impl World {
    /// Returns a request of client 1 for a persistent open.
    pub(super) fn persistent(&mut self, guid: u8) -> OpenRequest {
        OpenRequest {
            durable: wish(guid),
            ..self.request()
        }
    }

    pub(super) fn lock_first_byte(&mut self, open: OpenId) {
        let element = LockElement {
            offset: 0,
            length: 1,
            flags: EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
        };
        let waiter = self.waiter();
        let outcome = self.hub.lock_by(self.now, open, &[element], None, waiter);
        assert_eq!(outcome, LockOutcome::Granted);
    }

    #[track_caller]
    fn back(&mut self, open: OpenId, guid: u8) -> Granted {
        self.hub.reconnect(self.now, &return_to(open, guid)).unwrap()
    }

    /// Returns the opens that changed.
    fn changed(&mut self) -> Vec<OpenId> {
        let changes = self.hub.take_changes();
        changes.into_iter().map(|change| change.open).collect()
    }
}

fn granted(timeout_ms: u32) -> Option<DurableGrant> {
    Some(DurableGrant::V2(DurableResponseV2 {
        timeout_ms,
        flags: DurableHandleV2Flags::PERSISTENT,
    }))
}

/// smb2.persistent-open.leaselevels, smb2.durable-v2-open.persistent-open-oplock, -lease.
#[test]
fn no_caching_is_needed() {
    let none = OplockLevel::None;
    for (level, asked, directory) in [
        (none, None, false),
        (OplockLevel::LevelII, None, false),
        (OplockLevel::Exclusive, None, false),
        (OplockLevel::Batch, None, false),
        (none, Some(lease(1, R)), false),
        (none, Some(lease(1, RW)), false),
        (none, Some(lease_v2(1, RWH, 0)), false),
        (none, None, true),
        (none, Some(lease_v2(1, RH, 0)), true),
    ] {
        let mut world = world();
        let request = OpenRequest {
            oplock: level,
            lease: asked,
            directory,
            ..world.persistent(7)
        };
        let first = world.open(&request);
        assert_eq!(first.durable, granted(5000), "{request:?}");
        assert_eq!(world.lose(), []);
        let request = ReconnectRequest {
            lease: asked,
            ..return_to(first.open, 7)
        };
        let again = world.hub.reconnect(world.now, &request).unwrap();
        assert_eq!((again.open, again.oplock), (first.open, first.oplock));
        if asked.is_some() {
            assert_eq!(state(&again), state(&first));
        }
        world.close(first.open);
        world.assert_empty();
    }
}

#[test]
fn the_time_is_the_clients_or_a_default() {
    for (asked, expected) in [(0, 120_000), (1000, 1000), (u32::MAX, 300_000)] {
        let mut world = world();
        let request = OpenRequest {
            durable: Some(DurableOpenRequest::V2 {
                create_guid: client(7),
                timeout_ms: asked,
                persistent: true,
            }),
            ..world.request()
        };
        let open = world.open(&request);
        assert_eq!(open.durable, granted(expected));
        world.lose();
        let due = world.now + ms(expected.into());
        assert_eq!(world.hub.poll_timeout(), Some(due));
        world.hub.handle_timeout(due);
        assert!(matches!(&world.events()[..], [Event::Expired(_)]));
        world.assert_empty();
    }
}

/// [MS-SMB2] 3.3.5.9: with whatever it asks for.
#[test]
fn the_file_of_an_absent_open_is_not_available() {
    for asked in [None, Some(lease(1, R)), Some(lease(1, RW))] {
        let mut world = world();
        let request = OpenRequest {
            lease: asked,
            ..world.persistent(7)
        };
        let open = world.open(&request).open;
        let other = OpenRequest {
            access: READ,
            ..world.stranger()
        };
        if asked.is_none() {
            // While the client is there, it is an open like any other.
            let second = world.open(&other).open;
            world.close(second);
        }
        world.lose();
        assert_eq!(world.refused(&other), NtStatus::FILE_NOT_AVAILABLE);
        let own = world.request();
        assert_eq!(
            world.refused(&own),
            NtStatus::FILE_NOT_AVAILABLE,
            "its own client"
        );
        let another_file = OpenRequest {
            file: file(2),
            path: "folder\\other".into(),
            ..world.stranger()
        };
        let third = world.open(&another_file).open;
        world.close(third);
        world.hub.handle_timeout(world.now + ms(5000));
        let second = world.open(&other).open;
        world.close(second);
        assert!(world.hub.info(open).is_none());
    }
}

/// [MS-SMB2] 3.3.5.9.12.
#[test]
fn reconnects_name_the_flag_and_the_guid() {
    let missing = Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    let mut world = world();
    let request = world.persistent(7);
    let open = world.open(&request).open;
    world.lose();
    let tries = [
        back(open, Some(7)),
        back(open, None),
        return_to(open, 8),
        ReconnectRequest {
            share_id: 2,
            ..return_to(open, 7)
        },
    ];
    for request in tries {
        assert_eq!(world.hub.reconnect(world.now, &request), missing, "{request:?}");
    }
    let thief = ReconnectRequest {
        user: Arc::from("thief"),
        ..return_to(OpenId(99), 7)
    };
    assert_eq!(
        world.hub.reconnect(world.now, &thief),
        Err(NtStatus::ACCESS_DENIED)
    );
    // The guid finds an open whose id the server does not know; without the flag it does not.
    assert_eq!(
        world.hub.reconnect(world.now, &back(OpenId(99), Some(7))),
        missing
    );
    assert_eq!(world.back(OpenId(99), 7).open, open);
    assert_eq!(
        world.hub.reconnect(world.now, &return_to(open, 7)),
        missing,
        "it has a client"
    );
    world.close(open);
    assert_eq!(world.hub.reconnect(world.now, &return_to(open, 7)), missing);
    world.assert_empty();
}

/// smb2.persistent-open-reconnect-contended.reconnect-contended.
#[test]
fn handle_caching_of_an_absent_open_breaks_when_the_client_is_back() {
    // Held, what the other open denies, what is kept, whether it waits.
    for (held, access, share, kept, waits) in [
        (RH, READ, ALONE, R, true),
        (RWH, READ, ALONE, RW, true),
        (RWH, READ, ALL, RH, true),
        (RH, READ, ALL, RH, false),
    ] {
        let mut world = world();
        let request = OpenRequest {
            lease: Some(lease_v2(1, held, 0)),
            access: READ,
            share_access: share,
            ..world.persistent(7)
        };
        let open = world.open(&request).open;
        world.lose();
        let other = OpenRequest {
            access,
            lease: Some(lease_v2(2, RWH, 0)),
            ..world.stranger()
        };
        if !waits {
            assert_eq!(state(&world.open(&other)), RH);
            continue;
        }
        world.waits(&other);
        assert_eq!(world.breaks(), [], "nobody is there to be told");
        let request = ReconnectRequest {
            lease: Some(lease_v2(1, held, 128)),
            ..return_to(open, 7)
        };
        let again = world.hub.reconnect(world.now, &request).unwrap();
        assert_eq!((state(&again), epoch(&again), flags(&again)), (held, 1, 0));
        assert_eq!(world.breaks(), [(1, held, kept, 2)]);
        assert_eq!(world.ack(1, kept), Ok(kept));
        assert_eq!(world.woken(), [other.waiter]);
        match share == ALONE {
            true => assert_eq!(world.refused(&other), NtStatus::SHARING_VIOLATION),
            false => assert_eq!(state(&world.open(&other)), RH),
        }
    }
}

/// Nobody waits for a client that does not return longer than for one that does not answer.
#[test]
fn an_absent_client_does_not_hold_others_up_for_longer_than_a_break() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0)),
        durable: Some(DurableOpenRequest::V2 {
            create_guid: client(7),
            timeout_ms: 300_000,
            persistent: true,
        }),
        ..world.request()
    };
    let open = world.open(&request).open;
    world.lose();
    let other = world.stranger();
    world.waits(&other);
    world.now += ms(35_000);
    world.hub.handle_timeout(world.now);
    assert_eq!(world.woken(), [other.waiter]);
    assert_eq!(world.refused(&other), NtStatus::FILE_NOT_AVAILABLE);
    let request = ReconnectRequest {
        lease: Some(lease_v2(1, RWH, 1)),
        ..return_to(open, 7)
    };
    let again = world.hub.reconnect(world.now, &request).unwrap();
    assert_eq!(
        (state(&again), epoch(&again)),
        (NONE, 2),
        "the client sees the change"
    );
    assert_eq!(world.breaks(), []);
}

/// A lease without handle caching counts as granted anew: with `brlck` in the test's table, one without
/// write caching is lost over locks.
#[test]
fn leases_without_handle_caching_take_the_clients_epoch() {
    for (held, locks, left, expected) in [
        (R, false, R, 129),
        (RW, false, RW, 128),
        (R, true, NONE, 128),
        (RH, true, NONE, 128),
        (RW, true, RW, 128),
        (RWH, true, RWH, 1),
        (RH, false, RH, 1),
    ] {
        let mut world = world();
        let request = OpenRequest {
            lease: Some(lease_v2(1, held, 0)),
            ..world.persistent(7)
        };
        let open = world.open(&request).open;
        if locks {
            world.lock_first_byte(open);
        }
        world.lose();
        let request = ReconnectRequest {
            lease: Some(lease_v2(1, held, 128)),
            ..return_to(open, 7)
        };
        let again = world.hub.reconnect(world.now, &request).unwrap();
        assert_eq!(
            (state(&again), epoch(&again)),
            (left, expected),
            "{held:?} {locks}"
        );
        assert_eq!(world.hub.lock_count(open), usize::from(locks));
        world.close(open);
        world.assert_empty();
    }
}

/// smb2.persistent-open-reconnect-contended.reconnect-contended-two.
#[test]
fn two_opens_of_a_lease_return_one_by_one() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, R, 0)),
        ..world.persistent(7)
    };
    let one = world.open(&request).open;
    let request = OpenRequest {
        lease: Some(lease_v2(1, R, 0)),
        ..world.persistent(8)
    };
    let two = world.open(&request).open;
    world.lose();
    for (open, guid, asked) in [(one, 7, 128), (two, 8, 130)] {
        let other = world.stranger();
        assert_eq!(world.refused(&other), NtStatus::FILE_NOT_AVAILABLE);
        let request = ReconnectRequest {
            lease: Some(lease_v2(1, R, asked)),
            ..return_to(open, guid)
        };
        let again = world.hub.reconnect(world.now, &request).unwrap();
        assert_eq!((state(&again), epoch(&again)), (R, 129));
    }
}

/// smb2.persistent-open-reconnect-contended.reconnect-contended-oplock.
#[test]
fn a_batch_oplock_breaks_when_the_client_is_back() {
    let mut world = world();
    let request = OpenRequest {
        oplock: OplockLevel::Batch,
        ..world.persistent(7)
    };
    let open = world.open(&request).open;
    world.lose();
    let other = world.stranger();
    world.waits(&other);
    assert_eq!(world.back(open, 7).oplock, OplockLevel::Batch);
    assert_eq!(world.oplock_breaks(), [(open, OplockLevel::LevelII)]);
    world
        .hub
        .oplock_break_ack(world.now, open, OplockLevel::LevelII)
        .unwrap();
    assert_eq!(world.woken(), [other.waiter]);
    world.open(&other);
}

/// A break whose acknowledgment was lost with the connection is sent again.
#[test]
fn a_break_in_progress_is_repeated() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0)),
        ..world.persistent(7)
    };
    let open = world.open(&request).open;
    let other = world.stranger();
    world.waits(&other);
    assert_eq!(world.breaks(), [(1, RWH, RH, 2)]);
    assert_eq!(world.lose(), []);
    let request = ReconnectRequest {
        lease: Some(lease_v2(1, RWH, 1)),
        ..return_to(open, 7)
    };
    let again = world.hub.reconnect(world.now, &request).unwrap();
    assert_eq!((state(&again), epoch(&again)), (RWH, 1));
    assert_eq!(world.breaks(), [(1, RWH, RH, 2)]);
}

/// smb2.persistent-open.deleteonclose-reconnect, deleteonclose-expire.
#[test]
fn a_pending_deletion_survives_with_its_open() {
    for expires in [false, true] {
        let mut world = world();
        let request = world.persistent(7);
        let open = world.open(&request).open;
        world.hub.set_delete_pending(open, true).unwrap();
        assert_eq!(world.lose(), []);
        let deletion = if expires {
            world.hub.handle_timeout(world.now + ms(5000));
            let events = world.events();
            let [Event::Expired(closed)] = &events[..] else {
                panic!("{events:?}");
            };
            closed.delete.clone()
        } else {
            world.back(open, 7);
            world.close(open).delete
        };
        assert!(deletion.is_some());
        world.assert_empty();
    }
}

/// smb2.persistent-open.replay-multi, replay-reconnect.
#[test]
fn creates_are_replayed_until_the_open_is_used() {
    let mut world = world();
    let first = world.persistent(7);
    let open = world.open(&first);
    world.lose();
    let replay = OpenRequest {
        replay: true,
        connection: ConnectionId(3),
        session: SessionId(3),
        ..world.persistent(7)
    };
    for _ in 0..3 {
        let again = world.open(&replay);
        assert_eq!(
            (again.open, again.durable, again.replayed),
            (open.open, open.durable, true)
        );
    }
    let ticket = world.hub.check_sequence(open.open, 0, true, false).unwrap();
    world.hub.end_request(ticket);
    assert_eq!(world.refused(&replay), NtStatus::FILE_NOT_AVAILABLE);
}

/// smb2.durable-v2-open.app-instance: the application goes on at another client.
#[test]
fn an_application_that_moves_closes_its_open() {
    let mut world = world();
    let request = OpenRequest {
        app_instance: Some(AppInstance {
            id: client(5),
            version: None,
        }),
        ..world.persistent(7)
    };
    let open = world.open(&request).open;
    world.lose();
    let moved = OpenRequest {
        app_instance: Some(AppInstance {
            id: client(5),
            version: None,
        }),
        ..world.stranger()
    };
    world.open(&moved);
    assert!(world.hub.info(open).is_none());
}

/// What cannot be kept is promised no more.
#[test]
fn demoted_opens_are_durable_or_go() {
    for (level, durable) in [(OplockLevel::Batch, true), (OplockLevel::LevelII, false)] {
        let mut world = world();
        let request = OpenRequest {
            oplock: level,
            ..world.persistent(7)
        };
        let open = world.open(&request).open;
        let grant = world.hub.demote(open);
        let flags = grant.map(|grant| match grant {
            DurableGrant::V2(response) => response.flags,
            DurableGrant::V1 => panic!("another version"),
        });
        assert_eq!(flags, durable.then(DurableHandleV2Flags::default));
        assert_eq!(world.hub.persistent_open(open), None);
        assert_eq!(world.lose().len(), usize::from(!durable));
        assert_eq!(world.changed(), []);
    }
}

#[test]
fn persistent_opens_are_bounded() {
    let mut world = world();
    world.hub.limits.persistent_max = 1;
    let request = world.persistent(7);
    let first = world.open(&request);
    let request = world.persistent(8);
    assert_eq!(world.open(&request).durable, None);
    world.close(first.open);
    let request = world.persistent(9);
    assert_eq!(world.open(&request).durable, granted(5000));
}

/// The owner learns of each change that it must keep.
#[test]
fn changes_are_reported() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0)),
        ..world.persistent(7)
    };
    let open = world.open(&request).open;
    world.changed();
    let count = world.hub.change_count();
    let plain = OpenRequest {
        file: file(2),
        path: "other".into(),
        ..world.request()
    };
    let plain = world.open(&plain).open;
    world.lock_first_byte(plain);
    world.close(plain);
    assert_eq!((world.hub.change_count(), world.changed()), (count, vec![]));

    world.lock_first_byte(open);
    assert_eq!(world.changed(), [open], "a lock");
    let refused = LockElement {
        offset: 0,
        length: 1,
        flags: EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
    };
    let waiter = world.waiter();
    let outcome = world.hub.lock_by(world.now, open, &[refused], None, waiter);
    assert_eq!(outcome, LockOutcome::Refused(NtStatus::LOCK_NOT_GRANTED));
    assert_eq!(world.changed(), [], "no lock");
    let other = OpenRequest {
        access: STAT | AccessMask::READ_DATA,
        ..world.stranger()
    };
    world.waits(&other);
    assert_eq!(world.changed(), [open], "a break begins");
    let kept = world.hub.persistent_open(open).unwrap();
    let held = KeptCaching::Lease {
        key: key(1),
        state: RWH,
        epoch: Some(2),
    };
    assert_eq!((kept.caching, kept.locks.len()), (held, 1));
    let asked = kept.breaking.map(|breaking| breaking.requested);
    assert_eq!(asked, Some(RH), "it may not be acknowledged before a restart");
    world.ack(1, RH).unwrap();
    world.changed();
    world.hub.renamed(1, &"folder".into(), &"moved".into());
    assert_eq!(world.changed(), [open], "a rename");
    world.hub.set_delete_pending(open, true).unwrap();
    assert_eq!(world.changed(), [open], "a deletion");
    world.hub.set_delete_pending(open, false).unwrap();
    assert_eq!(world.changed(), [open], "no deletion");
    let ticket = world.hub.check_sequence(open, 1, true, false).unwrap();
    world.hub.end_request(ticket);
    assert_eq!(world.changed(), [open], "a channel sequence");
    world.close(open);
    let changes = world.hub.take_changes();
    assert!(matches!(&changes[..], [change] if change.open == open && change.state.is_none()));
}
