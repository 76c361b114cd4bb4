//! Failed logins make the next one from the same address wait.
//!
//! The wait lies before the next login, not before the answer to the failed one: a client that hangs up and comes back
//! waits all the same, and so do those that guess on several connections at once, one after the other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first failures cost nothing: people mistype.
const FREE: u32 = 2;
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
pub(super) struct Delay(Arc<Mutex<HashMap<IpAddr, Failures>>>);

/// Of one address.
struct Failures {
    count: u32,
    last: Instant,
    /// The next login may begin then.
    next: Instant,
}

impl Failures {
    /// Between two logins.
    fn pause(&self) -> Duration {
        match self.count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST),
        }
    }
}

impl Delay {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a login that is about to begin has to wait; none if too many wait already.
    pub(super) fn wait(&self, address: IpAddr) -> Option<Duration> {
        self.wait_at(address, Instant::now())
    }

    fn wait_at(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut all = self.lock();
        let Some(failures) = all.get_mut(&address) else {
            return Some(Duration::ZERO);
        };
        let begins = failures.next.max(now);
        let wait = begins.duration_since(now);
        if wait > QUEUE_MAX {
            return None;
        }
        // Others come after this one.
        failures.next = begins + failures.pause();
        Some(wait)
    }

    /// Counts a failure.
    pub(super) fn failed(&self, address: IpAddr) {
        self.failed_at(address, Instant::now());
    }

    fn failed_at(&self, address: IpAddr, now: Instant) {
        let mut all = self.lock();
        if all.len() >= ADDRESSES_MAX && !all.contains_key(&address) {
            all.retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN);
            if all.len() >= ADDRESSES_MAX
                && let Some(oldest) = all
                    .iter()
                    .min_by_key(|(_, failures)| failures.last)
                    .map(|(ip, _)| *ip)
            {
                all.remove(&oldest);
            }
        }
        let failures = all.entry(address).or_insert(Failures {
            count: 0,
            last: now,
            next: now,
        });
        if now.duration_since(failures.last) >= FORGOTTEN {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        failures.next = failures.next.max(now + failures.pause());
    }

    /// A login succeeded.
    pub(super) fn forgive(&self, address: IpAddr) {
        self.lock().remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_gets_slower_and_a_login_forgives() {
        let delay = Delay::default();
        let address: IpAddr = [192, 0, 2, 1].into();
        let mut now = Instant::now();
        let waits: Vec<_> = (0..12)
            .map(|_| {
                let wait = delay.wait_at(address, now).unwrap();
                now += wait;
                delay.failed_at(address, now);
                wait
            })
            .collect();
        let zero = Duration::ZERO;
        assert_eq!(waits[..6], [zero, zero, zero, FIRST, FIRST * 2, FIRST * 4]);
        assert_eq!(waits[11], LONGEST);
        assert_eq!(delay.wait_at([192, 0, 2, 2].into(), now), Some(zero));
        delay.forgive(address);
        assert_eq!(delay.wait_at(address, now), Some(zero));
    }

    #[test]
    fn guesses_side_by_side_queue() {
        let delay = Delay::default();
        let address: IpAddr = [192, 0, 2, 1].into();
        let now = Instant::now();
        for _ in 0..20 {
            delay.failed_at(address, now);
        }
        let waits: Vec<_> = (0..100).map_while(|_| delay.wait_at(address, now)).collect();
        assert_eq!(waits, [LONGEST, LONGEST * 2, LONGEST * 3]);
        assert_eq!(
            delay.wait_at(address, now + QUEUE_MAX),
            Some(LONGEST * 4 - QUEUE_MAX)
        );
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let delay = Delay::default();
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            delay.failed(std::net::Ipv4Addr::from(number).into());
        }
        assert!(delay.lock().len() <= ADDRESSES_MAX);
    }
}
