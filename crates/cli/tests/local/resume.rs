//! Killed, interrupted or out of space: the same command resumes, and only data that was not
//! durable is sent twice.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{
    self, Finished, Place, Volume, file, mixed, no_temporaries, or_skip, same, small_files, text, write_at,
};
use fastrand::Rng;
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

/// Makes two big files, many small ones and links; returns the total bytes, the hard link's not
/// counted.
fn tree(root: &Path, big: u64, small: u64) -> u64 {
    fs::create_dir_all(root).unwrap();
    file(&root.join("a big one"), big, 1);
    file(&root.join("z big one"), big, 2);
    let bytes = small_files(&root.join("small"), small, 3);
    fs::hard_link(root.join("a big one"), root.join("small/hard link")).unwrap();
    symlink("a big one", root.join("link")).unwrap();
    2 * big + bytes
}

/// Whether a file below `root` has several names.
fn has_link(root: &Path) -> bool {
    support::walk(root)
        .iter()
        .any(|path| path.symlink_metadata().is_ok_and(|found| found.nlink() > 1))
}

/// Checks that the job is finished: nothing of it is left on the target or in the state folder.
#[track_caller]
fn clean(place: &Place, target: &Path) {
    no_temporaries(target);
    no_temporaries(place.path());
    if place.jobs().exists() {
        let left: Vec<_> = support::walk(&place.jobs())
            .into_iter()
            .filter(|path| path.is_file())
            .collect();
        assert!(left.is_empty(), "journals left: {left:?}");
    }
}

#[test]
fn killed_at_random_moments() {
    let place = Place::new();
    let source = place.join("source");
    let total = tree(&source, 20 * MIB, 600);
    let start = Instant::now();
    place.copy("source", "undisturbed").ok();
    let took = start.elapsed();
    let mut rng = Rng::with_seed(2_026);
    let mut killed = 0;
    for number in 0..12 {
        let target = place.join(format!("target {number}"));
        // Every other run is slowed down, so that kills hit big files too. A run that is killed
        // between the end of its job and its own end leaves a finished target; the next run would
        // copy into it, as cp does.
        let limited = number % 2 == 1;
        let run = || {
            let run = place.copy(&source, &target).args(["-T"]);
            if limited {
                run.args(["--bwlimit", "40M"])
            } else {
                run
            }
        };
        let whole = if limited {
            Duration::from_millis(1_200)
        } else {
            took
        };
        let running = run().start();
        std::thread::sleep(whole.mul_f64(rng.u64(..1_000) as f64 / 1_000.0));
        let first = running.kill();
        killed += u32::from(first.signal().is_some());
        if first.code() == Some(0) {
            same(&source, &target);
            continue;
        }
        let linked = if has_link(&target) { 20 * MIB } else { 0 };
        // Each name of a file counts.
        let durable = first.counter("bytes_durable").saturating_sub(linked);
        assert!(durable <= total, "{durable} of {total} were durable: {first}");
        let again = place.copy(&source, &target).args(["-T"]).ok();
        same(&source, &target);
        clean(&place, &target);
        let sent = again.number("bytes_sent");
        assert!(
            sent <= total - durable,
            "{durable} of {total} were durable, {sent} sent again: {again}"
        );
        fs::remove_dir_all(&target).unwrap();
    }
    assert!(killed >= 4, "only {killed} of 12 runs were hit");
}

#[test]
fn killed_again_and_again_until_it_is_done() {
    let place = Place::new();
    let source = place.join("source");
    let total = tree(&source, 12 * MIB, 200);
    let target = place.join("target");
    let mut sent = 0;
    let mut rng = Rng::with_seed(7);
    for round in 0..40 {
        let running = place
            .copy(&source, &target)
            .args(["-T", "--bwlimit", "24M"])
            .start();
        std::thread::sleep(Duration::from_millis(150 + 60 * round + rng.u64(..100)));
        let finished = running.kill();
        sent += finished.counter("bytes_sent");
        if finished.code() == Some(0) {
            same(&source, &target);
            clean(&place, &target);
            assert!(sent > 0 && total > 0);
            return;
        }
    }
    panic!("never done");
}

#[test]
fn a_durable_prefix_of_a_big_file_is_not_sent_again() {
    let place = Place::new();
    file(&place.join("big"), 64 * MIB, 1);
    let mut running = place.copy("big", "copy").args(["--bwlimit", "12M"]).start();
    running.reach("bytes_durable", 24 * MIB);
    let durable = running.counter("bytes_durable");
    running.kill();
    assert!(!place.join("copy").exists(), "whole or not at all");
    let again = place.copy("big", "copy").ok();
    same(&place.join("big"), &place.join("copy"));
    assert!(again.number("bytes_sent") <= 64 * MIB - durable, "{again}");
    clean(&place, place.path());
}

#[test]
fn without_durability_written_data_is_trusted_in_the_same_boot() {
    let place = Place::new();
    file(&place.join("big"), 48 * MIB, 1);
    let mut running = place
        .copy("big", "copy")
        .args(["--bwlimit", "6M", "--durability", "none"])
        .start();
    // 24 MiB at 6 MiB/s take 4 s, and the journal is written at least every 2 s.
    running.reach("bytes_sent", 24 * MIB);
    running.kill();
    let again = place.copy("big", "copy").args(["--durability", "none"]).ok();
    same(&place.join("big"), &place.join("copy"));
    assert!(
        again.number("bytes_sent") <= 40 * MIB,
        "at least 8 MiB were journalled as written: {again}"
    );
}

#[test]
fn inplace_resumes_too() {
    let place = Place::new();
    let source = place.join("source");
    tree(&source, 16 * MIB, 50);
    let mut running = place
        .copy("source", "target")
        .args(["--inplace", "--bwlimit", "8M"])
        .start();
    running.reach("bytes_sent", 12 * MIB);
    running.kill();
    place.copy("source", "target").arg("--inplace").ok();
    same(&source, &place.join("target"));
}

/// Space that was allocated and never written reads as zeroes and is reported as a hole, although the file is
/// not sparse. The old bytes stayed there.
#[test]
fn inplace_overwrites_where_the_source_has_unwritten_extents() {
    let place = Place::new();
    let (source, target) = (place.join("source"), place.join("target"));
    let space = fs::File::create(&source).unwrap();
    if let Err(error) = rustix::fs::fallocate(&space, rustix::fs::FallocateFlags::empty(), 0, 8 * MIB) {
        eprintln!("skipped: no space can be allocated here: {error}");
        return;
    }
    write_at(&source, 3 * MIB, b"written");
    space.sync_all().unwrap();
    file(&target, 8 * MIB, 5);
    place.copy("source", "target").args(["-T", "--inplace"]).ok();
    assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap());
    // A run that is killed leaves a part, which the next one continues.
    file(&target, 8 * MIB, 6);
    let slow = ["-T", "--inplace", "--force", "--bwlimit", "8M"];
    let mut run = place.copy("source", "target").args(slow).start();
    run.reach("bytes_sent", 2 * MIB);
    run.kill();
    place
        .copy("source", "target")
        .args(["-T", "--inplace", "--force"])
        .ok();
    assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap());
}

/// A resumed run writes only into the file that it began, not into a later file of that name.
#[test]
fn inplace_resumes_in_the_same_file_only() {
    for is_replaced in [false, true] {
        let place = Place::new();
        place.folder("source");
        place.folder("target");
        file(&place.join("source/big"), 16 * MIB, 1);
        file(&place.join("target/big"), 16 * MIB, 2);
        let arguments = ["-T", "--inplace"];
        let mut running = place
            .copy("source", "target")
            .args(arguments)
            // So slow that no machine finishes before the kill.
            .args(["--bwlimit", "1M"])
            .start();
        running.reach("bytes_durable", 1);
        running.kill();
        if is_replaced {
            file(&place.join("other"), 16 * MIB, 3);
            fs::rename(place.join("other"), place.join("target/big")).unwrap();
        }
        let again = place.copy("source", "target").args(arguments).ok();
        same(&place.join("source"), &place.join("target"));
        assert_eq!(again.number("bytes_resumed") > 0, !is_replaced, "{again}");
    }
}

#[test]
fn an_unfinished_target_is_resumed_and_a_finished_one_copied_into() {
    let place = Place::new();
    let source = place.join("source");
    tree(&source, 12 * MIB, 100);
    // To a new name: the second run resumes in it.
    let mut running = place.copy("source", "target").args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 8 * MIB);
    running.kill();
    place.copy("source", "target").ok();
    same(&source, &place.join("target"));
    // Into a folder: the second run copies into it too.
    place.folder("into");
    let mut running = place.copy("source", "into").args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 8 * MIB);
    running.kill();
    place.copy("source", "into").ok();
    same(&source, &place.join("into/source"));
    assert_eq!(fs::read_dir(place.join("into")).unwrap().count(), 1);
    // Another source to an unfinished target is another job.
    mixed(&place.join("other"));
    let mut running = place.copy("source", "third").args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 8 * MIB);
    running.kill();
    place.folder("third");
    place.copy("other", "third").ok();
    same(&place.join("other"), &place.join("third/other"));
}

#[test]
fn a_source_that_changed_in_between_is_copied_again() {
    let place = Place::new();
    file(&place.join("big"), 32 * MIB, 1);
    let mut running = place.copy("big", "copy").args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 24 * MIB);
    running.kill();
    support::write_at(&place.join("big"), 1_000, b"changed near the start");
    place.copy("big", "copy").ok();
    same(&place.join("big"), &place.join("copy"));
}

#[test]
fn lost_temporaries_and_a_broken_journal_do_no_harm() {
    let place = Place::new();
    let source = place.join("source");
    tree(&source, 12 * MIB, 100);
    let begin = |target: &Path| {
        let mut running = place.copy(&source, target).args(["--bwlimit", "8M"]).start();
        running.reach("bytes_sent", 16 * MIB);
        running.kill();
    };
    let target = place.join("lost");
    begin(&target);
    let temporaries: Vec<_> = support::walk(place.path())
        .into_iter()
        .filter(|path| path.is_file() && path.to_str().unwrap().contains("/.ropeway-"))
        .collect();
    for path in temporaries {
        fs::remove_file(path).unwrap();
    }
    place.copy(&source, &target).arg("-T").ok();
    same(&source, &target);
    for damage in ["truncated", "garbage", "gone"] {
        let target = place.join(damage);
        begin(&target);
        for journal in support::walk(&place.jobs())
            .into_iter()
            .filter(|path| path.is_file())
        {
            let length = fs::metadata(&journal).unwrap().len();
            match damage {
                "truncated" => fs::File::options()
                    .write(true)
                    .open(&journal)
                    .unwrap()
                    .set_len(length / 2)
                    .unwrap(),
                "garbage" => file(&journal, length, 99),
                _ => fs::remove_file(&journal).unwrap(),
            }
        }
        place.copy(&source, &target).arg("-T").ok();
        same(&source, &target);
    }
}

#[test]
fn two_runs_of_one_job_at_once_do_no_harm() {
    let place = Place::new();
    let source = place.join("source");
    tree(&source, 8 * MIB, 200);
    let first = place
        .copy(&source, place.join("target"))
        .args(["-T", "--bwlimit", "8M"])
        .start();
    std::thread::sleep(Duration::from_millis(400));
    let second = place.copy(&source, place.join("target")).arg("-T").run();
    let first = first.wait();
    assert!(
        [&first, &second].iter().any(|run| run.code() == Some(0)),
        "one of them must do it: {first}\n{second}"
    );
    place.copy(&source, place.join("target")).arg("-T").ok();
    same(&source, &place.join("target"));
}

fn interrupted_by(signal: Signal) -> Finished {
    let place = Place::new();
    let source = place.join("source");
    let total = tree(&source, 16 * MIB, 100);
    let mut running = place.copy("source", "target").args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 12 * MIB);
    running.signal(signal);
    let finished = running.wait();
    let durable = finished.counter("bytes_durable");
    let again = place.copy("source", "target").ok();
    same(&source, &place.join("target"));
    clean(&place, &place.join("target"));
    assert!(again.number("bytes_sent") <= total - durable, "{again}");
    finished
}

#[test]
fn an_interrupted_run_says_how_to_resume() {
    let finished = interrupted_by(Signal::INT);
    finished.assert_code(&[130]);
    assert!(
        finished.mentions("hint") || finished.mentions("again"),
        "how to resume: {finished}"
    );
    interrupted_by(Signal::TERM).assert_code(&[130, 143]);
}

#[test]
fn an_interrupt_before_anything_happened_ends_at_once() {
    let place = Place::new();
    support::small_files(&place.join("source"), 500, 1);
    let mut running = place
        .copy("source", "target")
        .args(["--slow-target", "op=50ms"])
        .start();
    running.catches(Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::INT);
    running.wait().assert_code(&[130]);
    place.copy("source", "target").ok();
    same(&place.join("source"), &place.join("target"));
}

#[test]
fn a_full_target_is_reported_and_resumed_when_there_is_space() {
    let volume = or_skip!(Volume::ext4(96));
    let place = Place::new();
    let source = place.join("source");
    tree(&source, 20 * MIB, 400);
    let filler = volume.join("filler");
    file(&filler, volume.free() - 30 * MIB, 5);
    let full = place.copy(&source, volume.join("target")).exits(4);
    assert!(full.mentions("space") || full.mentions("room"), "{full}");
    fs::remove_file(&filler).unwrap();
    place.copy(&source, volume.join("target")).arg("-T").ok();
    same(&source, &volume.join("target"));
    clean(&place, &volume.join("target"));
}

#[test]
fn a_target_that_fills_up_meanwhile_is_reported_and_resumed() {
    let volume = or_skip!(Volume::ext4(96));
    let place = Place::new();
    let source = place.join("source");
    tree(&source, 20 * MIB, 300);
    let target = volume.join("target");
    let mut running = place.copy(&source, &target).args(["--bwlimit", "10M"]).start();
    running.reach("bytes_sent", 8 * MIB);
    // Another process fills the volume; its last write may be short.
    let filler = fs::File::create(volume.join("filler")).unwrap();
    let _ = std::io::copy(
        &mut std::io::Read::take(std::io::repeat(7), 200 * MIB),
        &mut &filler,
    );
    drop(filler);
    let full = running.wait();
    full.assert_code(&[4]);
    let durable = full.counter("bytes_durable");
    fs::remove_file(volume.join("filler")).unwrap();
    let again = place.copy(&source, &target).ok();
    same(&source, &target);
    clean(&place, &target);
    let total = again.number("bytes");
    assert!(again.number("bytes_sent") <= total - durable, "{again}");
}

#[test]
fn many_small_files_fill_the_target() {
    let volume = or_skip!(Volume::ext4(16));
    let place = Place::new();
    let source = place.join("source");
    small_files(&source, 3_500, 4);
    let target = volume.join("target");
    place.copy(&source, &target).exits(4);
    // Half of the source is removed, so the rest fits once the unfinished run's share of it is
    // gone.
    for number in 15..35 {
        fs::remove_dir_all(source.join(format!("d{number:03}"))).unwrap();
    }
    let again = place
        .ropeway("mirror")
        .args(["--json", "--yes"])
        .arg(&source)
        .arg(&target)
        .run();
    if again.code() != Some(0) {
        // The first run's unfinished files may still take up the space.
        println!("mirror after a full target: {again}");
    }
    again.assert_code(&[0]);
    same(&source, &target);
}

#[test]
fn several_sources_resume_together() {
    let place = Place::new();
    for name in ["one", "two"] {
        tree(&place.join(name), 8 * MIB, 50);
    }
    text(&place.join("three"), "3");
    place.folder("into");
    let run = || {
        place
            .ropeway("copy")
            .args(["--json", "one", "two", "three", "into"])
    };
    let mut running = run().args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 12 * MIB);
    let durable = running.counter("bytes_durable");
    running.kill();
    let again = run().ok();
    for name in ["one", "two", "three"] {
        same(&place.join(name), &place.join("into").join(name));
    }
    assert!(
        again.number("bytes_sent") <= again.number("bytes") - durable,
        "{again}"
    );
    clean(&place, &place.join("into"));
}
