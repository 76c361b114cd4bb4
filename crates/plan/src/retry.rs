//! Decides how long to wait before trying again.
//!
//! Exponential back-off with jitter. The jitter follows from a seed, so a run can be replayed. Use
//! the file as the seed: then files that failed together (the same cable was unplugged) are not
//! retried together.

use std::time::Duration;

/// A back-off policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Attempts in all, the first included; 1 means no retry.
    pub tries_max: u32,
    /// Pause after the first failure, before jitter.
    pub first: Duration,
    /// Factor from each pause to the next; at least 1 is used.
    pub factor: f64,
    /// Longest pause.
    pub max: Duration,
}

impl Default for Backoff {
    /// 5 attempts, 0.5 s, doubling, 30 s at most: guesses. A dropped Wi-Fi connection or a
    /// restarted server is back within the sum of the pauses, and a broken disk is not waited for
    /// long.
    fn default() -> Self {
        Self {
            tries_max: 5,
            first: Duration::from_millis(500),
            factor: 2.0,
            max: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// Returns the pause after the failure of attempt number `attempt` (from 1), or `None` when
    /// there is no further attempt. Jitter takes off up to half.
    pub fn delay(&self, attempt: u32, seed: u64) -> Option<Duration> {
        if attempt >= self.tries_max {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(1_000) as i32;
        let factor = if self.factor >= 1.0 { self.factor } else { 1.0 };
        let seconds = self.first.as_secs_f64() * factor.powi(doublings);
        let max = self.max.as_secs_f64();
        // `min` also catches an infinite product.
        let seconds = seconds.min(max) * (0.5 + 0.5 * unit(seed, attempt));
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(self.max))
    }
}

/// Returns a number in 0..1 that follows from seed and attempt.
fn unit(seed: u64, attempt: u32) -> f64 {
    fastrand::Rng::with_seed(seed ^ (u64::from(attempt) << 32)).f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pauses_double_within_the_jitter_and_end() {
        let backoff = Backoff::default();
        for seed in 0..100 {
            for (attempt, full) in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)] {
                let seconds = backoff.delay(attempt, seed).unwrap().as_secs_f64();
                assert!((full / 2.0..=full).contains(&seconds), "{attempt}: {seconds}");
            }
            assert_eq!(backoff.delay(5, seed), None);
        }
        let pauses: std::collections::HashSet<_> = (0..100).map(|seed| backoff.delay(1, seed)).collect();
        assert!(pauses.len() > 90, "jitter must spread");
    }

    proptest! {
        #[test]
        fn never_longer_than_the_bound_and_never_a_panic(
            attempt: u32, seed: u64, factor: f64, first_ms: u64, max_s in 0..1_000_000_u64,
        ) {
            let backoff = Backoff {
                tries_max: u32::MAX,
                first: Duration::from_millis(first_ms),
                factor,
                max: Duration::from_secs(max_s),
            };
            if let Some(delay) = backoff.delay(attempt, seed) {
                prop_assert!(delay <= backoff.max);
                prop_assert_eq!(Some(delay), backoff.delay(attempt, seed));
            }
        }
    }
}
