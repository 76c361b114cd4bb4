//! Operations on a name take effect only while the name belongs to the opened node.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_vfs::store::Removal;

use super::*;

#[test]
fn nothing_is_done_to_what_has_the_name_by_now() {
    for folder in folders() {
        let store = store(folder.path());
        let at = |name: &str| folder.path().join(name);
        let opened = store.open(&path("name"), &CREATE).unwrap();
        let id = opened.stat.id;
        fs::write(at("new"), "precious").unwrap();
        fs::rename(at("new"), at("name")).unwrap();
        let gone = |result: ropeway_vfs::Result<()>| assert_eq!(result.unwrap_err().kind, ErrorKind::Gone);
        gone(store.remove_node(id, &path("name"), Removal::File));
        gone(store.remove_node(id, &path("name"), Removal::EmptyFile));
        gone(store.rename_node(id, &path("name"), &path("to"), false));
        gone(store.link_node(&*opened.node, &path("to"), false));
        assert_eq!(fs::read(at("name")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn what_is_not_empty_any_more_stays() {
    for folder in folders() {
        let store = store(folder.path());
        let opened = store.open(&path("name"), &CREATE).unwrap();
        fs::write(folder.path().join("name"), "x").unwrap();
        let kept = store.remove_node(opened.stat.id, &path("name"), Removal::EmptyFile);
        assert_eq!(kept.unwrap_err().kind, ErrorKind::NotEmpty);
        assert_eq!(fs::read(folder.path().join("name")).unwrap(), b"x");
        store
            .remove_node(opened.stat.id, &path("name"), Removal::File)
            .unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// A local program renames full files over the name while the opened file is removed. No full file may
/// be removed.
#[test]
fn a_removal_in_a_race_takes_no_other_file() {
    const ROUNDS: usize = 500;
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let store = store(folder.path());
    let at = |name: &str| folder.path().join(name);
    let go = AtomicBool::new(false);
    for round in 0..ROUNDS {
        let opened = store.open(&path("name"), &CREATE).unwrap();
        let full = format!("full-{round}");
        fs::write(at(&full), "precious").unwrap();
        go.store(false, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                fs::rename(at(&full), at("name")).unwrap();
            });
            go.store(true, Ordering::Release);
            // Either the empty file is removed, or nothing.
            _ = store.remove_node(opened.stat.id, &path("name"), Removal::EmptyFile);
        });
        // Under its name, or under another one if the name was taken again meanwhile.
        let mut left = fs::read_dir(folder.path()).unwrap();
        let has = left.any(|entry| fs::read(entry.unwrap().path()).unwrap() == b"precious");
        assert!(has, "round {round}: the full file is gone");
        for entry in fs::read_dir(folder.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}
