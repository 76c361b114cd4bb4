//! Round trips of new files: what a copy into a share asks for.

use std::time::Duration;

use ropeway_smb_client::SmbStore;
use ropeway_vfs::Kind;
use ropeway_vfs::store::Store;

use super::bench::{Bench, CREATE, LOOK, NEW, NEW_FOLDER, bytes, open, path};
use super::{alone, asked, files, lasting, list_all};

/// `cp -r`: looks for the name, makes the file, writes it, closes it; looks at the folder again now
/// and then. Returns the requests.
fn copy_into(store: &SmbStore, dir: &str, count: usize) -> Vec<String> {
    let ((), requests) = asked(|| {
        for number in 0..count {
            let at = format!("{dir}/file {number}");
            assert!(store.open(&path(&at), &LOOK).is_err());
            let node = open(store, &at, &NEW);
            node.write_at(&bytes(3000, number as u64), 0).unwrap();
            node.write_out().unwrap();
            drop(node);
            let folder = open(store, dir, &LOOK).stat().unwrap();
            assert_eq!(folder.kind, Kind::Directory);
        }
    });
    requests
}

/// Before, each file took four more: the CLOSE of the file before, its name, and its folder.
#[test]
fn a_new_file_in_a_new_folder_takes_two_round_trips() {
    let _alone = alone();
    let bench = Bench::start();
    let store = bench.store_with("", lasting());
    let ((), requests) = asked(|| drop(open(&store, "d", &NEW_FOLDER)));
    assert_eq!(requests, ["Create"]);
    let requests = copy_into(&store, "d", 20);
    assert_eq!(requests, ["Create", "Write"].repeat(20));
    // The listing is that of the server.
    let mut found = Vec::new();
    list_all(&store, "d", &mut found);
    assert_eq!(found.len(), 20);
    for (name, stat) in found {
        let disk = std::fs::metadata(bench.path().join(&name)).unwrap();
        assert_eq!((stat.size, disk.len()), (3000, 3000), "{name}");
    }
}

/// A folder that was there before is listed once a few names were asked for.
#[test]
fn new_files_in_an_existing_folder_soon_take_two_round_trips_each() {
    let _alone = alone();
    let bench = Bench::start();
    files(&bench, &[100; 30]);
    let store = bench.store_with("", lasting());
    let requests = copy_into(&store, "d", 5);
    assert!(requests.len() < 30, "{requests:?}");
    std::thread::sleep(Duration::from_millis(500));
    let ((), requests) = asked(|| {
        for number in 0..20 {
            let at = format!("d/new {number}");
            assert!(store.open(&path(&at), &LOOK).is_err());
            open(&store, &at, &NEW).write_out().unwrap();
        }
    });
    assert_eq!(requests, ["Create"].repeat(20));
    let mut found = Vec::new();
    list_all(&store, "d", &mut found);
    assert_eq!(found.len(), 55);
}

/// The lease that survives own changes is broken by others'.
#[test]
fn a_name_that_another_client_makes_is_seen_in_a_folder_of_own_files() {
    let _alone = alone();
    let bench = Bench::start();
    let (store, there) = (bench.store_with("", lasting()), bench.store());
    drop(open(&store, "d", &NEW_FOLDER));
    copy_into(&store, "d", 3);
    open(&there, "d/other", &CREATE).write_out().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while store.open(&path("d/other"), &LOOK).is_err() {
        assert!(std::time::Instant::now() < deadline, "the lease is not broken");
    }
    assert!(store.open(&path("d/other"), &NEW).is_err(), "it must be new");
    there.remove(&path("d/file 1"), false).unwrap();
    while store.open(&path("d/file 1"), &LOOK).is_ok() {
        assert!(std::time::Instant::now() < deadline, "the removal is not seen");
    }
}
