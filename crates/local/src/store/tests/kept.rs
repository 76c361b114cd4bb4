//! Windows metadata that every store keeps; part of the contract.

use ropeway_vfs::store::{Access, NodeChange, NodeOpen, Store, StreamOpen};
use ropeway_vfs::{ErrorKind, Kind, Timestamp};

use super::*;

pub(super) fn times_and_attributes_are_kept(store: &dyn Store) {
    let at = |seconds, nanoseconds| Timestamp::from_unix(seconds, nanoseconds);
    let hidden = NodeOpen {
        create: Some(NewNode {
            directory: false,
            dos_attributes: Some(0x20 | 0x80 | 0x10),
        }),
        ..CREATE
    };
    let made = store.open(&path("f"), &hidden).unwrap();
    assert_eq!(made.stat.dos_attributes, Some(0x20));
    assert_eq!(made.node.stat().unwrap(), made.stat);
    let change = NodeChange {
        created: Some(at(1_000_000_000, 100)),
        accessed: Some(at(1_100_000_000, 0)),
        modified: Some(at(1_200_000_000, 123_456_700)),
        dos_attributes: None,
        ..NodeChange::default()
    };
    open(store, "d", &MAKE_DIR);
    for node in [
        made.node,
        open(store, "f", &LOOK),
        open(store, "d", &LOOK),
        open(store, "d", &READ),
    ] {
        node.change(&change).unwrap();
        let stat = node.stat().unwrap();
        assert_eq!(stat.created, change.created.unwrap());
        assert_eq!(stat.modified, change.modified.unwrap());
        assert_eq!(stat.accessed, change.accessed.unwrap());
        let attributes = NodeChange {
            dos_attributes: Some(0x2027),
            ..NodeChange::default()
        };
        node.change(&attributes).unwrap();
        let stat = node.stat().unwrap();
        assert_eq!(stat.dos_attributes, Some(0x2027));
        assert_eq!(
            (stat.created, stat.modified),
            (change.created.unwrap(), change.modified.unwrap())
        );
    }
    let again = store.open(&path("f"), &READ).unwrap().stat;
    assert_eq!(
        (again.dos_attributes, again.created),
        (Some(0x2027), change.created.unwrap())
    );
    let folder = NewNode {
        directory: true,
        dos_attributes: Some(0x12),
    };
    let made = store
        .open(
            &path("h"),
            &NodeOpen {
                create: Some(folder),
                ..MAKE_DIR
            },
        )
        .unwrap();
    assert_eq!(made.stat.dos_attributes, Some(2));
}

pub(super) fn streams_are_kept(store: &dyn Store) {
    let create = StreamOpen {
        create: true,
        exclusive: false,
    };
    open(store, "d", &MAKE_DIR);
    put(store, "f", b"main");
    for at in ["f", "d"] {
        let node = open(store, at, &LOOK);
        assert!(node.streams().unwrap().is_empty());
        assert_eq!(
            kind_of(node.open_stream(&name("s"), &StreamOpen::default())),
            ErrorKind::NotFound
        );
        let (stream, made) = node.open_stream(&name("Zone"), &create).unwrap();
        assert!(made && stream.access() == Access::Write);
        stream.write_at(b"content", 2).unwrap();
        assert_eq!(content(&*stream), b"\0\0content");
        let (other, made) = node.open_stream(&name("zONE"), &create).unwrap();
        assert!(!made);
        other.set_len(4).unwrap();
        assert_eq!(content(&*stream), b"\0\0co");
        let stat = stream.stat().unwrap();
        assert_eq!(
            (stat.size, stat.kind, stat.id),
            (4, Kind::File, node.stat().unwrap().id)
        );
        let exclusive = StreamOpen {
            create: true,
            exclusive: true,
        };
        assert_eq!(
            kind_of(node.open_stream(&name("ZONE"), &exclusive)),
            ErrorKind::AlreadyExists
        );
        node.open_stream(&name("empty"), &create).unwrap();
        let listed = node.streams().unwrap();
        let told: Vec<_> = listed
            .iter()
            .map(|info| (info.name.to_string(), info.size))
            .collect();
        assert_eq!(told, [("Zone".to_owned(), 4), ("empty".to_owned(), 0)]);
        stream.zero(0, 100, true).unwrap();
        assert_eq!(content(&*stream), [0; 4]);
        assert_eq!(stream.extents(1, 100, 1).unwrap()[0].length, 3);
        assert_eq!(stream.copy_from(&*open(store, "f", &READ), 1, 0, 10).unwrap(), 3);
        assert_eq!(content(&*stream), b"ain\0");
        assert_eq!(kind_of(stream.write_at(&[1; 70_000], 0)), ErrorKind::NoSpace);
        assert_eq!(kind_of(stream.set_len(1 << 40)), ErrorKind::NoSpace);
        assert_eq!(content(&*stream), b"ain\0");
        let long = name(&"n".repeat(240));
        assert_eq!(kind_of(node.open_stream(&long, &create)), ErrorKind::NameRefused);
    }
    assert_eq!(content(&*open(store, "f", &READ)), b"main");
}

pub(super) fn streams_outlive_their_names(store: &dyn Store) {
    let create = StreamOpen {
        create: true,
        exclusive: false,
    };
    let node = put(store, "f", b"");
    let open_it = |at: &str| node.open_stream(&name(at), &create).unwrap().0;
    let stream = open_it("a");
    stream.write_at(&[5; 2500], 0).unwrap();
    assert_eq!(
        kind_of(node.rename_stream(&name("no"), &name("b"), true)),
        ErrorKind::NotFound
    );
    node.rename_stream(&name("A"), &name("b"), false).unwrap();
    stream.write_at(b"x", 0).unwrap();
    assert_eq!(content(&*open_it("b"))[..2], [b'x', 5]);
    node.rename_stream(&name("b"), &name("B"), false).unwrap();
    assert_eq!(node.streams().unwrap()[0].name, name("B"));
    let other = open_it("c");
    other.write_at(b"c", 0).unwrap();
    assert_eq!(
        kind_of(node.rename_stream(&name("b"), &name("C"), false)),
        ErrorKind::AlreadyExists
    );
    node.rename_stream(&name("b"), &name("C"), true).unwrap();
    assert_eq!(content(&*other), b"c");
    other.write_at(b"alone", 0).unwrap();
    assert_eq!(content(&*stream)[..2], [b'x', 5]);
    node.remove_stream(&name("c")).unwrap();
    assert_eq!(kind_of(node.remove_stream(&name("c"))), ErrorKind::NotFound);
    assert!(node.streams().unwrap().is_empty());
    stream.write_at(b"y", 0).unwrap();
    assert_eq!(content(&*stream)[..2], [b'y', 5]);
    let new = open_it("c");
    assert!(content(&*new).is_empty());
    assert_eq!(content(&*stream).len(), 2500);
}

pub(super) fn security_and_eas_are_kept(store: &dyn Store) {
    open(store, "d", &MAKE_DIR);
    put(store, "f", b"");
    for at in ["f", "d"] {
        let node = open(store, at, &LOOK);
        assert_eq!(node.security().unwrap(), None);
        // Revision 1, DACL present and NULL, self-relative ([MS-DTYP] 2.4.6).
        let descriptor = [&[1, 0, 4, 0x80][..], &[0; 16]].concat();
        node.set_security(&descriptor).unwrap();
        assert_eq!(node.security().unwrap().unwrap(), descriptor);
        assert!(node.set_security(&[1, 2, 3]).is_err(), "no descriptor");
        let hidden = NodeChange {
            dos_attributes: Some(2),
            ..NodeChange::default()
        };
        node.change(&hidden).unwrap();
        assert!(node.eas().unwrap().is_empty());
        node.set_ea(b"Comment", b"text").unwrap();
        node.set_ea(b"other", &[0, 1]).unwrap();
        node.set_ea(b"COMMENT", b"new").unwrap();
        let told: Vec<_> = node
            .eas()
            .unwrap()
            .into_iter()
            .map(|ea| (ea.name, ea.value))
            .collect();
        assert_eq!(
            told,
            [
                (b"Comment".to_vec(), b"new".to_vec()),
                (b"other".to_vec(), vec![0, 1])
            ]
        );
        node.set_ea(b"comment", b"").unwrap();
        node.set_ea(b"missing", b"").unwrap();
        assert_eq!(node.eas().unwrap().len(), 1);
        assert!(node.set_ea(b"DosAttrib", b"x").is_err());
        assert!(node.set_ea(b"DosStream.x:$DATA", b"x").is_err());
        assert_eq!(kind_of(node.set_ea(b"big", &vec![1; 65_536])), ErrorKind::NoSpace);
        assert_eq!(kind_of(node.set_ea(&[b'n'; 251], b"x")), ErrorKind::NameRefused);
    }
}
