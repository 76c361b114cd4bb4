//! Byte-range locks shared with local programs: clients and programs with fcntl(2) locks (including
//! NFS and other file servers) see each other's locks.
//!
//! ```text
//! LOCK ──▶ hub: would it be granted? ──▶ POSIX locks taken ──▶ hub: granted
//!                                           └─ held by a program ──▶ refused, or waits for a timer
//! unlock ▶ hub: released ──▶ POSIX locks released where no other lock of the open covers the bytes
//! CLOSE ─▶ POSIX locks released ──▶ hub: closed
//! ```
//!
//! * A lock is taken for local programs before any client learns of it. If a local lock prevents
//!   it, no other client ever sees it.
//! * Requests for one file are serialized, so the hub answers the same in the third step as in the
//!   first. Only a close can come in between; then the POSIX locks are released again.
//! * POSIX locks are advisory for programs, and mandatory for clients like their own locks. READ
//!   and WRITE check them unless the client may cache the data (smbd does the same with `strict
//!   locking = auto`).
//! * On a volume without POSIX locks, only the hub's locks apply.
//! * On a share of a far server, these are the far server's locks. It checks READ and WRITE itself.

use std::sync::atomic::Ordering;

use ropeway_smb_proto::server::hub::{LockOutcome, PosixLock, PosixStep, RangeLockRequest};
use ropeway_smb_wire::NtStatus;
use ropeway_vfs::ErrorKind;
use ropeway_vfs::store::RangeLock;

use crate::files::status;
use crate::state::SharedState;
use crate::state::open::Open;

/// Highest offset of a file.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Outcome of taking POSIX locks.
enum TakeOutcome {
    Taken,
    /// Another program holds one.
    Held,
    Failed(NtStatus),
}

/// Locks or unlocks ranges for clients and local programs.
pub(crate) fn lock(shared: &SharedState, open: &Open, request: &RangeLockRequest<'_>) -> LockOutcome {
    // POSIX locks belong to files, not to streams.
    if !shared.posix_locks.enabled || open.stream.is_some() {
        return shared.hub().lock(request);
    }
    let _guard = shared.posix_locks.serialize(&open.file);
    // A separate statement, because the hub would stay locked during a `match`.
    let plan = shared.hub().posix_plan(request);
    let plan = match plan {
        Ok(plan) => plan,
        Err(status) => return LockOutcome::Refused(status),
    };
    if plan.unlocks {
        let outcome = shared.hub().lock(request);
        restore(shared, open, &plan.steps, |step| step.after);
        return outcome;
    }
    let taking = take(shared, open, &plan.steps);
    let outcome = match taking {
        TakeOutcome::Taken => shared.hub().lock(request),
        TakeOutcome::Held => shared.hub().lock_held_locally(request),
        TakeOutcome::Failed(status) => return LockOutcome::Refused(status),
    };
    match (taking, outcome) {
        (TakeOutcome::Taken, LockOutcome::Granted) => {}
        // The file was closed meanwhile.
        (TakeOutcome::Taken, _) => restore(shared, open, &plan.steps, |step| step.before),
        // The new timer may be due before the one that the server waits for.
        (_, LockOutcome::Wait) => shared.wake_timer(),
        _ => {}
    }
    outcome
}

/// Takes all POSIX locks of a plan, or none.
fn take(shared: &SharedState, open: &Open, steps: &[PosixStep]) -> TakeOutcome {
    if steps.is_empty() {
        return TakeOutcome::Taken;
    }
    let is_held = |step: &PosixStep| {
        let write = step.after == PosixLock::Write;
        open.node
            .is_range_locked(step.first, step.last, write)
            .unwrap_or(false)
    };
    // Checked first, so that others seldom see a lock that is released again.
    if steps.len() > 1 && steps.iter().any(is_held) {
        return TakeOutcome::Held;
    }
    open.state.posix_locks.store(true, Ordering::Relaxed);
    for (place, step) in steps.iter().enumerate() {
        let taking = match open.node.lock_range(step.first, step.last, kind(step.after)) {
            Ok(true) => continue,
            Ok(false) => TakeOutcome::Held,
            Err(error) if error.kind == ErrorKind::Unsupported => {
                shared.posix_locks.warn_once(open);
                return TakeOutcome::Taken;
            }
            Err(error) => {
                tracing::debug!(path = %open.path(), %error, "cannot take a POSIX lock");
                TakeOutcome::Failed(status::of(&error))
            }
        };
        restore(shared, open, &steps[..place], |step| step.before);
        return taking;
    }
    TakeOutcome::Taken
}

/// Takes the POSIX locks of an open that comes back after a restart. Returns whether no local program
/// holds one of them.
pub(super) fn take_again(shared: &SharedState, open: &Open, steps: &[PosixStep]) -> bool {
    matches!(take(shared, open, steps), TakeOutcome::Taken)
}

/// Restores the POSIX locks from before a step. Releases all of them with the last lock of the
/// open.
fn restore(shared: &SharedState, open: &Open, steps: &[PosixStep], to: impl Fn(&PosixStep) -> PosixLock) {
    if shared.hub().lock_count(open.hub_id()) == 0 {
        unlock_all(open);
        return;
    }
    for step in steps {
        match open.node.lock_range(step.first, step.last, kind(to(step))) {
            Err(error) if error.kind != ErrorKind::Unsupported => {
                tracing::warn!(path = %open.path(), %error, "cannot release a POSIX lock: local programs still see it");
            }
            _ => {}
        }
    }
}

fn unlock_all(open: &Open) {
    if open.state.posix_locks.swap(false, Ordering::Relaxed) {
        // On failure they are released with the descriptor.
        _ = open.node.lock_range(0, OFFSET_MAX, RangeLock::None);
    }
}

/// Releases the POSIX locks of an open that closes, although requests of it may still run. Called
/// after the hub's close, and also before it if waiting requests should find the ranges free.
pub(crate) fn release(shared: &SharedState, open: &Open) {
    if open.state.posix_locks.load(Ordering::Relaxed) {
        let _guard = shared.posix_locks.serialize(&open.file);
        unlock_all(open);
    }
}

/// Checks that no lock of another client or a local program prevents access to a range.
pub(super) fn check_locks(
    shared: &SharedState,
    open: &Open,
    offset: u64,
    length: u64,
    write: bool,
) -> Result<(), NtStatus> {
    let id = open.hub_id();
    let looks_itself = {
        let hub = shared.hub();
        hub.check_io(id, offset, length, write)?;
        hub.caches(id, write)
    };
    match looks_itself {
        true => Ok(()),
        false => check_io(shared, open, offset, length, write),
    }
}

/// Checks that no lock of a local program prevents access to a range. An empty range is never
/// locked.
///
/// # Errors
/// `STATUS_FILE_LOCK_CONFLICT`.
fn check_io(
    shared: &SharedState,
    open: &Open,
    offset: u64,
    length: u64,
    write: bool,
) -> Result<(), NtStatus> {
    // A far server checks each request itself; asking it would take two more round trips.
    if !shared.posix_locks.enabled || open.share.far || length == 0 || offset > OFFSET_MAX {
        return Ok(());
    }
    let last = offset.saturating_add(length - 1).min(OFFSET_MAX);
    match open.node.is_range_locked(offset, last, write) {
        Ok(true) => Err(NtStatus::FILE_LOCK_CONFLICT),
        // The read or write itself reports other errors.
        Ok(false) | Err(_) => Ok(()),
    }
}

fn kind(lock: PosixLock) -> RangeLock {
    match lock {
        PosixLock::None => RangeLock::None,
        PosixLock::Read => RangeLock::Shared,
        PosixLock::Write => RangeLock::Exclusive,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropeway_smb_proto::server::ConnectionId;
    use ropeway_smb_proto::server::hub::{OpenId, OpenOutcome, OpenRequest, WaiterId};
    use ropeway_smb_wire::create::{AccessMask, OplockLevel, ShareAccess};
    use ropeway_smb_wire::lock::{LockElement, LockFlags};
    use ropeway_smb_wire::{Guid, SessionId, TreeId};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::options::ServerOptions;
    use crate::share::Share;
    use crate::testing;

    const WAITER: WaiterId = WaiterId {
        connection: ConnectionId(1),
        request: 1,
    };

    fn shared() -> SharedState {
        let options = ServerOptions::new("server", Arc::new(|_, _| None));
        let timer = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        SharedState::new(options, Vec::new(), timer)
    }

    fn open(shared: &SharedState, share: &Arc<Share>) -> Open {
        let mut open = testing::open(share, "f", AccessMask::FILE_ALL);
        let request = OpenRequest {
            file: open.file.clone(),
            path: "f".into(),
            share_id: 0,
            directory: false,
            existed: true,
            size: 0,
            overwrites: false,
            access: open.access,
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            delete_on_close: false,
            oplock: OplockLevel::None,
            lease: None,
            durable: None,
            app_instance: None,
            replay: false,
            channel_sequence: 0,
            connection: WAITER.connection,
            session: SessionId(1),
            tree: TreeId(1),
            client: Guid([1; 16]),
            user: Arc::from("alice"),
            waiter: WAITER,
        };
        let OpenOutcome::Granted(granted) = shared.hub().open(std::time::Duration::ZERO, &request) else {
            panic!("the hub refused an open");
        };
        open.id = granted.open.get();
        open
    }

    /// The store in memory has no POSIX locks.
    #[test]
    fn without_posix_locks_clients_see_each_others_locks() {
        let (shared, share) = (shared(), testing::share());
        let (one, two) = (open(&shared, &share), open(&shared, &share));
        let ask = |open: &Open, flags: LockFlags| {
            let elements = [LockElement {
                offset: 0,
                length: 10,
                flags,
            }];
            let request = RangeLockRequest {
                now: std::time::Duration::ZERO,
                open: OpenId::new(open.id),
                elements: &elements,
                sequence: None,
                waiter: WAITER,
            };
            lock(&shared, open, &request)
        };
        let exclusive = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
        let refused = LockOutcome::Refused(NtStatus::LOCK_NOT_GRANTED);
        for _ in 0..2 {
            assert_eq!(ask(&one, exclusive), LockOutcome::Granted);
            assert_eq!(ask(&two, exclusive), refused);
            assert_eq!(check_io(&shared, &two, 0, 10, true), Ok(()));
            assert_eq!(ask(&one, LockFlags::UNLOCK), LockOutcome::Granted);
        }
        assert_eq!(shared.posix_locks.warned_volumes(), 1, "warned once");
        release(&shared, &one);
    }
}
