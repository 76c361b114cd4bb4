//! Files that change while they are read, and files that the kernel generates.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::support::{Finished, Place, Run, Served, no_temporaries, set_times, skip, small_files, text};

/// A log that a thread writes to until this is dropped.
struct Log {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl Log {
    /// Makes a file that grows, long enough to change while it is read.
    fn at(path: &Path) -> Self {
        fs::write(path, b"one more line\n".repeat(2 << 20)).unwrap();
        let mut file = File::options().append(true).open(path).unwrap();
        Self::written(path, move || {
            file.write_all(b"one more line\n").unwrap();
            std::thread::sleep(Duration::from_micros(300));
        })
    }

    /// Makes a small file that is overwritten all the time.
    fn small(path: &Path) -> Self {
        fs::write(path, vec![b'x'; 1_000_000]).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        let mut round: u8 = 0;
        Self::written(path, move || {
            round = round.wrapping_add(1);
            file.write_all_at(&[round; 64], u64::from(round) * 3_000).unwrap();
        })
    }

    fn written(path: &Path, mut write: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                write();
            }
        });
        Self {
            path: path.to_owned(),
            stop,
            writer: Some(writer),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.take().unwrap().join().unwrap();
    }
}

/// Makes `source` with files that do not change, and a log that does.
fn ground() -> (Place, Log) {
    let place = Place::new();
    small_files(&place.join("source"), 30, 5);
    let log = Log::at(&place.join("source/d000/log"));
    (place, log)
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Runs until the writer has hit the file in each of the run's attempts. On a busy machine the
/// writer may pause for a moment, which is a valid result too.
fn until_hit(before: impl Fn(), run: impl Fn() -> Run) -> Option<Finished> {
    for _ in 0..20 {
        before();
        let finished = run().run();
        finished.assert_code(&[0, 2]);
        if finished.code() == Some(2) {
            return Some(finished);
        }
    }
    None
}

/// Such a file, e.g. a log or the image of a running machine, was never copied at all.
#[test]
fn a_file_that_always_changes_is_kept_as_a_torn_copy() {
    for flags in [
        &[][..],
        &["--durability", "none"],
        &["--durability", "file"],
        &["--verify"],
        &["--bwlimit", "500M"],
    ] {
        for is_there in [false, true] {
            let (place, log) = ground();
            let copy = || place.copy("source", "target").arg("-T").args(flags);
            let target = place.join("target");
            let prepare = || {
                let _ = fs::remove_dir_all(&target);
                if is_there {
                    place.folder("target/d000");
                }
            };
            let Some(finished) = until_hit(prepare, copy) else {
                skip!("the file did not change in any run");
            };
            let torn = place.join("target/d000/log");
            assert_eq!(
                (finished.number("torn"), finished.number("failed")),
                (1, 1),
                "{finished}"
            );
            assert_eq!(
                (finished.number("files"), finished.number("errors")),
                (30, 1),
                "{finished}"
            );
            assert!(finished.mentions("what is there may be a mixture"), "{finished}");
            assert!(
                fs::read(&torn).unwrap().starts_with(b"one more line\n"),
                "{finished}"
            );
            assert!(modified(&torn) < SystemTime::UNIX_EPOCH + Duration::from_secs(400_000_000));
            // A torn copy is replaced by a newer one.
            let length = fs::metadata(&torn).unwrap().len();
            copy().run().assert_code(&[0, 2]);
            assert!(fs::metadata(&torn).unwrap().len() > length);
            let path = log.path.clone();
            drop(log);
            assert_eq!(copy().ok().number("torn"), 0);
            assert!(fs::read(&torn).unwrap() == fs::read(&path).unwrap());
            assert_eq!(modified(&torn), modified(&path));
            no_temporaries(&target);
        }
    }
}

/// A torn copy is older than any source, so `--update` replaces it.
#[test]
fn a_torn_copy_is_copied_again_whatever_the_flags() {
    let (place, log) = ground();
    let copy = || place.copy("source", "target").arg("-T");
    let clean = || _ = fs::remove_dir_all(place.join("target"));
    if until_hit(clean, copy).is_none() {
        skip!("the file did not change in any run");
    }
    drop(log);
    copy().arg("--update").ok();
    let same = |path: &str| fs::read(place.join(path).join("d000/log")).unwrap();
    assert!(same("source") == same("target"));
}

/// A batch gave its read data, half of it old, the name of the good older copy.
#[test]
fn a_good_older_copy_of_a_file_that_always_changes_stays() {
    for flags in [&[][..], &["--durability", "none"], &["--durability", "file"]] {
        for changing in ["copy", "skip"] {
            let place = Place::new();
            small_files(&place.join("source"), 30, 5);
            let _log = Log::small(&place.join("source/d000/log"));
            let old = place.folder("target/d000").join("log");
            let older = || {
                text(&old, "a good older copy");
                set_times(&old, 1_000_000_000, 0);
            };
            let hit = until_hit(older, || {
                place
                    .copy("source", "target")
                    .args(["-T", "--changing", changing])
                    .args(flags)
            });
            let Some(finished) = hit else {
                skip!("the file did not change in any run");
            };
            assert_eq!(
                (finished.number("torn"), finished.number("errors")),
                (0, 1),
                "{finished}"
            );
            assert_eq!(
                fs::read_to_string(&old).unwrap(),
                "a good older copy",
                "{finished}"
            );
            no_temporaries(&place.join("target"));
        }
    }
}

#[test]
fn a_file_that_always_changes_is_skipped_or_ends_the_run_on_request() {
    let (place, _log) = ground();
    let copy = |flags: &'static [&str]| {
        let place = &place;
        until_hit(
            || _ = fs::remove_dir_all(place.join("target")),
            || place.copy("source", "target").arg("-T").args(flags),
        )
    };
    let Some(finished) = copy(&["--changing", "skip"]) else {
        skip!("the file did not change in any run");
    };
    assert_eq!(
        (finished.number("files"), finished.number("torn")),
        (30, 0),
        "{finished}"
    );
    assert!(!place.join("target/d000/log").exists());
    let ends = (0..20).any(|_| {
        let _ = fs::remove_dir_all(place.join("target"));
        let finished = place
            .copy("source", "target")
            .args(["-T", "--changing", "fail"])
            .run();
        finished.assert_code(&[0, 3]);
        finished.code() == Some(3) && finished.mentions("changed while it was copied")
    });
    assert!(ends);
}

/// A torn copy is not a complete copy.
#[test]
fn a_move_leaves_the_source_of_a_torn_copy() {
    let (place, log) = ground();
    let finished = place
        .ropeway("copy")
        .args(["--json", "--move", "-T", "source", "moved"])
        .run();
    if finished.code() == Some(0) {
        skip!("the file did not change");
    }
    finished.assert_code(&[2]);
    assert!(log.path.exists() && place.join("moved/d000/log").exists());
}

#[test]
fn a_file_that_always_changes_is_a_torn_copy_on_a_share_too() {
    let served = Served::start(&[]);
    let source = served.place.join("source");
    small_files(&source, 30, 5);
    let log = Log::at(&source.join("d000/log"));
    let copy = || {
        served
            .run("copy")
            .args(["--json", "-T", "source", &served.url("target")])
    };
    let torn = served.behind("target/d000/log");
    let clean = || _ = fs::remove_dir_all(served.behind("target"));
    let Some(finished) = until_hit(clean, copy) else {
        skip!("the file did not change in any run");
    };
    assert_eq!(finished.number("torn"), 1);
    assert!(fs::metadata(&torn).unwrap().len() > 0);
    let path = log.path.clone();
    drop(log);
    copy().ok();
    assert!(fs::read(&torn).unwrap() == fs::read(&path).unwrap());
}

/// Files that report a size of zero or of one page were copied empty, or failed as "changed".
#[test]
fn files_that_the_kernel_generates_are_copied_as_they_are_read() {
    let files = [
        "/proc/version",
        "/proc/filesystems",
        "/proc/kallsyms",
        "/sys/kernel/fscaps",
    ];
    let files: Vec<&str> = files
        .into_iter()
        .filter(|path| fs::read(path).is_ok_and(|content| !content.is_empty()))
        .collect();
    let served = Served::start(&[]);
    let place = &served.place;
    for (number, flags) in [
        &[][..],
        &["--verify"],
        &["--durability", "none"],
        &["--bwlimit", "1G"],
        &["--engine", "xp"],
        &["--inplace"],
    ]
    .into_iter()
    .enumerate()
    {
        let target = place.folder(&format!("target{number}"));
        let run = || {
            place
                .ropeway("copy")
                .arg("--json")
                .args(flags)
                .args(&files)
                .arg(&target)
        };
        let finished = run().ok();
        assert_eq!(finished.number("errors"), 0, "{finished}");
        as_read(&files, &target);
        // A second run compares the contents, whatever the sizes are.
        assert_eq!(run().ok().number("bytes_sent"), 0, "{flags:?}");
        for path in &files {
            let copy = target.join(Path::new(path).file_name().unwrap());
            place
                .ropeway("check")
                .args(["-c", "--no-times"])
                .arg(path)
                .arg(&copy)
                .ok();
            text(&copy, "something else");
            place
                .ropeway("check")
                .args(["-c", "--no-times"])
                .arg(path)
                .arg(&copy)
                .exits(7);
        }
    }
    fs::create_dir(served.behind("kernel")).unwrap();
    let finished = served
        .run("copy")
        .arg("--json")
        .args(&files)
        .arg(served.url("kernel"))
        .ok();
    assert_eq!(finished.number("errors"), 0, "{finished}");
    as_read(&files, &served.behind("kernel"));
}

#[track_caller]
fn as_read(files: &[&str], target: &Path) {
    for path in files {
        let copy = target.join(Path::new(path).file_name().unwrap());
        assert!(fs::read(path).unwrap() == fs::read(copy).unwrap(), "{path}");
    }
}
