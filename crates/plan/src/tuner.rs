//! Finds the block size and depth with the highest rate, by hill climbing.
//!
//! One [`Tuner`] serves all files of a job. It measures the current limits ("home"), then a
//! neighbour (depth or block size doubled or halved), and moves only if the neighbour is clearly
//! better. When no neighbour is, it rests, and tries again later or when the rate falls. Home and
//! neighbour are measured in turns. A device that slows down by itself (full flash cache, other
//! load) is then not mistaken for a bad choice.
//!
//! The tuner reads no clock: the driver reports how many bytes moved in how much time, so every
//! climb can be replayed.

use std::time::Duration;

use crate::transfer::TransferLimits;

/// Smallest block tried, in bytes. Fact sheet, Vista SP1: "128 KiB to 1 MiB"; below, the cost of
/// each request dominates.
const BLOCK_SIZE_MIN: usize = 128 * 1024;
/// Smallest depth tried: one block is read while another is written.
const DEPTH_MIN: usize = 2;
/// Limits at the start (clamped to the maxima), equal to [`TransferLimits::default`].
const START: TransferLimits = TransferLimits {
    block_size: 1024 * 1024,
    depth: 4,
};
/// Shortest measurement. A guess: long compared with one I/O of a slow device, short compared with
/// a file of a GiB.
const WINDOW_MIN: Duration = Duration::from_millis(200);
/// A measurement covers at least this many times the bytes in flight, so that start and end weigh
/// little (guess).
const WINDOW_FLIGHTS: u64 = 4;
/// Factor by which a neighbour must be better (hysteresis; a guess above the noise of a quiet
/// disk).
const BETTER_FACTOR: f64 = 1.05;
/// A resting tuner climbs again when the rate falls below this part of its former value (guess) ...
const FALLEN_FACTOR: f64 = 0.7;
/// ... or after this many measurements (guess: about half a minute to a minute).
const REST_WINDOWS: u32 = 128;
/// Weight of one further measurement in the smoothed rate of home.
const HOME_SMOOTHING: f64 = 0.3;

/// A neighbour to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Deeper,
    Larger,
    Shallower,
    Smaller,
}

const MOVES: [Move; 4] = [Move::Deeper, Move::Larger, Move::Shallower, Move::Smaller];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Measuring home; then this move (an index into `MOVES`) is tried.
    Home { next: usize },
    /// Measuring the neighbour in this direction.
    Trying { index: usize },
    /// No neighbour is better; counts the measurements since.
    Resting { windows: u32 },
}

/// A measurement in progress. Bytes in flight when the limits changed are not measured: `skip` of
/// them remain.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    skip: u64,
    bytes: u64,
    elapsed: Duration,
}

/// Tunes block size and depth.
#[derive(Clone, Debug)]
pub struct Tuner {
    block_size_max: usize,
    depth_max: usize,
    home: TransferLimits,
    /// Bytes a second at home, smoothed.
    home_rate: Option<f64>,
    /// The best limits ever measured, and their rate in bytes a second.
    best: Option<(TransferLimits, f64)>,
    state: State,
    window: Window,
    is_pinned: bool,
}

impl Tuner {
    /// Makes a tuner for blocks of up to `block_size_max` bytes (at least 128 KiB are used unless
    /// that is less) and up to `depth_max` blocks in flight.
    pub fn new(block_size_max: usize, depth_max: usize) -> Self {
        let block_size_max = block_size_max.max(4096);
        let depth_max = depth_max.max(1);
        Self {
            block_size_max,
            depth_max,
            home: TransferLimits {
                block_size: START.block_size.min(block_size_max),
                depth: START.depth.min(depth_max),
            },
            home_rate: None,
            best: None,
            state: State::Home { next: 0 },
            window: Window::default(),
            is_pinned: false,
        }
    }

    /// Starts with the greatest depth: for distant ends, where a shallow start leaves the line
    /// empty while it is measured.
    #[must_use]
    pub fn starting_deep(mut self) -> Self {
        self.home.depth = self.depth_max;
        self
    }

    /// Never changes the limits: for ends whose own depth follows the line, where trying a
    /// shallower depth costs what it would measure.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.is_pinned = true;
        self
    }

    /// Returns the limits to use now.
    pub fn limits(&self) -> TransferLimits {
        match self.state {
            State::Trying { index } => self.neighbour(MOVES[index]).unwrap_or(self.home),
            State::Home { .. } | State::Resting { .. } => self.home,
        }
    }

    /// Returns the best limits so far and their rate in bytes a second. A later job on the same
    /// ends could start from them.
    pub fn best(&self) -> Option<(TransferLimits, f64)> {
        self.best
    }

    /// Records that all files of the job together moved `bytes` in the `elapsed` time since the
    /// last call.
    pub fn observe(&mut self, bytes: u64, elapsed: Duration) {
        if self.is_pinned {
            return;
        }
        let window = &mut self.window;
        if window.skip > 0 {
            window.skip = window.skip.saturating_sub(bytes);
            return;
        }
        window.bytes += bytes;
        window.elapsed += elapsed;
        let limits = self.limits();
        let flight = (limits.block_size * limits.depth) as u64;
        let window = self.window;
        if window.elapsed < WINDOW_MIN || window.bytes < WINDOW_FLIGHTS * flight {
            return;
        }
        let rate = window.bytes as f64 / window.elapsed.as_secs_f64();
        if self.best.is_none_or(|(_, best)| rate > best) {
            self.best = Some((limits, rate));
        }
        self.measured(rate);
        self.window = Window::default();
        if self.limits() != limits {
            self.window.skip = flight;
        }
    }

    /// Ends one measurement at the present limits.
    fn measured(&mut self, rate: f64) {
        self.state = match self.state {
            State::Home { next } => {
                self.remember_home(rate);
                self.try_from(next)
            }
            State::Trying { index } if rate > self.home_rate.unwrap_or(0.0) * BETTER_FACTOR => {
                self.home = self.limits();
                self.home_rate = Some(rate);
                // A move that helped once may help again.
                self.try_from(index)
            }
            State::Trying { index } if index + 1 < MOVES.len() => State::Home { next: index + 1 },
            State::Trying { .. } => State::Resting { windows: 0 },
            State::Resting { windows } => {
                let before = self.home_rate.unwrap_or(rate);
                self.remember_home(rate);
                if rate < before * FALLEN_FACTOR || windows >= REST_WINDOWS {
                    self.home_rate = Some(rate);
                    State::Home { next: 0 }
                } else {
                    State::Resting { windows: windows + 1 }
                }
            }
        };
    }

    /// Returns the first possible move at or after `index`, or rest.
    fn try_from(&self, index: usize) -> State {
        match (index..MOVES.len()).find(|index| self.neighbour(MOVES[*index]).is_some()) {
            Some(index) => State::Trying { index },
            None => State::Resting { windows: 0 },
        }
    }

    fn remember_home(&mut self, rate: f64) {
        self.home_rate = Some(match self.home_rate {
            Some(before) => before + (rate - before) * HOME_SMOOTHING,
            None => rate,
        });
    }

    fn neighbour(&self, direction: Move) -> Option<TransferLimits> {
        let TransferLimits { block_size, depth } = self.home;
        let limits = match direction {
            Move::Deeper => TransferLimits {
                block_size,
                depth: (depth * 2).min(self.depth_max),
            },
            Move::Shallower => TransferLimits {
                block_size,
                depth: (depth / 2).max(DEPTH_MIN.min(depth)),
            },
            Move::Larger => TransferLimits {
                block_size: (block_size * 2).min(self.block_size_max),
                depth,
            },
            Move::Smaller => TransferLimits {
                block_size: (block_size / 2).max(BLOCK_SIZE_MIN.min(block_size)),
                depth,
            },
        };
        (limits != self.home).then_some(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Random;

    /// A device: the time for one block, and how many blocks it serves at once.
    struct Device {
        request_seconds: f64,
        bytes_per_second: f64,
        parallel: f64,
        /// Rate lost for each block in flight beyond those served at once.
        crowding: f64,
    }

    impl Device {
        fn rate(&self, limits: TransferLimits) -> f64 {
            let block = limits.block_size as f64;
            let depth = limits.depth as f64;
            let one = self.request_seconds + block / self.bytes_per_second;
            let piped = depth.min(self.parallel) * block / one;
            piped.min(self.bytes_per_second) * (1.0 - self.crowding * (depth - self.parallel).max(0.0))
        }

        fn best(&self, block_size_max: usize, depth_max: usize) -> f64 {
            let mut best: f64 = 0.0;
            for size in (17..=30)
                .map(|power| 1_usize << power)
                .filter(|size| *size <= block_size_max)
            {
                for depth in (1..=6)
                    .map(|power| 1_usize << power)
                    .filter(|depth| *depth <= depth_max)
                {
                    best = best.max(self.rate(TransferLimits {
                        block_size: size,
                        depth,
                    }));
                }
            }
            best
        }
    }

    /// Feeds `seconds` of virtual time in steps of 50 ms with some noise.
    fn climb(tuner: &mut Tuner, device: &Device, seconds: f64, noise: f64, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..(seconds / 0.05) as u32 {
            let rate = device.rate(tuner.limits()) * (1.0 + noise * random.normal()).max(0.1);
            tuner.observe((rate * 0.05) as u64, Duration::from_millis(50));
        }
    }

    const DEVICES: [Device; 4] = [
        // A distant server: 75 ms a request, 78 MB/s.
        Device {
            request_seconds: 0.075,
            bytes_per_second: 78e6,
            parallel: 64.0,
            crowding: 0.0,
        },
        // A disk: seeks between streams.
        Device {
            request_seconds: 0.008,
            bytes_per_second: 150e6,
            parallel: 2.0,
            crowding: 0.1,
        },
        // An SSD.
        Device {
            request_seconds: 0.0001,
            bytes_per_second: 2e9,
            parallel: 32.0,
            crowding: 0.0,
        },
        // A stick.
        Device {
            request_seconds: 0.002,
            bytes_per_second: 12e6,
            parallel: 1.0,
            crowding: 0.01,
        },
    ];

    #[test]
    fn the_tuner_comes_near_the_best_of_each_device() {
        for (index, device) in DEVICES.iter().enumerate() {
            for seed in 0..10 {
                let mut tuner = Tuner::new(1 << 20, 32);
                climb(&mut tuner, device, 120.0, 0.01, seed);
                let reached = device.rate(tuner.home) / device.best(1 << 20, 32);
                assert!(reached > 0.9, "device {index}: {reached:.2} at {:?}", tuner.home);
                assert!(tuner.best().is_some());
            }
        }
    }

    #[test]
    fn limits_stay_within_bounds_and_a_climb_can_be_replayed() {
        for (block_size_max, depth_max) in [(1 << 20, 32), (64 << 10, 8), (3 << 20, 5), (0, 0), (1 << 20, 1)]
        {
            let mut tuner = Tuner::new(block_size_max, depth_max);
            let mut twin = tuner.clone();
            let mut random = Random::new(7);
            for _ in 0..5_000 {
                let (bytes, span) = (
                    random.next() % (1 << 26),
                    Duration::from_millis(random.next() % 300),
                );
                tuner.observe(bytes, span);
                twin.observe(bytes, span);
                let limits = tuner.limits();
                assert_eq!(limits, twin.limits());
                assert!((4096..=block_size_max.max(4096)).contains(&limits.block_size));
                assert!((1..=depth_max.max(1)).contains(&limits.depth));
            }
        }
    }

    #[test]
    fn a_flat_device_keeps_the_start_limits() {
        let flat = Device {
            request_seconds: 0.0,
            bytes_per_second: 100e6,
            parallel: 1000.0,
            crowding: 0.0,
        };
        let mut tuner = Tuner::new(1 << 20, 32);
        climb(&mut tuner, &flat, 20.0, 0.01, 3);
        assert_eq!(tuner.home, START);
    }

    #[test]
    fn the_tuner_climbs_again_when_the_rate_falls() {
        let mut tuner = Tuner::new(1 << 20, 32);
        climb(&mut tuner, &DEVICES[3], 60.0, 0.01, 1);
        climb(&mut tuner, &DEVICES[0], 120.0, 0.01, 2);
        let reached = DEVICES[0].rate(tuner.home) / DEVICES[0].best(1 << 20, 32);
        assert!(reached > 0.9, "{reached:.2} at {:?}", tuner.home);
    }
}
