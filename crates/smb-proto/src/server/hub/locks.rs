//! Byte-range locks ([MS-SMB2] 3.3.5.14; [MS-FSA] 2.1.4.10, 2.1.5.8, 2.1.5.9).

use super::Hub;
use super::ids::{FileKey, OpenId, WaiterId};
use super::range::{Lock, Range};
use super::wait::Wait;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::lock::{LockElement, LockFlags, LockSequence};

/// A bucket of `LockSequenceArray` that knows no number; numbers have 4 bits.
pub(super) const UNSEEN: u8 = 0xFF;

/// What becomes of a LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// Locked, or unlocked.
    Granted,
    /// It fails.
    Refused(NtStatus),
    /// The range is locked; the request is executed again after [`super::Event::Wake`].
    Wait,
}

/// A LOCK request ([MS-SMB2] 2.2.26).
#[derive(Clone, Copy, Debug)]
pub struct LockWish<'a> {
    /// Milliseconds of the hub's clock.
    pub now_ms: u64,
    /// Who locks.
    pub open: OpenId,
    /// What.
    pub elements: &'a [LockElement],
    /// Given where it is to be verified: for durable and resilient opens, and for all opens of 3.x with multichannel.
    pub sequence: Option<LockSequence>,
    /// What the request is known by while it waits.
    pub waiter: WaiterId,
}

impl LockWish<'_> {
    /// Others than 1 to 64 are not verified.
    pub(super) fn verified_sequence(&self) -> Option<LockSequence> {
        self.sequence
            .filter(|sequence| (1..=64).contains(&sequence.index()))
    }

    /// The first element says so for all.
    pub(super) fn unlocks(&self) -> bool {
        let first = self.elements.first();
        first.is_some_and(|element| element.flags.contains(LockFlags::UNLOCK))
    }
}

/// One lock that is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) lock: Lock,
    pub(super) waits: bool,
}

/// The most ranges of one request. A guess: Windows sends one, and others wait for as long as they are compared.
pub(super) const ELEMENTS_MAX: usize = 1024;

impl Hub {
    /// Locks or unlocks ([MS-SMB2] 3.3.5.14).
    pub fn lock(&mut self, request: &LockWish<'_>) -> LockOutcome {
        let &LockWish { open, elements, .. } = request;
        self.unwait(request.waiter);
        let Some(file) = self.info(open).map(|info| info.file.clone()) else {
            return LockOutcome::Refused(NtStatus::FILE_CLOSED);
        };
        let sequence = request.verified_sequence();
        if sequence.is_some_and(|sequence| self.is_seen(open, sequence)) {
            return LockOutcome::Granted;
        }
        let outcome = match elements.len() {
            ..=ELEMENTS_MAX if request.unlocks() => self.unlock_all(open, &file, elements),
            _ => self.lock_all(request, &file),
        };
        match outcome {
            Ok(true) => {
                self.see(open, sequence);
                LockOutcome::Granted
            }
            Ok(false) => LockOutcome::Wait,
            Err(status) => LockOutcome::Refused(status),
        }
    }

    /// Whether the open may read, or write, that range ([MS-FSA] 2.1.4.10); nothing is locked for reading nothing.
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
        match locks.iter().any(|lock| lock.bars(open, range, write)) {
            true => Err(NtStatus::FILE_LOCK_CONFLICT),
            false => Ok(()),
        }
    }

    /// [MS-SMB2] 3.3.5.14.1: one after the other; what was unlocked before one that fails stays so.
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

    /// [MS-SMB2] 3.3.5.14.2: all or none; only a single lock may wait. `Ok(false)` waits.
    fn lock_all(&mut self, request: &LockWish<'_>, file: &FileKey) -> Result<bool, NtStatus> {
        let open = request.open;
        let (wanted, held) = self.judge(open, file, request.elements)?;
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
        // [MS-FSA] 2.1.4.12: whoever reads from its cache would not notice (smb2.oplock.brl1, smb2.lease.lock1).
        let actor = Self::holder(held);
        self.disappoint_readers(request.now_ms, Some(actor), file);
        Ok(true)
    }

    /// What is asked for, and the first of it that cannot be granted, because of locks that are held or asked for before it.
    pub(super) fn judge(
        &self,
        open: OpenId,
        file: &FileKey,
        elements: &[LockElement],
    ) -> Result<(Vec<Wanted>, Option<Wanted>), NtStatus> {
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
        let is_refused = |(place, one): (usize, &Wanted)| {
            let before = wanted[..place].iter().map(|other| &other.lock);
            held.iter().chain(before).any(|lock| lock.refuses(&one.lock))
        };
        let refused = wanted.iter().enumerate().find(|one| is_refused(*one));
        let refused = refused.map(|(_, one)| *one);
        Ok((wanted, refused))
    }

    /// Whether so many locks may come: known before any is compared with what is there.
    fn check_room(&self, open: OpenId, file: &FileKey, count: usize) -> Result<(), NtStatus> {
        let held = self.tables.opens.get(&open).ok_or(NtStatus::FILE_CLOSED)?;
        let stream = self.tables.stream(file).ok_or(NtStatus::FILE_CLOSED)?;
        let limits = &self.limits;
        let fits = held.lock_count as usize + count <= limits.locks_per_open_max as usize
            && stream.locks.len() + count <= limits.locks_per_file_max
            && self.tables.lock_count + count <= limits.locks_max;
        fits.then_some(()).ok_or(NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Wakes those whose lock is in nobody's way now, first come first.
    pub(super) fn wake_lock_waiters(&mut self, file: &FileKey) {
        let Some(stream) = self.tables.stream(file) else {
            return;
        };
        let free = |waiter: &&WaiterId| match self.waits.get(**waiter) {
            Some(Wait::Lock(wanted)) => !stream.locks.iter().any(|lock| lock.refuses(wanted)),
            _ => true,
        };
        let ready: Vec<_> = stream.lock_waiters.iter().filter(free).copied().collect();
        for waiter in ready {
            self.wake(waiter);
        }
    }

    /// Wakes those who wait for a lock by this open, which is about to go.
    pub(super) fn wake_lockers(&mut self, open: OpenId) {
        let stream = self.info(open).and_then(|info| self.tables.stream(&info.file));
        let waiters = stream.map_or(&[][..], |stream| &stream.lock_waiters);
        let own = |waiter: &&WaiterId| match self.waits.get(**waiter) {
            Some(Wait::Lock(lock) | Wait::Outside(lock)) => lock.open == open,
            _ => false,
        };
        let ready: Vec<_> = waiters.iter().filter(own).copied().collect();
        for waiter in ready {
            self.wake(waiter);
        }
    }

    /// A sequence number seen before is that of a request that was carried out. Another one makes its bucket unknown
    /// until it is carried out.
    pub(super) fn is_seen(&mut self, open: OpenId, sequence: LockSequence) -> bool {
        let open = self.tables.opens.get_mut(&open);
        let Some(bucket) = open.and_then(|open| open.lock_sequences.as_mut()?.get_mut(bucket_of(sequence)))
        else {
            return false;
        };
        let seen = *bucket == sequence.number();
        if !seen {
            *bucket = UNSEEN;
        }
        seen
    }

    /// As [`Self::is_seen`], changing nothing.
    pub(super) fn has_seen(&self, open: OpenId, sequence: LockSequence) -> bool {
        let open = self.tables.opens.get(&open);
        let bucket = open.and_then(|open| open.lock_sequences.as_ref()?.get(bucket_of(sequence)));
        bucket == Some(&sequence.number())
    }

    fn see(&mut self, open: OpenId, sequence: Option<LockSequence>) {
        let (Some(sequence), Some(open)) = (sequence, self.tables.opens.get_mut(&open)) else {
            return;
        };
        let buckets = open.lock_sequences.get_or_insert_with(|| Box::new([UNSEEN; 64]));
        if let Some(bucket) = buckets.get_mut(bucket_of(sequence)) {
            *bucket = sequence.number();
        }
    }
}

/// The place of the lock that an element unlocks: a range exactly as it was locked; exclusive ones go first
/// (smb2.lock.unlock).
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

fn parse(open: OpenId, element: &LockElement, single: bool) -> Result<Wanted, NtStatus> {
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
    Ok(Wanted {
        lock: Lock {
            open,
            range,
            exclusive,
        },
        waits: !fails,
    })
}
