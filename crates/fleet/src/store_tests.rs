use std::sync::Arc;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::{MemoryTree, RelPath, Tree, VirtualClock};

use super::Runs;
use crate::catalog::{Done, SegmentId, encode};
use crate::claim::{ClaimId, Epoch};
use crate::files::name;
use crate::job::JobFile;
use crate::task::Task;
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
