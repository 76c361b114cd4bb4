//! Failed logins make the next one from the same address wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first failures cost nothing: people mistype.
const FREE: u32 = 2;
/// The first wait; each further failure doubles it.
const FIRST: Duration = Duration::from_millis(250);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(8);
/// Failures are forgotten after so long without another.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Addresses remembered; beyond, the oldest are forgotten.
const ADDRESSES_MAX: usize = 4096;

/// Remembers who failed.
#[derive(Clone, Default)]
pub(super) struct Delay(Arc<Mutex<HashMap<IpAddr, (u32, Instant)>>>);

impl Delay {
    /// Counts a failure; how long its answer has to wait.
    pub(super) fn failed(&self, address: IpAddr) -> Duration {
        let now = Instant::now();
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES_MAX && !failures.contains_key(&address) {
            failures.retain(|_, (_, last)| now.duration_since(*last) < FORGOTTEN);
            if failures.len() >= ADDRESSES_MAX
                && let Some(oldest) = failures
                    .iter()
                    .min_by_key(|(_, (_, last))| *last)
                    .map(|(ip, _)| *ip)
            {
                failures.remove(&oldest);
            }
        }
        let (count, last) = failures.entry(address).or_insert((0, now));
        if now.duration_since(*last) >= FORGOTTEN {
            *count = 0;
        }
        *count = count.saturating_add(1);
        *last = now;
        match count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST.saturating_mul(1 << doublings.min(16)).min(LONGEST),
        }
    }

    /// A login succeeded.
    pub(super) fn forgive(&self, address: IpAddr) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_gets_slower_and_a_login_forgives() {
        let delay = Delay::default();
        let address: IpAddr = [192, 0, 2, 1].into();
        let waits: Vec<_> = (0..12).map(|_| delay.failed(address)).collect();
        assert_eq!(waits[..4], [Duration::ZERO, Duration::ZERO, FIRST, FIRST * 2]);
        assert_eq!(waits[11], LONGEST);
        assert_eq!(delay.failed([192, 0, 2, 2].into()), Duration::ZERO);
        delay.forgive(address);
        assert_eq!(delay.failed(address), Duration::ZERO);
    }

    #[test]
    fn only_so_many_addresses_are_remembered() {
        let delay = Delay::default();
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            delay.failed(std::net::Ipv4Addr::from(number).into());
        }
        assert!(delay.0.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
