//! `cargo xtask probe-reads`: the other process that must not suffer while a copy runs.
//!
//! It reads 4 KiB at offsets that never repeat, with read-ahead off and a pause after each read (a light reader,
//! not a load), and prints percentiles of the latencies as one JSON line.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};

use crate::rng::Rng;

/// Bytes of one read: a page.
const BLOCK: u64 = 4096;

/// Options of `probe-reads`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// File to read, much larger than what will be read of it and not in the page cache
    file: PathBuf,
    /// Ends after this time
    seconds: f64,
    /// Ends when this file appears
    #[arg(long, value_name = "FILE")]
    stop: Option<PathBuf>,
    /// Pause after each read
    #[arg(long, value_name = "MS", default_value_t = 2)]
    pause_ms: u64,
}

/// Latencies of a run, in milliseconds.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Latencies {
    /// Number of reads.
    pub(crate) reads: usize,
    /// Half were faster.
    pub(crate) p50_ms: f64,
    /// Nine of ten were faster.
    pub(crate) p90_ms: f64,
    /// 99 of 100 were faster.
    pub(crate) p99_ms: f64,
    /// The slowest.
    pub(crate) max_ms: f64,
}

impl Latencies {
    /// Percentiles of some latencies; `None` of none.
    pub(crate) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort();
        let max = *times.last()?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let rank = |percent: usize| ms(times[((times.len() * percent).div_ceil(100)).max(1) - 1]);
        Some(Self {
            reads: times.len(),
            p50_ms: rank(50),
            p90_ms: rank(90),
            p99_ms: rank(99),
            max_ms: ms(max),
        })
    }
}

/// Reads and prints.
///
/// # Errors
/// If the file cannot be read or is shorter than a block.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let context = || format!("cannot read {}", arguments.file.display());
    let file = File::open(&arguments.file).with_context(context)?;
    let blocks = file.metadata().with_context(context)?.len() / BLOCK;
    ensure!(
        blocks > 0,
        "{} is shorter than {BLOCK} bytes",
        arguments.file.display()
    );
    fadvise(&file, 0, None, Advice::Random).with_context(context)?;
    let mut order = Order::new(blocks);
    let mut buffer = vec![0; BLOCK as usize];
    let mut times = Vec::new();
    let end =
        Instant::now() + Duration::try_from_secs_f64(arguments.seconds).context("SECONDS is no time")?;
    let stopped = || arguments.stop.as_ref().is_some_and(|stop| stop.exists());
    while Instant::now() < end && !stopped() {
        let offset = order.next() * BLOCK;
        let start = Instant::now();
        file.read_exact_at(&mut buffer, offset).with_context(context)?;
        times.push(start.elapsed());
        thread::sleep(Duration::from_millis(arguments.pause_ms));
    }
    let latencies = Latencies::of(times).context("there was no time for a read")?;
    println!("{}", serde_json::to_string(&latencies)?);
    Ok(())
}

/// A full-period walk over `0..blocks` in no visible order: a linear congruential generator over the next power of
/// two (Hull and Dobell: odd increment, multiplier 1 mod 4), values outside skipped.
struct Order {
    blocks: u64,
    mask: u64,
    increment: u64,
    state: u64,
}

impl Order {
    fn new(blocks: u64) -> Self {
        let mut rng = Rng::new(blocks);
        let mask = blocks.next_power_of_two() - 1;
        Self {
            blocks,
            mask,
            increment: rng.next() | 1,
            state: rng.next() & mask,
        }
    }

    fn next(&mut self) -> u64 {
        loop {
            self.state = self
                .state
                .wrapping_mul(0x5851_F42D_4C95_7F2D)
                .wrapping_add(self.increment)
                & self.mask;
            // The low bits of such a generator alternate; folding the high half over them is a bijection.
            let bits = (self.mask + 1).trailing_zeros();
            let value = self.state ^ (self.state >> bits.div_ceil(2));
            if value < self.blocks {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_block_is_read_twice_and_none_is_left_out() {
        for blocks in [1, 2, 3, 100, 1024] {
            let mut order = Order::new(blocks);
            let seen: BTreeSet<u64> = (0..blocks).map(|_| order.next()).collect();
            assert_eq!(seen.len() as u64, blocks);
        }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        let latencies = Latencies::of(times).unwrap();
        assert_eq!(
            (latencies.p50_ms, latencies.p99_ms, latencies.max_ms),
            (50.0, 99.0, 100.0)
        );
        assert!(Latencies::of(Vec::new()).is_none());
    }
}
