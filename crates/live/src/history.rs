//! Rings of figures: one sample a second, for the last five minutes.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Samples in a ring.
pub const SAMPLES: usize = 300;
/// Time from one sample to the next.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Samples over which rates are averaged.
const RATE_SAMPLES: usize = 3;

/// Totals of a part since its beginning. What a part does not have stays 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes read: from the source of a job, by the clients of a server, by programs from a mount.
    pub read: u64,
    /// Bytes written: sent to the target of a job, by clients, by programs.
    pub written: u64,
    /// Bytes known to be durable.
    pub durable: u64,
    /// Files finished.
    pub files: u64,
    /// Operations.
    pub operations: u64,
}

/// Amounts in each of the last seconds, oldest first. Series that a part does not have are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// Time from one sample to the next in milliseconds.
    pub interval_ms: u64,
    /// Bytes read.
    pub read: Vec<u64>,
    /// Bytes written.
    pub written: Vec<u64>,
    /// Bytes that became durable.
    pub durable: Vec<u64>,
    /// Files finished.
    pub files: Vec<u64>,
    /// Operations.
    pub operations: Vec<u64>,
}

impl History {
    /// Returns the bytes read and written together. Both series end at the same moment.
    pub fn moved(&self) -> Vec<u64> {
        let count = self.read.len().max(self.written.len());
        let at = |series: &[u64], index: usize| {
            let found = index.checked_sub(count - series.len());
            found.and_then(|index| series.get(index)).copied().unwrap_or(0)
        };
        (0..count)
            .map(|index| at(&self.read, index).saturating_add(at(&self.written, index)))
            .collect()
    }
}

/// Amounts a second over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Bytes read.
    pub read: f64,
    /// Bytes written.
    pub written: f64,
    /// Bytes that became durable.
    pub durable: f64,
    /// Files finished.
    pub files: f64,
    /// Operations.
    pub operations: f64,
}

/// The last samples of one part.
#[derive(Debug, Default)]
pub struct Ring {
    last: Option<(Duration, Totals)>,
    samples: VecDeque<Totals>,
}

impl Ring {
    /// Takes the totals of a moment. What a process that was stopped missed is spread evenly.
    pub fn sample(&mut self, now: Duration, totals: Totals) {
        let Some((then, before)) = self.last.replace((now, totals)) else {
            return;
        };
        let elapsed = now.saturating_sub(then);
        let count = (elapsed.as_secs_f64() / INTERVAL.as_secs_f64()).round();
        // As a float it may be far beyond the ring.
        let count = count.clamp(1.0, SAMPLES as f64) as usize;
        let seconds = elapsed.as_secs_f64().max(0.001);
        let amount = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds).round() as u64;
        let sample = Totals {
            read: amount(totals.read, before.read),
            written: amount(totals.written, before.written),
            durable: amount(totals.durable, before.durable),
            files: amount(totals.files, before.files),
            operations: amount(totals.operations, before.operations),
        };
        for _ in 0..count {
            if self.samples.len() >= SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(sample);
        }
    }

    /// Returns all samples.
    pub fn history(&self) -> History {
        let series = |value: fn(&Totals) -> u64| {
            let values: Vec<u64> = self.samples.iter().map(value).collect();
            match values.iter().all(|value| *value == 0) {
                true => Vec::new(),
                false => values,
            }
        };
        History {
            interval_ms: INTERVAL.as_millis() as u64,
            read: series(|sample| sample.read),
            written: series(|sample| sample.written),
            durable: series(|sample| sample.durable),
            files: series(|sample| sample.files),
            operations: series(|sample| sample.operations),
        }
    }

    /// Returns the rates of the last seconds.
    pub fn rates(&self) -> Rates {
        let count = self.samples.len().min(RATE_SAMPLES);
        let mean = |value: fn(&Totals) -> u64| match count {
            0 => 0.0,
            _ => {
                let last = self.samples.iter().rev().take(count);
                last.map(|sample| value(sample) as f64).sum::<f64>() / count as f64
            }
        };
        Rates {
            read: mean(|sample| sample.read),
            written: mean(|sample| sample.written),
            durable: mean(|sample| sample.durable),
            files: mean(|sample| sample.files),
            operations: mean(|sample| sample.operations),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(read: u64) -> Totals {
        Totals {
            read,
            ..Totals::default()
        }
    }

    #[test]
    fn what_was_moved_ends_at_the_same_moment() {
        let history = History {
            read: vec![1, 2],
            written: vec![10],
            ..History::default()
        };
        assert_eq!(history.moved(), [1, 12]);
    }

    #[test]
    fn samples_are_amounts_a_second() {
        let mut ring = Ring::default();
        let at = |ms| Duration::from_millis(ms);
        ring.sample(at(0), read(0));
        ring.sample(at(1000), read(1000));
        ring.sample(at(2500), read(4000));
        ring.sample(at(5500), read(4300));
        let history = ring.history();
        assert_eq!(history.read, [1000, 2000, 2000, 100, 100, 100]);
        assert!(history.written.is_empty(), "{history:?}");
        assert_eq!(ring.rates().read, 100.0);
    }

    #[test]
    fn a_night_of_sleep_leaves_one_ring() {
        let mut ring = Ring::default();
        ring.sample(Duration::ZERO, read(0));
        ring.sample(Duration::from_secs(36_000), read(36_000));
        assert_eq!(ring.history().read, vec![1; SAMPLES]);
    }

    proptest! {
        #[test]
        fn a_ring_is_bounded(steps in proptest::collection::vec((any::<u64>(), 0_u64..10_000_000), 0..700)) {
            let (mut ring, mut now) = (Ring::default(), 0);
            for (total, step) in steps {
                now += step;
                ring.sample(Duration::from_millis(now), read(total));
                prop_assert!(ring.samples.len() <= SAMPLES);
                prop_assert!(ring.rates().read.is_finite());
            }
        }
    }
}
