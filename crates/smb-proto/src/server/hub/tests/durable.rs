//! Durable opens and repeated creates ([MS-SMB2] 3.3.5.9.6 to 3.3.5.9.12), as smb2.durable-open, durable-v2-open and replay have them.

use super::*;
use crate::wire::create_context::{DurableHandleV2Flags, DurableResponseV2};
use crate::wire::lock::{LockElement, LockFlags};

fn v2(guid: u8) -> DurableWish {
    DurableWish::V2 {
        create_guid: client(guid),
        timeout_ms: u32::MAX,
    }
}

impl World {
    /// A batch oplock, durable in the second version.
    fn durable(&mut self, guid: u8) -> OpenRequest {
        OpenRequest {
            durable: Some(v2(guid)),
            ..self.oplocked(OplockLevel::Batch)
        }
    }

    /// A request of another client.
    fn stranger(&mut self) -> OpenRequest {
        OpenRequest {
            connection: ConnectionId(2),
            session: SessionId(2),
            client: client(2),
            ..self.request()
        }
    }

    fn lose(&mut self) -> Vec<Closed> {
        self.hub.disconnect(self.now_ms, ConnectionId(1), &[])
    }
}

/// The client comes back on another connection.
fn back(open: OpenId, guid: Option<u8>) -> ReconnectRequest {
    ReconnectRequest {
        file_id: open.file_id(),
        create_guid: guid.map(client),
        lease: None,
        path: "Folder\\FILE".into(),
        share_id: 1,
        connection: ConnectionId(3),
        session: SessionId(3),
        tree: TreeId(3),
        client: client(1),
        user: Arc::from("user"),
        channel_sequence: 0,
    }
}

const MISSING: Result<Granted, NtStatus> = Err(NtStatus::OBJECT_NAME_NOT_FOUND);

/// smb2.durable-open.open-oplock, open-lease, smb2.durable-v2-open.create-blob.
#[test]
fn what_is_durable() {
    for (level, asked, directory, expected) in [
        (OplockLevel::Batch, None, false, true),
        (OplockLevel::Exclusive, None, false, false),
        (OplockLevel::LevelII, None, false, false),
        (OplockLevel::None, Some(lease(1, RWH)), false, true),
        (OplockLevel::None, Some(lease(1, RH)), false, true),
        (OplockLevel::None, Some(lease(1, RW)), false, false),
        (OplockLevel::None, Some(lease(1, R)), false, false),
        (OplockLevel::None, Some(lease_v2(1, RH, 0)), true, false),
    ] {
        let mut world = world();
        for (wish, grant) in [
            (DurableWish::V1, DurableGrant::V1),
            (
                v2(7),
                DurableGrant::V2(DurableResponseV2 {
                    timeout_ms: 300_000,
                    flags: DurableHandleV2Flags::default(),
                }),
            ),
        ] {
            let request = OpenRequest {
                lease: asked,
                directory,
                durable: Some(wish),
                ..world.oplocked(level)
            };
            let granted = world.open(&request);
            assert_eq!(granted.durable, expected.then_some(grant), "{request:?}");
            world.close(granted.open);
        }
        world.assert_empty();
    }
}

/// smb2.durable-v2-open.reopen1, reopen2, reopen2b, reopen2c.
#[test]
fn coming_back() {
    let mut world = world();
    let request = world.durable(7);
    let open = world.open(&request).open;
    assert_eq!(world.hub.reconnect(&back(open, Some(7))), MISSING, "not lost yet");
    assert_eq!(world.lose(), []);
    assert_eq!(world.hub.info(open).unwrap().connection, None);
    assert_eq!(world.hub.reconnect(&back(open, Some(8))), MISSING);
    let thief = ReconnectRequest {
        user: Arc::from("thief"),
        ..back(open, Some(7))
    };
    assert_eq!(world.hub.reconnect(&thief), Err(NtStatus::ACCESS_DENIED));
    let leased = ReconnectRequest {
        lease: Some(lease(1, R)),
        ..back(open, Some(7))
    };
    assert_eq!(world.hub.reconnect(&leased), MISSING);
    // For oplocks the client's guid and the name do not matter; the first version will do.
    let request = ReconnectRequest {
        client: client(9),
        path: "".into(),
        ..back(open, None)
    };
    let granted = world.hub.reconnect(&request).unwrap();
    assert_eq!(
        (granted.open, granted.oplock, granted.durable),
        (open, OplockLevel::Batch, None)
    );
    assert_eq!(world.hub.info(open).unwrap().session, SessionId(3));
    assert_eq!(world.hub.poll_timeout(), None);
    assert_eq!(world.hub.disconnect(0, ConnectionId(3), &[]), []);
    world.hub.reconnect(&back(open, Some(7))).unwrap();
    world.close(open);
    let v1 = OpenRequest {
        durable: Some(DurableWish::V1),
        ..world.oplocked(OplockLevel::Batch)
    };
    let open = world.open(&v1).open;
    world.lose();
    assert_eq!(world.hub.reconnect(&back(open, Some(7))), MISSING);
    world.hub.reconnect(&back(open, None)).unwrap();
    world.close(open);
    world.assert_empty();
}

/// smb2.durable-v2-open.reopen2-lease, reopen1a-lease.
#[test]
fn coming_back_for_a_lease() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 5)),
        ..world.durable(7)
    };
    let open = world.open(&request).open;
    world.lose();
    assert_eq!(world.hub.reconnect(&back(open, Some(7))), MISSING);
    let with = |number| ReconnectRequest {
        lease: Some(lease(number, NONE)),
        ..back(open, Some(7))
    };
    assert_eq!(world.hub.reconnect(&with(2)), MISSING);
    let other = ReconnectRequest {
        client: client(2),
        ..with(1)
    };
    assert_eq!(world.hub.reconnect(&other), MISSING);
    let elsewhere = ReconnectRequest {
        path: "other".into(),
        ..with(1)
    };
    assert_eq!(world.hub.reconnect(&elsewhere), Err(NtStatus::INVALID_PARAMETER));
    let granted = world.hub.reconnect(&with(1)).unwrap();
    assert_eq!((state(&granted), epoch(&granted)), (RWH, 6));
    world.close(open);
    world.assert_empty();
}

/// Time is up ([MS-SMB2] 3.3.6.2), and what was to be deleted is.
#[test]
fn staying_away() {
    let mut world = world();
    let request = OpenRequest {
        delete_on_close: true,
        ..world.durable(7)
    };
    let open = world.open(&request).open;
    world.lose();
    assert_eq!(world.hub.poll_timeout(), Some(world.now_ms + 300_000));
    world.hub.handle_timeout(world.now_ms + 300_000);
    let [Event::Expired(closed)] = &world.events()[..] else {
        panic!();
    };
    assert_eq!(closed.open, open);
    assert_eq!(closed.delete.as_ref().unwrap().file, file(1));
    world.assert_empty();
}

/// smb2.durable-open.delete_on_close1: who finds it in the way has it deleted first.
#[test]
fn the_way_is_cleared() {
    let mut world = world();
    let request = OpenRequest {
        delete_on_close: true,
        ..world.durable(7)
    };
    world.open(&request);
    world.lose();
    let other = world.stranger();
    world.waits(&other);
    let events = world.events();
    let [Event::Expired(closed), Event::Wake(waiter)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(closed.delete.is_some() && *waiter == other.waiter);
    let open = world.open(&other).open;
    world.close(open);
    world.assert_empty();
}

/// smb2.durable-v2-open.keep-disconnected-*, purge-disconnected-*.
#[test]
fn what_stands_in_the_way_goes() {
    for (held, asked, access, share_access, overwrites, stays) in [
        (RH, None, STAT, ALL, false, true),
        (RH, Some(RH), READ, ALL, false, true),
        (RH, Some(RWH), READ, ALL, false, true),
        (RWH, None, STAT, ALL, false, true),
        (RWH, Some(RWH), READ, ALL, false, false),
        (RWH, Some(RH), READ, ALL, false, false),
        (RH, None, READ, ALONE, false, false),
        (RH, None, READ, ALL, true, false),
    ] {
        let mut world = world();
        let request = OpenRequest {
            lease: Some(lease(1, held)),
            ..world.durable(7)
        };
        let open = world.open(&request).open;
        world.lose();
        let other = OpenRequest {
            lease: asked.map(|state| lease(2, state)),
            access,
            share_access,
            overwrites,
            ..world.stranger()
        };
        let granted = world.open(&other);
        if let Some(asked) = asked {
            let most = if stays { RH } else { RWH };
            assert_eq!(state(&granted), most & asked);
        }
        assert_eq!(world.hub.info(open).is_some(), stays, "{held:?} {other:?}");
        assert_eq!(
            world.events().len(),
            usize::from(!stays),
            "told if it goes, nothing else"
        );
    }
}

/// smb2.durable-v2-open.purge-disconnected-rh-with-write, -rename.
#[test]
fn what_is_written_or_renamed_goes() {
    for why in [Touch::Write, Touch::Rename] {
        let mut world = world();
        let request = OpenRequest {
            lease: Some(lease(1, RH)),
            ..world.durable(7)
        };
        let open = world.open(&request).open;
        let other = world.stranger();
        let other = world.open(&other).open;
        world.lose();
        let waiter = world.waiter();
        let outcome = world.hub.touch(0, Some(other), &file(1), why, waiter);
        assert_eq!((outcome, world.hub.info(open)), (TouchOutcome::Ready, None));
    }
}

/// An open whose client is away goes too when its lease loses handle caching through another open of it.
#[test]
fn what_loses_handle_caching_goes() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease(1, RH)),
        ..world.durable(7)
    };
    let away = world.open(&request).open;
    let request = OpenRequest {
        connection: ConnectionId(4),
        session: SessionId(4),
        durable: None,
        ..request
    };
    let stays = world.open(&request).open;
    world.lose();
    let other = world.stranger();
    let other = world.open(&other).open;
    world.write(other);
    assert_eq!(world.breaks(), [(1, RH, NONE, 0)]);
    assert!(world.hub.info(away).is_some());
    world.ack(1, NONE).unwrap();
    assert!(world.hub.info(away).is_none() && world.hub.info(stays).is_some());
}

/// smb2.durable-open.lock-oplock, lock-noW-lease; and breaks under way, deletion pending, oplocks lost.
#[test]
fn what_does_not_survive() {
    let lock = LockElement {
        offset: 0,
        length: 1,
        flags: LockFlags::EXCLUSIVE_LOCK,
    };
    for (asked, locks, breaks, deletes, survives) in [
        (RWH, false, false, false, true),
        (RWH, true, false, false, true),
        (RH, false, false, false, true),
        (RH, true, false, false, false),
        (RWH, false, true, false, false),
        (RWH, false, false, true, false),
    ] {
        let mut world = world();
        let request = OpenRequest {
            lease: Some(lease(1, asked)),
            ..world.durable(7)
        };
        let open = world.open(&request).open;
        if locks {
            let waiter = world.waiter();
            assert_eq!(
                world.hub.lock(0, open, &[lock], None, waiter),
                LockOutcome::Granted
            );
        }
        let other = world.stranger();
        if breaks {
            let other = OpenRequest {
                waiter: WaiterId {
                    connection: ConnectionId(2),
                    request: 5,
                },
                ..other
            };
            world.waits(&other);
        }
        world.hub.set_delete_pending(open, deletes).unwrap();
        assert_eq!(world.lose().is_empty(), survives, "{asked:?}");
        assert_eq!(world.hub.info(open).is_some(), survives);
        let woken = world.events().iter().any(|event| matches!(event, Event::Wake(_)));
        assert_eq!(woken, breaks);
    }
}

/// smb2.durable-open.reopen3, reopen4; other channels of the session.
#[test]
fn trees_sessions_and_channels() {
    let mut world = world();
    let request = world.durable(7);
    let open = world.open(&request).open;
    assert_eq!(
        world
            .hub
            .disconnect(0, ConnectionId(1), &[(SessionId(1), ConnectionId(4))]),
        []
    );
    assert_eq!(world.hub.info(open).unwrap().connection, Some(ConnectionId(4)));
    assert_eq!(world.hub.end_session(0, SessionId(1)), []);
    world.hub.reconnect(&back(open, Some(7))).unwrap();
    assert_eq!(world.hub.end_tree(0, SessionId(3), TreeId(3)).len(), 1);
    world.assert_empty();
}

/// smb2.replay.replay-dhv2-oplock1 to 3, replay-twice-durable, replay6.
#[test]
fn repeated_creates() {
    let mut world = world();
    let request = OpenRequest {
        share_access: ALONE,
        ..world.durable(7)
    };
    let first = world.open(&request);
    let again = OpenRequest {
        replay: true,
        ..world.durable(7)
    };
    assert_eq!(
        world.open(&again),
        Granted {
            replayed: true,
            ..first.clone()
        }
    );
    assert_eq!(world.refused(&request), NtStatus::DUPLICATE_OBJECTID);
    let other_level = OpenRequest {
        oplock: OplockLevel::None,
        ..again.clone()
    };
    let granted = world.open(&other_level);
    assert_eq!((granted.oplock, granted.durable), (OplockLevel::None, None));
    assert_eq!(world.hub.oplock(first.open), Some(OplockLevel::Batch));
    let with_lease = OpenRequest {
        lease: Some(lease(1, RH)),
        ..again.clone()
    };
    assert_eq!(world.refused(&with_lease), NtStatus::ACCESS_DENIED);
    let other_session = OpenRequest {
        session: SessionId(2),
        ..again.clone()
    };
    assert_eq!(world.refused(&other_session), NtStatus::DUPLICATE_OBJECTID);
    assert_eq!(world.events(), []);
    // durable-reconnect-replay1: it finds the open again, too.
    world.lose();
    let on_another = OpenRequest {
        session: SessionId(2),
        connection: ConnectionId(2),
        ..again.clone()
    };
    assert_eq!(world.open(&on_another).open, first.open);
    assert_eq!(
        world.hub.info(first.open).unwrap().connection,
        Some(ConnectionId(2))
    );
    // Once it is used, the create is history.
    let ticket = world.hub.check_sequence(first.open, 0, false, false).unwrap();
    world.hub.end_request(ticket);
    world.waits(&on_another);
    world.close(first.open);
    let second = world.open(&on_another).open;
    assert_ne!(second, first.open);
    world.close(second);
    world.assert_empty();
}

/// smb2.replay.replay-dhv2-lease1, lease3.
#[test]
fn repeated_creates_with_leases() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease(1, RH)),
        ..world.durable(7)
    };
    let first = world.open(&request).open;
    let upgrade = world.leased(1, RWH);
    world.open(&upgrade);
    let again = OpenRequest {
        replay: true,
        ..request.clone()
    };
    let granted = world.open(&again);
    assert_eq!((granted.open, state(&granted)), (first, RWH));
    let other_key = OpenRequest {
        lease: Some(lease(2, RH)),
        ..again
    };
    assert_eq!(world.refused(&other_key), NtStatus::ACCESS_DENIED);
}

/// smb2.replay.dhv2-pending1n-vs-oplock-sane: the first is on its way.
#[test]
fn creates_repeated_too_early() {
    let mut world = world();
    let holder = world.stranger();
    let holder = OpenRequest {
        oplock: OplockLevel::Batch,
        ..holder
    };
    let holder = world.open(&holder).open;
    let request = world.durable(7);
    world.waits(&request);
    let again = OpenRequest {
        replay: true,
        ..world.durable(7)
    };
    assert_eq!(world.refused(&again), NtStatus::FILE_NOT_AVAILABLE);
    let same = world.durable(7);
    assert_eq!(world.refused(&same), NtStatus::DUPLICATE_OBJECTID);
    world.events();
    world.close(holder);
    assert_eq!(world.woken(), [request.waiter]);
    assert_eq!(
        world.refused(&again),
        NtStatus::FILE_NOT_AVAILABLE,
        "woken, not done"
    );
    let open = world.open(&request).open;
    assert_eq!(world.open(&again).open, open);
    world.close(open);
    // One that is cancelled is forgotten.
    let request = OpenRequest {
        oplock: OplockLevel::Batch,
        ..world.stranger()
    };
    let holder = world.open(&request).open;
    let request = world.durable(7);
    world.waits(&request);
    world.hub.forget(request.waiter);
    world.close(holder);
    world.events();
    world.assert_empty();
}

/// smb2.durable-v2-open.app-instance ([MS-SMB2] 3.3.5.9.13): the application runs elsewhere now.
#[test]
fn applications_move() {
    let mut world = world();
    let request = OpenRequest {
        app_instance: Some(client(9)),
        share_access: ALONE,
        ..world.durable(7)
    };
    let first = world.open(&request).open;
    let same_client = OpenRequest {
        durable: None,
        ..request.clone()
    };
    world.waits(&same_client);
    world
        .hub
        .oplock_break_ack(0, first, OplockLevel::LevelII)
        .unwrap();
    world.events();
    let moved = OpenRequest {
        app_instance: Some(client(9)),
        share_access: ALONE,
        oplock: OplockLevel::Batch,
        ..world.stranger()
    };
    let second = world.open(&moved);
    assert_eq!(second.oplock, OplockLevel::Batch);
    assert!(matches!(&world.events()[..], [Event::Expired(closed)] if closed.open == first));
    world.close(second.open);
    world.assert_empty();
}

/// smb2.replay.dhv2-pending2n-vs-lease-sane: the create waits, its channel is lost, it is repeated on others.
#[test]
fn a_create_that_waits_outlives_its_channel() {
    let mut world = world();
    let held = OpenRequest {
        client: client(2),
        connection: ConnectionId(2),
        session: SessionId(2),
        ..world.leased(1, RWH)
    };
    let held = world.open(&held).open;
    let wish = Some(DurableWish::V2 {
        create_guid: Guid([9; 16]),
        timeout_ms: 0,
    });
    let first = OpenRequest {
        durable: wish,
        ..world.request()
    };
    world.waits(&first);
    world.events();
    let moved = [(SessionId(1), ConnectionId(3))];
    assert_eq!(world.hub.disconnect(0, ConnectionId(1), &moved), []);
    world.hub.forget(first.waiter);
    let again = |world: &mut World| {
        let base = world.request();
        OpenRequest {
            durable: wish,
            replay: true,
            connection: ConnectionId(3),
            waiter: WaiterId {
                connection: ConnectionId(3),
                ..base.waiter
            },
            ..base
        }
    };
    let second = again(&mut world);
    assert_eq!(world.refused(&second), NtStatus::FILE_NOT_AVAILABLE);
    world.close(held);
    assert_eq!(world.events(), [], "nobody is woken");
    let third = again(&mut world);
    let open = world.open(&third).open;
    world.close(open);
    world.assert_empty();
}
