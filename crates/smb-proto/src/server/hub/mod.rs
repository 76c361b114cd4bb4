//! The server's global tables, which span connections ([MS-SMB2] 3.3.1).
//!
//! ```text
//! file --+-- streams --+-- opens: oplock or lease, durable state, watch
//!        |             +-- byte-range locks, and requests that wait for one
//!        |             +-- pending deletion
//!        +-- pending deletion
//!        +-- requests that wait for breaks
//! ```
//! [`Hub`] performs no I/O and reads no clock. Times are passed in, counted from a start that the
//! owner chooses; results are polled as [`Event`]s after each call. A request that must wait is put
//! aside by its owner, who executes it again *as a whole* after [`Event::Wake`]. [`Hub::forget`]
//! ends the wait (CANCEL). The request's open may have been closed meanwhile: LOCK then fails with
//! `STATUS_RANGE_NOT_LOCKED` (smb2.lock.cancel), other requests with `STATUS_FILE_CLOSED`.
//!
//! Invariants, checked by the model test:
//! * No two opens of a stream deny each other ([MS-FSA] 2.1.5.1.2.2).
//! * While other opens read or write, only one open or the opens of one lease may cache writes.
//! * No lock overlaps another that excludes it.
//! * A waiting request waits for a break in progress or a lock that is held, and is woken once when
//!   it ends. A request that waits for the lock of a local process is woken by a timer instead, to
//!   try again.
//! * When a file's last open is closed, its locks, leases and waiters leave the tables.
//!
//! Where the specifications are silent, the behaviour is that of Windows as the tests of smbtorture
//! show it. The comments name the test.

mod break_ack;
mod break_out;
mod break_trigger;
mod caching;
mod close;
mod create_replays;
mod durability;
mod durable;
mod event;
mod grant;
mod ids;
mod lease;
mod locks;
mod notify;
mod open;
mod paths;
mod persistent;
mod posix;
mod range;
mod replay;
mod restore;
mod sequence;
mod share_mode;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod wait;
mod wait_queue;
mod watches;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

pub use break_trigger::{BreakOutcome, BreakTrigger};
pub use durability::{DurableGrant, DurableOpenRequest};
pub use durable::ReconnectRequest;
pub use event::{BreakOrder, Closed, Deletion, Event};
pub use ids::{ConnectionId, FileKey, OpenId, WaiterId};
pub use lease::{GrantedLease, LeaseRequest, LeaseRequestV2};
pub use locks::{LockOutcome, RangeLockRequest};
pub use notify::WatchOutcome;
pub use open::{AppInstance, Granted, OpenOutcome, OpenRequest};
pub use persistent::{KeptBreak, KeptCaching, KeptDeletion, KeptLock, PersistentChange, PersistentOpen};
pub use posix::{PosixLock, PosixPlan, PosixStep, posix_locks_of};
pub use replay::CountedRequest;
pub use restore::RestoreError;
pub use table::OpenInfo;

use create_replays::CreateReplays;
use ids::Holder;
use lease::Leases;
use persistent::PersistentOpens;
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::create_context::LeaseState;
use table::{Open, Tables};
use wait_queue::WaitQueue;
use watches::Watches;

/// Limits of the tables. All are guesses unless they name a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubLimits {
    /// Number of opens.
    pub opens_max: usize,
    /// Number of opens of one session.
    pub opens_per_session_max: usize,
    /// Number of byte-range locks of one open.
    pub locks_per_open_max: u32,
    /// Number of byte-range locks of one file or stream. Every new lock is compared with all of
    /// them.
    pub locks_per_file_max: usize,
    /// Number of byte-range locks.
    pub locks_max: usize,
    /// Number of waiting requests.
    pub waiters_max: usize,
    /// Length of the changes kept for one watched folder, in bytes on the wire.
    pub watch_bytes_max: u32,
    /// How long a break waits for its acknowledgment: 35 s on Windows ([MS-SMB2] 3.3.2.1, note).
    pub break_timeout_ms: u64,
    /// How long a durable open waits for its client if the client does not say: 60 s ([MS-SMB2]
    /// 3.3.5.9.10).
    pub durable_timeout_ms: u32,
    /// The longest time that a client may ask for: 300 s (smb2.durable-v2-open.create-blob).
    pub durable_timeout_max_ms: u32,
    /// How long a persistent open waits for its client if the client does not say: longer than
    /// for durable opens, since the server itself may have to start in that time.
    pub persistent_timeout_ms: u32,
    /// Number of persistent opens; further ones are durable only. Each has a record on the disk.
    pub persistent_max: usize,
}

impl Default for HubLimits {
    fn default() -> Self {
        Self {
            // 100,000 and a reserve. An idle open takes about 2 KB.
            opens_max: 131_072,
            opens_per_session_max: 65_536,
            locks_per_open_max: 10_000,
            locks_per_file_max: 20_000,
            locks_max: 1_000_000,
            waiters_max: 65_536,
            watch_bytes_max: 65_536,
            break_timeout_ms: 35_000,
            durable_timeout_ms: 60_000,
            durable_timeout_max_ms: 300_000,
            persistent_timeout_ms: 120_000,
            persistent_max: 16_384,
        }
    }
}

/// An action at a given time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Timer {
    /// Ends a break that was not acknowledged.
    Break(Holder),
    /// Closes a durable open whose client did not return.
    Durable(OpenId),
    /// Retries a lock that a local process held.
    Lock(WaiterId),
}

/// The global tables.
#[derive(Debug, Default)]
pub struct Hub {
    limits: HubLimits,
    last_open: u64,
    tables: Tables,
    leases: Leases,
    creates: CreateReplays,
    persistent: PersistentOpens,
    watches: Watches,
    waits: WaitQueue,
    due: HashMap<Timer, Duration>,
    timers: BTreeSet<(Duration, Timer)>,
    events: VecDeque<Event>,
}

impl Hub {
    /// CreateReplays empty tables.
    pub fn new(limits: HubLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Returns the description of an open.
    pub fn info(&self, open: OpenId) -> Option<&OpenInfo> {
        self.tables.opens.get(&open).map(|open| &open.info)
    }

    /// Returns whether the open is durable; it then verifies lock sequences ([MS-SMB2] 3.3.5.14).
    pub fn is_durable(&self, open: OpenId) -> bool {
        let open = self.tables.opens.get(&open);
        open.is_some_and(|open| open.durable.is_some())
    }

    /// Returns the opens of a stream.
    pub fn opens_of<'a>(&'a self, file: &FileKey) -> impl Iterator<Item = &'a OpenInfo> + use<'a> {
        self.tables.opens_of(file).map(|open| &open.info)
    }

    /// Returns the number of opens.
    pub fn open_count(&self) -> usize {
        self.tables.opens.len()
    }

    /// Returns the number of opens of a session.
    pub fn session_open_count(&self, session: SessionId) -> usize {
        self.tables.sessions.get(&session).map_or(0, BTreeSet::len)
    }

    /// Returns the number of byte-range locks of each open that has some.
    pub fn locks_by_open(&self) -> HashMap<OpenId, u64> {
        let mut found = HashMap::new();
        if self.tables.lock_count > 0 {
            let streams = self.tables.bases.values().flat_map(|base| &base.streams);
            for lock in streams.flat_map(|stream| &stream.locks) {
                *found.entry(lock.open).or_default() += 1;
            }
        }
        found
    }

    /// Returns the number of waiting requests.
    pub fn waiter_count(&self) -> usize {
        self.waits.len()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Performs the actions that are due.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some((due, timer)) = self.timers.first().copied()
            && due <= now
        {
            self.clear_timer(timer);
            match timer {
                Timer::Break(holder) => self.revoke(now, holder),
                Timer::Durable(open) => self.expire(now, open),
                Timer::Lock(waiter) => self.wake(waiter),
            }
        }
    }

    fn set_timer(&mut self, due: Duration, timer: Timer) {
        self.clear_timer(timer);
        self.due.insert(timer, due);
        self.timers.insert((due, timer));
    }

    fn clear_timer(&mut self, timer: Timer) {
        if let Some(due) = self.due.remove(&timer) {
            self.timers.remove(&(due, timer));
        }
    }

    /// Returns the holder of an open's caching: its lease, or its own oplock.
    fn holder(open: &Open) -> Holder {
        match open.lease {
            Some(name) => Holder::Lease(name),
            None => Holder::Oplock(open.info.id),
        }
    }

    /// Returns the caching of a holder.
    fn caching(&self, holder: Holder) -> Option<&caching::Caching> {
        match holder {
            Holder::Oplock(open) => self.tables.opens.get(&open).map(|open| &open.oplock),
            Holder::Lease(name) => self.leases.get(name).map(|lease| &lease.caching),
        }
    }

    fn caching_mut(&mut self, holder: Holder) -> Option<&mut caching::Caching> {
        match holder {
            Holder::Oplock(open) => self.tables.opens.get_mut(&open).map(|open| &mut open.oplock),
            Holder::Lease(name) => self.leases.get_mut(name).map(|lease| &mut lease.caching),
        }
    }

    /// Updates the stream's summary after the caching of a holder may have changed.
    fn update_caching(&mut self, holder: Holder) {
        let Some(state) = self.caching(holder).map(|caching| caching.state) else {
            return;
        };
        let file = match holder {
            Holder::Oplock(open) => self.info(open).map(|info| &info.file),
            Holder::Lease(name) => self.leases.get(name).map(|held| &held.file),
        };
        let Some(file) = file.cloned() else {
            return;
        };
        self.caching_changed(holder);
        if let Some(stream) = self.tables.stream_mut(&file) {
            stream.summary.set_caching(holder, state);
        }
    }

    /// Returns the holders of any of `what` for a stream (W, H, or R for any caching), without
    /// `but`, ordered by their oldest opens.
    fn holders(&self, file: &FileKey, what: LeaseState, but: Option<Holder>) -> Vec<Holder> {
        let stream = self.tables.stream(file);
        let mut holders = stream.map_or_else(Vec::new, |stream| stream.summary.holding(what));
        holders.retain(|holder| Some(*holder) != but);
        holders.sort_by_key(|holder| match holder {
            Holder::Oplock(open) => Some(*open),
            Holder::Lease(name) => self
                .leases
                .get(*name)
                .and_then(|held| held.opens.first().copied()),
        });
        holders
    }
}
