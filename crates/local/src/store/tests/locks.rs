//! Byte-range locks as other programs see them: each open file description has its own.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use ropeway_vfs::store::RangeLock::{Exclusive, None, Shared};

use super::*;
use crate::sys::{LockRange, LockType, is_locked, try_lock_range};

const LAST: u64 = i64::MAX as u64;

/// Another program, with the file open.
struct Other(File);

impl Other {
    fn open(folder: &TempDir, name: &str) -> Self {
        let path = folder.path().join(name);
        Self(File::options().read(true).write(true).open(path).unwrap())
    }

    fn lock(&self, first: i64, last: i64, what: LockType) -> bool {
        try_lock_range(self.0.as_fd(), LockRange { first, last }, what).unwrap()
    }

    /// Returns the lock that blocks it: none, a shared or an exclusive one.
    fn sees(&self, byte: i64) -> ropeway_vfs::store::RangeLock {
        let range = LockRange {
            first: byte,
            last: byte,
        };
        let excludes = |what| is_locked(self.0.as_fd(), range, what).unwrap();
        match (excludes(LockType::Read), excludes(LockType::Write)) {
            (true, _) => Exclusive,
            (false, true) => Shared,
            (false, false) => None,
        }
    }
}

#[test]
fn locks_are_seen_and_those_of_others_are_respected() {
    for folder in folders() {
        let store = store(folder.path());
        let node = put(&store, "f", b"content");
        let other = Other::open(&folder, "f");
        assert!(node.lock_range(10, 19, Exclusive).unwrap());
        assert!(node.lock_range(30, LAST, Shared).unwrap());
        let seen = [9, 10, 19, 20, 30, i64::MAX].map(|byte| other.sees(byte));
        assert_eq!(seen, [None, Exclusive, Exclusive, None, Shared, Shared]);
        assert!(!other.lock(15, 15, LockType::Read));
        assert!(node.lock_range(12, 13, None).unwrap());
        assert_eq!(
            [11, 12, 13, 14].map(|byte| other.sees(byte)),
            [Exclusive, None, None, Exclusive]
        );
        assert!(other.lock(12, 13, LockType::Write) && other.lock(40, 40, LockType::Read));
        assert!(!node.lock_range(10, 12, Shared).unwrap());
        assert_eq!(other.sees(10), Exclusive, "nothing was changed");
        let locked = |first, last, write| node.is_range_locked(first, last, write).unwrap();
        assert!(locked(0, 12, false) && locked(13, 13, true) && !locked(14, 39, true));
        assert!(!locked(40, 40, false) && locked(40, 40, true));
        assert!(node.lock_range(0, LAST, None).unwrap());
        assert_eq!([10, 30].map(|byte| other.sees(byte)), [None, None]);
        // Closing releases all locks.
        assert!(node.lock_range(0, 0, Exclusive).unwrap());
        drop(node);
        assert_eq!(other.sees(0), None);
    }
}

#[test]
fn nodes_of_one_file_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let (one, two) = (put(&store, "f", b""), open(&store, "f", &WRITE));
    assert!(one.lock_range(0, 9, Shared).unwrap() && two.lock_range(5, 14, Shared).unwrap());
    assert!(!one.lock_range(5, 5, Exclusive).unwrap());
    assert!(one.lock_range(0, 4, Exclusive).unwrap());
    drop(two);
    assert!(one.lock_range(5, 9, Exclusive).unwrap());
}

#[test]
fn what_is_not_open_for_writing_locks_shared() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    put(&store, "f", b"");
    let other = Other::open(&folder, "f");
    let (reads, looks) = (open(&store, "f", &READ), open(&store, "f", &LOOK));
    assert!(reads.lock_range(0, 9, Exclusive).unwrap());
    assert_eq!(other.sees(0), Shared);
    assert!(looks.lock_range(20, 29, Exclusive).unwrap());
    assert_eq!(other.sees(20), None);
    assert!(other.lock(20, 29, LockType::Write));
    assert!(!looks.is_range_locked(20, 29, true).unwrap());
    assert!(reads.is_range_locked(20, 29, false).unwrap());
    assert_eq!(kind_of(reads.lock_range(0, 1 << 63, Shared)), ErrorKind::Misuse);
}

#[test]
fn folders_and_streams_have_no_such_locks() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let directory = open(&store, "d", &MAKE_DIR);
    assert!(directory.lock_range(0, 9, Exclusive).unwrap());
    assert!(!directory.is_range_locked(0, 9, true).unwrap());
    let file = put(&store, "f", b"");
    let how = ropeway_vfs::store::StreamOpen {
        create: true,
        exclusive: false,
    };
    let Ok((stream, _)) = file.open_stream(&name("s"), &how) else {
        println!("skipped: no extended attributes here");
        return;
    };
    assert_eq!(
        kind_of(stream.lock_range(0, 9, Exclusive)),
        ErrorKind::Unsupported
    );
    assert!(!stream.is_range_locked(0, 9, true).unwrap());
}

/// A lock ends with its descriptor. So a node with a lock keeps its descriptor, whatever is opened and
/// renamed meanwhile.
#[test]
fn nodes_with_locks_keep_their_descriptors_as_far_as_there_are_enough() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        descriptors_max: 20,
        ..StoreOptions::default()
    };
    let store = LocalStore::open(folder.path(), &options).unwrap();
    let nodes: Vec<_> = (0..60).map(|n| put(&store, &format!("{n}"), b"")).collect();
    for node in &nodes[..10] {
        assert!(node.lock_range(0, 0, Exclusive).unwrap());
    }
    assert_eq!(
        kind_of(nodes[10].lock_range(0, 0, Exclusive)),
        ErrorKind::Exhausted
    );
    // A refused request leaves no lock.
    let other = Other::open(&folder, "9");
    assert!(other.lock(9, 9, LockType::Write));
    assert!(!nodes[9].lock_range(9, 9, Shared).unwrap());
    assert_eq!(other.sees(0), Exclusive);
    assert_eq!(store.core.descriptors.held.load(Ordering::Relaxed), 10);
    // Nodes with locks may get more.
    assert!(nodes[9].lock_range(5, 5, Exclusive).unwrap());
    for _ in 0..3 {
        nodes.iter().skip(10).for_each(|node| _ = content(&**node));
    }
    assert!(store.core.descriptors.count() <= 20);
    for n in 0..10 {
        assert_eq!(Other::open(&folder, &format!("{n}")).sees(0), Exclusive, "{n}");
    }
    fs::rename(folder.path().join("3"), folder.path().join("moved")).unwrap();
    assert_eq!(Other::open(&folder, "moved").sees(0), Exclusive);
    assert!(nodes[3].lock_range(0, LAST, None).unwrap());
    let other = Other::open(&folder, "11");
    assert!(other.lock(0, 0, LockType::Write));
    assert!(!nodes[11].lock_range(0, 0, Exclusive).unwrap());
    assert_eq!(store.core.descriptors.held.load(Ordering::Relaxed), 9);
    assert!(nodes[10].lock_range(0, 0, Exclusive).unwrap());
    drop(nodes);
    assert_eq!(store.core.descriptors.count(), 0);
    assert_eq!(store.core.descriptors.held.load(Ordering::Relaxed), 0);
}
