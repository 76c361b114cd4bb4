//! A worker with the real copy engine over local folders, with faults at one node.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ropeway_copy::RuntimeClock;
use ropeway_fleet::job::JobFile;
use ropeway_fleet::queue::ShareQueue;
use ropeway_fleet::run::{Crew, Ended, Ends, EngineMover, WorkOptions};
use ropeway_fleet::status::Reader;
use ropeway_fleet::store::Runs;
use ropeway_fleet::workers::WorkerId;
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::{Clock, RelPath, Tree};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn tree(root: &Path, rules: &str) -> (Arc<dyn Tree>, Arc<Faults>) {
    let local = LocalTree::open(root, LocalOptions::default()).unwrap();
    let rules = FaultRule::parse(rules).unwrap();
    let faults = Faults::new(local, rules, Arc::new(RuntimeClock::new()));
    (Arc::clone(&faults) as _, faults)
}

/// Copies a few files with a fault at one end. Returns what failed, and how often rules fired.
async fn run(at: &Path, on_source: &str, on_target: &str) -> (Vec<String>, u32) {
    let (source, first) = tree(&at.join("src"), on_source);
    let (target, second) = tree(at, on_target);
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
    let runs = Runs::new(Arc::clone(&target), path(".ropeway-fleet-dst"), WorkerId(1));
    let job = JobFile::new("src".to_owned(), "dst".to_owned());
    let store = Arc::new(runs.submit(None, 7, &job).await.unwrap().unwrap());
    let options = WorkOptions::default();
    let queue = ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, 1);
    let scratch = tempfile::tempdir().unwrap();
    let mover = EngineMover::new(
        Arc::clone(&source),
        Arc::clone(&target),
        scratch.path().to_owned(),
        RateLimit::unlimited(Arc::clone(&clock)),
    );
    let ends = Ends::new(source, target, path("dst"));
    let work = (Arc::clone(&store), Arc::new(queue) as _);
    let crew = Crew::new(ends, work, Arc::new(mover), clock, options);
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
