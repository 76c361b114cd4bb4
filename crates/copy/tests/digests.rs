//! Second runs with a far end that has digests of its folders: the same happens as without, and folders that
//! are equal are not listed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ropeway_copy::{CheckSpec, CheckWatch, Delete, JobSpec, Options, Outcome, Status, check};
use ropeway_vfs::decorate::trace::Traced;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Capabilities, End, Kind, MetadataChange, RelPath, Timestamp, Tree};

use crate::counted::Counted;

const FOLDERS: usize = 12;
const FILES: usize = 5;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// A tree like a share, with or without digests.
fn far(has_digests: bool) -> MemoryTree {
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
    let tree = MemoryTree::new().with_capabilities(capabilities);
    match has_digests {
        true => tree.with_folder_digests(),
        false => tree,
    }
}

fn near() -> MemoryTree {
    let capabilities = Capabilities {
        creation_times: false,
        ..MemoryTree::new().capabilities().clone()
    };
    MemoryTree::new().with_capabilities(capabilities)
}

async fn age(tree: &MemoryTree, at: &RelPath, seconds: i128) {
    let change = MetadataChange {
        modified: Some(Timestamp(seconds * 1_000_000_000)),
        ..MetadataChange::default()
    };
    tree.set_metadata(at, &change).await.unwrap();
}

/// Fills a tree with folders in folders.
async fn fill(tree: &MemoryTree) {
    let folder = |number: usize| match number % 3 {
        0 => format!("top/d{number}"),
        _ => format!("top/d{}/e{number}", number - number % 3),
    };
    for number in 0..FOLDERS {
        for file in 0..FILES {
            let at = path(&format!("{}/f{file}", folder(number)));
            tree.insert_file(&at, format!("{number} {file}").as_bytes())
                .unwrap();
            age(tree, &at, 1_600_000_000).await;
        }
    }
    for number in (0..FOLDERS).rev() {
        age(tree, &path(&folder(number)), 1_600_000_000).await;
    }
    age(tree, &path("top"), 1_600_000_000).await;
}

/// Changes a few things.
async fn change(tree: &MemoryTree, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(..6) {
        let number = random.usize(..FOLDERS / 3) * 3;
        let inner = if random.bool() {
            format!("/e{}", number + 1)
        } else {
            String::new()
        };
        let folder = format!("top/d{number}{inner}");
        let file = path(&format!("{folder}/f{}", random.usize(..FILES)));
        let seconds = 1_600_000_000 + random.i128(0..3);
        match random.u8(..6) {
            0 => {
                let _ = tree.remove_file(&file).await;
            }
            1 => {
                let _ = tree.insert_file(&path(&format!("{folder}/n{}", random.u8(..3))), b"new");
            }
            // Other content of the same length.
            2 if tree.remove_file(&file).await.is_ok() => {
                tree.insert_file(&file, b"x x").unwrap();
                age(tree, &file, seconds).await;
            }
            3 => {
                let _ = tree.make_symlink(&path(&format!("{folder}/link")), b"f0").await;
            }
            4 => {
                let _ = tree
                    .make_hard_link(&file, &path(&format!("{folder}/other")))
                    .await;
            }
            _ => {
                let _ = tree
                    .make_dir(&path(&format!("{folder}/g{}", random.u8(..3))), 0o755)
                    .await;
            }
        }
        if random.bool() {
            age(tree, &path(&folder), 1_600_000_000).await;
        }
    }
}

/// Returns everything that a tree has, by path.
async fn state(tree: &MemoryTree) -> BTreeMap<String, (Kind, Timestamp, Vec<u8>)> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![path("top")]);
    while let Some(folder) = folders.pop() {
        let mut listing = tree.list(&folder).await.unwrap();
        loop {
            let entries = listing.next(100).await.unwrap();
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let (at, metadata) = (folder.join(&entry.name), entry.metadata.unwrap());
                let content = match metadata.kind {
                    Kind::File => tree.content(&at).unwrap(),
                    Kind::Symlink => tree.read_link(&at).await.unwrap(),
                    _ => Vec::new(),
                };
                if metadata.is_dir() {
                    folders.push(at.clone());
                }
                // Links of a tree in memory have the time at which they were made.
                let time = match metadata.kind {
                    Kind::Symlink => Timestamp(0),
                    _ => metadata.modified,
                };
                found.insert(at.to_string(), (metadata.kind, time, content));
            }
        }
    }
    found
}

fn mirror() -> Options {
    Options {
        delete: Some(Delete::default()),
        preflight: true,
        ..Options::default()
    }
}

async fn run(source: Arc<dyn Tree>, target: Arc<dyn Tree>, options: Options) -> Outcome {
    let mut spec = JobSpec::whole(source, target, path("top"), options);
    spec.roots[0].source_path = path("top");
    spec.run().await.0
}

fn check_spec(source: Arc<dyn Tree>, target: Arc<dyn Tree>) -> CheckSpec {
    CheckSpec {
        source,
        source_path: path("top"),
        target,
        target_path: path("top"),
        checksum: false,
        modify_window: Duration::ZERO,
        preserve: Default::default(),
        devices: false,
        filter: Default::default(),
        watch: CheckWatch::new(),
    }
}

/// Whatever differs between both ends, a mirror leaves the same with digests as without, and a check finds
/// the same.
#[tokio::test]
async fn the_same_happens_with_digests_as_without() {
    for seed in 0..60 {
        for is_upload in [true, false] {
            let (mut ends, mut counters) = (Vec::new(), Vec::new());
            for has_digests in [false, true] {
                let mut random = fastrand::Rng::with_seed(seed);
                let (near, far) = (Arc::new(near()), Arc::new(far(has_digests)));
                for tree in [&near, &far] {
                    fill(tree).await;
                    change(tree, &mut random).await;
                }
                let (source, target) = match is_upload {
                    true => (Arc::clone(&near), Arc::clone(&far)),
                    false => (Arc::clone(&far), Arc::clone(&near)),
                };
                let found = check(check_spec(source.clone(), target.clone()), Arc::new(|_| {}))
                    .await
                    .unwrap();
                let outcome = run(source.clone(), target.clone(), mirror()).await;
                let again = run(source.clone(), target.clone(), mirror()).await;
                let numbers = |outcome: &Outcome| {
                    let counters = &outcome.summary.counters;
                    (
                        outcome.status,
                        counters.files_done,
                        counters.files_skipped,
                        counters.bytes_done,
                    )
                };
                counters.push((found, numbers(&outcome), numbers(&again)));
                let mut wanted = state(&source).await;
                let got = state(&target).await;
                wanted.retain(|at, _| got.contains_key(at));
                ends.push((wanted, got));
            }
            assert_eq!(counters[0], counters[1], "seed {seed}, upload {is_upload}");
            assert_eq!(ends[0].1, ends[1].1, "seed {seed}, upload {is_upload}");
            assert_eq!(counters[1].1.0, Status::Done);
        }
    }
}

/// Returns how often the far end and the near one were listed in a second run.
async fn listings(has_digests: bool, is_upload: bool, options: Options) -> (u64, u64) {
    let (near, far) = (near(), far(has_digests));
    fill(&near).await;
    fill(&far).await;
    let (at_far, at_near) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    let (far_end, near_end) = match is_upload {
        true => (End::Target, End::Source),
        false => (End::Source, End::Target),
    };
    let far: Arc<dyn Tree> = Traced::new(Arc::new(far), at_far.clone(), far_end);
    let near: Arc<dyn Tree> = Traced::new(Arc::new(near), at_near.clone(), near_end);
    let (source, target) = if is_upload { (near, far) } else { (far, near) };
    let outcome = run(source, target, options).await;
    assert_eq!(outcome.status, Status::Done);
    assert_eq!(outcome.summary.counters.files_skipped, (FOLDERS * FILES) as u64);
    (at_far.count("list"), at_near.count("list"))
}

#[tokio::test]
async fn equal_folders_are_not_listed() {
    for is_upload in [true, false] {
        let (without, near_without) = listings(false, is_upload, mirror()).await;
        let (with, near_with) = listings(true, is_upload, mirror()).await;
        // A listing has a begin, entries, and an end.
        assert!(
            3 * with <= without + 20,
            "upload {is_upload}: {with} of {without}"
        );
        // What is listed to compare it is not listed again for the copy.
        assert!(
            !is_upload || near_with <= near_without + 20,
            "{near_with}, without digests {near_without}"
        );
    }
}

/// A digest does not tell what these look at.
#[tokio::test]
async fn options_that_look_at_more_list_all_folders() {
    for options in [
        Options {
            checksum: true,
            ..mirror()
        },
        Options {
            verify: ropeway_copy::Verification {
                read_back: true,
                ..Default::default()
            },
            ..mirror()
        },
    ] {
        let without = listings(false, true, options.clone()).await.0;
        assert_eq!(listings(true, true, options).await.0, without);
    }
}
