//! A node changes its kind between a killed run and the next one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Place, file, no_temporaries, same, text, tool};

const MIB: u64 = 1 << 20;

/// Kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Symlink,
    Fifo,
}

use Kind::{Fifo, File, Folder, Symlink};

fn make(path: &Path, kind: Kind) {
    match kind {
        File => file(path, 12 * MIB, 7),
        Folder => {
            fs::create_dir(path).unwrap();
            file(&path.join("big"), 12 * MIB, 8);
            text(&path.join("small"), "small");
            fs::create_dir(path.join("folder")).unwrap();
            text(&path.join("folder/leaf"), "leaf");
        }
        Symlink => symlink("nowhere", path).unwrap(),
        Fifo => drop(tool("mkfifo", &[path]).unwrap()),
    }
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

/// Checks that the second run succeeds and that nothing of the first has a final name.
fn changed_from(before: Kind, is_new: bool, below: &str) {
    for after in [File, Folder, Symlink, Fifo] {
        if after == before {
            continue;
        }
        let place = Place::new();
        let node = place.folder("source").join(below).join("node");
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        make(&node, before);
        if !is_new {
            place.folder("target");
        }
        let run = || place.copy("source", "target").arg("-T");
        let mut running = run().args(["--bwlimit", "4M"]).start();
        running.reach("bytes_sent", 3 * MIB);
        running.kill();
        remove(&node);
        make(&node, after);
        let finished = run().run();
        assert_eq!(finished.code(), Some(0), "{before:?} -> {after:?}: {finished}");
        same(&place.join("source"), &place.join("target"));
        no_temporaries(&place.join("target"));
    }
}

/// The temporary file was renamed as if it were the folder.
#[test]
fn a_file_in_a_folder_that_exists_may_become_anything() {
    changed_from(File, false, "");
}

/// Every rerun failed with "Is a directory".
#[test]
fn a_folder_in_a_folder_that_exists_may_become_anything() {
    changed_from(Folder, false, "");
}

#[test]
fn a_file_in_a_new_folder_may_become_anything() {
    changed_from(File, true, "");
    changed_from(File, true, "deep/er");
}

#[test]
fn a_folder_in_a_new_folder_may_become_anything() {
    changed_from(Folder, true, "");
    changed_from(Folder, true, "deep/er");
}

/// Small nodes exist already, under their final names, in a folder that still has a temporary name.
#[test]
fn small_nodes_in_a_new_folder_may_become_anything() {
    let kinds = [File, Folder, Symlink, Fifo];
    let place = Place::new();
    let source = place.folder("source");
    let path = |number: usize, after: usize| source.join(format!("{number} {after}"));
    let make_small = |path: &Path, kind: Kind| match kind {
        File => text(path, "a small file"),
        Folder => {
            fs::create_dir(path).unwrap();
            text(&path.join("leaf"), "leaf");
        }
        other => make(path, other),
    };
    for (number, before) in kinds.into_iter().enumerate() {
        for after in 0..kinds.len() {
            make_small(&path(number, after), before);
        }
    }
    file(&source.join("big"), 24 * MIB, 1);
    let run = || place.copy("source", "target").arg("-T");
    let mut running = run().args(["--bwlimit", "5M"]).start();
    running.reach("bytes_sent", 10 * MIB);
    running.kill();
    for number in 0..kinds.len() {
        for (at, after) in kinds.into_iter().enumerate() {
            remove(&path(number, at));
            make_small(&path(number, at), after);
        }
    }
    run().ok();
    same(&source, &place.join("target"));
}

/// Both names led to one file on the target, and writing to one changed the other.
#[test]
fn hard_links_may_become_separate_files() {
    let place = Place::new();
    let source = place.folder("source");
    text(&source.join("a"), "one file");
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    file(&source.join("big"), 24 * MIB, 1);
    let run = || place.copy("source", "target").arg("-T");
    let mut running = run().args(["--bwlimit", "5M"]).start();
    running.reach("bytes_sent", 10 * MIB);
    running.kill();
    for (name, content) in [
        ("a", "the first of two"),
        ("b", "the second one, which is longer"),
    ] {
        fs::remove_file(source.join(name)).unwrap();
        text(&source.join(name), content);
    }
    run().ok();
    same(&source, &place.join("target"));
}
