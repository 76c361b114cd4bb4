//! Delays after failed logins, for each client address and for each account.
//!
//! ```text
//! begin ─ may it begin? ─ yes ─ in progress, counts as a failure ─┬─ failed: keeps counting
//!             ▲     │ no                                          ├─ succeeded: the account's
//!             └wait─┘                                             │  failures are forgiven
//!                                                                 └─ abandoned: not counted
//! report ─ may its outcome be reported? (the same, for the account)
//! ```
//!
//! The delay comes before the next login, not before the response to the failed one. So a client
//! that reconnects waits too, and parallel guesses are executed one after the other. Logins in
//! progress count, so starting many before the first one fails gains nothing.
//!
//! The account of a login is known only at its end. So the outcome waits, good or bad: guesses from
//! many addresses are reported one after the other. A success forgives the failures of that account
//! from that address and no others. So a user with an account gains nothing for guesses at another
//! one.
//!
//! A client that has logged in before (same `ClientGuid` and address, and for the report the same
//! account) has its own lane. Guesses from the same address or at the same account do not lock it
//! out. Its failures also count in the general lane, which it had to pass to become known.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_smb_wire::Guid;

/// Failures that cost nothing: people mistype.
const FREE_FAILURES: u32 = 2;
/// Parallel logins of an address without failures. A guess: the channels of a client.
const CONCURRENT_FREE: u32 = 8;
/// First delay; each further failure doubles it.
const WAIT_MIN: Duration = Duration::from_millis(250);
/// Longest delay between two logins.
const WAIT_MAX: Duration = Duration::from_secs(8);
/// A login that would have to wait longer is refused.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Failures are forgotten after this time without another.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of lanes; above it, the oldest is forgotten.
const LANES_MAX: usize = 4096;
/// Maximum number of accounts whose failures from one address can be forgiven, and of addresses of
/// one account. A guess: above it, only time forgives.
const SOURCES_MAX: usize = 64;
/// Maximum number of known clients; above it, the oldest is forgotten.
const KNOWN_MAX: usize = 16_384;
/// Maximum number of known clients of one address, so that it displaces no others. A guess: the
/// clients behind a router.
const KNOWN_OF_ADDRESS_MAX: usize = 256;

/// Counts failed logins and delays further ones.
#[derive(Clone, Default)]
pub(crate) struct LoginThrottle(Arc<Table>);

#[derive(Default)]
struct Table {
    /// No login is delayed.
    is_off: bool,
    lanes: Mutex<HashMap<Lane, LaneState>>,
    /// Clients that have logged in before, with the time of the last login.
    known: Mutex<HashMap<KnownClient, Instant>>,
    /// Notified when a login has ended.
    ended: Condvar,
}

/// Logins that delay each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lane {
    /// All clients of an address that are not known.
    Address(IpAddr),
    /// A known client.
    Client(IpAddr, Guid),
    /// All logins to an account from clients that are not known for it.
    Account(Box<str>),
    /// A client that has logged in to the account before.
    AccountClient(KnownClient),
}

/// A client and account of a successful login.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KnownClient {
    address: IpAddr,
    guid: Guid,
    account: Box<str>,
}

impl From<IpAddr> for Lane {
    fn from(address: IpAddr) -> Self {
        Self::Address(address)
    }
}

/// Logins of one lane.
struct LaneState {
    failed: u32,
    /// Failures that a success forgives: by account in the lane of an address, by address in the
    /// lane of an account.
    by: HashMap<Box<str>, u32>,
    /// Number of logins that have begun and not ended.
    under_way: u32,
    /// Number of logins that have not begun.
    waiting: u32,
    /// Time of the last failure.
    last: Instant,
    /// Earliest time at which the next login may begin.
    next: Instant,
}

/// Outcome of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginOutcome {
    /// Ended before credentials were checked.
    Abandoned,
    Failed,
    Succeeded,
}

/// A login in progress; abandoned if it is dropped.
pub(crate) struct LoginAttempt {
    delay: LoginThrottle,
    client: IpAddr,
    guid: Guid,
    lane: Lane,
    account: Box<str>,
    end: LoginOutcome,
}

/// Returns the address by which a client is counted. A client has at least a /64 of IPv6.
pub(crate) fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

impl LaneState {
    fn new(now: Instant) -> Self {
        Self {
            failed: 0,
            by: HashMap::new(),
            under_way: 0,
            waiting: 0,
            last: now,
            next: now,
        }
    }

    /// Returns the time between the beginnings of two logins.
    fn pause(&self) -> Duration {
        let count = match self.failed {
            0 => self.under_way.saturating_sub(CONCURRENT_FREE - FREE_FAILURES - 1),
            failed => failed.saturating_add(self.under_way),
        };
        match count.checked_sub(FREE_FAILURES + 1) {
            None => Duration::ZERO,
            Some(doublings) => WAIT_MIN.saturating_mul(1 << doublings.min(16)).min(WAIT_MAX),
        }
    }

    /// Begins a login.
    ///
    /// # Errors
    /// The time to wait first.
    fn begin(&mut self, now: Instant) -> Result<(), Duration> {
        if now.duration_since(self.last) >= FORGET_AFTER {
            self.failed = 0;
            self.by.clear();
        }
        if self.next > now {
            return Err(self.next.duration_since(now));
        }
        self.under_way += 1;
        self.next = now + self.pause();
        Ok(())
    }

    /// Ends a login. `source`: its account, or its address.
    fn end(&mut self, end: LoginOutcome, source: &str, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        match end {
            LoginOutcome::Failed => return self.fail(source, now),
            LoginOutcome::Succeeded => {
                let forgiven = self.by.remove(source).unwrap_or(0);
                self.failed = self.failed.saturating_sub(forgiven);
            }
            LoginOutcome::Abandoned => {}
        }
        self.next = self.next.min(now + self.pause());
    }

    fn fail(&mut self, source: &str, now: Instant) {
        self.failed = self.failed.saturating_add(1);
        if let Some(count) = self.by.get_mut(source) {
            *count = count.saturating_add(1);
        } else if self.by.len() < SOURCES_MAX {
            self.by.insert(source.into(), 1);
        }
        self.last = now;
        self.next = self.next.max(now + self.pause());
    }

    /// Returns how long the logins take that wait already; zero in a lane without failures.
    fn queue(&self) -> Duration {
        match self.failed {
            0 => Duration::ZERO,
            _ => self.pause().saturating_mul(self.waiting),
        }
    }

    /// Whether there is nothing to remember.
    fn is_idle(&self) -> bool {
        self.failed == 0 && self.under_way == 0 && self.waiting == 0
    }
}

/// Returns the logins of a lane. Forgets old lanes if there are too many.
fn logins_of(lanes: &mut HashMap<Lane, LaneState>, lane: impl Into<Lane>, now: Instant) -> &mut LaneState {
    let lane = lane.into();
    if lanes.len() >= LANES_MAX && !lanes.contains_key(&lane) {
        lanes.retain(|_, logins| logins.under_way > 0 || now.duration_since(logins.last) < FORGET_AFTER);
        if lanes.len() >= LANES_MAX
            && let Some(oldest) = lanes
                .iter()
                .min_by_key(|(_, logins)| logins.last)
                .map(|(lane, _)| lane.clone())
        {
            lanes.remove(&oldest);
        }
    }
    lanes.entry(lane).or_insert_with(|| LaneState::new(now))
}

/// Returns the name by which an account is counted; case does not matter.
fn account_of(user: Option<&str>) -> Box<str> {
    user.unwrap_or_default().to_lowercase().into()
}

impl LoginThrottle {
    /// Returns a throttle that never waits, for fuzz targets.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn off() -> Self {
        Self(Arc::new(Table {
            is_off: true,
            ..Table::default()
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Lane, LaneState>> {
        self.0.lanes.lock()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<KnownClient, Instant>> {
        self.0.known.lock()
    }

    /// Waits until a login may begin. Returns `None` if that takes too long.
    pub(crate) fn begin(&self, address: IpAddr, guid: Guid) -> Option<LoginAttempt> {
        let client = client_of(address);
        let is_known = guid != Guid::default()
            && self
                .known()
                .keys()
                .any(|known| (known.address, known.guid) == (client, guid));
        let lane = match is_known {
            true => Lane::Client(client, guid),
            false => Lane::Address(client),
        };
        self.wait(&lane)?;
        Some(LoginAttempt {
            delay: self.clone(),
            client,
            guid,
            lane,
            account: Box::default(),
            end: LoginOutcome::Abandoned,
        })
    }

    /// Waits until a login may begin in a lane. Returns `None` if that takes too long.
    fn wait(&self, lane: &Lane) -> Option<()> {
        let came = Instant::now();
        let mut is_queued = false;
        let mut lanes = self.lock();
        loop {
            let now = Instant::now();
            let logins = logins_of(&mut lanes, lane.clone(), now);
            if is_queued {
                logins.waiting = logins.waiting.saturating_sub(1);
            }
            let wait = match logins.begin(now) {
                Err(wait) if !self.0.is_off => wait,
                _ => return Some(()),
            };
            let others = match is_queued {
                true => Duration::ZERO,
                false => logins.queue(),
            };
            if now.duration_since(came) + wait + others > QUEUE_WAIT_MAX {
                return None;
            }
            logins.waiting += 1;
            is_queued = true;
            _ = self.0.ended.wait_for(&mut lanes, wait);
        }
    }

    fn end(&self, lane: impl Into<Lane>, end: LoginOutcome, source: &str, now: Instant) {
        let lane = lane.into();
        let mut lanes = self.lock();
        let logins = logins_of(&mut lanes, lane.clone(), now);
        logins.end(end, source, now);
        if logins.is_idle() {
            lanes.remove(&lane);
        }
        drop(lanes);
        self.0.ended.notify_all();
    }

    /// Counts a failure in the general lane too.
    fn fail_beside(&self, lane: Lane, source: &str, now: Instant) {
        logins_of(&mut self.lock(), lane, now).fail(source, now);
    }

    /// Remembers a client that logged in.
    fn remember(&self, known: KnownClient, now: Instant) {
        let mut lanes = self.known();
        let address = known.address;
        lanes.insert(known, now);
        let of_address = lanes.keys().filter(|other| other.address == address).count();
        let is_too_many = |other: &KnownClient| match of_address > KNOWN_OF_ADDRESS_MAX {
            true => other.address == address,
            false => lanes.len() > KNOWN_MAX,
        };
        let oldest = lanes.iter().filter(|(other, _)| is_too_many(other));
        let oldest = oldest
            .min_by_key(|(_, last)| **last)
            .map(|(other, _)| other.clone());
        if let Some(oldest) = oldest {
            lanes.remove(&oldest);
        }
    }
}

impl LoginAttempt {
    /// Reports a failed login to an account: waits until the client may learn of it. Returns
    /// `false` if that takes too long.
    pub(crate) fn failed(self, user: Option<&str>) -> bool {
        self.tell(user, LoginOutcome::Failed)
    }

    /// Reports a successful login: waits until the client may learn of it. Returns `false` if that
    /// takes too long.
    pub(crate) fn succeeded(self, user: Option<&str>) -> bool {
        self.tell(user, LoginOutcome::Succeeded)
    }

    fn tell(mut self, user: Option<&str>, end: LoginOutcome) -> bool {
        self.account = account_of(user);
        self.end = end;
        if self.account.is_empty() {
            return true;
        }
        let delay = self.delay.clone();
        let known = KnownClient {
            address: self.client,
            guid: self.guid,
            account: self.account.clone(),
        };
        let general = Lane::Account(self.account.clone());
        let lane = match delay.known().contains_key(&known) {
            true => Lane::AccountClient(known.clone()),
            false => general.clone(),
        };
        // Before the wait, because clients of the same address already wait for each other.
        drop(self);
        let may_report = delay.wait(&lane).is_some();
        let now = Instant::now();
        let source = known.address.to_string();
        match (may_report, end) {
            // The client does not learn the outcome, so it counts as a failure.
            (false, _) => delay.fail_beside(general, &source, now),
            (true, LoginOutcome::Failed) => {
                if lane != general {
                    delay.fail_beside(general, &source, now);
                }
                delay.end(lane, end, &source, now);
            }
            (true, _) => {
                delay.end(lane, end, &source, now);
                if known.guid != Guid::default() {
                    delay.remember(known, now);
                }
            }
        }
        may_report
    }
}

impl Drop for LoginAttempt {
    fn drop(&mut self) {
        let now = Instant::now();
        if self.end == LoginOutcome::Failed && matches!(self.lane, Lane::Client(..)) {
            self.delay
                .fail_beside(Lane::Address(self.client), &self.account, now);
        }
        self.delay.end(self.lane.clone(), self.end, &self.account, now);
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
