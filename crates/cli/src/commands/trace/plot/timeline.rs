//! Operations, bytes and operations in flight against time.

use super::super::sums::bytes_of;
use super::{SERIES, Series};
use crate::trace_file::Operation;

/// Number of steps of time; half of them or more are used.
const STEPS: usize = 480;
/// Length of a step at the beginning. A power of two, so that it can double exactly.
const STEP_NS: u128 = 1 << 10;

/// Counts by steps of time.
#[derive(Debug)]
pub(super) struct Timeline {
    step_ns: u128,
    /// Ends of operations.
    operations: Vec<[u64; SERIES]>,
    /// Bytes of operations that ended.
    bytes: Vec<[u64; SERIES]>,
    /// Nanoseconds that operations spent in a step that they began or ended in.
    partly_ns: Vec<f64>,
    /// Differences of the number of operations that filled a step.
    fully: Vec<i64>,
    last_ns: u128,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            step_ns: STEP_NS,
            operations: vec![[0; SERIES]; STEPS],
            bytes: vec![[0; SERIES]; STEPS],
            partly_ns: vec![0.0; STEPS],
            fully: vec![0; STEPS + 1],
            last_ns: 0,
        }
    }
}

impl Timeline {
    pub(super) fn add(&mut self, operation: &Operation, series: Series) {
        let start = u128::from(operation.t_ns);
        let end = start + u128::from(operation.duration_ns);
        self.last_ns = self.last_ns.max(end);
        while end / self.step_ns >= STEPS as u128 {
            self.double();
        }
        // Both are below `STEPS`.
        let (first, last) = ((start / self.step_ns) as usize, (end / self.step_ns) as usize);
        self.operations[last][series as usize] += 1;
        let bytes = &mut self.bytes[last][series as usize];
        *bytes = bytes.saturating_add(bytes_of(operation));
        if first == last {
            self.partly_ns[first] += (end - start) as f64;
            return;
        }
        self.partly_ns[first] += ((first as u128 + 1) * self.step_ns - start) as f64;
        self.partly_ns[last] += (end - last as u128 * self.step_ns) as f64;
        self.fully[first + 1] += 1;
        self.fully[last] -= 1;
    }

    /// Makes steps twice as long.
    fn double(&mut self) {
        let busy = self.busy_ns();
        let merge = |values: &mut Vec<[u64; SERIES]>| {
            for at in 0..STEPS / 2 {
                let (one, two) = (values[2 * at], values[2 * at + 1]);
                values[at] = std::array::from_fn(|series| one[series].saturating_add(two[series]));
            }
            values[STEPS / 2..].fill([0; SERIES]);
        };
        merge(&mut self.operations);
        merge(&mut self.bytes);
        self.partly_ns.fill(0.0);
        for (at, value) in busy.into_iter().enumerate() {
            self.partly_ns[at / 2] += value;
        }
        self.fully.fill(0);
        self.step_ns *= 2;
    }

    /// Returns the nanoseconds that all operations together spent in each step.
    fn busy_ns(&self) -> Vec<f64> {
        let mut filling = 0;
        let steps = self.partly_ns.iter().zip(&self.fully);
        let busy = steps.map(|(partly, change)| {
            filling += change;
            partly + filling as f64 * self.step_ns as f64
        });
        busy.collect()
    }

    /// Returns how many steps are used.
    fn used(&self) -> usize {
        (self.last_ns / self.step_ns) as usize + 1
    }

    fn step_s(&self) -> f64 {
        self.step_ns as f64 / 1e9
    }

    /// Returns the middle of each used step in seconds.
    pub(super) fn times(&self) -> Vec<f64> {
        (0..self.used())
            .map(|at| (at as f64 + 0.5) * self.step_s())
            .collect()
    }

    /// Returns operations per second in each used step.
    pub(super) fn operations(&self, series: Series) -> Vec<f64> {
        let used = &self.operations[..self.used()];
        used.iter()
            .map(|counts| counts[series as usize] as f64 / self.step_s())
            .collect()
    }

    /// Returns bytes per second in each used step.
    pub(super) fn bytes(&self, series: Series) -> Vec<f64> {
        let used = &self.bytes[..self.used()];
        used.iter()
            .map(|bytes| bytes[series as usize] as f64 / self.step_s())
            .collect()
    }

    /// Returns the mean number of operations in flight in each used step.
    pub(super) fn in_flight(&self) -> Vec<f64> {
        let busy = self.busy_ns();
        busy[..self.used()]
            .iter()
            .map(|busy| busy / self.step_ns as f64)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operation(t_ns: u64, duration_ns: u64) -> Operation {
        Operation {
            kind: "read".to_owned(),
            t_ns,
            duration_ns,
            result: 3,
            ..Operation::default()
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_when_steps_double(
            operations in proptest::collection::vec((0_u64..1 << 40, 0_u64..1 << 36), 1..50),
        ) {
            let mut timeline = Timeline::default();
            let mut busy = 0.0;
            for (start, length) in &operations {
                timeline.add(&operation(*start, *length), Series::Read);
                busy += *length as f64;
            }
            let sum = |values: Vec<f64>, unit: f64| values.iter().sum::<f64>() * unit;
            let count = sum(timeline.operations(Series::Read), timeline.step_s());
            prop_assert!((count - operations.len() as f64).abs() < 1e-6);
            let bytes = sum(timeline.bytes(Series::Read), timeline.step_s());
            prop_assert!((bytes - 3.0 * count).abs() < 1e-6);
            let spent = sum(timeline.in_flight(), timeline.step_ns as f64);
            prop_assert!((spent - busy).abs() <= 1.0 + busy * 1e-9, "{spent} {busy}");
            prop_assert!(timeline.used() <= STEPS);
        }
    }

    #[test]
    fn the_end_of_time_is_a_time() {
        let mut timeline = Timeline::default();
        timeline.add(&operation(u64::MAX, u64::MAX), Series::Write);
        assert!(timeline.times().iter().all(|time| time.is_finite()));
    }
}
