//! Oplocks ([MS-SMB2] 3.3.5.22.1), after smb2.oplock.

use super::*;
use OplockLevel::{Batch, Exclusive, LevelII};

/// smb2.oplock.exclusive1: there is no handle caching to break, so nothing waits.
#[test]
fn an_exclusive_oplock_does_not_yield_to_denied_opens() {
    let mut world = world();
    let request = OpenRequest {
        share_access: ALONE,
        ..world.oplocked(Exclusive)
    };
    assert_eq!(world.open(&request).oplock, Exclusive);
    assert_eq!(world.refused(&request), NtStatus::SHARING_VIOLATION);
    assert_eq!(world.oplock_breaks(), []);
}

/// smb2.oplock.batch1, batch2: it breaks, then the open is denied. A write breaks the writer's own
/// level II.
#[test]
fn a_batch_oplock_yields_to_denied_opens() {
    let mut world = world();
    let request = OpenRequest {
        share_access: ALONE,
        ..world.oplocked(Batch)
    };
    let first = world.open(&request).open;
    let other = world.request();
    world.waits(&other);
    assert_eq!(world.oplock_breaks(), [(first, LevelII)]);
    world
        .hub
        .oplock_break_ack(Duration::ZERO, first, LevelII)
        .unwrap();
    assert_eq!(world.woken(), [other.waiter]);
    assert_eq!(world.refused(&other), NtStatus::SHARING_VIOLATION);
    assert_eq!(world.refused(&other), NtStatus::SHARING_VIOLATION);
    world.write(first);
    assert_eq!(world.oplock_breaks(), [(first, OplockLevel::None)]);
    // smb2.oplock.levelii500.
    let outcome = world
        .hub
        .oplock_break_ack(Duration::ZERO, first, OplockLevel::None);
    assert_eq!(outcome, Err(NtStatus::INVALID_OPLOCK_PROTOCOL));
}

/// smb2.oplock.batch3, batch7: after the close the other open gets all caching.
#[test]
fn closing_ends_an_oplock_break() {
    let mut world = world();
    let request = OpenRequest {
        share_access: ALONE,
        ..world.oplocked(Batch)
    };
    let first = world.open(&request).open;
    let other = world.oplocked(Batch);
    world.waits(&other);
    assert_eq!(world.oplock_breaks(), [(first, LevelII)]);
    world.close(first);
    assert_eq!(world.woken(), [other.waiter]);
    assert_eq!(world.open(&other).oplock, Batch);
}

/// smb2.oplock.batch6, exclusive2, exclusive9, batch10, batch21.
#[test]
fn second_opens_share_level_ii() {
    for (level, overwrites) in [
        (Exclusive, false),
        (Exclusive, true),
        (Batch, false),
        (Batch, true),
    ] {
        let mut world = world();
        let request = world.oplocked(level);
        let first = world.open(&request).open;
        world.write(first);
        assert_eq!(world.oplock_breaks(), [], "alone");
        let left = if overwrites { OplockLevel::None } else { LevelII };
        let other = OpenRequest {
            overwrites,
            ..world.oplocked(level)
        };
        world.waits(&other);
        assert_eq!(world.oplock_breaks(), [(first, left)]);
        world.hub.oplock_break_ack(Duration::ZERO, first, left).unwrap();
        assert_eq!(world.woken(), [other.waiter]);
        let second = world.open(&other);
        assert_eq!(second.oplock, LevelII);
        world.write(second.open);
        let mut expected = vec![(first, OplockLevel::None), (second.open, OplockLevel::None)];
        if overwrites {
            expected.remove(0);
        }
        assert_eq!(world.oplock_breaks(), expected);
    }
    let mut world = world();
    let request = world.request();
    world.open(&request);
    let request = world.oplocked(Batch);
    assert_eq!(world.open(&request).oplock, LevelII, "after an open without");
}

/// smb2.oplock.batch8, batch9a, exclusive4, statopen1.
#[test]
fn stat_opens() {
    let mut world = world();
    let stat = OpenRequest {
        access: STAT,
        ..world.oplocked(Batch)
    };
    let first = world.open(&stat);
    assert_eq!(first.oplock, Batch);
    assert_eq!(world.open(&stat).oplock, OplockLevel::None);
    assert_eq!(world.oplock_breaks(), []);
    for access in [AccessMask::READ_CONTROL, READ] {
        let request = OpenRequest {
            access,
            ..world.request()
        };
        world.waits(&request);
    }
    assert_eq!(world.oplock_breaks(), [(first.open, LevelII)]);
    // smb2.oplock.batch13, exclusive5: an open that truncates is not a stat open.
    let mut world = super::world();
    let request = world.oplocked(Batch);
    let first = world.open(&request).open;
    let request = OpenRequest {
        access: STAT,
        overwrites: true,
        ..world.oplocked(Batch)
    };
    world.waits(&request);
    assert_eq!(world.oplock_breaks(), [(first, OplockLevel::None)]);
    world
        .hub
        .oplock_break_ack(Duration::ZERO, first, OplockLevel::None)
        .unwrap();
    assert_eq!(world.woken(), [request.waiter]);
    assert_eq!(world.open(&request).oplock, LevelII);
}

/// smb2.oplock.batch22a ([MS-SMB2] 3.3.6.1).
#[test]
fn unanswered_breaks_end() {
    let mut world = world();
    let request = world.oplocked(Batch);
    let first = world.open(&request).open;
    let other = world.oplocked(Batch);
    world.waits(&other);
    world.events();
    world.hub.handle_timeout(world.now + ms(35_000));
    assert_eq!(world.woken(), [other.waiter]);
    assert_eq!(world.hub.oplock(first), Some(OplockLevel::None));
    assert_eq!(world.open(&other).oplock, LevelII);
}

/// smb2.oplock.stream1, batch26: each stream has its own oplocks.
#[test]
fn streams_have_their_own_oplocks() {
    let mut world = world();
    let request = world.oplocked(Batch);
    assert_eq!(world.open(&request).oplock, Batch);
    let request = OpenRequest {
        file: stream(1, "S"),
        ..request
    };
    assert_eq!(world.open(&request).oplock, Batch);
    assert_eq!(world.oplock_breaks(), []);
}

#[test]
fn wrong_acknowledgments() {
    let mut world = world();
    let request = world.oplocked(Batch);
    let first = world.open(&request).open;
    let wrong = Err(NtStatus::INVALID_OPLOCK_PROTOCOL);
    assert_eq!(
        world.hub.oplock_break_ack(Duration::ZERO, OpenId(99), LevelII),
        Err(NtStatus::FILE_CLOSED)
    );
    let other = world.request();
    world.waits(&other);
    world.events();
    let lease = OplockLevel::Lease;
    assert_eq!(
        world.hub.oplock_break_ack(Duration::ZERO, first, lease),
        Err(NtStatus::INVALID_PARAMETER)
    );
    assert_eq!(world.hub.oplock_break_ack(Duration::ZERO, first, Batch), wrong);
    assert_eq!(world.hub.oplock(first), Some(OplockLevel::None), "lost");
    assert_eq!(world.woken(), [other.waiter]);
}

/// OplockOnShareWithoutForceLevel2OrSOFSTestCase: acknowledgments that no break awaits ([MS-SMB2]
/// 3.3.5.22.1).
#[test]
fn acknowledgments_without_a_break() {
    let (state, protocol) = (NtStatus::INVALID_DEVICE_STATE, NtStatus::INVALID_OPLOCK_PROTOCOL);
    for (held, level, status) in [
        (Batch, OplockLevel::None, state),
        (Batch, LevelII, state),
        (Batch, Batch, protocol),
        (Batch, OplockLevel::Lease, NtStatus::INVALID_PARAMETER),
        (Exclusive, LevelII, state),
        (LevelII, OplockLevel::None, state),
        (LevelII, LevelII, protocol),
        (OplockLevel::None, OplockLevel::None, protocol),
    ] {
        let mut world = world();
        let request = world.oplocked(held);
        let open = world.open(&request).open;
        let answer = world.hub.oplock_break_ack(Duration::ZERO, open, level);
        assert_eq!(answer, Err(status), "{held:?}, {level:?}");
        assert_eq!(world.hub.oplock(open), Some(held), "{level:?} changes nothing");
    }
}

/// Models OplockLeaseTestCase and LeaseOplockTestCase: what a second client gets beside the first one, and whether
/// that breaks. They say that it is what Windows does.
#[test]
fn oplocks_and_leases_beside_each_other() {
    for (held, breaks) in [(LevelII, false), (Exclusive, true), (Batch, true)] {
        for wanted in [R, RH, RW, RWH] {
            let mut world = world();
            let request = world.oplocked(held);
            let first = world.open(&request).open;
            let second = OpenRequest {
                lease: Some(lease(1, wanted)),
                ..world.stranger()
            };
            if breaks {
                world.waits(&second);
                assert_eq!(world.oplock_breaks(), [(first, LevelII)]);
                let ack = world.hub.oplock_break_ack(world.now, first, LevelII);
                ack.unwrap();
                assert_eq!(world.woken(), [second.waiter]);
            }
            let granted = world.open(&second);
            assert_eq!(state(&granted), R, "{held:?}, {wanted:?}");
            assert_eq!(world.oplock_breaks(), []);
        }
    }
    for (held, left, granted) in [
        (R, None, LevelII),
        (RH, None, OplockLevel::None),
        (RW, Some(R), LevelII),
        (RWH, Some(RH), OplockLevel::None),
    ] {
        for wanted in [LevelII, Exclusive, Batch] {
            let mut world = world();
            let request = world.leased(1, held);
            world.open(&request);
            let second = OpenRequest {
                oplock: wanted,
                ..world.stranger()
            };
            if let Some(left) = left {
                world.waits(&second);
                world.events();
                assert_eq!(world.ack(1, left), Ok(left));
                assert_eq!(world.woken(), [second.waiter]);
            }
            assert_eq!(world.open(&second).oplock, granted, "{held:?}, {wanted:?}");
            assert_eq!(world.oplock_breaks(), []);
        }
    }
}

/// A cancelled request is not woken.
#[test]
fn cancelled_waits() {
    let mut world = world();
    let request = world.oplocked(Batch);
    let first = world.open(&request).open;
    let other = world.request();
    world.waits(&other);
    world.events();
    world.hub.forget(other.waiter);
    world.close(first);
    assert_eq!(world.woken(), []);
    world.assert_empty();
}

/// After a change by a local process nothing cached of the file is valid, its streams included.
#[test]
fn changes_by_local_processes_break_all_caching() {
    let mut world = world();
    let batch = world.oplocked(Batch);
    let held = world.open(&batch).open;
    let stream = OpenRequest {
        file: stream(1, "S"),
        ..world.leased(5, RWH)
    };
    world.open(&stream);
    let other = OpenRequest {
        file: file(2),
        ..world.leased(6, RWH)
    };
    world.open(&other);
    world.hub.changed_locally(world.now, 1, 3);
    assert_eq!(world.events(), []);
    world.hub.changed_locally(world.now, 1, 1);
    let events = world.events();
    assert_eq!(events.len(), 2, "{events:?}");
    let acknowledged = world
        .hub
        .oplock_break_ack(Duration::ZERO, held, OplockLevel::None)
        .unwrap();
    assert_eq!(acknowledged.oplock_level, OplockLevel::None);
    assert_eq!(world.ack(5, NONE), Ok(NONE));
    // No caching is left to break.
    world.hub.changed_locally(world.now, 1, 1);
    assert_eq!(world.events(), []);
}

/// A durable open without a client cannot release its oplock, so it is closed, as for any other
/// writer.
#[test]
fn changes_by_local_processes_close_durable_opens_without_a_client() {
    let mut world = world();
    let request = OpenRequest {
        durable: Some(DurableOpenRequest::V1),
        ..world.oplocked(Batch)
    };
    let open = world.open(&request).open;
    assert_eq!(world.hub.disconnect(Duration::ZERO, ConnectionId(1), &[]), []);
    world.hub.changed_locally(world.now, 1, 1);
    assert!(matches!(&world.events()[..], [Event::Expired(closed)] if closed.open == open));
    assert_eq!(world.hub.open_count(), 0);
}
