//! Faults that the simulator found, each reproduced in the shortest scenario.

#![allow(
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a failed set-up fails the test, and nobody else uses its parts"
)]

#[path = "found/backups.rs"]
mod backups;
#[path = "found/kit.rs"]
mod kit;
#[path = "found/leftovers.rs"]
mod leftovers;
#[path = "found/names.rs"]
mod names;
#[path = "found/open_nodes.rs"]
mod open_nodes;
#[path = "found/whole.rs"]
mod whole;

use std::sync::Arc;

use ropeway_copy::{JobSpec, Options, RuntimeClock, Status};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{MetadataChange, RelPath, Timestamp, Tree, VirtualClock};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_name_is_not_linked_to_the_old_version_of_another() {
    let source = Arc::new(MemoryTree::new());
    source.insert_file(&path("a"), b"the new version").unwrap();
    let target = Arc::new(MemoryTree::new());
    for name in ["b", "c"] {
        source.make_hard_link(&path("a"), &path(name)).await.unwrap();
        let old = format!("the old {name}");
        target
            .insert_file(&path("copy").join_path(&path(name)), old.as_bytes())
            .unwrap();
    }
    // The first name cannot be read, so the job copies the next one and links the others to that.
    let rules = FaultRule::parse("source.open:path=a,errno=EACCES").unwrap();
    let failing = Faults::new(source, rules, Arc::new(VirtualClock::new()));
    let spec = JobSpec::whole(failing, target.clone(), path("copy"), Options::default());
    let (outcome, events) = spec.run().await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    for name in ["copy/b", "copy/c"] {
        assert_eq!(target.content(&path(name)).unwrap(), b"the new version", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_comparison_by_content_gives_attributes_to_no_other_name() {
    let source = Arc::new(MemoryTree::new());
    let target = Arc::new(MemoryTree::new());
    source.insert_file(&path("a"), b"content").unwrap();
    target.insert_file(&path("copy/a"), b"content").unwrap();
    target
        .make_hard_link(&path("copy/a"), &path("other"))
        .await
        .unwrap();
    let change = MetadataChange {
        modified: Some(Timestamp(5_000_000_000)),
        ..MetadataChange::default()
    };
    source.set_metadata(&path("a"), &change).await.unwrap();
    let before = target.metadata(&path("other")).await.unwrap().modified;
    let options = Options {
        checksum: true,
        ..Options::default()
    };
    let (outcome, events) = JobSpec::whole(source, target.clone(), path("copy"), options)
        .run()
        .await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(target.metadata(&path("other")).await.unwrap().modified, before);
    let copied = target.metadata(&path("copy/a")).await.unwrap().modified;
    assert_eq!(copied, Timestamp(5_000_000_000));
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_file_that_gets_no_name_do_not_count_as_durable() {
    let source = Arc::new(MemoryTree::new());
    source.insert_file(&path("a"), &[1; 20_000]).unwrap();
    source.insert_file(&path("b"), &[2; 3_000]).unwrap();
    let mut can = source.capabilities().clone();
    can.page_cache = true;
    let target = Arc::new(MemoryTree::new().with_capabilities(can));
    target.make_dir(&path("copy"), 0o755).await.unwrap();
    let clock = Arc::new(RuntimeClock::new());
    // The checkpoint at the beginning has ended when the data arrives.
    let late = FaultRule::parse("source.read:delay=100ms").unwrap();
    let late = Faults::new(source, late, clock.clone());
    let refuses = FaultRule::parse("target.rename:contains=copy/b,errno=EACCES").unwrap();
    let refuses = Faults::new(target, refuses, clock);
    let spec = JobSpec::whole(late, refuses, path("copy"), Options::default());
    let (outcome, events) = spec.run().await;
    let counters = &outcome.summary.counters;
    assert_eq!((counters.files_failed, counters.files_done), (1, 1), "{events:?}");
    assert_eq!(counters.bytes_durable, 20_000, "those of the other file");
}
