//! Random operations through the store, with crashes in the middle of any of them, compared with
//! what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::store::{Access, NewNode, Node, NodeChange, NodeOpen, Store as _};
use ropeway_vfs::{RelPath, Timestamp};

use super::Process;
use super::disk::SimulatedDisk;
use super::far::FarServer;
use crate::log::LogSpace;
use crate::{WriteBackOptions, WriteBackStore};

pub(super) const NAMES: [&str; 3] = ["a", "b", "c.txt"];
const KEY: [u8; 32] = [7; 32];
/// More rounds than any backlog of a run needs.
const ROUNDS_MAX: usize = 10_000;

/// Contents that a file may have after a crash: the last is the one that near clients see.
pub(super) type States = Vec<Option<Vec<u8>>>;

/// What happened in runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes that ended in the middle of an operation.
    pub crashes: u64,
    /// Of these, power cuts.
    pub power_cuts: u64,
    /// Changes by others under a backlog.
    pub conflicts: u64,
    /// Conflicts of which the journal had only parts.
    pub partial: u64,
    /// Operations that were refused.
    pub refused: u64,
}

/// A conflict that must be found: what others wrote, and what was ours.
pub(super) struct Expected {
    pub(super) theirs: Option<Vec<u8>>,
    pub(super) ours: States,
    /// Whether the far file lacked something of ours for certain.
    pub(super) is_due: bool,
}

pub(super) struct Run {
    pub(super) seed: u64,
    random: fastrand::Rng,
    pub(super) server: FarServer,
    pub(super) disk: SimulatedDisk,
    process: Arc<Process>,
    store: Option<WriteBackStore>,
    options: WriteBackOptions,
    part_bytes: u64,
    pub(super) files: BTreeMap<RelPath, States>,
    /// What files had that were removed or replaced since the last comparison.
    pub(super) removed: BTreeMap<RelPath, States>,
    /// Files whose last state was under way when the process ended.
    pub(super) uncertain: BTreeSet<RelPath>,
    /// Whether the states before the last are forgotten, since no power was cut.
    pub(super) is_trimmed: bool,
    /// Whether power was cut since the last comparison.
    pub(super) was_cut: bool,
    /// Nodes that stay open.
    open: Vec<(RelPath, Arc<dyn Node>)>,
    is_full: bool,
    is_refusing: bool,
    pub(super) tally: Tally,
}

/// Runs a seed.
///
/// # Panics
/// When something acknowledged is lost or mixed up.
pub fn run(seed: u64) -> Tally {
    let mut random = fastrand::Rng::with_seed(seed);
    let server = FarServer::new(random.u64(..));
    let process = Arc::new(Process::new(u64::MAX));
    let disk = SimulatedDisk::new(random.u64(..), Arc::clone(&process));
    let options = WriteBackOptions {
        bytes_max: random.u64(10_000..400_000),
        delay: Duration::ZERO,
        round_bytes: random.u64(1..6000),
        workers: 0,
        ..WriteBackOptions::default()
    };
    let mut run = Run {
        seed,
        part_bytes: random.u64(500..20_000),
        random,
        server,
        disk,
        process,
        store: None,
        options,
        files: BTreeMap::new(),
        removed: BTreeMap::new(),
        uncertain: BTreeSet::new(),
        is_trimmed: false,
        was_cut: false,
        open: Vec::new(),
        is_full: false,
        is_refusing: false,
        tally: Tally::default(),
    };
    run.restart(false);
    for _ in 0..run.random.usize(10..120) {
        run.step();
    }
    run.set_faults(false, false);
    run.settle();
    assert!(run.disk.is_empty(), "{seed}: the journal is not empty");
    run.tally
}

impl Run {
    fn path(&mut self) -> RelPath {
        let name = NAMES[self.random.usize(0..NAMES.len())];
        RelPath::parse(name.as_bytes()).expect("a path")
    }

    fn store(&self) -> &WriteBackStore {
        self.store.as_ref().expect("the process runs")
    }

    /// Whether a change may be refused. A backlog whose end a full near disk cannot note stays.
    fn may_refuse(&self, error: &ropeway_vfs::Error) -> bool {
        let is_near = self.is_full && error.kind == ropeway_vfs::ErrorKind::NoSpace;
        self.process.is_dead() || self.is_refusing || is_near
    }

    fn set_faults(&mut self, is_full: bool, is_refusing: bool) {
        (self.is_full, self.is_refusing) = (is_full, is_refusing);
        self.disk.set_full(is_full);
        self.server.refuse(is_refusing);
    }

    /// Starts the next process, which may end soon, too.
    fn restart(&mut self, may_end: bool) {
        self.open.clear();
        self.store = None;
        loop {
            let operations = match may_end && self.random.bool() {
                true => self.random.u64(1..150),
                false => u64::MAX,
            };
            self.process = Arc::new(Process::new(operations));
            self.disk = self.disk.for_process(Arc::clone(&self.process));
            let mut space = LogSpace::new(Box::new(self.disk.clone()), KEY);
            space.part_bytes = self.part_bytes;
            let far = Arc::new(self.server.store(Arc::clone(&self.process)));
            match WriteBackStore::in_space(far, space, self.options.clone()) {
                Ok(store) => {
                    self.store = Some(store);
                    return;
                }
                // It has ended in the middle of the replay.
                Err(_) if self.process.is_dead() => self.tally.crashes += 1,
                Err(error) => panic!("{}: {error}", self.seed),
            }
        }
    }

    /// The process has ended: perhaps with the power.
    fn crash(&mut self) {
        self.tally.crashes += 1;
        self.open.clear();
        self.store = None;
        let is_power_cut = self.random.bool();
        if is_power_cut {
            self.cut_power();
        } else {
            for (path, states) in &mut self.files {
                // What was acknowledged last, or what was under way after it.
                let kept = if self.uncertain.contains(path) { 2 } else { 1 };
                states.drain(..states.len().saturating_sub(kept));
            }
            self.is_trimmed = true;
        }
    }

    fn cut_power(&mut self) {
        self.tally.power_cuts += 1;
        self.was_cut = true;
        self.disk.cut_power();
    }

    /// Ends a crash: a new process brings everything to the far store, and it is compared.
    fn recover(&mut self) {
        self.set_faults(false, false);
        let mut expected = BTreeMap::new();
        if self.random.u8(0..3) == 0 {
            let path = self.path();
            self.others(&path, &mut expected);
        }
        self.restart(true);
        self.settle_with(expected);
    }

    fn step(&mut self) {
        let path = self.path();
        match self.random.u8(0..32) {
            0..=10 => self.write(&path),
            11 | 12 => self.set_len(&path),
            13 | 14 => self.sync(&path),
            15..=20 => _ = self.store().step(),
            21 => self.remove(&path),
            22 => self.rename(&path),
            23 => self.set_times(&path),
            24 => {
                let (is_full, is_refusing) = (self.random.u8(0..3) == 0, self.random.u8(0..3) == 0);
                self.set_faults(is_full, is_refusing);
            }
            25 => {
                let mut expected = BTreeMap::new();
                self.others(&path, &mut expected);
                self.set_faults(false, false);
                // The nodes that are open are of no use after a conflict.
                self.open.clear();
                self.settle_with(expected);
            }
            26 => self.open.clear(),
            27 => {
                // From here on the process may end.
                let operations = self.random.u64(1..60);
                self.process.end_after(operations);
            }
            28 => {
                // It is killed between two operations.
                self.process.end_after(0);
                let _ = self.process.step();
            }
            _ => self.check(&path),
        }
        if self.process.is_dead() {
            self.crash();
            self.recover();
        }
    }

    fn node(&mut self, path: &RelPath, create: bool) -> Option<Arc<dyn Node>> {
        let kept = self.open.iter().find(|(at, _)| at == path);
        if let Some((_, node)) = kept
            && self.random.bool()
        {
            return Some(Arc::clone(node));
        }
        let how = NodeOpen {
            access: Access::Write,
            create: create.then_some(NewNode {
                directory: false,
                dos_attributes: None,
            }),
            ..NodeOpen::default()
        };
        let opened = self.store().open(path, &how);
        let is_there = |run: &Self| run.now(path).is_some();
        match opened {
            Ok(opened) => {
                assert_eq!(opened.created, !is_there(self), "{}: {path}", self.seed);
                if opened.created {
                    // The far server keeps names at once.
                    self.files.insert(path.clone(), vec![Some(Vec::new())]);
                }
                self.open.push((path.clone(), Arc::clone(&opened.node)));
                Some(opened.node)
            }
            Err(error) => {
                if self.process.is_dead() && create && !is_there(self) {
                    self.uncertain.insert(path.clone());
                    self.files.insert(path.clone(), vec![None, Some(Vec::new())]);
                }
                let is_expected = self.process.is_dead() || self.is_refusing || !is_there(self);
                assert!(is_expected, "{}: {path}: {error}", self.seed);
                None
            }
        }
    }

    /// The content that near clients see.
    fn now(&self, path: &RelPath) -> Option<&Vec<u8>> {
        self.files.get(path).and_then(|states| states.last()?.as_ref())
    }

    /// Notes the outcome of a change.
    fn changed(&mut self, path: &RelPath, after: Vec<u8>, outcome: &ropeway_vfs::Result<()>) {
        let may_refuse = outcome.as_ref().err().is_none_or(|error| self.may_refuse(error));
        let states = self.files.entry(path.clone()).or_default();
        match outcome {
            Ok(()) => states.push(Some(after)),
            Err(error) => {
                self.tally.refused += 1;
                assert!(may_refuse, "{}: {path}: {error}", self.seed);
                if self.process.is_dead() {
                    // It may have been carried out.
                    self.uncertain.insert(path.clone());
                    states.push(Some(after));
                }
            }
        }
    }

    fn write(&mut self, path: &RelPath) {
        let Some(node) = self.node(path, true) else { return };
        let mut after = self.now(path).cloned().unwrap_or_default();
        let offset = match self.random.bool() {
            true => after.len(),
            false => self.random.usize(0..after.len() + 300),
        };
        let length = match self.random.u8(0..4) {
            0 => self.random.usize(1..3000),
            _ => self.random.usize(1..200),
        };
        let data: Vec<u8> = (0..length).map(|_| self.random.u8(1..)).collect();
        let written = node.write_at(&data, offset as u64);
        after.resize(after.len().max(offset + length), 0);
        after[offset..offset + length].copy_from_slice(&data);
        self.changed(path, after, &written);
    }

    fn set_len(&mut self, path: &RelPath) {
        let Some(node) = self.node(path, false) else {
            return;
        };
        let mut after = self.now(path).cloned().unwrap_or_default();
        let length = match self.random.u8(0..3) {
            0 => 0,
            _ => self.random.usize(0..after.len() + 500),
        };
        after.resize(length, 0);
        let set = node.set_len(length as u64);
        self.changed(path, after, &set);
    }

    fn sync(&mut self, path: &RelPath) {
        let Some(node) = self.node(path, false) else {
            return;
        };
        match node.sync() {
            Ok(()) => {
                if let Some(states) = self.files.get_mut(path) {
                    states.drain(..states.len() - 1);
                }
            }
            Err(error) => {
                let is_expected = self.may_refuse(&error);
                assert!(is_expected, "{}: {path}: {error}", self.seed);
            }
        }
    }

    fn set_times(&mut self, path: &RelPath) {
        let Some(node) = self.node(path, false) else {
            return;
        };
        let modified = Timestamp(i128::from(self.random.u32(1..)) * 1_000_000_000);
        let change = NodeChange {
            modified: Some(modified),
            ..NodeChange::default()
        };
        if node.change(&change).is_ok() {
            let stat = node.stat();
            assert!(
                stat.is_ok_and(|stat| stat.modified == modified) || self.process.is_dead(),
                "{}: {path}",
                self.seed
            );
        }
    }

    fn remove(&mut self, path: &RelPath) {
        if self.now(path).is_none() {
            return;
        }
        self.open.retain(|(at, _)| at != path);
        let removed = self.store().remove(path, false);
        match removed {
            Ok(()) => self.replaced(path, vec![None]),
            Err(error) => {
                assert!(self.process.is_dead(), "{}: {path}: {error}", self.seed);
                self.uncertain.insert(path.clone());
                self.files.entry(path.clone()).or_default().push(None);
            }
        }
    }

    /// Notes that a name has another file now, or none.
    fn replaced(&mut self, path: &RelPath, states: States) {
        let before = self.files.insert(path.clone(), states).unwrap_or_default();
        self.removed.entry(path.clone()).or_default().extend(before);
    }

    fn rename(&mut self, from: &RelPath) {
        let to = self.path();
        if self.now(from).is_none() || *from == to {
            return;
        }
        self.open.retain(|(at, _)| at != from && *at != to);
        let renamed = self.store().rename(from, &to, true);
        let moved = self.files.get(from).cloned().unwrap_or_default();
        match renamed {
            Ok(()) => {
                // The backlog is at the far server, flushed.
                let last = moved.into_iter().last().into_iter().collect();
                self.replaced(&to, last);
                self.files.insert(from.clone(), vec![None]);
            }
            Err(error) => {
                self.tally.refused += 1;
                let is_expected = self.may_refuse(&error);
                assert!(is_expected, "{}: {from}: {error}", self.seed);
                if self.process.is_dead() {
                    let last = moved.last().cloned().flatten();
                    self.uncertain.extend([from.clone(), to.clone()]);
                    // Nothing had this name, unless it is known.
                    self.files.entry(to).or_insert_with(|| vec![None]).push(last);
                    self.files.entry(from.clone()).or_default().push(None);
                }
            }
        }
    }

    /// Somebody else changes a file at the far server.
    fn others(&mut self, path: &RelPath, expected: &mut BTreeMap<RelPath, Expected>) {
        let theirs = (self.random.u8(0..4) > 0).then(|| {
            (0..self.random.usize(0..400))
                .map(|_| self.random.u8(1..))
                .collect::<Vec<u8>>()
        });
        let in_place = self.random.bool();
        let is_due = !self.uncertain.contains(path)
            && self.now(path).is_some()
            && self.server.content(path).as_ref() != self.now(path);
        self.server.others_change(path, theirs.clone(), in_place);
        let ours = self
            .files
            .insert(path.clone(), vec![theirs.clone()])
            .unwrap_or_default();
        expected.insert(path.clone(), Expected { theirs, ours, is_due });
    }

    /// Reads a file through the store.
    fn check(&mut self, path: &RelPath) {
        let how = NodeOpen {
            access: Access::Read,
            ..NodeOpen::default()
        };
        let opened = self.store().open(path, &how);
        let (seed, expected) = (self.seed, self.now(path).cloned());
        match (opened, expected) {
            (Ok(opened), Some(expected)) => {
                assert_eq!(opened.stat.size, expected.len() as u64, "{seed}: {path}");
                let (offset, length) = (
                    self.random.usize(0..expected.len() + 100),
                    self.random.usize(1..5000),
                );
                let mut buffer = vec![0xEE; length];
                let count = opened.node.read_at(&mut buffer, offset as u64);
                if self.process.is_dead() {
                    return;
                }
                let count = count.unwrap_or_else(|error| panic!("{seed}: {path}: {error}"));
                let end = expected.len().min(offset + length);
                assert!(
                    buffer[..count] == expected[offset.min(end)..end],
                    "{seed}: {path} at {offset}"
                );
            }
            (Err(_), None) => {}
            (Err(error), Some(_)) => assert!(self.process.is_dead(), "{seed}: {path}: {error}"),
            (Ok(_), None) => panic!("{seed}: {path} should not exist"),
        }
    }

    fn settle(&mut self) {
        self.settle_with(BTreeMap::new());
    }

    /// Brings everything to the far store, through crashes, and compares it.
    fn settle_with(&mut self, expected: BTreeMap<RelPath, Expected>) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "{}: it never ends", self.seed);
            if self.process.is_dead() {
                self.tally.crashes += 1;
                if !self.is_trimmed && self.random.bool() {
                    self.cut_power();
                }
                self.restart(true);
            }
            if self.store().status().files == 0 && !self.process.is_dead() {
                break;
            }
            self.store().step();
        }
        // Whoever has files open may go on.
        self.process.end_after(u64::MAX);
        self.compare(expected);
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
