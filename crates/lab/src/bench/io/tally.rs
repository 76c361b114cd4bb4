//! What a pass counts. Pure.

use std::time::Duration;

use crate::bench::latency::Latencies;
use crate::bench::result::Sample;

/// Points of a pass that are kept; then every second one is dropped.
const POINTS_MAX: usize = 64;
/// Shorter passes say nothing about bursts (a guess: some hundred times what a clock tick is).
const BURST_SECONDS_MIN: f64 = 0.2;

/// Counts of one worker, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Latencies of the requests.
    pub(crate) latencies: Latencies,
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// Time of the last answer, since the start.
    pub(crate) end: Duration,
    /// Whether it ended before all was done.
    pub(crate) cut: bool,
    course: Course,
}

impl Tally {
    /// Counts an answer that came at `now`.
    pub(crate) fn add(&mut self, now: Duration, latency: Duration, bytes: u64) {
        self.latencies.add(latency);
        self.bytes += bytes;
        self.end = now;
        self.course.look(now, self.bytes);
    }

    /// Adds the counts of a worker that ran at the same time.
    pub(crate) fn join(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.bytes += other.bytes;
        self.end = self.end.max(other.end);
        self.cut |= other.cut;
        self.course.join(&other.course);
    }

    /// Adds the counts of the next file, which followed this one.
    pub(crate) fn follow(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.bytes += other.bytes;
        self.end += other.end;
        self.cut |= other.cut;
        // Each file begins anew.
        self.course = Course::default();
    }

    /// Returns the result, with a flush after the last answer.
    pub(crate) fn sample(&self, flush: Option<Duration>) -> Sample {
        let micros = |span: Option<Duration>| span.unwrap_or_default().as_secs_f64() * 1e6;
        let quarters = self.course.quarters(self.end);
        Sample {
            seconds: (self.end + flush.unwrap_or_default()).as_secs_f64(),
            bytes: self.bytes,
            operations: self.latencies.number(),
            flush_seconds: flush.map(|flush| flush.as_secs_f64()),
            p50_us: rounded(micros(self.latencies.quantile(0.5))),
            p99_us: rounded(micros(self.latencies.quantile(0.99))),
            max_us: rounded(micros(Some(self.latencies.most()))),
            cut: self.cut,
            first_bps: quarters.map(|[first, _]| first.round()),
            last_bps: quarters.map(|[_, last]| last.round()),
            ..Sample::default()
        }
    }
}

/// Rounds to a hundredth.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Bytes over time, in few points.
#[derive(Clone, Debug, Default)]
struct Course {
    points: Vec<(Duration, u64)>,
    latest: (Duration, u64),
    /// Calls from one point to the next.
    every: u64,
    calls: u64,
}

impl Course {
    fn look(&mut self, now: Duration, bytes: u64) {
        self.calls += 1;
        self.latest = (now, bytes);
        if !self.calls.is_multiple_of(self.every.max(1)) {
            return;
        }
        if self.points.len() >= POINTS_MAX {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = self.every.max(1) * 2;
        }
        self.points.push((now, bytes));
    }

    /// Bytes that were moved until a moment.
    fn at(&self, moment: Duration) -> f64 {
        let after = self.points.partition_point(|point| point.0 < moment);
        let (time, bytes) = match after {
            0 => (Duration::ZERO, 0),
            _ => self.points[after - 1],
        };
        let next = self.points.get(after).unwrap_or(&self.latest);
        let span = next.0.saturating_sub(time).as_secs_f64();
        let share = (moment.saturating_sub(time)).as_secs_f64() / span.max(1e-9);
        bytes as f64 + next.1.saturating_sub(bytes) as f64 * share.min(1.0)
    }

    fn join(&mut self, other: &Self) {
        if self.points.is_empty() {
            self.clone_from(other);
            return;
        }
        let latest = (self.latest.0.max(other.latest.0), self.latest.1 + other.latest.1);
        let mut times: Vec<Duration> = self
            .points
            .iter()
            .chain(&other.points)
            .map(|point| point.0)
            .collect();
        times.sort_unstable();
        let thin = times.len().div_ceil(POINTS_MAX);
        let times = times.into_iter().rev().step_by(thin.max(1));
        let mut points: Vec<(Duration, u64)> = times
            .map(|time| (time, (self.at(time) + other.at(time)) as u64))
            .collect();
        points.reverse();
        self.points = points;
        self.latest = latest;
    }

    /// Bytes a second in the first and in the last quarter of the time.
    fn quarters(&self, end: Duration) -> Option<[f64; 2]> {
        let seconds = end.as_secs_f64();
        if seconds < BURST_SECONDS_MIN || self.points.len() < 8 {
            return None;
        }
        let quarter = seconds / 4.0;
        let (first, last) = (self.at(end / 4), self.at(end) - self.at(end - end / 4));
        Some([first / quarter, last / quarter])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_burst_is_seen_in_the_quarters() {
        // 10 ms for each of the first 50 records, then 40 ms.
        let (mut tally, mut now) = (Tally::default(), Duration::ZERO);
        for record in 0..100 {
            let span = if record < 50 { ms(10) } else { ms(40) };
            now += span;
            tally.add(now, span, MIB);
        }
        let sample = tally.sample(None);
        assert!((sample.seconds - 2.5).abs() < 1e-9);
        assert_eq!((sample.bytes, sample.operations), (100 * MIB, 100));
        let (first, last) = (sample.first_bps.unwrap(), sample.last_bps.unwrap());
        assert!((3.0..4.1).contains(&(first / last)), "{first} {last}");
        assert!((sample.rate() / (40.0 * MIB as f64) - 1.0).abs() < 0.01);
    }

    #[test]
    fn long_and_short_passes_keep_few_points() {
        let mut tally = Tally::default();
        for record in 1..=100_000_u64 {
            tally.add(
                Duration::from_micros(record * 10),
                Duration::from_micros(10),
                4096,
            );
        }
        assert!(tally.course.points.len() <= POINTS_MAX);
        let sample = tally.sample(Some(ms(500)));
        assert_eq!((sample.seconds, sample.flush_seconds), (1.5, Some(0.5)));
        let share = sample.first_bps.unwrap() / sample.last_bps.unwrap();
        assert!((0.95..1.05).contains(&share), "{share}");
        let mut short = Tally::default();
        short.add(ms(1), ms(1), 4096);
        assert_eq!(short.sample(None).first_bps, None);
    }

    #[test]
    fn workers_are_joined_and_files_follow_each_other() {
        let worker = |end: u64| {
            let mut tally = Tally::default();
            for step in 1..=20 {
                tally.add(ms(end * step / 20), ms(end / 20), MIB);
            }
            tally
        };
        let mut all = Tally::default();
        for end in [1000, 1000, 900] {
            all.join(&worker(end));
        }
        let sample = all.sample(None);
        assert_eq!(
            (sample.seconds, sample.bytes, sample.operations),
            (1.0, 60 * MIB, 60)
        );
        let share = sample.first_bps.unwrap() / (62.0 * MIB as f64);
        assert!((0.9..1.1).contains(&share), "{share}");
        let mut files = worker(500);
        files.follow(&worker(700));
        let sample = files.sample(None);
        assert_eq!(
            (sample.seconds, sample.operations, sample.first_bps),
            (1.2, 40, None)
        );
    }
}
