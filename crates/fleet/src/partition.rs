//! The walk of one task, and how it is cut into further tasks.
//!
//! A task of a folder covers what is below it too. Its worker goes depth first, in the order of
//! names, so at any moment what is left is one range of names (or of their keys) in each folder of the way down:
//!
//! ```text
//!   /        a b [c] d e f        left: (c..]      given away first: the shallowest, so the largest
//!   /c       k [m] n              left: (m..]
//!   /c/m     1 2 3 | 4 5 6        left: (3..]
//! ```
//!
//! * After [`WalkLimits::entries_max`] entries the rest is left to further tasks, one for each
//!   folder of the way down. So 10^9 entries make tens of thousands of tasks, not 10^9.
//! * While other workers are idle, [`Walk::split`] gives each a share of the shallowest folder.
//! * [`WalkLimits::held_max`] bounds the entries in memory. Above it the shallowest folder is given
//!   away as well.
//!
//! What was given away is recorded in the catalog before the walk goes on. After a crash the next
//! worker of the task gets that list ([`Walk::new`]'s `given`) and leaves those entries out: each
//! entry belongs to exactly one task at any time. A folder below which something was given away
//! stays with the task: as a whole it would be given away twice.

use std::collections::VecDeque;

use ropeway_vfs::{Name, RelPath};

use crate::cut::{Collected, Entry};
use crate::task::{NameRange, Scope, TASK_ENTRIES_MAX, Task, Work};

/// Bounds of a walk.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimits {
    /// Entries of one task, and of one listing.
    pub entries_max: usize,
    /// Entries in memory. With about 400 bytes for each, the default takes 24 MiB; two thirds of it
    /// are reached only in a chain of large folders.
    pub held_max: usize,
    /// A folder is split only if each share has this weight: a file counts once and once more for each 256 KiB, a
    /// folder as much as this. A guess: below it, the new task costs more than its files.
    pub split_min: usize,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            entries_max: TASK_ENTRIES_MAX,
            held_max: 3 * TASK_ENTRIES_MAX,
            split_min: 32,
        }
    }
}

/// What a walk wants next.
#[derive(Debug)]
pub enum Next {
    /// A listing of these entries of the folder; answer with [`Walk::listed`].
    List {
        /// The folder.
        path: RelPath,
        /// Its entries that are wanted.
        scope: Scope,
    },
    /// An entry that is no folder.
    Node {
        /// The folder that holds it.
        folder: RelPath,
        /// The entry.
        entry: Entry,
    },
    /// A folder below. Its listing is wanted next, unless all of it was given away.
    Folder {
        /// The folder that holds it.
        folder: RelPath,
        /// The folder itself.
        entry: Entry,
    },
    /// These tasks must be recorded and offered. They are no longer part of this walk.
    Give(Vec<Task>),
    /// There is nothing left.
    Finished,
}

#[derive(Debug)]
struct Frame {
    path: RelPath,
    entries: VecDeque<Entry>,
    /// Key of the last entry that was taken, or the begin of the range.
    after: Option<Name>,
    until: Option<Name>,
    by_names: bool,
}

impl Frame {
    /// Returns the task for everything that is left of this folder.
    fn rest(&self, round: u32) -> Task {
        let scope = match self.by_names {
            true => Scope::Names(self.entries.iter().map(|entry| entry.name.clone()).collect()),
            false => Scope::Range(NameRange {
                after: self.after.clone(),
                until: self.until.clone(),
            }),
        };
        Task::folder(round, self.path.clone(), scope)
    }
}

/// The walk of one task.
#[derive(Debug)]
pub struct Walk {
    round: u32,
    limits: WalkLimits,
    frames: Vec<Frame>,
    /// A listing that is wanted.
    pending: Option<(RelPath, Scope)>,
    given: Vec<Task>,
    /// How many of them earlier workers gave away.
    inherited: usize,
    taken: usize,
}

impl Walk {
    /// Begins the walk of a task. `given`: what earlier workers of the task gave away.
    ///
    /// # Panics
    /// If the task is not one of a folder.
    pub fn new(task: &Task, given: Vec<Task>, limits: WalkLimits) -> Self {
        let Work::Folder { path, scope } = &task.work else {
            panic!("only tasks of folders have a walk");
        };
        let mut walk = Self {
            round: task.round,
            limits,
            frames: Vec::new(),
            pending: None,
            inherited: given.len(),
            given,
            taken: 0,
        };
        walk.want(path.clone(), scope.clone());
        walk
    }

    /// Asks for a listing, without what was given away. That is always the end of what was left at
    /// the time.
    fn want(&mut self, path: RelPath, scope: Scope) {
        let given = self.given.iter().filter_map(|task| match &task.work {
            Work::Folder { path: own, scope } if *own == path => Some(scope),
            _ => None,
        });
        let left = match scope {
            Scope::Names(mut names) => {
                given.for_each(|given| names.retain(|name| !given.contains(name)));
                (!names.is_empty()).then_some(Scope::Names(names))
            }
            Scope::Range(mut range) => {
                let mut is_empty = false;
                for given in given {
                    let Scope::Range(given) = given else { continue };
                    if given.after <= range.after {
                        is_empty = true;
                    } else if range.until.is_none() || given.after < range.until {
                        range.until = given.after.clone();
                    }
                }
                (!is_empty).then_some(Scope::Range(range))
            }
        };
        self.pending = left.map(|scope| (path, scope));
    }

    /// Whether earlier workers gave something away.
    pub fn has_inherited(&self) -> bool {
        self.inherited > 0
    }

    /// Returns the number of entries in memory.
    pub fn held(&self) -> usize {
        self.frames.iter().map(|frame| frame.entries.len()).sum()
    }

    /// Returns what is wanted next.
    pub fn advance(&mut self) -> Next {
        if self.taken >= self.limits.entries_max {
            let rest = self.rest();
            if !rest.is_empty() {
                return Next::Give(rest);
            }
        }
        if self.held() > self.limits.held_max
            && let Some(task) = self.shed()
        {
            return Next::Give(vec![task]);
        }
        if let Some((path, scope)) = &self.pending {
            return Next::List {
                path: path.clone(),
                scope: scope.clone(),
            };
        }
        while self.frames.last().is_some_and(|frame| frame.entries.is_empty()) {
            self.frames.pop();
        }
        let Some(frame) = self.frames.last_mut() else {
            return Next::Finished;
        };
        let Some(entry) = frame.entries.pop_front() else {
            return Next::Finished;
        };
        frame.after = Some(entry.key.clone());
        self.taken += 1;
        let folder = frame.path.clone();
        if entry.metadata.is_dir() {
            self.want(folder.join(&entry.name), Scope::all());
            return Next::Folder { folder, entry };
        }
        Next::Node { folder, entry }
    }

    /// Takes the listing that was wanted. Returns the tasks that a huge folder was cut into; they
    /// must be recorded and offered like [`Next::Give`].
    pub fn listed(&mut self, collected: Collected) -> Vec<Task> {
        let Some((path, scope)) = self.pending.take() else {
            return Vec::new();
        };
        let entries = match collected {
            Collected::Entries(entries) => entries,
            Collected::Ranges(ranges) => {
                let task = |range| Task::folder(self.round, path.clone(), Scope::Range(range));
                return ranges.into_iter().map(task).collect();
            }
        };
        let (range, by_names) = match scope {
            Scope::Range(range) => (range, false),
            Scope::Names(_) => (NameRange::default(), true),
        };
        self.frames.push(Frame {
            path,
            entries: entries.into(),
            after: range.after,
            until: range.until,
            by_names,
        });
        Vec::new()
    }

    /// Gives up the wanted listing: the folder cannot be listed.
    pub fn unlisted(&mut self) {
        self.pending = None;
    }

    /// Gives away what is left of the shallowest folder where that is worth it, in up to `ways` tasks of about the
    /// same weight, for workers that are idle. About one share is kept, unless there is work besides. The tasks
    /// must be recorded and offered like [`Next::Give`].
    pub fn split(&mut self, ways: usize) -> Vec<Task> {
        if ways == 0 {
            return Vec::new();
        }
        let cuts = (0..self.frames.len()).map(|at| (at, self.cuts(at, ways)));
        let Some((at, cuts)) = cuts.into_iter().find(|(_, cuts)| !cuts.is_empty()) else {
            return Vec::new();
        };
        // From the end: each one shortens the folder.
        cuts.into_iter().rev().map(|keep| self.cut(at, keep)).collect()
    }

    /// Returns after how many of its entries a folder is cut for `ways` other workers, in ascending order.
    fn cuts(&self, at: usize, ways: usize) -> Vec<usize> {
        let is_only = at + 1 == self.frames.len() && self.pending.is_none();
        let entries = &self.frames[at].entries;
        let least = self.limits.split_min.max(1) as u64;
        let weight = |entry: &Entry| match entry.metadata.is_dir() {
            true => least,
            false => 1 + (entry.metadata.size >> 18).min(u64::from(u32::MAX)),
        };
        let first = self.entered(at);
        let total: u64 = entries.iter().skip(first).map(weight).sum();
        let shares = (total / least).min(ways as u64 + 1);
        if shares == 1 && !is_only {
            return vec![first];
        }
        let keep = first.max(usize::from(is_only));
        let mut cuts: Vec<usize> = Vec::new();
        let (mut sum, mut share) = (0, 1);
        for (number, entry) in entries.iter().enumerate().skip(first) {
            sum += weight(entry);
            // The entry goes beyond the share: it begins the next one.
            while share < shares && sum > total * share / shares {
                cuts.push(number.max(keep));
                share += 1;
            }
        }
        cuts.dedup();
        cuts.retain(|cut| *cut < entries.len());
        cuts
    }

    /// Gives away the shallowest folder with something left, if the walk has anything besides.
    fn shed(&mut self) -> Option<Task> {
        let at = self.frames.iter().position(|frame| !frame.entries.is_empty())?;
        let is_only = at + 1 == self.frames.len() && self.pending.is_none();
        let keep = self.entered(at);
        (!is_only && keep < self.frames[at].entries.len()).then(|| self.cut(at, keep))
    }

    /// Returns how many of the entries left of a folder must stay, since an earlier worker gave away
    /// something below them.
    fn entered(&self, at: usize) -> usize {
        let frame = &self.frames[at];
        let last = |entry: &Entry| entry.metadata.is_dir() && self.gave_below(&frame.path.join(&entry.name));
        match self.inherited {
            0 => 0,
            _ => frame.entries.iter().rposition(last).map_or(0, |last| last + 1),
        }
    }

    /// Whether an earlier worker gave away something of this folder or below it.
    fn gave_below(&self, path: &RelPath) -> bool {
        let mut given = self.given[..self.inherited].iter();
        given.any(|task| {
            matches!(&task.work, Work::Folder { path: given, .. } if given.strip_prefix(path).is_some())
        })
    }

    /// Keeps the first `keep` entries of a folder, and returns the task for the others.
    fn cut(&mut self, at: usize, keep: usize) -> Task {
        let round = self.round;
        let frame = &mut self.frames[at];
        let entries = frame.entries.split_off(keep);
        let boundary = match frame.entries.back() {
            Some(entry) => Some(entry.key.clone()),
            None => frame.after.clone(),
        };
        let given = Frame {
            path: frame.path.clone(),
            entries,
            after: boundary.clone(),
            until: frame.until.clone(),
            by_names: frame.by_names,
        };
        frame.until = boundary;
        let task = given.rest(round);
        self.given.push(task.clone());
        task
    }

    /// Leaves everything to further tasks.
    fn rest(&mut self) -> Vec<Task> {
        let mut rest: Vec<Task> = Vec::new();
        let is_entered = (0..self.frames.len()).any(|at| self.entered(at) > 0);
        let is_pending = self
            .pending
            .as_ref()
            .is_some_and(|(path, _)| self.gave_below(path));
        if is_entered || is_pending {
            return rest;
        }
        for frame in self.frames.drain(..).filter(|frame| !frame.entries.is_empty()) {
            rest.push(frame.rest(self.round));
        }
        if let Some((path, scope)) = self.pending.take() {
            rest.push(Task::folder(self.round, path, scope));
        }
        rest
    }
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
