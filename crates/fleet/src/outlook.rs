//! How long a job will still take. Pure.
//!
//! The tree is walked while it is copied, so nobody knows how much is left. Two things tell it:
//!
//! * A job before this one copied the same source: what it had is expected again.
//! * The tasks themselves. A task that ends may have given away further ones. If the last tasks gave away fewer than one
//!   each, what is open dies out, and about `open / (1 - given)` tasks are left. Each is taken to be like the last ones.
//!   While as many tasks are given away as end, nothing can be said, and nothing is said.
//!
//! The time for that is what a copy would say of it ([`EtaEstimator`]), which learns from the times at which tasks ended.
//! A task counts as one file more, so that tasks without files cost something too. All uncertainties widen the range.

use std::collections::VecDeque;
use std::time::Duration;

use ropeway_plan::EtaEstimator;
use ropeway_vfs::event::Eta;
use serde::{Deserialize, Serialize};

/// Tasks that must have ended before anything is said of those that are left. A guess.
const TASKS_MIN: usize = 8;

/// Tasks that are looked at: the last ones. A guess: enough for a narrow range.
const TASKS_MAX: usize = 4_096;

/// Tasks given away by each that ends, at most, for an estimate: above, what is left could be ten times what is open.
const GIVEN_MAX: f64 = 0.9;

/// The range extends this many standard deviations to both sides, as in [`EtaEstimator`].
const DEVIATIONS: f64 = 1.64;

/// A source that was copied before may have changed: the range allows for this part more or less. A guess.
const CHANGED: f64 = 0.05;

/// A pause without any task that ends, as a part of the time that is looked at, from which on the job stood still: what
/// was before it is not looked at. A guess.
const PAUSE: f64 = 0.5;

/// Files and bytes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Nodes that are no folders.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A task that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedTask {
    /// When it ended, in nanoseconds since 1970 by the clock of the target.
    pub at_ns: i128,
    /// What it dealt with.
    pub size: Size,
    /// Tasks that it gave away.
    pub given: u64,
}

/// Why nothing is said of the time left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// No worker is at work.
    NobodyWorks,
    /// Too few tasks have ended.
    TooEarly,
    /// As many tasks are found as end: most of the tree may not be walked yet.
    StillWalking,
    /// The tree is copied. What is left are large files, hard links, deletions, and attributes of folders.
    LastSteps,
}

/// What an estimate is made from.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The moment, by the clock of the target.
    pub now_ns: i128,
    /// Tasks that are open.
    pub open: u64,
    /// Tasks among them that somebody works on.
    pub claimed: u64,
    /// What all tasks that are done dealt with.
    pub done: Size,
    /// What the source had when it was copied before.
    pub expected: Option<Size>,
}

/// What is left, at least, probably, and at most: bytes, and files with tasks.
type Rest = [(f64, f64); 3];

/// The last tasks that ended, in the order of their ends.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    ended: VecDeque<EndedTask>,
}

impl Outlook {
    /// Adds tasks that ended, in any order. Tasks that ended before all that are kept may be forgotten.
    pub fn add(&mut self, tasks: &mut [EndedTask]) {
        tasks.sort_unstable_by_key(|task| task.at_ns);
        let is_later = |task: &EndedTask| self.ended.back().is_none_or(|last| last.at_ns <= task.at_ns);
        let in_order = tasks.first().is_none_or(is_later);
        self.ended.extend(tasks.iter());
        if !in_order {
            self.ended.make_contiguous().sort_by_key(|task| task.at_ns);
        }
        while self.ended.len() > TASKS_MAX {
            self.ended.pop_front();
        }
    }

    /// Estimates the time left.
    ///
    /// # Errors
    /// Nothing can be said; the value says why.
    pub fn estimate(&self, situation: &Situation) -> Result<Eta, Unknown> {
        let tasks = self.lately();
        if tasks.len() < 2 {
            return Err(Unknown::TooEarly);
        }
        let rest = match expected(situation) {
            Some(rest) => rest,
            None => left(&tasks, situation)?,
        };
        let zero = tasks[0].at_ns;
        let since = |at_ns: i128| Duration::from_nanos(u64::try_from(at_ns - zero).unwrap_or(0));
        let mut estimator = EtaEstimator::new();
        // The first task only sets the zero: nobody knows when it began.
        let mut sum = (0_u64, 0_u64);
        for task in &tasks {
            sum = (sum.0 + task.size.bytes, sum.1 + task.size.files + 1);
            estimator.observe(since(task.at_ns), sum.0, sum.1);
        }
        estimator.observe(since(situation.now_ns), sum.0, sum.1);
        let of = |(bytes, files): (f64, f64)| estimator.estimate(bytes as u64, files.ceil() as u64);
        let [low, likely, high] = rest.map(of);
        let (low, likely, high) = low
            .zip(likely)
            .zip(high)
            .map(|((low, likely), high)| (low, likely, high))
            .ok_or(Unknown::TooEarly)?;
        Ok(Eta {
            seconds: likely.seconds,
            low: low.low.min(likely.low),
            high: high.high.max(likely.high),
        })
    }

    /// Returns the last half of the tasks, at least the last eight, and none before a long pause.
    fn lately(&self) -> Vec<EndedTask> {
        let count = (self.ended.len() / 2).max(2 * TASKS_MIN).min(self.ended.len());
        let tasks: Vec<EndedTask> = self.ended.range(self.ended.len() - count..).copied().collect();
        let span = match (tasks.first(), tasks.last()) {
            (Some(first), Some(last)) => (last.at_ns - first.at_ns) as f64,
            _ => return tasks,
        };
        let is_pause = |pair: &[EndedTask]| (pair[1].at_ns - pair[0].at_ns) as f64 > PAUSE * span;
        match tasks.windows(2).rposition(is_pause) {
            Some(at) if tasks.len() - at > TASKS_MIN => tasks[at + 1..].to_vec(),
            _ => tasks,
        }
    }
}

/// Returns what is left of what was expected; `None` if nothing was, or if there is more than that.
fn expected(situation: &Situation) -> Option<Rest> {
    let (expected, done) = (situation.expected?, situation.done);
    if done.files >= expected.files {
        return None;
    }
    let rest = |change: f64| {
        let left = |expected: u64, done: u64| (expected as f64 * (1.0 + change) - done as f64).max(0.0);
        let files = left(expected.files, done.files);
        (
            left(expected.bytes, done.bytes),
            files.max(1.0) + situation.open as f64,
        )
    };
    Some([rest(-CHANGED), rest(0.0), rest(CHANGED)])
}

/// Returns what is left if the tasks to come are like the last ones.
fn left(tasks: &[EndedTask], situation: &Situation) -> Result<Rest, Unknown> {
    if tasks.len() < TASKS_MIN {
        return Err(Unknown::TooEarly);
    }
    let given = Spread::of(tasks.iter().map(|task| task.given as f64));
    // One more that gives away a task: none of a few did, and the next one may.
    let given_max = given.mean + given.error() + 1.0 / tasks.len() as f64;
    if given_max > GIVEN_MAX {
        return Err(Unknown::StillWalking);
    }
    let given_min = (given.mean - given.error()).max(0.0);
    let (open, claimed) = (situation.open as f64, situation.claimed as f64);
    // Those that somebody works on are half done, on average.
    let counts = [
        (open - claimed) / (1.0 - given_min),
        (open - claimed / 2.0) / (1.0 - given.mean.min(GIVEN_MAX)),
        open / (1.0 - given_max),
    ];
    let bytes = Spread::of(tasks.iter().map(|task| task.size.bytes as f64));
    let files = Spread::of(tasks.iter().map(|task| task.size.files as f64 + 1.0));
    let signs = [-1.0, 0.0, 1.0];
    Ok(std::array::from_fn(|at| {
        let amount = |of: &Spread| of.of_all(counts[at], signs[at]);
        (amount(&bytes), amount(&files).max(1.0))
    }))
}

/// Mean and standard deviation of a sample.
struct Spread {
    count: f64,
    mean: f64,
    deviation: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = (values.clone().count() as f64).max(1.0);
        let mean = values.clone().sum::<f64>() / count;
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Self {
            count,
            mean,
            deviation: variance.sqrt(),
        }
    }

    /// How far the mean may be from the true one.
    fn error(&self) -> f64 {
        DEVIATIONS * self.deviation / self.count.sqrt()
    }

    /// Returns the sum over so many further values, at one end of its range.
    fn of_all(&self, count: f64, sign: f64) -> f64 {
        let scatter = DEVIATIONS * self.deviation * count.sqrt() + self.error() * count;
        (count * self.mean + sign * scatter).max(0.0)
    }
}

#[cfg(test)]
#[path = "outlook_tests.rs"]
mod tests;
