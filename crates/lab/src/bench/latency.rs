//! Latencies in constant memory: a histogram whose buckets are 1/64 of a power of two. Pure.

use std::time::Duration;

/// Bits of a value that a bucket keeps, below the first: an error of at most 1/128.
const PRECISION: u32 = 6;
const PARTS: usize = 1 << PRECISION;
/// Buckets: values of up to 2^44 ns, which is five hours. Longer ones fall into the last.
const BUCKETS: usize = PARTS * (44 - PRECISION as usize + 1);

/// A histogram of latencies.
#[derive(Clone)]
pub struct Latencies {
    counts: Box<[u32; BUCKETS]>,
    number: u64,
    most: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            number: 0,
            most: 0,
        }
    }
}

impl Latencies {
    /// Adds a latency.
    pub fn add(&mut self, span: Duration) {
        let nanoseconds = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let count = &mut self.counts[bucket(nanoseconds)];
        *count = count.saturating_add(1);
        self.number += 1;
        self.most = self.most.max(nanoseconds);
    }

    /// Adds all of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts[..]) {
            *count = count.saturating_add(*more);
        }
        self.number += other.number;
        self.most = self.most.max(other.most);
    }

    /// Number of latencies.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The longest.
    pub fn most(&self) -> Duration {
        Duration::from_nanos(self.most)
    }

    /// Returns the latency that a share of all did not exceed; `None` without any.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        if self.number == 0 {
            return None;
        }
        let wanted = (self.number as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return Some(Duration::from_nanos(middle(at).min(self.most)));
            }
        }
        Some(self.most())
    }
}

impl std::fmt::Debug for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Latencies({} of up to {:?})", self.number, self.most())
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let power = nanoseconds.max(1).ilog2();
    if power < PRECISION {
        return nanoseconds as usize;
    }
    let shift = power - PRECISION;
    // The leading bit is dropped: it is the same in the whole row.
    let part = (nanoseconds >> shift) as usize & (PARTS - 1);
    (PARTS * (shift as usize + 1) + part).min(BUCKETS - 1)
}

/// Returns the middle of a bucket.
fn middle(at: usize) -> u64 {
    let (row, part) = (at / PARTS, (at % PARTS) as u64);
    match row.checked_sub(1) {
        None => part,
        Some(shift) => ((PARTS as u64 + part) << shift) + (1 << shift) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_exact_to_a_hundredth() {
        let mut latencies = Latencies::default();
        for micros in 1..=1000 {
            latencies.add(Duration::from_micros(micros));
        }
        let near = |share: f64, micros: f64| {
            let found = latencies.quantile(share).unwrap().as_secs_f64() * 1e6;
            assert!((found / micros - 1.0).abs() < 0.01, "{share}: {found}");
        };
        near(0.5, 500.0);
        near(0.99, 990.0);
        near(1.0, 1000.0);
        assert_eq!(latencies.most(), Duration::from_millis(1));
        assert_eq!(Latencies::default().quantile(0.5), None);
    }

    #[test]
    fn merging_is_adding() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        one.add(Duration::from_micros(5));
        other.add(Duration::from_secs(100_000));
        one.merge(&other);
        assert_eq!(one.number(), 2);
        assert_eq!(one.most(), Duration::from_secs(100_000));
        assert!(one.quantile(0.5).unwrap() < Duration::from_micros(6));
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values(nanoseconds in 0_u64..1 << 43) {
            let middle = middle(bucket(nanoseconds)) as f64;
            let error = (middle - nanoseconds as f64).abs() / nanoseconds.max(1) as f64;
            prop_assert!(error <= 1.0 / 128.0, "{} is shown as {}", nanoseconds, middle);
        }

        #[test]
        fn buckets_are_in_order(one: u64, other: u64) {
            let (low, high) = (one.min(other), one.max(other));
            prop_assert!(bucket(low) <= bucket(high));
        }
    }
}
