//! Lookups that ignore case are fast, since each folder is read once.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use ropeway_vfs::store::{Resolved, Task};

use super::*;

fn scans(store: &LocalStore) -> usize {
    store.core.indexes.scans.load(Ordering::Relaxed)
}

fn resolved(store: &LocalStore, at: &str) -> String {
    store.resolve(&path(at)).unwrap().to_string()
}

#[test]
fn a_folder_of_a_hundred_thousand_names_is_read_once() {
    // In memory if possible, since creating the names takes long.
    let folder = folders().pop().unwrap();
    let big = folder.path().join("Big");
    fs::create_dir(&big).unwrap();
    for n in 0..100_000 {
        fs::File::create(big.join(format!("Name {n}"))).unwrap();
    }
    let store = store(folder.path());
    for n in (0..100_000).step_by(37) {
        assert_eq!(
            resolved(&store, &format!("big/NAME {n}")),
            format!("Big/Name {n}")
        );
        assert_eq!(resolved(&store, &format!("Big/new {n}")), format!("Big/new {n}"));
        put(&store, &format!("Big/New {n}"), b"");
        assert_eq!(resolved(&store, &format!("BIG/nEW {n}")), format!("Big/New {n}"));
    }
    // The root and the folder.
    assert_eq!(scans(&store), 2);
    // Other programs change it too.
    fs::rename(big.join("Name 5"), big.join("Other 5")).unwrap();
    fs::remove_file(big.join("Name 6")).unwrap();
    assert_eq!(resolved(&store, "Big/NAME 5"), "Big/NAME 5");
    assert_eq!(resolved(&store, "Big/OTHER 5"), "Big/Other 5");
    assert_eq!(resolved(&store, "Big/NAME 6"), "Big/NAME 6");
    assert_eq!(scans(&store), 2);
    // The index belongs to the folder, whatever its name.
    store.rename(&path("Big"), &path("Large"), false).unwrap();
    assert_eq!(resolved(&store, "LARGE/OTHER 5"), "Large/Other 5");
    assert_eq!(scans(&store), 2);
}

/// Earlier versions read such a folder at each call.
#[test]
fn a_folder_of_more_than_a_million_names_is_read_once() {
    let folder = folders().pop().unwrap();
    let first = folder.path().join("Name 0");
    fs::write(&first, "").unwrap();
    // Hard links cost less than files; file systems on disk allow too few of them.
    for n in 1..=1_000_001 {
        fs::hard_link(&first, folder.path().join(format!("Name {n}"))).unwrap();
    }
    let store = store(folder.path());
    for n in 0..20 {
        let new = format!("nAME new {n}");
        assert_eq!(resolved(&store, &new), new);
        put(&store, &new, b"");
        assert_eq!(resolved(&store, &new.to_uppercase()), new);
        assert_eq!(resolved(&store, &format!("NAME {n}")), format!("Name {n}"));
    }
    assert_eq!(scans(&store), 1);
}

#[test]
fn what_is_never_asked_for_is_never_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    open(&store, "d", &MAKE_DIR);
    put(&store, "d/f", b"");
    assert_eq!(resolved(&store, "d/f"), "d/f");
    assert_eq!(scans(&store), 0);
}

#[test]
fn too_many_events_only_cost_another_scan() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    assert_eq!(resolved(&store, "x"), "x");
    // More events than may wait for a folder, and than the kernel queues by default.
    for n in 0..20_000 {
        let at = folder.path().join(format!("t{n}"));
        fs::File::create(&at).unwrap();
        fs::remove_file(&at).unwrap();
    }
    fs::write(folder.path().join("Last"), "").unwrap();
    assert_eq!(resolved(&store, "LAST"), "Last");
    assert_eq!(resolved(&store, "T1"), "T1");
    assert_eq!(scans(&store), 2);
}

#[test]
fn indexes_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        indexed_folders_max: 3,
        indexed_bytes_max: 1500,
        ..StoreOptions::default()
    };
    let store = LocalStore::open(folder.path(), &options).unwrap();
    for n in 0..10 {
        open(&store, &format!("d{n}"), &MAKE_DIR);
        for k in 0..10 {
            put(&store, &format!("d{n}/F{k}"), b"");
        }
    }
    for _ in 0..3 {
        for n in 0..10 {
            assert_eq!(resolved(&store, &format!("D{n}/f3")), format!("d{n}/F3"));
            let (folders, bytes) = store.core.indexes.sizes();
            assert!(folders <= 3 && bytes <= 1500, "{folders} folders, {bytes} bytes");
        }
    }
    for k in 0..100 {
        put(&store, &format!("d0/G{k}"), b"");
    }
    // Too large for the index: read each time.
    let before = scans(&store);
    assert_eq!(resolved(&store, "d0/g77"), "d0/G77");
    assert_eq!(resolved(&store, "d0/g78"), "d0/G78");
    assert_eq!(resolved(&store, "d0/g100"), "d0/g100");
    assert!(scans(&store) >= before + 3);
    // Small again: kept from the next read on.
    for k in 0..100 {
        fs::remove_file(folder.path().join(format!("d0/G{k}"))).unwrap();
    }
    assert_eq!(resolved(&store, "d0/f3"), "d0/F3");
    assert_eq!(resolved(&store, "d0/f4"), "d0/F4");
    let before = scans(&store);
    assert_eq!(resolved(&store, "d0/f5"), "d0/F5");
    assert_eq!(scans(&store), before);
}

#[test]
fn events_of_folders_that_nobody_asks_for_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        indexed_bytes_max: 64 * 1024,
        ..StoreOptions::default()
    };
    let store = LocalStore::open(folder.path(), &options).unwrap();
    for n in 0..4 {
        open(&store, &format!("d{n}"), &MAKE_DIR);
        assert_eq!(resolved(&store, &format!("d{n}/x")), format!("d{n}/x"));
    }
    // Folder 3 is looked up repeatedly, so the events of the others are read and wait.
    let long = "n".repeat(200);
    for round in 0..1000 {
        let at = folder.path().join(format!("d{}/{long}{round}", round % 3));
        fs::File::create(&at).unwrap();
        fs::remove_file(&at).unwrap();
        assert_eq!(resolved(&store, "d3/x"), "d3/x");
        let (_, bytes) = store.core.indexes.sizes();
        assert!(bytes <= 80 * 1024, "{bytes}");
    }
    fs::write(folder.path().join("d1/Last"), "").unwrap();
    assert_eq!(resolved(&store, "d1/LAST"), "d1/Last");
}

/// Result of `resolve_soon`, and the number of calls of its task.
fn soon(store: &LocalStore, at: &str, called: &Arc<AtomicUsize>) -> Resolved {
    let then = || -> Task {
        let called = Arc::clone(called);
        Box::new(move || {
            called.fetch_add(1, Ordering::Relaxed);
        })
    };
    store.resolve_soon(&path(at), &then).unwrap()
}

#[test]
fn a_large_folder_is_read_once_for_all_who_wait() {
    // On the volume whose folders grow with the number of names.
    for folder in folders() {
        let big = folder.path().join("Big");
        fs::create_dir(&big).unwrap();
        let name = "n".repeat(200);
        for n in 0..5000 {
            fs::File::create(big.join(format!("{name} {n}"))).unwrap();
        }
        let is_large = fs::metadata(&big).unwrap().len() >= 1 << 20;
        let store = store(folder.path());
        let called = Arc::new(AtomicUsize::new(0));
        let calls = || called.load(Ordering::Relaxed);
        let first = soon(&store, "Big/new", &called);
        if !is_large {
            assert!(matches!(first, Resolved::Path(_)));
            continue;
        }
        let Resolved::After(task) = first else {
            panic!("the folder is large");
        };
        assert!(matches!(soon(&store, "Big/other", &called), Resolved::UnderWay));
        // An exact name needs no index.
        let there = soon(&store, &format!("Big/{name} 7"), &called);
        assert!(matches!(there, Resolved::Path(_)));
        assert_eq!((scans(&store), calls()), (0, 0));
        task();
        assert_eq!((scans(&store), calls()), (1, 2));
        let Resolved::Path(found) = soon(&store, &format!("Big/{} 7", name.to_uppercase()), &called) else {
            panic!("it has been read");
        };
        assert_eq!(found.to_string(), format!("Big/{name} 7"));
        assert_eq!((scans(&store), calls()), (1, 2));
        // Dropping the task ends the wait too.
        let again = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
        drop(soon(&again, "Big/new", &called));
        assert_eq!(calls(), 3);
        assert!(matches!(soon(&again, "Big/new", &called), Resolved::After(_)));
    }
}

#[test]
fn a_folder_made_anew_has_a_new_index() {
    for folder in folders() {
        let store = store(folder.path());
        for round in 0..20 {
            open(&store, "d", &MAKE_DIR);
            let text = format!("d/Name{round}");
            put(&store, &text, b"");
            assert_eq!(
                resolved(&store, &text.to_uppercase().replace('D', "d")),
                text.clone().replace("NAME", "Name")
            );
            assert_eq!(
                resolved(&store, &format!("d/nAME{}", round + 1)),
                format!("d/nAME{}", round + 1)
            );
            fs::remove_dir_all(folder.path().join("d")).unwrap();
        }
    }
}

#[test]
fn threads_see_what_was_done_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..500 {
                    let at = format!("Thread {thread} {n}");
                    put(store, &at, b"");
                    assert_eq!(resolved(store, &at.to_uppercase()), at);
                    store.remove(&path(&at), false).unwrap();
                    assert_eq!(resolved(store, &at.to_uppercase()), at.to_uppercase());
                }
            });
        }
    });
    assert_eq!(scans(&store), 1);
}

/// A change of a folder, by this store or by another program.
#[derive(Clone, Debug)]
enum Step {
    Make(usize),
    Remove(usize),
    Rename(usize, usize),
    Ask(usize),
}

/// Names, of which some differ only in case.
const NAMES: [&str; 9] = ["a", "A", "bc", "Bc", "BC", "ä", "Ä", "straße", "STRAßE"];

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    prop_oneof![
        name().prop_map(Step::Make),
        name().prop_map(Step::Remove),
        (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        name().prop_map(Step::Ask),
    ]
}

/// Returns the names in a folder that equal `name` except for case, in order.
fn alike(folder: &Path, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut there: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|other| crate::winmeta::fold::equal(other.as_bytes(), name.as_bytes()))
        .collect();
    there.sort();
    there
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_resolved_is_what_a_look_at_the_folder_tells(
        steps in proptest::collection::vec((step(), any::<bool>()), 1..60),
    ) {
        let folder = folders().pop().unwrap();
        let store = store(folder.path());
        fs::create_dir(folder.path().join("d")).unwrap();
        for (step, by_store) in steps {
            let at = |n: usize| format!("d/{}", NAMES[n]);
            match step {
                Step::Make(n) if by_store => drop(store.open(&path(&at(n)), &CREATE)),
                Step::Make(n) => drop(fs::write(folder.path().join(at(n)), "")),
                Step::Remove(n) if by_store => drop(store.remove(&path(&at(n)), false)),
                Step::Remove(n) => drop(fs::remove_file(folder.path().join(at(n)))),
                Step::Rename(from, to) if by_store => drop(store.rename(&path(&at(from)), &path(&at(to)), true)),
                Step::Rename(from, to) => {
                    drop(fs::rename(folder.path().join(at(from)), folder.path().join(at(to))));
                }
                Step::Ask(n) => {
                    let there = alike(&folder.path().join("d"), NAMES[n]);
                    let exact = there.iter().any(|other| other == NAMES[n]);
                    let wanted = there.first().filter(|_| !exact).map_or(NAMES[n], |other| other.as_str());
                    prop_assert_eq!(resolved(&store, &at(n)), format!("d/{wanted}"));
                }
            }
        }
        prop_assert!(scans(&store) <= 1);
    }
}
