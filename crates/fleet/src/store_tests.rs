use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::{MemoryTree, MetadataChange, Name, Owner, RelPath, Tree, VirtualClock};

use super::rounds::ROUNDS_MAX;
use super::{Runs, Store};
use crate::catalog::{Done, Record, SegmentId, State, Sums, encode};
use crate::claim::{ClaimError, ClaimId, Epoch};
use crate::error::Error;
use crate::files::name;
use crate::job::JobFile;
use crate::status::Reader;
use crate::task::{Scope, Task};
use crate::workers::WorkerId;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn job() -> JobFile {
    JobFile::new("s".to_owned(), "t".to_owned())
}

fn segment(claim: ClaimId) -> (SegmentId, Vec<u8>) {
    let mut bytes = Vec::new();
    encode(&mut bytes, &[], &[Task::root()]);
    (SegmentId { claim, number: 0 }, bytes)
}

fn claim(epoch: u32) -> ClaimId {
    ClaimId {
        task: Task::root().id(),
        epoch: Epoch(epoch),
    }
}

/// Returns the catalog as a worker sees it.
fn store(tree: &Arc<MemoryTree>, worker: u64) -> Store {
    Store::new(Arc::clone(tree) as _, path("c"), WorkerId(worker))
}

/// A worker of the first job sleeps between any two steps while the second job is made.
#[test]
fn a_worker_of_an_earlier_job_can_do_nothing_in_a_later_one() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    let runs = |number| Runs::new(Arc::clone(&tree) as Arc<dyn Tree>, path("c"), WorkerId(number));
    simulate(&clock, async {
        let first = runs(1).submit(None, 11, &job()).await.unwrap().unwrap();
        first.begin(claim(1)).await.unwrap();
        first.open_stage(claim(1)).await.unwrap();
        let staged = first.stage(claim(1)).join(&name("0"));
        tree.insert_file(&staged, b"of the first job").unwrap();
        let before = runs(2).newest().await.unwrap();
        let second = runs(2).submit(before, 12, &job()).await.unwrap().unwrap();
        second.begin(claim(1)).await.unwrap();
        second.open_stage(claim(1)).await.unwrap();
        let (id, bytes) = segment(claim(1));
        assert!(first.publish_segment(id, &bytes).await.is_err());
        assert!(first.finish(claim(1), &Done::default()).await.is_err());
        assert!(first.birth(&Task::root()).await.is_err());
        assert!(first.open_stage(claim(2)).await.is_err());
        assert!(tree.rename(&staged, &path("file"), true).await.is_err());
        assert!(!first.is_there().await.unwrap());
        // The second job is untouched.
        second.publish_segment(id, &bytes).await.unwrap();
        second.finish(claim(1), &Done::default()).await.unwrap();
    });
}

#[test]
fn of_two_submits_at_once_one_is_refused_and_neither_harms_the_other() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    let runs = |number| Runs::new(Arc::clone(&tree) as Arc<dyn Tree>, path("c"), WorkerId(number));
    simulate(&clock, async {
        runs(1).submit(None, 11, &job()).await.unwrap().unwrap();
        let before = runs(2).newest().await.unwrap();
        // Both have looked; the one makes its job, and a worker begins.
        let won = runs(2).submit(before, 12, &job()).await.unwrap().unwrap();
        won.begin(claim(1)).await.unwrap();
        assert!(runs(3).submit(before, 13, &job()).await.unwrap().is_none());
        won.finish(claim(1), &Done::default()).await.unwrap();
        let newest = runs(3).newest().await.unwrap().unwrap();
        assert_eq!(runs(3).store(newest).root(), won.root());
        let mut left = tree.names_with_prefix(&path("c"), b"run.").await.unwrap();
        left.sort_unstable();
        assert_eq!(left, [won.root().file_name().unwrap()]);
    });
}

/// A submit that dies before its last step leaves no job, and one after it a whole one.
#[test]
fn a_submit_that_is_cut_off_leaves_a_job_or_none() {
    let clock = VirtualClock::new();
    for stop in 1.. {
        let memory = Arc::new(MemoryTree::new());
        let rule = format!("target.any:nth={stop},kind=gone");
        let rules = FaultRule::parse(&rule).unwrap();
        let tree: Arc<dyn Tree> = Faults::new(Arc::clone(&memory) as _, rules, Arc::new(clock.clone()));
        let runs = |tree: &Arc<dyn Tree>, number| Runs::new(Arc::clone(tree), path("c"), WorkerId(number));
        let has_ended = simulate(&clock, async {
            let submitted = runs(&tree, 1).submit(None, 11, &job()).await;
            let plain: Arc<dyn Tree> = Arc::clone(&memory) as _;
            let newest = runs(&plain, 2).newest().await.unwrap();
            if let Some(run) = newest {
                let store = runs(&plain, 2).store(run);
                assert_eq!(store.job().await.unwrap(), Some(job()), "{stop}");
                assert_eq!(store.tasks().await.unwrap(), [Task::root().id()], "{stop}");
            } else {
                assert!(submitted.is_err(), "{stop}");
            }
            let next = runs(&plain, 3).submit(newest, 13, &job()).await.unwrap();
            assert!(next.is_some(), "{stop}");
            submitted.is_ok()
        });
        if has_ended {
            assert!(stop > 20, "{stop} operations");
            break;
        }
    }
}

#[test]
fn a_claim_folder_that_comes_back_is_of_no_use_to_the_earlier_worker() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    simulate(&clock, async {
        let (first, second) = (store(&tree, 1), store(&tree, 2));
        first.create(&job()).await.unwrap();
        first.begin(claim(1)).await.unwrap();
        second.begin(claim(2)).await.unwrap();
        second.fence(claim(2)).await.unwrap();
        // A third worker listed the claims before the first one, and has not looked again yet.
        let folder = path("c/claims").join(&Name::new(claim(1).to_string().as_bytes()).unwrap());
        tree.make_dir(&folder, 0o700).await.unwrap();
        let (id, bytes) = segment(claim(1));
        let published = first.publish_segment(id, &bytes).await;
        assert!(published.is_err_and(|error| error.ends_claim_only()));
        let finished = first.finish(claim(1), &Done::default()).await;
        assert!(finished.is_err_and(|error| error.ends_claim_only()));
        assert_eq!(second.segments(None).await.unwrap(), []);
    });
}

#[test]
fn a_damaged_segment_or_round_is_an_error_that_names_it() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    let store = Store::new(Arc::clone(&tree) as Arc<dyn Tree>, path("c"), WorkerId(1));
    simulate(&clock, async {
        store.create(&job()).await.unwrap();
        store.begin(claim(1)).await.unwrap();
        let (id, bytes) = segment(claim(1));
        store.publish_segment(id, &bytes).await.unwrap();
        store.add_round(1, &[Task::root()]).await.unwrap();
        assert!(store.segment(id).await.is_ok() && store.rounds().await.is_ok());
        for cut in [0, 5, bytes.len() - 1] {
            let file =
                path(&format!("c/segments/{:02x}", id.claim.task.folder())).join(&name(&id.to_string()));
            tree.remove_file(&file).await.unwrap();
            tree.insert_file(&file, &bytes[..cut]).unwrap();
            let error = store.segment(id).await.unwrap_err();
            assert!(error.to_string().contains(&id.to_string()), "{error}");
            let file = path("c/rounds/00000001");
            tree.remove_file(&file).await.unwrap();
            tree.insert_file(&file, &bytes[..cut]).unwrap();
            let error = store.rounds().await.unwrap_err();
            assert!(error.to_string().contains("rounds/00000001"), "{error}");
        }
    });
}

/// A resume of some 270,000 names ended with a panic, and one of none looked damaged.
#[test]
fn a_round_has_any_number_of_tasks() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    let store = Store::new(Arc::clone(&tree) as Arc<dyn Tree>, path("c"), WorkerId(1));
    let names = |count: u32| (0..count).map(|number| name(&format!("{number:0200}"))).collect();
    let many: Vec<Task> = (0..300)
        .map(|number| Task::folder(2, path(&format!("f{number}")), Scope::Names(names(1_000))))
        .collect();
    simulate(&clock, async {
        store.create(&job()).await.unwrap();
        store.add_round(1, &[]).await.unwrap();
        store.add_round(2, &many).await.unwrap();
        assert_eq!(store.rounds().await.unwrap(), [Vec::new(), many]);
    });
}

#[test]
fn a_catalog_of_another_user_or_one_that_others_may_write_to_is_refused() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    let runs = Runs::new(Arc::clone(&tree) as Arc<dyn Tree>, path("c"), WorkerId(1));
    let owner = |user| MetadataChange {
        owner: Some(Owner { user, group: 0 }),
        ..MetadataChange::default()
    };
    let mode = |mode| MetadataChange {
        mode: Some(mode),
        ..MetadataChange::default()
    };
    simulate(&clock, async {
        let own = {
            tree.make_dir(&path("own"), 0o700).await.unwrap();
            tree.metadata(&path("own")).await.unwrap().owner.unwrap().user
        };
        // Somebody made the folder before us.
        tree.make_dir(&path("c"), 0o700).await.unwrap();
        for (bad, good) in [(owner(own + 1), owner(own)), (mode(0o777), mode(0o700))] {
            tree.set_metadata(&path("c"), &bad).await.unwrap();
            let refused = runs.submit(None, 11, &job()).await;
            assert!(matches!(refused, Err(Error::Foreign(_))));
            assert_eq!(runs.newest().await.unwrap(), None);
            tree.set_metadata(&path("c"), &good).await.unwrap();
        }
        let store = runs.submit(None, 11, &job()).await.unwrap().unwrap();
        let run = runs.newest().await.unwrap().unwrap();
        runs.join(run).await.unwrap();
        for folder in [path("c"), store.root().clone()] {
            tree.set_metadata(&folder, &owner(own + 1)).await.unwrap();
            assert!(matches!(runs.join(run).await, Err(Error::Foreign(_))));
            tree.set_metadata(&folder, &owner(own)).await.unwrap();
        }
    });
}

/// The second worker had looked whether the task is done. It did all of it again, and what it gave
/// away nobody waited for.
#[test]
fn a_task_that_ends_while_it_is_claimed_again_is_left_alone() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    simulate(&clock, async {
        let (first, second) = (store(&tree, 1), store(&tree, 2));
        first.create(&job()).await.unwrap();
        first.begin(claim(1)).await.unwrap();
        second.begin(claim(2)).await.unwrap();
        first.finish(claim(1), &Done::default()).await.unwrap();
        let fenced = second.fence(claim(2)).await;
        assert!(matches!(fenced, Err(Error::Claim(ClaimError::Done))));
    });
}

#[test]
fn a_job_that_was_resumed_too_often_says_so() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    simulate(&clock, async {
        let store = store(&tree, 1);
        store.create(&job()).await.unwrap();
        for round in 1..=u32::try_from(ROUNDS_MAX).unwrap() {
            assert!(store.add_round(round, &[Task::root()]).await.unwrap());
        }
        assert_eq!(store.rounds().await.unwrap().len(), ROUNDS_MAX);
        let again = Reader::default().retry(&store, ROUNDS_MAX as u32).await;
        assert!(matches!(again, Err(Error::Resumed(_))), "{again:?}");
        assert!(Reader::default().status(&store).await.unwrap().is_some());
    });
}

/// A folder is recorded by the task that found it. If that task gave it away, and the one that got it could not list
/// it, `resume` must try the folder again, in whatever order their segments are read.
#[test]
fn what_another_task_says_of_a_folder_does_not_hide_that_it_failed() {
    let (clock, tree) = (VirtualClock::new(), Arc::new(MemoryTree::new()));
    let names: Vec<RelPath> = (0..20).map(|number| path(&format!("d{number}"))).collect();
    let given: Vec<Task> = (names.iter())
        .map(|name| Task::folder(0, name.clone(), Scope::all()))
        .collect();
    let failures = simulate(&clock, async {
        let store = store(&tree, 1);
        store.create(&job()).await.unwrap();
        let folders: Vec<Record> = (names.iter())
            .map(|name| Record::new(name.clone(), 0, 0, State::Folder))
            .collect();
        finish(&store, &Task::root(), &folders, &given, 0).await;
        for (task, name) in given.iter().zip(&names) {
            let failed = Record::new(name.clone(), 0, 0, State::Failed("no".to_owned()));
            finish(&store, task, &[failed], &[], 1).await;
        }
        Reader::default().failures(&store).await.unwrap()
    });
    assert_eq!(failures.len(), names.len(), "{failures:?}");
}

/// Does a task with one segment.
async fn finish(store: &Store, task: &Task, records: &[Record], given: &[Task], failed: u64) {
    let claim = ClaimId {
        task: task.id(),
        epoch: Epoch(1),
    };
    store.begin(claim).await.unwrap();
    let mut bytes = Vec::new();
    encode(&mut bytes, records, given);
    store
        .publish_segment(SegmentId { claim, number: 0 }, &bytes)
        .await
        .unwrap();
    let sums = Sums {
        failed,
        ..Sums::default()
    };
    let done = Done {
        sums,
        given: given.iter().map(Task::id).collect(),
        ..Done::default()
    };
    store.finish(claim, &done).await.unwrap();
}
