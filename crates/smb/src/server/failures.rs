//! Failed logins make the next one from the same address wait.
//!
//! ```text
//! begin ── may it begin now? ── yes ── under way, counted as one that fails ──┬─ failed: stays counted
//!              ▲      │ no                                                    ├─ succeeded: all is forgiven
//!              └ wait ┘                                                       └─ given up: no longer counted
//! ```
//! The wait lies before the next login, not before the answer to the failed one: a client that hangs up and comes back
//! waits all the same, and so do those that guess on several connections at once, one after the other. As what is under way
//! counts, nothing is gained by beginning many logins before the first has failed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first failures cost nothing: people mistype.
const FREE: u32 = 2;
/// Logins that an address without failures may have under way at once. A guess: the channels of a client.
const AT_ONCE: u32 = 8;
/// The first wait; each further failure doubles it.
const FIRST: Duration = Duration::from_millis(250);
/// The longest wait between two logins.
const LONGEST: Duration = Duration::from_secs(8);
/// Whoever would have to wait longer for others of the same address is turned away.
const QUEUE_MAX: Duration = Duration::from_secs(30);
/// Failures are forgotten after so long without another.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Addresses remembered; beyond, the oldest are forgotten.
const ADDRESSES_MAX: usize = 4096;

/// Remembers who failed.
#[derive(Clone, Default)]
pub(super) struct Delay(Arc<Table>);

#[derive(Default)]
struct Table {
    /// Nobody waits.
    is_off: bool,
    all: Mutex<HashMap<IpAddr, Logins>>,
    /// One has ended.
    ended: Condvar,
}

/// Of one address.
struct Logins {
    failed: u32,
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
enum End {
    /// Without a guess that was right or wrong.
    GivenUp,
    Failed,
    Succeeded,
}

/// A login under way; given up if it is dropped.
pub(super) struct Attempt {
    delay: Delay,
    client: IpAddr,
    end: End,
}

/// Whose address it is, as far as that can be told: of IPv6 everybody has 2^64 at least.
pub(super) fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

impl Logins {
    fn new(now: Instant) -> Self {
        Self {
            failed: 0,
            under_way: 0,
            waiting: 0,
            last: now,
            next: now,
        }
    }

    /// Between the beginnings of two.
    fn pause(&self) -> Duration {
        let count = match self.failed {
            0 => self.under_way.saturating_sub(AT_ONCE - FREE - 1),
            failed => failed.saturating_add(self.under_way),
        };
        match count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST),
        }
    }

    /// Begins one, if it may begin now; else it is to wait for so long.
    fn begin(&mut self, now: Instant) -> Result<(), Duration> {
        if now.duration_since(self.last) >= FORGOTTEN {
            self.failed = 0;
        }
        if self.next > now {
            return Err(self.next.duration_since(now));
        }
        self.under_way += 1;
        self.next = now + self.pause();
        Ok(())
    }

    fn end(&mut self, end: End, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        match end {
            End::Failed => {
                self.failed = self.failed.saturating_add(1);
                self.last = now;
                self.next = self.next.max(now + self.pause());
                return;
            }
            End::Succeeded => self.failed = 0,
            End::GivenUp => {}
        }
        self.next = self.next.min(now + self.pause());
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

/// The logins of an address; others are forgotten if there are too many.
fn logins_of(all: &mut HashMap<IpAddr, Logins>, client: IpAddr, now: Instant) -> &mut Logins {
    if all.len() >= ADDRESSES_MAX && !all.contains_key(&client) {
        all.retain(|_, logins| logins.under_way > 0 || now.duration_since(logins.last) < FORGOTTEN);
        if all.len() >= ADDRESSES_MAX
            && let Some(oldest) = all
                .iter()
                .min_by_key(|(_, logins)| logins.last)
                .map(|(client, _)| *client)
        {
            all.remove(&oldest);
        }
    }
    all.entry(client).or_insert_with(|| Logins::new(now))
}

impl Delay {
    /// For fuzz targets: nobody waits.
    #[cfg(feature = "fuzzing")]
    pub(super) fn off() -> Self {
        Self(Arc::new(Table {
            is_off: true,
            ..Table::default()
        }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Logins>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a login may begin; none if that takes too long.
    pub(super) fn begin(&self, address: IpAddr) -> Option<Attempt> {
        let client = client_of(address);
        let came = Instant::now();
        let mut is_queued = false;
        let mut all = self.lock();
        loop {
            let now = Instant::now();
            let logins = logins_of(&mut all, client, now);
            if is_queued {
                logins.waiting = logins.waiting.saturating_sub(1);
            }
            let wait = match logins.begin(now) {
                Err(wait) if !self.0.is_off => wait,
                _ => {
                    return Some(Attempt {
                        delay: self.clone(),
                        client,
                        end: End::GivenUp,
                    });
                }
            };
            let others = match is_queued {
                true => Duration::ZERO,
                false => logins.queue(),
            };
            if now.duration_since(came) + wait + others > QUEUE_MAX {
                return None;
            }
            logins.waiting += 1;
            is_queued = true;
            (all, _) = self
                .0
                .ended
                .wait_timeout(all, wait)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, client: IpAddr, end: End, now: Instant) {
        let mut all = self.lock();
        let logins = logins_of(&mut all, client, now);
        logins.end(end, now);
        if logins.is_idle() {
            all.remove(&client);
        }
        drop(all);
        self.0.ended.notify_all();
    }
}

impl Attempt {
    /// It failed.
    pub(super) fn failed(mut self) {
        self.end = End::Failed;
    }

    /// It succeeded, as somebody.
    pub(super) fn succeeded(mut self) {
        self.end = End::Succeeded;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.delay.end(self.client, self.end, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;

    fn address() -> IpAddr {
        [192, 0, 2, 1].into()
    }

    /// Whether a login may begin, or how long it has to wait.
    fn ask(delay: &Delay, client: IpAddr, now: Instant) -> Result<(), Duration> {
        logins_of(&mut delay.lock(), client, now).begin(now)
    }

    #[test]
    fn guessing_gets_slower_and_a_login_forgives() {
        let delay = Delay::default();
        let mut now = Instant::now();
        let waits: Vec<_> = (0..12)
            .map(|_| {
                let wait = ask(&delay, address(), now).err();
                if let Some(wait) = wait {
                    now += wait;
                    ask(&delay, address(), now).unwrap();
                }
                delay.end(address(), End::Failed, now);
                wait.unwrap_or_default()
            })
            .collect();
        assert_eq!(waits[..6], [ZERO, ZERO, ZERO, FIRST, FIRST * 2, FIRST * 4]);
        assert_eq!(waits[11], LONGEST);
        assert_eq!(ask(&delay, [192, 0, 2, 2].into(), now), Ok(()));
        now += LONGEST;
        assert_eq!(ask(&delay, address(), now), Ok(()));
        delay.end(address(), End::GivenUp, now);
        assert_eq!(
            ask(&delay, address(), now),
            Err(LONGEST),
            "hanging up forgives nothing"
        );
        now += LONGEST;
        assert_eq!(ask(&delay, address(), now), Ok(()));
        delay.end(address(), End::Succeeded, now);
        assert_eq!(ask(&delay, address(), now), Ok(()));
    }

    #[test]
    fn guesses_begun_at_once_count_before_they_fail() {
        let delay = Delay::default();
        let now = Instant::now();
        let begun = (0..100).take_while(|_| ask(&delay, address(), now).is_ok());
        assert_eq!(begun.count(), AT_ONCE as usize);
        // Who succeeds makes room for another.
        delay.end(address(), End::Succeeded, now);
        assert_eq!(ask(&delay, address(), now), Ok(()));
        assert_eq!(ask(&delay, address(), now), Err(FIRST));
        for _ in 0..AT_ONCE {
            delay.end(address(), End::Failed, now);
        }
        assert_eq!(ask(&delay, address(), now), Err(LONGEST));
    }

    #[test]
    fn who_would_wait_too_long_is_turned_away() {
        let delay = Delay::default();
        let now = Instant::now();
        for _ in 0..20 {
            delay.end(address(), End::Failed, now);
        }
        logins_of(&mut delay.lock(), address(), now).waiting = 3;
        assert!(delay.begin(address()).is_none());
        assert!(delay.begin([192, 0, 2, 2].into()).is_some());
    }

    #[test]
    fn many_who_succeed_all_come_in() {
        let delay = Delay::default();
        std::thread::scope(|scope| {
            for _ in 0..10 * AT_ONCE {
                scope.spawn(|| delay.begin(address()).unwrap().succeeded());
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
        let delay = Delay::default();
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            let client = std::net::Ipv4Addr::from(number).into();
            delay.end(client, End::Failed, Instant::now());
        }
        assert!(delay.lock().len() <= ADDRESSES_MAX);
    }
}
