//! `--watch`: after the first pass, changes follow.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use support::{Place, Running, content_same, mixed, same, text, wait_until};

/// PRODUCT: 2 s. Generous, since a test machine may be busy.
const FOLLOWS: Duration = Duration::from_secs(10);

/// Starts and waits for the end of the first pass.
fn watching(place: &Place, command: &str, flags: &[&str]) -> Running {
    let mut running = place
        .ropeway(command)
        .args(["--json", "--watch"])
        .args(flags)
        .args(["source", "target"])
        .start();
    let there = |running: &Running| running.stdout().lines().any(|line| line.contains("\"watching\""));
    assert!(
        running.until(there),
        "it never watches: {}\n{}",
        running.stdout(),
        running.stderr()
    );
    running
}

#[track_caller]
fn follows(running: &Running, what: &str, done: impl Fn() -> bool) {
    assert!(
        wait_until(FOLLOWS, done),
        "{what} did not follow: {}\n{}",
        running.stdout(),
        running.stderr()
    );
}

fn holds(path: &Path, content: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|found| found == content)
}

#[test]
fn new_and_changed_files_and_folders_follow() {
    let place = Place::new();
    let (source, target) = (place.join("source"), place.join("target"));
    mixed(&source);
    let running = watching(&place, "copy", &[]);
    same(&source, &target);
    text(&source.join("new"), "new");
    follows(&running, "a new file", || holds(&target.join("new"), "new"));
    text(&source.join("new"), "changed now");
    follows(&running, "a change", || holds(&target.join("new"), "changed now"));
    fs::create_dir_all(source.join("x/y/z")).unwrap();
    text(&source.join("x/y/z/leaf"), "leaf");
    follows(&running, "a new folder", || {
        holds(&target.join("x/y/z/leaf"), "leaf")
    });
    text(&source.join("x/y/z/later"), "later");
    follows(&running, "a file in a new folder", || {
        holds(&target.join("x/y/z/later"), "later")
    });
    symlink("leaf", source.join("x/y/z/link")).unwrap();
    follows(&running, "a link", || target.join("x/y/z/link").is_symlink());
    fs::rename(source.join("x"), source.join("renamed")).unwrap();
    text(&source.join("renamed/y/z/after"), "after");
    follows(&running, "a renamed folder", || {
        holds(&target.join("renamed/y/z/after"), "after")
    });
    fs::set_permissions(source.join("new"), fs::Permissions::from_mode(0o600)).unwrap();
    follows(&running, "a mode", || {
        fs::metadata(target.join("new")).is_ok_and(|m| m.permissions().mode() & 0o777 == 0o600)
    });
    // A copy never deletes.
    fs::remove_file(source.join("new")).unwrap();
    text(&source.join("last"), "last");
    follows(&running, "a file after a removal", || {
        holds(&target.join("last"), "last")
    });
    assert!(target.join("new").exists());
    running.signal(Signal::TERM);
    running.wait().assert_code(&[0, 130, 143]);
    support::no_temporaries(&target);
}

#[test]
fn a_watching_mirror_deletes_too() {
    let place = Place::new();
    let (source, target) = (place.join("source"), place.join("target"));
    mixed(&source);
    let running = watching(&place, "mirror", &["--yes"]);
    fs::remove_file(source.join("one byte")).unwrap();
    follows(&running, "a removal", || !target.join("one byte").exists());
    fs::remove_dir_all(source.join("deep")).unwrap();
    follows(&running, "the removal of a folder", || {
        !target.join("deep").exists()
    });
    text(&source.join("new"), "new");
    follows(&running, "a new file", || holds(&target.join("new"), "new"));
    running.signal(Signal::INT);
    running.wait().assert_code(&[0, 130]);
    content_same(&source, &target);
}

#[test]
fn filters_hold_while_watching() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.join("target"));
    text(&source.join("a"), "a");
    let running = watching(&place, "copy", &["--exclude", "*.tmp"]);
    text(&source.join("skip.tmp"), "x");
    text(&source.join("take"), "x");
    follows(&running, "a new file", || holds(&target.join("take"), "x"));
    assert!(!target.join("skip.tmp").exists());
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn a_storm_of_changes_is_followed_whole() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.join("target"));
    text(&source.join("a"), "a");
    let running = watching(&place, "copy", &[]);
    // More events than the kernel keeps by default (fs.inotify.max_queued_events: 16,384): each file gives four.
    for folder in 0..12 {
        let folder = source.join(format!("d{folder}"));
        fs::create_dir(&folder).unwrap();
        for number in 0..500 {
            fs::write(folder.join(number.to_string()), b"x").unwrap();
        }
    }
    let all = wait_until(Duration::from_secs(60), || {
        (0..12).all(|folder| {
            fs::read_dir(target.join(format!("d{folder}"))).is_ok_and(|entries| entries.count() == 500)
        })
    });
    assert!(all, "not everything followed: {}", running.stderr());
    running.signal(Signal::TERM);
    running.wait();
    content_same(&source, &target);
}
