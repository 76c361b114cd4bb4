//! Byte-range locks and local programs: what clients lock, programs with fcntl(2) locks (and NFS, and other file
//! servers) see, and the other way round.
//!
//! ```text
//! LOCK ──▶ hub: would it be granted? ──▶ POSIX locks taken ──▶ hub: granted
//!                                            └─ somebody has one ──▶ refused, or waits for a timer
//! unlock ▶ hub: given up ──▶ POSIX locks given up, where no other lock of the open covers the bytes
//! CLOSE ─▶ POSIX locks given up ──▶ hub: closed
//! ```
//! * What is granted is locked for local programs before any client is told. Whoever is refused because of a local lock has
//!   never had anything: no other client sees a lock that was not granted.
//! * Requests for one file come one after the other, so the hub answers in the third step as in the first; only a close
//!   comes in between, and then what was taken is given up again.
//! * POSIX locks are advisory for programs, and bind clients as each other's do: READ and WRITE ask for them, unless the
//!   client may cache what it reads or writes (smbd does so, `strict locking = auto`).
//! * Where a volume has no such locks, the hub's are all there are.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ropeway_smb_proto::server::hub::{FileKey, LockOutcome, LockWish, PosixLock, PosixStep};
use ropeway_smb_wire::NtStatus;
use ropeway_vfs::ErrorKind;
use ropeway_vfs::store::RangeLock;

use super::open::Open;
use super::shared::Shared;
use super::status;

/// One request at a time for each file, and for those that share its place (a guess: threads of a server and some).
const PLACES: usize = 64;
/// Volumes without such locks that are told of.
const TOLD_MAX: usize = 64;
/// The highest offset of a file.
const LAST: u64 = i64::MAX as u64;

/// Locks that local programs see.
#[derive(Debug)]
pub(crate) struct PosixLocks {
    enabled: bool,
    places: [Mutex<()>; PLACES],
    /// Volumes without, each told of once.
    told: Mutex<BTreeSet<u64>>,
}

/// How taking locks ended.
enum Taking {
    Taken,
    /// Somebody else has one.
    Held,
    Failed(NtStatus),
}

impl PosixLocks {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            places: std::array::from_fn(|_| Mutex::new(())),
            told: Mutex::default(),
        }
    }

    /// Taken before the hub, and kept while locks of the file change.
    fn changing(&self, file: &FileKey) -> MutexGuard<'_, ()> {
        let place = &self.places[file.index as usize % PLACES];
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of a volume without such locks, once.
    fn tell_of(&self, open: &Open) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX && told.insert(open.file.share_volume) {
            drop(told);
            tracing::warn!(
                share = open.share.name,
                path = %open.path(),
                "the file system has no locks that local programs would see: only clients see those of clients"
            );
        }
    }
}

/// Locks or unlocks, for clients and local programs.
pub(super) fn lock(shared: &Shared, open: &Open, wish: &LockWish<'_>) -> LockOutcome {
    // Streams are no files of their own.
    if !shared.posix.enabled || open.stream.is_some() {
        return shared.hub().lock(wish);
    }
    let _one = shared.posix.changing(&open.file);
    // Not in the match's head: the hub would stay locked meanwhile.
    let plan = shared.hub().posix_plan(wish);
    let plan = match plan {
        Ok(plan) => plan,
        Err(status) => return LockOutcome::Refused(status),
    };
    if plan.unlocks {
        let outcome = shared.hub().lock(wish);
        change_back(shared, open, &plan.steps, |step| step.after);
        return outcome;
    }
    let taking = take(shared, open, &plan.steps);
    let outcome = match taking {
        Taking::Taken => shared.hub().lock(wish),
        Taking::Held => shared.hub().lock_held_outside(wish),
        Taking::Failed(status) => return LockOutcome::Refused(status),
    };
    match (taking, outcome) {
        (Taking::Taken, LockOutcome::Granted) => {}
        // It was closed meanwhile.
        (Taking::Taken, _) => change_back(shared, open, &plan.steps, |step| step.before),
        // The timer may be due before the one that the server waits for.
        (_, LockOutcome::Wait) => shared.nudge(),
        _ => {}
    }
    outcome
}

/// Takes what a plan says, all or nothing.
fn take(shared: &Shared, open: &Open, steps: &[PosixStep]) -> Taking {
    if steps.is_empty() {
        return Taking::Taken;
    }
    let is_held = |step: &PosixStep| {
        let write = step.after == PosixLock::Write;
        open.node
            .is_range_locked(step.first, step.last, write)
            .unwrap_or(false)
    };
    // Asked first, so that others seldom meet a lock that is given up again.
    if steps.len() > 1 && steps.iter().any(is_held) {
        return Taking::Held;
    }
    open.state.posix_locks.store(true, Ordering::Relaxed);
    for (place, step) in steps.iter().enumerate() {
        let taking = match open.node.lock_range(step.first, step.last, kind(step.after)) {
            Ok(true) => continue,
            Ok(false) => Taking::Held,
            Err(error) if error.kind == ErrorKind::Unsupported => {
                shared.posix.tell_of(open);
                return Taking::Taken;
            }
            Err(error) => {
                tracing::debug!(path = %open.path(), %error, "not locked");
                Taking::Failed(status::of(&error))
            }
        };
        change_back(shared, open, &steps[..place], |step| step.before);
        return taking;
    }
    Taking::Taken
}

/// Makes locks less again; all of them go with the open's last.
fn change_back(shared: &Shared, open: &Open, steps: &[PosixStep], to: impl Fn(&PosixStep) -> PosixLock) {
    if shared.hub().lock_count(open.hub_id()) == 0 {
        unlock_all(open);
        return;
    }
    for step in steps {
        match open.node.lock_range(step.first, step.last, kind(to(step))) {
            Err(error) if error.kind != ErrorKind::Unsupported => {
                tracing::warn!(path = %open.path(), %error, "local programs see a lock that was given up");
            }
            _ => {}
        }
    }
}

fn unlock_all(open: &Open) {
    if open.state.posix_locks.swap(false, Ordering::Relaxed) {
        // What fails here goes with the descriptor.
        _ = open.node.lock_range(0, LAST, RangeLock::None);
    }
}

/// An open is about to close, or has: requests of it that are still under way do not keep its locks. Called after the hub's
/// close, and before it where those who wait for a lock are to find it free.
pub(super) fn release(shared: &Shared, open: &Open) {
    if open.state.posix_locks.load(Ordering::Relaxed) {
        let _one = shared.posix.changing(&open.file);
        unlock_all(open);
    }
}

/// Whether local programs let an open read or write a range; none is locked for reading nothing.
///
/// # Errors
/// `STATUS_FILE_LOCK_CONFLICT`.
pub(super) fn check_io(
    shared: &Shared,
    open: &Open,
    offset: u64,
    length: u64,
    write: bool,
) -> Result<(), NtStatus> {
    if !shared.posix.enabled || length == 0 || offset > LAST {
        return Ok(());
    }
    let last = offset.saturating_add(length - 1).min(LAST);
    match open.node.is_range_locked(offset, last, write) {
        Ok(true) => Err(NtStatus::FILE_LOCK_CONFLICT),
        // What is wrong with the file, reading and writing tell.
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
    use std::time::Duration;

    use ropeway_smb_proto::server::ConnectionId;
    use ropeway_smb_proto::server::hub::{Hub, OpenId, OpenOutcome, OpenRequest, WaiterId};
    use ropeway_smb_wire::create::{AccessMask, OplockLevel, ShareAccess};
    use ropeway_smb_wire::lock::{LockElement, LockFlags};
    use ropeway_smb_wire::{Guid, SessionId, TreeId};
    use rustix::event::{EventfdFlags, eventfd};

    use super::super::names::Names;
    use super::super::run::ServerOptions;
    use super::super::shared::Parts;
    use super::super::testing;
    use super::*;

    const WAITER: WaiterId = WaiterId {
        connection: ConnectionId(1),
        request: 1,
    };

    fn shared() -> Shared {
        let options = ServerOptions::new("server", Arc::new(|_, _| None));
        Shared::new(Parts {
            names: Names::new(
                options.config.names.netbios_computer.clone(),
                options.machine,
                options.directory,
            ),
            config: options.config,
            name: options.name,
            shares: Vec::new(),
            addresses: Vec::new(),
            io_threads: 1,
            audit: None,
            give_back: None,
            login_time: Duration::from_secs(1),
            unsent_max: 1 << 20,
            send_time: Duration::from_secs(1),
            hub: Hub::new(options.limits),
            posix_locks: true,
            #[cfg(feature = "fuzzing")]
            liar: None,
            timer: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap(),
        })
    }

    fn open(shared: &Shared, share: &Arc<super::super::share::Share>) -> Open {
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
        let OpenOutcome::Granted(granted) = shared.hub().open(0, &request) else {
            panic!("it does not open");
        };
        open.id = granted.open.get();
        open
    }

    /// The store in memory has no such locks.
    #[test]
    fn without_such_locks_clients_see_each_others() {
        let (shared, share) = (shared(), testing::share());
        let (one, two) = (open(&shared, &share), open(&shared, &share));
        let ask = |open: &Open, flags: LockFlags| {
            let elements = [LockElement {
                offset: 0,
                length: 10,
                flags,
            }];
            let wish = LockWish {
                now_ms: 0,
                open: OpenId::new(open.id),
                elements: &elements,
                sequence: None,
                waiter: WAITER,
            };
            lock(&shared, open, &wish)
        };
        let exclusive = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
        let refused = LockOutcome::Refused(NtStatus::LOCK_NOT_GRANTED);
        for _ in 0..2 {
            assert_eq!(ask(&one, exclusive), LockOutcome::Granted);
            assert_eq!(ask(&two, exclusive), refused);
            assert_eq!(check_io(&shared, &two, 0, 10, true), Ok(()));
            assert_eq!(ask(&one, LockFlags::UNLOCK), LockOutcome::Granted);
        }
        assert_eq!(shared.posix.told.lock().unwrap().len(), 1, "told once");
        release(&shared, &one);
    }
}
