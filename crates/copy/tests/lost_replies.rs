//! Copies to a server whose requests and replies get lost at random, by seed.

use std::sync::Arc;

use ropeway_copy::{JobSpec, Options, RuntimeClock, Verification};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::event::Event;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{ErrorKind, RelPath, Tree};

/// Number of runs.
const SEEDS: u64 = 60;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn source() -> MemoryTree {
    let tree = MemoryTree::new();
    for (folder, files, size) in [("", 3, 3 << 20), ("small/", 12, 500), ("small/deep/", 6, 500)] {
        for number in 0..files {
            let file = path(&format!("{folder}f{number}"));
            tree.insert_synthetic(&file, size + number, number).unwrap();
        }
    }
    tree
}

/// Returns the kinds of the failures of a copy of [`source`], and their messages.
async fn failures(seed: u64) -> Vec<(ErrorKind, String)> {
    let mut can = MemoryTree::new().capabilities().clone();
    (can.remote, can.page_cache, can.small_in_flight) = (true, false, 16);
    let target = Arc::new(MemoryTree::new().with_capabilities(can));
    let probability = 0.02 * (1 + seed % 5) as f64;
    let lost = |seed: u64| format!("any:probability={probability},seed={seed},kind=network");
    let (reply, request) = (lost(seed), lost(seed + 1_000_000));
    let rules = FaultRule::parse(&format!("{reply},late=yes; {request}")).unwrap();
    let faulty = Faults::new(target, rules, Arc::new(RuntimeClock::new()));
    let options = Options {
        verify: Verification {
            read_back: true,
            algorithm: Default::default(),
            manifest: None,
        },
        ..Options::default()
    };
    let job = JobSpec::whole(Arc::new(source()), faulty, path("copy"), options);
    let (_, events) = job.run().await;
    let failure = |event| match event {
        Event::ItemError { kind, message, .. } => Some((kind, message)),
        _ => None,
    };
    events.into_iter().filter_map(failure).collect()
}

/// A folder was reported as missing when its rename was carried out, the reply was lost, and so was
/// the answer to the question what is there now. What cannot be known is tried again.
#[tokio::test(start_paused = true)]
async fn nothing_is_called_missing_because_replies_are_lost() {
    for seed in 0..SEEDS {
        let failures = failures(seed).await;
        let has = |wanted| failures.iter().any(|(kind, _)| *kind == wanted);
        // Files in a folder that keeps its temporary name are not where they are verified.
        let keeps_temporary_name = has(ErrorKind::NotEmpty);
        assert!(
            keeps_temporary_name || !has(ErrorKind::NotFound),
            "seed {seed}: {failures:#?}"
        );
    }
}
