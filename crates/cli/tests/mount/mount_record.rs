//! `ropeway mount --record` and `ropeway boost learn` with the real binary and kernel.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{self, Finished, Mounted, Place, Running, Served, can_mount, detach, or_skip};
use serde_json::Value;

/// Files that the program of these tests opens, one after the other.
const FILES: usize = 10;

/// A share that is mounted as often as wanted.
struct Bench {
    served: Served,
    running: Option<Running>,
}

impl Bench {
    fn new() -> Result<Self, String> {
        can_mount()?;
        let served = Served::start(&[]);
        fs::create_dir(served.place.join("mnt")).unwrap();
        let mut content = vec![0; 200_000];
        fastrand::Rng::with_seed(1).fill(&mut content);
        // A program that reads a line reads all of it.
        content
            .iter_mut()
            .filter(|byte| **byte == b'\n')
            .for_each(|byte| *byte = 0);
        for file in 0..FILES {
            content[0] = file as u8;
            fs::write(served.behind(&format!("file{}", file * 7 % FILES)), &content).unwrap();
        }
        // What changed a moment ago is not cached for a while.
        std::thread::sleep(Duration::from_millis(2500));
        Ok(Self {
            served,
            running: None,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.served.place.join("mnt").join(name)
    }

    fn boost(&self, arguments: &[&str]) -> Finished {
        self.served.place.ropeway("boost").args(arguments).run()
    }

    fn mount(&mut self, flags: &[&str]) {
        let run = self.served.run("mount").arg("--foreground").args(flags);
        let mut running = run.args([self.served.url(""), "mnt".to_owned()]).start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", running.stdout(), running.stderr());
        self.running = Some(running);
    }

    fn unmount(&mut self) -> Finished {
        support::unmount(&self.at(""));
        let finished = self.running.take().unwrap().wait();
        finished.assert_code(&[0]);
        finished
    }

    /// Runs a program that opens all files in order, and reads the beginning of each.
    fn program(&self) {
        let script = "for file in \"$@\"; do read -r line <\"$file\"; sleep 0.15; done; true";
        let files = (0..FILES).map(|file| self.at(&format!("file{file}")));
        let status = Command::new("sh")
            .args(["-c", script, "sh"])
            .args(files)
            .status()
            .unwrap();
        assert!(status.success());
    }

    fn status(&self) -> Value {
        let finished = self.boost(&["status", "--json", "cache"]);
        finished.assert_code(&[0]);
        serde_json::from_str(finished.out.trim()).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.at(""));
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Runs the program on a day with the cache. Returns hits and misses.
fn a_day(bench: &mut Bench) -> (u64, u64) {
    bench.mount(&["--boost", "cache"]);
    bench.program();
    std::thread::sleep(Duration::from_millis(1200));
    let status = bench.status();
    bench.unmount();
    let hits = number(&status["memory_hits"]) + number(&status["device_hits"]);
    (hits, number(&status["misses"]))
}

#[test]
fn a_recorded_day_teaches_a_new_cache_what_the_next_day_asks_for() {
    let mut bench = or_skip!(Bench::new());
    bench.mount(&["--record", "day"]);
    (0..3).for_each(|_| bench.program());
    let said = bench.unmount().out;
    assert!(said.contains("recorded 30 opens and "), "{said}");
    let day = bench.served.place.join("day");
    let mode = fs::metadata(&day).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "names are nobody else's business");

    // Without the recording, a new cache knows nothing.
    bench
        .boost(&["create", "cache", "--size", "128M"])
        .assert_code(&[0]);
    let (hits, without) = a_day(&mut bench);
    assert!(hits == 0 && without >= 10, "{hits} hits, {without} misses");
    bench.boost(&["clear", "cache"]).assert_code(&[0]);

    let learned = bench.boost(&["learn", "cache", "day"]);
    learned.assert_code(&[0]);
    assert!(learned.out.contains("30 opens and "), "{}", learned.out);
    let of = "of 10 files by 1 program in smb://";
    assert!(learned.out.contains(of), "{}", learned.out);

    // What is usual at this time is there before any program asks for it.
    bench.mount(&["--boost", "cache"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while number(&bench.status()["predict"]["files_fetched"]) < 10 {
        assert!(Instant::now() < deadline, "{}", bench.status());
        std::thread::sleep(Duration::from_millis(100));
    }
    let shown = bench.boost(&["status", "--predict", "cache"]).out;
    assert!(shown.contains("the beginning of file3"), "{shown}");
    assert_eq!(number(&bench.status()["predict"]["requests"]), 0);
    bench.unmount();
    let (hits, misses) = a_day(&mut bench);
    assert!(hits >= 15, "{hits} hits, {misses} misses");
    assert!(misses * 2 < without, "{misses} misses instead of {without}");

    let finished = bench
        .served
        .place
        .ropeway("lab")
        .args(["predict", "day", "--json"]);
    let finished = finished.args(["--delay", "2"]).run();
    finished.assert_code(&[0]);
    let line: Value = serde_json::from_str(finished.out.trim()).unwrap();
    assert!(number(&line["footprint_blocks"]) >= 10, "{line}");
}

#[test]
fn what_cannot_be_learned_is_refused_with_one_line() {
    let mut bench = or_skip!(Bench::new());
    bench
        .boost(&["create", "cache", "--size", "128M"])
        .assert_code(&[0]);
    let place = bench.served.place.path().to_owned();
    let learn = |bench: &Bench, file: &str, code: i32, what: &str| {
        let finished = bench.boost(&["learn", "cache", file]);
        finished.assert_code(&[code]);
        assert!(finished.err.contains(what), "{}", finished.err);
    };
    learn(&bench, "missing", 3, "cannot read missing");
    fs::write(place.join("text"), "text\n").unwrap();
    learn(&bench, "text", 3, "text: not a recording");
    bench.mount(&["--record", "idle"]);
    bench.unmount();
    learn(&bench, "idle", 3, "nothing was opened or read");
    assert!(!place.join("cache/learned").exists());

    bench.mount(&["--record", "day"]);
    bench.program();
    bench.unmount();
    let damaged = fs::read_to_string(place.join("day")).unwrap() + "open\t1\n";
    fs::write(place.join("damaged"), damaged).unwrap();
    learn(&bench, "damaged", 3, ": too few fields");
    let finished = bench.boost(&["learn", "nothing", "day"]);
    finished.assert_code(&[4]);
    assert!(
        finished.err.contains("there is no folder nothing"),
        "{}",
        finished.err
    );
    bench.mount(&["--boost", "cache"]);
    learn(&bench, "day", 8, "in use by process");
    bench.unmount();
    learn_is_kept(&bench, &place);
}

fn learn_is_kept(bench: &Bench, place: &Path) {
    bench.boost(&["learn", "cache", "day"]).assert_code(&[0]);
    assert!(place.join("cache/learned").exists());
    bench.boost(&["clear", "--learned", "cache"]).assert_code(&[0]);
    assert!(!place.join("cache/learned").exists());
}

/// Waits until a file contains something.
fn until(path: &Path, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string(path).is_ok_and(|text| text.contains(what)) {
        assert!(Instant::now() < deadline, "{}", path.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_recording_survives_a_kill_and_is_continued() {
    let place = Place::new();
    fs::create_dir(place.join("source")).unwrap();
    fs::write(place.join("source/file"), vec![7; 100_000]).unwrap();
    let mut mounted = or_skip!(Mounted::of(place, &["--record", "day"]));
    let day = mounted.place.join("day");
    fs::read(mounted.at("file")).unwrap();
    until(&day, "\tfile\n");
    let second = mounted.place.ropeway("mount").arg("--foreground");
    fs::create_dir(mounted.place.join("mnt2")).unwrap();
    let second = second.args(["--record", "day", "source", "mnt2"]).run();
    second.assert_code(&[8]);
    assert!(
        second.err.contains("another process records in day"),
        "{}",
        second.err
    );
    mounted.running.take().unwrap().kill();
    detach(&mounted.at(""));

    // The last line was not written whole.
    let before = fs::read_to_string(&day).unwrap();
    fs::write(&day, before.clone() + "read\t1\t2").unwrap();
    let place = std::mem::replace(&mut mounted.place, Place::new());
    drop(mounted);
    let mut mounted = Mounted::of(place, &["-o", "record=day"]).unwrap();
    fs::read(mounted.at("file")).unwrap();
    let said = mounted.unmount().out;
    assert!(said.contains("recorded 1 open and "), "{said}");
    let whole = fs::read_to_string(&day).unwrap();
    assert!(whole.starts_with(&before));
    assert_eq!(whole.matches("ropeway-recording\t1\t").count(), 2);
    assert_eq!(whole.matches("\nopen\t").count(), 2);
}

#[test]
fn other_files_are_not_recorded_in() {
    or_skip!(can_mount());
    let place = Place::new();
    fs::create_dir(place.join("source")).unwrap();
    fs::create_dir(place.join("mnt")).unwrap();
    fs::write(place.join("thesis"), "Chapter 1\n").unwrap();
    fs::write(place.join("half"), "ropeway-recording\t1\t").unwrap();
    let record = |file: &str, code: i32, what: &str| {
        let run = place.ropeway("mount").args(["--foreground", "--record", file]);
        let finished = run.args(["source", "mnt"]).run();
        finished.assert_code(&[code]);
        assert!(finished.err.contains(what), "{file}: {}", finished.err);
    };
    record("thesis", 8, "thesis is not a recording; nothing was changed");
    record("half", 8, "half is not a recording; nothing was changed");
    record("source", 4, "cannot record in source");
    record("/dev/null", 8, "is not a recording");
    record("missing/day", 4, "cannot record in missing/day");
    record("mnt/day", 8, "is inside the mount");
    assert_eq!(fs::read_to_string(place.join("thesis")).unwrap(), "Chapter 1\n");
    // A mount that does not come about leaves no file.
    let run = place.ropeway("mount").args(["--foreground", "--record", "day"]);
    let finished = run.args(["nothing", "mnt"]).run();
    assert_ne!(finished.code(), Some(0));
    assert!(!place.join("day").exists());
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_mount() {
    let place = Place::new();
    let small = place.join("small");
    fs::create_dir(&small).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"])
        .arg(&small)
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no tmpfs");
        return;
    }
    fs::create_dir(place.join("source")).unwrap();
    for file in 0..50 {
        fs::write(place.join(format!("source/{file}")), "text").unwrap();
    }
    let mut mounted = or_skip!(Mounted::of(place, &["--record", "small/day"]));
    for _ in 0..20 {
        for file in 0..50 {
            assert_eq!(fs::read(mounted.at(file.to_string())).unwrap(), b"text");
        }
    }
    let running = mounted.running.as_mut().unwrap();
    let is_said = running.until(|running| {
        running
            .stdout()
            .contains("the recording ends here, the mount goes on")
    });
    assert!(is_said, "{}", running.stdout());
    assert_eq!(fs::read(mounted.at("7")).unwrap(), b"text");
    let said = mounted.unmount().out;
    assert_eq!(said.matches("the recording ends here").count(), 1, "{said}");
    assert!(said.contains("No space left"), "{said}");
    let text = fs::read_to_string(small.join("day")).unwrap();
    assert!(text.starts_with("ropeway-recording\t1\t") && text.contains("\nopen\t"));
    let unmounted = Command::new("umount").arg(&small).status().unwrap();
    assert!(unmounted.success());
}
