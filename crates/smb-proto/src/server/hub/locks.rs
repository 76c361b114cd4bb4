//! Byte-range locks ([MS-SMB2] 3.3.5.14; [MS-FSA] 2.1.4.10, 2.1.5.8, 2.1.5.9).

use std::time::Duration;

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockSequence};

use super::Hub;
use super::ids::{FileKey, OpenId, WaiterId};
use super::range::{Lock, Range};
use super::wait_queue::Wait;

/// Marks a bucket of `LockSequenceArray` without a number. Numbers have 4 bits.
pub(super) const UNKNOWN_SEQUENCE: u8 = 0xFF;

/// The outcome of a LOCK request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// The ranges were locked or unlocked.
    Granted,
    /// The request fails.
    Refused(NtStatus),
    /// The range is locked by another open. Execute the request again after [`super::Event::Wake`].
    Wait,
}

/// A LOCK request ([MS-SMB2] 2.2.26).
#[derive(Clone, Copy, Debug)]
pub struct RangeLockRequest<'a> {
    /// The time.
    pub now: Duration,
    /// The open.
    pub open: OpenId,
    /// The ranges.
    pub elements: &'a [LockElement],
    /// The lock sequence, if it is to be verified: for durable and resilient opens, and for all
    /// opens of 3.x with multichannel.
    pub sequence: Option<LockSequence>,
    /// Identifies the request while it waits.
    pub waiter: WaiterId,
}

impl RangeLockRequest<'_> {
    /// Returns the lock sequence if it is to be verified, which requires an index of 1 to 64.
    pub(super) fn verified_sequence(&self) -> Option<LockSequence> {
        self.sequence
            .filter(|sequence| (1..=64).contains(&sequence.index()))
    }

    /// Returns whether the request unlocks. The first element decides for all.
    pub(super) fn unlocks(&self) -> bool {
        let first = self.elements.first();
        first.is_some_and(|element| element.flags.contains(LockFlags::UNLOCK))
    }
}

/// A lock asked for by a request.
#[derive(Clone, Copy)]
pub(super) struct RequestedLock {
    pub(super) lock: Lock,
    pub(super) waits: bool,
}

/// Maximum number of ranges in one request. A guess: Windows sends one, and other requests wait
/// while the ranges are compared.
pub(super) const ELEMENTS_MAX: usize = 1024;

impl Hub {
    /// Locks or unlocks ranges ([MS-SMB2] 3.3.5.14).
    pub fn lock(&mut self, request: &RangeLockRequest<'_>) -> LockOutcome {
        let &RangeLockRequest { open, elements, .. } = request;
        self.stop_waiting(request.waiter);
        let Some(file) = self.info(open).map(|info| info.file.clone()) else {
            return LockOutcome::Refused(NtStatus::FILE_CLOSED);
        };
        let sequence = request.verified_sequence();
        let before = self.lock_state(open, sequence);
        if sequence.is_some_and(|sequence| self.is_replayed_lock(open, sequence)) {
            return LockOutcome::Granted;
        }
        let outcome = match elements.len() {
            ..=ELEMENTS_MAX if request.unlocks() => self.unlock_all(open, &file, elements),
            _ => self.lock_all(request, &file),
        };
        if outcome == Ok(true) {
            self.note_sequence(open, sequence);
        }
        // A request that was refused may have unlocked some ranges.
        if outcome == Ok(true) || self.lock_state(open, sequence) != before {
            self.open_changed(open);
        }
        match outcome {
            Ok(true) => LockOutcome::Granted,
            Ok(false) => LockOutcome::Wait,
            Err(status) => LockOutcome::Refused(status),
        }
    }

    /// Checks whether the open may read or write a range ([MS-FSA] 2.1.4.10). An empty range
    /// conflicts with no lock.
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open, `STATUS_FILE_LOCK_CONFLICT`.
    pub fn check_io(&self, open: OpenId, offset: u64, length: u64, write: bool) -> Result<(), NtStatus> {
        let info = self.info(open).ok_or(NtStatus::FILE_CLOSED)?;
        let locks = self
            .tables
            .stream(&info.file)
            .map_or(&[][..], |stream| &stream.locks);
        if locks.is_empty() || length == 0 {
            return Ok(());
        }
        let length = length.min((u64::MAX - offset).saturating_add(1));
        let range = Range { offset, length };
        match locks.iter().any(|lock| lock.denies_io(open, range, write)) {
            true => Err(NtStatus::FILE_LOCK_CONFLICT),
            false => Ok(()),
        }
    }

    /// Unlocks one range after the other ([MS-SMB2] 3.3.5.14.1). Ranges before one that fails stay
    /// unlocked.
    fn unlock_all(
        &mut self,
        open: OpenId,
        file: &FileKey,
        elements: &[LockElement],
    ) -> Result<bool, NtStatus> {
        let mut outcome = Ok(true);
        for element in elements {
            outcome = if element.flags == LockFlags::UNLOCK {
                self.unlock(open, file, element)
            } else {
                Err(NtStatus::INVALID_PARAMETER)
            };
            if outcome.is_err() {
                break;
            }
        }
        self.wake_lock_waiters(file);
        outcome
    }

    fn unlock(&mut self, open: OpenId, file: &FileKey, element: &LockElement) -> Result<bool, NtStatus> {
        let locks = &mut self.tables.stream_mut(file).ok_or(NtStatus::FILE_CLOSED)?.locks;
        let place = unlocked_by(locks, open, element).ok_or(NtStatus::RANGE_NOT_LOCKED)?;
        locks.remove(place);
        self.tables.lock_count = self.tables.lock_count.saturating_sub(1);
        if let Some(open) = self.tables.opens.get_mut(&open) {
            open.lock_count = open.lock_count.saturating_sub(1);
        }
        Ok(true)
    }

    /// Locks all ranges or none ([MS-SMB2] 3.3.5.14.2). Only a single lock may wait, which
    /// `Ok(false)` reports.
    fn lock_all(&mut self, request: &RangeLockRequest<'_>, file: &FileKey) -> Result<bool, NtStatus> {
        let open = request.open;
        let (wanted, held) = self.check_locks(open, file, request.elements)?;
        if let Some(one) = held {
            if !one.waits {
                return Err(NtStatus::LOCK_NOT_GRANTED);
            }
            return match self.wait(request.waiter, Wait::Lock(one.lock)) {
                true => Ok(false),
                false => Err(NtStatus::INSUFFICIENT_RESOURCES),
            };
        }
        let stream = self.tables.stream_mut(file).ok_or(NtStatus::FILE_CLOSED)?;
        stream.locks.extend(wanted.iter().map(|one| one.lock));
        let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        self.tables.lock_count += wanted.len();
        let held = self.tables.opens.get_mut(&open).ok_or(NtStatus::FILE_CLOSED)?;
        held.lock_count += count;
        // [MS-FSA] 2.1.4.12: a client that reads from its cache would not notice the lock
        // (smb2.oplock.brl1, smb2.lease.lock1).
        let actor = Self::holder(held);
        self.break_read_caching(request.now, Some(actor), file);
        Ok(true)
    }

    /// Returns the requested locks and the first that cannot be granted. Locks that are held and
    /// locks earlier in the request conflict.
    pub(super) fn check_locks(
        &self,
        open: OpenId,
        file: &FileKey,
        elements: &[LockElement],
    ) -> Result<(Vec<RequestedLock>, Option<RequestedLock>), NtStatus> {
        if elements.len() > ELEMENTS_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let wanted = elements
            .iter()
            .map(|element| parse(open, element, elements.len() == 1))
            .collect::<Result<Vec<_>, _>>()?;
        if wanted.is_empty() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.check_room(open, file, wanted.len())?;
        let held = &self.tables.stream(file).ok_or(NtStatus::FILE_CLOSED)?.locks;
        let is_refused = |(place, one): (usize, &RequestedLock)| {
            let before = wanted[..place].iter().map(|other| &other.lock);
            held.iter()
                .chain(before)
                .any(|lock| lock.conflicts_with(&one.lock))
        };
        let refused = wanted.iter().enumerate().find(|one| is_refused(*one));
        let refused = refused.map(|(_, one)| *one);
        Ok((wanted, refused))
    }

    /// Checks that `count` more locks are within the limits, before any lock is compared.
    fn check_room(&self, open: OpenId, file: &FileKey, count: usize) -> Result<(), NtStatus> {
        let held = self.tables.opens.get(&open).ok_or(NtStatus::FILE_CLOSED)?;
        let stream = self.tables.stream(file).ok_or(NtStatus::FILE_CLOSED)?;
        let limits = &self.limits;
        let fits = held.lock_count as usize + count <= limits.locks_per_open_max as usize
            && stream.locks.len() + count <= limits.locks_per_file_max
            && self.tables.lock_count + count <= limits.locks_max;
        fits.then_some(()).ok_or(NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Wakes the requests whose lock is free now, oldest first.
    pub(super) fn wake_lock_waiters(&mut self, file: &FileKey) {
        let Some(stream) = self.tables.stream(file) else {
            return;
        };
        let free = |waiter: &&WaiterId| match self.waits.get(**waiter) {
            Some(Wait::Lock(wanted)) => !stream.locks.iter().any(|lock| lock.conflicts_with(wanted)),
            _ => true,
        };
        let ready: Vec<_> = stream.lock_waiters.iter().filter(free).copied().collect();
        for waiter in ready {
            self.wake(waiter);
        }
    }

    /// Wakes the requests that wait for a lock of this open, before the open is closed.
    pub(super) fn wake_own_lock_waiters(&mut self, open: OpenId) {
        let stream = self.info(open).and_then(|info| self.tables.stream(&info.file));
        let waiters = stream.map_or(&[][..], |stream| &stream.lock_waiters);
        let own = |waiter: &&WaiterId| match self.waits.get(**waiter) {
            Some(Wait::Lock(lock) | Wait::LocalLock(lock)) => lock.open == open,
            _ => false,
        };
        let ready: Vec<_> = waiters.iter().filter(own).copied().collect();
        for waiter in ready {
            self.wake(waiter);
        }
    }

    /// Returns whether the request with this lock sequence was carried out before. If not, marks
    /// its bucket as unknown until it is.
    pub(super) fn is_replayed_lock(&mut self, open: OpenId, sequence: LockSequence) -> bool {
        let open = self.tables.opens.get_mut(&open);
        let Some(bucket) = open.and_then(|open| open.lock_sequences.as_mut()?.get_mut(bucket_of(sequence)))
        else {
            return false;
        };
        let seen = *bucket == sequence.number();
        if !seen {
            *bucket = UNKNOWN_SEQUENCE;
        }
        seen
    }

    /// Returns the same as [`Self::is_replayed_lock`] without changing anything.
    pub(super) fn was_carried_out(&self, open: OpenId, sequence: LockSequence) -> bool {
        let open = self.tables.opens.get(&open);
        let bucket = open.and_then(|open| open.lock_sequences.as_ref()?.get(bucket_of(sequence)));
        bucket == Some(&sequence.number())
    }

    /// Returns the number of locks of an open, and what is known of its requests with this sequence.
    pub(super) fn lock_state(&self, open: OpenId, sequence: Option<LockSequence>) -> Option<(u32, u8)> {
        let open = self.tables.opens.get(&open)?;
        let buckets = open.lock_sequences.as_ref();
        let bucket = sequence.and_then(|sequence| buckets?.get(bucket_of(sequence)).copied());
        Some((open.lock_count, bucket.unwrap_or(UNKNOWN_SEQUENCE)))
    }

    fn note_sequence(&mut self, open: OpenId, sequence: Option<LockSequence>) {
        let (Some(sequence), Some(open)) = (sequence, self.tables.opens.get_mut(&open)) else {
            return;
        };
        let buckets = open
            .lock_sequences
            .get_or_insert_with(|| Box::new([UNKNOWN_SEQUENCE; 64]));
        if let Some(bucket) = buckets.get_mut(bucket_of(sequence)) {
            *bucket = sequence.number();
        }
    }
}

/// Returns the position of the lock that an element unlocks. The range must match exactly;
/// exclusive locks go first (smb2.lock.unlock).
pub(super) fn unlocked_by(locks: &[Lock], open: OpenId, element: &LockElement) -> Option<usize> {
    let range = Range {
        offset: element.offset,
        length: element.length,
    };
    let own = |lock: &Lock| lock.open == open && lock.range == range;
    let exclusive = locks.iter().position(|lock| own(lock) && lock.exclusive);
    exclusive.or_else(|| locks.iter().position(own))
}

fn bucket_of(sequence: LockSequence) -> usize {
    sequence.index() as usize - 1
}

fn parse(open: OpenId, element: &LockElement, single: bool) -> Result<RequestedLock, NtStatus> {
    let flags = element.flags;
    let fails = flags.contains(LockFlags::FAIL_IMMEDIATELY);
    let exclusive = match flags.difference(LockFlags::FAIL_IMMEDIATELY) {
        LockFlags::SHARED_LOCK => false,
        LockFlags::EXCLUSIVE_LOCK => true,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    if !single && !fails {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let range = Range::new(element.offset, element.length).ok_or(NtStatus::INVALID_LOCK_RANGE)?;
    Ok(RequestedLock {
        lock: Lock {
            open,
            range,
            exclusive,
        },
        waits: !fails,
    })
}
