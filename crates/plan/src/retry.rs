//! How long to wait before trying again.
//!
//! Exponential back-off with jitter. The jitter follows from a seed, so a run can be replayed, and files that failed
//! together (the same cable was pulled) do not come back together: seed by the file.

use std::time::Duration;

/// A back-off policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Tries in all, the first included; 1: never again.
    pub tries_max: u32,
    /// Pause after the first failure, before jitter.
    pub first: Duration,
    /// Each pause is this many times the one before; at least 1 is used.
    pub factor: f64,
    /// No pause is longer.
    pub max: Duration,
}

impl Default for Backoff {
    /// 5 tries, 0.5 s, doubling, 30 s at most: guesses. A dropped Wi-Fi or a restarted server is back within the sum of
    /// the pauses, a broken disk is not waited for long.
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
    /// The pause after the failure of try number `attempt` (from 1), or `None` when there is no further try. Jitter takes
    /// off up to half.
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

/// A number in 0..=1 from seed and attempt: SplitMix64 (Steele, Lea, Flood 2014).
fn unit(seed: u64, attempt: u32) -> f64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(u64::from(attempt) + 1));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pauses_double_within_their_jitter_and_end() {
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
