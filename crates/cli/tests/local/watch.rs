//! `--watch`: after the first pass, changes are copied.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use crate::support::{self, Place, Watching, content_same, holds, mixed, same, text};
use rustix::process::Signal;

/// Starts the run and waits for the end of the first pass.
fn watching(place: &Place, command: &str, flags: &[&str]) -> Watching {
    let run = place.ropeway(command).args(flags).args(["source", "target"]);
    Watching::start(run)
}

#[test]
fn new_and_changed_files_and_folders_are_copied() {
    let place = Place::new();
    let (source, target) = (place.join("source"), place.join("target"));
    mixed(&source);
    let running = watching(&place, "copy", &[]);
    same(&source, &target);
    text(&source.join("new"), "new");
    running.follows("a new file", || holds(&target.join("new"), "new"));
    text(&source.join("new"), "changed now");
    running.follows("a change", || holds(&target.join("new"), "changed now"));
    fs::create_dir_all(source.join("x/y/z")).unwrap();
    text(&source.join("x/y/z/leaf"), "leaf");
    running.follows("a new folder", || holds(&target.join("x/y/z/leaf"), "leaf"));
    text(&source.join("x/y/z/later"), "later");
    running.follows("a file in a new folder", || {
        holds(&target.join("x/y/z/later"), "later")
    });
    symlink("leaf", source.join("x/y/z/link")).unwrap();
    running.follows("a link", || target.join("x/y/z/link").is_symlink());
    fs::rename(source.join("x"), source.join("renamed")).unwrap();
    text(&source.join("renamed/y/z/after"), "after");
    running.follows("a renamed folder", || {
        holds(&target.join("renamed/y/z/after"), "after")
    });
    fs::set_permissions(source.join("new"), fs::Permissions::from_mode(0o600)).unwrap();
    running.follows("a mode", || {
        fs::metadata(target.join("new")).is_ok_and(|m| m.permissions().mode() & 0o777 == 0o600)
    });
    // A copy never deletes.
    fs::remove_file(source.join("new")).unwrap();
    text(&source.join("last"), "last");
    running.follows("a file after a removal", || holds(&target.join("last"), "last"));
    assert!(target.join("new").exists());
    running.end(Signal::TERM).assert_code(&[0, 130, 143]);
    support::no_temporaries(&target);
}

#[test]
fn a_watching_mirror_deletes_too() {
    let place = Place::new();
    let (source, target) = (place.join("source"), place.join("target"));
    mixed(&source);
    let running = watching(&place, "mirror", &["--yes"]);
    fs::remove_file(source.join("one byte")).unwrap();
    running.follows("a removal", || !target.join("one byte").exists());
    fs::remove_dir_all(source.join("deep")).unwrap();
    running.follows("the removal of a folder", || !target.join("deep").exists());
    text(&source.join("new"), "new");
    running.follows("a new file", || holds(&target.join("new"), "new"));
    running.end(Signal::INT).assert_code(&[0, 130]);
    content_same(&source, &target);
}

#[test]
fn filters_apply_while_watching() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.join("target"));
    text(&source.join("a"), "a");
    let running = watching(&place, "copy", &["--exclude", "*.tmp"]);
    text(&source.join("skip.tmp"), "x");
    text(&source.join("take"), "x");
    running.follows("a new file", || holds(&target.join("take"), "x"));
    assert!(!target.join("skip.tmp").exists());
    running.end(Signal::TERM);
}

#[test]
fn a_storm_of_changes_is_copied_completely() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.join("target"));
    text(&source.join("a"), "a");
    let running = watching(&place, "copy", &[]);
    // More events than the kernel keeps by default (fs.inotify.max_queued_events: 16,384): each
    // file causes four.
    for folder in 0..12 {
        let folder = source.join(format!("d{folder}"));
        fs::create_dir(&folder).unwrap();
        for number in 0..500 {
            fs::write(folder.join(number.to_string()), b"x").unwrap();
        }
    }
    running.follows_within(Duration::from_secs(60), "everything", || {
        (0..12).all(|folder| {
            fs::read_dir(target.join(format!("d{folder}"))).is_ok_and(|entries| entries.count() == 500)
        })
    });
    running.end(Signal::TERM);
    content_same(&source, &target);
}
