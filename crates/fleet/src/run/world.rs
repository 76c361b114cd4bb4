//! Source, target and workers in memory, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::{Clock, MemoryTree, RelPath, Tree, VirtualClock};

use super::{Crew, Ended, Ends, PlainMover, WorkOptions};
use crate::catalog::{Block, Record};
use crate::job::JobFile;
use crate::queue::ShareQueue;
use crate::status::Reader;
use crate::store::Store;
use crate::workers::WorkerId;

pub(super) const CATALOG: &str = ".ropeway-fleet-t";

pub(super) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// A source with one file that has the names `a` and `b`, and a target.
pub(super) struct World {
    pub(super) clock: VirtualClock,
    pub(super) source: Arc<MemoryTree>,
    pub(super) target: Arc<MemoryTree>,
}

impl World {
    pub(super) fn new() -> Self {
        let world = Self {
            clock: VirtualClock::new(),
            source: Arc::new(MemoryTree::new()),
            target: Arc::new(MemoryTree::new()),
        };
        world.source.insert_file(&path("a"), b"content").unwrap();
        let (first, second) = (path("a"), path("b"));
        simulate(&world.clock, world.source.make_hard_link(&first, &second)).unwrap();
        simulate(&world.clock, world.target.make_dir(&path("t"), 0o700)).unwrap();
        world
    }

    pub(super) fn faulty(&self, tree: &Arc<MemoryTree>, rules: &str) -> Arc<Faults> {
        let rules = FaultRule::parse(rules).unwrap();
        Faults::new(Arc::clone(tree) as _, rules, Arc::new(self.clock.clone()))
    }

    /// Returns source and target, of which the one at `end` fails by rule.
    pub(super) fn faulty_at(&self, end: &str, rules: &str) -> (Arc<Faults>, Arc<Faults>) {
        let rules_of = |which| if end == which { rules } else { "" };
        (
            self.faulty(&self.source, rules_of("source")),
            self.faulty(&self.target, rules_of("target")),
        )
    }

    /// Runs a job, and removes its catalog. Returns its records.
    pub(super) fn run(&self, source: Arc<dyn Tree>, target: Arc<dyn Tree>) -> Vec<Record> {
        self.segments(source, target, WorkOptions::default()).concat()
    }

    /// The same, by segment.
    pub(super) fn segments(
        &self,
        source: Arc<dyn Tree>,
        target: Arc<dyn Tree>,
        options: WorkOptions,
    ) -> Vec<Vec<Record>> {
        let (crew, store) = self.crew(source, target, options);
        simulate(&self.clock, async {
            let job = JobFile::new("s".to_owned(), "t".to_owned());
            store.create(&job).await.unwrap();
            assert_eq!(crew.work().await.unwrap(), Ended::Complete);
            let mut segments = Vec::new();
            for segment in store.segments(None).await.unwrap() {
                let mut records = Vec::new();
                for block in store.segment(segment).await.unwrap() {
                    if let Block::Records(found) = block {
                        records.extend(found);
                    }
                }
                segments.push(records);
            }
            store.remove().await.unwrap();
            segments
        })
    }

    /// Runs a job that deletes, with this target. Returns what failed, and the catalog.
    pub(super) fn failures_of_deleting(
        &self,
        target: Arc<dyn Tree>,
    ) -> (BTreeMap<RelPath, String>, Arc<Store>) {
        let (crew, store) = self.crew(Arc::clone(&self.source) as _, target, WorkOptions::default());
        let failures = simulate(&self.clock, async {
            let job = JobFile::new("s".to_owned(), "t".to_owned()).with_deletions(true);
            store.create(&job).await.unwrap();
            assert_eq!(crew.work().await.unwrap(), Ended::Complete);
            Reader::default().failures(&store).await.unwrap()
        });
        (failures, store)
    }

    pub(super) fn crew(
        &self,
        source: Arc<dyn Tree>,
        target: Arc<dyn Tree>,
        options: WorkOptions,
    ) -> (Crew, Arc<Store>) {
        let (root, tree) = (path(CATALOG), Arc::clone(&target));
        let store = Arc::new(Store::new(tree, root, WorkerId(1)));
        (self.crew_with(Arc::clone(&store), source, target, options), store)
    }

    pub(super) fn crew_with(
        &self,
        store: Arc<Store>,
        source: Arc<dyn Tree>,
        target: Arc<dyn Tree>,
        options: WorkOptions,
    ) -> Crew {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let queue = ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, 1);
        let mover = PlainMover::new(Arc::clone(&source), Arc::clone(&target));
        let ends = Ends::new(source, target, path("t"));
        let work = (store, Arc::new(queue) as _);
        Crew::new(ends, work, Arc::new(mover), clock, options)
    }

    pub(super) fn is_linked(&self) -> bool {
        let id = |name| {
            simulate(&self.clock, self.target.metadata(&path(name)))
                .unwrap()
                .id
        };
        id("t/a") == id("t/b")
    }
}
