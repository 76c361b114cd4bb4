use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use ropeway_vfs::clock::simulate;
use ropeway_vfs::{Clock, RelPath, Tree};

use crate::catalog::Done;
use crate::claim::{ClaimId, Epoch};
use crate::coordinator::Plan;
use crate::error::Error;
use crate::job::JobFile;
use crate::run::world::{CATALOG, World, path};
use crate::run::{Crew, Ended, WorkOptions};
use crate::status::Reader;
use crate::store::Store;
use crate::task::{Scope, Task};
use crate::workers::WorkerId;

fn crew(world: &World, worker: u64, target: Arc<dyn Tree>) -> Crew {
    let store = Arc::new(Store::new(Arc::clone(&target), path(CATALOG), WorkerId(worker)));
    world.crew_with(
        store,
        Arc::clone(&world.source) as _,
        target,
        WorkOptions::default(),
    )
}

const FIRST: Epoch = Epoch(1);

fn claim(epoch: Epoch) -> ClaimId {
    ClaimId {
        task: Task::root().id(),
        epoch,
    }
}

/// Makes a job whose first task a worker has begun. Returns the first file of its stage, which is not made yet.
async fn with_first_claim(store: &Store) -> RelPath {
    let job = JobFile::new("s".to_owned(), "t".to_owned());
    store.create(&job).await.unwrap();
    store.birth(&Task::root()).await.unwrap();
    store.begin(claim(FIRST)).await.unwrap();
    store.open_stage(claim(FIRST)).await.unwrap();
    store.stage(claim(FIRST)).join(&super::staged(0))
}

/// At a server of SMB nobody can remove a file that a worker has open, even one that does not move. It ended
/// all other workers.
#[test]
fn a_file_that_a_stopped_worker_has_open_ends_no_other_worker() {
    for kind in ["busy", "not_empty"] {
        let world = World::new();
        let rule = format!("remove:contains={CATALOG}/stage,kind={kind},times=5");
        let held = world.faulty(&world.target, &rule);
        let stopped = crew(&world, 1, Arc::clone(&world.target) as _);
        let other = crew(&world, 2, Arc::clone(&held) as _);
        simulate(&world.clock, async {
            let open = with_first_claim(&stopped.store).await;
            world.target.insert_file(&open, b"half").unwrap();
            assert_eq!(other.work().await.unwrap(), Ended::Complete);
        });
        assert_eq!(held.fired(), [5], "{kind}");
        assert_eq!(world.target.content(&path("t/a")).unwrap(), b"content");
    }
}

/// Its stage is gone, and with it the file that it was writing: that is no fault of the target.
#[test]
fn a_worker_whose_claim_was_taken_goes_on_with_other_tasks() {
    let world = World::new();
    let (slow, other) = (
        crew(&world, 1, Arc::clone(&world.target) as _),
        crew(&world, 2, Arc::clone(&world.target) as _),
    );
    simulate(&world.clock, async {
        let staged = with_first_claim(&slow.store).await;
        let next = FIRST.next();
        other.store.begin(claim(next)).await.unwrap();
        other.take_over(claim(next)).await.unwrap();
        let error = world
            .target
            .rename(&staged, &path("t/a"), true)
            .await
            .unwrap_err();
        let error = Error::target(error);
        assert!(!error.ends_claim_only());
        assert!(slow.of_claim(claim(FIRST), error).await.ends_claim_only());
        // While the claim stands, a file that is missing is what it seems.
        let error = world
            .target
            .rename(&staged, &path("t/a"), true)
            .await
            .unwrap_err();
        let error = Error::target(error);
        assert!(!other.of_claim(claim(next), error).await.ends_claim_only());
    });
}

/// Hard links are made from what segments say: without one, some were left out of a job that was complete.
#[test]
fn a_segment_that_is_missing_is_noticed() {
    let world = World::new();
    let worker = crew(&world, 1, Arc::clone(&world.target) as _);
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        worker.store.create(&job).await.unwrap();
        assert_eq!(worker.work().await.unwrap(), Ended::Complete);
        assert!(
            Reader::default()
                .failures(&worker.store)
                .await
                .unwrap()
                .is_empty()
        );
        let segment = worker.store.segments(None).await.unwrap()[0];
        let lost = path(&format!(
            "{CATALOG}/segments/{:02x}/{segment}",
            segment.claim.task.folder()
        ));
        world.target.remove_file(&lost).await.unwrap();
        let noticed = Reader::default().failures(&worker.store).await;
        assert!(matches!(noticed, Err(Error::Damaged(_))), "{noticed:?}");
        // The late passes of a further round would miss what it said.
        worker.store.add_round(1, &[]).await.unwrap();
        let worked = crew(&world, 2, Arc::clone(&world.target) as _).work().await;
        assert!(matches!(worked, Err(Error::Damaged(_))), "{worked:?}");
    });
}

/// A worker has no task yet when it starts. It looked at the others again only after a quarter of the lease.
#[test]
fn a_worker_that_has_just_got_its_task_gives_work_to_an_idle_one_within_seconds() {
    let world = World::new();
    for number in 0..400 {
        let file = path(&format!("f{number:03}"));
        world.source.insert_file(&file, b"content").unwrap();
    }
    // One worker alone needs 6 s. It gets its task after its first sign of life.
    let slow = world.faulty(
        &world.target,
        "write:contains=stage,delay=15ms;make_dir:contains=claims,delay=50ms;list:contains=tasks,delay=50ms",
    );
    let (one, other) = (crew(&world, 1, Arc::clone(&slow) as _), crew(&world, 2, slow));
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        one.store.create(&job).await.unwrap();
        let (first, second) = join(one.work(), other.work()).await;
        assert_eq!(
            (first.unwrap(), second.unwrap()),
            (Ended::Complete, Ended::Complete)
        );
    });
    for worker in [&one, &other] {
        let files = worker.counters.files.load(Ordering::Relaxed);
        assert!(files > 100, "{files}");
    }
}

/// It waited for ever: what it knew of the first task was right, and the lists were empty.
#[test]
fn a_worker_that_slept_until_another_job_began_stops() {
    let world = World::new();
    let sleeper = crew(&world, 1, Arc::clone(&world.target) as _);
    simulate(&world.clock, async {
        let store = &sleeper.store;
        store
            .create(&JobFile::new("s".to_owned(), "t".to_owned()))
            .await
            .unwrap();
        let given = Task::folder(0, path("open"), Scope::all());
        store.birth(&given).await.unwrap();
        store.begin(claim(FIRST)).await.unwrap();
        let done = Done {
            given: vec![given.id()],
            ..Done::default()
        };
        store.finish(claim(FIRST), &done).await.unwrap();
        sleeper.check_ends().await.unwrap();
        assert_eq!(sleeper.plan().await.unwrap(), Plan::Wait);
        store.remove().await.unwrap();
        let (working, hour) = (pin!(sleeper.work()), Duration::from_secs(3_600));
        match select(working, world.clock.sleep_until(world.clock.now() + hour)).await {
            Either::Left((ended, _)) => assert!(matches!(ended, Err(Error::Over)), "{ended:?}"),
            Either::Right(_) => panic!("it still waits"),
        }
    });
}
