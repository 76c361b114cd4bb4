//! Rules about times, attributes, streams and the volume.

use super::*;
use crate::store::{NodeChange, StreamOpen};
use crate::{Kind, Timestamp};

pub(super) fn times_and_attributes_are_kept(store: &dyn Store, can: Abilities) {
    let at = |seconds, nanoseconds| Timestamp::from_unix(seconds, nanoseconds);
    let made = store.open(&path("f"), &CREATE).unwrap();
    open(store, "d", &MAKE_DIR);
    let change = NodeChange {
        created: Some(at(1_000_000_000, 100)),
        accessed: Some(at(1_100_000_000, 0)),
        modified: Some(at(1_200_000_000, 123_456_700)),
        ..NodeChange::default()
    };
    for node in [made.node, open(store, "f", &LOOK), open(store, "d", &LOOK)] {
        node.change(&change).unwrap();
        let stat = node.stat().unwrap();
        assert_eq!(Some(stat.created), change.created);
        assert_eq!(Some(stat.modified), change.modified);
        assert_eq!(Some(stat.accessed), change.accessed);
        if can.dos_attributes {
            let attributes = NodeChange {
                dos_attributes: Some(0x22),
                ..NodeChange::default()
            };
            node.change(&attributes).unwrap();
            let stat = node.stat().unwrap();
            assert_eq!(stat.dos_attributes, Some(0x22));
            assert_eq!(Some(stat.modified), change.modified);
        }
    }
    let again = store.open(&path("f"), &READ).unwrap().stat;
    assert_eq!(Some(again.created), change.created);
    // A time set after a write stays.
    let node = open(store, "f", &WRITE);
    node.write_at(b"later", 0).unwrap();
    let modified = NodeChange {
        modified: change.modified,
        ..NodeChange::default()
    };
    node.change(&modified).unwrap();
    node.sync().unwrap();
    drop(node);
    let stat = open(store, "f", &LOOK).stat().unwrap();
    assert_eq!(Some(stat.modified), change.modified);
    let listed = list(&*open(store, "", &READ));
    let listed = listed.into_iter().find(|(name, _)| name == "f").unwrap().1;
    assert_eq!((Some(listed.modified), listed.size), (change.modified, 5));
}

pub(super) fn streams_are_kept(store: &dyn Store, can: Abilities) {
    let create = StreamOpen {
        create: true,
        exclusive: false,
    };
    open(store, "d", &MAKE_DIR);
    put(store, "f", b"main");
    if !can.streams {
        return;
    }
    for at in ["f", "d"] {
        let node = open(store, at, &LOOK);
        assert!(node.streams().unwrap().is_empty());
        let missing = node.open_stream(&name("s"), &StreamOpen::default());
        assert_eq!(kind_of(missing), ErrorKind::NotFound);
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
        let taken = node.open_stream(&name("ZONE"), &exclusive);
        assert_eq!(kind_of(taken), ErrorKind::AlreadyExists);
        let listed = node.streams().unwrap();
        let told: Vec<_> = listed
            .iter()
            .map(|info| (info.name.to_string(), info.size))
            .collect();
        assert_eq!(told, [("Zone".to_owned(), 4)]);
        assert_eq!(stream.copy_from(&*open(store, "f", &READ), 1, 0, 10).unwrap(), 3);
        assert_eq!(content(&*stream), b"aino");
        drop((stream, other));
        node.remove_stream(&name("zone")).unwrap();
        assert_eq!(kind_of(node.remove_stream(&name("zone"))), ErrorKind::NotFound);
        assert!(node.streams().unwrap().is_empty());
    }
    assert_eq!(content(&*open(store, "f", &READ)), b"main");
}

pub(super) fn eas_are_kept(store: &dyn Store, can: Abilities) {
    open(store, "d", &MAKE_DIR);
    put(store, "f", b"");
    if !can.eas {
        return;
    }
    for at in ["f", "d"] {
        let node = open(store, at, &LOOK);
        assert!(node.eas().unwrap().is_empty());
        node.set_ea(b"Comment", b"text").unwrap();
        node.set_ea(b"other", &[0, 1]).unwrap();
        node.set_ea(b"COMMENT", b"new").unwrap();
        let mut told: Vec<_> = node.eas().unwrap().into_iter().map(|ea| ea.value).collect();
        told.sort();
        assert_eq!(told, [vec![0, 1], b"new".to_vec()]);
        node.set_ea(b"comment", b"").unwrap();
        node.set_ea(b"missing", b"").unwrap();
        assert_eq!(node.eas().unwrap().len(), 1);
        assert!(node.set_ea(b"DosAttrib", b"x").is_err());
        assert_eq!(kind_of(node.set_ea(b"big", &vec![1; 65_536])), ErrorKind::NoSpace);
        assert_eq!(kind_of(node.set_ea(&[b'n'; 251], b"x")), ErrorKind::NameRefused);
    }
}

pub(super) fn volumes_describe_themselves(store: &dyn Store, _: Abilities) {
    let features = store.features();
    assert!(features.name_max >= 255 && features.unit.is_power_of_two());
    assert!(!features.read_only);
    let space = store.space().unwrap();
    assert!(space.available <= space.total && space.total > 0);
}
