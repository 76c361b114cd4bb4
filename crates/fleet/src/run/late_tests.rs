use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::{Clock, MemoryTree, RelPath, Tree, VirtualClock};

use crate::catalog::{Block, Record, State};
use crate::job::JobFile;
use crate::queue::ShareQueue;
use crate::run::{Crew, Ended, Ends, PlainMover, WorkOptions};
use crate::store::Store;
use crate::workers::WorkerId;

const CATALOG: &str = ".ropeway-fleet-t";

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// A source with one file that has the names `a` and `b`, and a target.
struct World {
    clock: VirtualClock,
    source: Arc<MemoryTree>,
    target: Arc<MemoryTree>,
}

impl World {
    fn new() -> Self {
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

    fn faulty(&self, tree: &Arc<MemoryTree>, rules: &str) -> Arc<Faults> {
        let rules = FaultRule::parse(rules).unwrap();
        Faults::new(Arc::clone(tree) as _, rules, Arc::new(self.clock.clone()))
    }

    /// Runs a job, and removes its catalog. Returns its records.
    fn run(&self, source: Arc<dyn Tree>, target: Arc<dyn Tree>) -> Vec<Record> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let options = WorkOptions::default();
        let store = Arc::new(Store::new(Arc::clone(&target), path(CATALOG), WorkerId(1)));
        let queue = ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, 1);
        let mover = PlainMover::new(Arc::clone(&source), Arc::clone(&target));
        let ends = Ends::new(source, target, path("t"));
        let work = (Arc::clone(&store), Arc::new(queue) as _);
        let crew = Crew::new(ends, work, Arc::new(mover), clock, options);
        simulate(&self.clock, async {
            let job = JobFile::new("s".to_owned(), "t".to_owned());
            store.create(&job).await.unwrap();
            assert_eq!(crew.work().await.unwrap(), Ended::Complete);
            let mut records = Vec::new();
            for segment in store.segments(None).await.unwrap() {
                for block in store.segment(segment).await.unwrap() {
                    if let Block::Records(found) = block {
                        records.extend(found);
                    }
                }
            }
            store.remove().await.unwrap();
            records
        })
    }

    fn is_linked(&self) -> bool {
        let id = |name| {
            simulate(&self.clock, self.target.metadata(&path(name)))
                .unwrap()
                .id
        };
        id("t/a") == id("t/b")
    }
}

fn copies(records: &[Record]) -> usize {
    let is_copy = |record: &&Record| matches!(record.state, State::Copied { .. });
    records.iter().filter(is_copy).count()
}

fn has_failed(records: &[Record]) -> bool {
    let has_failed = |record: &Record| matches!(record.state, State::Failed(_));
    records.iter().any(has_failed)
}

/// Seed 2649 of the simulation: a lost reply was taken for a file that is not there.
#[test]
fn a_lost_connection_does_not_copy_a_file_with_several_names_again() {
    let world = World::new();
    let (source, target) = (&world.source, &world.target);
    let records = world.run(Arc::clone(source) as _, Arc::clone(target) as _);
    assert_eq!(copies(&records), 1);
    // The first examination of each name is that of the walk.
    for rule in ["path=t/a,nth=2", "path=t/a,nth=3", "path=t/b,nth=2"] {
        let target = world.faulty(target, &format!("stat:{rule},kind=network,times=1"));
        let records = world.run(Arc::clone(source) as _, Arc::clone(&target) as _);
        assert_eq!(target.fired(), [1], "{rule}");
        assert_eq!(copies(&records), 0, "{rule}: {records:?}");
        assert!(!has_failed(&records), "{rule}: {records:?}");
        assert!(world.is_linked(), "{rule}");
    }
}

#[test]
fn a_connection_that_is_lost_at_one_name_fails_no_file() {
    for (end, name) in [("target", "t/a"), ("source", "a")] {
        let world = World::new();
        let rule = format!("stat:path={name},kind=network,times=1");
        let (source, target) = match end {
            "source" => (
                world.faulty(&world.source, &rule),
                world.faulty(&world.target, ""),
            ),
            _ => (
                world.faulty(&world.source, ""),
                world.faulty(&world.target, &rule),
            ),
        };
        let records = world.run(Arc::clone(&source) as _, Arc::clone(&target) as _);
        assert_eq!([source.fired(), target.fired()].concat(), [1], "{end}");
        assert!(!has_failed(&records), "{end}: {records:?}");
        assert!(world.is_linked(), "{end}");
    }
}

#[test]
fn a_name_that_cannot_be_examined_is_listed_as_failed() {
    // First by the walk, then by the pass for links.
    for rule in ["nth=1", "nth=2"] {
        for kind in ["permission_denied", "device_error"] {
            let world = World::new();
            let source = world.faulty(&world.source, &format!("stat:path=a,{rule},kind={kind}"));
            let records = world.run(source, Arc::clone(&world.target) as _);
            let is_failed = |record: &&Record| matches!(record.state, State::Failed(_));
            let failed: Vec<&RelPath> = (records.iter().filter(is_failed))
                .map(|record| &record.path)
                .collect();
            assert_eq!(failed, [&path("a")], "{rule} {kind}: {records:?}");
            assert_eq!(world.target.content(&path("t/b")).unwrap(), b"content");
        }
    }
}
