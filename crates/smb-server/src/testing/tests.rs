//! The store in memory fulfils the contract.

use super::*;
use ropeway_vfs::store::StreamOpen;

#[test]
fn links_lead_nowhere_outside() {
    let share = share();
    folder(&share, "a");
    let file = open(&share, "a/f", AccessMask::FILE_ALL);
    file.node.write_at(b"x", 0).unwrap();
    let store = &share.store;
    for (name, target) in [
        ("in", "a/f"),
        ("a/up", "../a/f"),
        ("out", "../f"),
        ("root", "/a/f"),
    ] {
        store.symlink(&path(name), target.as_bytes()).unwrap();
    }
    let followed = |name: &str| {
        store
            .open(&path(name), &NodeOpen::default())
            .map(|opened| opened.stat.size)
    };
    assert_eq!(followed("in").unwrap(), 1);
    assert_eq!(followed("a/up").unwrap(), 1);
    for name in ["out", "root"] {
        assert_eq!(followed(name).unwrap_err().kind, ErrorKind::SymbolicLink);
    }
}

#[test]
fn names_differ_by_case_and_are_found_without() {
    let share = share();
    folder(&share, "Dir");
    open(&share, "Dir/File", AccessMask::FILE_ALL);
    let resolve = |name: &str| share.store.resolve(&path(name)).map_err(|error| error.kind);
    assert_eq!(resolve("dIR/fILE"), Ok(path("Dir/File")));
    assert_eq!(resolve("dir/New"), Ok(path("Dir/New")));
    assert_eq!(resolve("x/y"), Err(ErrorKind::NotFound));
}

#[test]
fn files_are_renamed_linked_and_removed() {
    let share = share();
    let store = &share.store;
    let file = open(&share, "a", AccessMask::FILE_ALL);
    file.node.write_at(b"abc", 5000).unwrap();
    assert_eq!(file.node.stat().unwrap().allocated, 4096, "a hole before");
    store.link(&path("a"), &path("b"), false).unwrap();
    assert_eq!(file.node.stat().unwrap().links, 2);
    open(&share, "c", AccessMask::FILE_ALL);
    let refused = store.rename(&path("b"), &path("c"), false).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::AlreadyExists);
    store.rename(&path("b"), &path("c"), true).unwrap();
    store.remove(&path("a"), false).unwrap();
    store.remove(&path("c"), false).unwrap();
    let stat = file.node.stat().unwrap();
    assert_eq!((stat.links, stat.size), (0, 5003), "an open file lives on");
}

#[test]
fn streams_are_files_of_their_own() {
    let share = share();
    let file = open(&share, "a", AccessMask::FILE_ALL);
    let name = ropeway_vfs::Name::new(b"Stream").unwrap();
    let how = StreamOpen {
        create: true,
        exclusive: false,
    };
    let (stream, created) = file.node.open_stream(&name, &how).unwrap();
    stream.write_at(b"hello", 0).unwrap();
    assert!(created);
    assert_eq!(
        (file.node.stat().unwrap().size, stream.stat().unwrap().size),
        (0, 5)
    );
    assert_eq!(file.node.streams().unwrap()[0].size, 5);
}
