//! Rules about opening, names and links.

use super::*;
use crate::Kind;
use crate::store::Removal;

pub(super) fn opening_makes_finds_and_refuses(store: &dyn Store, _: Abilities) {
    assert_eq!(refused(store.open(&path("f"), &READ)), ErrorKind::NotFound);
    let made = store.open(&path("f"), &CREATE).unwrap();
    assert!(made.created && made.stat.kind == Kind::File && made.stat.size == 0);
    let again = store.open(&path("f"), &CREATE).unwrap();
    assert!(!again.created);
    assert_eq!(again.stat.id, made.stat.id);
    let exclusive = NodeOpen {
        exclusive: true,
        ..CREATE
    };
    let taken = store.open(&path("f"), &exclusive);
    assert_eq!(refused(taken), ErrorKind::AlreadyExists);
    let below = store.open(&path("f/x"), &CREATE);
    assert_eq!(refused(below), ErrorKind::NotADirectory);
    assert_eq!(refused(store.open(&path("no/x"), &CREATE)), ErrorKind::NotFound);
    let folder = store.open(&path("d"), &MAKE_DIR).unwrap();
    assert!(folder.created && folder.stat.kind == Kind::Directory);
    let taken = store.open(&path("d"), &MAKE_DIR);
    assert_eq!(refused(taken), ErrorKind::AlreadyExists);
    let any = NodeOpen {
        exclusive: false,
        ..MAKE_DIR
    };
    let there = store.open(&path("d"), &any).unwrap();
    assert!(!there.created && there.stat.kind == Kind::Directory);
    let root = store.open(&RelPath::root(), &READ).unwrap();
    assert_eq!(root.stat.kind, Kind::Directory);
    assert!(!store.open(&RelPath::root(), &CREATE).unwrap().created);
    let taken = store.open(&RelPath::root(), &MAKE_DIR);
    assert_eq!(refused(taken), ErrorKind::AlreadyExists);
    let long = store.open(&path(&"n".repeat(300)), &CREATE);
    assert_eq!(refused(long), ErrorKind::NameRefused);
}

pub(super) fn access_is_as_asked(store: &dyn Store, _: Abilities) {
    put(store, "f", b"abc");
    let look = open(store, "f", &LOOK);
    assert_eq!(look.access(), Access::Attributes);
    assert_eq!(look.stat().unwrap().size, 3);
    let unread = look.read_at(&mut [0; 3], 0);
    assert_eq!(kind_of(unread), ErrorKind::PermissionDenied);
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
    look.write_out().unwrap();
}

pub(super) fn folders_are_listed(store: &dyn Store, can: Abilities) {
    let folder = store.open(&path("d"), &MAKE_DIR).unwrap().node;
    assert!(list(&*folder).is_empty());
    for size in 0..300 {
        put(store, &format!("d/file {size}"), &vec![0; size]);
    }
    open(store, "d/sub", &MAKE_DIR);
    if can.symlinks {
        store.symlink(&path("d/link"), b"nowhere").unwrap();
    }
    let found = list(&*folder);
    assert_eq!(found.len(), 301 + usize::from(can.symlinks));
    for (name, stat) in &found {
        let itself = NodeOpen {
            link_itself: true,
            ..LOOK
        };
        let told = store.open(&path(&format!("d/{name}")), &itself).unwrap().stat;
        assert_eq!(
            (told.kind, told.size, told.id),
            (stat.kind, stat.size, stat.id),
            "{name}"
        );
        if let Some(size) = name.strip_prefix("file ") {
            assert_eq!(stat.size.to_string(), size);
        }
    }
    // Each listing has its own position.
    let (mut one, mut other) = (folder.entries().unwrap(), folder.entries().unwrap());
    let first = one.next().unwrap().unwrap();
    assert_eq!(other.next().unwrap().unwrap().0, first.0);
    let file = open(store, "d/file 1", &READ);
    assert_eq!(kind_of(file.entries()), ErrorKind::NotADirectory);
    // Changes are listed at once.
    put(store, "d/one more", b"");
    store.remove(&path("d/file 7"), false).unwrap();
    let names: Vec<String> = list(&*folder).into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"one more".to_owned()) && !names.contains(&"file 7".to_owned()));
}

pub(super) fn names_are_removed(store: &dyn Store, _: Abilities) {
    put(store, "f", b"abc");
    assert!(store.remove(&path("f"), true).is_err());
    store.remove(&path("f"), false).unwrap();
    assert_eq!(kind_of(store.remove(&path("f"), false)), ErrorKind::NotFound);
    assert_eq!(refused(store.open(&path("f"), &READ)), ErrorKind::NotFound);
    open(store, "d", &MAKE_DIR);
    put(store, "d/f", b"");
    assert_eq!(kind_of(store.remove(&path("d"), true)), ErrorKind::NotEmpty);
    assert!(store.remove(&path("d"), false).is_err());
    store.remove(&path("d/f"), false).unwrap();
    store.remove(&path("d"), true).unwrap();
    assert!(store.remove(&RelPath::root(), true).is_err());
    assert!(list(&*open(store, "", &READ)).is_empty());
}

pub(super) fn names_are_changed(store: &dyn Store, _: Abilities) {
    put(store, "a", b"a");
    put(store, "b", b"b");
    open(store, "d", &MAKE_DIR);
    open(store, "e", &MAKE_DIR);
    let rename = |from: &str, to: &str, replace| store.rename(&path(from), &path(to), replace);
    assert_eq!(kind_of(rename("a", "b", false)), ErrorKind::AlreadyExists);
    assert_eq!(kind_of(rename("a", "d", true)), ErrorKind::IsADirectory);
    assert_eq!(kind_of(rename("no", "x", true)), ErrorKind::NotFound);
    assert_eq!(kind_of(rename("d", "d/sub", false)), ErrorKind::PermissionDenied);
    rename("a", "b", true).unwrap();
    assert_eq!(content(&*open(store, "b", &READ)), b"a");
    assert_eq!(refused(store.open(&path("a"), &READ)), ErrorKind::NotFound);
    rename("b", "B", false).unwrap();
    rename("B", "B", false).unwrap();
    let names: Vec<String> = list(&*open(store, "", &READ))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["B", "d", "e"]);
    rename("B", "d/c", false).unwrap();
    rename("d", "D2", false).unwrap();
    assert_eq!(content(&*open(store, "D2/c", &READ)), b"a");
    // A folder with something in it is never replaced.
    assert!(rename("e", "D2", true).is_err());
    assert_eq!(content(&*open(store, "D2/c", &READ)), b"a");
}

pub(super) fn open_nodes_follow_their_names(store: &dyn Store, _: Abilities) {
    open(store, "d", &MAKE_DIR);
    open(store, "d-1", &MAKE_DIR);
    let beside = put(store, "d-1/f", b"beside");
    let inner = put(store, "d/f", b"inner");
    let replaced = put(store, "g", b"replaced");
    store.rename(&path("d"), &path("new"), false).unwrap();
    assert_eq!(content(&*inner), b"inner");
    assert_eq!(content(&*beside), b"beside");
    inner.write_at(b"i", 0).unwrap();
    store.rename(&path("new/f"), &path("g"), true).unwrap();
    assert_eq!(content(&*inner), b"inner");
    assert_eq!(content(&*replaced), b"replaced");
    inner.write_at(b"I", 0).unwrap();
    assert_eq!(content(&*open(store, "g", &READ)), b"Inner");
    assert_eq!(list(&*open(store, "", &READ)).len(), 3);
}

pub(super) fn nodes_are_known_by_their_id(store: &dyn Store, _: Abilities) {
    let id = put(store, "f", b"x").stat().unwrap().id;
    let other = put(store, "g", b"").stat().unwrap().id;
    let remove = |id, what| store.remove_node(id, &path("f"), what);
    assert_eq!(kind_of(remove(other, Removal::File)), ErrorKind::Gone);
    assert_eq!(kind_of(remove(id, Removal::EmptyFile)), ErrorKind::NotEmpty);
    let moved = store.rename_node(other, &path("f"), &path("h"), false);
    assert_eq!(kind_of(moved), ErrorKind::Gone);
    store.rename_node(id, &path("f"), &path("h"), false).unwrap();
    assert_eq!(content(&*open(store, "h", &READ)), b"x");
    store.remove_node(id, &path("h"), Removal::File).unwrap();
    store.remove_node(other, &path("g"), Removal::EmptyFile).unwrap();
    assert!(list(&*open(store, "", &READ)).is_empty());
}

pub(super) fn hard_links_share_everything(store: &dyn Store, can: Abilities) {
    let file = put(store, "f", b"x");
    if !can.hard_links {
        return;
    }
    put(store, "other", b"other");
    open(store, "d", &MAKE_DIR);
    store.link(&path("f"), &path("d/l"), false).unwrap();
    let stat = store.open(&path("d/l"), &LOOK).unwrap().stat;
    assert_eq!((stat.id, stat.links), (file.stat().unwrap().id, 2));
    let link = |from: &str, to: &str, replace| store.link(&path(from), &path(to), replace);
    assert_eq!(kind_of(link("f", "other", false)), ErrorKind::AlreadyExists);
    assert_eq!(kind_of(link("f", "d", true)), ErrorKind::IsADirectory);
    assert_eq!(kind_of(link("d", "x", true)), ErrorKind::IsADirectory);
    link("f", "other", true).unwrap();
    assert_eq!(file.stat().unwrap().links, 3);
    file.write_at(b"y", 0).unwrap();
    assert_eq!(content(&*open(store, "other", &READ)), b"y");
    store.remove(&path("f"), false).unwrap();
    assert_eq!(content(&*open(store, "d/l", &READ)), b"y");
}

pub(super) fn symbolic_links_stay_inside(store: &dyn Store, can: Abilities) {
    if !can.symlinks {
        return;
    }
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
    assert_eq!(link.node.link_target().unwrap(), b"d");
    assert_eq!(kind_of(open(store, "d", &READ).link_target()), ErrorKind::Misuse);
    match store.open(&path("d/up"), &READ) {
        Ok(opened) => assert_eq!(content(&*opened.node), b"f"),
        Err(error) => assert_eq!(error.kind, ErrorKind::SymbolicLink),
    }
    for (at, target) in [("out1", "../x"), ("out2", "/etc/passwd"), ("loop", "loop")] {
        store.symlink(&path(at), target.as_bytes()).unwrap();
        let opened = store.open(&path(at), &READ);
        assert_eq!(refused(opened), ErrorKind::SymbolicLink, "{target}");
        store.open(&path(at), &itself).unwrap();
        store.remove(&path(at), false).unwrap();
    }
}

pub(super) fn case_means_nothing_to_resolve(store: &dyn Store, can: Abilities) {
    open(store, "Dir", &MAKE_DIR);
    put(store, "Dir/Datei Ä", b"");
    put(store, "Dir/a", b"");
    let resolved = |at: &str| store.resolve(&path(at)).map(|path| path.to_string());
    assert_eq!(resolved("dir/DATEI ä").unwrap(), "Dir/Datei Ä");
    assert_eq!(resolved("DIR").unwrap(), "Dir");
    assert_eq!(resolved("Dir/a").unwrap(), "Dir/a");
    assert_eq!(resolved("dir/New").unwrap(), "Dir/New");
    assert_eq!(kind_of(resolved("no/x")), ErrorKind::NotFound);
    assert_eq!(kind_of(resolved("dir/a/x")), ErrorKind::NotADirectory);
    assert_eq!(store.resolve(&RelPath::root()).unwrap(), RelPath::root());
    put(store, "Dir/New", b"");
    assert_eq!(resolved("dir/NEW").unwrap(), "Dir/New");
    store.rename(&path("Dir/New"), &path("Dir/Newer"), false).unwrap();
    assert_eq!(resolved("dir/NEW").unwrap(), "Dir/NEW");
    if can.case_sensitive {
        put(store, "Dir/A", b"");
        assert_eq!(resolved("DIR/A").unwrap(), "Dir/A");
    }
}
