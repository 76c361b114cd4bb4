//! Replayed creates ([MS-SMB2] 3.3.5.9.10), after smb2.replay.

use super::*;

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
    // durable-reconnect-replay1: the replay also finds the open after a disconnect.
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
    // Once the open is used, its create cannot be replayed.
    let ticket = world.hub.check_sequence(first.open, 0, false, false).unwrap();
    world.hub.end_request(ticket);
    world.waits(&on_another);
    world.close(first.open);
    let second = world.open(&on_another).open;
    assert_ne!(second, first.open);
    world.close(second);
    world.assert_empty();
}

/// An open that a client finds again by a replayed create counts among that session's opens.
#[test]
fn a_repeated_create_counts() {
    let mut world = world();
    world.hub.limits.opens_per_session_max = 1;
    let request = world.durable(7);
    let first = world.open(&request).open;
    world.lose();
    let elsewhere = |request: OpenRequest| OpenRequest {
        session: SessionId(2),
        connection: ConnectionId(2),
        ..request
    };
    let other = elsewhere(OpenRequest {
        file: file(2),
        ..world.request()
    });
    let other = world.open(&other).open;
    let again = elsewhere(OpenRequest {
        replay: true,
        ..world.durable(7)
    });
    assert_eq!(world.refused(&again), NtStatus::TOO_MANY_OPENED_FILES);
    world.close(other);
    assert_eq!(world.open(&again).open, first);
    assert_eq!(world.hub.session_open_count(SessionId(2)), 1);
    world.close(first);
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

/// smb2.replay.dhv2-pending1n-vs-oplock-sane: the original is in progress.
#[test]
fn creates_replayed_too_early_are_refused() {
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
    // A cancelled create is forgotten.
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

/// smb2.replay.dhv2-pending2n-vs-lease-sane: the create waits, its channel is lost, and it is
/// replayed on others.
#[test]
fn a_waiting_create_outlives_its_channel() {
    let mut world = world();
    let held = OpenRequest {
        client: client(2),
        connection: ConnectionId(2),
        session: SessionId(2),
        ..world.leased(1, RWH)
    };
    let held = world.open(&held).open;
    let wish = Some(DurableOpenRequest::V2 {
        create_guid: Guid([9; 16]),
        timeout_ms: 0,
        persistent: false,
    });
    let first = OpenRequest {
        durable: wish,
        ..world.request()
    };
    world.waits(&first);
    world.events();
    let moved = [(SessionId(1), ConnectionId(3))];
    assert_eq!(world.hub.disconnect(Duration::ZERO, ConnectionId(1), &moved), []);
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
    assert_eq!(world.events(), [], "no request is woken");
    let third = again(&mut world);
    let open = world.open(&third).open;
    world.close(open);
    world.assert_empty();
}
