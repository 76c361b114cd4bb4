//! Estimates how fast a device takes dirty pages, and when it will have all of them. Pure.
//!
//! Devices complete in steps: a throttled loop device takes 8 MiB every 0.4 s, a stick pauses while it
//! erases. So time is counted from step to step: neither the wait for the next step nor the beginning of
//! the first counts as slowness. Time in which nothing was on the way to the device does not count at all.
//!
//! The rate is kept in three windows that forget exponentially. The one that suits the time left
//! gives the estimate: a device that has just become slower matters more if it will soon have all.
//! The other windows, and the scatter of the steps, make the range.
//!
//! Before the first whole step there is only the kernel's own estimate. It begins with 100 MB/s, and
//! a `sync` does not correct it, so its range is wide.
//!
//! Memory is constant: an estimator may run for months.

use std::time::Duration;

use ropeway_vfs::event::Eta;
use serde::Serialize;

/// Half of what a window remembers is younger than 0.7 of these, in seconds of work. A guess: some
/// steps, some pauses, some minutes.
const WINDOWS_SECONDS: [f64; 3] = [2.5, 10.0, 40.0];
/// A window serves times left of up to so many times its length.
const REACH: f64 = 4.0;
/// The range extends this many standard deviations to both sides, so nine of ten ends should be
/// inside.
const RANGE_DEVIATIONS: f64 = 1.64;
/// Range, as a factor, of an estimate from one incomplete step.
const FIRST_FACTOR: f64 = 2.0;
/// Range, as a factor, of the kernel's estimate. On a device of 20 MB/s it said 43 MB/s during a
/// `sync`, and says 100 MB/s of a new device.
const KERNEL_FACTOR: f64 = 4.0;
/// Fraction of a usual step's time after which a wait counts as slowness.
const STALL_STEPS: f64 = 2.0;
/// Weight of the last interval between two looks in their average.
const LOOK_WEIGHT: f64 = 0.25;

/// Where an estimate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Whole steps of the device.
    Measured,
    /// A part of the first step.
    FirstStep,
    /// The kernel's own estimate of the device's speed.
    Kernel,
}

/// When a device will have everything that it is owed now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Drain {
    /// Time left, with its range.
    #[serde(flatten)]
    pub eta: Eta,
    /// Where the estimate comes from.
    pub basis: Basis,
}

/// A sum over recent work that forgets.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    seconds: f64,
    bytes: f64,
    /// Sums of squares and products over the steps, for their scatter.
    seconds_squared: f64,
    product: f64,
    bytes_squared: f64,
    steps: f64,
}

impl Window {
    fn add(&mut self, seconds: f64, bytes: f64, length: f64) {
        let kept = (-seconds / length).exp();
        *self = Self {
            seconds: self.seconds * kept + seconds,
            bytes: self.bytes * kept + bytes,
            seconds_squared: self.seconds_squared * kept + seconds * seconds,
            product: self.product * kept + seconds * bytes,
            bytes_squared: self.bytes_squared * kept + bytes * bytes,
            steps: self.steps * kept + 1.0,
        };
    }

    fn rate(&self) -> f64 {
        self.bytes / self.seconds
    }

    /// Returns the variance of the bytes of one second of work.
    fn variance(&self) -> f64 {
        let rate = self.rate();
        let sum = self.bytes_squared - 2.0 * rate * self.product + rate * rate * self.seconds_squared;
        sum.max(0.0) / self.seconds
    }
}

/// The counter at the last step.
#[derive(Clone, Copy, Debug)]
struct Mark {
    seconds: f64,
    written: u64,
    /// Whether the counter moved then. Otherwise work began at some point of a step.
    is_step: bool,
}

/// Estimates the rate of one device. See the module.
#[derive(Clone, Debug, Default)]
pub struct DrainEstimator {
    now_seconds: f64,
    /// Usual time between two looks: a step is known no better.
    look_seconds: f64,
    mark: Option<Mark>,
    first: Option<(f64, f64)>,
    windows: [Window; 3],
}

impl DrainEstimator {
    /// Records what the device has completed so far at `now`, and whether more is on its way. A counter
    /// that goes back is that of another device: everything is forgotten.
    pub fn observe(&mut self, now: Duration, written_bytes: u64, is_writing: bool) {
        let before = self.now_seconds;
        self.now_seconds = now.as_secs_f64().max(before);
        if self.mark.is_some() {
            self.look_seconds += (self.now_seconds - before - self.look_seconds) * LOOK_WEIGHT;
        }
        let mark = match self.mark {
            Some(mark) if written_bytes < mark.written => {
                *self = Self {
                    now_seconds: self.now_seconds,
                    ..Self::default()
                };
                None
            }
            mark => mark,
        };
        let next = |is_step| {
            Some(Mark {
                seconds: self.now_seconds,
                written: written_bytes,
                is_step,
            })
        };
        match mark {
            Some(mark) if written_bytes > mark.written => {
                let seconds = self.now_seconds - mark.seconds;
                let bytes = (written_bytes - mark.written) as f64;
                self.mark = next(true);
                self.step(seconds, bytes, mark.is_step);
            }
            None if is_writing => self.mark = next(false),
            _ => {}
        }
        if !is_writing {
            self.mark = None;
        }
    }

    fn step(&mut self, seconds: f64, bytes: f64, is_whole: bool) {
        if seconds <= 0.0 {
            return;
        }
        if is_whole {
            for (window, length) in self.windows.iter_mut().zip(WINDOWS_SECONDS) {
                window.add(seconds, bytes, length);
            }
        } else {
            self.first = Some((seconds, bytes));
        }
    }

    /// Returns the number of whole steps that count, up to some tens.
    pub fn steps(&self) -> f64 {
        self.windows[WINDOWS_SECONDS.len() - 1].steps
    }

    /// Returns the rate of the recent work in bytes a second, if a step was seen.
    pub fn rate(&self) -> Option<f64> {
        let window = self.stalled()[1];
        (window.seconds > 0.0).then(|| window.rate())
    }

    /// Returns the windows, with a wait that is longer than usual as work without bytes.
    fn stalled(&self) -> [Window; 3] {
        let mut windows = self.windows;
        let waiting = self.waiting();
        for window in &mut windows {
            let usual = window.seconds / window.steps.max(1.0);
            if window.seconds > 0.0 && waiting > STALL_STEPS * usual {
                window.seconds += waiting - usual;
                window.seconds_squared += (waiting - usual).powi(2);
            }
        }
        windows
    }

    fn waiting(&self) -> f64 {
        self.mark.map_or(0.0, |mark| self.now_seconds - mark.seconds)
    }

    /// Returns the time until the device has taken `backlog_bytes`; `kernel_rate` is the kernel's own
    /// estimate of its speed in bytes a second. `None` if nothing is known.
    pub fn drain(&self, backlog_bytes: u64, kernel_rate: Option<u64>) -> Option<Drain> {
        let backlog = backlog_bytes as f64;
        if backlog_bytes == 0 {
            let eta = Eta {
                seconds: 0.0,
                low: 0.0,
                high: 0.0,
            };
            let basis = Basis::Measured;
            return Some(Drain { eta, basis });
        }
        let guess = |rate: f64, factor: f64, basis| {
            let seconds = backlog / rate;
            let eta = Eta {
                seconds,
                low: seconds / factor,
                high: seconds * factor,
            };
            Some(Drain { eta, basis })
        };
        if self.windows[0].seconds <= 0.0 {
            if let Some((seconds, bytes)) = self.first {
                let rate = bytes / seconds.max(self.waiting());
                return guess(rate, FIRST_FACTOR, Basis::FirstStep);
            }
            let rate = kernel_rate.filter(|rate| *rate > 0)?;
            return guess(rate as f64, KERNEL_FACTOR, Basis::Kernel);
        }
        let windows = self.stalled();
        let times = windows.map(|window| backlog / window.rate());
        let suits = |index: &usize| times[*index] <= REACH * WINDOWS_SECONDS[*index];
        let index = (0..windows.len()).find(suits).unwrap_or(windows.len() - 1);
        let (window, whole) = (&windows[index], times[index]);
        let usual = window.seconds / window.steps.max(1.0);
        let seconds = (whole - self.waiting().min(usual)).max(0.0);
        // Scatter still to come, and that of the measured part.
        let scatter = (window.variance() * whole * (1.0 + whole / window.seconds)).sqrt() / window.rate();
        let unseen = self.look_seconds * whole / window.seconds;
        let spread = RANGE_DEVIATIONS * scatter.hypot(usual / 2.0).hypot(unseen);
        let least = times.into_iter().fold(whole, f64::min).min(seconds);
        let most = times.into_iter().fold(whole, f64::max);
        let eta = Eta {
            seconds,
            low: (least - spread).max(0.0),
            high: most + spread,
        };
        Some(Drain {
            eta,
            basis: Basis::Measured,
        })
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
