//! This process and its descendants: the processor time they take, and how they are ended.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use ropeway_peers::procfs::{self, Process, processes, ticks};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// Longest chain of parents that is followed.
const DEPTH_MAX: usize = 64;

/// Processor time so far: of the whole machine, and of this process with its descendants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    at: Instant,
    machine: Duration,
    known: Duration,
}

impl Busy {
    /// Reads both now.
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let all: Vec<Process> = processes().collect();
        Self {
            at: Instant::now(),
            machine: ticks(machine_ticks(&stat)),
            known: ticks(family_ticks(&all, std::process::id())),
        }
    }

    /// Processors that other processes kept busy since then, on average.
    pub(crate) fn others(&self) -> f64 {
        let now = Self::now();
        let known = now.known.saturating_sub(self.known);
        let others = now.machine.saturating_sub(self.machine).saturating_sub(known);
        let span = now.at.duration_since(self.at).as_secs_f64();
        others.as_secs_f64() / span.max(0.001)
    }
}

/// Returns a process and its descendants.
fn family(all: &[Process], root: u32) -> impl Iterator<Item = &Process> {
    let parents: BTreeMap<u32, u32> = all.iter().map(|process| (process.id, process.parent)).collect();
    all.iter().filter(move |process| {
        let line = std::iter::successors(Some(process.id), |id| parents.get(id).copied());
        line.take(DEPTH_MAX).any(|id| id == root)
    })
}

fn family_ticks(all: &[Process], root: u32) -> u64 {
    family(all, root).map(|process| process.ticks).sum()
}

/// Kills all descendants of this process. Returns whether there were any.
pub(super) fn kill_descendants() -> bool {
    let all: Vec<Process> = processes().collect();
    let own = std::process::id();
    let below = family(&all, own).filter(|process| process.alive && process.id != own);
    let ids: Vec<u32> = below.map(|process| process.id).collect();
    for pid in ids
        .iter()
        .filter_map(|id| Pid::from_raw(i32::try_from(*id).ok()?))
    {
        // It may be gone already.
        _ = kill_process(pid, Signal::KILL);
    }
    !ids.is_empty()
}

/// User, nice and system time of all processors (proc_stat(5)).
fn machine_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let words = line.split_whitespace().skip(1).take(3);
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Makes this process the parent of its descendants' orphans, so that their processor time and
/// their ends are known.
pub(crate) fn adopt() {
    // Where that is refused, orphans count as processes of others.
    _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Peak resident memory so far of a process or of one of its children, in bytes.
pub(super) fn peak_bytes(id: u32) -> u64 {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|word| word.parse().ok());
    children.chain([id]).map(procfs::peak_bytes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        assert_eq!(machine_ticks("cpu  10 2 30 400 5 6\ncpu0 1 1 1\n"), 42);
        let process = |id, parent, ticks| Process {
            id,
            parent,
            session: 0,
            alive: true,
            ticks,
        };
        let all = [
            process(1, 0, 1000),
            process(5, 1, 1),
            process(6, 5, 2),
            process(7, 6, 4),
            process(8, 1, 500),
        ];
        assert_eq!(family_ticks(&all, 5), 7);
        let ids: Vec<u32> = family(&all, 6).map(|process| process.id).collect();
        assert_eq!(ids, [6, 7]);
        // There are no circles of parents; one must not hang either.
        assert_eq!(family_ticks(&[process(2, 3, 1), process(3, 2, 1)], 9), 0);
    }

    #[test]
    fn the_load_of_others_is_not_negative() {
        let before = Busy::now();
        std::thread::sleep(Duration::from_millis(50));
        let others = before.others();
        assert!((0.0..4096.0).contains(&others), "{others}");
    }
}
