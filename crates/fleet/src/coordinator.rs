//! What a job needs next, from what is done.
//!
//! There is no process that must live: every worker that finds nothing to do asks [`next`], and all
//! of them come to the same answer. Making a task twice makes it once ([`crate::task::TaskId`]).

use std::collections::HashSet;

use crate::catalog::{Replay, Sums};
use crate::store::SEGMENT_FOLDERS;
use crate::task::{Task, TaskId, Work};

/// Files with several names for one task of links: what a worker holds in memory, about 200 bytes
/// each.
const LINKS_EACH: u64 = 100_000;

/// Parts of large files for one task that joins them: about 200 bytes each.
const PARTS_EACH: u64 = 100_000;

/// Nodes to delete for one task.
const DELETIONS_EACH: u64 = 100_000;

/// Folders up to which one task sets the attributes of all, and for each task that does so before it if there are
/// more. A guess: one worker is done with them in minutes, and a kill costs no more. Tests of this crate, and simulated
/// fleets (feature `mutations`), do not make so many.
const FOLDERS_EACH: u64 = if cfg!(feature = "mutations") {
    6
} else if cfg!(test) {
    1_000
} else {
    100_000
};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Others are at work.
    Wait,
    /// Make these tasks.
    Make(Vec<Task>),
    /// Everything is done.
    Finished,
}

/// The state of a job.
#[derive(Debug)]
pub struct Situation<'a> {
    /// What is done.
    pub replay: &'a Replay,
    /// Tasks that exist and may not be done.
    pub tasks: &'a HashSet<TaskId>,
    /// The tasks that each resume added.
    pub rounds: &'a [Vec<Task>],
}

/// Returns what the job needs next.
pub fn next(situation: &Situation<'_>) -> Plan {
    let first = [Task::root()];
    let roots = first.iter().chain(situation.rounds.iter().flatten());
    let missing = |tasks: Vec<Task>| {
        let exists = |task: &Task| {
            let id = task.id();
            situation.tasks.contains(&id) || situation.replay.is_done(id)
        };
        let missing: Vec<Task> = tasks.into_iter().filter(|task| !exists(task)).collect();
        match missing.is_empty() {
            true => Plan::Wait,
            false => Plan::Make(missing),
        }
    };
    // Not by the list of tasks: a listing is not one moment.
    if situation.replay.is_open(roots.clone().map(Task::id)) {
        return missing(roots.cloned().collect());
    }
    for phase in late(situation) {
        let is_done = |task: &Task| situation.replay.is_done(task.id());
        if !phase.iter().all(is_done) {
            return missing(phase);
        }
    }
    Plan::Finished
}

/// Whether the tree is walked and copied, and only the late phases are left.
pub fn is_walked(situation: &Situation<'_>) -> bool {
    let first = [Task::root()];
    let roots = first.iter().chain(situation.rounds.iter().flatten());
    !situation.replay.is_open(roots.map(Task::id))
}

fn late(situation: &Situation<'_>) -> Vec<Vec<Task>> {
    let round = situation.rounds.len() as u32;
    late_tasks(
        round,
        situation.replay.sums(),
        situation.replay.uncopied_in(round),
    )
}

/// Returns the tasks of the late phases of a round, in order. `sums`: those of all tasks that are done; `failed`:
/// what was not copied in this round. Nothing is deleted if something failed: what could not be listed may be what the
/// source has.
pub fn late_tasks(round: u32, sums: &Sums, failed: u64) -> Vec<Vec<Task>> {
    let task = |work| Task { round, work };
    let shards = |count: u64, each: u64| count.div_ceil(each).min(u64::from(u32::MAX)) as u32;
    let (joins, links) = (shards(sums.parts, PARTS_EACH), shards(sums.linked, LINKS_EACH));
    // An empty source is far more often one that is not mounted than a wish. What an interrupted copy left in the
    // mount point is skipped.
    let deletes = failed == 0 && sums.files > sums.skipped;
    let extra = if deletes { sums.extra } else { 0 };
    let deletions = shards(extra, DELETIONS_EACH);
    let folders = folder_shares(sums);
    let phase =
        |shards, work: fn(u32, u32) -> Work| (0..shards).map(|shard| task(work(shard, shards))).collect();
    vec![
        phase(joins, |shard, shards| Work::Join { shard, shards }),
        phase(links, |shard, shards| Work::Links { shard, shards }),
        phase(deletions, |shard, shards| Work::Delete { shard, shards }),
        phase(folders, |shard, shards| Work::FolderShare { shard, shards }),
        vec![task(Work::FolderTimes)],
    ]
}

/// Returns how many tasks set attributes of folders before the last phase does. `sums`: those of all tasks that are
/// done. Each reads the segments in folders of its own, so there are no more than those.
pub fn folder_shares(sums: &Sums) -> u32 {
    match sums.folders > FOLDERS_EACH {
        true => sums.folders.div_ceil(FOLDERS_EACH).min(SEGMENT_FOLDERS as u64) as u32,
        false => 0,
    }
}

/// Whether what failed in a task is tried again by its names. Files with several names and attributes of folders
/// are made again by the late phases of the next round.
pub fn fails_by_names(task: &Task) -> bool {
    !matches!(
        task.work,
        Work::Links { .. } | Work::Delete { .. } | Work::FolderShare { .. } | Work::FolderTimes
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Done, Sums};

    fn done(linked: u64, given: Vec<TaskId>) -> Done {
        Done {
            round: 0,
            sums: Sums {
                linked,
                ..Sums::default()
            },
            given,
            ..Done::default()
        }
    }

    #[test]
    fn the_attributes_of_many_folders_are_set_by_many_tasks() {
        let shares = |folders| {
            folder_shares(&Sums {
                folders,
                ..Sums::default()
            })
        };
        assert_eq!((shares(0), shares(FOLDERS_EACH)), (0, 0));
        assert_eq!((shares(FOLDERS_EACH + 1), shares(250 * FOLDERS_EACH)), (2, 250));
        assert_eq!(shares(u64::MAX), SEGMENT_FOLDERS as u32);
    }

    #[test]
    fn nothing_is_deleted_if_the_source_has_nothing_that_is_copied() {
        let deletions = |files, skipped| {
            let extra = 5;
            let sums = Sums {
                files,
                skipped,
                extra,
                ..Sums::default()
            };
            late_tasks(0, &sums, 0)[2].len()
        };
        assert_eq!((deletions(0, 0), deletions(3, 3), deletions(3, 2)), (0, 0, 1));
    }

    #[test]
    fn phases_follow_each_other_and_a_resume_begins_them_again() {
        let (mut replay, mut tasks, mut rounds) = (Replay::default(), HashSet::new(), Vec::new());
        let ask = |replay: &Replay, tasks: &HashSet<TaskId>, rounds: &[Vec<Task>]| {
            next(&Situation {
                replay,
                tasks,
                rounds,
            })
        };
        assert_eq!(ask(&replay, &tasks, &rounds), Plan::Make(vec![Task::root()]));
        tasks.insert(Task::root().id());
        assert_eq!(ask(&replay, &tasks, &rounds), Plan::Wait);
        let child = TaskId([9; 16]);
        replay.add(Task::root().id(), done(3, vec![child]));
        tasks.clear();
        // The list of tasks is empty, and yet something is open.
        assert_eq!(ask(&replay, &tasks, &rounds), Plan::Wait);
        replay.add(child, done(0, Vec::new()));
        for round in 0..2 {
            let late = |work| Task { round, work };
            for task in [late(Work::Links { shard: 0, shards: 1 }), late(Work::FolderTimes)] {
                assert_eq!(ask(&replay, &tasks, &rounds), Plan::Make(vec![task.clone()]));
                replay.add(task.id(), done(0, Vec::new()));
            }
            assert_eq!(ask(&replay, &tasks, &rounds), Plan::Finished);
            let again = Task {
                round: round + 1,
                ..Task::root()
            };
            rounds.push(vec![again.clone()]);
            assert_eq!(ask(&replay, &tasks, &rounds), Plan::Make(vec![again.clone()]));
            replay.add(again.id(), done(0, Vec::new()));
        }
    }
}
