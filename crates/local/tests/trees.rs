//! Names, attributes, escapes, watches and records of local trees.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{block, block_on, engines, is_root, name, path, tree};
use ropeway_block::Pool;
use ropeway_local::{IoEngine, LocalOptions, LocalTree};
use ropeway_vfs::trace::{Observer, Record};
use ropeway_vfs::tree::Change;
use ropeway_vfs::{
    CacheMode, Create, End, ErrorKind, Kind, Loss, Metadata, MetadataChange, OpenOptions, Owner, RelPath,
    Timestamp, Tree, Xattr,
};

#[test]
fn nothing_leads_out_of_the_root() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    let (base, tree) = tree(IoEngine::Psync, None);
    std::os::unix::fs::symlink(outside.path(), base.path().join("out")).unwrap();
    std::os::unix::fs::symlink(".", base.path().join("self")).unwrap();
    std::os::unix::fs::symlink("/proc/self/root", base.path().join("magic")).unwrap();
    for folder in ["out", "self", "magic"] {
        let inside = path(format!("{folder}/secret"));
        let read = OpenOptions::read(CacheMode::Auto);
        assert!(block_on(tree.open(&inside, read)).is_err());
        assert!(
            block_on(tree.open(&inside, OpenOptions::write(Create::IfMissing, CacheMode::Auto))).is_err()
        );
        assert!(block_on(tree.metadata(&inside)).is_err());
        assert!(block_on(tree.remove_file(&inside)).is_err());
        assert!(block_on(tree.make_dir(&path(format!("{folder}/new")), 0o755)).is_err());
        assert!(block_on(tree.list(&path(folder))).is_err());
        assert!(block_on(tree.lookup(&path(folder), &[name("secret")])).is_err());
        assert!(block_on(tree.rename(&inside, &path("stolen"), true)).is_err());
        let node = block_on(tree.metadata(&path(folder))).unwrap();
        assert_eq!(node.kind, Kind::Symlink);
    }
    let change = MetadataChange {
        mode: Some(0o777),
        modified: Some(Timestamp(7)),
        ..MetadataChange::default()
    };
    block_on(tree.set_metadata(&path("out"), &change)).unwrap();
    assert_ne!(std::fs::metadata(outside.path()).unwrap().mtime(), 0);
    assert_eq!(
        std::fs::symlink_metadata(base.path().join("out"))
            .unwrap()
            .mtime_nsec(),
        7
    );
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn odd_names_and_big_folders_are_listed_whole() {
    let (base, tree) = tree(IoEngine::Psync, None);
    block_on(tree.make_dir(&path("d"), 0o751)).unwrap();
    assert_eq!(
        std::fs::metadata(base.path().join("d"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o751
    );
    let mut names: Vec<Vec<u8>> = (0..3000).map(|i| format!("file {i}").into_bytes()).collect();
    names.extend([
        b"\xff\xfe\n".to_vec(),
        vec![b'n'; 255],
        b" ".to_vec(),
        b"...".to_vec(),
        b"-rf".to_vec(),
    ]);
    for bytes in &names {
        let file = path("d").join(&name(bytes));
        block_on(tree.open(&file, OpenOptions::write(Create::New, CacheMode::Auto))).unwrap();
    }
    let too_long = path("d").join(&name([b'n'; 256]));
    let error = block_on(tree.open(&too_long, OpenOptions::write(Create::New, CacheMode::Auto)))
        .err()
        .unwrap();
    assert_eq!(error.kind, ErrorKind::NameRefused);
    for max in [1000, 7] {
        let mut listing = block_on(tree.list(&path("d"))).unwrap();
        let mut found = Vec::new();
        loop {
            let entries = block_on(listing.next(max)).unwrap();
            if entries.is_empty() {
                break;
            }
            assert!(entries.len() <= max);
            found.extend(entries.into_iter().map(|entry| {
                assert_eq!(entry.metadata.unwrap().mode, Some(0o600));
                entry.name.as_bytes().to_vec()
            }));
        }
        found.sort();
        names.sort();
        assert!(found == names);
    }
}

#[test]
fn rename_replaces_only_when_asked() {
    let (base, tree) = tree(IoEngine::Psync, None);
    std::fs::write(base.path().join("a"), "a").unwrap();
    std::fs::write(base.path().join("b"), "b").unwrap();
    let error = block_on(tree.rename(&path("a"), &path("b"), false))
        .err()
        .unwrap();
    assert_eq!((error.kind, error.path), (ErrorKind::AlreadyExists, path("b")));
    block_on(tree.rename(&path("a"), &path("b"), true)).unwrap();
    assert_eq!(std::fs::read(base.path().join("b")).unwrap(), b"a");
    let pairs = [(name("b"), name("c")), (name("none"), name("d"))];
    let results = block_on(tree.rename_in(&RelPath::root(), &pairs));
    assert!(results[0].is_ok());
    assert_eq!(results[1].as_ref().unwrap_err().kind, ErrorKind::NotFound);
}

fn xattr(name: &str, value: &[u8]) -> Xattr {
    Xattr {
        name: name.as_bytes().to_vec(),
        value: value.to_vec(),
    }
}

/// Version 2, `user::rwx user:1:r-- group::r-- mask::r-- other::---` (linux/posix_acl_xattr.h).
fn acl() -> Xattr {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1u16, 7u16, u32::MAX),
        (2, 4, 1),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    xattr("system.posix_acl_access", &value)
}

/// VFS_CAP_REVISION_2 with CAP_NET_BIND_SERVICE permitted and effective (linux/capability.h).
fn capability() -> Xattr {
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    xattr("security.capability", &words.map(u32::to_le_bytes).concat())
}

#[test]
fn attributes_are_set_in_the_order_that_keeps_them() {
    let (base, tree) = tree(IoEngine::Psync, None);
    std::fs::write(base.path().join("file"), "x").unwrap();
    std::fs::create_dir(base.path().join("dir")).unwrap();
    let mut xattrs = vec![acl(), xattr("user.b", &[7; 900]), xattr("user.c", b"")];
    if is_root() {
        xattrs.extend([capability(), xattr("trusted.t", b"t")]);
    }
    xattrs.sort();
    let change = MetadataChange {
        owner: is_root().then_some(Owner { user: 1, group: 2 }),
        mode: Some(0o6740),
        xattrs: Some(xattrs.clone()),
        accessed: Some(Timestamp::from_unix(1_000_000_000, 1)),
        modified: Some(Timestamp::from_unix(-5, 999_999_999)),
        ..MetadataChange::default()
    };
    assert_eq!(block_on(tree.set_metadata(&path("file"), &change)).unwrap(), []);
    let now = block_on(tree.metadata(&path("file"))).unwrap();
    assert_eq!(now.mode, change.mode);
    assert_eq!(now.owner, change.owner.or(now.owner));
    assert_eq!(Some(now.modified), change.modified);
    assert_eq!(block_on(tree.xattrs(&path("file"))).unwrap(), xattrs);
    let file = block_on(tree.open(&path("file"), OpenOptions::read(CacheMode::Auto))).unwrap();
    assert_eq!(block_on(file.xattrs()).unwrap(), xattrs);
    let fewer = MetadataChange {
        xattrs: Some(vec![xattr("user.z", b"1")]),
        ..MetadataChange::default()
    };
    assert_eq!(block_on(file.set_metadata(&fewer)).unwrap(), []);
    assert_eq!(Some(block_on(tree.xattrs(&path("file"))).unwrap()), fewer.xattrs);
    // Attributes that such a volume cannot store are reported as losses, not as errors.
    let odd = MetadataChange {
        created: Some(Timestamp(0)),
        dos_attributes: Some(2),
        modified: Some(Timestamp::from_unix(1 << 40, 0)),
        xattrs: Some(vec![xattr("nonsense.a", b"")]),
        ..MetadataChange::default()
    };
    let losses = block_on(tree.set_metadata(&path("dir"), &odd)).unwrap();
    assert_eq!(losses, [Loss::Xattr, Loss::Times]);
    let kept = block_on(tree.metadata(&path("dir"))).unwrap();
    assert_eq!(
        (kept.created, kept.dos_attributes),
        (odd.created, odd.dos_attributes)
    );
    let options = LocalOptions {
        raw_xattrs: true,
        ..LocalOptions::default()
    };
    let raw = LocalTree::open(base.path(), options).unwrap();
    let losses = block_on(raw.set_metadata(&path("dir"), &odd)).unwrap();
    assert_eq!(
        losses,
        [Loss::Xattr, Loss::CreatedTime, Loss::DosAttributes, Loss::Times]
    );
}

#[test]
fn links_and_special_nodes() {
    let (base, tree) = tree(IoEngine::Psync, None);
    let text = b"\xff/../nowhere";
    block_on(tree.make_symlink(&path("link"), text)).unwrap();
    assert_eq!(block_on(tree.read_link(&path("link"))).unwrap(), text);
    let change = MetadataChange {
        owner: is_root().then_some(Owner { user: 3, group: 4 }),
        modified: Some(Timestamp(1_234_567_890)),
        xattrs: Some(if is_root() {
            vec![xattr("trusted.l", b"1")]
        } else {
            Vec::new()
        }),
        ..MetadataChange::default()
    };
    assert_eq!(block_on(tree.set_metadata(&path("link"), &change)).unwrap(), []);
    let now = block_on(tree.metadata(&path("link"))).unwrap();
    assert_eq!(
        (now.kind, now.modified.0, now.size),
        (Kind::Symlink, 1_234_567_890, text.len() as u64)
    );
    assert_eq!(Some(block_on(tree.xattrs(&path("link"))).unwrap()), change.xattrs);

    let mut fifo = Metadata::bare(Kind::Fifo, 0, Timestamp(0));
    fifo.mode = Some(0o666);
    block_on(tree.make_special(&path("fifo"), &fifo)).unwrap();
    assert_eq!(block_on(tree.metadata(&path("fifo"))).unwrap().mode, Some(0o666));
    if is_root() {
        let mut null = Metadata::bare(Kind::CharDevice, 0, Timestamp(0));
        null.device = Some((1, 3));
        block_on(tree.make_special(&path("null"), &null)).unwrap();
        assert_eq!(
            block_on(tree.metadata(&path("null"))).unwrap().device,
            Some((1, 3))
        );
    }
    std::fs::write(base.path().join("file"), "x").unwrap();
    block_on(tree.make_hard_link(&path("file"), &path("hard"))).unwrap();
    let (one, two) = (
        block_on(tree.metadata(&path("file"))).unwrap(),
        block_on(tree.metadata(&path("hard"))).unwrap(),
    );
    assert!(one.id == two.id && two.links == 2);
    let space = block_on(tree.space()).unwrap();
    assert!(space.total > 0 && space.available <= space.total);
    block_on(tree.sync()).unwrap();
    block_on(tree.sync_dir(&RelPath::root())).unwrap();
}

#[test]
fn watches_see_new_folders_and_moved_ones() {
    let (base, tree) = tree(IoEngine::Psync, None);
    std::fs::create_dir(base.path().join("old")).unwrap();
    let mut watch = block_on(tree.watch()).unwrap();
    std::fs::create_dir_all(base.path().join("new/deep")).unwrap();
    std::fs::write(base.path().join("new/deep/file"), "x").unwrap();
    expect(&mut *watch, "new/deep/file");
    std::fs::write(base.path().join("old/file"), "x").unwrap();
    expect(&mut *watch, "old/file");
    std::fs::rename(base.path().join("new"), base.path().join("moved")).unwrap();
    expect(&mut *watch, "moved/deep/file");
    std::fs::write(base.path().join("moved/deep/file"), "yy").unwrap();
    expect(&mut *watch, "moved/deep/file");
    std::fs::remove_file(base.path().join("old/file")).unwrap();
    expect(&mut *watch, "old/file");
    drop(base);
    let mut last = block_on(watch.next());
    for _ in 0..100 {
        if last.is_err() {
            break;
        }
        last = block_on(watch.next());
    }
    assert_eq!(last.err().unwrap().kind, ErrorKind::Gone);
}

fn expect(watch: &mut dyn ropeway_vfs::tree::Watch, wanted: &str) {
    for _ in 0..100 {
        if block_on(watch.next())
            .unwrap()
            .contains(&Change::Path(path(wanted)))
        {
            return;
        }
    }
    panic!("{wanted} was not reported");
}

struct Recorder(Mutex<Vec<(String, String, u64, i64)>>);

impl Observer for Recorder {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn record(&self, record: Record<'_>) {
        assert_eq!(record.end, Some(End::Target));
        let line = (
            record.kind.to_owned(),
            String::from_utf8_lossy(record.path).into_owned(),
            record.length,
            record.result,
        );
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn operations_are_recorded() {
    for io in engines() {
        let base = tempfile::tempdir().unwrap();
        let recorder = Arc::new(Recorder(Mutex::default()));
        let observer: Arc<dyn Observer> = recorder.clone();
        let root = base.path().join("made/here");
        let options = LocalOptions {
            io: Some(io),
            observer: Some((observer, End::Target)),
            create_root: true,
            ..LocalOptions::default()
        };
        let tree = LocalTree::open(&root, options).unwrap();
        assert_eq!((tree.engine(), tree.root()), (io, root.as_path()));
        assert_eq!(tree.device(), std::fs::metadata(&root).unwrap().dev());
        let pool = Pool::new(4096, 2);
        let file = block_on(tree.open(&path("f"), OpenOptions::write(Create::New, CacheMode::Auto))).unwrap();
        block_on(file.write_at(block(&pool, b"12345"), 0)).unwrap();
        let (_, result) = block_on(file.read_at(pool.try_get().unwrap(), 0, 4096));
        result.unwrap();
        block_on(tree.metadata(&path("none"))).unwrap_err();
        let seen = recorder.0.lock().unwrap().clone();
        let line = |kind: &str, path: &str, length, result| (kind.into(), path.into(), length, result);
        let wanted = [
            line("create", "f", 0, 0),
            line("write", "f", 5, 5),
            line("read", "f", 4096, 5),
            line("stat", "none", 0, -2),
        ];
        assert_eq!(seen, wanted);
    }
}
