//! Byte-range locks as local programs see them: what the POSIX locks of an open are to be.
//!
//! A byte of a file has at most one POSIX lock of one open, while SMB's locks of an open stack. The rule is: a byte is
//! locked for writing where any exclusive lock of the open covers it, else for reading where a shared one does. A lock
//! or unlock changes only the bytes for which that gives something else, so that nothing is given up that another lock
//! of the same open still covers.
//!
//! Lengths of files are signed, and so are POSIX ranges: what lies beyond 2^63 - 1, and locks of no bytes, only clients
//! see.

use super::ids::OpenId;
use super::locks::{ELEMENTS_MAX, LockOutcome, LockWish, unlocked_by};
use super::range::Lock;
use super::wait::Wait;
use super::{Hub, Timer};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::lock::{LockElement, LockFlags};

/// The highest offset of a POSIX lock.
const LAST: u64 = i64::MAX as u64;

/// A request that a local program is in the way of is tried again after so long: nothing tells when that lock goes. A
/// guess: people do not notice it.
const RETRY_MS: u64 = 100;
/// With many such requests each waits longer, so that all together are tried so often: one in so many milliseconds.
const RETRY_EACH_MS: u64 = 1;

/// What a byte is locked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PosixLock {
    /// Not at all.
    #[default]
    None,
    /// Others may read it (`F_RDLCK`).
    Read,
    /// Nobody else may have it (`F_WRLCK`).
    Write,
}

/// A range of bytes for which an open's POSIX lock becomes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixStep {
    /// The first byte.
    pub first: u64,
    /// The last byte, at most 2^63 - 1.
    pub last: u64,
    /// The lock that there is.
    pub before: PosixLock,
    /// The lock that there is to be.
    pub after: PosixLock,
}

/// What a LOCK request means for local programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PosixPlan {
    /// The changes, by offset; none if the hub is going to refuse the request, or to have it wait.
    pub steps: Vec<PosixStep>,
    /// The request unlocks: the steps come after [`Hub::lock`], otherwise before it.
    pub unlocks: bool,
}

impl Hub {
    /// What there is to be done for local programs if [`Self::lock`] is called with the same request next. The caller sees
    /// to it that no other lock of the file is granted or given up in between; opens may close.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES`: a lock of too many pieces.
    pub fn posix_plan(&self, request: &LockWish<'_>) -> Result<PosixPlan, NtStatus> {
        let elements = request.elements;
        let nothing = PosixPlan::default();
        let Some(file) = self.info(request.open).map(|info| &info.file) else {
            return Ok(nothing);
        };
        if request
            .verified_sequence()
            .is_some_and(|sequence| self.has_seen(request.open, sequence))
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
            match self.judge(request.open, file, elements) {
                Ok((wanted, None)) => after.extend(wanted.iter().map(|one| one.lock)),
                Ok((_, Some(_))) | Err(_) => return Ok(nothing),
            }
        }
        let steps = steps(&before, &after);
        // As many as if each was asked for. Those of an unlock were all asked for before.
        if !unlocks && steps.len() > ELEMENTS_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        Ok(PosixPlan { steps, unlocks })
    }

    /// A local program is in the way of a request that [`Self::lock`] would have granted: it is refused, or waits and is
    /// tried again, as [`Self::poll_timeout`] says.
    pub fn lock_held_outside(&mut self, request: &LockWish<'_>) -> LockOutcome {
        self.unwait(request.waiter);
        let Some(file) = self.info(request.open).map(|info| info.file.clone()) else {
            return LockOutcome::Refused(NtStatus::FILE_CLOSED);
        };
        if let Some(sequence) = request.verified_sequence() {
            self.is_seen(request.open, sequence);
        }
        let wanted = match self.judge(request.open, &file, request.elements) {
            Ok((wanted, _)) => wanted,
            Err(status) => return LockOutcome::Refused(status),
        };
        let Some(one) = wanted.first().filter(|one| one.waits) else {
            return LockOutcome::Refused(NtStatus::LOCK_NOT_GRANTED);
        };
        if !self.wait(request.waiter, Wait::Outside(one.lock)) {
            return LockOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let others = u64::try_from(self.waits.outside()).unwrap_or(u64::MAX);
        let patience = RETRY_MS.max(others.saturating_mul(RETRY_EACH_MS));
        self.set_timer(
            request.now_ms.saturating_add(patience),
            Timer::Lock(request.waiter),
        );
        LockOutcome::Wait
    }

    /// Number of locks that an open holds.
    pub fn lock_count(&self, open: OpenId) -> usize {
        self.tables
            .opens
            .get(&open)
            .map_or(0, |open| open.lock_count as usize)
    }

    /// Whether the open's client may keep what it reads, or writes, to itself: it looks after its locks by itself, too.
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

/// The first and the last byte that elements name.
fn hull(elements: &[LockElement]) -> Option<(u64, u64)> {
    let first = elements.iter().map(|element| element.offset).min()?;
    let last = elements
        .iter()
        .map(|element| last_of(element.offset, element.length));
    Some((first, last.max()?))
}

/// The last byte of a range; of an empty one, its offset.
fn last_of(offset: u64, length: u64) -> u64 {
    offset.saturating_add(length.saturating_sub(1))
}

/// Takes out what unlocking takes out, up to the first element that fails.
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

/// Number of locks over a place, exclusive ones and all.
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

/// Where the locks of one open give something else after a change than before, in order and as few as can be.
fn steps(before: &[Lock], after: &[Lock]) -> Vec<PosixStep> {
    // Ends of ranges, by offset: of what was, or of what is to be; those that begin, and those that have ended before.
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
    // What begins is counted first, so that no count falls below zero.
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
