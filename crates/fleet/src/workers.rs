//! Signs of life of workers, and what they say of themselves.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One process that works on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u64);

impl WorkerId {
    /// Parses what `Display` writes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 16 || !text.iter().all(is_digit) {
            return None;
        }
        u64::from_str_radix(std::str::from_utf8(text).ok()?, 16)
            .ok()
            .map(Self)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It has no task, and would take one.
    #[default]
    Idle,
    /// It works on a task.
    Working,
    /// It has ended, or cannot go on.
    Left,
}

/// Amounts of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amounts {
    /// Files and links that were dealt with: copied, found equal, or failed.
    pub files: u64,
    /// Bytes of files that were copied.
    pub copied: u64,
    /// Bytes read from the source.
    pub read: u64,
    /// Bytes written to the target.
    pub written: u64,
}

impl Amounts {
    fn since(self, earlier: Self) -> Self {
        Self {
            files: self.files.saturating_sub(earlier.files),
            copied: self.copied.saturating_sub(earlier.copied),
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

/// Amounts of the last seconds. A worker measures them by its own clock, so whoever reads one sign of life knows its
/// rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recent {
    /// Length of the span in milliseconds; 0 at the first sign.
    pub span_ms: u64,
    /// Amounts in it.
    pub amounts: Amounts,
}

/// Span over which a worker measures its rates. A guess: several signs of life with the usual lease, and some slices.
const RECENT: Duration = Duration::from_secs(30);

/// Signs of life that it keeps for that at most. With more, the span is shorter.
const MARKS_MAX: usize = 64;

/// The last signs of life of this worker.
#[derive(Debug, Default)]
pub struct Trail {
    marks: VecDeque<(Duration, Amounts)>,
    /// The progress, and when it last changed.
    progress: (u64, Duration),
}

impl Trail {
    /// Notes a sign of life. Returns what happened lately, and for how long there was no progress: a worker without a
    /// task makes none.
    pub fn note(
        &mut self,
        now: Duration,
        amounts: Amounts,
        (is_working, progress): (bool, u64),
    ) -> (Recent, Duration) {
        if !is_working || progress != self.progress.0 || self.marks.is_empty() {
            self.progress = (progress, now);
        }
        // The second one is as old as is wanted: the first is older than that.
        while self.marks.len() >= MARKS_MAX
            || self
                .marks
                .get(1)
                .is_some_and(|(at, _)| now.saturating_sub(*at) >= RECENT)
        {
            self.marks.pop_front();
        }
        let (begin, before) = self.marks.front().copied().unwrap_or((now, amounts));
        self.marks.push_back((now, amounts));
        let recent = Recent {
            span_ms: now.saturating_sub(begin).as_millis() as u64,
            amounts: amounts.since(before),
        };
        (recent, now.saturating_sub(self.progress.1))
    }
}

/// The longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(3_600);

/// A sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Beat {
    /// Changes with each sign.
    pub beat: u64,
    /// What the worker does.
    pub activity: Activity,
    /// Name of its machine.
    pub host: String,
    /// Process number there.
    pub process: u32,
    /// Its task, for display.
    pub task: Option<String>,
    /// Grows with everything that the worker does.
    pub progress: u64,
    /// Files that it has copied.
    pub files: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// What it did until now.
    pub amounts: Amounts,
    /// What it did lately.
    pub recent: Recent,
    /// Milliseconds for which it works without any progress, at this sign.
    pub stalled_ms: u64,
    /// Milliseconds without a sign of life after which others take its task; 0 if it did not say.
    pub lease_ms: u64,
    /// Why it left.
    pub reason: Option<String>,
}

impl Beat {
    /// Returns the time without a sign of life after which others take its task. Others may have written it, so it has a
    /// bound.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms).min(LEASE_MAX)
    }

    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// Parses the bytes; `None` if they are something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(read: u64) -> Amounts {
        Amounts {
            read,
            ..Amounts::default()
        }
    }

    #[test]
    fn a_worker_knows_its_rates_of_the_last_half_minute_and_how_long_it_stood_still() {
        let mut trail = Trail::default();
        let second = Duration::from_secs;
        let (first, stalled) = trail.note(second(0), read(0), (true, 0));
        assert_eq!((first.span_ms, stalled), (0, Duration::ZERO));
        for at in 1..100 {
            let (recent, stalled) = trail.note(second(at), read(at * 10), (true, at));
            assert_eq!(recent.span_ms, 1_000 * at.min(30));
            assert_eq!(recent.amounts.read, 10 * at.min(30));
            assert_eq!(stalled, Duration::ZERO);
        }
        for at in 100..120 {
            assert_eq!(trail.note(second(at), read(990), (true, 99)).1, second(at - 99));
        }
        // One without a task does not stand still.
        assert_eq!(trail.note(second(120), read(990), (false, 99)).1, Duration::ZERO);
        assert_eq!(trail.note(second(130), read(990), (true, 99)).1, second(10));
    }

    #[test]
    fn a_sign_of_an_older_program_is_read() {
        let beat = Beat::decode(br#"{"beat":3,"activity":"working","files":5}"#).unwrap();
        assert_eq!((beat.files, beat.recent.span_ms, beat.lease_ms), (5, 0, 0));
        assert_eq!(Beat::decode(&beat.encode()), Some(beat));
    }
}
