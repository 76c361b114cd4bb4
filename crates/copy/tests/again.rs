//! Second runs with an end that is far away: where nothing changed, little is asked and nothing is set.

use std::sync::Arc;
use std::time::Duration;

use ropeway_copy::{Delete, JobSpec, Options, Outcome, RuntimeClock, Status};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::decorate::trace::Traced;
use ropeway_vfs::event::Event;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Capabilities, End, ErrorKind, MetadataChange, RelPath, Timestamp, Tree, Xattr};

use crate::counted::Counted;

const FOLDERS: usize = 60;
const FILES: usize = 50;

fn path(text: &str) -> RelPath {
    let text = text.trim_start_matches("./").trim_start_matches('.');
    RelPath::parse(text.as_bytes()).expect("a plain path")
}

/// A tree like a share, far away.
fn far() -> MemoryTree {
    let capabilities = Capabilities {
        owners: false,
        modes: false,
        xattrs: false,
        creation_times: false,
        remote: true,
        far: true,
        page_cache: false,
        small_in_flight: 256,
        ..MemoryTree::new().capabilities().clone()
    };
    MemoryTree::new().with_capabilities(capabilities)
}

/// A tree like one on a Linux file system, which sets no creation times.
fn near() -> MemoryTree {
    let capabilities = Capabilities {
        creation_times: false,
        ..MemoryTree::new().capabilities().clone()
    };
    MemoryTree::new().with_capabilities(capabilities)
}

/// Fills a tree with folders of files, all of one time.
async fn fill(tree: &MemoryTree, top: &str) {
    for number in 0..FOLDERS * FILES {
        let at = path(&format!("{top}/d{}/file{number}", number % FOLDERS));
        tree.insert_file(&at, b"some content").unwrap();
        age(tree, &at).await;
    }
    for number in 0..FOLDERS {
        age(tree, &path(&format!("{top}/d{number}"))).await;
    }
    age(tree, &path(top)).await;
}

async fn age(tree: &MemoryTree, at: &RelPath) {
    let change = MetadataChange {
        modified: Some(Timestamp(1_600_000_000_000_000_000)),
        ..MetadataChange::default()
    };
    tree.set_metadata(at, &change).await.unwrap();
}

async fn modified(tree: &MemoryTree, at: &str) -> Timestamp {
    tree.metadata(&path(at)).await.unwrap().modified
}

async fn run(source: Arc<dyn Tree>, target: Arc<dyn Tree>, options: Options) -> (Outcome, Vec<Event>) {
    JobSpec::whole(source, target, path("copy"), options).run().await
}

/// Options of a mirror as the command line gives them.
fn mirror() -> Options {
    Options {
        delete: Some(Delete::default()),
        preflight: true,
        ..Options::default()
    }
}

/// A tree each of whose requests for a listing takes a round trip.
fn distant(tree: Arc<dyn Tree>) -> Arc<dyn Tree> {
    delayed(tree, "list:delay=150ms")
}

/// A tree with these delays.
fn delayed(tree: Arc<dyn Tree>, rules: &str) -> Arc<dyn Tree> {
    let rules = FaultRule::parse(rules).unwrap();
    Faults::new(tree, rules, Arc::new(RuntimeClock::new()))
}

/// A mirror that must delete 2,000 files and 32 folders, where each removal and each listing takes a round
/// trip: one after the other would take five minutes.
#[tokio::test(start_paused = true)]
async fn deletions_at_a_distant_end_do_not_wait_for_each_other() {
    let (source, target) = (near(), far());
    source.insert_file(&path("kept/file"), b"some content").unwrap();
    target.insert_file(&path("copy/kept/file"), b"other").unwrap();
    for number in 0..1_200 {
        let at = path(&format!("copy/old/deep/d{}/file{number}", number % 30));
        target.insert_file(&at, b"some content").unwrap();
    }
    for number in 0..800 {
        let at = path(&format!("copy/kept/extra{number}"));
        target.insert_file(&at, b"some content").unwrap();
    }
    let target: Arc<dyn Tree> = Arc::new(target);
    let slow = delayed(Arc::clone(&target), "remove:delay=150ms;list:delay=150ms");
    let start = tokio::time::Instant::now();
    let (outcome, _) = run(Arc::new(source), slow, mirror()).await;
    assert_eq!(outcome.status, Status::Done, "{:?}", outcome.fatal);
    assert_eq!(outcome.summary.counters.deleted, 2_000 + 32);
    assert!(target.metadata(&path("copy/old")).await.is_err());
    assert_eq!(target.metadata(&path("copy/kept/file")).await.unwrap().size, 12);
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
}

/// A move of 1,200 files in 62 folders from or to an end where each request takes a round trip: to look at
/// each copy and to remove each source one after the other would take three minutes.
#[tokio::test(start_paused = true)]
async fn sources_of_a_move_over_a_line_do_not_wait_for_each_other() {
    for is_upload in [true, false] {
        let (source, target) = match is_upload {
            true => (near(), far()),
            false => (far(), near()),
        };
        for number in 0..1_200 {
            let at = path(&format!("deep/er/d{}/file{number}", number % 60));
            source.insert_file(&at, b"some content").unwrap();
        }
        let source: Arc<dyn Tree> = Arc::new(source);
        let (from, to): (_, Arc<dyn Tree>) = match is_upload {
            true => (Arc::clone(&source), delayed(Arc::new(target), "stat:delay=150ms")),
            false => (
                delayed(Arc::clone(&source), "remove:delay=150ms;list:delay=150ms"),
                Arc::new(target),
            ),
        };
        let options = Options {
            move_source: true,
            ..Options::default()
        };
        let start = tokio::time::Instant::now();
        let (outcome, events) = run(from, Arc::clone(&to), options).await;
        assert_eq!(outcome.status, Status::Done, "{events:?}");
        assert!(source.metadata(&path("deep")).await.is_err(), "it was moved");
        let copied = to.metadata(&path("copy/deep/er/d7/file67")).await.unwrap();
        assert_eq!(copied.size, 12);
        let elapsed = start.elapsed();
        assert!(
            elapsed < Duration::from_secs(40),
            "upload {is_upload}: {elapsed:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn listings_of_a_distant_end_do_not_wait_for_each_other() {
    for is_upload in [true, false] {
        let (near, there) = (near(), far());
        let (source, target) = match is_upload {
            true => (near, there),
            false => (there, near),
        };
        fill(&source, ".").await;
        fill(&target, "copy").await;
        let (mut source, mut target): (Arc<dyn Tree>, Arc<dyn Tree>) = (Arc::new(source), Arc::new(target));
        match is_upload {
            true => target = distant(target),
            false => source = distant(source),
        }
        let start = tokio::time::Instant::now();
        let (outcome, events) = run(source, target, mirror()).await;
        assert_eq!(outcome.status, Status::Done, "{events:?}");
        assert_eq!(outcome.summary.counters.files_skipped, (FOLDERS * FILES) as u64);
        // One after another, each of three passes over 60 folders takes 27 s.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(9), "upload {is_upload}: {took:?}");
    }
}

#[tokio::test]
async fn where_nothing_changed_nothing_is_set_and_nothing_looked_up() {
    let (source, target) = (MemoryTree::new(), far());
    fill(&source, ".").await;
    fill(&target, "copy").await;
    let counted = Arc::new(Counted::default());
    let traced = Traced::new(Arc::new(target), counted.clone(), End::Target);
    let (outcome, events) = run(Arc::new(source), traced, mirror()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    let operations = counted.0.lock().unwrap().clone();
    assert_eq!(counted.count("set_attributes"), 0, "{operations:?}");
    // Two passes: deletions, copy. None deletes.
    let folders = FOLDERS as u64 + 1;
    assert!(counted.count("list") <= 7 * folders, "{operations:?}");
    assert!(counted.count("stat") < 10, "{operations:?}");
}

/// What a mirror asks before it deletes: one pass, if nothing would be deleted.
#[tokio::test]
async fn a_dry_run_for_deletions_ends_where_there_are_none() {
    let (source, target) = (Arc::new(MemoryTree::new()), Arc::new(far()));
    fill(&source, ".").await;
    fill(&target, "copy").await;
    source.insert_file(&path("d5/new"), b"new").unwrap();
    let options = || Options {
        dry_run: true,
        only_deletions: true,
        report_items: true,
        ..mirror()
    };
    let counted = Arc::new(Counted::default());
    let traced = || Traced::new(target.clone(), counted.clone(), End::Target);
    let (outcome, events) = run(source.clone(), traced(), options()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    let operations = counted.0.lock().unwrap().clone();
    assert!(
        counted.count("list") <= 4 * (FOLDERS as u64 + 1),
        "{operations:?}"
    );
    target.insert_file(&path("copy/d3/extra"), b"extra").unwrap();
    target.insert_file(&path("copy/gone/file"), b"extra").unwrap();
    let (outcome, events) = run(source, traced(), options()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    let deleted = events.iter().filter_map(|event| match event {
        Event::Item {
            path,
            action: "delete",
            ..
        } => Some(path.as_str()),
        _ => None,
    });
    let mut deleted: Vec<_> = deleted.collect();
    deleted.sort_unstable();
    assert_eq!(deleted, ["copy/d3/extra", "copy/gone", "copy/gone/file"]);
}

#[tokio::test]
async fn a_folder_in_which_something_changed_has_its_time_set() {
    let (source, target) = (MemoryTree::new(), far());
    fill(&source, ".").await;
    fill(&target, "copy").await;
    source.insert_file(&path("d1/new"), b"new").unwrap();
    age(&source, &path("d1")).await;
    target.insert_file(&path("copy/d2/extra"), b"extra").unwrap();
    age(&target, &path("copy/d2")).await;
    target.remove_file(&path("copy/d3/file3")).await.unwrap();
    target.make_dir(&path("copy/d4/gone"), 0o755).await.unwrap();
    let target = Arc::new(target);
    let (outcome, events) = run(Arc::new(source), target.clone(), mirror()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(target.content(&path("copy/d1/new")).unwrap(), b"new");
    assert_eq!(target.content(&path("copy/d3/file3")).unwrap(), b"some content");
    for gone in ["copy/d2/extra", "copy/d4/gone"] {
        let error = target.metadata(&path(gone)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound, "{gone}");
    }
    for folder in ["copy", "copy/d1", "copy/d2", "copy/d3", "copy/d4"] {
        let expected = Timestamp(1_600_000_000_000_000_000);
        assert_eq!(modified(&target, folder).await, expected, "{folder}");
    }
}

#[tokio::test]
async fn a_file_that_only_differs_in_case_is_found_where_case_does_not_count() {
    let capabilities = Capabilities {
        case_sensitive: false,
        ..far().capabilities().clone()
    };
    let (source, target) = (
        MemoryTree::new(),
        MemoryTree::new().with_capabilities(capabilities),
    );
    source.insert_file(&path("d/Photo.JPG"), b"content").unwrap();
    age(&source, &path("d/Photo.JPG")).await;
    target.insert_file(&path("copy/d/photo.jpg"), b"content").unwrap();
    age(&target, &path("copy/d/photo.jpg")).await;
    let (outcome, events) = run(Arc::new(source), Arc::new(target), mirror()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(outcome.summary.counters.files_skipped, 1, "{events:?}");
}

#[tokio::test]
async fn a_folder_of_the_target_that_cannot_be_listed_is_reported() {
    let (source, target) = (MemoryTree::new(), far());
    fill(&source, ".").await;
    fill(&target, "copy").await;
    let rule: FaultRule = "list:path=copy/d7,kind=permission_denied".parse().unwrap();
    let faulty = Faults::new(Arc::new(target), vec![rule], Arc::new(RuntimeClock::new()));
    let (outcome, events) = run(Arc::new(source), faulty, mirror()).await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    assert_eq!(outcome.summary.counters.files_skipped, (FOLDERS * FILES) as u64);
}

/// A failure to read attributes must show to the next run, which sets them.
#[tokio::test]
async fn attributes_of_a_folder_that_could_not_be_read_come_with_the_next_run() {
    let (source, target) = (MemoryTree::new(), Arc::new(MemoryTree::new()));
    source.insert_file(&path("d/file"), b"some content").unwrap();
    let change = MetadataChange {
        xattrs: Some(vec![Xattr {
            name: b"user.a".to_vec(),
            value: b"1".to_vec(),
        }]),
        ..MetadataChange::default()
    };
    source.set_metadata(&path("d"), &change).await.unwrap();
    age(&source, &path("d")).await;
    let rule: FaultRule = "xattr:path=d,kind=permission_denied,times=1".parse().unwrap();
    let source = Faults::new(Arc::new(source), vec![rule], Arc::new(RuntimeClock::new()));
    let (outcome, events) = run(source.clone(), target.clone(), Options::default()).await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    let (outcome, events) = run(source, target.clone(), Options::default()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(target.xattrs(&path("copy/d")).await.unwrap().len(), 1);
}

/// Attributes that no listing shows are compared.
#[tokio::test]
async fn attributes_of_a_folder_that_changed_alone_are_set() {
    let (source, target) = (Arc::new(MemoryTree::new()), Arc::new(MemoryTree::new()));
    source.insert_file(&path("d/file"), b"some content").unwrap();
    let (outcome, _) = run(source.clone(), target.clone(), Options::default()).await;
    assert_eq!(outcome.status, Status::Done);
    let change = MetadataChange {
        xattrs: Some(vec![Xattr {
            name: b"user.a".to_vec(),
            value: b"1".to_vec(),
        }]),
        ..MetadataChange::default()
    };
    let before = modified(&source, "d").await;
    source.set_metadata(&path("d"), &change).await.unwrap();
    assert_eq!(modified(&source, "d").await, before);
    let (outcome, _) = run(source, target.clone(), Options::default()).await;
    assert_eq!(outcome.status, Status::Done);
    assert_eq!(target.xattrs(&path("copy/d")).await.unwrap().len(), 1);
}

/// One folder's files have whole even seconds; the time of the next folder has a fraction.
#[tokio::test]
async fn a_folders_time_is_compared_by_the_rules_of_its_own_listing() {
    let capabilities = Capabilities {
        time_granularity_known: false,
        ..far().capabilities().clone()
    };
    let (source, target) = (
        MemoryTree::new().with_capabilities(capabilities),
        MemoryTree::new(),
    );
    let target = Arc::new(target);
    for (tree, top) in [(&source, "."), (&*target, "copy")] {
        tree.insert_file(&path(&format!("{top}/a/f")), b"x").unwrap();
        tree.insert_file(&path(&format!("{top}/b/f")), b"x").unwrap();
        for node in ["a/f", "b/f", "a", "b"] {
            age(tree, &path(&format!("{top}/{node}"))).await;
        }
    }
    let at = |fraction: i128| MetadataChange {
        modified: Some(Timestamp(1_600_000_000_000_000_000 + fraction)),
        ..MetadataChange::default()
    };
    source.set_metadata(&path("b"), &at(1_500_000_000)).await.unwrap();
    target
        .set_metadata(&path("copy/b"), &at(700_000_000))
        .await
        .unwrap();
    let (outcome, events) = run(Arc::new(source), target.clone(), Options::default()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(
        modified(&target, "copy/b").await,
        at(1_500_000_000).modified.unwrap()
    );
}
