//! Finds whether a line is slower than compression, from what TCP reports of one connection. Pure:
//! times and counts are arguments.
//!
//! ```text
//! None --the line was full for a third of a second--> Fast or Strong, by its rate and the core's speed
//!   ^                                                     |
//!   +--- it moves much, and is not full any more ---------+
//! ```
//! Only the sender knows: TCP counts how long it had data on the line. A receiver sees a slow disk
//! and a slow line alike. So each end decides for what it sends.

use std::sync::OnceLock;
use std::time::Duration;

use super::{Algorithms, CompressionLevel};

/// Length of a measurement. The first one ends this long after the first data: some round trips of a
/// long line, in which TCP has come near its rate. Until then what is sent is not compressed. A guess.
const SPAN: Duration = Duration::from_millis(300);
/// A measurement with too little on the line to tell is dropped after this time. A guess.
const SPAN_MAX: Duration = Duration::from_secs(4);
/// Bytes below which a measurement says nothing: a few requests do not fill a line. A guess.
const BYTES_MIN: u64 = 256 << 10;
/// Share of the time with data on the line from which on the line is what limits. A guess: a sender
/// that pauses for a quarter of the time waits for something else as well.
const FULL: f64 = 0.75;
/// Share of the time below which the line is not what limits. A guess.
const FREE: f64 = 0.4;
/// A core must be this many times as fast as one connection's line: twice, since data that is worth
/// it becomes about half as long, and again for the other connections and the rest of the work.
const TIMES: u64 = 4;

/// Sum of what one connection has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineSample {
    /// Bytes that the other end has acknowledged.
    pub acknowledged: u64,
    /// Time with data on the line, or on its way to it.
    pub sending: Duration,
}

/// Bytes a second that one core compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSpeed {
    /// With LZ4.
    pub fast: u64,
    /// With Zstandard.
    pub strong: u64,
}

/// Length of the data that speeds are measured with: a quarter of the usual request. 1 to 3 ms.
const PROBE_LEN: usize = 256 << 10;
/// Number of measurements, of which the fastest counts.
const PROBES: usize = 3;

impl CoreSpeed {
    /// Returns the speed of this process's core, which the first call measures. `now` reads a monotonic
    /// clock.
    pub fn of_this_process(now: impl Fn() -> Duration) -> Self {
        static SPEED: OnceLock<CoreSpeed> = OnceLock::new();
        *SPEED.get_or_init(|| Self::measure(now))
    }

    /// Measures the speed of this core now, half of it with noise and half with text. `now` reads a
    /// monotonic clock.
    pub fn measure(now: impl Fn() -> Duration) -> Self {
        let data = probe();
        let rate = |zstd: bool| {
            let algorithms = Algorithms {
                lz4: !zstd,
                zstd,
                ..Algorithms::default()
            };
            let took = (0..PROBES).map(|_| {
                let start = now();
                let compressed = algorithms.compress(&data);
                let end = now();
                drop(compressed);
                end.saturating_sub(start)
            });
            let fastest = took.min().unwrap_or(Duration::MAX).max(Duration::from_micros(1));
            (data.len() as f64 / fastest.as_secs_f64()) as u64
        };
        Self {
            fast: rate(false),
            strong: rate(true),
        }
    }

    /// Returns the strongest level that keeps up with a line of this rate, in bytes a second.
    fn level(self, rate: u64) -> CompressionLevel {
        let needed = rate.saturating_mul(TIMES);
        if needed <= self.strong {
            CompressionLevel::Strong
        } else if needed <= self.fast {
            CompressionLevel::Fast
        } else {
            CompressionLevel::None
        }
    }
}

/// Makes the data for the measurement: noise and words by turns, always the same.
fn probe() -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "one ", "two ", "line ", "car ", "moves ", "at ", "once ", "again\n",
    ];
    let mut data = Vec::with_capacity(PROBE_LEN + 16);
    // The generator of Numerical Recipes; its upper bits are noise enough.
    let mut state = 1_u64;
    while data.len() < PROBE_LEN {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match data.len() / 16_384 % 2 {
            0 => data.extend_from_slice(&state.to_be_bytes()[..4]),
            _ => data.extend_from_slice(WORDS[(state >> 61) as usize].as_bytes()),
        }
    }
    data
}

/// The measurement of one connection.
#[derive(Debug, Default)]
pub struct SlowLine {
    level: CompressionLevel,
    /// Where the measurement began.
    mark: Option<(Duration, LineSample)>,
}

impl SlowLine {
    /// Returns the present level.
    pub fn level(&self) -> CompressionLevel {
        self.level
    }

    /// Takes a sample and returns the level from now on. `speed` is asked only if the line is full.
    /// Call it several times a second while the connection is in use.
    pub fn look(
        &mut self,
        now: Duration,
        sample: LineSample,
        speed: impl FnOnce() -> CoreSpeed,
    ) -> CompressionLevel {
        let (since, before) = *self.mark.get_or_insert((now, sample));
        let elapsed = now.saturating_sub(since);
        let sending = sample.sending.saturating_sub(before.sending);
        let bytes = sample.acknowledged.saturating_sub(before.acknowledged);
        if sending.is_zero() {
            // Nothing was sent since: the time does not count.
            self.mark = Some((now, sample));
            return self.level;
        }
        if elapsed < SPAN || (bytes < BYTES_MIN && elapsed < SPAN_MAX) {
            return self.level;
        }
        self.mark = Some((now, sample));
        if bytes < BYTES_MIN {
            return self.level;
        }
        let share = sending.as_secs_f64() / elapsed.as_secs_f64();
        if share >= FULL {
            let rate = bytes as f64 / sending.as_secs_f64();
            self.level = speed().level(rate as u64);
        } else if share < FREE {
            self.level = CompressionLevel::None;
        }
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPEED: CoreSpeed = CoreSpeed {
        fast: 400_000_000,
        strong: 200_000_000,
    };

    /// Runs for some seconds at a rate, with data on the line for `share` of the time.
    struct Run {
        now: Duration,
        sample: LineSample,
        line: SlowLine,
    }

    impl Run {
        fn new() -> Self {
            Self {
                now: Duration::ZERO,
                sample: LineSample::default(),
                line: SlowLine::default(),
            }
        }

        fn go(&mut self, seconds: f64, bytes_a_second: u64, share: f64) -> CompressionLevel {
            let step = Duration::from_millis(100);
            for _ in 0..(seconds * 10.0) as u32 {
                self.now += step;
                self.sample.acknowledged += bytes_a_second / 10;
                self.sample.sending += step.mul_f64(share);
                self.line.look(self.now, self.sample, || SPEED);
            }
            self.line.level()
        }
    }

    #[test]
    fn slow_lines_are_found_within_a_second() {
        // 155 Mbit/s, 622 Mbit/s, and more than a core compresses.
        for (rate, level) in [
            (18_000_000, CompressionLevel::Strong),
            (75_000_000, CompressionLevel::Fast),
            (1_000_000_000, CompressionLevel::None),
        ] {
            assert_eq!(Run::new().go(0.9, rate, 1.0), level, "{rate}");
            assert_eq!(Run::new().go(0.3, rate, 1.0), CompressionLevel::None, "too soon");
        }
    }

    #[test]
    fn a_slow_disk_at_a_fast_line_is_no_slow_line() {
        assert_eq!(Run::new().go(10.0, 18_000_000, 0.1), CompressionLevel::None);
        assert_eq!(Run::new().go(10.0, 18_000_000, 0.5), CompressionLevel::None);
    }

    #[test]
    fn a_few_requests_and_pauses_change_nothing() {
        let mut run = Run::new();
        assert_eq!(run.go(30.0, 10_000, 1.0), CompressionLevel::None);
        assert_eq!(run.go(1.0, 18_000_000, 1.0), CompressionLevel::Strong);
        assert_eq!(run.go(30.0, 0, 0.0), CompressionLevel::Strong);
        assert_eq!(run.go(30.0, 10_000, 0.3), CompressionLevel::Strong);
        // The line has become a fast one.
        assert_eq!(run.go(2.0, 400_000_000, 0.2), CompressionLevel::None);
    }

    #[test]
    fn the_time_before_the_first_data_does_not_count() {
        let mut run = Run::new();
        run.go(60.0, 0, 0.0);
        assert_eq!(run.go(0.9, 18_000_000, 1.0), CompressionLevel::Strong);
    }

    #[test]
    fn a_slow_core_does_not_compress() {
        let mut line = SlowLine::default();
        let slow = CoreSpeed {
            fast: 60_000_000,
            strong: 20_000_000,
        };
        for second in 0..5 {
            let sample = LineSample {
                acknowledged: second * 18_000_000,
                sending: Duration::from_secs(second),
            };
            line.look(Duration::from_secs(second), sample, || slow);
        }
        assert_eq!(line.level(), CompressionLevel::None);
    }

    #[test]
    fn speeds_come_from_the_clock_alone() {
        let ticks = std::cell::Cell::new(0);
        let now = || {
            ticks.set(ticks.get() + 1);
            Duration::from_millis(ticks.get())
        };
        let expected = (probe().len() * 1000) as u64;
        let speed = CoreSpeed::measure(now);
        // A tick of 1 ms lies between start and end of each.
        assert_eq!((speed.fast, speed.strong), (expected, expected));
        assert_eq!(CoreSpeed::measure(|| Duration::ZERO).fast, expected * 1000);
    }

    proptest! {
        #[test]
        fn no_sample_panics(samples in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..20)) {
            let mut line = SlowLine::default();
            for (now, acknowledged, sending) in samples {
                let sample = LineSample { acknowledged, sending: Duration::from_nanos(sending) };
                line.look(Duration::from_nanos(now), sample, || SPEED);
            }
        }
    }
}
