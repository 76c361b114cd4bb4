//! The contract of stores: rules that do not depend on local folders.

use std::sync::Arc;

use ropeway_vfs::store::{Access, Node, NodeChange, NodeOpen, Store};
use ropeway_vfs::{ErrorKind, Kind, Timestamp};

use super::kept::*;
use super::*;

/// A rule: panics when the store, empty at first, breaks it.
type Rule = fn(&dyn Store);

const RULES: &[(&str, Rule)] = &[
    ("open_makes_finds_and_refuses", open_makes_finds_and_refuses),
    ("access_is_as_asked", access_is_as_asked),
    ("content_is_kept", content_is_kept),
    ("holes_and_zeros", holes_and_zeros),
    ("ranges_are_copied", ranges_are_copied),
    ("folders_are_listed", folders_are_listed),
    ("names_are_removed", names_are_removed),
    ("names_are_changed", names_are_changed),
    ("open_nodes_follow_their_names", open_nodes_follow_their_names),
    ("links_are_made", links_are_made),
    (
        "symbolic_links_are_followed_inside",
        symbolic_links_are_followed_inside,
    ),
    ("times_and_attributes_are_kept", times_and_attributes_are_kept),
    ("streams_are_kept", streams_are_kept),
    ("streams_outlive_their_names", streams_outlive_their_names),
    ("security_and_eas_are_kept", security_and_eas_are_kept),
    ("case_means_nothing_to_resolve", case_means_nothing_to_resolve),
    ("volumes_tell_of_themselves", volumes_tell_of_themselves),
];

/// Runs each rule on its own empty store.
fn check_store(make: impl Fn() -> (TempDir, Box<dyn Store>)) {
    for (name, rule) in RULES {
        println!("{name}");
        let (_folder, store) = make();
        rule(&*store);
    }
}

#[test]
fn local_store_keeps_the_contract() {
    for parent in folders() {
        check_store(|| {
            let folder = tempfile::tempdir_in(parent.path()).unwrap();
            let store = super::store(folder.path());
            (folder, Box::new(store))
        });
    }
}

#[test]
fn local_store_keeps_the_contract_with_one_descriptor() {
    for parent in folders() {
        check_store(|| {
            let folder = tempfile::tempdir_in(parent.path()).unwrap();
            let options = StoreOptions {
                descriptors_max: 1,
                ..StoreOptions::default()
            };
            let store = LocalStore::open(folder.path(), &options).unwrap();
            (folder, Box::new(store))
        });
    }
}

fn open_makes_finds_and_refuses(store: &dyn Store) {
    assert_eq!(refused(store.open(&path("f"), &READ)), ErrorKind::NotFound);
    let made = store.open(&path("f"), &CREATE).unwrap();
    assert!(made.created && made.stat.kind == Kind::File && made.stat.size == 0);
    assert_eq!(made.stat.dos_attributes, None);
    let again = store.open(&path("f"), &CREATE).unwrap();
    assert!(!again.created);
    assert_eq!(again.stat.id, made.stat.id);
    let exclusive = NodeOpen {
        exclusive: true,
        ..CREATE
    };
    assert_eq!(
        refused(store.open(&path("f"), &exclusive)),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        refused(store.open(&path("f/x"), &CREATE)),
        ErrorKind::NotADirectory
    );
    assert_eq!(refused(store.open(&path("no/x"), &CREATE)), ErrorKind::NotFound);
    let folder = store.open(&path("d"), &MAKE_DIR).unwrap();
    assert!(folder.created && folder.stat.kind == Kind::Directory);
    assert_eq!(
        refused(store.open(&path("d"), &MAKE_DIR)),
        ErrorKind::AlreadyExists
    );
    let there = store
        .open(
            &path("d"),
            &NodeOpen {
                exclusive: false,
                ..MAKE_DIR
            },
        )
        .unwrap();
    assert!(!there.created && there.stat.kind == Kind::Directory);
    let root = store.open(&RelPath::root(), &READ).unwrap();
    assert_eq!(root.stat.kind, Kind::Directory);
    assert!(!store.open(&RelPath::root(), &CREATE).unwrap().created);
    assert_eq!(
        refused(store.open(&RelPath::root(), &MAKE_DIR)),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        refused(store.open(&path(&"n".repeat(300)), &CREATE)),
        ErrorKind::NameRefused
    );
}

fn access_is_as_asked(store: &dyn Store) {
    put(store, "f", b"abc");
    let look = open(store, "f", &LOOK);
    assert_eq!(look.access(), Access::Attributes);
    assert_eq!(look.stat().unwrap().size, 3);
    assert_eq!(kind_of(look.read_at(&mut [0; 3], 0)), ErrorKind::PermissionDenied);
    let read = open(store, "f", &READ);
    assert_eq!((read.access(), content(&*read)), (Access::Read, b"abc".to_vec()));
    assert_eq!(kind_of(read.write_at(b"x", 0)), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(read.set_len(1)), ErrorKind::PermissionDenied);
    assert_eq!(open(store, "f", &WRITE).access(), Access::Write);
    open(store, "d", &MAKE_DIR);
    let folder = open(store, "d", &WRITE);
    assert_eq!(kind_of(folder.read_at(&mut [0; 3], 0)), ErrorKind::IsADirectory);
    assert_eq!(kind_of(folder.set_len(0)), ErrorKind::IsADirectory);
    folder.sync().unwrap();
    look.sync().unwrap();
}

fn content_is_kept(store: &dyn Store) {
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
    node.allocate(1 << 20).unwrap();
    assert_eq!(node.stat().unwrap().size, 3);
    assert!(node.stat().unwrap().allocated >= 1 << 20);
    assert_eq!(kind_of(node.set_len(u64::MAX)), ErrorKind::FileTooLarge);
    assert!(node.write_at(b"x", u64::MAX).is_err());
    assert_eq!(node.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    node.sync().unwrap();
    store.sync().unwrap();
    assert_eq!(content(&*open(store, "f", &READ)), b"hel");
}

fn holes_and_zeros(store: &dyn Store) {
    const M: u64 = 1 << 20;
    let node = put(store, "f", &vec![7; 4 << 20]);
    node.zero(M, M, true).unwrap();
    node.zero(3 * M, 10 * M, false).unwrap();
    let stat = node.stat().unwrap();
    assert_eq!(stat.size, 4 * M);
    let mut buffer = vec![1; 4 << 20];
    assert_eq!(node.read_at(&mut buffer, 0).unwrap() as u64, 4 * M);
    let zeros = |from: u64, to: u64| buffer[from as usize..to as usize].iter().all(|byte| *byte == 0);
    assert!(zeros(M, 2 * M) && zeros(3 * M, 4 * M) && buffer[0] == 7 && buffer[2 << 20] == 7);
    let runs = node.extents(0, 4 * M, 16).unwrap();
    assert_eq!((runs[0].offset, runs[0].length), (0, M));
    assert_eq!(runs[1].offset, 2 * M);
    assert!(stat.allocated <= 3 * M + 65536);
    let within = node.extents(M / 2, M, 16).unwrap();
    assert_eq!(
        (within.len(), within[0].offset, within[0].length),
        (1, M / 2, M / 2)
    );
    assert_eq!(node.extents(0, 4 * M, 1).unwrap().len(), 1);
    assert!(node.extents(8 * M, M, 4).unwrap().is_empty());
}

fn ranges_are_copied(store: &dyn Store) {
    let bytes: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
    let source = put(store, "s", &bytes);
    let target = put(store, "t", b"");
    assert_eq!(target.copy_from(&*source, 100, 5, 500_000).unwrap(), 500_000);
    assert_eq!(content(&*target)[5..], bytes[100..500_100]);
    assert_eq!(target.copy_from(&*source, 599_990, 0, 100).unwrap(), 10);
    assert_eq!(target.copy_from(&*source, 700_000, 0, 100).unwrap(), 0);
    // Overlapping ranges, in both directions.
    assert_eq!(source.copy_from(&*source, 0, 1000, 590_000).unwrap(), 590_000);
    assert_eq!(content(&*source)[1000..591_000], bytes[..590_000]);
    let source = put(store, "s", &bytes);
    assert_eq!(source.copy_from(&*source, 1000, 0, 590_000).unwrap(), 590_000);
    assert_eq!(content(&*source)[..590_000], bytes[1000..591_000]);
}

fn folders_are_listed(store: &dyn Store) {
    let folder = store.open(&path("d"), &MAKE_DIR).unwrap().node;
    assert!(list(&*folder).is_empty());
    for n in 0..300 {
        put(store, &format!("d/file {n}"), &vec![0; n]);
    }
    open(store, "d/sub", &MAKE_DIR);
    store.symlink(&path("d/link"), b"nowhere").unwrap();
    let hidden = NodeChange {
        dos_attributes: Some(2),
        ..NodeChange::default()
    };
    open(store, "d/file 7", &WRITE).change(&hidden).unwrap();
    let found = list(&*folder);
    assert_eq!(found.len(), 302);
    for (name, stat) in &found {
        let link_itself = true;
        let told = store
            .open(&path(&format!("d/{name}")), &NodeOpen { link_itself, ..LOOK })
            .unwrap();
        assert_eq!(told.stat, *stat, "{name}");
    }
    // Each listing has its own position.
    let (mut one, mut other) = (folder.entries().unwrap(), folder.entries().unwrap());
    let first = one.next().unwrap().unwrap();
    assert_eq!(other.next().unwrap().unwrap(), first);
    assert_eq!(
        kind_of(open(store, "d/file 1", &READ).entries()),
        ErrorKind::NotADirectory
    );
}

fn names_are_removed(store: &dyn Store) {
    let node = put(store, "f", b"abc");
    assert!(store.remove(&path("f"), true).is_err());
    store.remove(&path("f"), false).unwrap();
    assert_eq!(kind_of(store.remove(&path("f"), false)), ErrorKind::NotFound);
    put(store, "other", b"");
    assert_eq!(content(&*node), b"abc");
    assert_eq!(node.stat().unwrap().links, 0);
    open(store, "d", &MAKE_DIR);
    put(store, "d/f", b"");
    assert_eq!(kind_of(store.remove(&path("d"), true)), ErrorKind::NotEmpty);
    assert!(store.remove(&path("d"), false).is_err());
    store.remove(&path("d/f"), false).unwrap();
    store.remove(&path("d"), true).unwrap();
    assert!(store.remove(&RelPath::root(), true).is_err());
}

fn names_are_changed(store: &dyn Store) {
    put(store, "a", b"a");
    put(store, "b", b"b");
    open(store, "d", &MAKE_DIR);
    open(store, "e", &MAKE_DIR);
    assert_eq!(
        kind_of(store.rename(&path("a"), &path("b"), false)),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        kind_of(store.rename(&path("a"), &path("d"), true)),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        kind_of(store.rename(&path("e"), &path("d"), true)),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        kind_of(store.rename(&path("no"), &path("x"), true)),
        ErrorKind::NotFound
    );
    let inside = store.rename(&path("d"), &path("d/sub"), false);
    assert_eq!(kind_of(inside), ErrorKind::PermissionDenied);
    store.rename(&path("a"), &path("b"), true).unwrap();
    assert_eq!(content(&*open(store, "b", &READ)), b"a");
    store.rename(&path("b"), &path("B"), false).unwrap();
    store.rename(&path("B"), &path("B"), false).unwrap();
    assert_eq!(refused(store.open(&path("b"), &READ)), ErrorKind::NotFound);
    store.rename(&path("B"), &path("d/c"), false).unwrap();
    store.rename(&path("d"), &path("D"), false).unwrap();
    assert_eq!(content(&*open(store, "D/c", &READ)), b"a");
    // Two names of one file.
    store.link(&path("D/c"), &path("same"), false).unwrap();
    store.rename(&path("D/c"), &path("same"), true).unwrap();
    assert_eq!(refused(store.open(&path("D/c"), &READ)), ErrorKind::NotFound);
    assert_eq!(content(&*open(store, "same", &READ)), b"a");
}

fn open_nodes_follow_their_names(store: &dyn Store) {
    open(store, "d", &MAKE_DIR);
    open(store, "d-1", &MAKE_DIR);
    let beside = put(store, "d-1/f", b"beside");
    let inner = put(store, "d/f", b"inner");
    let replaced = put(store, "g", b"replaced");
    store.rename(&path("d"), &path("new"), false).unwrap();
    // Other nodes use all descriptors now.
    let others: Vec<_> = (0..20).map(|n| put(store, &format!("other {n}"), b"o")).collect();
    assert_eq!(content(&*inner), b"inner");
    assert_eq!(content(&*beside), b"beside");
    store.rename(&path("new/f"), &path("g"), true).unwrap();
    others
        .iter()
        .for_each(|other| assert_eq!(content(&**other), b"o"));
    assert_eq!(content(&*inner), b"inner");
    assert_eq!(content(&*replaced), b"replaced");
    inner.write_at(b"I", 0).unwrap();
    assert_eq!(content(&*open(store, "g", &READ)), b"Inner");
}

fn links_are_made(store: &dyn Store) {
    let file = put(store, "f", b"x");
    let other = put(store, "other", b"other");
    open(store, "d", &MAKE_DIR);
    store.link(&path("f"), &path("d/l"), false).unwrap();
    let stat = store.open(&path("d/l"), &LOOK).unwrap().stat;
    assert_eq!((stat.id, stat.links), (file.stat().unwrap().id, 2));
    assert_eq!(
        kind_of(store.link(&path("f"), &path("other"), false)),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        kind_of(store.link(&path("f"), &path("d"), true)),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        kind_of(store.link(&path("d"), &path("x"), true)),
        ErrorKind::IsADirectory
    );
    store.link(&path("f"), &path("other"), true).unwrap();
    store.link(&path("f"), &path("other"), true).unwrap();
    assert_eq!(file.stat().unwrap().links, 3);
    assert_eq!(content(&*other), b"other");
    assert_eq!(content(&*open(store, "other", &READ)), b"x");
    let root = open(store, "", &READ);
    assert_eq!(list(&*root).len(), 3);
}

fn symbolic_links_are_followed_inside(store: &dyn Store) {
    open(store, "d", &MAKE_DIR);
    put(store, "d/f", b"f");
    store.symlink(&path("d/up"), b"../d/f").unwrap();
    store.symlink(&path("l"), b"d").unwrap();
    assert_eq!(kind_of(store.symlink(&path("l"), b"x")), ErrorKind::AlreadyExists);
    let itself = NodeOpen {
        link_itself: true,
        ..READ
    };
    let link = store.open(&path("l"), &itself).unwrap();
    assert_eq!(
        (link.stat.kind, link.node.access()),
        (Kind::Symlink, Access::Attributes)
    );
    assert_eq!(link.stat, link.node.stat().unwrap());
    assert_eq!(link.node.link_target().unwrap(), b"d");
    assert!(link.node.streams().unwrap().is_empty() && link.node.eas().unwrap().is_empty());
    link.node
        .change(&NodeChange {
            modified: Some(Timestamp::from_unix(1000, 0)),
            ..NodeChange::default()
        })
        .unwrap();
    assert_eq!(kind_of(open(store, "d", &READ).link_target()), ErrorKind::Misuse);
    // Only where links are followed.
    match store.open(&path("l/up"), &READ) {
        Ok(opened) => assert_eq!(content(&*opened.node), b"f"),
        Err(error) => assert_eq!(error.kind, ErrorKind::SymbolicLink),
    }
    for (at, target) in [
        ("out1", "../x"),
        ("out2", "/etc/passwd"),
        ("out3", "d/../../x"),
        ("loop", "loop"),
    ] {
        store.symlink(&path(at), target.as_bytes()).unwrap();
        assert_eq!(
            refused(store.open(&path(at), &READ)),
            ErrorKind::SymbolicLink,
            "{target}"
        );
        assert_eq!(
            refused(store.open(&path(at), &LOOK)),
            ErrorKind::SymbolicLink,
            "{target}"
        );
        assert_eq!(
            refused(store.open(&path(&format!("{at}/x")), &CREATE)),
            ErrorKind::SymbolicLink
        );
        store.open(&path(at), &itself).unwrap();
        store.remove(&path(at), false).unwrap();
    }
}

fn case_means_nothing_to_resolve(store: &dyn Store) {
    open(store, "Dir", &MAKE_DIR);
    put(store, "Dir/Datei Ä", b"");
    put(store, "Dir/a", b"");
    put(store, "Dir/A", b"");
    let resolved = |at: &str| store.resolve(&path(at)).map(|path| path.to_string());
    assert_eq!(resolved("dir/DATEI ä").unwrap(), "Dir/Datei Ä");
    assert_eq!(resolved("DIR").unwrap(), "Dir");
    assert_eq!(resolved("DIR/A").unwrap(), "Dir/A");
    assert_eq!(resolved("Dir/a").unwrap(), "Dir/a");
    assert_eq!(resolved("dir/New").unwrap(), "Dir/New");
    assert_eq!(kind_of(resolved("no/x")), ErrorKind::NotFound);
    assert_eq!(kind_of(resolved("dir/a/x")), ErrorKind::NotADirectory);
    assert_eq!(store.resolve(&RelPath::root()).unwrap(), RelPath::root());
    put(store, "Dir/New", b"");
    assert_eq!(resolved("dir/NEW").unwrap(), "Dir/New");
    store.rename(&path("Dir/New"), &path("Dir/Newer"), false).unwrap();
    assert_eq!(resolved("dir/NEW").unwrap(), "Dir/NEW");
    assert_eq!(resolved("dir/NEWER").unwrap(), "Dir/Newer");
    store.remove(&path("Dir/Newer"), false).unwrap();
    assert_eq!(resolved("dir/NEWER").unwrap(), "Dir/NEWER");
    store.remove(&path("Dir/A"), false).unwrap();
    assert_eq!(resolved("Dir/A").unwrap(), "Dir/a");
}

fn volumes_tell_of_themselves(store: &dyn Store) {
    let features = store.features();
    assert!(features.name_max >= 255 && features.unit.is_power_of_two());
    assert!(features.windows_metadata && features.sparse && !features.read_only);
    let space = store.space().unwrap();
    assert!(space.available <= space.total && space.total > 0);
}

/// Many threads may use a node at the same time.
#[test]
fn nodes_are_shared_among_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Arc<dyn Node>>();
    shared::<LocalStore>();
}

#[test]
fn local_store_keeps_the_contract_without_openat2() {
    let parent = tempfile::tempdir().unwrap();
    check_store(|| {
        let folder = tempfile::tempdir_in(parent.path()).unwrap();
        let store = super::store(folder.path());
        store.core.root.forget_openat2();
        (folder, Box::new(store))
    });
}
