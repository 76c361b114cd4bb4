//! New files of several clients in the same folders, whose leases outlive what a client makes itself.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ropeway_smb_client::SmbStore;
use ropeway_vfs::ErrorKind;
use ropeway_vfs::store::Store;

use super::bench::{Bench, LOOK, NEW, NEW_FOLDER, READ, content, open, path};

fn names(store: &SmbStore, dir: &str) -> BTreeSet<String> {
    let mut entries = open(store, dir, &READ).entries().unwrap();
    let mut names = BTreeSet::new();
    while let Some((name, _)) = entries.next().unwrap() {
        names.insert(name.to_string());
    }
    names
}

fn on_disk(bench: &Bench, dir: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(bench.path().join(dir)).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Lock files rely on it: what a store knows of a folder never answers for the server.
#[test]
fn of_two_clients_that_make_the_same_file_one_succeeds() {
    let bench = Bench::with_delay(Duration::from_millis(3));
    let stores = [bench.store(), bench.store()];
    drop(open(&stores[0], "d", &NEW_FOLDER));
    for store in &stores {
        // Both know the folder under a lease.
        assert!(names(store, "d").is_empty());
    }
    let start = Barrier::new(2);
    let won: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let clients = stores.each_ref().map(|store| {
            let start = &start;
            scope.spawn(move || {
                let make = |number: u32| {
                    start.wait();
                    let at = path(&format!("d/lock {number}"));
                    let looked = store.open(&at, &LOOK).is_ok();
                    match store.open(&at, &NEW) {
                        Ok(opened) => {
                            assert!(opened.created);
                            opened.node.write_out().unwrap();
                            true
                        }
                        Err(error) => {
                            assert_eq!(error.kind, ErrorKind::AlreadyExists, "looked {looked}");
                            // From now on it is there for this client, too.
                            assert!(store.open(&at, &LOOK).is_ok());
                            false
                        }
                    }
                };
                (0..60).map(make).collect()
            })
        });
        clients.map(|client| client.join().unwrap()).into()
    });
    for (one, other) in won[0].iter().zip(&won[1]) {
        assert!(one ^ other, "{won:?}");
    }
    assert_eq!(on_disk(&bench, "d").len(), 60);
}

/// Two clients make and remove files of one folder. In the end both know what is there.
#[test]
fn clients_that_make_and_remove_files_of_one_folder_agree_in_the_end() {
    for seed in 0..3 {
        let bench = Bench::with_delay(Duration::from_millis(1));
        let stores = [bench.store(), bench.store()];
        drop(open(&stores[0], "d", &NEW_FOLDER));
        std::thread::scope(|scope| {
            for (number, store) in stores.iter().enumerate() {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 2 + number as u64);
                    for _ in 0..150 {
                        let at = path(&format!("d/n{}", random.u8(0..10)));
                        let done = match random.u8(0..6) {
                            0 | 1 => store.open(&at, &NEW).map(|opened| {
                                let _ = opened.node.write_at(b"content", 0);
                                let _ = opened.node.write_out();
                            }),
                            2 => store.remove(&at, false),
                            3 => store.rename(&at, &path(&format!("d/n{}", random.u8(0..10))), false),
                            4 => store.open(&path("d"), &READ).map(|folder| {
                                let mut entries = folder.node.entries().unwrap();
                                while entries.next().unwrap().is_some() {}
                            }),
                            _ => store.open(&at, &LOOK).map(drop),
                        };
                        if let Err(error) = done {
                            let expected = matches!(
                                error.kind,
                                ErrorKind::NotFound
                                    | ErrorKind::AlreadyExists
                                    | ErrorKind::Busy
                                    | ErrorKind::PermissionDenied
                                    | ErrorKind::Gone
                            );
                            assert!(expected, "{error}");
                        }
                    }
                });
            }
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        for store in &stores {
            // What the other did last is reported a moment later.
            let until = |what: &str, agrees: &dyn Fn() -> bool| {
                while !agrees() {
                    assert!(Instant::now() < deadline, "seed {seed}: {what}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            };
            until("listing", &|| names(store, "d") == on_disk(&bench, "d"));
            for number in 0..10 {
                let name = format!("n{number}");
                let at = path(&format!("d/{name}"));
                let is_there = on_disk(&bench, "d").contains(&name);
                until(&name, &|| store.open(&at, &LOOK).is_ok() == is_there);
            }
        }
    }
}

/// A lost reply leaves nothing known about a name: it may exist by now.
#[test]
fn a_line_that_is_cut_while_files_are_made_leaves_no_false_names() {
    let bench = Bench::with_delay(Duration::from_millis(2));
    let store = bench.store();
    drop(open(&store, "d", &NEW_FOLDER));
    let mut random = fastrand::Rng::with_seed(4);
    for number in 0..60 {
        let at = format!("d/f{number}");
        let pause = Duration::from_micros(random.u64(0..8000));
        let made = std::thread::scope(|scope| {
            if number % 3 == 0 {
                scope.spawn(|| {
                    std::thread::sleep(pause);
                    bench.way.cut();
                });
            }
            let made = store.open(&path(&at), &NEW);
            if let Ok(opened) = &made {
                opened.node.write_at(at.as_bytes(), 0).unwrap();
                opened.node.write_out().unwrap();
            }
            made
        });
        let disk = bench.path().join(&at);
        match made {
            Ok(opened) => {
                drop(opened);
                assert_eq!(std::fs::read(&disk).unwrap(), at.as_bytes());
            }
            Err(error) => println!("{error}"),
        }
        assert_eq!(
            store.open(&path(&at), &LOOK).is_ok(),
            disk.exists(),
            "file {number}"
        );
    }
    assert_eq!(names(&store, "d"), on_disk(&bench, "d"));
}

/// A name that is removed or changed right after it was made.
#[test]
fn a_new_file_can_be_renamed_and_removed_at_once() {
    let bench = Bench::start();
    let store = bench.store();
    drop(open(&store, "d", &NEW_FOLDER));
    for number in 0..30 {
        let (one, other) = (format!("d/a{number}"), format!("d/b{number}"));
        let node = open(&store, &one, &NEW);
        node.write_at(b"one", 0).unwrap();
        store.rename(&path(&one), &path(&other), false).unwrap();
        assert!(store.open(&path(&one), &LOOK).is_err());
        assert_eq!(open(&store, &other, &LOOK).stat().unwrap().size, 3);
        node.write_at(b"two", 3).unwrap();
        drop(node);
        assert_eq!(content(&*open(&store, &other, &READ)), b"onetwo");
        if number % 2 == 0 {
            store.remove(&path(&other), false).unwrap();
            assert!(store.open(&path(&other), &LOOK).is_err());
            drop(open(&store, &other, &NEW));
        }
    }
    assert_eq!(names(&store, "d"), on_disk(&bench, "d"));
    store.rename(&path("d"), &path("e"), false).unwrap();
    assert!(store.open(&path("d/b1"), &LOOK).is_err());
    drop(open(&store, "e/new", &NEW));
    assert_eq!(names(&store, "e"), on_disk(&bench, "e"));
}
