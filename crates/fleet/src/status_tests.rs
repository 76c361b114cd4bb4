use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::{Clock as _, MemoryTree, Tree, VirtualClock};

use super::*;
use crate::claim::Epoch;
use crate::files::name;
use crate::job::JobFile;

const LEASE: i128 = 30_000_000_000;

struct World {
    clock: VirtualClock,
    tree: Arc<MemoryTree>,
}

impl World {
    fn new() -> Self {
        let world = Self {
            clock: VirtualClock::new(),
            tree: Arc::new(MemoryTree::new()),
        };
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        let created = simulate(&world.clock, world.store(0).create(&job));
        assert!(created.unwrap());
        world
    }

    fn store(&self, worker: u64) -> Store {
        let tree = Arc::clone(&self.tree) as Arc<dyn Tree>;
        Store::new(tree, RelPath::root().join(&name("c")), WorkerId(worker))
    }

    fn beat(&self, worker: u64, activity: Activity) {
        let beat = Beat {
            activity,
            ..Beat::default()
        };
        simulate(&self.clock, self.store(worker).beat(&beat)).unwrap();
    }

    fn begin(&self, worker: u64, epoch: u32) -> ClaimId {
        let claim = ClaimId {
            task: Task::root().id(),
            epoch: Epoch(epoch),
        };
        simulate(&self.clock, self.store(worker).begin(claim)).unwrap();
        claim
    }

    /// Returns the status that is seen some leases after the last sign of life.
    fn after(&self, leases: i128) -> Status {
        let store = self.store(0);
        let looked = async {
            let beats = store.dated_beats().await.unwrap();
            let newest = beats.iter().map(|(.., at)| at.0).max().unwrap_or(0);
            let now = Timestamp(newest + leases * LEASE + 1);
            Reader::default().status_at(&store, Some(now)).await.unwrap()
        };
        simulate(&self.clock, looked).unwrap()
    }

    fn health(&self, worker: u64) -> Health {
        let id = WorkerId(worker).to_string();
        let status = self.after(1);
        status.workers.iter().find(|one| one.id == id).unwrap().state
    }
}

/// Each worker that was killed counted as slow until the job was complete.
#[test]
fn a_silent_worker_is_slow_only_while_its_task_waits_for_others() {
    let world = World::new();
    world.beat(1, Activity::Working);
    assert_eq!(world.health(1), Health::Gone);
    let first = world.begin(1, 1);
    assert_eq!(world.health(1), Health::Silent);
    assert_eq!(world.after(1).stragglers, 1);
    // It has given its task back.
    simulate(&world.clock, world.store(1).release(first)).unwrap();
    assert_eq!(world.health(1), Health::Gone);
    // Another has its task.
    world.beat(2, Activity::Idle);
    let second = world.begin(2, 2);
    assert_eq!((world.health(1), world.health(2)), (Health::Gone, Health::Silent));
    // The task is done.
    let done = crate::catalog::Done::default();
    simulate(&world.clock, world.store(2).finish(second, &done)).unwrap();
    assert_eq!((world.health(1), world.health(2)), (Health::Gone, Health::Gone));
    assert_eq!(world.after(1).stragglers, 0);
}

/// Hundreds that were killed hid those that work.
#[test]
fn of_workers_that_are_not_there_any_more_a_status_lists_the_newest() {
    let world = World::new();
    let past = PAST_WORKERS_MAX as u64 + 50;
    for worker in 1..=past {
        world.beat(worker, Activity::Left);
        simulate(
            &world.clock,
            world
                .clock
                .sleep_until(world.clock.now() + Duration::from_secs(1)),
        );
    }
    world.beat(past + 1, Activity::Working);
    let status = world.after(0);
    assert_eq!(status.workers_total, past + 1);
    assert_eq!(status.workers.len(), PAST_WORKERS_MAX + 1);
    assert_eq!(status.workers[0].state, Health::Well);
    assert!(
        status.workers[1..]
            .iter()
            .all(|worker| worker.state == Health::Left)
    );
}
