//! How long a run takes, and how long a pass may take so that it ends in time. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::cell::{Key, Mode, Pattern};
use crate::bench::grid::Step;

/// Assumed rate of the page cache (a guess; only estimates depend on it).
const MEMORY_BPS: f64 = 1.5e9;
/// Assumed time of a system call that memory answers (a guess).
const CALL: Duration = Duration::from_micros(2);
/// Time of a pass that is not measured: opening, dropping the cache, syncing, saving (a guess).
const AROUND: Duration = Duration::from_millis(8);
/// Limits of a pass from which one is chosen.
const LIMITS_MS: [u64; 6] = [5000, 2000, 1000, 500, 200, 100];
/// Share of the budget that is planned; the rest is for what takes longer than estimated.
const PLANNED: f64 = 0.85;
/// Time for writing back what one cached pass has written. More would take the time of other passes.
const SETTLE: Duration = Duration::from_secs(4);
/// Least number of bytes of a cached pass of writes, however slow the device is.
const CACHED_MIN: u64 = 1 << 20;
/// Share of the budget that filling one file may take.
const FILL_SHARE: f64 = 0.2;
/// Files of less than this are measured several times in a pass, so that a pass is no single moment.
const PASS_BYTES: u64 = 4 << 20;
/// Largest number of files in a pass.
const FILES_MAX: u64 = 16;

/// What a short look at the target has found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Bytes a second written, until they are durable.
    pub write_bps: f64,
    /// Bytes a second read.
    pub read_bps: f64,
    /// Time of a small write alone.
    pub write_seconds: f64,
    /// Time of a small read alone.
    pub read_seconds: f64,
    /// Whether requests go to a server, whatever the mode.
    pub far: bool,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Steps of a round.
    pub steps: Vec<Step>,
    /// Time limit of a pass.
    pub pass: Duration,
    /// Number of rounds.
    pub runs: u32,
    /// Expected time of all rounds.
    pub expected: Duration,
    /// Expected bytes written in all rounds.
    pub written: u64,
    /// File sizes that are left out, since filling them takes too long.
    pub too_slow: Vec<u64>,
}

impl Plan {
    /// Plans `runs` rounds of these steps within a budget; `pass` is the limit of a pass if one was
    /// asked for.
    pub fn new(
        mut steps: Vec<Step>,
        runs: u32,
        budget: Duration,
        pass: Option<Duration>,
        speed: &Speed,
    ) -> Self {
        let mut too_slow: Vec<u64> = Vec::new();
        steps.retain(|step| {
            let fits = pass.is_some() || speed.fill(step.size) <= budget.mul_f64(FILL_SHARE);
            if !fits && too_slow.last() != Some(&step.size) {
                too_slow.push(step.size);
            }
            fits
        });
        let time = |pass: Duration, runs: u32| -> Duration {
            let round: Duration = steps.iter().map(|step| speed.step(step, pass).0).sum();
            round * runs + fills(&steps, speed)
        };
        let planned = budget.mul_f64(PLANNED);
        let limits = || LIMITS_MS.into_iter().map(Duration::from_millis);
        let chosen = pass
            .or_else(|| limits().find(|pass| time(*pass, runs) <= planned))
            .or_else(|| limits().find(|pass| time(*pass, 1) <= planned));
        let pass = chosen.unwrap_or(Duration::from_millis(LIMITS_MS[LIMITS_MS.len() - 1]));
        let written: f64 = steps.iter().map(|step| speed.step(step, pass).1).sum();
        let filled: u64 = sizes(&steps).sum();
        Self {
            pass,
            runs,
            expected: time(pass, runs),
            written: (written * f64::from(runs)) as u64 + filled,
            too_slow,
            steps,
        }
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.steps.iter().map(|step| step.patterns.len()).sum()
    }
}

fn sizes(steps: &[Step]) -> impl Iterator<Item = u64> {
    let mut last = None;
    steps
        .iter()
        .map(|step| step.size)
        .filter(move |size| last.replace(*size) != Some(*size))
}

fn fills(steps: &[Step], speed: &Speed) -> Duration {
    sizes(steps).map(|size| speed.fill(size)).sum()
}

/// Number of files of this size that a pass goes through.
pub fn files(size: u64) -> u64 {
    (PASS_BYTES / size.max(1)).clamp(1, FILES_MAX)
}

impl Speed {
    /// Time to fill a file.
    pub fn fill(&self, size: u64) -> Duration {
        seconds((size * files(size)) as f64 / self.write_bps.max(1.0))
    }

    /// Returns the most bytes that a pass may write through the page cache: what the device then
    /// writes back in some seconds.
    pub fn cached_bytes_max(&self) -> u64 {
        ((self.write_bps * SETTLE.as_secs_f64()) as u64).max(CACHED_MIN)
    }

    /// Returns time and bytes written of a step, with passes that are cut at `limit`.
    fn step(&self, step: &Step, limit: Duration) -> (Duration, f64) {
        let mut time = Duration::ZERO;
        let mut written = 0.0;
        for key in step.keys() {
            let (whole, bytes) = (self.pass(&key), (key.size * files(key.size)) as f64);
            let share = (limit.as_secs_f64() / whole.as_secs_f64().max(1e-9)).min(1.0);
            time += whole.min(limit) + AROUND;
            if key.pattern.writes() {
                let mut bytes = bytes * share;
                if key.mode == Mode::Cached && !self.far {
                    bytes = bytes.min(self.cached_bytes_max() as f64);
                    time += seconds(bytes / self.write_bps.max(1.0));
                }
                written += bytes;
            }
        }
        (time, written)
    }

    /// Returns the time of a pass that is not cut.
    fn pass(&self, key: &Key) -> Duration {
        let files = files(key.size) as f64;
        let (bytes, requests) = (key.size as f64 * files, key.records() as f64 * files);
        let in_flight = f64::from(key.depth).min(key.records() as f64).max(1.0);
        let (rate, one) = match key.pattern.writes() {
            true => (self.write_bps, self.write_seconds),
            false => (self.read_bps, self.read_seconds),
        };
        let device = bytes / rate.max(1.0);
        let each = requests * one / in_flight;
        let memory = bytes / MEMORY_BPS + requests * CALL.as_secs_f64();
        seconds(match (key.mode, key.pattern) {
            _ if self.far => device.max(each),
            (Mode::Direct, _) => device.max(each),
            (Mode::Cached, pattern) if pattern.writes() || pattern.is_warm() => memory,
            (_, Pattern::RandomRead | Pattern::Strided) => device.max(each),
            _ => device + memory,
        })
    }
}

/// Returns a time; absurd numbers of seconds are a day.
fn seconds(count: f64) -> Duration {
    const DAY: f64 = 86_400.0;
    Duration::from_secs_f64(if count.is_finite() {
        count.clamp(0.0, DAY)
    } else {
        DAY
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::grid::Grid;

    const DISK: Speed = Speed {
        write_bps: 150e6,
        read_bps: 160e6,
        write_seconds: 0.008,
        read_seconds: 0.010,
        far: false,
    };
    const FLASH: Speed = Speed {
        write_bps: 1.2e9,
        read_bps: 2.5e9,
        write_seconds: 30e-6,
        read_seconds: 90e-6,
        far: false,
    };
    const STICK: Speed = Speed {
        write_bps: 7e6,
        read_bps: 20e6,
        write_seconds: 0.02,
        read_seconds: 0.001,
        far: false,
    };
    const LINE: Speed = Speed {
        write_bps: 110e6,
        read_bps: 110e6,
        write_seconds: 0.0105,
        read_seconds: 0.0105,
        far: true,
    };

    fn plan(grid: &Grid, minutes: u64, speed: &Speed) -> Plan {
        Plan::new(
            grid.steps(u64::MAX),
            3,
            Duration::from_secs(minutes * 60),
            None,
            speed,
        )
    }

    #[test]
    fn every_device_is_done_within_its_budget() {
        for speed in [DISK, FLASH, STICK, LINE] {
            for (grid, minutes) in [(Grid::whole(), 15), (Grid::quick(), 1)] {
                let plan = plan(&grid, minutes, &speed);
                let least = plan.pass == Duration::from_millis(100);
                assert!(
                    least || plan.expected / plan.runs <= Duration::from_secs(minutes * 60),
                    "{speed:?}: {plan:?}"
                );
                assert!(plan.cells() > 40, "{speed:?}");
            }
        }
        assert!(plan(&Grid::whole(), 15, &FLASH).too_slow.is_empty());
        assert!(plan(&Grid::whole(), 15, &FLASH).pass >= plan(&Grid::whole(), 15, &DISK).pass);
    }

    #[test]
    fn a_stick_is_not_filled_for_an_hour() {
        let plan = plan(&Grid::whole(), 15, &STICK);
        assert_eq!(plan.too_slow, [4 << 30]);
        assert!(plan.steps.iter().all(|step| step.size < 4 << 30));
        // What one cached pass leaves in memory is written back in some seconds.
        assert_eq!(STICK.cached_bytes_max(), 28_000_000);
        let asked = Plan::new(
            Grid::whole().steps(u64::MAX),
            1,
            Duration::from_secs(60),
            Some(Duration::from_secs(1)),
            &STICK,
        );
        assert!(asked.too_slow.is_empty(), "--pass-time is a decision of the user");
        assert_eq!(asked.pass, Duration::from_secs(1));
    }

    #[test]
    fn estimates_follow_what_limits_a_pass() {
        let key = |pattern, mode, record, depth| Key {
            size: 1 << 28,
            record,
            mode,
            depth,
            pattern,
        };
        let time = |key: Key| DISK.pass(&key).as_secs_f64();
        let random = time(key(Pattern::RandomRead, Mode::Direct, 4096, 1));
        assert!((600.0..700.0).contains(&random), "65,536 seeks: {random}");
        let deep = time(key(Pattern::RandomRead, Mode::Direct, 4096, 16));
        assert!((deep * 16.0 / random - 1.0).abs() < 0.01);
        assert!(time(key(Pattern::Reread, Mode::Cached, 1 << 20, 1)) < 0.3);
        let durable = time(key(Pattern::Write, Mode::Fsync, 1 << 20, 1));
        assert!((1.7..2.1).contains(&durable), "{durable}");
        assert_eq!((files(64 << 10), files(1 << 20), files(1 << 30)), (16, 4, 1));
    }

    #[test]
    fn strange_speeds_give_no_strange_times() {
        let strange = Speed {
            write_bps: 0.0,
            read_bps: f64::NAN,
            write_seconds: f64::INFINITY,
            read_seconds: -1.0,
            far: false,
        };
        let plan = plan(&Grid::whole(), 15, &strange);
        assert!(plan.expected < Duration::from_secs(86_400 * 4000));
    }
}
