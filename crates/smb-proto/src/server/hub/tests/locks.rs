//! Byte-range locks ([MS-SMB2] 3.3.5.14), as smb2.lock has them.

use super::*;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockSequence};

const EXCLUSIVE: u32 = LockFlags::EXCLUSIVE_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits();
const SHARED: u32 = LockFlags::SHARED_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits();
const UNLOCK: u32 = LockFlags::UNLOCK.bits();
const WAITS: u32 = LockFlags::EXCLUSIVE_LOCK.bits();
const GRANTED: LockOutcome = LockOutcome::Granted;
const TAKEN: LockOutcome = LockOutcome::Refused(NtStatus::LOCK_NOT_GRANTED);
const UNKNOWN: LockOutcome = LockOutcome::Refused(NtStatus::RANGE_NOT_LOCKED);
const WRONG: LockOutcome = LockOutcome::Refused(NtStatus::INVALID_PARAMETER);

fn element((offset, length, flags): (u64, u64, u32)) -> LockElement {
    LockElement {
        offset,
        length,
        flags: LockFlags::from_bits_retain(flags),
    }
}

impl World {
    fn lock_all(&mut self, open: OpenId, elements: &[(u64, u64, u32)]) -> LockOutcome {
        let elements: Vec<_> = elements.iter().copied().map(element).collect();
        let waiter = self.waiter();
        self.hub.lock_by(self.now_ms, open, &elements, None, waiter)
    }

    fn lock(&mut self, open: OpenId, offset: u64, length: u64, flags: u32) -> LockOutcome {
        self.lock_all(open, &[(offset, length, flags)])
    }
}

fn two_opens() -> (World, OpenId, OpenId) {
    let mut world = world();
    let request = world.request();
    let (one, two) = (world.open(&request).open, world.open(&request).open);
    (world, one, two)
}

/// smb2.lock.valid-request, lock.
#[test]
fn flags_and_ranges() {
    let (mut world, one, two) = two_opens();
    for flags in [
        0,
        !0x17,
        UNLOCK | SHARED,
        UNLOCK | LockFlags::EXCLUSIVE_LOCK.bits(),
        UNLOCK | LockFlags::FAIL_IMMEDIATELY.bits(),
        3,
    ] {
        assert_eq!(world.lock(one, 1, 1, flags), WRONG, "{flags:#x}");
    }
    assert_eq!(world.lock_all(one, &[]), WRONG);
    assert_eq!(
        world.lock_all(one, &[(9, 1, SHARED), (9, 1, LockFlags::SHARED_LOCK.bits())]),
        WRONG
    );
    assert_eq!(world.lock_all(one, &[(9, 1, 0), (9, 1, UNLOCK)]), WRONG);
    assert_eq!(world.lock_all(one, &[(9, 1, UNLOCK), (9, 1, 0)]), UNKNOWN);
    let invalid = LockOutcome::Refused(NtStatus::INVALID_LOCK_RANGE);
    assert_eq!(world.lock(one, u64::MAX, u64::MAX, EXCLUSIVE), invalid);
    assert_eq!(world.lock(one, u64::MAX, 2, EXCLUSIVE), invalid);
    for (offset, length) in [
        (0, 1),
        (0xEEFF_FFFF, 4000),
        ((1 << 63) - 1, 1),
        (1 << 63, 1),
        (u64::MAX, 1),
    ] {
        assert_eq!(world.lock(one, offset, length, EXCLUSIVE), GRANTED);
        assert_eq!(world.lock(two, offset, length, EXCLUSIVE), TAKEN);
        assert_eq!(world.lock(two, offset, length, UNLOCK), UNKNOWN);
        assert_eq!(world.lock(one, offset, length, UNLOCK), GRANTED);
        assert_eq!(world.lock(one, offset, length, UNLOCK), UNKNOWN);
    }
    assert_eq!(
        world.lock(OpenId(99), 0, 1, EXCLUSIVE),
        LockOutcome::Refused(NtStatus::FILE_CLOSED)
    );
}

/// smb2.lock.zerobytelength, errorcode.
#[test]
fn empty_ranges() {
    for ((one, two), outcome) in [
        (((10, 0), (10, 0)), GRANTED),
        (((10, 0), (9, 1)), GRANTED),
        (((10, 0), (10, 1)), GRANTED),
        (((10, 0), (11, 1)), GRANTED),
        (((10, 0), (9, 2)), TAKEN),
        (((10, 0), (10, 2)), GRANTED),
        (((10, 0), (9, 3)), TAKEN),
        (((0, 0), (0, 0)), GRANTED),
        (((u64::MAX, 0), (u64::MAX, 0)), GRANTED),
        (((100, 10), (102, 0)), TAKEN),
        (((100, 10), (102, 5)), TAKEN),
    ] {
        for same in [false, true] {
            for (one, two) in [(one, two), (two, one)] {
                let (mut world, first, second) = two_opens();
                assert_eq!(world.lock(first, one.0, one.1, EXCLUSIVE), GRANTED);
                let second = if same { first } else { second };
                assert_eq!(
                    world.lock(second, two.0, two.1, EXCLUSIVE),
                    outcome,
                    "{one:?} {two:?}"
                );
            }
        }
    }
}

/// smb2.lock.stacking, unlock, contend, overlap.
#[test]
fn stacking() {
    let (mut world, one, two) = two_opens();
    assert_eq!(world.lock(one, 0, 10, SHARED), GRANTED);
    assert_eq!(world.lock(one, 0, 10, SHARED), GRANTED);
    assert_eq!(world.lock(one, 0, 10, EXCLUSIVE), TAKEN);
    assert_eq!(world.lock(two, 5, 10, SHARED), GRANTED);
    for open in [one, one, two] {
        let offset = if open == one { 0 } else { 5 };
        assert_eq!(world.lock(open, offset, 10, UNLOCK), GRANTED);
    }
    assert_eq!(world.lock(one, 10, 10, EXCLUSIVE), GRANTED);
    assert_eq!(world.lock(one, 10, 10, EXCLUSIVE), TAKEN);
    assert_eq!(world.lock(one, 10, 10, SHARED), GRANTED);
    assert_eq!(world.lock(two, 5, 10, SHARED), TAKEN);
    // The exclusive one goes first.
    assert_eq!(world.lock(one, 10, 10, UNLOCK), GRANTED);
    assert_eq!(world.lock(two, 5, 10, EXCLUSIVE), TAKEN);
    assert_eq!(world.lock(two, 5, 10, SHARED), GRANTED);
    assert_eq!(world.lock(one, 10, 10, UNLOCK), GRANTED);
    assert_eq!(world.lock(one, 10, 10, UNLOCK), UNKNOWN);
    assert_eq!(world.lock(two, 5, 5, UNLOCK), UNKNOWN, "ranges are not cut");
}

/// smb2.lock.multiple-unlock.
#[test]
fn all_locks_or_none() {
    let (mut world, one, _) = two_opens();
    let (first, second) = ((0, 10, EXCLUSIVE), (10, 10, EXCLUSIVE));
    let unlocks = [(0, 10, UNLOCK), (10, 10, UNLOCK)];
    assert_eq!(world.lock_all(one, &[second]), GRANTED);
    assert_eq!(world.lock_all(one, &unlocks), UNKNOWN);
    assert_eq!(world.lock_all(one, &[first, second]), TAKEN);
    assert_eq!(world.lock_all(one, &[first]), GRANTED, "rolled back");
    assert_eq!(world.lock_all(one, &unlocks), GRANTED);
    assert_eq!(world.lock_all(one, &[first]), GRANTED);
    assert_eq!(world.lock_all(one, &unlocks), UNKNOWN);
    assert_eq!(
        world.lock_all(one, &[first, second]),
        GRANTED,
        "the first was unlocked"
    );
    assert_eq!(world.lock_all(one, &[unlocks[0], second]), WRONG);
    assert_eq!(world.lock_all(one, &[first]), GRANTED, "the first was unlocked");
    assert_eq!(world.lock_all(one, &[(50, 1, EXCLUSIVE), unlocks[0]]), WRONG);
    assert_eq!(world.lock_all(one, &[(50, 1, EXCLUSIVE)]), GRANTED);
}

/// smb2.lock.rw-shared, rw-exclusive, zerobyteread.
#[test]
fn reading_and_writing() {
    let (mut world, one, two) = two_opens();
    let check = |world: &World, open, write| world.hub.check_io(open, 5, 100, write).is_ok();
    for (flags, expected) in [
        (SHARED, [true, false, true, false]),
        (EXCLUSIVE, [true, true, false, false]),
    ] {
        world.lock(one, 100, 10, flags);
        let outcomes = [(one, false), (one, true), (two, false), (two, true)];
        assert_eq!(outcomes.map(|(open, write)| check(&world, open, write)), expected);
        assert_eq!(world.hub.check_io(two, 105, 0, true), Ok(()));
        assert_eq!(world.hub.check_io(two, 110, u64::MAX, true), Ok(()));
        assert_eq!(world.hub.check_io(two, 0, 100, true), Ok(()));
        world.lock(one, 100, 10, UNLOCK);
    }
    assert!(check(&world, two, true));
    assert_eq!(
        world.hub.check_io(OpenId(99), 0, 1, false),
        Err(NtStatus::FILE_CLOSED)
    );
}

/// smb2.lock.async, cancel.
#[test]
fn waiting_for_a_lock() {
    let (mut world, one, two) = two_opens();
    world.lock(one, 0, 10, EXCLUSIVE);
    world.lock(one, 20, 10, EXCLUSIVE);
    let pend = |world: &mut World, open, offset| {
        let waiter = world.waiter();
        let outcome = world
            .hub
            .lock_by(0, open, &[element((offset, 10, WAITS))], None, waiter);
        assert_eq!(outcome, LockOutcome::Wait);
        waiter
    };
    let [first, second, third] = [0, 20, 0].map(|offset| pend(&mut world, two, offset));
    world.lock(one, 0, 10, UNLOCK);
    assert_eq!(world.woken(), [first, third]);
    assert_eq!(
        world.hub.lock_by(0, two, &[element((0, 10, WAITS))], None, first),
        GRANTED
    );
    let again = world.hub.lock_by(0, two, &[element((0, 10, WAITS))], None, third);
    assert_eq!(again, LockOutcome::Wait);
    world.hub.forget(third);
    assert_eq!(world.hub.waiter_count(), 1);
    // The open that waits goes: it is woken to learn that.
    world.close(two);
    assert_eq!(world.woken(), [second]);
    let request = world.request();
    let two = world.open(&request).open;
    let fourth = pend(&mut world, two, 20);
    world.close(one);
    assert_eq!(world.woken(), [fourth]);
    world.close(two);
    world.assert_empty();
}

/// smb2.lock.replay_smb3_specification ([MS-SMB2] 3.3.5.14: `LockSequenceArray`).
#[test]
fn repeated_locks() {
    let (mut world, one, _) = two_opens();
    let mut lock = |index, number, flags| {
        let waiter = world.waiter();
        let sequence = Some(LockSequence::new(number, index));
        world
            .hub
            .lock_by(0, one, &[element((100, 100, flags))], sequence, waiter)
    };
    for index in [0, 65] {
        assert_eq!(lock(index, 1, EXCLUSIVE), GRANTED);
        assert_eq!(lock(index, 1, EXCLUSIVE), TAKEN);
        assert_eq!(lock(index, 1, UNLOCK), GRANTED);
        assert_eq!(lock(index, 1, UNLOCK), UNKNOWN);
    }
    for flags in [EXCLUSIVE, EXCLUSIVE, UNLOCK, EXCLUSIVE, UNLOCK] {
        assert_eq!(lock(1, 1, flags), GRANTED);
    }
    assert_eq!(lock(1, 2, EXCLUSIVE), TAKEN);
    assert_eq!(lock(1, 2, EXCLUSIVE), TAKEN);
    assert_eq!(lock(2, 1, EXCLUSIVE), TAKEN);
    assert_eq!(lock(64, 2, UNLOCK), GRANTED);
    assert_eq!(lock(64, 2, UNLOCK), GRANTED);
    assert_eq!(lock(64, 3, UNLOCK), UNKNOWN);
}

/// smb2.oplock.brl1, brl2, smb2.lease.lock1: who reads from a cache has to know.
#[test]
fn locking_breaks_readers() {
    let mut world = world();
    let request = world.oplocked(OplockLevel::Batch);
    let one = world.open(&request).open;
    assert_eq!(world.lock(one, 0, 4, EXCLUSIVE), GRANTED);
    assert_eq!(world.oplock_breaks(), [], "alone");
    world.lock(one, 0, 4, UNLOCK);
    let other = world.request();
    world.waits(&other);
    world.hub.oplock_break_ack(0, one, OplockLevel::LevelII).unwrap();
    world.open(&other);
    world.events();
    assert_eq!(world.lock(one, 0, 4, EXCLUSIVE), GRANTED);
    assert_eq!(world.oplock_breaks(), [(one, OplockLevel::None)]);
    assert_eq!(world.lock(one, 2, 4, EXCLUSIVE), TAKEN);
    assert_eq!(world.oplock_breaks(), []);
    let mut world = super::world();
    let [one, ..] = [1, 2, 3].map(|number| {
        let request = world.leased(number, RH);
        world.open(&request).open
    });
    assert_eq!(world.lock(one, 0, 1, EXCLUSIVE), GRANTED);
    assert_eq!(world.breaks(), [(2, RH, NONE, 0), (3, RH, NONE, 0)]);
}

/// smb2.lease.lock2, lock3: beside locked bytes nothing is cached, if the file has such bytes.
#[test]
fn locked_bytes_are_not_cached() {
    for (size, overwrites, granted) in [(0, false, RH), (1, false, NONE), (1, true, RH)] {
        let mut world = world();
        let request = world.request();
        let one = world.open(&request).open;
        world.lock(one, 0, 1, EXCLUSIVE);
        let request = OpenRequest {
            size,
            overwrites,
            ..world.leased(2, RWH)
        };
        assert_eq!(state(&world.open(&request)), granted);
    }
    // smb2.lease.lease-epoch: no grant, no change.
    let mut world = super::world();
    let request = world.request();
    let one = world.open(&request).open;
    world.lock(one, 0, 1, EXCLUSIVE);
    let request = OpenRequest {
        lease: Some(lease_v2(1, R, 100)),
        ..world.request()
    };
    assert_eq!(epoch(&world.open(&request)), 100);
}

#[test]
fn locks_are_bounded() {
    let (mut world, one, _) = two_opens();
    world.hub.limits.locks_per_open_max = 2;
    let many: Vec<_> = (0..3).map(|offset| (offset, 1, EXCLUSIVE)).collect();
    let full = LockOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(world.lock_all(one, &many), full);
    assert_eq!(world.lock_all(one, &many[..2]), GRANTED);
    assert_eq!(world.lock(one, 5, 1, EXCLUSIVE), full);
    assert_eq!(world.lock(one, 0, 1, UNLOCK), GRANTED);
    assert_eq!(world.lock(one, 5, 1, EXCLUSIVE), GRANTED);
    world.hub.limits.waiters_max = 0;
    assert_eq!(world.lock(one, 5, 1, WAITS), full);
}

#[test]
fn locks_of_a_file_of_a_request_and_of_all_are_bounded() {
    let (mut world, one, two) = two_opens();
    let full = LockOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES);
    let many: Vec<_> = (0..1025).map(|offset| (offset, 1, EXCLUSIVE)).collect();
    assert_eq!(world.lock_all(one, &many), full);
    world.hub.limits.locks_per_file_max = 2;
    assert_eq!(world.lock(one, 0, 1, EXCLUSIVE), GRANTED);
    assert_eq!(world.lock(two, 1, 1, EXCLUSIVE), GRANTED);
    assert_eq!(world.lock(two, 2, 1, EXCLUSIVE), full);
    world.hub.limits.locks_per_file_max = 100;
    world.hub.limits.locks_max = 3;
    assert_eq!(world.lock(two, 2, 1, EXCLUSIVE), GRANTED);
    assert_eq!(world.lock(two, 3, 1, EXCLUSIVE), full);
    assert_eq!(world.lock(two, 2, 1, UNLOCK), GRANTED);
    assert_eq!(world.lock(two, 3, 1, EXCLUSIVE), GRANTED);
    assert_eq!(world.lock(one, 4, 1, EXCLUSIVE), full);
}
