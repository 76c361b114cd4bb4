//! Copies, mirrors and comparisons.

use ropeway_vfs::event::{Counters, Eta, Limit, Phase};
use serde::{Deserialize, Serialize};

use super::{History, Message, Rates};

/// A copy, a mirror or a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Number in its process, for control.
    pub id: u32,
    /// `copy`, `mirror`, `check` or `device`.
    pub kind: String,
    /// Where from, the first few.
    pub sources: Vec<String>,
    /// Number of all sources.
    pub sources_total: u64,
    /// Where to.
    pub target: String,
    /// The phase; `None` before the first.
    pub phase: Option<Phase>,
    /// Seconds since the beginning, pauses included.
    pub seconds: f64,
    /// Counters since the beginning: read, sent, durable, totals, files.
    pub counters: Counters,
    /// Bytes a second to the device, over the last seconds.
    pub rate: f64,
    /// Time left, once it can be estimated.
    pub eta: Option<Eta>,
    /// What limits the speed.
    pub limit: Option<Limit>,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether it stops after what is under way.
    pub stopping: bool,
    /// Whether it can be paused, and its rate be changed.
    pub controls: Controls,
    /// `--bwlimit` as given; empty without.
    pub bwlimit: String,
    /// Bytes a second that it allows at this moment; `None` without a limit.
    pub bwlimit_bytes_per_s: Option<u64>,
    /// Items that failed, or that could not be compared.
    pub errors: u64,
    /// Differences that a comparison found.
    pub differences: u64,
    /// The last failures and notes, oldest first.
    pub messages: Vec<Message>,
    /// Rates of the last seconds.
    pub rates: Rates,
    /// The last five minutes.
    pub history: History,
}

/// What can be done with a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Controls {
    /// Pause and resume.
    pub pause: bool,
    /// Change of the rate.
    pub bwlimit: bool,
}

impl Job {
    /// Returns what it does in a word.
    pub fn state(&self) -> &'static str {
        if self.stopping {
            return "stopping";
        }
        if self.paused {
            return "PAUSED";
        }
        match self.phase {
            phase if self.kind == "check" && phase != Some(Phase::Done) => "comparing",
            None => "starting",
            Some(Phase::Preflight) => "counting",
            Some(Phase::Copying) => "copying",
            Some(Phase::Flushing) => "flushing",
            Some(Phase::Verifying) => "verifying",
            Some(Phase::Watching) => "watching",
            Some(Phase::Done) => "done",
        }
    }

    /// Returns what happened to files beside being copied, in words, with how many there were; without
    /// what did not happen.
    pub fn special_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = &self.counters;
        let named = [
            ("skipped", counters.files_skipped),
            ("failed", counters.files_failed),
            ("deleted", counters.deleted),
            ("retried", counters.retries),
        ];
        named.into_iter().filter(|(_, count)| *count > 0)
    }

    /// Returns from where to where it goes.
    pub fn ends(&self) -> String {
        let first = self.sources.first().map_or("?", String::as_str);
        let more = match self.sources_total {
            0 | 1 => String::new(),
            total => format!(" and {} more", total - 1),
        };
        format!("{first}{more} → {}", self.target)
    }

    /// Returns the bytes that were sent and are not known to be durable, about: sent bytes include
    /// those of unfinished files, durable ones those of skipped files.
    pub fn dirty_bytes(&self) -> u64 {
        let counters = &self.counters;
        let durable = counters.bytes_durable.saturating_sub(counters.bytes_skipped);
        counters.bytes_sent.saturating_sub(durable)
    }

    /// Returns the share that is done, 0 to 1; `None` while nothing is known.
    pub fn share_done(&self) -> Option<f64> {
        let counters = &self.counters;
        (counters.bytes_total > 0).then(|| {
            let done = counters.bytes_durable.max(counters.bytes_done);
            (done as f64 / counters.bytes_total as f64).clamp(0.0, 1.0)
        })
    }
}
