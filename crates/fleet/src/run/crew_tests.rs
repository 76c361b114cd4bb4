//! What a worker says when its source or its target does not stay as it was.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_block::Pool;
use ropeway_vfs::clock::simulate;
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::{Loss, MemoryTree, Pending, RelPath, Tree};

use super::world::{CATALOG, World, path};
use super::{Crew, Ended, Ledger, Move, Moved, Mover, PlainMover, WorkOptions};
use crate::catalog::{Block, Done, Losses, Record, State};
use crate::claim::{ClaimId, Epoch};
use crate::error::Result;
use crate::job::JobFile;
use crate::queue::{Queue as _, ShareQueue};
use crate::status::Reader;
use crate::store::Store;
use crate::task::Task;
use crate::workers::{Activity, Beat, WorkerId};

/// Copies like another one, and does something before its first copy.
struct Before<F> {
    inner: PlainMover,
    act: F,
    is_done: AtomicBool,
    losses: Losses,
}

impl<F: Fn() + Send + Sync> Mover for Before<F> {
    fn copy<'a>(&'a self, stage: &'a RelPath, moves: &'a [Move]) -> Pending<'a, Result<Vec<Moved>>> {
        if !self.is_done.swap(true, Ordering::Relaxed) {
            (self.act)();
        }
        self.inner.copy(stage, moves)
    }

    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn take_losses(&self) -> Losses {
        self.losses.clone()
    }
}

/// Makes a worker of a new job that does something before its first copy.
fn crew(world: &World, act: impl Fn() + Send + Sync + 'static) -> (Crew, Arc<Store>) {
    let tree = |tree: &Arc<MemoryTree>| Arc::clone(tree) as Arc<dyn Tree>;
    let (source, target) = (tree(&world.source), tree(&world.target));
    let mover = Before {
        inner: PlainMover::new(Arc::clone(&source), Arc::clone(&target)),
        act,
        is_done: AtomicBool::new(false),
        losses: Losses([(Loss::Owner, 1)].into()),
    };
    let (mut crew, store) = world.crew(source, target, WorkOptions::default());
    let job = JobFile::new("s".to_owned(), "t".to_owned());
    simulate(&world.clock, store.create(&job)).unwrap();
    crew.mover = Arc::new(mover);
    (crew, store)
}

fn failed(world: &World, store: &Store) -> Vec<String> {
    let failures = simulate(&world.clock, Reader::default().failures(store)).unwrap();
    failures.keys().map(ToString::to_string).collect()
}

/// The other names became links to a file that they never were in the source.
#[test]
fn names_of_a_file_whose_first_name_is_replaced_while_it_is_copied_fail() {
    let world = World::new();
    let (source, clock) = (Arc::clone(&world.source), world.clock.clone());
    let (crew, store) = crew(&world, move || {
        simulate(&clock, source.remove_file(&path("a"))).unwrap();
        source.insert_file(&path("a"), b"another").unwrap();
    });
    assert_eq!(simulate(&world.clock, crew.work()).unwrap(), Ended::Complete);
    assert!(world.target.content(&path("t/b")).is_err());
    assert_eq!(failed(&world, &store), ["a", "b"]);
    // Now they are two files.
    simulate(&world.clock, async {
        Reader::default().retry(&store, 0).await.unwrap();
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
    });
    assert_eq!(world.target.content(&path("t/a")).unwrap(), b"another");
    assert_eq!(world.target.content(&path("t/b")).unwrap(), b"content");
    assert_eq!(failed(&world, &store), [""; 0]);
}

/// It was left out silently.
#[test]
fn a_name_of_a_file_that_becomes_a_link_fails() {
    let world = World::new();
    world.source.insert_file(&path("z"), b"z").unwrap();
    let (source, clock) = (Arc::clone(&world.source), world.clock.clone());
    let (crew, store) = crew(&world, move || {
        simulate(&clock, source.remove_file(&path("b"))).unwrap();
        simulate(&clock, source.make_symlink(&path("b"), b"a")).unwrap();
    });
    assert_eq!(simulate(&world.clock, crew.work()).unwrap(), Ended::Complete);
    assert_eq!(failed(&world, &store), ["b"]);
}

/// It failed in every further round, though its copy is of the time when it was listed.
#[test]
fn a_name_that_is_replaced_before_a_resume_does_not_fail() {
    let world = World::new();
    let (crew, store) = crew(&world, || ());
    simulate(&world.clock, async {
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        world.source.remove_file(&path("b")).await.unwrap();
        world.source.make_symlink(&path("b"), b"a").await.unwrap();
        assert!(store.add_round(1, &[]).await.unwrap());
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
    });
    assert_eq!(failed(&world, &store), [""; 0]);
    assert_eq!(world.target.content(&path("t/b")).unwrap(), b"content");
}

/// A copy of a folder of the source kept its permissions there, and no worker, nor a later job, could go on.
#[test]
fn a_stage_with_a_folder_that_may_not_be_written_to_is_removed() {
    let world = World::new();
    let claim = ClaimId {
        task: Task::root().id(),
        epoch: Epoch(1),
    };
    let tree = Arc::clone(&world.target) as Arc<dyn Tree>;
    let stage = Store::new(tree, path(CATALOG), WorkerId(1)).stage(claim);
    let rule = format!("remove:path={stage}/0/f,kind=permission_denied,nth=1");
    let target = world.faulty(&world.target, &rule);
    let store = Store::new(Arc::clone(&target) as _, path(CATALOG), WorkerId(1));
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        store.create(&job).await.unwrap();
        store.open_stage(claim).await.unwrap();
        let folder = path(&format!("{stage}/0"));
        world.target.make_dir(&folder, 0o555).await.unwrap();
        world
            .target
            .insert_file(&path(&format!("{stage}/0/f")), b"f")
            .unwrap();
        store.close_stage(claim).await.unwrap();
        assert!(world.target.metadata(&stage).await.is_err());
    });
    assert_eq!(target.fired(), [1]);
}

/// Of a file that became a folder, what failed below it was not told.
#[test]
fn a_file_that_becomes_a_folder_fails() {
    let world = World::new();
    world.source.insert_file(&path("z"), b"z").unwrap();
    let wanted = Move {
        source: path("z"),
        stage: path("t/z"),
        metadata: simulate(&world.clock, world.source.metadata(&path("z"))).unwrap(),
    };
    let mover = super::EngineMover::new(
        Arc::clone(&world.source) as _,
        Arc::clone(&world.target) as _,
        tempfile::tempdir().unwrap().keep(),
        RateLimit::unlimited(Arc::new(world.clock.clone())),
    );
    simulate(&world.clock, async {
        world.target.make_dir(&path("t/z"), 0o755).await.unwrap();
        let (hashes, none) = (HashMap::new(), HashMap::new());
        let moved = mover.look(&path("t"), &[wanted], &hashes, &none).await.unwrap();
        assert!(matches!(moved[..], [Moved::Failed(_)]), "{moved:?}");
    });
}

/// The second added a round without tasks. Nothing fails in such a round, so what had failed was forgotten, and deletions
/// were made.
#[test]
fn of_two_that_resume_at_once_the_second_adds_nothing() {
    let world = World::new();
    let (crew, store) = crew(&world, || ());
    let refused = world.faulty(&world.source, "open:path=a,kind=permission_denied");
    let mut crew = crew;
    crew.mover = Arc::new(PlainMover::new(refused, Arc::clone(&world.target) as _));
    simulate(&world.clock, async {
        let _ = crew.work().await;
        let mut readers = [Reader::default(), Reader::default()];
        let after = readers[0].status(&store).await.unwrap().unwrap().rounds;
        for reader in &mut readers {
            reader.retry(&store, after).await.unwrap();
        }
        assert_eq!(store.rounds().await.unwrap().len(), 1);
    });
}

/// It was left in the stage, and the next worker copied it again.
#[test]
fn a_worker_that_is_stopped_gives_what_it_has_copied_its_names() {
    let world = World::new();
    world.source.insert_file(&path("z"), b"z").unwrap();
    let stop: Arc<AtomicBool> = Arc::default();
    let set = Arc::clone(&stop);
    let (mut crew, _) = crew(&world, move || set.store(true, Ordering::Release));
    crew.stop = stop;
    assert_eq!(simulate(&world.clock, crew.work()).unwrap(), Ended::Stopped);
    assert_eq!(world.target.content(&path("t/z")).unwrap(), b"z");
}

#[test]
fn what_the_target_cannot_keep_is_counted_also_that_of_a_dead_worker() {
    let world = World::new();
    world.source.insert_file(&path("z"), b"z").unwrap();
    let (crew, store) = crew(&world, || ());
    simulate(&world.clock, async {
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        let status = Reader::default().status(&store).await.unwrap().unwrap();
        // Of the walk, and of the links.
        assert_eq!(status.losses, Losses([(Loss::Owner, 2)].into()));
    });
    let mut ledger = Ledger::default();
    let copied = Record::new(path("z"), 7, 0, State::Copied { staged: 0 });
    let equal = Record::new(path("y"), 7, 0, State::Equal);
    ledger.inherit(&Block::Records(vec![copied, equal]));
    ledger.inherit(&Block::Lost(Losses([(Loss::Acl, 3)].into())));
    crew.open_ledger(ledger);
    crew.lose(&[Loss::Acl]);
    assert_eq!(crew.fresh_losses(), Losses([(Loss::Acl, 1)].into()));
    let done = crew.with_ledger(Done::default());
    assert_eq!(done.losses, Losses([(Loss::Acl, 4)].into()));
    assert_eq!((done.sums.copied, done.sums.copied_bytes), (1, 7));
}

/// A worker with a short lease took the tasks of those that show signs of life less often.
#[test]
fn a_worker_keeps_its_task_for_its_own_lease() {
    let world = World::new();
    let tree = || Arc::clone(&world.target) as Arc<dyn Tree>;
    let store = |number| Arc::new(Store::new(tree(), path(CATALOG), WorkerId(number)));
    let (own, other, second) = (store(1), store(2), std::time::Duration::from_secs(1));
    let queue = ShareQueue::new(Arc::clone(&other), Arc::new(world.clock.clone()), second * 2, 1);
    let claim = ClaimId {
        task: Task::root().id(),
        epoch: Epoch(1),
    };
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        own.create(&job).await.unwrap();
        own.begin(claim).await.unwrap();
        let beat = Beat {
            beat: 1,
            activity: Activity::Working,
            lease_ms: 30_000,
            ..Beat::default()
        };
        own.beat(&beat).await.unwrap();
        for at in 0..31_u32 {
            let taken = queue.take().await.unwrap();
            assert_eq!(taken.is_some(), at >= 30, "after {at} s");
            ropeway_vfs::Clock::sleep_until(&world.clock, second * (at + 1)).await;
        }
    });
}

/// A worker of another user had left it, and none of the job could go on.
#[test]
fn a_sign_of_life_that_cannot_be_read_is_passed_over() {
    let world = World::new();
    let rule = format!("open:path={CATALOG}/workers/0000000000000009,kind=permission_denied");
    let target = world.faulty(&world.target, &rule) as Arc<dyn Tree>;
    let store = |number| Store::new(Arc::clone(&target), path(CATALOG), WorkerId(number));
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        store(1).create(&job).await.unwrap();
        for number in [1, 9] {
            store(number).beat(&Beat::default()).await.unwrap();
        }
        let beats = store(1).beats().await.unwrap();
        assert_eq!(beats.len(), 1);
        assert_eq!(beats[0].0, WorkerId(1));
    });
}
