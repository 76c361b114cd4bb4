//! What follows from the files of the catalog.
//!
//! A replay may see a file again, and sees files in any order: each counts once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::catalog::SegmentId;
use crate::catalog::done::{Done, Sums};
use crate::catalog::losses::Losses;
use crate::claim::ClaimId;
use crate::task::TaskId;

/// The state of a job as the catalog tells it.
///
/// It holds about 50 bytes for each task that is done, and for each that was given away and is not
/// done: 50 MB for a million.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    done: BTreeMap<TaskId, Ended>,
    /// Tasks that others have given away and that are not done.
    given: HashSet<TaskId>,
    sums: Sums,
    losses: Losses,
    /// Of what each round does again: the round, and its losses.
    last_losses: (u32, Losses),
    /// What failed in each round, and what could not be removed. A resume tries all of it again, in the next
    /// round.
    failed: BTreeMap<u32, (u64, u64)>,
    /// Rounds and tasks in which something failed.
    with_failures: BTreeSet<(u32, TaskId)>,
}

/// What is kept of one task that is done.
#[derive(Clone, Copy, Debug)]
struct Ended {
    round: u32,
    epoch: u32,
    segments: u64,
}

impl Replay {
    /// Adds what is known of a task that is done.
    pub fn add(&mut self, task: TaskId, done: Done) {
        let Entry::Vacant(place) = self.done.entry(task) else {
            return;
        };
        place.insert(Ended {
            round: done.round,
            epoch: done.epoch,
            segments: done.segments,
        });
        self.given.remove(&task);
        let open = done.given.iter().filter(|given| !self.done.contains_key(given));
        self.given.extend(open);
        self.sums.add(&done.sums);
        match done.again {
            false => self.losses.add(&done.losses),
            true => {
                if done.round > self.last_losses.0 {
                    self.last_losses = (done.round, Losses::default());
                }
                if done.round == self.last_losses.0 {
                    self.last_losses.1.add(&done.losses);
                }
            }
        }
        let (failed, kept) = self.failed.entry(done.round).or_default();
        *failed += done.sums.failed;
        *kept += done.sums.kept;
        if done.sums.failed + done.sums.kept > 0 {
            self.with_failures.insert((done.round, task));
        }
    }

    /// Whether a task is known to be done.
    pub fn is_done(&self, task: TaskId) -> bool {
        self.done.contains_key(&task)
    }

    /// Returns the number of tasks that are done.
    pub fn count(&self) -> usize {
        self.done.len()
    }

    /// Returns the sums over all tasks that are done.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Returns what the target could not keep, over all tasks that are done.
    pub fn losses(&self) -> Losses {
        let mut losses = self.losses.clone();
        losses.add(&self.last_losses.1);
        losses
    }

    /// Returns how many nodes failed in a round: were not copied, or not removed.
    pub fn failed_in(&self, round: u32) -> u64 {
        let (failed, kept) = self.failed.get(&round).copied().unwrap_or_default();
        failed + kept
    }

    /// Returns how many nodes were not copied in a round.
    pub fn uncopied_in(&self, round: u32) -> u64 {
        self.failed.get(&round).copied().unwrap_or_default().0
    }

    /// Whether this claim has ended its task. What others of the same task have listed may be out of date.
    pub fn is_last(&self, claim: ClaimId) -> bool {
        self.done
            .get(&claim.task)
            .is_some_and(|done| done.epoch == claim.epoch.0)
    }

    /// Returns tasks of a round that are done and in which something failed.
    pub fn with_failures(&self, round: u32) -> impl Iterator<Item = TaskId> {
        let of_round = (round, TaskId([0; 16]))..=(round, TaskId([u8::MAX; 16]));
        self.with_failures.range(of_round).map(|(_, task)| *task)
    }

    /// Returns the round of a task that is done.
    pub fn round_of(&self, task: TaskId) -> Option<u32> {
        self.done.get(&task).map(|done| done.round)
    }

    /// Returns how many segments a task that is done has published.
    pub fn segments_of(&self, task: TaskId) -> Option<u64> {
        self.done.get(&task).map(|done| done.segments)
    }

    /// Returns a task that is done and has another number of segments among these than it had published.
    pub fn with_missing_segments(&self, segments: &[SegmentId]) -> Option<TaskId> {
        Self::missing(self.done.iter(), segments)
    }

    /// The same for the tasks whose segments are in one folder.
    pub fn with_missing_segments_in(&self, folder: u8, segments: &[SegmentId]) -> Option<TaskId> {
        let (mut first, mut last) = ([0; 16], [u8::MAX; 16]);
        (first[0], last[0]) = (folder, folder);
        Self::missing(self.done.range(TaskId(first)..=TaskId(last)), segments)
    }

    fn missing<'a>(
        mut done: impl Iterator<Item = (&'a TaskId, &'a Ended)>,
        segments: &[SegmentId],
    ) -> Option<TaskId> {
        let mut found: HashMap<TaskId, u64> = HashMap::new();
        for segment in segments {
            *found.entry(segment.claim.task).or_insert(0) += 1;
        }
        let is_whole = |task: &TaskId, done: &Ended| found.get(task).copied().unwrap_or(0) == done.segments;
        let missing = done.find(|(task, done)| !is_whole(task, done));
        missing.map(|(task, _)| *task)
    }

    /// Returns the tasks that are not done: of `roots`, and of what tasks that are done have given away.
    /// One that is not done may have given away further ones.
    #[cfg(test)]
    fn open(&self, roots: impl IntoIterator<Item = TaskId>) -> Vec<TaskId> {
        let mut open: Vec<TaskId> = roots
            .into_iter()
            .filter(|task| !self.is_done(*task) && !self.given.contains(task))
            .collect();
        open.extend(&self.given);
        open
    }

    /// Whether a task is not done: one of `roots`, or one that was given away.
    pub fn is_open(&self, roots: impl IntoIterator<Item = TaskId>) -> bool {
        !self.given.is_empty() || roots.into_iter().any(|task| !self.is_done(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> TaskId {
        TaskId([number; 16])
    }

    fn done(files: u64, given: &[u8]) -> Done {
        Done {
            round: 0,
            sums: Sums {
                files,
                ..Sums::default()
            },
            given: given.iter().map(|number| id(*number)).collect(),
            ..Done::default()
        }
    }

    #[test]
    fn a_replay_counts_each_task_once_in_any_order() {
        let all = [
            (1, done(1, &[2, 3])),
            (2, done(10, &[])),
            (3, done(100, &[4])),
            (4, done(1_000, &[])),
        ];
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let mut seen: Vec<_> = all.iter().chain(&all).cloned().collect();
            random.shuffle(&mut seen);
            let mut replay = Replay::default();
            seen.into_iter()
                .for_each(|(task, done)| replay.add(id(task), done));
            assert_eq!((replay.count(), replay.sums().files), (4, 1_111));
            assert!(replay.open([id(1)]).is_empty());
        }
    }

    #[test]
    fn losses_of_what_each_round_does_again_are_those_of_the_last_one() {
        let lost = |number| Losses([(ropeway_vfs::Loss::Owner, number)].into());
        let tasks = [
            (0, true, 10),
            (0, false, 1),
            (1, true, 20),
            (1, true, 5),
            (1, false, 2),
        ];
        for turned in [false, true] {
            let mut replay = Replay::default();
            let mut all: Vec<(u8, _)> = (1..).zip(tasks).collect();
            if turned {
                all.reverse();
            }
            for (number, (round, again, count)) in all {
                let done = Done {
                    round,
                    again,
                    losses: lost(count),
                    ..Done::default()
                };
                replay.add(id(number), done);
            }
            assert_eq!(replay.losses(), lost(28));
        }
    }

    #[test]
    fn a_job_is_open_until_every_task_that_was_given_away_is_done() {
        let mut replay = Replay::default();
        assert_eq!(replay.open([id(1)]), [id(1)]);
        replay.add(id(1), done(0, &[2, 3]));
        replay.add(id(2), done(0, &[]));
        assert_eq!(replay.open([id(1)]), [id(3)]);
        replay.add(id(3), done(0, &[1]));
        assert!(replay.open([id(1)]).is_empty());
    }
}
