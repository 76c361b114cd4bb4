//! Whether a device is fit for a cache: figures, thresholds and the verdict. No I/O; [`measure`] makes
//! the figures.
//!
//! The thresholds are those that were published for `ReadyBoost`: random reads of 4 KB above 2.5 MB/s,
//! random writes of 512 KB above 1.75 MB/s. A device must also answer faster than the source that
//! it stands in front of.

mod measure;

use std::time::Duration;

pub use measure::{MeasureError, measure};

/// Bytes of a random read.
pub const READ_BYTES: usize = 4096;

/// Bytes of a random write.
pub const WRITE_BYTES: usize = 512 * 1024;

/// Least rate of random reads of 4 KB, in bytes per second (published for `ReadyBoost`).
pub const READS_LEAST: f64 = 2.5e6;

/// Least rate of random writes of 512 KB, in bytes per second (published for `ReadyBoost`).
pub const WRITES_LEAST: f64 = 1.75e6;

/// Part of the free space that a cache gets at most, as a divisor: a device is not filled up.
const FREE_PART: u64 = 2;

/// Largest cache that is advised: an index of 32 bytes a block takes 16 MiB for it.
const ADVISED_MAX: u64 = 32 << 30;

/// Operations of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Bytes of one operation.
    pub block_bytes: usize,
    /// Number of operations.
    pub operations: u64,
    /// Bytes per second, one operation at a time.
    pub bytes_per_s: f64,
    /// Time that half of the operations took at most.
    pub p50: Duration,
    /// Time that 90 % took at most.
    pub p90: Duration,
    /// Time that 99 % took at most.
    pub p99: Duration,
    /// The longest time.
    pub max: Duration,
}

impl Series {
    /// Sums up operations of `block_bytes` by the time that each took. `None` without any.
    pub fn of(block_bytes: usize, mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        let max = *times.last()?;
        let total: Duration = times.iter().sum();
        let operations = times.len() as u64;
        let seconds = total.as_secs_f64().max(1e-9);
        Some(Self {
            block_bytes,
            operations,
            bytes_per_s: (operations * block_bytes as u64) as f64 / seconds,
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max,
        })
    }
}

/// What was measured of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Random reads of [`READ_BYTES`].
    pub reads: Series,
    /// Random writes of [`WRITE_BYTES`].
    pub writes: Series,
    /// Bytes of the file that was written and read.
    pub file_bytes: u64,
    /// Bytes that were free before.
    pub free_bytes: u64,
}

/// Why a device is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// Random reads do not reach [`READS_LEAST`].
    SlowReads,
    /// Random writes do not reach [`WRITES_LEAST`].
    SlowWrites,
    /// The source answers random reads as fast; with its bytes per second.
    SlowerThanSource(f64),
}

/// Returns why a device is refused, or nothing if it is fit. `source` is what random reads of
/// [`READ_BYTES`] gave at the source.
pub fn judge(figures: &Figures, source: Option<&Series>) -> Vec<Refusal> {
    let reads = figures.reads.bytes_per_s;
    let slower = source.filter(|source| source.bytes_per_s >= reads);
    [
        (reads <= READS_LEAST).then_some(Refusal::SlowReads),
        (figures.writes.bytes_per_s <= WRITES_LEAST).then_some(Refusal::SlowWrites),
        slower.map(|source| Refusal::SlowerThanSource(source.bytes_per_s)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the advised size of a cache in bytes: half of the free space, at most 32 GiB, whole MiB.
/// 0 if there is no room for the smallest one.
pub fn advise(free_bytes: u64) -> u64 {
    let half = (free_bytes / FREE_PART).min(ADVISED_MAX);
    let whole = half - half % (1 << 20);
    if whole < 128 << 20 { 0 } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(block_bytes: usize, bytes_per_s: f64) -> Series {
        let time = Duration::from_secs_f64(block_bytes as f64 / bytes_per_s);
        Series::of(block_bytes, vec![time; 10]).expect("ten operations")
    }

    fn figures(reads: f64, writes: f64) -> Figures {
        Figures {
            reads: series(READ_BYTES, reads),
            writes: series(WRITE_BYTES, writes),
            file_bytes: 1 << 30,
            free_bytes: 1 << 34,
        }
    }

    #[test]
    fn the_published_thresholds_decide() {
        assert_eq!(judge(&figures(2.6e6, 1.8e6), None), []);
        assert_eq!(judge(&figures(2.4e6, 1.8e6), None), [Refusal::SlowReads]);
        assert_eq!(judge(&figures(2.6e6, 1.7e6), None), [Refusal::SlowWrites]);
        let both = [Refusal::SlowReads, Refusal::SlowWrites];
        assert_eq!(judge(&figures(1e6, 1e6), None), both);
    }

    #[test]
    fn a_device_slower_than_its_source_is_refused() {
        let disk = series(READ_BYTES, 0.6e6);
        assert_eq!(judge(&figures(20e6, 20e6), Some(&disk)), []);
        let fast = series(READ_BYTES, 40e6);
        let refusals = judge(&figures(20e6, 20e6), Some(&fast));
        assert!(
            matches!(refusals[..], [Refusal::SlowerThanSource(rate)] if (rate - 40e6).abs() < 1e4),
            "{refusals:?}"
        );
    }

    #[test]
    fn a_series_has_its_percentiles() {
        let times = (1..=101).rev().map(Duration::from_millis).collect();
        let series = Series::of(4096, times).expect("some");
        let millis = [series.p50, series.p90, series.p99, series.max].map(|time| time.as_millis());
        assert_eq!(millis, [51, 91, 100, 101]);
        assert_eq!(series.operations, 101);
        assert_eq!(Series::of(4096, Vec::new()), None);
    }

    #[test]
    fn the_advice_is_half_of_the_space() {
        assert_eq!(advise(1 << 30), 1 << 29);
        assert_eq!(advise(1 << 40), 32 << 30);
        assert_eq!(advise(200 << 20), 0);
    }
}
