//! Failed logins make the next ones wait: those from the same address, and those to the same account.
//!
//! ```text
//! begin ── may it begin now? ── yes ── under way, counted as one that fails ──┬─ failed: stays counted
//!              ▲      │ no                                                    ├─ succeeded: the account's failures are forgiven
//!              └ wait ┘                                                       └─ given up: no longer counted
//! tell ── may its outcome be told? (as begin, of the account)
//! ```
//! The wait lies before the next login, not before the answer to the failed one: a client that hangs up and comes back
//! waits all the same, and so do those that guess on several connections at once, one after the other. As what is under way
//! counts, nothing is gained by beginning many logins before the first has failed.
//!
//! Which account a login is for is known when it has ended, so there the outcome waits, good or bad: guesses begun at many
//! addresses at once are told one after the other. A success forgives the failures of that account from that address and no
//! others: who has an account of its own gains nothing for guessing at another one.
//!
//! A client that has logged in before (`ClientGuid`, address, and for `tell` the account) has a lane of its own: others
//! that guess behind the same address, or at the same account, do not lock it out. Its failures count in the general lane too,
//! and it had to come through that to be known.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_smb_wire::Guid;

/// The first failures cost nothing: people mistype.
const FREE_FAILURES: u32 = 2;
/// Logins that an address without failures may have under way at once. A guess: the channels of a client.
const CONCURRENT_FREE: u32 = 8;
/// The first wait; each further failure doubles it.
const WAIT_MIN: Duration = Duration::from_millis(250);
/// The longest wait between two logins.
const WAIT_MAX: Duration = Duration::from_secs(8);
/// Whoever would have to wait longer for others of the same address is turned away.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Failures are forgotten after so long without another.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Addresses, accounts and known clients remembered; beyond, the oldest are forgotten.
const LANES_MAX: usize = 4096;
/// Accounts whose failures from one address can be forgiven, and addresses of one account. A guess: beyond, only time forgives.
const SOURCES_MAX: usize = 64;
/// Logins remembered of known clients; beyond, the oldest are forgotten.
const KNOWN_MAX: usize = 16_384;
/// The same of one address, so that it takes no lane from others. A guess: the clients behind a router.
const KNOWN_OF_ADDRESS_MAX: usize = 256;

/// Remembers who failed.
#[derive(Clone, Default)]
pub(crate) struct LoginThrottle(Arc<Table>);

#[derive(Default)]
struct Table {
    /// Nobody waits.
    is_off: bool,
    lanes: Mutex<HashMap<Lane, LaneState>>,
    /// Who has logged in before, and when the last time.
    known: Mutex<HashMap<KnownClient, Instant>>,
    /// One has ended.
    ended: Condvar,
}

/// What waits together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lane {
    /// All of an address but the known clients.
    Address(IpAddr),
    /// A known client.
    Client(IpAddr, Guid),
    /// All that log in to an account but those that did so before.
    Account(Box<str>),
    /// A client that did.
    AccountClient(KnownClient),
}

/// A login that succeeded once.
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

/// Of one lane.
struct LaneState {
    failed: u32,
    /// Those of `failed` that a success forgives: by account in an address's lane, by address in an account's.
    by: HashMap<Box<str>, u32>,
    /// Begun, and not ended.
    under_way: u32,
    /// Not begun.
    waiting: u32,
    /// The last failure.
    last: Instant,
    /// The next one may begin then.
    next: Instant,
}

/// How a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginOutcome {
    /// Without a guess that was right or wrong.
    Abandoned,
    Failed,
    Succeeded,
}

/// A login under way; given up if it is dropped.
pub(crate) struct LoginAttempt {
    delay: LoginThrottle,
    client: IpAddr,
    guid: Guid,
    lane: Lane,
    account: Box<str>,
    end: LoginOutcome,
}

/// Whose address it is, as far as that can be told: of IPv6 everybody has 2^64 at least.
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

    /// Between the beginnings of two.
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

    /// Begins one, if it may begin now; else it is to wait for so long.
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

    /// `source`: the account, or the address.
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

    /// How long those take that wait already. Where none has failed, that is until others have succeeded.
    fn queue(&self) -> Duration {
        match self.failed {
            0 => Duration::ZERO,
            _ => self.pause().saturating_mul(self.waiting),
        }
    }

    /// There is nothing to remember.
    fn is_idle(&self) -> bool {
        self.failed == 0 && self.under_way == 0 && self.waiting == 0
    }
}

/// The logins of a lane; others are forgotten if there are too many.
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

/// An account as failures are counted: case does not matter.
fn account_of(user: Option<&str>) -> Box<str> {
    user.unwrap_or_default().to_lowercase().into()
}

impl LoginThrottle {
    /// For fuzz targets: nobody waits.
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

    /// Waits until a login may begin; none if that takes too long.
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

    /// Waits until something may begin in a lane; none if that takes too long.
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

    /// A failure in a lane counts in the general one beside it too.
    fn fail_beside(&self, lane: Lane, source: &str, now: Instant) {
        logins_of(&mut self.lock(), lane, now).fail(source, now);
    }

    /// Remembers a login that succeeded.
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
    /// It failed, as that account; waits until that may be told. False if that takes too long.
    pub(crate) fn failed(self, user: Option<&str>) -> bool {
        self.tell(user, LoginOutcome::Failed)
    }

    /// It succeeded, as somebody; waits until that may be told. False if that takes too long.
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
        // Before the wait: those behind the same address wait for each other already.
        drop(self);
        let is_told = delay.wait(&lane).is_some();
        let now = Instant::now();
        let source = known.address.to_string();
        match (is_told, end) {
            // Nobody learns what came of it: it counts as one that failed.
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
        is_told
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
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;
    const NOBODY: Guid = Guid([0; 16]);

    fn address() -> IpAddr {
        [192, 0, 2, 1].into()
    }

    /// Whether a login may begin, or how long it has to wait.
    fn ask(delay: &LoginThrottle, client: IpAddr, now: Instant) -> Result<(), Duration> {
        logins_of(&mut delay.lock(), client, now).begin(now)
    }

    #[test]
    fn guessing_gets_slower_and_a_login_forgives() {
        let delay = LoginThrottle::default();
        let mut now = Instant::now();
        let waits: Vec<_> = (0..12)
            .map(|_| {
                let wait = ask(&delay, address(), now).err();
                if let Some(wait) = wait {
                    now += wait;
                    ask(&delay, address(), now).unwrap();
                }
                delay.end(address(), LoginOutcome::Failed, "", now);
                wait.unwrap_or_default()
            })
            .collect();
        assert_eq!(
            waits[..6],
            [ZERO, ZERO, ZERO, WAIT_MIN, WAIT_MIN * 2, WAIT_MIN * 4]
        );
        assert_eq!(waits[11], WAIT_MAX);
        assert_eq!(ask(&delay, [192, 0, 2, 2].into(), now), Ok(()));
        now += WAIT_MAX;
        assert_eq!(ask(&delay, address(), now), Ok(()));
        delay.end(address(), LoginOutcome::Abandoned, "", now);
        assert_eq!(
            ask(&delay, address(), now),
            Err(WAIT_MAX),
            "hanging up forgives nothing"
        );
        now += WAIT_MAX;
        assert_eq!(ask(&delay, address(), now), Ok(()));
        delay.end(address(), LoginOutcome::Succeeded, "", now);
        assert_eq!(ask(&delay, address(), now), Ok(()));
    }

    fn failed(delay: &LoginThrottle, lane: Lane) -> u32 {
        logins_of(&mut delay.lock(), lane, Instant::now()).failed
    }

    fn account(name: &str) -> Lane {
        Lane::Account(name.into())
    }

    #[test]
    fn a_success_forgives_its_own_account_only() {
        let delay = LoginThrottle::default();
        let begin = || delay.begin(address(), NOBODY).unwrap();
        for _ in 0..3 {
            assert!(begin().failed(Some("victim")));
            assert!(begin().succeeded(Some("own")));
        }
        assert_eq!(failed(&delay, address().into()), 3);
        assert_eq!(failed(&delay, account("victim")), 3);
        assert_eq!(failed(&delay, account("own")), 0);
        // A success of the account from elsewhere forgives nothing here, one from here does; case does not matter.
        delay.end(
            account("victim"),
            LoginOutcome::Succeeded,
            "192.0.2.7",
            Instant::now(),
        );
        assert_eq!(failed(&delay, account("victim")), 3);
        assert!(begin().succeeded(Some("VICTIM")));
        assert_eq!(failed(&delay, account("victim")), 0);
        assert_eq!(failed(&delay, address().into()), 0);
    }

    #[test]
    fn a_known_client_does_not_wait_for_those_who_guess() {
        let delay = LoginThrottle::default();
        let guid = Guid([7; 16]);
        assert!(delay.begin(address(), guid).unwrap().succeeded(Some("ann")));
        let now = Instant::now();
        for _ in 0..40 {
            delay.end(address(), LoginOutcome::Failed, "ann", now);
            delay.end(account("ann"), LoginOutcome::Failed, "192.0.2.1", now);
        }
        logins_of(&mut delay.lock(), address(), now).waiting = 60;
        assert!(delay.begin(address(), NOBODY).is_none());
        assert!(delay.begin(address(), Guid([8; 16])).is_none());
        let begins = Instant::now();
        assert!(delay.begin(address(), guid).unwrap().succeeded(Some("ann")));
        assert!(begins.elapsed() < WAIT_MIN);
        // Its own failures slow it down, and count among those of the address and the account.
        assert!(delay.begin(address(), guid).unwrap().failed(Some("ann")));
        assert_eq!(failed(&delay, Lane::Client(address(), guid)), 1);
        assert_eq!(failed(&delay, address().into()), 41);
        assert_eq!(failed(&delay, account("ann")), 41);
        // At another account it is as anybody else.
        for _ in 0..40 {
            delay.end(account("bob"), LoginOutcome::Failed, "192.0.2.9", now);
        }
        logins_of(&mut delay.lock(), account("bob"), now).waiting = 60;
        assert!(!delay.begin(address(), guid).unwrap().failed(Some("bob")));
    }

    #[test]
    fn only_so_many_clients_are_known() {
        let delay = LoginThrottle::default();
        let now = Instant::now();
        for number in 0..2 * KNOWN_OF_ADDRESS_MAX as u32 {
            let mut guid = [1; 16];
            guid[..4].copy_from_slice(&number.to_le_bytes());
            let known = |address| KnownClient {
                address,
                guid: Guid(guid),
                account: "ann".into(),
            };
            delay.remember(known(address()), now + Duration::from_secs(u64::from(number)));
            if number == 0 {
                delay.remember(known([192, 0, 2, 2].into()), now);
            }
        }
        let known = delay.known();
        assert_eq!(known.len(), KNOWN_OF_ADDRESS_MAX + 1);
        assert!(
            known.keys().any(|one| one.address != address()),
            "others keep theirs"
        );
    }

    #[test]
    fn guesses_begun_at_once_count_before_they_fail() {
        let delay = LoginThrottle::default();
        let now = Instant::now();
        let begun = (0..100).take_while(|_| ask(&delay, address(), now).is_ok());
        assert_eq!(begun.count(), CONCURRENT_FREE as usize);
        // Who succeeds makes room for another.
        delay.end(address(), LoginOutcome::Succeeded, "", now);
        assert_eq!(ask(&delay, address(), now), Ok(()));
        assert_eq!(ask(&delay, address(), now), Err(WAIT_MIN));
        for _ in 0..CONCURRENT_FREE {
            delay.end(address(), LoginOutcome::Failed, "", now);
        }
        assert_eq!(ask(&delay, address(), now), Err(WAIT_MAX));
    }

    #[test]
    fn who_would_wait_too_long_is_turned_away() {
        let delay = LoginThrottle::default();
        let now = Instant::now();
        for _ in 0..20 {
            delay.end(address(), LoginOutcome::Failed, "", now);
        }
        logins_of(&mut delay.lock(), address(), now).waiting = 3;
        assert!(delay.begin(address(), NOBODY).is_none());
        assert!(delay.begin([192, 0, 2, 2].into(), NOBODY).is_some());
    }

    #[test]
    fn many_who_succeed_all_come_in() {
        let delay = LoginThrottle::default();
        std::thread::scope(|scope| {
            for _ in 0..10 * CONCURRENT_FREE {
                scope.spawn(|| delay.begin(address(), NOBODY).unwrap().succeeded(None));
            }
        });
        assert!(delay.lock().is_empty(), "nothing is remembered");
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let of = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:7::1"), of("2001:db8:0:7:8000::9"));
        assert_ne!(of("2001:db8:0:7::1"), of("2001:db8:0:6::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address());
        assert_ne!(of("::ffff:192.0.2.2"), address());
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let delay = LoginThrottle::default();
        for number in 0..LANES_MAX as u32 + 10 {
            let client: IpAddr = std::net::Ipv4Addr::from(number).into();
            delay.end(client, LoginOutcome::Failed, "", Instant::now());
        }
        assert!(delay.lock().len() <= LANES_MAX);
    }
}
