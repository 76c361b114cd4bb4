//! Byte-range locks as local programs see them: what an open's POSIX locks are equals the union of its SMB locks.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use ropeway_smb_wire::lock::LockFlags;

const EXCLUSIVE: u32 = LockFlags::EXCLUSIVE_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits();
const SHARED: u32 = LockFlags::SHARED_LOCK.bits() | LockFlags::FAIL_IMMEDIATELY.bits();
const UNLOCK: u32 = LockFlags::UNLOCK.bits();
const WAITS: u32 = LockFlags::EXCLUSIVE_LOCK.bits();
const GRANTED: LockOutcome = LockOutcome::Granted;
const TAKEN: LockOutcome = LockOutcome::Refused(NtStatus::LOCK_NOT_GRANTED);
const LAST: u64 = i64::MAX as u64;

fn element((offset, length, flags): (u64, u64, u32)) -> LockElement {
    LockElement {
        offset,
        length,
        flags: LockFlags::from_bits_retain(flags),
    }
}

fn wish(open: OpenId, elements: &[LockElement], waiter: WaiterId) -> LockWish<'_> {
    LockWish {
        now_ms: 1000,
        open,
        elements,
        sequence: None,
        waiter,
    }
}

/// The kernel's side: the lock of each byte near the beginning and near the highest offset, by open.
#[derive(Default)]
struct Kernel(BTreeMap<(OpenId, u64), PosixLock>);

/// The bytes that are looked at.
fn bytes() -> impl Iterator<Item = u64> {
    (0..24).chain(LAST - 8..=LAST)
}

impl Kernel {
    fn at(&self, open: OpenId, byte: u64) -> PosixLock {
        self.0.get(&(open, byte)).copied().unwrap_or_default()
    }

    fn apply(&mut self, open: OpenId, step: &PosixStep) {
        assert!(
            step.first <= step.last && step.last <= LAST && step.before != step.after,
            "{step:?}"
        );
        for byte in bytes().filter(|byte| (step.first..=step.last).contains(byte)) {
            assert_eq!(self.at(open, byte), step.before, "{step:?}");
            self.0.insert((open, byte), step.after);
        }
    }
}

struct Both {
    world: World,
    kernel: Kernel,
}

impl Both {
    fn new() -> (Self, [OpenId; 2]) {
        let mut world = world();
        let request = world.request();
        let opens = [(); 2].map(|()| world.open(&request).open);
        let kernel = Kernel::default();
        (Self { world, kernel }, opens)
    }

    /// As a server does it.
    fn lock_all(&mut self, open: OpenId, elements: &[(u64, u64, u32)]) -> (LockOutcome, Vec<PosixStep>) {
        let elements: Vec<_> = elements.iter().copied().map(element).collect();
        let waiter = self.world.waiter();
        let wish = wish(open, &elements, waiter);
        let plan = self.world.hub.posix_plan(&wish).unwrap();
        if !plan.unlocks {
            plan.steps.iter().for_each(|step| self.kernel.apply(open, step));
        }
        let outcome = self.world.hub.lock(&wish);
        if plan.unlocks {
            plan.steps.iter().for_each(|step| self.kernel.apply(open, step));
        } else {
            assert!(outcome == GRANTED || plan.steps.is_empty());
        }
        (outcome, plan.steps)
    }

    fn steps(&mut self, open: OpenId, offset: u64, length: u64, flags: u32) -> Vec<(u64, u64, PosixLock)> {
        let (outcome, steps) = self.lock_all(open, &[(offset, length, flags)]);
        assert_eq!(outcome, GRANTED);
        steps
            .iter()
            .map(|step| (step.first, step.last, step.after))
            .collect()
    }

    /// The union of the SMB locks is what the kernel has, and no open's locks refuse another's.
    fn check(&self, opens: [OpenId; 2]) {
        for byte in bytes() {
            for open in opens {
                let info = self.world.hub.info(open).unwrap();
                let locks = &self.world.hub.tables.stream(&info.file).unwrap().locks;
                let over = locks.iter().filter(|lock| {
                    let range = lock.range;
                    lock.open == open
                        && range.length > 0
                        && range.offset <= byte
                        && byte - range.offset < range.length
                });
                let kinds = over.map(|lock| match lock.exclusive {
                    true => PosixLock::Write,
                    false => PosixLock::Read,
                });
                let expected = kinds.max().unwrap_or_default();
                assert_eq!(self.kernel.at(open, byte), expected, "byte {byte} of {open:?}");
            }
            let [one, two] = opens.map(|open| self.kernel.at(open, byte));
            let excludes = one.max(two) == PosixLock::Write && one.min(two) != PosixLock::None;
            assert!(!excludes, "byte {byte}: the server is in its own way");
        }
    }
}

#[test]
fn what_another_lock_covers_stays_locked() {
    use PosixLock::{None, Read, Write};
    let (mut both, [one, _]) = Both::new();
    assert_eq!(both.steps(one, 10, 10, EXCLUSIVE), [(10, 19, Write)]);
    assert_eq!(both.steps(one, 5, 20, SHARED), [(5, 9, Read), (20, 24, Read)]);
    assert_eq!(both.steps(one, 5, 20, SHARED), []);
    assert_eq!(both.steps(one, 10, 10, UNLOCK), [(10, 19, Read)]);
    assert_eq!(both.steps(one, 5, 20, UNLOCK), []);
    assert_eq!(both.steps(one, 5, 20, UNLOCK), [(5, 24, None)]);
    assert_eq!(both.world.hub.lock_count(one), 0);
}

#[test]
fn what_files_cannot_have_only_clients_see() {
    use PosixLock::{None, Read, Write};
    let (mut both, [one, two]) = Both::new();
    assert_eq!(both.steps(one, 7, 0, EXCLUSIVE), []);
    assert_eq!(both.steps(one, 1 << 63, 5, EXCLUSIVE), []);
    assert_eq!(both.steps(one, u64::MAX, 1, EXCLUSIVE), []);
    assert_eq!(both.steps(one, LAST - 1, 4, SHARED), [(LAST - 1, LAST, Read)]);
    assert_eq!(both.steps(one, LAST - 1, 4, UNLOCK), [(LAST - 1, LAST, None)]);
    assert_eq!(both.steps(one, 1 << 63, 5, UNLOCK), []);
    assert_eq!(both.steps(one, u64::MAX, 1, UNLOCK), []);
    assert_eq!(both.steps(one, 7, 0, UNLOCK), []);
    assert_eq!(both.steps(two, 0, u64::MAX, EXCLUSIVE), [(0, LAST, Write)]);
}

#[test]
fn several_locks_are_one_plan_and_unlocking_stops_where_it_fails() {
    use PosixLock::{None, Write};
    let (mut both, opens @ [one, _]) = Both::new();
    let (outcome, steps) = both.lock_all(one, &[(0, 5, EXCLUSIVE), (5, 5, EXCLUSIVE), (20, 1, EXCLUSIVE)]);
    assert_eq!((outcome, steps.len()), (GRANTED, 2));
    let (outcome, steps) = both.lock_all(one, &[(0, 5, UNLOCK), (6, 1, UNLOCK), (20, 1, UNLOCK)]);
    assert_eq!(outcome, LockOutcome::Refused(NtStatus::RANGE_NOT_LOCKED));
    let step = PosixStep {
        first: 0,
        last: 4,
        before: Write,
        after: None,
    };
    assert_eq!(steps, [step]);
    both.check(opens);
}

#[test]
fn a_request_that_is_refused_or_repeated_has_no_steps() {
    let (mut both, [one, two]) = Both::new();
    let elements = [element((0, 10, EXCLUSIVE))];
    let waiter = both.world.waiter();
    let numbered = LockWish {
        sequence: Some(LockSequence::new(1, 1)),
        ..wish(one, &elements, waiter)
    };
    assert_eq!(both.world.hub.posix_plan(&numbered).unwrap().steps.len(), 1);
    assert_eq!(both.world.hub.lock(&numbered), GRANTED);
    assert_eq!(both.world.hub.posix_plan(&numbered).unwrap().steps, []);
    assert_eq!(both.world.hub.lock(&numbered), GRANTED);
    assert_eq!(
        both.world
            .hub
            .posix_plan(&wish(two, &elements, waiter))
            .unwrap()
            .steps,
        []
    );
    assert_eq!(
        both.world
            .hub
            .posix_plan(&wish(OpenId(99), &elements, waiter))
            .unwrap()
            .steps,
        []
    );
}

/// A lock over very many gaps would keep others waiting while it is taken.
#[test]
fn a_lock_of_too_many_pieces_is_refused() {
    let (mut both, [one, _]) = Both::new();
    both.world.hub.limits.locks_per_open_max = 5000;
    for byte in 0..1100 {
        both.lock_all(one, &[(100 + 2 * byte, 1, EXCLUSIVE)]);
    }
    let elements = [element((100, 3000, SHARED))];
    let waiter = both.world.waiter();
    let plan = both.world.hub.posix_plan(&wish(one, &elements, waiter));
    assert_eq!(plan, Err(NtStatus::INSUFFICIENT_RESOURCES));
}

#[test]
fn a_lock_waits_for_a_local_program_and_is_tried_again() {
    let (mut both, [one, two]) = Both::new();
    let world = &mut both.world;
    let (waits, fails) = ([element((0, 10, WAITS))], [element((0, 10, EXCLUSIVE))]);
    let waiter = world.waiter();
    assert_eq!(world.hub.lock_held_outside(&wish(one, &fails, waiter)), TAKEN);
    assert_eq!(world.hub.waiter_count(), 0);
    assert_eq!(
        world.hub.lock_held_outside(&wish(one, &waits, waiter)),
        LockOutcome::Wait
    );
    assert_eq!(world.hub.poll_timeout(), Some(1100));
    world.hub.handle_timeout(1099);
    assert_eq!(world.woken(), []);
    world.hub.handle_timeout(1100);
    assert_eq!(world.woken(), [waiter]);
    assert_eq!((world.hub.waiter_count(), world.hub.poll_timeout()), (0, None));
    // Another lock of the file that goes may have been in the way.
    assert_eq!(
        world.hub.lock_held_outside(&wish(one, &waits, waiter)),
        LockOutcome::Wait
    );
    world
        .hub
        .lock(&wish(two, &[element((50, 1, EXCLUSIVE))], waiter_of(9)));
    world
        .hub
        .lock(&wish(two, &[element((50, 1, UNLOCK))], waiter_of(9)));
    assert_eq!(world.woken(), [waiter]);
    // Cancelled; then closed.
    world.hub.lock_held_outside(&wish(one, &waits, waiter));
    world.hub.forget(waiter);
    assert_eq!((world.hub.waiter_count(), world.hub.poll_timeout()), (0, None));
    world.hub.lock_held_outside(&wish(one, &waits, waiter));
    world.close(one);
    assert_eq!(world.woken(), [waiter]);
    world.close(two);
    world.assert_empty();
}

fn waiter_of(request: u64) -> WaiterId {
    WaiterId {
        connection: ConnectionId(77),
        request,
    }
}

/// However many wait, local programs are not asked more often than that.
#[test]
fn many_that_wait_are_tried_more_seldom() {
    let (mut both, [one, _]) = Both::new();
    let waits = [element((0, 10, WAITS))];
    for request in 0..500 {
        both.world
            .hub
            .lock_held_outside(&wish(one, &waits, waiter_of(request)));
    }
    assert_eq!(both.world.hub.waits.outside(), 500);
    both.world.hub.handle_timeout(1100);
    let woken = both.world.woken().len();
    assert_eq!(woken, 100);
    both.world.hub.handle_timeout(1500);
    assert_eq!(both.world.woken().len(), 400);
    assert_eq!(both.world.hub.waits.outside(), 0);
}

/// Who keeps what it reads or writes to itself looks after its locks, too.
#[test]
fn caching_is_told_by_what_is_read_or_written() {
    let mut world = world();
    let request = world.leased(1, RH);
    let one = world.open(&request).open;
    assert!(world.hub.caches(one, false) && !world.hub.caches(one, true));
    let mut world = super::world();
    let request = world.oplocked(OplockLevel::Batch);
    let one = world.open(&request).open;
    assert!(world.hub.caches(one, false) && world.hub.caches(one, true));
    let mut world = super::world();
    let request = world.request();
    let one = world.open(&request).open;
    assert!(!world.hub.caches(one, false) && !world.hub.caches(one, true));
    assert!(!world.hub.caches(OpenId(99), false));
}

proptest! {
    #[test]
    fn posix_locks_are_the_union_of_smb_locks(
        requests in proptest::collection::vec(
            (0..2_usize, proptest::collection::vec((0..32_u64, 0..12_u64, 0..4_u32), 1..4)),
            1..40,
        ),
    ) {
        let (mut both, opens) = Both::new();
        let mut held: Vec<(usize, u64, u64)> = Vec::new();
        for (who, elements) in requests {
            // Some lie around the highest offset; unlocks mostly name what is held.
            let place = |at: u64| if at < 24 { at } else { LAST - 8 + (at - 24) };
            let unlocks = elements[0].2 == 3;
            let elements: Vec<_> = elements
                .iter()
                .map(|&(at, length, kind)| {
                    let own: Vec<_> = held.iter().filter(|(open, ..)| *open == who).collect();
                    match (unlocks, own.is_empty()) {
                        (true, false) => {
                            let (_, offset, length) = *own[at as usize % own.len()];
                            (offset, length, UNLOCK)
                        }
                        (true, true) => (place(at), length, UNLOCK),
                        (false, _) => (place(at), length, if kind == 0 { EXCLUSIVE } else { SHARED }),
                    }
                })
                .collect();
            let (outcome, _) = both.lock_all(opens[who], &elements);
            if outcome == GRANTED && !unlocks {
                held.extend(elements.iter().map(|(offset, length, _)| (who, *offset, *length)));
            }
            both.check(opens);
        }
    }
}
