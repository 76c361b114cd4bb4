//! Sources that change but keep size and modification time: `cp -p` over them, or tools that set
//! the time back.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use rustix::process::Signal;

use crate::support::{Place, file, same, write_at};

const MIB: u64 = 1 << 20;
/// Number of attempts; a copy may finish before it can be killed.
const TRIES: u32 = 5;

/// Runs `change` and then restores the modification time.
fn with_time_restored(path: &Path, change: impl FnOnce()) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    change();
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

/// The beginning of the copy came from one version and the end from another.
fn killed_and_changed(is_new: bool, flags: &[&str], change: impl Fn(&Place)) {
    // On a busy machine the copy may finish before the kill; a later change is another case.
    let is_killed_in_time = (0..TRIES).any(|_| killed_and_changed_once(is_new, flags, &change));
    assert!(is_killed_in_time, "finished {TRIES} times before it was killed");
}

/// Returns whether the copy was killed before it had finished.
fn killed_and_changed_once(is_new: bool, flags: &[&str], change: impl Fn(&Place)) -> bool {
    let place = Place::new();
    let source = place.folder("source");
    file(&source.join("big"), 24 * MIB, 1);
    with_time_restored(&source.join("big"), || {});
    if !is_new {
        place.folder("target");
    }
    if flags.contains(&"--inplace") {
        file(&place.join("target/big"), 24 * MIB, 3);
    }
    let run = || place.copy("source", "target").arg("-T").args(flags);
    let mut running = run().args(["--bwlimit", "6M"]).start();
    // A run resumes only from what is durable.
    running.reach("bytes_durable", 1);
    running.signal(Signal::STOP);
    let is_finished = running.counter("bytes_durable") >= 24 * MIB;
    running.kill();
    if is_finished {
        return false;
    }
    change(&place);
    run().ok();
    same(&source, &place.join("target"));
    true
}

fn overwritten(place: &Place) {
    let big = place.join("source/big");
    with_time_restored(&big, || {
        write_at(&big, 1_000, b"another version, of the same size and time")
    });
}

fn replaced(place: &Place) {
    let (big, other) = (place.join("source/big"), place.join("other"));
    file(&other, 24 * MIB, 2);
    let time: SystemTime = fs::metadata(&big).unwrap().modified().unwrap();
    fs::File::options()
        .write(true)
        .open(&other)
        .unwrap()
        .set_modified(time)
        .unwrap();
    fs::rename(&other, &big).unwrap();
}

#[test]
fn a_source_overwritten_unnoticed_is_not_mixed_with_its_old_version() {
    killed_and_changed(false, &[], overwritten);
    killed_and_changed(true, &[], overwritten);
    killed_and_changed(false, &["--inplace"], overwritten);
}

#[test]
fn a_source_replaced_unnoticed_is_not_mixed_with_its_old_version() {
    killed_and_changed(false, &[], replaced);
    killed_and_changed(true, &[], replaced);
    killed_and_changed(false, &["--inplace"], replaced);
}

/// A change behind the reader whose modification time was restored at once.
#[test]
fn a_source_that_changes_unnoticed_while_it_is_read_is_read_again() {
    for size in [16 * MIB, 72 * MIB] {
        let place = Place::new();
        let source = place.folder("source");
        file(&source.join("big"), size, 1);
        let limit = format!("{}", size / 5);
        let mut running = place
            .copy("source", "target")
            .args(["--bwlimit", &limit, "--cache", "keep"])
            .start();
        running.reach("bytes_sent", size / 4);
        overwritten(&place);
        running.wait().assert_code(&[0]);
        same(&source, &place.join("target"));
    }
}

/// The next run examines a small file of a new folder again, even if the killed run copied it.
#[test]
fn a_small_file_rewritten_after_a_killed_run_is_copied_again() {
    let place = Place::new();
    let source = place.folder("source");
    file(&source.join("big"), 24 * MIB, 1);
    file(&source.join("small"), 5_000, 2);
    with_time_restored(&source.join("small"), || {});
    let run = || {
        place
            .copy("source", "target")
            .args(["-T", "--durability", "none"])
    };
    let mut running = run().args(["--bwlimit", "5M"]).start();
    running.reach("bytes_sent", 10 * MIB);
    running.kill();
    let small = source.join("small");
    with_time_restored(&small, || write_at(&small, 1_000, b"another version"));
    run().ok();
    same(&source, &place.join("target"));
}

/// A target that looks equal may be an older version. A move must not remove the only copy of a
/// version.
#[test]
fn a_move_never_removes_a_version_that_was_not_copied() {
    let place = Place::new();
    let source = place.folder("source");
    file(&source.join("f"), 5_000, 2);
    place.copy("source", "target").arg("-T").ok();
    let f = source.join("f");
    with_time_restored(&f, || write_at(&f, 1_000, b"another version"));
    let content = fs::read(&f).unwrap();
    place.copy("source", "target").args(["-T", "--move"]).ok();
    assert!(!f.exists(), "it was copied");
    assert!(
        fs::read(place.join("target/f")).unwrap() == content,
        "the version that was removed"
    );
}
