//! Names without regard to case stay fast: folders are read once.

use std::fs;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;

fn scans(store: &LocalStore) -> usize {
    store.core.indexes.scans.load(Ordering::Relaxed)
}

fn resolved(store: &LocalStore, at: &str) -> String {
    store.resolve(&path(at)).unwrap().to_string()
}

#[test]
fn a_folder_of_a_hundred_thousand_names_is_read_once() {
    // In memory where there is such a folder: making the names takes long enough.
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
    // The root, and the folder.
    assert_eq!(scans(&store), 2);
    // Others change it, too.
    fs::rename(big.join("Name 5"), big.join("Other 5")).unwrap();
    fs::remove_file(big.join("Name 6")).unwrap();
    assert_eq!(resolved(&store, "Big/NAME 5"), "Big/NAME 5");
    assert_eq!(resolved(&store, "Big/OTHER 5"), "Big/Other 5");
    assert_eq!(resolved(&store, "Big/NAME 6"), "Big/NAME 6");
    assert_eq!(scans(&store), 2);
    // The index is the folder's, whatever its name.
    store.rename(&path("Big"), &path("Large"), false).unwrap();
    assert_eq!(resolved(&store, "LARGE/OTHER 5"), "Large/Other 5");
    assert_eq!(scans(&store), 2);
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
    // More than a folder's events that may wait, and than the kernel's queue holds by default.
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
        indexed_names_max: 50,
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
            let (folders, names) = store.core.indexes.sizes();
            assert!(folders <= 3 && names <= 80, "{folders} folders, {names} names");
        }
    }
    for k in 0..100 {
        put(&store, &format!("d0/G{k}"), b"");
    }
    // Too large to be kept: read each time.
    assert_eq!(resolved(&store, "d0/g77"), "d0/G77");
    assert_eq!(resolved(&store, "d0/g78"), "d0/G78");
    assert_eq!(resolved(&store, "d0/g100"), "d0/g100");
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

/// What happens to a folder, by this store or by others.
#[derive(Clone, Debug)]
enum Step {
    Make(usize),
    Remove(usize),
    Rename(usize, usize),
    Ask(usize),
}

/// Names that differ in case only, some of them.
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

/// The names in a folder that differ from `name` in case at most, in order.
fn alike(folder: &Path, name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut there: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|other| crate::store::fold::equal(other.as_bytes(), name.as_bytes()))
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
