//! The global tables of the server: what spans connections ([MS-SMB2] 3.3.1).
//!
//! ```text
//! files ──┬─ streams ──┬─ opens ── oplock, or a share in a lease ── durable? ── watch?
//!         │            ├─ byte-range locks, requests that wait for one
//!         │            └─ to be deleted?
//!         ├─ to be deleted?
//!         └─ requests that wait for breaks
//! ```
//! [`Hub`] neither reads a clock nor sends: times are milliseconds of one clock that its owner keeps, and what there is to say is
//! polled as [`Event`]s after each call. A request that has to wait is told so and put aside by its owner, who executes
//! it again *as a whole* when [`Event::Wake`] comes; [`Hub::forget`] ends the wait (CANCEL). Its open may have been closed
//! meanwhile: a LOCK request then fails with `STATUS_RANGE_NOT_LOCKED` (smb2.lock.cancel), others with
//! `STATUS_FILE_CLOSED`.
//!
//! Invariants, kept by the model test:
//! * no two opens of a stream deny each other ([MS-FSA] 2.1.5.1.2.2);
//! * only one open, or the opens of one lease, may cache writes while other opens read or write;
//! * no lock overlaps another that excludes it;
//! * whoever waits, waits for a break under way or a lock held, and is woken once when it is gone (for a local program's
//!   lock: woken by a timer, to look);
//! * with its last open a file, its locks, leases and waiters are gone from the tables.
//!
//! Behaviour that the specifications leave open is Windows', as smbtorture's tests show it; the test's name stands beside it.

mod break_out;
mod caching;
mod close;
mod crowd;
mod durable;
mod event;
mod grant;
mod ids;
mod lease;
mod locks;
mod notify;
mod open;
mod oplock;
mod paths;
mod posix;
mod range;
mod replay;
mod sequence;
mod share_mode;
mod table;
#[cfg(test)]
mod tests;
mod touch;
mod wait;

use std::collections::{BTreeSet, HashMap, VecDeque};

pub use durable::{DurableGrant, DurableWish, ReconnectRequest};
pub use event::{BreakOrder, Closed, Deletion, Event};
pub use ids::{ConnectionId, FileKey, OpenId, WaiterId};
pub use lease::{GrantedLease, LeaseRequest, LeaseRequestV2};
pub use locks::{LockOutcome, LockWish};
pub use notify::WatchOutcome;
pub use open::{Granted, OpenOutcome, OpenRequest};
pub use posix::{PosixLock, PosixPlan, PosixStep};
pub use sequence::Ticket;
pub use table::OpenInfo;
pub use touch::{Touch, TouchOutcome};

use ids::Holder;
use lease::Leases;
use notify::Watches;
use replay::Creates;
use table::{Open, Tables};
use wait::Waits;

use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::create_context::LeaseState;

/// Bounds of the tables. All are guesses but those that name a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubLimits {
    /// Opens in all.
    pub opens_max: usize,
    /// Opens of one session.
    pub opens_per_session_max: usize,
    /// Byte-range locks of one open.
    pub locks_per_open_max: u32,
    /// Byte-range locks of one file or stream: each new one is compared with all of them.
    pub locks_per_file_max: usize,
    /// Byte-range locks in all.
    pub locks_max: usize,
    /// Requests that wait, in all.
    pub waiters_max: usize,
    /// Bytes of changes kept for one watched folder, as they would be on the wire.
    pub watch_bytes_max: u32,
    /// How long a break may go unanswered: 35 s on Windows ([MS-SMB2] 3.3.2.1, note).
    pub break_timeout_ms: u64,
    /// How long a durable open waits for its client if that does not say: 60 s ([MS-SMB2] 3.3.5.9.10).
    pub durable_timeout_ms: u32,
    /// The longest it waits: 300 s (smb2.durable-v2-open.create-blob).
    pub durable_timeout_max_ms: u32,
}

impl Default for HubLimits {
    fn default() -> Self {
        Self {
            // 100,000 and head-room; an idle open takes some 2 KB.
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
        }
    }
}

/// What is to happen at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Timer {
    /// A break is not waited for any longer.
    Break(Holder),
    /// A durable open is given up.
    Durable(OpenId),
    /// A lock is tried again that a local program was in the way of.
    Lock(WaiterId),
}

/// The global tables.
#[derive(Debug, Default)]
pub struct Hub {
    limits: HubLimits,
    last_open: u64,
    tables: Tables,
    leases: Leases,
    creates: Creates,
    watches: Watches,
    waits: Waits,
    due: HashMap<Timer, u64>,
    timers: BTreeSet<(u64, Timer)>,
    events: VecDeque<Event>,
}

impl Hub {
    /// Empty tables.
    pub fn new(limits: HubLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// What is known of an open.
    pub fn info(&self, open: OpenId) -> Option<&OpenInfo> {
        self.tables.opens.get(&open).map(|open| &open.info)
    }

    /// Whether the open is to survive a lost connection, for the lock sequence ([MS-SMB2] 3.3.5.14).
    pub fn is_durable(&self, open: OpenId) -> bool {
        let open = self.tables.opens.get(&open);
        open.is_some_and(|open| open.durable.is_some())
    }

    /// Opens of a stream.
    pub fn opens_of<'a>(&'a self, file: &FileKey) -> impl Iterator<Item = &'a OpenInfo> + use<'a> {
        self.tables.opens_of(file).map(|open| &open.info)
    }

    /// Number of opens.
    pub fn open_count(&self) -> usize {
        self.tables.opens.len()
    }

    /// Number of a session's opens.
    pub fn session_open_count(&self, session: SessionId) -> usize {
        self.tables.sessions.get(&session).map_or(0, BTreeSet::len)
    }

    /// Number of requests that wait.
    pub fn waiter_count(&self) -> usize {
        self.waits.len()
    }

    /// What there is to do next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is to be called, in milliseconds of the clock.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now_ms: u64) {
        while let Some((due, timer)) = self.timers.first().copied()
            && due <= now_ms
        {
            self.clear_timer(timer);
            match timer {
                Timer::Break(holder) => self.revoke(now_ms, holder),
                Timer::Durable(open) => self.expire(now_ms, open),
                Timer::Lock(waiter) => self.wake(waiter),
            }
        }
    }

    fn set_timer(&mut self, due_ms: u64, timer: Timer) {
        self.clear_timer(timer);
        self.due.insert(timer, due_ms);
        self.timers.insert((due_ms, timer));
    }

    fn clear_timer(&mut self, timer: Timer) {
        if let Some(due) = self.due.remove(&timer) {
            self.timers.remove(&(due, timer));
        }
    }

    /// Who holds the right to cache of this open: its lease, or itself.
    fn holder(open: &Open) -> Holder {
        match open.lease {
            Some(name) => Holder::Lease(name),
            None => Holder::Oplock(open.info.id),
        }
    }

    /// The right to cache of a holder.
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

    /// The holder's right to cache has changed, or may have.
    fn recount(&mut self, holder: Holder) {
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
        if let Some(stream) = self.tables.stream_mut(&file) {
            stream.crowd.set_caching(holder, state);
        }
    }

    /// Who holds any of `what` (W, H, or R for any caching at all) of a stream: each holder once, except `but`, in the order
    /// of their first opens.
    fn holders(&self, file: &FileKey, what: LeaseState, but: Option<Holder>) -> Vec<Holder> {
        let stream = self.tables.stream(file);
        let mut holders = stream.map_or_else(Vec::new, |stream| stream.crowd.holding(what));
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
