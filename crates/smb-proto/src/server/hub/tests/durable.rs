//! Durable opens ([MS-SMB2] 3.3.5.9.6 to 3.3.5.9.12), after smb2.durable-open and durable-v2-open.

use ropeway_smb_wire::create_context::{AppInstanceVersion, DurableHandleV2Flags, DurableResponseV2};
use ropeway_smb_wire::lock::{LockElement, LockFlags};

use super::*;

fn v2(guid: u8) -> DurableOpenRequest {
    DurableOpenRequest::V2 {
        create_guid: client(guid),
        timeout_ms: u32::MAX,
        persistent: false,
    }
}

impl World {
    /// Returns a request for a batch oplock, durable in version 2.
    pub(super) fn durable(&mut self, guid: u8) -> OpenRequest {
        OpenRequest {
            durable: Some(v2(guid)),
            ..self.oplocked(OplockLevel::Batch)
        }
    }

    /// Returns a request of another client.
    pub(super) fn stranger(&mut self) -> OpenRequest {
        OpenRequest {
            connection: ConnectionId(2),
            session: SessionId(2),
            client: client(2),
            ..self.request()
        }
    }

    pub(super) fn lose(&mut self) -> Vec<Closed> {
        self.hub.disconnect(self.now, ConnectionId(1), &[])
    }
}

/// Returns the reconnect of the client on another connection.
pub(super) fn back(open: OpenId, guid: Option<u8>) -> ReconnectRequest {
    ReconnectRequest {
        file_id: open.file_id(),
        create_guid: guid.map(client),
        persistent: false,
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
fn handle_caching_makes_an_open_durable() {
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
            (DurableOpenRequest::V1, DurableGrant::V1),
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
fn reconnects_check_user_guid_and_lease() {
    let mut world = world();
    let request = world.durable(7);
    let open = world.open(&request).open;
    assert_eq!(
        world.hub.reconnect(world.now, &back(open, Some(7))),
        MISSING,
        "not lost yet"
    );
    assert_eq!(world.lose(), []);
    assert_eq!(world.hub.info(open).unwrap().connection, None);
    assert_eq!(world.hub.reconnect(world.now, &back(open, Some(8))), MISSING);
    let thief = ReconnectRequest {
        user: Arc::from("thief"),
        ..back(open, Some(7))
    };
    assert_eq!(
        world.hub.reconnect(world.now, &thief),
        Err(NtStatus::ACCESS_DENIED)
    );
    let leased = ReconnectRequest {
        lease: Some(lease(1, R)),
        ..back(open, Some(7))
    };
    assert_eq!(world.hub.reconnect(world.now, &leased), MISSING);
    // With an oplock, the client's guid and the name do not matter, and version 1 suffices.
    let request = ReconnectRequest {
        client: client(9),
        path: "".into(),
        ..back(open, None)
    };
    let granted = world.hub.reconnect(world.now, &request).unwrap();
    assert_eq!(
        (granted.open, granted.oplock, granted.durable),
        (open, OplockLevel::Batch, None)
    );
    let info = world.hub.info(open).unwrap();
    assert_eq!((info.session, info.client), (SessionId(3), client(9)));
    assert_eq!(world.hub.poll_timeout(), None);
    assert_eq!(world.hub.disconnect(Duration::ZERO, ConnectionId(3), &[]), []);
    world.hub.reconnect(world.now, &back(open, Some(7))).unwrap();
    world.close(open);
    let v1 = OpenRequest {
        durable: Some(DurableOpenRequest::V1),
        ..world.oplocked(OplockLevel::Batch)
    };
    let open = world.open(&v1).open;
    world.lose();
    assert_eq!(world.hub.reconnect(world.now, &back(open, Some(7))), MISSING);
    world.hub.reconnect(world.now, &back(open, None)).unwrap();
    world.close(open);
    world.assert_empty();
}

/// A write of the lost connection that is still executing must not undo its own replay.
#[test]
fn requests_of_the_lost_connection_count_after_a_reconnect() {
    for number in [0, 1] {
        let mut world = world();
        let request = world.durable(7);
        let open = world.open(&request).open;
        let late = world.hub.check_sequence(open, 0, true, false).unwrap();
        world.lose();
        let request = ReconnectRequest {
            channel_sequence: number,
            ..back(open, Some(7))
        };
        world.hub.reconnect(world.now, &request).unwrap();
        let too_early = world.hub.check_sequence(open, number, true, true);
        assert_eq!(too_early, Err(NtStatus::FILE_NOT_AVAILABLE), "{number}");
        // Other requests of the new connection do not change that.
        let other = world.hub.check_sequence(open, number, true, false).unwrap();
        world.hub.end_request(other);
        let too_early = world.hub.check_sequence(open, number, true, true);
        assert_eq!(too_early, Err(NtStatus::FILE_NOT_AVAILABLE), "{number}");
        world.hub.end_request(late);
        let again = world.hub.check_sequence(open, number, true, true).unwrap();
        world.hub.end_request(again);
        world.close(open);
        world.assert_empty();
    }
}

/// smb2.durable-v2-open.reopen2-lease, reopen1a-lease.
#[test]
fn reconnects_with_a_lease_check_client_and_name() {
    let mut world = world();
    let request = OpenRequest {
        lease: Some(lease_v2(1, RWH, 5)),
        ..world.durable(7)
    };
    let open = world.open(&request).open;
    world.lose();
    assert_eq!(world.hub.reconnect(world.now, &back(open, Some(7))), MISSING);
    let with = |number| ReconnectRequest {
        lease: Some(lease(number, NONE)),
        ..back(open, Some(7))
    };
    assert_eq!(world.hub.reconnect(world.now, &with(2)), MISSING);
    let other = ReconnectRequest {
        client: client(2),
        ..with(1)
    };
    assert_eq!(world.hub.reconnect(world.now, &other), MISSING);
    let elsewhere = ReconnectRequest {
        path: "other".into(),
        ..with(1)
    };
    assert_eq!(
        world.hub.reconnect(world.now, &elsewhere),
        Err(NtStatus::INVALID_PARAMETER)
    );
    let granted = world.hub.reconnect(world.now, &with(1)).unwrap();
    assert_eq!((state(&granted), epoch(&granted)), (RWH, 6));
    world.close(open);
    world.assert_empty();
}

/// After the timeout ([MS-SMB2] 3.3.6.2) the open is closed, and a pending deletion is carried out.
#[test]
fn durable_opens_expire() {
    let mut world = world();
    let request = OpenRequest {
        delete_on_close: true,
        ..world.durable(7)
    };
    let open = world.open(&request).open;
    world.lose();
    assert_eq!(world.hub.poll_timeout(), Some(world.now + ms(300_000)));
    world.hub.handle_timeout(world.now + ms(300_000));
    let [Event::Expired(closed)] = &world.events()[..] else {
        panic!();
    };
    assert_eq!(closed.open, open);
    assert_eq!(closed.delete.as_ref().unwrap().file, file(1));
    world.assert_empty();
}

/// smb2.durable-open.delete_on_close1: a conflicting open has the file deleted first.
#[test]
fn a_conflicting_open_deletes_what_was_to_be_deleted_on_close() {
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
fn conflicting_opens_close_durable_opens_without_a_client() {
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
            "only its close is reported"
        );
    }
}

/// smb2.durable-v2-open.purge-disconnected-rh-with-write, -rename.
#[test]
fn writes_and_renames_close_durable_opens_without_a_client() {
    for why in [BreakTrigger::Write, BreakTrigger::Rename] {
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
        let outcome = world
            .hub
            .break_caching(Duration::ZERO, Some(other), &file(1), why, waiter);
        assert_eq!((outcome, world.hub.info(open)), (BreakOutcome::Ready, None));
    }
}

/// An open without a client is closed when its lease loses handle caching, even if the lease has
/// another open.
#[test]
fn losing_handle_caching_closes_durable_opens_without_a_client() {
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

/// smb2.durable-open.lock-oplock, lock-noW-lease; also breaks in progress, pending deletions, lost
/// oplocks.
#[test]
fn locks_breaks_and_deletions_decide_what_survives() {
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
                world.hub.lock_by(Duration::ZERO, open, &[lock], None, waiter),
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
        world.hub.disconnect(
            Duration::ZERO,
            ConnectionId(1),
            &[(SessionId(1), ConnectionId(4))]
        ),
        []
    );
    assert_eq!(world.hub.info(open).unwrap().connection, Some(ConnectionId(4)));
    assert_eq!(world.hub.end_session(Duration::ZERO, SessionId(1)), []);
    world.hub.reconnect(world.now, &back(open, Some(7))).unwrap();
    assert_eq!(
        world.hub.end_tree(Duration::ZERO, SessionId(3), TreeId(3)).len(),
        1
    );
    world.assert_empty();
}

/// smb2.durable-v2-open.app-instance ([MS-SMB2] 3.3.5.9.13): the application has moved to another
/// client.
#[test]
fn an_application_that_moves_closes_its_old_opens() {
    let mut world = world();
    let request = OpenRequest {
        app_instance: instance(None),
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
        .oplock_break_ack(Duration::ZERO, first, OplockLevel::LevelII)
        .unwrap();
    world.events();
    let moved = OpenRequest {
        app_instance: instance(None),
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

/// Returns an application instance of this version.
fn instance(version: Option<(u64, u64)>) -> Option<AppInstance> {
    let version = version.map(|(high, low)| AppInstanceVersion { high, low });
    Some(AppInstance {
        id: client(9),
        version,
    })
}

/// An application of a version gives way to a greater one only (AppInstanceVersion_*).
#[test]
fn an_application_with_a_version_gives_way_to_greater_ones() {
    let refused = OpenOutcome::Refused(NtStatus::FILE_FORCED_CLOSED);
    for (first, second, closes) in [
        (Some((1, 0)), Some((2, 1)), true),
        (Some((1, 5)), Some((2, 0)), true),
        (Some((1, 0)), Some((1, 1)), true),
        (Some((2, 0)), Some((2, 0)), false),
        (Some((2, 0)), Some((1, 9)), false),
        (Some((1, 2)), Some((1, 1)), false),
        (Some((0, 0)), None, false),
        (None, Some((0, 0)), true),
        (None, None, true),
    ] {
        let mut world = world();
        let request = OpenRequest {
            app_instance: instance(first),
            share_access: ALONE,
            ..world.request()
        };
        let old = world.open(&request).open;
        let moved = OpenRequest {
            app_instance: instance(second),
            share_access: ALONE,
            ..world.stranger()
        };
        let outcome = world.hub.open(world.now, &moved);
        if closes {
            let OpenOutcome::Granted(new) = outcome else {
                panic!("{first:?}, {second:?}: {outcome:?}");
            };
            assert!(world.hub.info(old).is_none());
            world.events();
            world.close(new.open);
        } else {
            assert_eq!(outcome, refused, "{first:?}, {second:?}");
            world.close(old);
        }
        world.assert_empty();
    }
}
