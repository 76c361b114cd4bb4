//! Jobs with an end that stops answering, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use ropeway_copy::{JobSpec, Options, Outcome, RuntimeClock, Status};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Capabilities, RelPath, Tree};

const TIMEOUT: Duration = Duration::from_secs(2);

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// A tree of 60 nested folders without files, with these fault rules.
fn folders(is_far: bool, rules: &str) -> Arc<dyn Tree> {
    let mut tree = MemoryTree::new();
    if is_far {
        let capabilities = Capabilities {
            remote: true,
            page_cache: false,
            small_in_flight: 256,
            ..tree.capabilities().clone()
        };
        tree = tree.with_capabilities(capabilities);
    }
    let mut deep = "top".to_owned();
    for number in 0..60 {
        deep.push_str(&format!("/{number}"));
    }
    tree.insert_file(&path(&format!("{deep}/last")), b"").unwrap();
    let rules = FaultRule::parse(rules).unwrap();
    Faults::new(Arc::new(tree), rules, Arc::new(RuntimeClock::new()))
}

async fn copy(source: Arc<dyn Tree>, count: bool) -> Outcome {
    let options = Options {
        timeout: Some(TIMEOUT),
        count,
        ..Options::default()
    };
    let spec = JobSpec::whole(source, Arc::new(MemoryTree::new()), path("copy"), options);
    spec.run().await.0
}

/// Four minutes of listings of 2 s and more, in which no byte moves, are progress.
#[tokio::test(start_paused = true)]
async fn a_job_that_lists_folders_does_not_hang() {
    for is_far in [false, true] {
        for count in [false, true] {
            let outcome = copy(folders(is_far, "source.list:delay=2s"), count).await;
            assert_eq!(outcome.status, Status::Done, "{:?}", outcome.fatal);
            assert_eq!(outcome.summary.counters.files_done, 1);
        }
    }
}

/// A server that stops answering is a failure of the network. What hangs on this machine is not.
#[tokio::test(start_paused = true)]
async fn the_silence_of_a_server_is_one_of_the_network() {
    for (is_far, status) in [(true, Status::Network), (false, Status::TargetUnwritable)] {
        let outcome = copy(folders(is_far, "source.list:nth=40,delay=forever"), false).await;
        assert_eq!(outcome.status, status);
        let fatal = outcome.fatal.unwrap();
        assert!(fatal.starts_with("nothing moved for"), "{fatal}");
    }
}
