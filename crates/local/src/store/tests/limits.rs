//! Many nodes over few descriptors.

use std::fs;
use std::sync::atomic::Ordering;

use super::*;

fn few(folder: &Path, descriptors_max: usize) -> LocalStore {
    let options = StoreOptions {
        descriptors_max,
        ..StoreOptions::default()
    };
    LocalStore::open(folder, &options).unwrap()
}

#[test]
fn five_thousand_nodes_over_a_hundred_descriptors() {
    for folder in folders() {
        let store = few(folder.path(), 100);
        let text = |n: usize| format!("content {n}").into_bytes();
        open(&store, "a", &MAKE_DIR);
        let nodes: Vec<_> = (0..5000)
            .map(|n| put(&store, &format!("a/{n}"), &text(n)))
            .collect();
        assert!(store.core.descriptors.count() <= 100);
        store.rename(&path("a"), &path("b"), false).unwrap();
        for n in 0..100 {
            let (from, to) = (format!("b/{n}"), format!("b/renamed {n}"));
            store.rename(&path(&from), &path(&to), false).unwrap();
        }
        for n in 100..120 {
            store.remove(&path(&format!("b/{n}")), false).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let nodes = &nodes;
                scope.spawn(move || {
                    for n in (0..nodes.len()).filter(|n| n % 2 == thread % 2) {
                        assert_eq!(content(&*nodes[n]), text(n));
                        nodes[n].stat().unwrap();
                    }
                });
            }
        });
        // Twenty nodes are pinned.
        assert!(store.core.descriptors.count() <= 120);
        assert!(store.core.descriptors.reopened.load(Ordering::Relaxed) >= 4000);
        drop(nodes);
        assert_eq!(store.core.descriptors.count(), 0);
    }
}

#[test]
fn what_is_in_use_keeps_its_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let store = few(folder.path(), 32);
    let busy = put(&store, "busy", b"x");
    let mut others = Vec::new();
    for n in 0..200 {
        others.push(put(&store, &format!("{n}"), b""));
        content(&*busy);
    }
    let before = store.core.descriptors.reopened.load(Ordering::Relaxed);
    content(&*busy);
    assert_eq!(store.core.descriptors.reopened.load(Ordering::Relaxed), before);
}

#[test]
fn another_file_under_the_name_is_not_taken_for_the_node() {
    for folder in folders() {
        let store = few(folder.path(), 1);
        let node = put(&store, "f", b"old");
        let stays = put(&store, "g", b"");
        fs::remove_file(folder.path().join("f")).unwrap();
        assert_eq!(kind_of(node.stat()), ErrorKind::Gone);
        fs::write(folder.path().join("f"), "new").unwrap();
        assert_eq!(kind_of(node.read_at(&mut [0; 3], 0)), ErrorKind::Gone);
        stays.stat().unwrap();
        assert_eq!(kind_of(node.streams()), ErrorKind::Gone);
    }
}

#[test]
fn permissions_at_the_time_of_opening_count() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root is refused nothing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    put(&store, "f", b"x");
    let file = folder.path().join("f");
    let mode = |bits| fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(bits)).unwrap();
    mode(0o400);
    assert_eq!(
        refused(store.open(&path("f"), &WRITE)),
        ErrorKind::PermissionDenied
    );
    let less = NodeOpen {
        allow_less_access: true,
        ..WRITE
    };
    assert_eq!(open(&store, "f", &less).access(), Access::Read);
    mode(0o200);
    assert_eq!(open(&store, "f", &less).access(), Access::Write);
    mode(0);
    assert_eq!(open(&store, "f", &less).access(), Access::Attributes);
}

#[test]
fn descriptors_are_given_up_while_threads_use_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = few(folder.path(), 4);
    open(&store, "d", &MAKE_DIR);
    let nodes: Vec<_> = (0..32u8)
        .map(|n| put(&store, &format!("d/{n}"), &[n; 64]))
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let (nodes, store) = (&nodes, &store);
            scope.spawn(move || {
                for step in 0..3000usize {
                    let n = (step * 7 + thread * 11) % nodes.len();
                    // Another thread appends to this file.
                    assert_eq!(content(&*nodes[n])[..64], [n as u8; 64]);
                    if step % 64 == 0 {
                        let other = &nodes[(n + 1) % nodes.len()];
                        assert_eq!(nodes[n].copy_from(&**other, 0, 64, 8).unwrap(), 8);
                        nodes[n].set_len(64).unwrap();
                    }
                    if thread == 0 && step % 50 == 0 {
                        let (from, to) = if step % 100 == 0 { ("d", "e") } else { ("e", "d") };
                        store.rename(&path(from), &path(to), false).unwrap();
                    }
                }
            });
        }
    });
}
