//! Byte-range locks for local processes: the POSIX locks that mirror the SMB locks of an open.
//!
//! Each byte of a file has at most one POSIX lock per open, while SMB locks of one open stack. The
//! rule: a byte has a write lock if any exclusive lock of the open covers it, otherwise a read lock
//! if a shared lock covers it. A LOCK request changes only the bytes for which the rule yields a
//! different result, so a byte that another lock of the same open still covers stays locked.
//!
//! File lengths are signed, and so are POSIX ranges. Locks beyond 2^63 - 1 and locks of zero bytes
//! are visible to SMB clients only.

use std::time::Duration;

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::lock::{LockElement, LockFlags};

use super::ids::OpenId;
use super::locks::{ELEMENTS_MAX, LockOutcome, RangeLockRequest, unlocked_by};
use super::range::{Lock, Range};
use super::wait_queue::Wait;
use super::{Hub, Timer};

/// The highest offset of a POSIX lock.
const LAST: u64 = i64::MAX as u64;

/// Interval between attempts at a lock that a local process holds. The kernel does
/// not report its release. A guess: too short for a user to notice.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Interval per waiting request. With many requests the interval grows, so that all
/// together are retried once per this time.
const RETRY_INTERVAL_EACH: Duration = Duration::from_millis(1);

/// The POSIX lock of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PosixLock {
    /// No lock.
    #[default]
    None,
    /// Others may read it (`F_RDLCK`).
    Read,
    /// Others may not access it (`F_WRLCK`).
    Write,
}

/// A range of bytes whose POSIX lock changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixStep {
    /// The first byte.
    pub first: u64,
    /// The last byte, at most 2^63 - 1.
    pub last: u64,
    /// The current lock.
    pub before: PosixLock,
    /// The new lock.
    pub after: PosixLock,
}

/// The changes that a LOCK request makes to the POSIX locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixPlan {
    /// The changes, by offset. Empty if the hub will refuse the request or let it wait.
    pub steps: Vec<PosixStep>,
    /// Whether the request unlocks. The steps then follow [`Hub::lock`]; otherwise they precede it.
    pub unlocks: bool,
}

impl Hub {
    /// Returns the changes to make if [`Self::lock`] is called with the same request next. The
    /// caller ensures that no other lock of the file is granted or released in between. Opens may
    /// close.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES`: the lock consists of too many pieces.
    pub fn posix_plan(&self, request: &RangeLockRequest<'_>) -> Result<PosixPlan, NtStatus> {
        let elements = request.elements;
        let nothing = PosixPlan::default();
        let Some(file) = self.info(request.open).map(|info| &info.file) else {
            return Ok(nothing);
        };
        if request
            .verified_sequence()
            .is_some_and(|sequence| self.was_carried_out(request.open, sequence))
        {
            return Ok(nothing);
        }
        let Some(stream) = self.tables.stream(file) else {
            return Ok(nothing);
        };
        let Some((first, last)) = hull(elements).filter(|_| elements.len() <= ELEMENTS_MAX) else {
            return Ok(nothing);
        };
        let is_near = |lock: &&Lock| {
            let range = lock.range;
            lock.open == request.open && range.offset <= last && first <= last_of(range.offset, range.length)
        };
        let before: Vec<Lock> = stream.locks.iter().filter(is_near).copied().collect();
        let mut after = before.clone();
        let unlocks = request.unlocks();
        if unlocks {
            unlock(&mut after, request.open, elements);
        } else {
            match self.check_locks(request.open, file, elements) {
                Ok((wanted, None)) => after.extend(wanted.iter().map(|one| one.lock)),
                Ok((_, Some(_))) | Err(_) => return Ok(nothing),
            }
        }
        let steps = steps(&before, &after);
        // The limit for locks requested one by one. The pieces of an unlock were all requested
        // before.
        if !unlocks && steps.len() > ELEMENTS_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        Ok(PosixPlan { steps, unlocks })
    }

    /// Handles a request that [`Self::lock`] would grant but for the lock of a local process. The
    /// request is refused, or it waits and is retried when [`Self::poll_timeout`] says.
    pub fn lock_held_locally(&mut self, request: &RangeLockRequest<'_>) -> LockOutcome {
        self.stop_waiting(request.waiter);
        let Some(file) = self.info(request.open).map(|info| info.file.clone()) else {
            return LockOutcome::Refused(NtStatus::FILE_CLOSED);
        };
        if let Some(sequence) = request.verified_sequence() {
            let before = self.lock_state(request.open, Some(sequence));
            self.is_replayed_lock(request.open, sequence);
            if self.lock_state(request.open, Some(sequence)) != before {
                self.open_changed(request.open);
            }
        }
        let wanted = match self.check_locks(request.open, &file, request.elements) {
            Ok((wanted, _)) => wanted,
            Err(status) => return LockOutcome::Refused(status),
        };
        let Some(one) = wanted.first().filter(|one| one.waits) else {
            return LockOutcome::Refused(NtStatus::LOCK_NOT_GRANTED);
        };
        if !self.wait(request.waiter, Wait::LocalLock(one.lock)) {
            return LockOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let others = u32::try_from(self.waits.local_locks()).unwrap_or(u32::MAX);
        let interval = RETRY_INTERVAL.max(RETRY_INTERVAL_EACH.saturating_mul(others));
        self.set_timer(request.now.saturating_add(interval), Timer::Lock(request.waiter));
        LockOutcome::Wait
    }

    /// Returns the number of locks that an open holds.
    pub fn lock_count(&self, open: OpenId) -> usize {
        self.tables
            .opens
            .get(&open)
            .map_or(0, |open| open.lock_count as usize)
    }

    /// Returns whether the open's client may cache reads, or writes. It then checks its locks
    /// itself.
    pub fn caches(&self, open: OpenId, write: bool) -> bool {
        let what = match write {
            true => LeaseState::WRITE_CACHING,
            false => LeaseState::READ_CACHING,
        };
        let open = self.tables.opens.get(&open);
        let caching = open.and_then(|open| self.caching(Self::holder(open)));
        caching.is_some_and(|caching| caching.state.intersects(what))
    }
}

/// Returns the POSIX locks that stand for the locks of one open, given as offset, length and whether
/// it is exclusive.
pub fn posix_locks_of(locks: impl IntoIterator<Item = (u64, u64, bool)>) -> Vec<PosixStep> {
    let locks = locks.into_iter().filter_map(|(offset, length, exclusive)| {
        Some(Lock {
            open: OpenId::new(0),
            range: Range::new(offset, length)?,
            exclusive,
        })
    });
    steps(&[], &locks.collect::<Vec<_>>())
}

/// Returns the first and the last byte that the elements cover.
fn hull(elements: &[LockElement]) -> Option<(u64, u64)> {
    let first = elements.iter().map(|element| element.offset).min()?;
    let last = elements
        .iter()
        .map(|element| last_of(element.offset, element.length));
    Some((first, last.max()?))
}

/// Returns the last byte of a range; for an empty range, its offset.
fn last_of(offset: u64, length: u64) -> u64 {
    offset.saturating_add(length.saturating_sub(1))
}

/// Removes the locks that the elements unlock, up to the first element that fails.
fn unlock(locks: &mut Vec<Lock>, open: OpenId, elements: &[LockElement]) {
    for element in elements {
        let place = match element.flags == LockFlags::UNLOCK {
            true => unlocked_by(locks, open, element),
            false => None,
        };
        match place {
            Some(place) => _ = locks.remove(place),
            None => return,
        }
    }
}

/// Number of locks that cover a position.
#[derive(Clone, Copy, Default)]
struct Depth {
    exclusive: usize,
    all: usize,
}

impl Depth {
    fn change(&mut self, lock: &Lock, begins: bool) {
        let change = |count: &mut usize| match begins {
            true => *count += 1,
            false => *count -= 1,
        };
        change(&mut self.all);
        if lock.exclusive {
            change(&mut self.exclusive);
        }
    }

    fn kind(self) -> PosixLock {
        match self {
            Self { exclusive: 1.., .. } => PosixLock::Write,
            Self { all: 1.., .. } => PosixLock::Read,
            _ => PosixLock::None,
        }
    }
}

/// Returns where the locks of one open yield a different POSIX lock after a change than before it,
/// in order and in as few steps as possible.
fn steps(before: &[Lock], after: &[Lock]) -> Vec<PosixStep> {
    // The ends of all ranges, by offset: whether the range is new, and whether this is its start.
    let mut ends = Vec::with_capacity(2 * (before.len() + after.len()));
    for (is_new, locks) in [(false, before), (true, after)] {
        for lock in locks {
            if lock.range.length == 0 || lock.range.offset > LAST {
                continue;
            }
            let last = last_of(lock.range.offset, lock.range.length).min(LAST);
            ends.push((lock.range.offset, is_new, true, lock));
            ends.push((last + 1, is_new, false, lock));
        }
    }
    // Starts come first, so that no count drops below zero.
    ends.sort_by_key(|&(at, _, begins, _)| (at, !begins));
    let mut steps: Vec<PosixStep> = Vec::new();
    let mut depths = [Depth::default(); 2];
    let mut from = 0;
    for (at, is_new, begins, lock) in ends {
        let [was, becomes] = depths.map(Depth::kind);
        if at > from && was != becomes {
            match steps.last_mut() {
                Some(step) if step.last + 1 == from && (step.before, step.after) == (was, becomes) => {
                    step.last = at - 1;
                }
                _ => steps.push(PosixStep {
                    first: from,
                    last: at - 1,
                    before: was,
                    after: becomes,
                }),
            }
        }
        from = at;
        depths[usize::from(is_new)].change(lock, begins);
    }
    steps
}
