//! How much of the line to a source prefetching may use. Pure.
//!
//! It has a fifth of what the line carries, and nothing while the line is busy. How much a line
//! carries shows only when it is full: then the source answers later than it usually does. Until
//! that happens, it is taken to carry [`ASSUMED`], or the most that was seen.

use std::time::Duration;

/// Share of the line for prefetching.
const SHARE: f64 = 0.2;
/// Bytes per second that a line is taken to carry until it shows: 8 MiB. A guess: 64 Mbit/s.
const ASSUMED: f64 = 8_388_608.0;
/// Bytes per second that any line is taken to carry.
const LEAST: f64 = 65_536.0;
/// Time over which traffic is counted. A guess: some round trips of a long line.
const WINDOW: Duration = Duration::from_millis(250);
/// A line is busy if the answers of a window take so many times as long as usual, and longer by
/// this. A guess: disks and radios vary by less.
const LATE: f64 = 2.0;
const LATE_BY: f64 = 0.005;
/// Weight of an answer in what is usual. A guess: some minutes count.
const WEIGHT: f64 = 1.0 / 1024.0;
/// Bytes that may be saved up: a short burst.
const SAVED_MAX: f64 = 4_194_304.0;
/// Growth of the rate of a line that was full once, for each window in which it is not.
const GROWTH: f64 = 1.05;
/// Answers before which nothing is known to be usual, and answers of a window that tell something.
const ANSWERS_MIN: f64 = 32.0;
const WINDOW_MIN: f64 = 3.0;
/// Busy windows in a row after which the line is full, not just slow for a moment.
const FULL: u32 = 3;

/// The traffic of a line, and what it allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Bytes per second that it is taken to carry.
    rate: f64,
    /// What it is taken to carry at most without having been seen to.
    assumed: f64,
    window: Duration,
    bytes: f64,
    /// Answers of the window, and their seconds.
    answers: f64,
    seconds: f64,
    /// Seconds that an answer usually takes.
    usual: f64,
    /// Answers so far.
    known: f64,
    /// Busy windows in a row.
    busy: u32,
    saved: f64,
    last: Duration,
}

impl Line {
    /// Begins at a moment. `rate`: bytes per second, if known.
    pub(super) fn new(now: Duration, rate: Option<f64>) -> Self {
        let rate = rate.unwrap_or(ASSUMED);
        Self {
            rate,
            assumed: rate,
            window: now,
            bytes: 0.0,
            answers: 0.0,
            seconds: 0.0,
            usual: 0.0,
            known: 0.0,
            busy: 0,
            // The first predictions come with the first openings.
            saved: (SHARE * rate).min(SAVED_MAX),
            last: now,
        }
    }

    /// Notes an answer to a program, and how long it took.
    pub(super) fn demanded(&mut self, bytes: u64, took: Duration, now: Duration) {
        self.roll(now);
        self.bytes += bytes as f64;
        let took = took.as_secs_f64();
        self.answers += 1.0;
        self.seconds += took;
        self.known += 1.0;
        self.usual += (took - self.usual) * WEIGHT.max(1.0 / self.known);
    }

    /// Returns the seconds that an answer usually takes, if that is known.
    pub(super) fn usual(&self) -> Option<f64> {
        (self.known > 0.0).then_some(self.usual)
    }

    /// Notes bytes that were prefetched.
    pub(super) fn prefetched(&mut self, bytes: u64, now: Duration) {
        self.roll(now);
        self.bytes += bytes as f64;
    }

    /// Takes bytes for a prefetch. Returns whether there are as many.
    pub(super) fn take(&mut self, bytes: u64, now: Duration) -> bool {
        self.roll(now);
        let passed = now.saturating_sub(self.last).as_secs_f64();
        self.last = now;
        self.saved = (self.saved + passed * SHARE * self.rate).min(SAVED_MAX);
        let may = self.busy == 0 && self.saved >= bytes as f64;
        if may {
            self.saved -= bytes as f64;
        }
        may
    }

    /// Ends a window that is over.
    fn roll(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.window);
        if passed < WINDOW {
            return;
        }
        let seen = self.bytes / passed.as_secs_f64();
        let is_known = self.known >= ANSWERS_MIN && self.answers >= WINDOW_MIN;
        let is_busy = is_known && self.seconds / self.answers > LATE * self.usual + LATE_BY;
        self.busy = if is_busy { self.busy + 1 } else { 0 };
        if self.busy >= FULL {
            self.rate = seen.max(LEAST);
        } else if self.busy == 0 && self.bytes > 0.0 {
            let grown = (self.rate * GROWTH).min(self.assumed.max(self.rate));
            self.rate = grown.max(seen);
        }
        (self.window, self.bytes, self.answers, self.seconds) = (now, 0.0, 0.0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns the bytes a second that may be prefetched from a moment on, while nothing else is read.
    fn allowed(line: &mut Line, from: u64) -> f64 {
        while line.take(65_536, at(from)) {}
        let taken = (from..from + 4000).filter(|ms| line.take(65_536, at(*ms)));
        taken.count() as f64 * 65_536.0 / 4.0
    }

    #[test]
    fn prefetching_has_a_fifth_of_what_the_line_is_taken_or_seen_to_carry() {
        let mut line = Line::new(at(0), None);
        assert!((0.17..0.21).contains(&(allowed(&mut line, 100) / ASSUMED)));
        for step in 0..50 {
            line.demanded(2_000_000, at(40), at(10_000 + step * 100));
        }
        let share = allowed(&mut line, 15_100) / 20e6;
        assert!((0.17..0.25).contains(&share), "{share} of 20 MB/s");
    }

    #[test]
    fn a_line_that_is_full_is_left_alone_and_remembered() {
        let mut line = Line::new(at(0), None);
        for step in 0..2000 {
            line.demanded(65_536, at(75), at(step * 75));
        }
        assert!(line.take(65_536, at(150_001)));
        // Others use it: answers take five times as long, and 200 KB/s come through.
        for step in 0..200 {
            let now = at(150_100 + step * 50);
            line.demanded(10_000, at(400), now);
            if step > 10 {
                assert!(!line.take(1, now), "step {step}");
            }
        }
        // It is free again: a fifth of 200 KB/s is not much.
        line.demanded(50_000, at(75), at(161_000));
        line.demanded(50_000, at(75), at(161_300));
        let allowed = allowed(&mut line, 162_000);
        assert!(allowed < 0.3 * 200_000.0, "{allowed}");
        for step in 0..400 {
            line.demanded(50_000, at(75), at(167_000 + step * 250));
        }
        assert!(line.rate > ASSUMED / 2.0, "it is tried again: {}", line.rate);
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let mut line = Line::new(at(0), Some(1e9));
        let mut taken = 0;
        while line.take(65_536, at(100_000_000)) {
            taken += 65_536;
        }
        assert!(taken as f64 <= SAVED_MAX);
    }
}
