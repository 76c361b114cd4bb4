//! Jobs between trees in memory: semantics without a disk, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway_block::Pool;
use ropeway_copy::{CheckSpec, CheckWatch, Delete, Durability, Job, JobSpec, Options, RuntimeClock, Status};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::decorate::slow::{DeviceModel, Slow};
use ropeway_vfs::event::Event;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Capabilities, MetadataChange, OpenOptions, Preserve, RelPath, Timestamp, Tree};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a plain path")
}

fn spec(source: Arc<dyn Tree>, target: Arc<dyn Tree>, to: &str, options: Options) -> JobSpec {
    JobSpec::whole(source, target, path(to), options)
}

/// Returns a comparison by content, which does not look at times.
fn by_content(source: Arc<dyn Tree>, (target, at): (Arc<dyn Tree>, &str)) -> CheckSpec {
    CheckSpec {
        source,
        source_path: RelPath::root(),
        target,
        target_path: path(at),
        checksum: true,
        modify_window: Duration::ZERO,
        preserve: Preserve {
            times: false,
            ..Preserve::default()
        },
        devices: false,
        filter: Default::default(),
        watch: CheckWatch::new(),
    }
}

async fn names(tree: &dyn Tree, dir: &str) -> Vec<String> {
    let dir = path(dir);
    let mut listing = tree.list(&dir).await.unwrap();
    let mut names = Vec::new();
    loop {
        let entries = listing.next(100).await.unwrap();
        if entries.is_empty() {
            names.sort();
            return names;
        }
        names.extend(entries.into_iter().map(|entry| entry.name.to_string()));
    }
}

fn sample() -> MemoryTree {
    let tree = MemoryTree::new();
    tree.insert_file(&path("a.txt"), b"alpha").unwrap();
    tree.insert_file(&path("sub/b.bin"), &vec![7; 3_000_000]).unwrap();
    tree.insert_file(&path("sub/deep/empty"), b"").unwrap();
    tree
}

#[tokio::test]
async fn a_new_folder_appears_whole_and_equal() {
    let source = sample();
    source
        .make_hard_link(&path("a.txt"), &path("sub/link"))
        .await
        .unwrap();
    source.make_symlink(&path("sub/sym"), b"../a.txt").await.unwrap();
    let time = MetadataChange {
        modified: Some(Timestamp(1_234_567_890_123_456_789)),
        ..Default::default()
    };
    source.set_metadata(&path("sub"), &time).await.unwrap();
    let (source, target) = (Arc::new(source), Arc::new(MemoryTree::new()));
    let (outcome, events) = spec(source.clone(), target.clone(), "copy", Options::default())
        .run()
        .await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(names(&*target, "").await, ["copy"]);
    assert_eq!(
        names(&*target, "copy/sub").await,
        ["b.bin", "deep", "link", "sym"]
    );
    assert_eq!(
        target.content(&path("copy/sub/b.bin")).unwrap(),
        vec![7; 3_000_000]
    );
    let first = target.metadata(&path("copy/a.txt")).await.unwrap();
    let second = target.metadata(&path("copy/sub/link")).await.unwrap();
    assert_eq!(first.id, second.id, "hard links stay links");
    let folder = target.metadata(&path("copy/sub")).await.unwrap();
    assert_eq!(
        folder.modified,
        Timestamp(1_234_567_890_123_456_789),
        "folder times last"
    );
    let counters = outcome.summary.counters;
    assert_eq!((counters.files_done, counters.files_total), (5, 5));
    assert_eq!(counters.bytes_sent, 3_000_005, "a link sends nothing");
    assert_eq!(counters.bytes_durable, counters.bytes_done);

    let (again, _) = spec(source, target.clone(), "copy", Options::default())
        .run()
        .await;
    assert_eq!(again.status, Status::Done);
    assert_eq!(again.summary.counters.bytes_sent, 0, "equal files are skipped");
    assert_eq!(again.summary.counters.files_skipped, 5);
}

#[tokio::test]
async fn a_mirror_deletes_only_what_it_may() {
    let (source, target) = (Arc::new(sample()), Arc::new(MemoryTree::new()));
    target.insert_file(&path("m/extra/one"), b"1").unwrap();
    target.insert_file(&path("m/old"), b"2").unwrap();
    target.insert_file(&path("m/a.txt"), b"different").unwrap();
    let mut options = Options {
        delete: Some(Delete {
            max: "1".parse().ok(),
            ..Delete::default()
        }),
        ..Options::default()
    };
    let (refused, _) = spec(source.clone(), target.clone(), "m", options.clone())
        .run()
        .await;
    assert_eq!(refused.status, Status::Refused);
    assert_eq!(
        target.content(&path("m/a.txt")).unwrap(),
        b"different",
        "nothing was touched"
    );
    options.delete = Some(Delete::default());
    let (done, events) = spec(source.clone(), target.clone(), "m", options.clone())
        .run()
        .await;
    assert_eq!(done.status, Status::Done, "{events:?}");
    assert_eq!(names(&*target, "m").await, ["a.txt", "sub"]);
    assert_eq!(target.content(&path("m/a.txt")).unwrap(), b"alpha");
    let empty = Arc::new(MemoryTree::new());
    let (empty, _) = spec(empty, target.clone(), "m", options).run().await;
    assert_eq!(empty.status, Status::Refused, "an empty source is refused");
    assert_eq!(names(&*target, "m").await, ["a.txt", "sub"]);
}

#[tokio::test(start_paused = true)]
async fn a_read_error_costs_that_file_only() {
    let rules = FaultRule::parse("read:contains=b.bin,offset=1000000..,errno=EIO").unwrap();
    let source = Faults::new(Arc::new(sample()), rules, Arc::new(RuntimeClock::new()));
    let target = Arc::new(MemoryTree::new());
    let (outcome, events) = spec(source, target.clone(), "c", Options::default()).run().await;
    assert_eq!(outcome.status, Status::SomeFailed);
    assert_eq!(outcome.summary.errors, 1);
    assert_eq!(failed(&events), [("sub/b.bin", true)]);
    assert_eq!(names(&*target, "c/sub").await, ["deep"]);
    assert_eq!(target.content(&path("c/a.txt")).unwrap(), b"alpha");
}

#[tokio::test]
async fn every_engine_and_durability_gives_the_same_tree() {
    use ropeway_plan::Engine;
    for engine in Engine::ALL {
        for durability in [Durability::None, Durability::End, Durability::File] {
            let (source, target) = (Arc::new(sample()), Arc::new(MemoryTree::new()));
            target.insert_file(&path("c/a.txt"), b"old").unwrap();
            let options = Options {
                engine,
                durability,
                ..Options::default()
            };
            let (outcome, events) = spec(source, target.clone(), "c", options).run().await;
            assert_eq!(outcome.status, Status::Done, "{engine} {durability:?} {events:?}");
            assert_eq!(target.content(&path("c/sub/b.bin")).unwrap(), vec![7; 3_000_000]);
            assert_eq!(target.content(&path("c/a.txt")).unwrap(), b"alpha");
            assert_eq!(
                names(&*target, "c").await,
                ["a.txt", "sub"],
                "no temporary name is left"
            );
        }
    }
}

/// Runs a job in virtual time. Returns the estimate at a tenth of the work, and the time that was
/// really left then.
async fn estimate_at_a_tenth(source: Arc<dyn Tree>, device: &str) -> (f64, f64) {
    let clock = Arc::new(RuntimeClock::new());
    let target = Arc::new(MemoryTree::new().with_discard());
    let slow = Slow::new(target, DeviceModel::parse(device).unwrap(), clock);
    let job = Job::new(spec(source, slow, "c", Options::default()));
    let handle = job.handle();
    let watching = tokio::spawn(async move {
        let start = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let Event::Progress { counters, eta, .. } = handle.progress() else {
                continue;
            };
            let bytes = counters.bytes_durable as f64 / counters.bytes_total.max(1) as f64;
            if let (true, Some(eta)) = (bytes >= 0.1, eta) {
                return (start.elapsed().as_secs_f64(), eta.seconds);
            }
        }
    });
    let begin = tokio::time::Instant::now();
    let outcome = job.run(Arc::new(|_| {})).await;
    assert_eq!(outcome.status, Status::Done);
    let total = begin.elapsed().as_secs_f64();
    let (at, estimate) = watching.await.unwrap();
    (at + estimate, total)
}

#[tokio::test(start_paused = true)]
async fn the_estimate_of_a_4_gib_file_is_right_after_a_tenth() {
    let source = MemoryTree::new();
    source.insert_synthetic(&path("big"), 4 << 30, 1).unwrap();
    let (predicted, total) = estimate_at_a_tenth(Arc::new(source), "usb-flash,cache=128M").await;
    assert!(
        (predicted - total).abs() < total * 0.1,
        "predicted {predicted} of {total}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_estimate_of_a_mixed_tree_is_right_after_a_tenth() {
    let source = MemoryTree::new();
    for i in 0..3000u64 {
        let size = if i % 100 == 0 { 8 << 20 } else { 1000 + i % 50_000 };
        source
            .insert_synthetic(&path(&format!("d{}/f{i}", i % 37)), size, i)
            .unwrap();
    }
    let (predicted, total) = estimate_at_a_tenth(Arc::new(source), "usb-flash,cache=64M").await;
    assert!(
        (predicted - total).abs() < total * 0.1,
        "predicted {predicted} of {total}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_estimate_of_many_small_files_is_right_after_a_tenth() {
    let source = MemoryTree::new();
    for i in 0..100_000u64 {
        source
            .insert_synthetic(&path(&format!("d{}/f{i}", i % 100)), 1024 + i * 7 % 15_000, i)
            .unwrap();
    }
    let (predicted, total) = estimate_at_a_tenth(Arc::new(source), "usb-flash,cache=64M").await;
    assert!(
        (predicted - total).abs() < total * 0.1,
        "predicted {predicted} of {total}"
    );
}

#[tokio::test]
async fn content_changed_behind_the_copy_is_found_by_verification() {
    let (source, target) = (Arc::new(sample()), Arc::new(MemoryTree::new()));
    let options = Options {
        verify: ropeway_copy::Verification {
            read_back: true,
            algorithm: Default::default(),
            manifest: None,
        },
        ..Options::default()
    };
    let (outcome, events) = spec(source, target.clone(), "c", options).run().await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert!(outcome.summary.verified.is_some());
    let pool = Pool::new(4096, 2);
    let file = target
        .open(
            &path("c/a.txt"),
            OpenOptions::write(ropeway_vfs::Create::No, Default::default()),
        )
        .await
        .unwrap();
    let mut block = pool.get().await;
    block.capacity_mut()[0] = b'X';
    block.set_len(1);
    file.write_at(block.freeze(), 0).await.unwrap();
    let sink = Arc::new(|_| {});
    let spec = by_content(Arc::new(sample()), (target, "c"));
    let outcome = ropeway_copy::check(spec, sink).await.unwrap();
    assert_eq!(outcome.differences, 1);
}

/// A mirror leaves a name that differs only in case from that in the source, so a comparison calls it
/// the same.
#[tokio::test]
async fn a_name_in_another_case_is_the_same_to_a_target_that_ignores_case() {
    let (source, target) = (MemoryTree::new(), MemoryTree::new());
    source.insert_file(&path("Dir/A.txt"), b"same").unwrap();
    source.insert_file(&path("Dir/b"), b"same").unwrap();
    let capabilities = Capabilities {
        case_sensitive: false,
        ..target.capabilities().clone()
    };
    let target = Arc::new(target.with_capabilities(capabilities));
    for name in ["dir/a.txt", "dir/b", "dir/c"] {
        target.insert_file(&path(name), b"same").unwrap();
    }
    let extra = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&extra);
    let watch = CheckWatch::of_differences(Arc::new(move |difference| {
        seen.lock()
            .unwrap()
            .push((difference.action, difference.path.to_string()));
    }));
    let spec = CheckSpec {
        watch,
        ..by_content(Arc::new(source), (target, ""))
    };
    ropeway_copy::check(spec, Arc::new(|_| {})).await.unwrap();
    assert_eq!(*extra.lock().unwrap(), [("extra", "Dir/c".to_owned())]);
}

/// A source that is replaced between two tries is copied from its beginning. The end of the new one
/// does not follow the head of the old one.
#[tokio::test]
async fn a_retry_of_a_replaced_source_begins_anew() {
    let source = Arc::new(MemoryTree::new());
    source.insert_synthetic(&path("big"), 12 << 20, 1).unwrap();
    let target = Arc::new(MemoryTree::new());
    let rules = FaultRule::parse("write:offset=8M..,times=1,errno=EIO").unwrap();
    let faulty = Faults::new(target.clone(), rules, Arc::new(RuntimeClock::new()));
    let watched = Arc::clone(&faulty);
    let behind = Arc::clone(&source);
    let replacing = tokio::spawn(async move {
        while watched.fired() == [0] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The failed try ends well within the pause before the next.
        tokio::time::sleep(Duration::from_millis(100)).await;
        behind.remove_file(&path("big")).await.unwrap();
        behind.insert_synthetic(&path("big"), 12 << 20, 2).unwrap();
    });
    let (outcome, events) = spec(source.clone(), faulty, "c", Options::default()).run().await;
    replacing.await.unwrap();
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    let copy = target.content(&path("c/big")).unwrap();
    assert!(copy == source.content(&path("big")).unwrap(), "a mixture");
}

/// A mirror that only deletes makes no temporary names on its target. The folder with which a job
/// tests its target was once left there when its removal failed.
#[tokio::test(start_paused = true)]
async fn the_probe_of_a_failing_target_is_removed_by_the_next_run() {
    let state = tempfile::tempdir().unwrap();
    let (source, target) = (Arc::new(sample()), Arc::new(MemoryTree::new()));
    let run = |target: Arc<dyn Tree>| {
        let journal = ropeway_copy::JournalSpec {
            store: Arc::new(ropeway_copy::JournalFolder::new(state.path())),
            key: ropeway_copy::JobKey::new(&["source".into()], "c"),
            sources: Vec::new(),
            target: "c".into(),
        };
        let options = Options {
            delete: Some(Delete::default()),
            ..Options::default()
        };
        let job = JobSpec {
            journal: Some(journal),
            environment: ropeway_copy::Environment {
                boot_id: "one".into(),
                ..ropeway_copy::Environment::default()
            },
            ..spec(source.clone(), target, "c", options)
        };
        job.run()
    };
    let (outcome, events) = run(target.clone()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    target.insert_file(&path("c/extra"), b"goes").unwrap();
    let rules = "remove:contains=extra,errno=EIO,times=9; remove:contains=-0000000000000000,errno=EIO";
    let faulty = Faults::new(
        target.clone(),
        FaultRule::parse(rules).unwrap(),
        Arc::new(RuntimeClock::new()),
    );
    let (outcome, events) = run(faulty).await;
    assert_ne!(outcome.status, Status::Done, "{events:?}");
    let is_probe = |name: &String| name.starts_with(".ropeway-") && name.ends_with("-0000000000000000");
    assert!(names(&*target, "").await.iter().any(is_probe), "it was left");
    let (outcome, events) = run(target.clone()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(names(&*target, "").await, ["c"]);
}

/// Returns the path of each failure that was reported, and whether it was at the source.
fn failed(events: &[Event]) -> Vec<(&str, bool)> {
    let failures = events.iter().filter_map(|event| match event {
        Event::ItemError { path, on_source, .. } => Some((path.as_str(), *on_source)),
        _ => None,
    });
    failures.collect()
}

/// A file was reported as failed and not counted as such when a folder in its way could not be
/// removed.
#[tokio::test]
async fn a_file_whose_way_cannot_be_cleared_is_counted_as_failed() {
    let (source, target) = (Arc::new(MemoryTree::new()), Arc::new(MemoryTree::new()));
    source.insert_file(&path("node"), b"a file").unwrap();
    target.insert_file(&path("c/node/kept"), b"excluded").unwrap();
    let filter = ropeway_plan::FilterSpec {
        exclude: vec!["kept".into()],
        ..Default::default()
    };
    let options = Options {
        delete: Some(Delete::default()),
        filter: ropeway_plan::Filter::new(&filter).unwrap(),
        dry_run: true,
        ..Options::default()
    };
    let (outcome, events) = spec(source, target.clone(), "c", options).run().await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    assert_eq!(failed(&events), [("c/node", false)]);
    assert_eq!(outcome.summary.counters.files_failed, 1);
    assert_eq!(outcome.summary.counters.files_done, 0);
    assert_eq!(target.content(&path("c/node/kept")).unwrap(), b"excluded");
}

/// The failure of a hard link was reported under a name that the user does not know.
#[tokio::test]
async fn a_failed_hard_link_is_reported_under_the_name_of_its_source() {
    let source = MemoryTree::new();
    source.insert_file(&path("a:1"), b"one file").unwrap();
    source.make_hard_link(&path("a:1"), &path("b:2")).await.unwrap();
    let target = Arc::new(MemoryTree::new());
    let rules = FaultRule::parse("link:errno=EACCES").unwrap();
    let faulty = Faults::new(target.clone(), rules, Arc::new(RuntimeClock::new()));
    let options = Options {
        names: ropeway_plan::NamePolicy::Map,
        ..Options::default()
    };
    let (outcome, events) = spec(Arc::new(source), faulty, "c", options).run().await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    assert_eq!(failed(&events), [("c/b:2", false)]);
    assert_eq!(outcome.summary.counters.files_failed, 1);
}

/// A server that was not there for a moment while files were read back made each of them a failure.
#[tokio::test(start_paused = true)]
async fn a_connection_lost_while_files_are_read_back_is_no_failure() {
    let target = Arc::new(MemoryTree::new());
    let rules = FaultRule::parse("read:contains=a.txt,times=2,kind=network").unwrap();
    let faulty = Faults::new(target.clone(), rules, Arc::new(RuntimeClock::new()));
    let options = Options {
        verify: ropeway_copy::Verification {
            read_back: true,
            algorithm: Default::default(),
            manifest: None,
        },
        ..Options::default()
    };
    let (outcome, events) = spec(Arc::new(sample()), faulty.clone(), "c", options).run().await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(faulty.fired(), [2]);
}

/// A folder kept its temporary name because one removal failed that would have succeeded a moment
/// later: the rest of what a failed copy had left.
#[tokio::test(start_paused = true)]
async fn what_a_failed_copy_left_is_removed_when_the_server_is_back() {
    let rules = FaultRule::parse("read:contains=b.bin,offset=1000000..,errno=EACCES").unwrap();
    let source = Faults::new(Arc::new(sample()), rules, Arc::new(RuntimeClock::new()));
    let target = Arc::new(MemoryTree::new());
    let rules = FaultRule::parse("remove:contains=b.bin,times=2,kind=network").unwrap();
    let faulty = Faults::new(target.clone(), rules, Arc::new(RuntimeClock::new()));
    let (outcome, events) = spec(source, faulty.clone(), "c", Options::default()).run().await;
    assert_eq!(outcome.status, Status::SomeFailed);
    assert_eq!(failed(&events), [("sub/b.bin", true)]);
    assert_eq!(faulty.fired(), [2]);
    assert_eq!(names(&*target, "c/sub").await, ["deep"]);
}
