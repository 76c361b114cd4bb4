//! Whether a worker is well, and how fast it is, from its last sign of life. Pure.

use std::time::Duration;

use serde::Serialize;

use crate::run::WorkOptions;
use crate::workers::{Activity, Amounts, Beat};

/// How a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It makes progress, or waits for a task.
    Well,
    /// It shows signs of life, and has made no progress for longer than its lease.
    Stalled,
    /// It has shown no sign of life for longer than its lease, and holds a task: others take it.
    Silent,
    /// It has ended.
    Left,
    /// It has shown no sign of life for longer than its lease, and holds no task.
    Gone,
}

impl Health {
    /// Returns the health of a worker. `silent`: the time since its sign of life, if it is known. Whether one that is
    /// silent holds a task is not known here.
    pub fn of(beat: &Beat, silent: Option<Duration>) -> Self {
        let lease = match beat.lease_ms {
            // It did not say which it has.
            0 => WorkOptions::default().lease,
            lease => Duration::from_millis(lease),
        };
        if beat.activity == Activity::Left {
            return Self::Left;
        }
        if silent.is_some_and(|silent| silent > lease) {
            return Self::Silent;
        }
        match beat.activity {
            Activity::Working if Duration::from_millis(beat.stalled_ms) > lease => Self::Stalled,
            _ => Self::Well,
        }
    }

    /// Whether others wait for a worker like this.
    pub fn is_straggler(self) -> bool {
        matches!(self, Self::Stalled | Self::Silent)
    }

    /// Whether the worker has ended, as far as anybody can tell.
    pub fn is_past(self) -> bool {
        matches!(self, Self::Left | Self::Gone)
    }

    /// Returns the place among others in a list: stragglers come first.
    pub fn rank(self) -> u8 {
        match self {
            Self::Silent | Self::Stalled => 0,
            Self::Well => 1,
            Self::Left => 2,
            Self::Gone => 3,
        }
    }

    /// Whether the worker is at work or waits for it.
    pub fn is_present(self) -> bool {
        matches!(self, Self::Well | Self::Stalled)
    }
}

/// Amounts a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Files and links that were dealt with: copied, found equal, or failed.
    pub files: f64,
    /// Bytes of files that were copied.
    pub copied: f64,
    /// Bytes read from the source.
    pub read: f64,
    /// Bytes written to the target.
    pub written: f64,
}

impl Rates {
    /// Returns the rates that a worker has measured; `None` if it is too young, or not at work any more.
    pub fn of(beat: &Beat, health: Health) -> Option<Self> {
        if beat.recent.span_ms == 0 || !health.is_present() {
            return None;
        }
        let seconds = beat.recent.span_ms as f64 / 1_000.0;
        let Amounts {
            files,
            copied,
            read,
            written,
        } = beat.recent.amounts;
        let rate = |amount: u64| amount as f64 / seconds;
        Some(Self {
            files: rate(files),
            copied: rate(copied),
            read: rate(read),
            written: rate(written),
        })
    }

    /// Adds the rates of another worker.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.copied += other.copied;
        self.read += other.read;
        self.written += other.written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::Recent;

    #[test]
    fn stragglers_are_those_without_a_sign_or_without_progress_for_a_lease() {
        let second = |number| Some(Duration::from_secs(number));
        let beat = |activity, stalled_ms| Beat {
            activity,
            stalled_ms,
            lease_ms: 10_000,
            ..Beat::default()
        };
        let working = beat(Activity::Working, 0);
        assert_eq!(Health::of(&working, second(10)), Health::Well);
        assert_eq!(Health::of(&working, second(11)), Health::Silent);
        assert_eq!(Health::of(&working, None), Health::Well);
        let stalled = beat(Activity::Working, 10_001);
        assert_eq!(Health::of(&stalled, second(1)), Health::Stalled);
        assert_eq!(Health::of(&beat(Activity::Idle, 0), second(11)), Health::Silent);
        let left = beat(Activity::Left, 0);
        assert_eq!(Health::of(&left, second(1_000)), Health::Left);
        // One that does not say its lease has the usual one.
        let old = Beat {
            lease_ms: 0,
            ..working
        };
        assert_eq!(Health::of(&old, second(30)), Health::Well);
        assert_eq!(Health::of(&old, second(31)), Health::Silent);
    }

    #[test]
    fn rates_are_those_of_workers_that_are_there() {
        let beat = Beat {
            recent: Recent {
                span_ms: 2_000,
                amounts: Amounts {
                    files: 10,
                    copied: 6_000,
                    read: 8_000,
                    written: 4_000,
                },
            },
            ..Beat::default()
        };
        let mut sum = Rates::default();
        for _ in 0..2 {
            sum.add(&Rates::of(&beat, Health::Well).unwrap());
        }
        let expected = Rates {
            files: 10.0,
            copied: 6_000.0,
            read: 8_000.0,
            written: 4_000.0,
        };
        assert_eq!(sum, expected);
        assert_eq!(Rates::of(&beat, Health::Silent), None);
        assert_eq!(Rates::of(&beat, Health::Left), None);
        assert_eq!(Rates::of(&beat, Health::Gone), None);
        assert_eq!(Rates::of(&Beat::default(), Health::Well), None);
    }
}
