//! What a run came to, and what more machines would take.

use std::collections::BTreeMap;

use ropeway_fleet::status::{Progress, Status};

use crate::measure::{Kind, Usage, WorkerReport};

/// Memory of the coordinator.
const COORDINATOR_KIB: u64 = 256 << 10;

/// Memory of a worker during the walk, of the whole process.
const WALK_KIB: u64 = 64 << 10;

/// Memory of a worker in the phases that follow, of the whole process.
const WORKER_KIB: u64 = 96 << 10;

/// Everything that was measured.
pub(crate) struct Report {
    pub(crate) entries: u64,
    /// From the submission until the last worker ended.
    pub(crate) seconds: f64,
    pub(crate) status: Status,
    pub(crate) open_most: u64,
    pub(crate) workers: Vec<WorkerReport>,
    pub(crate) workers_started: u64,
    pub(crate) catalog: Usage,
    pub(crate) coordinator_kib: u64,
}

impl Report {
    /// Prints it.
    pub(crate) fn print(&self) {
        let (sums, catalog) = (&self.status.sums, &self.catalog);
        let entries = self.entries as f64;
        println!(
            "entries              {} ({} folders)",
            self.entries,
            sums.folders - 1
        );
        println!("hard-linked names    {}", sums.linked);
        println!("parts of large files {}", sums.parts);
        println!("failed               {}", self.status.failed);
        println!("tasks (messages)     {}", self.status.tasks_done);
        println!("open tasks, most     {}", self.open_most);
        println!("segments             {}", catalog.segments);
        println!(
            "catalog              {:.2} GB on disk, segments {:.1} bytes an entry",
            catalog.allocated as f64 / 1e9,
            catalog.segment_bytes as f64 / entries
        );
        println!("time                 {:.1} s", self.seconds);
        let rate = entries / self.seconds;
        println!(
            "rate                 {rate:.0} entries/s, {:.0} a worker",
            rate / self.workers_started as f64
        );
        for worker in &self.workers {
            println!(
                "worker {}             {:.1} MiB, {:.1} s of processor time",
                worker.number,
                worker.memory_kib as f64 / 1024.0,
                worker.processor_s
            );
        }
        println!(
            "coordinator          {:.1} MiB",
            self.coordinator_kib as f64 / 1024.0
        );
        let kinds = self.kinds();
        for (name, kind) in &kinds {
            println!(
                "{name:20} {} tasks, {:.1} s of work, {:.1} s of processor time, {:.1} MiB",
                kind.tasks,
                kind.seconds,
                kind.processor_s,
                kind.memory_kib as f64 / 1024.0
            );
        }
        // A phase is divided by no more workers than it has tasks; phases follow each other. Workers that share
        // processors wait for them, so the time of their work is more than it would be on machines of their own, and
        // the processor time is less: it has no waiting for a device.
        for machines in [2, 8, 32, 128] {
            let span = |seconds: f64, tasks: u64| seconds / tasks.clamp(1, machines) as f64;
            let most: f64 = kinds.values().map(|kind| span(kind.seconds, kind.tasks)).sum();
            let least: f64 = kinds
                .values()
                .map(|kind| span(kind.processor_s, kind.tasks))
                .sum();
            println!("computed             {machines} machines, one worker each: {least:.0} to {most:.0} s");
        }
    }

    /// Returns the work of all workers by kind.
    fn kinds(&self) -> BTreeMap<&str, Kind> {
        let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
        for (name, kind) in self.workers.iter().flat_map(|worker| &worker.kinds) {
            let sum = kinds.entry(name).or_default();
            sum.tasks += kind.tasks;
            sum.seconds += kind.seconds;
            sum.processor_s += kind.processor_s;
            sum.memory_kib = sum.memory_kib.max(kind.memory_kib);
        }
        kinds
    }

    /// Whether the job is complete, every entry counted, and no bound exceeded.
    pub(crate) fn holds(&self) -> bool {
        let sums = &self.status.sums;
        let counted = sums.files + sums.folders - 1;
        let checks = [
            (
                "the job is complete",
                self.status.state == Progress::Complete && self.status.failed == 0,
            ),
            ("each entry was counted once", counted == self.entries),
            (
                "each worker ended, and took at most 64 MiB for the walk",
                self.workers.len() as u64 == self.workers_started
                    && self
                        .kinds()
                        .get("walk")
                        .is_some_and(|walk| walk.memory_kib <= WALK_KIB),
            ),
            (
                "no worker took more than 96 MiB for what follows the walk",
                self.workers.iter().all(|worker| worker.memory_kib <= WORKER_KIB),
            ),
            (
                "the coordinator took at most 256 MiB",
                self.coordinator_kib <= COORDINATOR_KIB,
            ),
            (
                "messages: at most one for 1,000 entries, and 1,000 more",
                self.status.tasks_done <= self.entries / 1_000 + 1_000,
            ),
        ];
        for (what, holds) in checks {
            println!("{} {what}", if holds { "ok  " } else { "FAIL" });
        }
        checks.iter().all(|(_, holds)| *holds)
    }
}
