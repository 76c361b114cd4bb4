//! A job of a fleet, as a view reads it from its folder.

use ropeway_vfs::event::Eta;
use serde::{Deserialize, Serialize};

use super::History;
use crate::format;

/// Most workers that are shown; a fleet of more has its stragglers among them.
pub const WORKERS_MAX: usize = 256;

/// A copy by many machines. The figures are those of all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fleet {
    /// Number in its process.
    pub id: u32,
    /// What is copied.
    pub source: String,
    /// Where to.
    pub target: String,
    /// `copying`, `finishing` or `complete`.
    pub phase: String,
    /// Times that it was resumed after failures.
    pub rounds: u32,
    /// Tasks that are done.
    pub tasks_done: u64,
    /// Tasks that are known and not done. Each may give away further ones.
    pub tasks_open: u64,
    /// Tasks among them that a worker has claimed.
    pub tasks_claimed: u64,
    /// Files of tasks that are done.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Folders of tasks that are done.
    pub folders: u64,
    /// Files that were copied; the others were equal.
    pub copied: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Nodes that failed in the last round.
    pub failed: u64,
    /// Devices, sockets, temporary names of Ropeway and the like.
    pub skipped: u64,
    /// What only the target had.
    pub extra: u64,
    /// Of that, what was removed.
    pub deleted: u64,
    /// Files of the source when it was last copied.
    pub files_expected: Option<u64>,
    /// Their bytes.
    pub bytes_expected: Option<u64>,
    /// What all workers do in a second.
    pub rates: FleetRates,
    /// Time left until the tree is copied.
    pub eta: Option<Eta>,
    /// Why it is not known: `nobody_works`, `too_early`, `still_walking` or `last_steps`; empty if it is known.
    pub eta_unknown: String,
    /// Workers that are stalled or silent.
    pub stragglers: u64,
    /// Number of all workers.
    pub workers_total: u64,
    /// Number of those that are at work or wait for it.
    pub workers_present: u64,
    /// The workers: stragglers, then those that work, then those that have left or are gone.
    pub workers: Vec<FleetWorker>,
    /// The first failures.
    pub failures: Vec<FleetFailure>,
    /// Why the job cannot be read now; then the other figures are the last ones.
    pub error: String,
    /// The last five minutes of this view.
    pub history: History,
}

/// Amounts a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetRates {
    /// Files that were dealt with: copied, found equal, or failed.
    pub files: f64,
    /// Bytes of files that were copied.
    pub copied: f64,
    /// Bytes read from the source.
    pub read: f64,
    /// Bytes written to the target.
    pub written: f64,
}

/// A worker of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetWorker {
    /// Its number.
    pub id: String,
    /// Its machine.
    pub host: String,
    /// Its process there.
    pub process: u32,
    /// `well`, `stalled`, `silent`, `left` or `gone`.
    pub state: String,
    /// Seconds since its last sign of life.
    pub silent_seconds: Option<f64>,
    /// Seconds for which it works without progress.
    pub stalled_seconds: f64,
    /// Files that it copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it does in a second.
    pub rates: Option<FleetRates>,
    /// Its task.
    pub task: Option<String>,
    /// Why it left.
    pub reason: Option<String>,
}

/// A node that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetFailure {
    /// Its path in the source.
    pub path: String,
    /// The reason.
    pub message: String,
}

impl Fleet {
    /// Returns from where to where it goes.
    pub fn ends(&self) -> String {
        format!("{} → {}", self.source, self.target)
    }

    /// Returns the time left in words, or why it is not known.
    pub fn left(&self) -> String {
        match (&self.eta, self.eta_unknown.as_str()) {
            (Some(eta), _) => format::eta(eta),
            (None, "nobody_works") => "unknown: no worker is at work".to_owned(),
            (None, "too_early") => "unknown: too few tasks are done".to_owned(),
            (None, "still_walking") => "unknown: the tree is still being walked".to_owned(),
            (None, "last_steps") => "unknown: only the last steps are left".to_owned(),
            _ => "–".to_owned(),
        }
    }

    /// Returns the part of the files that is done, if the number of all is about known.
    pub fn share_done(&self) -> Option<f64> {
        let expected = self.files_expected.filter(|expected| *expected > 0)?;
        // More may be there than was expected.
        Some(format::share(self.files, expected.max(self.files)))
    }

    /// Returns the rates in words.
    pub fn speed(&self) -> String {
        let rates = &self.rates;
        format!(
            "{} files/s · copied {} · read {} · written {}",
            format::count(rates.files.max(0.0) as u64),
            format::rate(rates.copied),
            format::rate(rates.read),
            format::rate(rates.written)
        )
    }
}

impl FleetWorker {
    /// Returns its machine and process.
    pub fn name(&self) -> String {
        format!("{} {}", self.host, self.process)
    }

    /// Whether others wait for it.
    pub fn is_straggler(&self) -> bool {
        matches!(self.state.as_str(), "stalled" | "silent")
    }

    /// Returns how it is, in words.
    pub fn condition(&self) -> String {
        match (self.state.as_str(), &self.reason) {
            ("silent", _) => {
                let silent = format::seconds(self.silent_seconds.unwrap_or_default());
                format!("no sign of life for {silent}")
            }
            ("gone", _) => {
                let silent = format::seconds(self.silent_seconds.unwrap_or_default());
                format!("gone: no sign of life for {silent}, and no task")
            }
            ("stalled", _) => format!("no progress for {}", format::seconds(self.stalled_seconds)),
            ("left", Some(reason)) => format!("left: {reason}"),
            ("left", None) => "left".to_owned(),
            _ if self.task.is_some() => "working".to_owned(),
            _ => "idle".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_says_how_long_it_takes_or_why_it_does_not_know() {
        let mut fleet = Fleet {
            eta_unknown: "still_walking".into(),
            ..Fleet::default()
        };
        assert_eq!(fleet.left(), "unknown: the tree is still being walked");
        fleet.eta = Some(Eta {
            seconds: 1500.0,
            low: 1300.0,
            high: 1750.0,
        });
        assert_eq!(fleet.left(), "25m (22-29m)");
        assert_eq!(fleet.share_done(), None);
        (fleet.files, fleet.files_expected) = (5, Some(4));
        assert_eq!(fleet.share_done(), Some(1.0));
    }

    #[test]
    fn stragglers_say_for_how_long() {
        let worker = |state: &str| FleetWorker {
            state: state.into(),
            silent_seconds: Some(130.0),
            stalled_seconds: 61.0,
            task: Some("folder a".into()),
            ..FleetWorker::default()
        };
        assert_eq!(worker("silent").condition(), "no sign of life for 2m10s");
        assert_eq!(worker("stalled").condition(), "no progress for 1m01s");
        assert_eq!(worker("well").condition(), "working");
        assert_eq!(
            worker("gone").condition(),
            "gone: no sign of life for 2m10s, and no task"
        );
        assert!(worker("silent").is_straggler() && worker("stalled").is_straggler());
        assert!(!worker("left").is_straggler() && !worker("gone").is_straggler());
    }
}
