//! Batches of small files between two local trees.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::common::{block_on, is_root, name, path, random_bytes, tree};
use ropeway_local::{IoEngine, LocalTree};
use ropeway_vfs::HashAlgorithm;
use ropeway_vfs::{
    Batch, BatchItem, BatchResult, CacheMode, CompareBatch, Create, End, ErrorKind, MetadataChange, Owner,
    Preserve, RelPath, Tree, Xattr,
};

/// Returns a batch of all files in the source's root, each under a temporary name first.
fn batch_of(source: &Arc<LocalTree>) -> Batch {
    let mut listing = block_on(source.list(&RelPath::root())).unwrap();
    let entries = block_on(listing.next(10_000)).unwrap();
    let item = |(index, entry): (usize, ropeway_vfs::DirEntry)| BatchItem {
        rename_to: Some(entry.name.clone()),
        target: name(format!(".tmp-{index}")),
        name: entry.name,
        create: Create::New,
        metadata: entry.metadata.unwrap(),
    };
    Batch {
        source_dir: RelPath::root(),
        target_dir: path("to"),
        items: entries.into_iter().enumerate().map(item).collect(),
        preserve: Preserve::default(),
        cache: CacheMode::Auto,
        hash: Some(HashAlgorithm::Blake3),
        sync_each: false,
    }
}

fn copy(target: &LocalTree, source: &LocalTree, batch: Batch) -> Vec<BatchResult> {
    match target.copy_batch(source, batch) {
        Ok(results) => block_on(results),
        Err(_) => panic!("both are local"),
    }
}

fn trees() -> (
    tempfile::TempDir,
    Arc<LocalTree>,
    tempfile::TempDir,
    Arc<LocalTree>,
) {
    let (from, source) = tree(IoEngine::Psync, None);
    let (to, target) = tree(IoEngine::Psync, None);
    std::fs::create_dir(to.path().join("to")).unwrap();
    (from, source, to, target)
}

fn assert_same(from: &Path, to: &Path) {
    let (a, b) = (std::fs::metadata(from).unwrap(), std::fs::metadata(to).unwrap());
    assert!(
        std::fs::read(from).unwrap() == std::fs::read(to).unwrap(),
        "{from:?}"
    );
    assert_eq!(
        (a.mode(), a.uid(), a.gid(), a.mtime(), a.mtime_nsec()),
        (b.mode(), b.uid(), b.gid(), b.mtime(), b.mtime_nsec()),
        "{from:?}"
    );
    assert_eq!(
        (a.atime(), a.atime_nsec()),
        (b.atime(), b.atime_nsec()),
        "{from:?}"
    );
}

#[test]
fn every_size_mode_and_owner_arrives() {
    every_size_arrives(true);
    // Without a hash the kernel may copy the bytes.
    every_size_arrives(false);
}

fn every_size_arrives(hash: bool) {
    let (from, source, to, target) = trees();
    let mut random = fastrand::Rng::with_seed(3);
    let sizes = [
        0,
        1,
        511,
        4096,
        70_000,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
        3_500_000,
    ];
    let modes = [0o644, 0o600, 0o755, 0o4755, 0o2775, 0o664, 0o400, 0o000, 0o1777];
    for (index, (size, mode)) in sizes.into_iter().zip(modes).enumerate() {
        let file = from.path().join(format!("{index}"));
        std::fs::write(&file, random_bytes(&mut random, size)).unwrap();
        if is_root() && index % 3 == 1 {
            std::os::unix::fs::chown(&file, Some(17), Some(18)).unwrap();
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    if !is_root() {
        std::fs::remove_file(from.path().join("7")).unwrap();
    }
    let batch = Batch {
        hash: hash.then_some(HashAlgorithm::Blake3),
        ..batch_of(&source)
    };
    let items = batch.items.clone();
    for (item, result) in items.iter().zip(copy(&target, &source, batch)) {
        let done = result.unwrap();
        assert!(!done.source_changed);
        assert_eq!((done.size, done.sent), (item.metadata.size, item.metadata.size));
        assert_same(
            &from.path().join(item.name.as_os_str()),
            &to.path().join("to").join(item.name.as_os_str()),
        );
        let bytes = std::fs::read(from.path().join(item.name.as_os_str())).unwrap();
        assert_eq!(done.hash, hash.then(|| *blake3::hash(&bytes).as_bytes()));
    }
    assert_eq!(
        std::fs::read_dir(to.path().join("to")).unwrap().count(),
        items.len()
    );
}

#[test]
fn attributes_and_acls_arrive_and_inherited_ones_do_not() {
    let (from, source, to, target) = trees();
    // user::rwx user:1:rwx group::r-x mask::rwx other::---
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1u16, 7u16, u32::MAX),
        (2, 7, 1),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let xattr = |name: &str| Xattr {
        name: name.as_bytes().to_vec(),
        value: acl.clone(),
    };
    let set = |tree: &LocalTree, at: &RelPath, xattrs| {
        let change = MetadataChange {
            xattrs: Some(xattrs),
            ..MetadataChange::default()
        };
        assert_eq!(block_on(tree.set_metadata(at, &change)).unwrap(), []);
    };
    set(&target, &path("to"), vec![xattr("system.posix_acl_default")]);
    for file in ["plain", "acl"] {
        std::fs::write(from.path().join(file), file).unwrap();
        std::fs::set_permissions(from.path().join(file), std::fs::Permissions::from_mode(0o664)).unwrap();
    }
    let own = Xattr {
        name: b"user.own".to_vec(),
        value: b"1".to_vec(),
    };
    set(
        &source,
        &path("acl"),
        vec![xattr("system.posix_acl_access"), own.clone()],
    );
    for result in copy(&target, &source, batch_of(&source)) {
        result.unwrap();
    }
    assert_eq!(block_on(target.xattrs(&path("to/plain"))).unwrap(), []);
    assert_eq!(
        block_on(target.xattrs(&path("to/acl"))).unwrap(),
        [xattr("system.posix_acl_access"), own]
    );
    assert_same(&from.path().join("plain"), &to.path().join("to/plain"));
    assert_same(&from.path().join("acl"), &to.path().join("to/acl"));
}

#[test]
fn setgid_folders_do_not_lend_their_group() {
    if !is_root() {
        return;
    }
    let (from, source, to, target) = trees();
    std::os::unix::fs::chown(to.path().join("to"), Some(0), Some(42)).unwrap();
    std::fs::set_permissions(to.path().join("to"), std::fs::Permissions::from_mode(0o2775)).unwrap();
    for file in ["a", "b"] {
        std::fs::write(from.path().join(file), file).unwrap();
    }
    for result in copy(&target, &source, batch_of(&source)) {
        result.unwrap();
    }
    for file in ["a", "b"] {
        assert_same(&from.path().join(file), &to.path().join("to").join(file));
    }
}

#[test]
fn failures_are_told_by_side_and_leave_nothing() {
    let (from, source, to, target) = trees();
    for file in ["gone", "taken", "fifo", "fine", "isdir", "Socket"] {
        std::fs::write(from.path().join(file), file).unwrap();
    }
    let mut batch = batch_of(&source);
    for item in &mut batch.items {
        item.target = name(format!("t-{}", item.name));
    }
    batch.items.sort_by(|a, b| a.name.cmp(&b.name));
    std::fs::remove_file(from.path().join("gone")).unwrap();
    std::fs::remove_file(from.path().join("fifo")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, from.path().join("fifo"), rustix::fs::Mode::RUSR).unwrap();
    std::fs::remove_file(from.path().join("Socket")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.path().join("Socket")).unwrap();
    std::fs::write(to.path().join("to/t-taken"), "old").unwrap();
    std::fs::create_dir(to.path().join("to/isdir")).unwrap();
    let results = copy(&target, &source, batch);
    let fault = |index: usize| {
        results[index]
            .as_ref()
            .map(|_| ())
            .map_err(|failed| (failed.end, failed.error.kind))
    };
    assert_eq!(fault(0), Err((End::Source, ErrorKind::Unsupported)), "Socket");
    assert_eq!(fault(1), Err((End::Source, ErrorKind::Unsupported)), "fifo");
    assert_eq!(fault(2), Ok(()), "fine");
    assert_eq!(fault(3), Err((End::Source, ErrorKind::NotFound)), "gone");
    assert_eq!(fault(4), Err((End::Target, ErrorKind::IsADirectory)), "isdir");
    assert_eq!(fault(5), Err((End::Target, ErrorKind::AlreadyExists)), "taken");
    let mut left: Vec<_> = std::fs::read_dir(to.path().join("to"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["fine", "isdir", "t-taken"]);
    assert_eq!(std::fs::read(to.path().join("to/t-taken")).unwrap(), b"old");
}

#[test]
fn a_source_that_changed_since_the_walk_is_noticed_and_copied_as_it_is() {
    changed_sources_are_noticed(1, true);
    // Long enough to be copied by the kernel, which happens without a hash.
    changed_sources_are_noticed(20_000, true);
    changed_sources_are_noticed(20_000, false);
}

fn changed_sources_are_noticed(times: usize, hash: bool) {
    let (from, source, to, target) = trees();
    for file in ["grown", "shrunk", "chmodded", "emptied"] {
        std::fs::write(from.path().join(file), "some text".repeat(times)).unwrap();
    }
    let batch = Batch {
        hash: hash.then_some(HashAlgorithm::Blake3),
        ..batch_of(&source)
    };
    std::fs::write(from.path().join("grown"), "some text and more".repeat(times)).unwrap();
    std::fs::write(from.path().join("shrunk"), "less".repeat(times)).unwrap();
    std::fs::write(from.path().join("emptied"), "").unwrap();
    std::fs::set_permissions(
        from.path().join("chmodded"),
        std::fs::Permissions::from_mode(0o640),
    )
    .unwrap();
    let items = batch.items.clone();
    for (item, result) in items.iter().zip(copy(&target, &source, batch)) {
        let changed = result.unwrap().source_changed;
        assert_eq!(changed, item.name != name("chmodded"), "{}", item.name);
        let copy = to.path().join("to").join(item.name.as_os_str());
        if changed && item.rename_to.is_some() {
            assert!(!copy.exists(), "it must be copied again");
            continue;
        }
        assert_same(&from.path().join(item.name.as_os_str()), &copy);
    }
}

#[test]
fn holes_stay_holes_and_old_targets_are_replaced() {
    let (from, source, to, target) = trees();
    let file = std::fs::File::create(from.path().join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"island", 300_000).unwrap();
    file.set_len(1_000_000).unwrap();
    file.sync_all().unwrap();
    let mut batch = batch_of(&source);
    batch.items[0].rename_to = None;
    batch.items[0].target = name("sparse");
    batch.items[0].create = Create::Truncate;
    batch.sync_each = true;
    std::fs::write(to.path().join("to/sparse"), vec![1; 2_000_000]).unwrap();
    let done = copy(&target, &source, batch).remove(0).unwrap();
    assert_eq!(done.size, 1_000_000);
    let copied = std::fs::metadata(to.path().join("to/sparse")).unwrap();
    assert!(copied.blocks() * 512 < 100_000, "{} blocks", copied.blocks());
    assert_same(&from.path().join("sparse"), &to.path().join("to/sparse"));
}

#[test]
fn cold_sources_are_read_ahead_and_right() {
    let (from, source, to, target) = trees();
    let mut random = fastrand::Rng::with_seed(11);
    for index in 0..200 {
        let size = random.usize(..20_000);
        let file = from.path().join(format!("{index}"));
        std::fs::write(&file, random_bytes(&mut random, size)).unwrap();
        let file = std::fs::File::open(&file).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    for result in copy(&target, &source, batch_of(&source)) {
        result.unwrap();
    }
    for index in 0..200 {
        assert_same(
            &from.path().join(format!("{index}")),
            &to.path().join(format!("to/{index}")),
        );
    }
}

#[test]
fn what_is_not_kept_is_as_cp_would() {
    let (from, source, to, target) = trees();
    std::fs::write(from.path().join("file"), "x").unwrap();
    std::fs::set_permissions(from.path().join("file"), std::fs::Permissions::from_mode(0o4700)).unwrap();
    let mut batch = batch_of(&source);
    batch.preserve = Preserve {
        owner: false,
        mode: false,
        times: false,
        xattrs: false,
    };
    let done = copy(&target, &source, batch).remove(0).unwrap();
    assert_eq!(done.losses, []);
    let copied = block_on(target.metadata(&path("to/file"))).unwrap();
    assert_eq!(copied.mode, Some(0o700));
    let me = std::fs::metadata(to.path()).unwrap();
    assert_eq!(
        copied.owner,
        Some(Owner {
            user: me.uid(),
            group: me.gid()
        })
    );
}

/// Files of all lengths around those of the buffers; copies differ in one byte anywhere, or in length.
#[test]
fn pairs_are_equal_only_if_every_byte_is() {
    const HALF: usize = (1 << 20) / 2;
    let (from, source, to, target) = trees();
    let mut random = fastrand::Rng::with_seed(11);
    let mut expected = Vec::new();
    let lengths = [
        0,
        1,
        1_023,
        1_024,
        4_096,
        70_000,
        HALF - 1,
        HALF,
        HALF + 1,
        2 * HALF,
        2 * HALF + 7,
    ];
    for length in lengths {
        let bytes: Vec<u8> = random_bytes(&mut random, length);
        let mut other = |what: &str, bytes_there: &[u8]| {
            let name = format!("{length} {what}");
            std::fs::write(from.path().join(&name), &bytes).unwrap();
            std::fs::write(to.path().join("to").join(&name), bytes_there).unwrap();
            expected.push((name, bytes == bytes_there));
        };
        other("equal", &bytes);
        other("longer", &[&bytes[..], b"x"].concat());
        for at in [0, length / 2, length.saturating_sub(1)] {
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1;
            }
            other(&format!("changed at {at}"), &changed);
            other(&format!("cut at {at}"), &bytes[..at]);
        }
    }
    let pairs = expected.iter().map(|(text, _)| {
        let mut metadata = block_on(source.metadata(&path(text))).unwrap();
        // A listing may be outdated.
        if text.ends_with("changed at 0") {
            metadata.size = 5;
        }
        (name(text), name(text), metadata)
    });
    let batch = CompareBatch {
        dir: RelPath::root(),
        other_dir: path("to"),
        pairs: pairs.collect(),
    };
    let found = block_on(source.compare_batch(&*target, batch).unwrap());
    for ((name, equal), found) in expected.iter().zip(found) {
        assert_eq!(found.unwrap(), *equal, "{name}");
    }
}
