//! Two clients on one server: each sees what the other does, at once under a lease, else after the
//! time-out.

use std::time::{Duration, Instant};

use ropeway_smb_client::SmbStoreOptions;
use ropeway_vfs::store::{NodeChange, RangeLock, Store};
use ropeway_vfs::{ErrorKind, Timestamp};

use super::bench::{Bench, CREATE, LOOK, READ, content, open, path};

/// Longer than the time-out of attributes.
const LATER: Duration = Duration::from_millis(1200);

#[test]
fn data_read_ahead_ends_with_its_lease() {
    let bench = Bench::start();
    let (here, there) = (bench.store(), bench.store());
    let old = vec![1; 8 << 20];
    std::fs::write(bench.path().join("f"), &old).unwrap();
    // The server notices this change of a local program, and would break a lease for it.
    std::thread::sleep(Duration::from_millis(500));
    let reader = open(&here, "f", &READ);
    let mut piece = vec![0; 64 << 10];
    for at in 0..8 {
        reader.read_at(&mut piece, at * (64 << 10)).unwrap();
    }
    // What comes next is in memory by now.
    let deadline = Instant::now() + Duration::from_secs(5);
    while reader.read_cached(&mut piece, 8 * (64 << 10)).unwrap().is_none() {
        assert!(Instant::now() < deadline, "nothing is read ahead");
        std::thread::sleep(Duration::from_millis(5));
    }
    let writer = open(&there, "f", &CREATE);
    writer.write_at(&vec![2; 8 << 20], 0).unwrap();
    writer.write_out().unwrap();
    // The server does not wait for the break to arrive. Without a lease, data is valid for 10 s.
    std::thread::sleep(Duration::from_millis(500));
    for at in 9..128 {
        reader.read_at(&mut piece, at * (64 << 10)).unwrap();
        assert!(piece.iter().all(|byte| *byte == 2), "{at}");
    }
}

#[test]
fn names_and_attributes_of_others_are_seen_after_the_time_out() {
    let bench = Bench::start();
    let (here, there) = (bench.store(), bench.store());
    assert_eq!(
        here.open(&path("f"), &LOOK).err().unwrap().kind,
        ErrorKind::NotFound
    );
    open(&there, "f", &CREATE).write_at(b"abc", 0).unwrap();
    std::thread::sleep(LATER);
    assert_eq!(here.open(&path("f"), &LOOK).unwrap().stat.size, 3);
    let node = open(&there, "f", &CREATE);
    node.write_at(b"more than that", 0).unwrap();
    node.write_out().unwrap();
    std::thread::sleep(LATER);
    assert_eq!(here.open(&path("f"), &LOOK).unwrap().stat.size, 14);
    drop(node);
    there.remove(&path("f"), false).unwrap();
    std::thread::sleep(LATER);
    assert_eq!(
        here.open(&path("f"), &LOOK).err().unwrap().kind,
        ErrorKind::NotFound
    );
}

#[test]
fn locks_exclude_other_clients() {
    let bench = Bench::start();
    let (here, there) = (bench.store(), bench.store());
    let one = open(&here, "f", &CREATE);
    one.write_at(&[1; 100], 0).unwrap();
    assert!(one.lock_range(10, 19, RangeLock::Exclusive).unwrap());
    let two = open(&there, "f", &CREATE);
    assert!(!two.lock_range(15, 15, RangeLock::Shared).unwrap());
    assert!(two.is_range_locked(15, 15, false).unwrap());
    assert!(two.lock_range(20, 29, RangeLock::Exclusive).unwrap());
    assert!(!one.lock_range(0, 40, RangeLock::Shared).unwrap());
    // Under a lock the newest data counts.
    one.write_at(&[7; 10], 10).unwrap();
    assert!(one.lock_range(0, i64::MAX as u64, RangeLock::None).unwrap());
    assert!(two.lock_range(10, 19, RangeLock::Exclusive).unwrap());
    assert_eq!(content(&*two)[10..20], [7; 10]);
    drop(two);
    // A dropped node releases its locks, in the background.
    let deadline = Instant::now() + Duration::from_secs(5);
    while !one.lock_range(0, 40, RangeLock::Exclusive).unwrap() {
        assert!(Instant::now() < deadline, "the locks remain");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Data without a lease is trusted for its own time-out only. Here: none.
#[test]
fn attributes_are_asked_for_each_time_without_a_time_out() {
    let bench = Bench::start();
    let options = SmbStoreOptions {
        cache_timeout: Duration::ZERO,
        ..SmbStoreOptions::default()
    };
    let (here, there) = (bench.store_with("", options), bench.store());
    for round in 1..20 {
        let node = open(&there, "f", &CREATE);
        node.write_at(&[1; 10], round * 10).unwrap();
        node.write_out().unwrap();
        assert_eq!(here.open(&path("f"), &LOOK).unwrap().stat.size, round * 10 + 10);
    }
}

/// Found by random operations on a mounted share: the temporary name of a removed file that is open
/// was in its folder, which then could be neither removed nor renamed.
#[test]
fn a_folder_is_renamed_and_removed_while_a_file_removed_from_it_is_open() {
    let bench = Bench::start();
    let store = bench.store();
    std::fs::create_dir(bench.path().join("d")).unwrap();
    let node = open(&store, "d/f", &CREATE);
    node.write_at(b"content", 0).unwrap();
    store.remove(&path("d/f"), false).unwrap();
    store.rename(&path("d"), &path("e"), false).unwrap();
    store.remove(&path("e"), true).unwrap();
    assert_eq!(content(&*node), b"content");
    drop(node);
    drop(store);
    let is_gone = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::read_dir(bench.path()).unwrap().count() == 0
    });
    assert!(is_gone, "the file stays under its temporary name");
}

/// Before, the server broke the lease on a folder only when an entry was added: after any other
/// change a client that had listed it showed the old entry for ever.
#[test]
fn a_leased_listing_shows_every_change_of_another_client() {
    let bench = Bench::start();
    std::fs::create_dir(bench.path().join("d")).unwrap();
    for name in ["d/a", "d/b", "d/c"] {
        std::fs::write(bench.path().join(name), "old").unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let options = SmbStoreOptions {
        cache_timeout: Duration::ZERO,
        ..SmbStoreOptions::default()
    };
    let (here, there) = (bench.store_with("", options.clone()), bench.store());
    let listed = || {
        let mut entries = open(&here, "d", &READ).entries().unwrap();
        let mut found = Vec::new();
        while let Some((name, stat)) = entries.next().unwrap() {
            found.push((name.to_string(), stat.size, stat.modified.to_unix().0));
        }
        found.sort();
        found
    };
    let node = open(&there, "d/a", &CREATE);
    let changes: [(&str, &dyn Fn()); 5] = [
        ("a write", &|| {
            node.write_at(b"longer", 0).unwrap();
            node.write_out().unwrap();
        }),
        ("a length", &|| node.set_len(100).unwrap()),
        ("a time", &|| {
            let change = NodeChange {
                modified: Some(Timestamp::from_unix(1_000_000, 0)),
                ..NodeChange::default()
            };
            node.change(&change).unwrap();
        }),
        ("a rename", &|| {
            there.rename(&path("d/b"), &path("d/e"), false).unwrap()
        }),
        ("a removal", &|| there.remove(&path("d/c"), false).unwrap()),
    ];
    for (what, change) in changes {
        let before = listed();
        change();
        let deadline = Instant::now() + Duration::from_secs(10);
        while listed() == before {
            assert!(Instant::now() < deadline, "{what} is not seen: {before:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
