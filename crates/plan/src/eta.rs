//! Estimates the time left of a job.
//!
//! Time is modelled as `bytes * a + files * b`: a price for each byte and a price for each file.
//! One price alone is wrong by factors on real trees, where folders of tiny files and folders of
//! large ones alternate.
//!
//! The two prices are fitted by least squares over increments of progress, under two conditions:
//! neither is negative, and together they explain exactly the time that has passed. The second
//! condition keeps the fit honest on uniform work, where the two prices cannot be told apart (and
//! need not be). It also prevents the bias that chunky counters cause in plain least squares. One
//! number remains to fit: the part of the time that went into bytes.
//!
//! Before the increments separate the two prices, typical prices for the work done give that part:
//! sixteen files of 200 MiB are all bytes, ten thousand of 1 KiB nearly all files. This prior is
//! taken as right within a factor of ten in the ratio of the prices. So it is certain where it
//! hardly matters, and soon outvoted where it does.
//!
//! Rules for the caller:
//! * Feed what is *durable* where durability is asked for. Counters that a page cache satisfies
//!   promise too much.
//! * Count the same work (without what costs nothing, such as skipped files, holes and reflinks) in
//!   what is done and in what remains.
//! * Call [`EtaEstimator::observe`] often; calls without progress are cheap.
//!
//! Durable counters move in steps. Time is therefore counted from step to step, so neither the
//! delay of the first step nor the wait for the next one counts as slowness. Between steps the
//! estimate counts down.
//!
//! Memory is bounded: increments are kept in bins, whose width doubles when there are too many.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ropeway_vfs::event::Eta;

/// Most bins kept; beyond that, pairs are merged. Enough to distinguish the folders of a tree, few
/// enough to fit in microseconds.
const BINS_MAX: usize = 128;
/// Width of the first bins in seconds: roughly the interval at which a progress bar is drawn.
const BIN_SECONDS: f64 = 0.05;
/// Weight of the oldest increment relative to the newest. At one half, a device that has become
/// slower shows, and stalls that are part of its nature are not forgotten. (A guess, checked by the
/// tests of this module.)
const OLDEST_WEIGHT: f64 = 0.5;
/// Prior price of a file in seconds: a guess between `cp -a` of small files on a fast disk (35 µs
/// measured, see docs/benchmarks.md) and the seeks of a slow one (10 ms).
const FILE_SECONDS_PRIOR: f64 = 100e-6;
/// Prior price of a byte in seconds: gigabit Ethernet, 113 MB/s measured (fact sheet, C).
const BYTE_SECONDS_PRIOR: f64 = 1.0 / 113e6;
/// One standard deviation of the ratio of these two, as a factor. The ratio ranges from 1 KiB a
/// file (a stick of 10 MB/s and a fast processor) to 1 MiB (a disk's seek): ten to each side of the
/// prior, and more.
const RATIO_FACTOR: f64 = 10.0;
/// Prior scatter of one step as a part of its length: a checkpoint falls anywhere between two
/// files. It counts as one bin's. Set by the simulations of this module: at 0.3, noise is taken for
/// the price of files where big ones come first; at 1.0, seeks are learned too late.
const STEP_SCATTER_PRIOR: f64 = 0.5;
/// The range extends this many standard deviations to both sides, so nine of ten ends should be
/// inside.
const RANGE_DEVIATIONS: f64 = 1.64;
/// Range before the second step, when the scatter is unknown: half to twice.
const FIRST_RANGE: (f64, f64) = (0.5, 2.0);

/// Progress in a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    seconds: f64,
    bytes: f64,
    files: f64,
}

impl Bin {
    fn add(&mut self, other: Bin) {
        self.seconds += other.seconds;
        self.bytes += other.bytes;
        self.files += other.files;
    }
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    seconds: f64,
    bytes: u64,
    files: u64,
}

/// Estimates the time left of a job.
#[derive(Clone, Debug)]
pub struct EtaEstimator {
    /// The counters at the last step.
    last: Option<Mark>,
    /// Time of the latest call.
    now_seconds: f64,
    /// The first step, kept apart since it includes the start-up delay.
    first: Option<Bin>,
    /// Number of steps in `bins`.
    steps: f64,
    bins: Vec<Bin>,
    bin_seconds: f64,
}

impl Default for EtaEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl EtaEstimator {
    /// Makes an estimator without observations.
    pub fn new() -> Self {
        Self {
            last: None,
            now_seconds: 0.0,
            first: None,
            steps: 0.0,
            bins: Vec::with_capacity(BINS_MAX),
            bin_seconds: BIN_SECONDS,
        }
    }

    /// Records the work done at `now` (time since any fixed moment). The first call sets the zero:
    /// work of an earlier run says nothing. Counters that go back count as standing still.
    pub fn observe(&mut self, now: Duration, done_bytes: u64, done_files: u64) {
        let seconds = now.as_secs_f64().max(self.now_seconds);
        self.now_seconds = seconds;
        let mark = Mark {
            seconds,
            bytes: done_bytes,
            files: done_files,
        };
        let Some(last) = self.last else {
            self.last = Some(mark);
            return;
        };
        let step = Bin {
            seconds: seconds - last.seconds,
            bytes: done_bytes.saturating_sub(last.bytes) as f64,
            files: done_files.saturating_sub(last.files) as f64,
        };
        if step.bytes + step.files == 0.0 || step.seconds <= 0.0 {
            return;
        }
        self.last = Some(Mark {
            bytes: done_bytes.max(last.bytes),
            files: done_files.max(last.files),
            ..mark
        });
        if self.first.is_none() {
            self.first = Some(step);
        } else {
            self.push(step);
        }
    }

    /// Returns the time that the remaining work will take; `None` before there was any progress.
    pub fn estimate(&self, remaining_bytes: u64, remaining_files: u64) -> Option<Eta> {
        let rest = Bin {
            seconds: 0.0,
            bytes: remaining_bytes as f64,
            files: remaining_files as f64,
        };
        if rest.bytes + rest.files == 0.0 {
            return Some(Eta {
                seconds: 0.0,
                low: 0.0,
                high: 0.0,
            });
        }
        let idle = self.now_seconds - self.last?.seconds;
        if self.bins.is_empty() {
            let mut first = self.first?;
            // The next step is due when as much time has passed again.
            let due = first.seconds;
            first.seconds += (idle - due).max(0.0);
            let whole = Prices::fit(&[first], &[1.0]).cost(rest);
            let seconds = (whole - idle.min(due)).max(0.0);
            return Some(Eta {
                seconds,
                low: seconds * FIRST_RANGE.0,
                high: seconds * FIRST_RANGE.1,
            });
        }
        let steps_seconds: f64 = self.bins.iter().map(|bin| bin.seconds).sum();
        let pause = steps_seconds / self.steps;
        let mut bins = self.bins.clone();
        if idle > 2.0 * pause {
            // Longer than the wait for the next step: a stall.
            bins.push(Bin {
                seconds: idle - pause,
                ..Bin::default()
            });
        }
        let weights = weights(&bins);
        let prices = Prices::fit(&bins, &weights);
        let whole = prices.cost(rest);
        let seconds = (whole - idle.min(pause)).max(0.0);
        let spread = RANGE_DEVIATIONS * prices.deviation(rest, whole, self.steps);
        Some(Eta {
            seconds,
            low: (seconds - spread).max(0.0),
            high: seconds + spread,
        })
    }

    fn push(&mut self, step: Bin) {
        self.steps += 1.0;
        match self.bins.last_mut() {
            Some(bin) if bin.seconds < self.bin_seconds => bin.add(step),
            _ => self.bins.push(step),
        }
        if self.bins.len() == BINS_MAX {
            self.bin_seconds *= 2.0;
            self.bins = self
                .bins
                .chunks(2)
                .map(|pair| {
                    let mut sum = Bin::default();
                    pair.iter().for_each(|bin| sum.add(*bin));
                    sum
                })
                .collect();
        }
    }
}

/// Weights from [`OLDEST_WEIGHT`] for the oldest instant to 1 for the newest, exponentially.
fn weights(bins: &[Bin]) -> Vec<f64> {
    let whole: f64 = bins.iter().map(|bin| bin.seconds).sum();
    let mut before = 0.0;
    bins.iter()
        .map(|bin| {
            let age = whole - before - bin.seconds / 2.0;
            before += bin.seconds;
            OLDEST_WEIGHT.powf(age / whole)
        })
        .collect()
}

/// The fitted model.
#[derive(Clone, Copy, Debug)]
struct Prices {
    byte_seconds: f64,
    file_seconds: f64,
    /// Weighted sums of the fitted increments.
    sum: Bin,
    /// Standard deviation of the part of the time that went into bytes.
    byte_part_deviation: f64,
    /// Variance of the time for one second of work, in s^2/s (the scatter grows as in a random
    /// walk).
    variance: f64,
}

impl Prices {
    /// Fits `bins`: at least one, each of positive length.
    fn fit(bins: &[Bin], weights: &[f64]) -> Self {
        let mut sum = Bin::default();
        for (bin, weight) in bins.iter().zip(weights) {
            sum.add(Bin {
                seconds: bin.seconds * weight,
                bytes: bin.bytes * weight,
                files: bin.files * weight,
            });
        }
        let (part, byte_part_deviation) = match (sum.bytes > 0.0, sum.files > 0.0) {
            (true, true) => byte_part(bins, weights, sum),
            (true, false) => (1.0, 0.0),
            _ => (0.0, 0.0),
        };
        let price = |part: f64, amount: f64, prior: f64| match amount > 0.0 {
            true => part * sum.seconds / amount,
            false => prior,
        };
        let mut prices = Self {
            byte_seconds: price(part, sum.bytes, BYTE_SECONDS_PRIOR),
            file_seconds: price(1.0 - part, sum.files, FILE_SECONDS_PRIOR),
            sum,
            byte_part_deviation,
            variance: 0.0,
        };
        let scatter: f64 = bins
            .iter()
            .zip(weights)
            .map(|(bin, weight)| weight * (bin.seconds - prices.cost(*bin)).powi(2))
            .sum();
        prices.variance = scatter / sum.seconds;
        prices
    }

    fn cost(&self, work: Bin) -> f64 {
        work.bytes * self.byte_seconds + work.files * self.file_seconds
    }

    /// Returns one standard deviation of `cost(rest)`, which is `whole`. It combines the scatter
    /// still to come, the scatter in the fit, and the uncertainty of the two prices where the rest
    /// is of another kind than the work done.
    fn deviation(&self, rest: Bin, whole: f64, steps: f64) -> f64 {
        let scatter = self.variance * whole * (1.0 + whole / self.sum.seconds);
        let ratio = |rest: f64, sum: f64| if sum > 0.0 { rest / sum } else { 0.0 };
        let tilt = ratio(rest.bytes, self.sum.bytes) - ratio(rest.files, self.sum.files);
        let mixture = self.sum.seconds * tilt * self.byte_part_deviation;
        // Few steps say little about the scatter: allow one step more or less.
        let steps = whole / (steps + 1.0);
        (scatter + mixture * mixture + steps * steps).sqrt()
    }
}

/// Returns the part of the time that went into bytes, 0..=1, and its standard deviation.
///
/// With all sums scaled to 1, a bin should take `part * bytes + (1 - part) * files`. So `part *
/// (bytes - files)` has to explain `time - files`. The scatter of a bin grows with its length, so
/// its square is weighted by 1 / length. The prior decides where bytes and files always came in the
/// same proportion, and until there are enough bins to separate scatter from prices.
fn byte_part(bins: &[Bin], weights: &[f64], sum: Bin) -> (f64, f64) {
    let rows = || {
        bins.iter().zip(weights).map(|(bin, weight)| {
            let files = bin.files / sum.files;
            let time = bin.seconds / sum.seconds;
            (weight / time, bin.bytes / sum.bytes - files, time - files)
        })
    };
    let (mut xx, mut xy) = (0.0, 0.0);
    for (weight, x, y) in rows() {
        xx += weight * x * x;
        xy += weight * x * y;
    }
    let (prior, prior_deviation) = byte_part_prior(sum);
    let prior_variance = prior_deviation * prior_deviation;
    if xx <= f64::EPSILON {
        return (prior, prior_deviation);
    }
    let free = (xy / xx).clamp(0.0, 1.0);
    let squares: f64 = rows().map(|(weight, x, y)| weight * (y - free * x).powi(2)).sum();
    let scatter = STEP_SCATTER_PRIOR * STEP_SCATTER_PRIOR / bins.len() as f64;
    let variance = (squares + scatter) / (bins.len() as f64);
    let strength = variance / prior_variance;
    let part = ((xy + strength * prior) / (xx + strength)).clamp(0.0, 1.0);
    (part, (variance / (xx + strength)).sqrt())
}

/// Returns the part of the time of `sum` that bytes take at the prior prices, and its standard
/// deviation.
fn byte_part_prior(sum: Bin) -> (f64, f64) {
    let ratio = sum.files * FILE_SECONDS_PRIOR / (sum.bytes * BYTE_SECONDS_PRIOR);
    let part = |ratio: f64| 1.0 / (1.0 + ratio);
    let expected = part(ratio);
    let (less, more) = (part(ratio * RATIO_FACTOR), part(ratio / RATIO_FACTOR));
    (expected, (expected - less).max(more - expected))
}
