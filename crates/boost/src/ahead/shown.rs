//! The figures of prefetching, for people and programs.

use std::sync::atomic::Ordering;

use ropeway_cache::predict::Source;
use serde::{Deserialize, Serialize};

use super::{Ahead, Job, State};
use crate::hogs::BringStatus;

/// Predictions shown, at most.
const SHOWN_MAX: usize = 20;

/// Figures of prefetching; all counters begin with the session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PredictStatus {
    /// Whether prefetching is on.
    pub is_on: bool,
    /// Blocks that programs asked for.
    pub requests: u64,
    /// By source of the prediction.
    pub sources: Vec<SourceStatus>,
    /// Files that were expected next or at this time, and those of them that were prefetched.
    pub files_predicted: u64,
    /// See [`files_predicted`](Self::files_predicted).
    pub files_fetched: u64,
    /// Blocks and bytes that were prefetched.
    pub blocks_fetched: u64,
    /// See [`blocks_fetched`](Self::blocks_fetched).
    pub bytes_fetched: u64,
    /// Predictions that were not carried out, for want of room on the line or of time.
    pub dropped: u64,
    /// Requests that come while a fetch takes place.
    pub lag: u32,
    /// What was brought back into the kernel's memory after memory was short.
    pub bringing: BringStatus,
    /// The last predictions, the newest first.
    pub next: Vec<NextStatus>,
}

/// Figures of a source of predictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceStatus {
    /// Its name: `stream` or `pair`.
    pub source: String,
    /// Blocks that it predicted and that were not in the cache.
    pub predicted: u64,
    /// Those of them that a program asked for when they were there.
    pub used: u64,
    /// Those that a program asked for before they were there.
    pub late: u64,
    /// Share of its likely predictions that come true, by the last ones.
    pub precision: f32,
    /// Share of its likely predictions that are carried out.
    pub budget: f32,
}

/// A prediction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NextStatus {
    /// The file.
    pub path: String,
    /// The block of 64 KiB in it; `None`: its attributes and its first blocks.
    pub block: Option<u64>,
    /// How likely, from 0 to 1.
    pub likelihood: f32,
    /// Why.
    pub because: String,
}

impl State {
    /// Remembers a prediction for people.
    pub(super) fn show(&mut self, job: Job, likelihood: f32, because: &'static str) {
        if self.shown.len() == SHOWN_MAX {
            self.shown.pop_back();
        }
        self.shown.push_front((job, likelihood, because));
    }
}

impl Ahead {
    /// Returns the figures.
    pub(crate) fn status(&self) -> PredictStatus {
        let state = self.state.lock();
        let figures = &self.figures;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let sources = state.learned.blocks.sources().map(|of| SourceStatus {
            source: of.source.name().to_owned(),
            predicted: load(&figures.predicted[of.source as usize]),
            used: load(&figures.used[of.source as usize]),
            late: load(&figures.late[of.source as usize]),
            precision: of.precision,
            budget: of.budget,
        });
        let next = state.shown.iter().filter_map(|(job, likelihood, because)| {
            let (number, block) = match job {
                Job::Block(block) => (block.file(), Some(block.index())),
                Job::File(number) => (*number, None),
            };
            Some(NextStatus {
                path: String::from_utf8_lossy(state.table.get(number)?.path.as_bytes()).into_owned(),
                block,
                likelihood: *likelihood,
                because: (*because).to_owned(),
            })
        });
        PredictStatus {
            is_on: true,
            requests: load(&figures.requests),
            next: next.collect(),
            sources: sources.into(),
            files_predicted: load(&figures.files_predicted),
            files_fetched: load(&figures.files_fetched),
            blocks_fetched: load(&figures.fetched),
            bytes_fetched: load(&figures.bytes),
            dropped: load(&figures.dropped),
            lag: state.lag.requests(),
            bringing: {
                let (bytes_used, bytes_lost) = state.brought.figures();
                BringStatus {
                    bytes_used,
                    bytes_lost,
                    ..BringStatus::default()
                }
            },
        }
    }
}

const _: () = assert!(Source::ALL.len() == 2, "the sources named above");
