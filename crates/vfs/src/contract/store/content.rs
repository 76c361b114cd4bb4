//! Rules about content, ranges and locks.

use super::*;
use crate::store::RangeLock;

pub(super) fn content_is_kept(store: &dyn Store, _: Abilities) {
    let node = put(store, "f", b"hello");
    node.write_at(b"world", 10).unwrap();
    assert_eq!(content(&*node), b"hello\0\0\0\0\0world");
    let mut buffer = [9; 8];
    assert_eq!(node.read_at(&mut buffer, 12).unwrap(), 3);
    assert_eq!(&buffer[..3], b"rld");
    assert_eq!(node.read_at(&mut buffer, 100).unwrap(), 0);
    if let Some(count) = node.read_cached(&mut buffer, 12).unwrap() {
        assert_eq!((count, &buffer[..3]), (3, &b"rld"[..]));
    }
    node.set_len(3).unwrap();
    assert_eq!(content(&*node), b"hel");
    node.set_len(5).unwrap();
    assert_eq!(content(&*node), b"hel\0\0");
    node.set_len(3).unwrap();
    assert_eq!(kind_of(node.set_len(u64::MAX)), ErrorKind::FileTooLarge);
    assert!(node.write_at(b"x", u64::MAX).is_err());
    assert_eq!(node.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    node.write_out().unwrap();
    node.sync().unwrap();
    store.sync().unwrap();
    assert_eq!(content(&*open(store, "f", &READ)), b"hel");
    let large: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    let node = put(store, "large", &large);
    assert_eq!(node.stat().unwrap().size, 5_000_000);
    let mut back = vec![0; 6_000_000];
    assert_eq!(node.read_at(&mut back, 0).unwrap(), 5_000_000);
    assert!(back[..5_000_000] == large);
    drop(node);
    let node = open(store, "large", &READ);
    assert_eq!(node.stat().unwrap().size, 5_000_000);
    for at in (0..5_000_000).step_by(100_000) {
        let mut piece = vec![0; 100_000];
        assert_eq!(node.read_at(&mut piece, at as u64).unwrap(), 100_000);
        assert!(piece == large[at..at + 100_000], "{at}");
    }
}

pub(super) fn nodes_of_a_file_share_its_content(store: &dyn Store, _: Abilities) {
    let one = put(store, "f", b"one");
    let reader = open(store, "f", &READ);
    let two = open(store, "f", &WRITE);
    assert_eq!(content(&*reader), b"one");
    two.write_at(b"two!", 0).unwrap();
    assert_eq!(content(&*one), b"two!");
    assert_eq!(content(&*reader), b"two!");
    assert_eq!(reader.stat().unwrap().size, 4);
    assert_eq!(store.open(&path("f"), &LOOK).unwrap().stat.size, 4);
    assert_eq!(list(&*open(store, "", &READ))[0].1.size, 4);
    one.set_len(1).unwrap();
    assert_eq!(content(&*two), b"t");
    drop((one, two));
    assert_eq!(content(&*reader), b"t");
    let again = open(store, "f", &WRITE);
    again.write_at(b"s", 5).unwrap();
    drop(again);
    assert_eq!(content(&*reader), b"t\0\0\0\0s");
}

pub(super) fn removed_files_stay_usable(store: &dyn Store, _: Abilities) {
    let node = put(store, "f", b"abc");
    store.remove(&path("f"), false).unwrap();
    assert_eq!(refused(store.open(&path("f"), &READ)), ErrorKind::NotFound);
    assert!(list(&*open(store, "", &READ)).is_empty());
    put(store, "f", b"new");
    assert_eq!(content(&*node), b"abc");
    node.write_at(b"A", 0).unwrap();
    assert_eq!(content(&*node), b"Abc");
    assert_eq!(node.stat().unwrap().links, 0);
    assert_eq!(content(&*open(store, "f", &READ)), b"new");
    drop(node);
    assert_eq!(list(&*open(store, "", &READ)).len(), 1);
}

pub(super) fn holes_and_zeros(store: &dyn Store, can: Abilities) {
    const M: u64 = 1 << 20;
    let node = put(store, "f", &vec![7; 4 << 20]);
    node.zero(M, M, true).unwrap();
    node.zero(3 * M, 10 * M, false).unwrap();
    assert_eq!(node.stat().unwrap().size, 4 * M);
    let mut buffer = vec![1; 4 << 20];
    assert_eq!(node.read_at(&mut buffer, 0).unwrap() as u64, 4 * M);
    let zeros = |from: u64, to: u64| buffer[from as usize..to as usize].iter().all(|byte| *byte == 0);
    assert!(zeros(M, 2 * M) && zeros(3 * M, 4 * M) && buffer[0] == 7 && buffer[2 << 20] == 7);
    if can.holes {
        let runs = node.extents(0, 4 * M, 16).unwrap();
        assert_eq!((runs[0].offset, runs[0].length), (0, M));
        assert_eq!(runs[1].offset, 2 * M);
        let within = node.extents(M / 2, M, 16).unwrap();
        assert_eq!(
            (within.len(), within[0].offset, within[0].length),
            (1, M / 2, M / 2)
        );
    }
    assert_eq!(node.extents(0, 4 * M, 1).unwrap().len(), 1);
    assert!(node.extents(8 * M, M, 4).unwrap().is_empty());
}

pub(super) fn ranges_are_copied(store: &dyn Store, _: Abilities) {
    let bytes: Vec<u8> = (0..600_000_u32).map(|at| (at % 251) as u8).collect();
    let source = put(store, "s", &bytes);
    let target = put(store, "t", b"");
    assert_eq!(target.copy_from(&*source, 100, 5, 500_000).unwrap(), 500_000);
    assert!(content(&*target)[5..] == bytes[100..500_100]);
    assert_eq!(target.copy_from(&*source, 599_990, 0, 100).unwrap(), 10);
    assert_eq!(target.copy_from(&*source, 700_000, 0, 100).unwrap(), 0);
    // Overlapping ranges, in both directions.
    assert_eq!(source.copy_from(&*source, 0, 1000, 590_000).unwrap(), 590_000);
    assert!(content(&*source)[1000..591_000] == bytes[..590_000]);
    let source = put(store, "s", &bytes);
    assert_eq!(source.copy_from(&*source, 1000, 0, 590_000).unwrap(), 590_000);
    assert!(content(&*source)[..590_000] == bytes[1000..591_000]);
}

pub(super) fn locks_exclude_each_other(store: &dyn Store, can: Abilities) {
    use RangeLock::{Exclusive, None, Shared};
    const LAST: u64 = i64::MAX as u64;
    let one = put(store, "f", &[0; 100]);
    if !can.locks {
        return;
    }
    let other = open(store, "f", &WRITE);
    assert!(one.lock_range(10, 19, Exclusive).unwrap());
    assert!(!other.lock_range(15, 30, Shared).unwrap());
    assert!(other.is_range_locked(19, 19, false).unwrap());
    assert!(!other.is_range_locked(20, 30, true).unwrap());
    // A part is unlocked, the rest stays.
    assert!(one.lock_range(14, 15, None).unwrap());
    assert!(other.lock_range(14, 15, Exclusive).unwrap());
    assert!(!other.lock_range(13, 13, Shared).unwrap());
    assert!(!other.lock_range(16, 16, Shared).unwrap());
    assert!(one.lock_range(0, LAST, None).unwrap());
    assert!(other.lock_range(0, LAST, None).unwrap());
    assert!(one.lock_range(0, 50, Shared).unwrap());
    assert!(other.lock_range(40, LAST, Shared).unwrap());
    assert!(!other.lock_range(45, 45, Exclusive).unwrap());
    // Locks are advisory: they exclude other locks, and no write of the same store.
    one.write_at(&[7; 100], 0).unwrap();
    one.write_out().unwrap();
    other.write_at(&[8; 20], 30).unwrap();
    other.sync().unwrap();
    assert_eq!(content(&*one), [vec![7; 30], vec![8; 20], vec![7; 50]].concat());
    assert!(!other.lock_range(45, 45, Exclusive).unwrap());
    assert!(one.lock_range(0, LAST, None).unwrap());
    assert!(other.lock_range(0, LAST, None).unwrap());
}
