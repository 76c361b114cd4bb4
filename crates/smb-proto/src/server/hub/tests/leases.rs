//! Leases ([MS-SMB2] 3.3.5.9.8, 3.3.5.9.11, 3.3.5.22.2), after smb2.lease.

use ropeway_smb_wire::create_context::LeaseFlags;

use super::*;

const BREAKING: u32 = LeaseFlags::BREAK_IN_PROGRESS.bits();

/// smb2.lease.request.
#[test]
fn invalid_lease_states_are_reduced() {
    let mut world = world();
    for (asked, granted) in [(0, 0), (1, 1), (2, 0), (4, 0), (3, 3), (5, 5), (6, 0), (7, 7)] {
        let request = world.leased(1, LeaseState::from_bits_retain(asked));
        let open = world.open(&request);
        assert_eq!(
            (state(&open), open.oplock),
            (LeaseState::from_bits_retain(granted), OplockLevel::Lease)
        );
        world.close(open.open);
    }
    // Folders: in version 2 only, and never W.
    let folder = OpenRequest {
        directory: true,
        ..world.leased(1, RWH)
    };
    let open = world.open(&folder);
    assert_eq!((open.lease, open.oplock), (None, OplockLevel::None));
    world.close(open.open);
    for (asked, granted) in [(RWH, RH), (RW, R), (RH, RH), (R, R)] {
        let request = OpenRequest {
            lease: Some(lease_v2(1, asked, 0x11)),
            ..folder.clone()
        };
        let open = world.open(&request);
        assert_eq!((state(&open), epoch(&open)), (granted, 0x12));
        world.close(open.open);
    }
    world.assert_empty();
}

/// smb2.lease.upgrade2: upgraded only to more, and only to what was requested.
#[test]
fn leases_upgrade_to_more() {
    for held in [NONE, R, RH, RW, RWH] {
        for asked in [NONE, R, RH, RW, RWH] {
            let mut world = world();
            let request = world.leased(1, held);
            world.open(&request);
            let request = world.leased(1, asked);
            let expected = if asked.contains(held) { asked } else { held };
            assert_eq!(state(&world.open(&request)), expected, "{held:?} {asked:?}");
            assert_eq!(world.breaks(), []);
        }
    }
}

/// smb2.lease.upgrade3: next to another lease, upgraded only as far as both are compatible, or not
/// at all.
#[test]
fn leases_upgrade_only_as_far_as_compatible() {
    for (one, two, asked, expected) in [
        (R, R, RW, R),
        (R, R, RH, RH),
        (R, R, RWH, R),
        (R, RH, RH, RH),
        (R, RH, RWH, R),
        (RH, R, RW, RH),
        (RH, RH, RWH, RH),
    ] {
        let mut world = world();
        for (number, asked) in [(1, one), (2, two)] {
            let request = world.leased(number, asked);
            world.open(&request);
        }
        let request = world.leased(1, asked);
        assert_eq!(state(&world.open(&request)), expected);
        assert_eq!(world.breaks(), []);
    }
}

/// smb2.lease.break: the state held, the state requested, the state left, the state granted.
#[test]
fn breaks() {
    for (held, asked, left, granted) in [
        (R, R, R, R),
        (R, RH, R, RH),
        (R, RW, R, R),
        (R, RWH, R, RH),
        (RH, R, RH, R),
        (RH, RH, RH, RH),
        (RH, RW, RH, R),
        (RH, RWH, RH, RH),
        (RW, R, R, R),
        (RW, RH, R, RH),
        (RW, RW, R, R),
        (RW, RWH, R, RH),
        (RWH, R, RH, R),
        (RWH, RH, RH, RH),
        (RWH, RW, RH, R),
        (RWH, RWH, RH, RH),
    ] {
        let mut world = world();
        let request = world.leased(1, held);
        world.open(&request);
        let request = world.leased(2, asked);
        if left != held {
            world.waits(&request);
            assert_eq!(world.breaks(), [(1, held, left, 0)]);
            assert_eq!(world.ack(1, left), Ok(left));
            assert_eq!(world.woken(), [request.waiter]);
        }
        assert_eq!(state(&world.open(&request)), granted);
        let request = world.leased(1, RWH);
        assert_eq!(state(&world.open(&request)), left, "no upgrade");
        assert_eq!(world.breaks(), []);
    }
}

/// smb2.lease.oplock.
#[test]
fn leases_and_oplocks() {
    use OplockLevel::{Batch, Exclusive, LevelII, None};
    for (held, left, granted) in [(R, R, LevelII), (RH, RH, None), (RW, R, LevelII), (RWH, RH, None)] {
        for level in [LevelII, Exclusive, Batch] {
            let mut world = world();
            let request = world.leased(1, held);
            world.open(&request);
            let request = world.oplocked(level);
            if left != held {
                world.waits(&request);
                world.ack(1, left).unwrap();
            }
            assert_eq!(world.open(&request).oplock, granted, "{held:?} {level:?}");
        }
    }
    for level in [LevelII, Exclusive, Batch] {
        for asked in [R, RH, RW, RWH] {
            let mut world = world();
            let request = world.oplocked(level);
            let first = world.open(&request).open;
            let request = world.leased(1, asked);
            if level != LevelII {
                world.waits(&request);
                assert_eq!(world.oplock_breaks(), [(first, LevelII)]);
                world.hub.oplock_break_ack(world.now, first, LevelII).unwrap();
            }
            assert_eq!(state(&world.open(&request)), R);
        }
    }
}

/// smb2.lease.nobreakself, complex1: a write breaks all other leases and does not wait.
#[test]
fn writing_breaks_readers() {
    let mut world = world();
    let [one, two] = [(1, RH), (2, R)].map(|(number, asked)| {
        let request = world.leased(number, asked);
        world.open(&request).open
    });
    world.write(one);
    assert_eq!(world.breaks(), [(2, R, NONE, 0)]);
    world.write(one);
    assert_eq!(world.breaks(), []);
    world.write(two);
    assert_eq!(world.breaks(), [(1, RH, NONE, 0)]);
    world.write(two);
    assert_eq!(world.breaks(), [], "it is breaking");
    assert_eq!(world.ack(1, NONE), Ok(NONE));
    assert_eq!(world.ack(1, NONE), Err(NtStatus::UNSUCCESSFUL));
    // A local process writes.
    let request = world.leased(2, R);
    world.open(&request);
    let waiter = world.waiter();
    assert_eq!(
        world
            .hub
            .break_caching(Duration::ZERO, None, &file(1), BreakTrigger::Write, waiter),
        BreakOutcome::Ready
    );
    assert_eq!(world.breaks(), [(2, R, NONE, 0)]);
}

/// smb2.lease.statopen4: a stat open breaks nothing, and does not affect a single lease.
#[test]
fn stat_opens() {
    for (access, is_stat) in [
        (AccessMask::READ_DATA, false),
        (AccessMask::WRITE_DATA, false),
        (AccessMask::READ_EA, false),
        (AccessMask::WRITE_EA, false),
        (AccessMask::EXECUTE, false),
        (AccessMask::READ_ATTRIBUTES, true),
        (AccessMask::WRITE_ATTRIBUTES, true),
        (AccessMask::DELETE, false),
        (AccessMask::READ_CONTROL, true),
        (AccessMask::WRITE_DAC, false),
        (AccessMask::WRITE_OWNER, false),
        (AccessMask::SYNCHRONIZE, true),
    ] {
        let mut world = world();
        let request = world.leased(1, RWH);
        world.open(&request);
        let request = OpenRequest {
            access,
            ..world.request()
        };
        let stat = matches!(world.outcome(&request), OpenOutcome::Granted(_));
        assert_eq!(stat, is_stat, "{access:?}");
        assert_eq!(world.breaks().is_empty(), is_stat, "{access:?}");
    }
    // smb2.lease.statopen3, smb2.durable-v2-open.stat-and-lease.
    let mut world = world();
    let request = OpenRequest {
        access: STAT,
        ..world.request()
    };
    world.open(&request);
    let request = world.leased(1, RWH);
    assert_eq!(state(&world.open(&request)), RWH);
    // Nonstat-and-lease: READ_CONTROL prevents write caching by others.
    let mut world = super::world();
    let request = OpenRequest {
        access: AccessMask::READ_CONTROL,
        ..world.request()
    };
    world.open(&request);
    let request = world.leased(1, RWH);
    assert_eq!(state(&world.open(&request)), RH);
}

/// smb2.lease.breaking1, breaking2: during a break.
#[test]
fn acknowledgments_are_checked() {
    let mut world = world();
    let holder = world.leased(1, RWH);
    world.open(&holder);
    let other = OpenRequest {
        overwrites: true,
        ..world.request()
    };
    world.waits(&other);
    assert_eq!(world.breaks(), [(1, RWH, NONE, 0)]);
    let again = world.open(&holder);
    assert_eq!((state(&again), flags(&again)), (RWH, BREAKING));
    for kept in 1..8 {
        assert_eq!(
            world.ack(1, LeaseState::from_bits_retain(kept)),
            Err(NtStatus::REQUEST_NOT_ACCEPTED)
        );
    }
    assert_eq!(world.ack(3, NONE), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
    assert_eq!(world.breaks(), []);
    assert_eq!(world.ack(1, NONE), Ok(NONE));
    assert_eq!(world.woken(), [other.waiter]);
    world.open(&other);
    let again = world.leased(1, NONE);
    let again = world.open(&again);
    assert_eq!((state(&again), flags(&again)), (NONE, 0));
}

/// smb2.lease.v2_breaking3: further breaks demanded during a break follow its acknowledgment, step
/// by step.
#[test]
fn breaks_are_chained() {
    let mut world = world();
    let holder = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0x11)),
        ..world.request()
    };
    assert_eq!(epoch(&world.open(&holder)), 0x12);
    let reader = world.request();
    world.waits(&reader);
    assert_eq!(world.breaks(), [(1, RWH, RH, 0x13)]);
    let emptier = OpenRequest {
        overwrites: true,
        ..world.request()
    };
    world.waits(&emptier);
    assert_eq!(world.breaks(), []);
    assert_eq!(world.ack(1, RH), Ok(RH));
    assert_eq!(world.breaks(), [(1, RH, R, 0x13)]);
    let again = world.open(&holder);
    assert_eq!(
        (state(&again), flags(&again), epoch(&again)),
        (RH, BREAKING, 0x13)
    );
    assert_eq!(world.ack(1, R), Ok(R));
    let events = world.events();
    assert!(matches!(&events[0], Event::Break(_)), "{events:?}");
    assert_eq!(
        events[1..],
        [Event::Wake(reader.waiter), Event::Wake(emptier.waiter)]
    );
    world.open(&reader);
    world.open(&emptier);
    assert_eq!(world.breaks(), []);
}

/// smb2.lease.breaking4: read and handle caching break without a wait, unless handle caching
/// conflicts.
#[test]
fn truncation_does_not_wait_for_readers() {
    let mut world = world();
    let holder = world.leased(1, RH);
    world.open(&holder);
    let emptier = OpenRequest {
        overwrites: true,
        ..world.request()
    };
    let open = world.open(&emptier).open;
    assert_eq!(world.breaks(), [(1, RH, NONE, 0)]);
    world.close(open);
    world.open(&emptier);
    assert_eq!(world.breaks(), []);
    let again = world.leased(1, NONE);
    let again = world.open(&again);
    assert_eq!((state(&again), flags(&again)), (RH, BREAKING));
    assert_eq!(world.ack(1, NONE), Ok(NONE));
    assert_eq!(world.breaks(), []);
}

/// smb2.lease.break_twice, sharing_violation: a denied open breaks handle caching first.
#[test]
fn denied_opens_break_handle_caching() {
    let mut world = world();
    let holder = OpenRequest {
        lease: Some(lease_v2(1, RWH, 0x11)),
        ..world.request()
    };
    world.open(&holder);
    let denied = OpenRequest {
        share_access: ShareAccess::READ,
        lease: Some(lease_v2(2, RWH, 0x22)),
        overwrites: true,
        ..world.request()
    };
    world.waits(&denied);
    assert_eq!(world.breaks(), [(1, RWH, RW, 0x13)]);
    assert_eq!(world.ack(1, RW), Ok(RW));
    assert_eq!(world.woken(), [denied.waiter]);
    assert_eq!(world.refused(&denied), NtStatus::SHARING_VIOLATION);
    let other = OpenRequest {
        lease: Some(lease_v2(2, RWH, 0x22)),
        ..world.request()
    };
    world.waits(&other);
    assert_eq!(world.breaks(), [(1, RW, R, 0x14)]);
    assert_eq!(world.ack(1, R), Ok(R));
    let open = world.open(&other);
    assert_eq!((state(&open), epoch(&open)), (RH, 0x23));
}

/// A close ends a break like an acknowledgment.
#[test]
fn closing_ends_a_break() {
    let mut world = world();
    let holder = OpenRequest {
        share_access: ALONE,
        ..world.leased(1, RWH)
    };
    let open = world.open(&holder).open;
    let other = world.request();
    world.waits(&other);
    assert_eq!(world.breaks(), [(1, RWH, RW, 0)]);
    world.close(open);
    assert_eq!(world.woken(), [other.waiter]);
    let open = world.open(&other).open;
    world.close(open);
    world.assert_empty();
}

/// smb2.lease.timeout ([MS-SMB2] 3.3.6.3).
#[test]
fn unanswered_breaks_end() {
    let mut world = world();
    let holder = world.leased(1, RWH);
    let first = world.open(&holder).open;
    let other = world.leased(2, RWH);
    world.waits(&other);
    assert_eq!(world.breaks().len(), 1);
    let due = world.hub.poll_timeout().unwrap();
    assert_eq!(due, world.now + ms(35_000));
    world.hub.handle_timeout(due - ms(1));
    assert_eq!(world.woken(), []);
    world.hub.handle_timeout(due);
    assert_eq!(world.woken(), [other.waiter]);
    assert_eq!(world.hub.poll_timeout(), None);
    let second = world.open(&other);
    assert_eq!(state(&second), RH);
    assert_eq!(world.ack(1, RH), Err(NtStatus::UNSUCCESSFUL));
    world.write(first);
    assert_eq!(world.breaks(), [(2, RH, NONE, 0)]);
    world.write(second.open);
    assert_eq!(world.breaks(), []);
    world.close(second.open);
    for asked in [R, RWH] {
        let request = world.leased(1, asked);
        let open = world.open(&request);
        assert_eq!(state(&open), asked);
        world.close(open.open);
    }
}

/// smb2.lease.rename_wait, unlink: rename and deletion break the handle caching of others, and
/// wait.
#[test]
fn renaming_breaks_handle_caching() {
    for why in [BreakTrigger::Rename, BreakTrigger::Delete, BreakTrigger::Replace] {
        let mut world = world();
        let [one, _] = [1, 2].map(|number| {
            let request = world.leased(number, RH);
            world.open(&request).open
        });
        let waiter = world.waiter();
        assert_eq!(
            world
                .hub
                .break_caching(Duration::ZERO, Some(one), &file(1), why, waiter),
            BreakOutcome::Wait
        );
        assert_eq!(world.breaks(), [(2, RH, R, 0)]);
        assert_eq!(world.ack(2, R), Ok(R));
        assert_eq!(world.woken(), [waiter]);
        assert_eq!(
            world
                .hub
                .break_caching(Duration::ZERO, Some(one), &file(1), why, waiter),
            BreakOutcome::Ready
        );
    }
}

/// smb2.lease.duplicate_open: a key is for one file. The same key of another client is another
/// lease.
#[test]
fn a_key_is_for_one_file() {
    let mut world = world();
    let request = world.leased(1, RWH);
    let open = world.open(&request).open;
    let other = OpenRequest {
        file: file(2),
        ..request.clone()
    };
    assert_eq!(world.refused(&other), NtStatus::INVALID_PARAMETER);
    let other = OpenRequest {
        client: client(2),
        ..other
    };
    let other = world.open(&other).open;
    world.close(open);
    world.close(other);
    world.assert_empty();
}

/// smb2.lease.v2_epoch2, v2_epoch3: the first request decides the version.
#[test]
fn versions_and_epochs() {
    let mut world = world();
    let first = OpenRequest {
        lease: Some(lease_v2(1, R, 0x4711)),
        ..world.request()
    };
    assert_eq!(epoch(&world.open(&first)), 0x4712);
    let second = world.leased(1, RH);
    assert_eq!(epoch(&world.open(&second)), 0x4713);
    let third = OpenRequest {
        lease: Some(LeaseRequest {
            v2: Some(LeaseRequestV2 {
                parent: Some(key(9)),
                epoch: 0x11,
            }),
            ..lease(1, RWH)
        }),
        ..world.request()
    };
    let third = world.open(&third);
    assert_eq!(
        (epoch(&third), flags(&third)),
        (0x4714, LeaseFlags::PARENT_LEASE_KEY_SET.bits())
    );
    let other = world.request();
    world.waits(&other);
    assert_eq!(world.breaks(), [(1, RWH, RH, 0x4715)]);
    // A lease of version 1 stays one.
    let request = OpenRequest {
        file: file(2),
        ..world.leased(2, R)
    };
    world.open(&request);
    let request = OpenRequest {
        lease: Some(lease_v2(2, RW, 5)),
        ..request
    };
    assert!(matches!(world.open(&request).lease, Some(GrantedLease::V1(_))));
}

/// A lease on a folder breaks when an entry changes, unless the changing open named its key as that
/// of its parent's lease.
#[test]
fn folder_leases() {
    let mut world = world();
    for number in [1, 2] {
        let folder = OpenRequest {
            file: file(9),
            directory: true,
            lease: Some(lease_v2(number, RH, 0)),
            ..world.request()
        };
        world.open(&folder);
    }
    let hub = &mut world.hub;
    hub.break_folder_leases(Duration::ZERO, Some(key(1)), &file(9));
    assert_eq!(world.breaks(), [(2, RH, NONE, 2)]);
    world.hub.break_folder_leases(Duration::ZERO, None, &file(9));
    assert_eq!(world.breaks(), [(1, RH, NONE, 2)]);
}

/// smb2.dirlease.unlink_same_set_and_close, unlink_different_set_and_close: the holder of a lease on
/// the folder knows of a deletion if the open that asked for it and the last open both name the lease.
#[test]
fn a_deletion_is_known_to_the_holder_of_one_folder_lease() {
    for marker_is_last in [true, false] {
        let mut world = world();
        let [marker, other] = [1, 2].map(|number| {
            let v2 = LeaseRequestV2 {
                parent: Some(key(number)),
                epoch: 0,
            };
            let request = OpenRequest {
                lease: Some(LeaseRequest {
                    v2: Some(v2),
                    ..lease(number + 10, R)
                }),
                ..world.request()
            };
            world.open(&request).open
        });
        world.hub.set_delete_pending(marker, true).unwrap();
        let (first, last, known) = match marker_is_last {
            true => (other, marker, Some(key(1))),
            false => (marker, other, None),
        };
        assert_eq!(world.close(first).delete, None);
        assert_eq!(world.close(last).delete.unwrap().parent_lease, known);
    }
}

/// smb2.dirlease.rename_dst_parent: an open of the target folder that denies the rename is asked to
/// close if its client caches the handle.
#[test]
fn a_rename_into_a_folder_breaks_handle_leases_that_deny_it() {
    let denied = BreakOutcome::Refused(NtStatus::SHARING_VIOLATION);
    for (closes, expected) in [(false, denied), (true, BreakOutcome::Ready)] {
        let mut world = world();
        let folder = OpenRequest {
            file: file(9),
            directory: true,
            access: AccessMask::DELETE,
            lease: Some(lease_v2(1, RH, 0)),
            ..world.request()
        };
        let folder = world.open(&folder).open;
        let entry = world.request();
        let entry = world.open(&entry).open;
        let (now, waiter) = (world.now, world.waiter());
        let share = ShareAccess::READ | ShareAccess::WRITE;
        let adds = |world: &mut World| {
            let mode = (AccessMask::ADD_FILE, share);
            world
                .hub
                .prepare_renaming_into(now, entry, &file(9), mode, waiter)
        };
        assert_eq!(adds(&mut world), BreakOutcome::Wait);
        assert_eq!(world.breaks().len(), 1);
        match closes {
            true => _ = world.close(folder),
            false => _ = world.ack(1, R).unwrap(),
        }
        assert_eq!(adds(&mut world), expected, "{closes}");
    }
}
