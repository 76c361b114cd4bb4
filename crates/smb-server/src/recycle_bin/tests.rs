use std::fs;
use std::path::Path;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_wire::create::AccessMask;

use super::clean::Removed;
use super::*;
use crate::share::Share;
use crate::testing;

const DAY: i64 = 86_400;
/// 2026-11-26, 11:45:07 UTC.
const NOON: i64 = 1_795_693_507;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn bin_of(store: &Arc<dyn Store>, days: u32, bytes: u64) -> RecycleBin {
    let limits = RecycleLimits { days, bytes };
    RecycleBin::new(Arc::clone(store), limits, |name| name.as_bytes() == b"left out")
}

fn bin(share: &Share, days: u32, bytes: u64) -> RecycleBin {
    bin_of(&share.store, days, bytes)
}

/// Makes a file of some bytes, and deletes it. Returns whether the bin took it.
fn deleted(share: &Arc<Share>, bin: &RecycleBin, name: &str, bytes: usize, now: i64) -> bool {
    let open = testing::open(share, name, AccessMask::FILE_ALL);
    open.node.write_at(&vec![7; bytes], 0).unwrap();
    let id = open.node.stat().unwrap().id;
    drop(open);
    let path = testing::path(name);
    let is_kept = bin.take_at(id, &path, at(now)).unwrap().is_some();
    if !is_kept {
        bin.store.remove(&path, false).unwrap();
    }
    is_kept
}

fn all(bin: &RecycleBin) -> Vec<String> {
    let mut found = Vec::new();
    bin.each_file(&top(), &mut |path, _| found.push(path.to_string()));
    found.sort();
    found
}

#[test]
fn deleted_files_are_kept_beneath_their_own_folders() {
    let share = testing::share();
    let bin = bin(&share, 30, 1000);
    testing::folder(&share, "a");
    for minute in 0..2 {
        assert!(deleted(&share, &bin, "a/f", 10, NOON + 60 * minute));
    }
    assert_eq!(
        all(&bin),
        [".recycle/2026-11-26 1146/a/f", ".recycle/2026-11-26/a/f"]
    );
    let kept = (0..20).filter(|_| deleted(&share, &bin, "a/f", 10, NOON)).count();
    assert_eq!(kept, 1, "one of a name a minute, and the first of the day");
}

#[test]
fn a_folder_of_a_deleted_files_name_is_no_obstacle() {
    let share = testing::share();
    let bin = bin(&share, 30, 1000);
    assert!(deleted(&share, &bin, "a", 10, NOON));
    testing::folder(&share, "a");
    assert!(deleted(&share, &bin, "a/f", 10, NOON));
    assert_eq!(
        all(&bin),
        [".recycle/2026-11-26 1145/a/f", ".recycle/2026-11-26/a"]
    );
}

#[test]
fn not_everything_is_kept() {
    let share = testing::share();
    let bin = bin(&share, 30, 1000);
    assert!(!deleted(&share, &bin, "left out", 10, NOON));
    assert!(!deleted(&share, &bin, "large", 1001, NOON));
    assert!(deleted(&share, &bin, "kept", 10, NOON));
    assert!(!deleted(&share, &bin, ".recycle/2026-11-26/new", 10, NOON));
    testing::folder(&share, ".Recycle");
    assert!(!deleted(&share, &bin, ".Recycle/new", 10, NOON));
    testing::open(&share, "one", AccessMask::FILE_ALL);
    let (one, two) = (testing::path("one"), testing::path("two"));
    bin.store.link(&one, &two, false).unwrap();
    let id = bin.store.look(&one).unwrap().id;
    assert!(bin.take_at(id, &one, at(NOON)).unwrap().is_none());
    // Another file has the name by now.
    let kept = bin
        .store
        .look(&testing::path(".recycle/2026-11-26/kept"))
        .unwrap()
        .id;
    assert!(bin.take_at(kept, &two, at(NOON)).unwrap().is_none());
    assert_eq!(all(&bin), [".recycle/2026-11-26/kept"]);
}

#[test]
fn what_is_too_old_is_removed_with_its_folders() {
    let share = testing::share();
    let bin = bin(&share, 30, 1000);
    testing::folder(&share, "a");
    assert!(deleted(&share, &bin, "a/old", 10, NOON - 31 * DAY));
    assert!(deleted(&share, &bin, "a/young", 10, NOON - 30 * DAY));
    testing::folder(&share, ".recycle/2020-01-01 mine");
    testing::open(&share, ".recycle/2020-01-01 mine/f", AccessMask::FILE_ALL);
    let removed = bin.clean_at(at(NOON));
    assert_eq!(removed, Removed { files: 1, bytes: 10 });
    assert_eq!(
        all(&bin),
        [".recycle/2020-01-01 mine/f", ".recycle/2026-10-27/a/young"]
    );
    assert!(bin.store.look(&testing::path(".recycle/2026-10-26")).is_err());
}

#[test]
fn the_oldest_go_while_there_are_too_many_bytes() {
    let share = testing::share();
    let bin = bin(&share, 30, 100);
    // Users' own files in the bin push nothing out.
    testing::folder(&share, ".recycle");
    let own = testing::open(&share, ".recycle/mine", AccessMask::FILE_ALL);
    own.node.write_at(&[7; 1000], 0).unwrap();
    for (age, name) in [(2, "b"), (3, "a"), (1, "c")] {
        assert!(deleted(&share, &bin, name, 40, NOON - age * DAY));
    }
    assert!(bin.level.state.lock().is_over);
    assert_eq!(bin.clean_at(at(NOON)), Removed { files: 1, bytes: 40 });
    assert_eq!(
        all(&bin),
        [".recycle/2026-11-24/b", ".recycle/2026-11-25/c", ".recycle/mine"]
    );
    assert_eq!(bin.level.state.lock().bytes, 80);
}

#[test]
fn a_link_in_the_bins_place_is_not_followed() {
    let share = testing::share();
    testing::folder(&share, "elsewhere");
    share.store.symlink(&top(), b"elsewhere").unwrap();
    let limits = RecycleLimits { days: 1, bytes: 100 };
    assert!(RecycleBin::start(Arc::clone(&share.store), limits, |_| false).is_err());
    let bin = bin(&share, 30, 100);
    assert!(!deleted(&share, &bin, "f", 10, NOON));
    let found = share
        .store
        .resolve(&testing::path("elsewhere/2026-11-26"))
        .unwrap();
    assert!(share.store.look(&found).is_err());
}

/// Deletes a file of a local folder into its bin.
fn delete_local(bin: &RecycleBin, root: &Path, name: &str) {
    let path = testing::path(name);
    fs::write(root.join(name), vec![7; 40]).unwrap();
    let id = bin.store.look(&path).unwrap().id;
    assert!(bin.take_at(id, &path, at(NOON)).unwrap().is_some());
}

fn local(root: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(root, &StoreOptions::default()).unwrap())
}

#[test]
fn within_a_day_the_first_deleted_goes_first() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("junk")).unwrap();
    let bin = bin_of(&local(root.path()), 30, 100);
    for name in ["junk/one", "junk/two", "report"] {
        delete_local(&bin, root.path(), name);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(bin.clean_at(at(NOON)).files, 1);
    assert_eq!(
        all(&bin),
        [".recycle/2026-11-26/junk/two", ".recycle/2026-11-26/report"]
    );
}

#[test]
fn files_are_as_private_as_they_were() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let private = root.path().join("private");
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mode = |path: &str| root.path().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    set(root.path(), 0o755);
    fs::create_dir(&private).unwrap();
    set(&private, 0o711);
    let store = local(root.path());
    // Relative to itself, and empty otherwise ([MS-DTYP] 2.4.6).
    let mut descriptor = vec![0; 20];
    (descriptor[0], descriptor[3]) = (1, 0x80);
    let folder = store
        .open(&testing::path("private"), &NodeOpen::default())
        .unwrap();
    folder.node.set_security(&descriptor).unwrap();
    let bin = bin_of(&store, 30, 1000);
    delete_local(&bin, root.path(), "private/f");
    assert_eq!(
        [
            mode(".recycle"),
            mode(".recycle/2026-11-26"),
            mode(".recycle/2026-11-26/private")
        ],
        [0o755, 0o755, 0o711]
    );
    let kept = store
        .open(
            &testing::path(".recycle/2026-11-26/private"),
            &NodeOpen::default(),
        )
        .unwrap();
    assert_eq!(kept.node.security().unwrap().unwrap(), descriptor);
    // What is deleted there later may be less open.
    set(&private, 0o700);
    delete_local(&bin, root.path(), "private/f");
    delete_local(&bin, root.path(), "private/g");
    assert_eq!(mode(".recycle/2026-11-26 1145/private"), 0o700);
    assert_eq!(
        all(&bin),
        [
            ".recycle/2026-11-26 1145/private/f",
            ".recycle/2026-11-26 1145/private/g",
            ".recycle/2026-11-26/private/f"
        ]
    );
    // The topmost folder's permissions are those of the share.
    set(root.path(), 0o750);
    delete_local(&bin, root.path(), "f");
    assert_eq!([mode(".recycle"), mode(".recycle/2026-11-26")], [0o750; 2]);
}

#[test]
fn an_ended_bin_cleans_nothing() {
    let share = testing::share();
    let bin = bin(&share, 1, 100);
    assert!(deleted(&share, &bin, "f", 10, NOON - 9 * DAY));
    bin.end();
    assert_eq!(bin.clean_at(at(NOON)), Removed::default());
    assert!(
        deleted(&share, &bin, "g", 10, NOON),
        "what is deleted is still kept"
    );
}
