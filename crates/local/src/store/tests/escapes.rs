//! The store never opens, creates, changes or removes anything outside its root.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_vfs::store::NodeOpen;

use super::*;

/// A shared folder, and a folder next to it that must stay unreachable.
struct Scene {
    _folder: TempDir,
    root: std::path::PathBuf,
    outside: std::path::PathBuf,
}

fn scene(parent: &Path) -> Scene {
    let folder = tempfile::tempdir_in(parent).unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    Scene {
        _folder: folder,
        root,
        outside,
    }
}

#[test]
fn paths_cannot_say_it() {
    for bad in [
        "..",
        "../outside",
        "a/../../outside",
        "/etc",
        "a//b",
        ".",
        "a/./b",
        "a\0b",
    ] {
        assert!(RelPath::parse(bad.as_bytes()).is_none(), "{bad}");
    }
}

#[test]
fn links_out_are_refused_by_every_call() {
    for parent in folders() {
        for walking in [false, true] {
            let scene = scene(parent.path());
            let store = store(&scene.root);
            if walking {
                store.core.root.forget_openat2();
            }
            let absolute = scene.outside.to_str().unwrap().to_owned();
            for target in [
                "../outside",
                &absolute,
                "../../../../../../../../etc",
                "in/../../outside",
            ] {
                let _ = fs::create_dir(scene.root.join("in"));
                fs::write(scene.root.join("f"), "inside").unwrap();
                symlink(target, scene.root.join("out")).unwrap();
                symlink(format!("{target}/file"), scene.root.join("file")).unwrap();
                for at in ["out", "out/file", "file", "out/new"] {
                    for how in [&READ, &WRITE, &LOOK, &CREATE] {
                        let result = store.open(&path(at), how);
                        assert_eq!(refused(result), ErrorKind::SymbolicLink, "{at} {how:?}");
                    }
                }
                let made = store.open(&path("out/dir"), &MAKE_DIR);
                assert_eq!(refused(made), ErrorKind::SymbolicLink);
                assert!(store.remove(&path("out/file"), false).is_err());
                assert!(store.rename(&path("out/file"), &path("mine"), true).is_err());
                assert!(store.rename(&path("f"), &path("out/file"), true).is_err());
                assert!(store.link(&path("out/file"), &path("mine"), true).is_err());
                assert!(store.link(&path("f"), &path("out/file"), true).is_err());
                assert!(store.symlink(&path("out/new"), b"x").is_err());
                assert!(store.resolve(&path("out/FILE")).is_err());
                // The links themselves are ordinary names.
                store.rename(&path("out"), &path("moved"), false).unwrap();
                store.link(&path("file"), &path("again"), false).unwrap();
                for at in ["moved", "file", "again"] {
                    store.remove(&path(at), false).unwrap();
                }
            }
            assert_eq!(fs::read(scene.outside.join("file")).unwrap(), b"secret");
            assert_eq!(fs::read_dir(&scene.outside).unwrap().count(), 1);
        }
    }
}

#[test]
fn a_folder_swapped_for_a_link_is_never_passed() {
    for parent in folders() {
        let scene = scene(parent.path());
        let store = store(&scene.root);
        let (dir, aside) = (scene.root.join("d"), scene.root.join("aside"));
        let link = scene.root.join("link");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "inside").unwrap();
        symlink("../outside", &link).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    fs::rename(&dir, &aside).unwrap();
                    fs::rename(&link, &dir).unwrap();
                    fs::rename(&dir, &link).unwrap();
                    fs::rename(&aside, &dir).unwrap();
                }
            });
            let mut opened = 0;
            for n in 0..20_000 {
                if let Ok(found) = store.open(&path("d/file"), &READ) {
                    assert_eq!(content(&*found.node), b"inside");
                    opened += 1;
                }
                if n % 4 == 0 {
                    let _ = store.open(&path("d/new"), &CREATE);
                    let _ = store.open(&path("d/dir"), &MAKE_DIR);
                    let _ = store.resolve(&path("D/FILE"));
                    let _ = store.rename(&path("d/new"), &path("d/newer"), true);
                    let _ = store.link(&path("d/newer"), &path("d/linked"), true);
                    let _ = store.symlink(&path("d/symlink"), b"x");
                    let _ = store.remove(&path("d/newer"), false);
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(opened > 0);
        });
        let left: Vec<_> = fs::read_dir(&scene.outside).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

#[test]
fn only_files_folders_and_links_are_opened() {
    for folder in folders() {
        let store = store(folder.path());
        let root = std::fs::File::open(folder.path()).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(&root, "fifo", fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        for at in ["fifo", "socket"] {
            for how in [&READ, &WRITE, &LOOK, &CREATE] {
                for allow_less_access in [false, true] {
                    let how = NodeOpen {
                        allow_less_access,
                        ..*how
                    };
                    assert_eq!(
                        refused(store.open(&path(at), &how)),
                        ErrorKind::PermissionDenied,
                        "{at}"
                    );
                }
            }
        }
        assert_eq!(list(&*open(&store, "", &READ)).len(), 2);
    }
}
