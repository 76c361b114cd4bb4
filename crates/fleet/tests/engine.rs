//! A worker with the real copy engine over local folders, with faults at one node.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ropeway_copy::RuntimeClock;
use ropeway_fleet::error::Error;
use ropeway_fleet::job::JobFile;
use ropeway_fleet::queue::ShareQueue;
use ropeway_fleet::run::{Crew, Ended, Ends, EngineMover, Move, Moved, Mover as _, WorkOptions};
use ropeway_fleet::status::Reader;
use ropeway_fleet::store::{Runs, Store};
use ropeway_fleet::workers::WorkerId;
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::decorate::limit::{Limit, RateLimit};
use ropeway_vfs::{Clock, RelPath, Tree};

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

pub(crate) fn tree(root: &Path, rules: &str) -> (Arc<dyn Tree>, Arc<Faults>) {
    let local = LocalTree::open(root, LocalOptions::default()).unwrap();
    let rules = FaultRule::parse(rules).unwrap();
    let faults = Faults::new(local, rules, Arc::new(RuntimeClock::new()));
    (Arc::clone(&faults) as _, faults)
}

/// Makes a job that copies a tree to `dst` in another one, and a worker for it.
async fn worker(source: &Arc<dyn Tree>, target: &Arc<dyn Tree>, scratch: &Path) -> (Crew, Arc<Store>) {
    worker_of(
        JobFile::new("src".to_owned(), "dst".to_owned()),
        (source, target),
        scratch,
    )
    .await
}

/// Makes this job, and a worker for it.
pub(crate) async fn worker_of(
    job: JobFile,
    (source, target): (&Arc<dyn Tree>, &Arc<dyn Tree>),
    scratch: &Path,
) -> (Crew, Arc<Store>) {
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
    let runs = Runs::new(Arc::clone(target), path(".ropeway-fleet-dst"), WorkerId(1));
    let store = Arc::new(runs.submit(None, 7, &job).await.unwrap().unwrap());
    let options = WorkOptions::default();
    let queue = ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, 1);
    let mover = EngineMover::new(
        Arc::clone(source),
        Arc::clone(target),
        scratch.to_owned(),
        RateLimit::unlimited(Arc::clone(&clock)),
    );
    let ends = Ends::new(Arc::clone(source), Arc::clone(target), path("dst"));
    let work = (Arc::clone(&store), Arc::new(queue) as _);
    (Crew::new(ends, work, Arc::new(mover), clock, options), store)
}

/// Copies a few files with a fault at one end. Returns what failed, and how often rules fired.
async fn run(at: &Path, on_source: &str, on_target: &str) -> (Vec<String>, u32) {
    let (source, first) = tree(&at.join("src"), on_source);
    let (target, second) = tree(at, on_target);
    let scratch = tempfile::tempdir().unwrap();
    let (crew, store) = worker(&source, &target, scratch.path()).await;
    assert_eq!(crew.work().await.unwrap(), Ended::Complete);
    let failures = Reader::default().failures(&store).await.unwrap();
    let failures = failures.keys().map(ToString::to_string).collect();
    let fired = first.fired().iter().chain(&second.fired()).sum();
    (failures, fired)
}

/// A file that is open at a server, or a folder that cannot be read, stopped all workers.
#[test]
fn one_node_that_cannot_be_used_fails_alone() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    for (on_source, on_target, failed) in [
        ("open:path=d/f1,kind=busy", "", vec!["d/f1"]),
        ("open:path=d/f1,kind=device_error", "", vec!["d/f1"]),
        ("", "rename:path=dst/d/f1,kind=busy", vec!["d/f1"]),
        ("list:path=d,kind=device_error", "", vec!["d"]),
        ("list:path=d,kind=busy", "", vec!["d"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::create_dir_all(at.join("src/d")).unwrap();
        for number in 0..5 {
            // Larger than what is copied in batches.
            let text = vec![number; 3 << 20];
            fs::write(at.join(format!("src/d/f{number}")), &text).unwrap();
            fs::write(at.join(format!("src/e{number}")), &text).unwrap();
        }
        let (failures, fired) = runtime.block_on(run(at, on_source, on_target));
        assert!(fired > 0, "{on_source}{on_target}");
        assert_eq!(failures, failed, "{on_source}{on_target}");
        for number in 0..5 {
            let copy = fs::read(at.join(format!("dst/e{number}"))).unwrap();
            assert_eq!(copy, vec![number; 3 << 20], "{on_source}{on_target}");
        }
        assert!(!at.join("dst/d/f1").exists(), "{on_source}{on_target}");
        let other = at.join("dst/d/f2").exists();
        assert_eq!(other, failed != ["d"], "{on_source}{on_target}");
    }
}

/// A worker that only counts finished files looks as if it stood still during a large one, and its task is given
/// to another.
#[test]
fn a_large_file_shows_progress_while_it_is_copied() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("stage")).unwrap();
    fs::write(folder.path().join("large"), vec![7; 24 << 20]).unwrap();
    let seen = runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
        let (tree, _) = tree(folder.path(), "");
        let limit = RateLimit::new(|| Some(8 << 20), clock);
        let tree: Arc<dyn Tree> = Limit::new(tree, Arc::clone(&limit));
        let scratch = tempfile::tempdir().unwrap();
        let mover = EngineMover::new(
            Arc::clone(&tree),
            Arc::clone(&tree),
            scratch.path().to_owned(),
            limit,
        );
        let (source, stage) = (path("large"), path("stage"));
        let moves = [Move {
            metadata: tree.metadata(&source).await.unwrap(),
            stage: path("stage/0"),
            source,
        }];
        let mut seen = std::collections::BTreeSet::new();
        let mut copying = std::pin::pin!(mover.copy(&stage, &moves));
        loop {
            let pause = tokio::time::sleep(std::time::Duration::from_millis(50));
            tokio::select! {
                moved = &mut copying => {
                    assert!(matches!(moved.unwrap()[..], [Moved::Copied { size, .. }] if size == 24 << 20));
                    return seen;
                }
                () = pause => { seen.insert(mover.bytes_moved()); }
            }
        }
    });
    assert!(seen.len() > 3, "{seen:?}");
}

/// By another name, as a bind mount has it, the source lies in the target: its own files would be replaced by
/// others of its own.
#[test]
fn a_source_in_the_target_is_not_written_over() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for source in ["dst/sub", "dst"] {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::create_dir_all(at.join("dst/sub/sub")).unwrap();
        fs::write(at.join("dst/sub/x"), "the source's own").unwrap();
        fs::write(at.join("dst/sub/sub/x"), "another file of the source").unwrap();
        let (source, _) = tree(&at.join(source), "");
        let (target, _) = tree(at, "");
        let worked = runtime.block_on(async {
            let (crew, _) = worker(&source, &target, &at.join("dst")).await;
            crew.work().await
        });
        assert!(matches!(worked, Err(Error::Nested)), "{worked:?}");
        let left = fs::read_to_string(at.join("dst/sub/x")).unwrap();
        assert_eq!(left, "the source's own");
    }
}

/// With a low limit a block takes longer than a straggler may stand still, and workers took the task from each
/// other for ever.
#[test]
fn a_worker_that_waits_for_its_share_of_a_rate_is_no_straggler() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/f"), vec![7; 100_000]).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (source, _) = tree(&folder.path().join("src"), "");
        let (target, _) = tree(folder.path(), "");
        let limit = RateLimit::new(|| Some(1_000), Arc::new(RuntimeClock::new()));
        let limited = Limit::new(Arc::clone(&source), Arc::clone(&limit));
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        let mover = EngineMover::new(limited, Arc::clone(&target), scratch, limit);
        target.make_dir(&path("stage"), 0o700).await.unwrap();
        let moves = [Move {
            source: path("f"),
            stage: path("stage/0"),
            metadata: source.metadata(&path("f")).await.unwrap(),
        }];
        let stage = path("stage");
        let copying = mover.copy(&stage, &moves);
        let looking = async {
            let mut seen = Vec::new();
            for _ in 0..4 {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                seen.push(mover.bytes_moved());
            }
            seen
        };
        // The copy would take 100 s.
        tokio::select! {
            _ = copying => panic!("the limit does not hold"),
            seen = looking => assert!(seen.is_sorted_by(|one, two| one < two), "{seen:?}"),
        }
    });
}
