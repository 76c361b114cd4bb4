//! What a mounted file system asks of a local folder besides.

use ropeway_vfs::posix::{NewKind, NewPosix, Permissions, RenameMode, XattrSet};
use ropeway_vfs::{Kind, Owner};

use super::*;

fn new(kind: NewKind<'_>, mode: u32) -> NewPosix<'_> {
    NewPosix {
        kind,
        mode,
        umask: 0,
        owner: None,
        access: Access::Attributes,
    }
}

/// Owners can be changed by root only.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn every_kind_is_made_and_looked_at() {
    for folder in folders() {
        let store = store(folder.path());
        let kinds = [
            ("file", NewKind::File, Kind::File),
            ("folder", NewKind::Directory, Kind::Directory),
            ("link", NewKind::Symlink(b"nowhere"), Kind::Symlink),
            ("pipe", NewKind::Fifo, Kind::Fifo),
            ("socket", NewKind::Socket, Kind::Socket),
        ];
        for (at, kind, wanted) in kinds {
            let made = store.make(&path(at), &new(kind, 0o640)).unwrap();
            assert!(made.created);
            assert_eq!(
                (made.stat.kind, made.node.access()),
                (wanted, Access::Attributes),
                "{at}"
            );
            let looked = store.look(&path(at)).unwrap();
            assert_eq!(looked.id, made.stat.id);
            if wanted != Kind::Symlink {
                assert_eq!(looked.mode, 0o640, "{at}");
            }
            let again = store.open_itself(&path(at), Access::Attributes).unwrap();
            assert_eq!(again.stat.kind, wanted);
            assert_eq!(again.node.stat().unwrap().id, looked.id);
            assert_eq!(
                kind_of(store.make(&path(at), &new(kind, 0o640))),
                ErrorKind::AlreadyExists
            );
        }
        // A server still refuses special nodes.
        assert_eq!(
            refused(store.open(&path("pipe"), &LOOK)),
            ErrorKind::PermissionDenied
        );
        if is_root() {
            let device = store
                .make(&path("null"), &new(NewKind::CharDevice(1, 3), 0o600))
                .unwrap();
            assert_eq!(device.node.device().unwrap(), Some((1, 3)));
        }
    }
}

#[test]
fn modes_and_owners_are_as_asked() {
    for folder in folders() {
        let store = store(folder.path());
        let owner = is_root().then_some(Owner {
            user: 1234,
            group: 4321,
        });
        let asked = NewPosix {
            umask: 0o022,
            owner,
            access: Access::Write,
            ..new(NewKind::File, 0o4777)
        };
        let made = store.make(&path("file"), &asked).unwrap();
        assert_eq!(made.stat.mode, 0o4755);
        if let Some(owner) = owner {
            assert_eq!(made.stat.owner, owner);
        }
        made.node.write_at(b"text", 0).unwrap();
        let change = Permissions {
            mode: Some(0o600),
            ..Permissions::default()
        };
        for node in [
            made.node,
            store.open_itself(&path("file"), Access::Attributes).unwrap().node,
        ] {
            node.set_permissions(&change).unwrap();
            assert_eq!(node.stat().unwrap().mode, 0o600);
        }
        if !is_root() {
            println!("skipped: only root can change owners");
            continue;
        }
        // A folder with the set-group-id bit gives its group, and folders the bit too.
        let folder = store
            .make(&path("shared"), &new(NewKind::Directory, 0o2775))
            .unwrap();
        let group = Permissions {
            group: Some(77),
            mode: Some(0o2775),
            ..Permissions::default()
        };
        folder.node.set_permissions(&group).unwrap();
        for (at, kind, mode) in [
            ("shared/f", NewKind::File, 0o644),
            ("shared/d", NewKind::Directory, 0o2755),
        ] {
            let asked = NewPosix {
                owner,
                ..new(kind, mode & 0o777)
            };
            let made = store.make(&path(at), &asked).unwrap();
            assert_eq!((made.stat.owner.user, made.stat.owner.group), (1234, 77), "{at}");
            assert_eq!(made.stat.mode, mode, "{at}");
        }
    }
}

#[test]
fn renames_replace_and_exchange() {
    for folder in folders() {
        let store = store(folder.path());
        let dir = |at: &str| {
            store
                .make(&path(at), &new(NewKind::Directory, 0o755))
                .unwrap()
                .node
        };
        dir("a");
        let empty = dir("b");
        let inside = put(&store, "a/file", b"inside");
        let rename = |from: &str, to: &str, mode| store.rename_posix(&path(from), &path(to), mode);
        assert_eq!(
            kind_of(rename("a", "b", RenameMode::Keep)),
            ErrorKind::AlreadyExists
        );
        rename("a", "b", RenameMode::Replace).unwrap();
        assert_eq!(empty.stat().unwrap().links, 0);
        assert_eq!(content(&*open(&store, "b/file", &READ)), b"inside");
        dir("c");
        assert_eq!(
            kind_of(rename("c", "b", RenameMode::Replace)),
            ErrorKind::NotEmpty
        );
        let other = put(&store, "other", b"other");
        assert_eq!(
            kind_of(rename("other", "b", RenameMode::Replace)),
            ErrorKind::IsADirectory
        );
        assert_eq!(
            kind_of(rename("c", "other", RenameMode::Replace)),
            ErrorKind::NotADirectory
        );
        rename("b", "other", RenameMode::Exchange).unwrap();
        assert_eq!(content(&*open(&store, "b", &READ)), b"other");
        assert_eq!(content(&*open(&store, "other/file", &READ)), b"inside");
        assert_eq!(
            (content(&*other), content(&*inside)),
            (b"other".to_vec(), b"inside".to_vec())
        );
        put(&store, "late", b"late");
        rename("late", "b", RenameMode::Replace).unwrap();
        assert_eq!(
            (content(&*other), other.stat().unwrap().links),
            (b"other".to_vec(), 0)
        );
    }
}

/// Nodes without a descriptor are opened again by the exchanged paths.
#[test]
fn exchanged_nodes_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        descriptors_max: 1,
        ..StoreOptions::default()
    };
    let store = LocalStore::open(folder.path(), &options).unwrap();
    let (one, two) = (put(&store, "one", b"1"), put(&store, "two", b"2"));
    store
        .rename_posix(&path("one"), &path("two"), RenameMode::Exchange)
        .unwrap();
    for _ in 0..2 {
        assert_eq!((content(&*one), content(&*two)), (b"1".to_vec(), b"2".to_vec()));
    }
}

#[test]
fn xattrs_have_full_names_and_no_bookkeeping() {
    for folder in folders() {
        let store = store(folder.path());
        if !store.features().windows_metadata {
            println!("skipped: no extended attributes in {}", folder.path().display());
            continue;
        }
        let node = put(&store, "file", b"");
        node.set_security(&[1, 0, 4, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .unwrap();
        let value = |name: &[u8]| node.xattr(name).unwrap();
        assert_eq!(
            kind_of(node.set_xattr(b"user.a", b"1", XattrSet::Replace)),
            ErrorKind::NotFound
        );
        node.set_xattr(b"user.a", b"1", XattrSet::Create).unwrap();
        assert_eq!(
            kind_of(node.set_xattr(b"user.a", b"2", XattrSet::Create)),
            ErrorKind::AlreadyExists
        );
        node.set_xattr(b"user.a", b"2", XattrSet::Replace).unwrap();
        assert_eq!(value(b"user.a"), Some(b"2".to_vec()));
        for hidden in [
            &b"user.DOSATTRIB"[..],
            b"user.DosStream.x:$DATA",
            b"security.NTACL",
        ] {
            assert_eq!(value(hidden), None);
            assert_eq!(
                kind_of(node.set_xattr(hidden, b"1", XattrSet::Any)),
                ErrorKind::PermissionDenied
            );
        }
        assert_eq!(node.xattr_names().unwrap(), [b"user.a".to_vec()]);
        node.remove_xattr(b"user.a").unwrap();
        assert_eq!(kind_of(node.remove_xattr(b"user.a")), ErrorKind::NotFound);
        assert_eq!(value(b"user.a"), None);
    }
}

#[test]
fn space_is_reserved_without_filling_holes() {
    for folder in folders() {
        let store = store(folder.path());
        let node = put(&store, "file", b"x");
        if let Err(error) = node.reserve(1 << 20, 64 << 10) {
            assert_eq!(error.kind, ErrorKind::Unsupported);
            println!("skipped: no fallocate in {}", folder.path().display());
            continue;
        }
        let stat = node.stat().unwrap();
        assert_eq!(stat.size, 1);
        assert!((64 << 10..1 << 20).contains(&stat.allocated), "{stat:?}");
        node.sync_data().unwrap();
        assert_eq!(kind_of(node.reserve(u64::MAX, 1)), ErrorKind::FileTooLarge);
    }
}
