//! `ropeway mount --boost` with the real binary and kernel, over our own server.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{self, Running, Served, can_mount, detach, or_skip};
use serde_json::Value;

/// A server, a cache, and a share that is mounted as often as wanted.
struct Bench {
    served: Served,
    running: Option<Running>,
}

impl Bench {
    fn new() -> Result<Self, String> {
        Self::with(&[])
    }

    fn with(flags: &[&str]) -> Result<Self, String> {
        can_mount()?;
        let served = Served::start(flags);
        fs::create_dir(served.place.join("mnt")).unwrap();
        fs::create_dir(served.place.join("mnt2")).unwrap();
        let bench = Self {
            served,
            running: None,
        };
        let made = bench.boost(&["create", "--size", "128M"]).run();
        made.assert_code(&[0]);
        Ok(bench)
    }

    fn cache(&self) -> PathBuf {
        self.served.place.join("cache")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.served.place.join("mnt").join(name)
    }

    fn boost(&self, arguments: &[&str]) -> support::Run {
        let run = self.served.place.ropeway("boost");
        run.args(arguments).arg("cache")
    }

    fn start(&self, mountpoint: &str, flags: &[&str]) -> support::Run {
        let run = self.served.run("mount");
        let run = run.args(["--foreground", "--boost", "cache"]).args(flags);
        run.args([self.served.url(""), mountpoint.to_owned()])
    }

    fn mount(&mut self, flags: &[&str]) {
        let mut running = self.start("mnt", flags).start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", running.stdout(), running.stderr());
        self.running = Some(running);
    }

    fn unmount(&mut self) {
        support::unmount(&self.at(""));
        self.running.take().unwrap().wait().assert_code(&[0]);
    }

    /// Makes a file on the server that cannot be compressed.
    fn noise(&self, name: &str, length: usize) -> Vec<u8> {
        let mut content = vec![0; length];
        fastrand::Rng::with_seed(length as u64).fill(&mut content);
        let path = self.served.behind(name);
        fs::write(&path, &content).unwrap();
        // What is read within two seconds of its change is not cached for a while.
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        while written.elapsed().unwrap_or_default() < Duration::from_millis(2500) {
            std::thread::sleep(Duration::from_millis(50));
        }
        content
    }

    fn status(&self) -> Value {
        let finished = self.boost(&["status", "--json"]).run();
        finished.assert_code(&[0]);
        serde_json::from_str(finished.out.trim()).unwrap()
    }

    /// Reads a file past the kernel's cache.
    fn read(&self, name: &str) -> Vec<u8> {
        let file = fs::File::open(self.at(name)).unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut content = vec![0; length];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    /// Reads until the status says what is waited for: files that changed a moment ago are not
    /// cached, and the status is up to a second old.
    fn read_until(&self, name: &str, expected: &[u8], is_there: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(self.read(name) == expected, "{name}");
            let status = self.status();
            if is_there(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "{status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.at(""));
        detach(&self.served.place.join("mnt2"));
    }
}

fn hits(status: &Value) -> u64 {
    ["memory_hits", "device_hits"]
        .iter()
        .filter_map(|name| status[name].as_u64())
        .sum()
}

fn is_written(status: &Value) -> bool {
    status["bytes_written"]
        .as_u64()
        .is_some_and(|bytes| bytes > 1_000_000)
}

#[test]
fn a_cache_is_warm_after_kill_and_never_stale() {
    let mut bench = or_skip!(Bench::new());
    let expected = bench.noise("file", 3_000_000);
    bench.mount(&[]);
    bench.read_until("file", &expected, |status| {
        hits(status) >= 40 && is_written(status)
    });
    let second = bench.start("mnt2", &[]).run();
    second.assert_code(&[8]);
    let said = format!("{}{}", second.out, second.err);
    assert!(said.contains("in use by process"), "{said}");
    bench.boost(&["clear"]).run().assert_code(&[8]);
    bench.running.take().unwrap().kill();
    detach(&bench.at(""));

    bench.mount(&[]);
    bench.read_until("file", &expected, |status| {
        status["device_hits"].as_u64().is_some_and(|hits| hits >= 40)
    });

    // Another program changes the content and restores size and time of the last write.
    let behind = fs::File::options()
        .write(true)
        .open(bench.served.behind("file"))
        .unwrap();
    let time: SystemTime = behind.metadata().unwrap().modified().unwrap();
    let mut changed = expected.clone();
    for at in (0..changed.len()).step_by(50_000) {
        changed[at] ^= 0xFF;
    }
    behind.write_all_at(&changed, 0).unwrap();
    behind.set_modified(time).unwrap();
    drop(behind);
    // Attributes are kept for a second; later there is only one answer.
    let deadline = Instant::now() + Duration::from_secs(30);
    while bench.read("file") != changed {
        assert!(Instant::now() < deadline, "the change is not seen");
        std::thread::sleep(Duration::from_millis(50));
    }

    // A change through the mount is seen at once.
    let mut own = changed;
    own[70_000..70_010].copy_from_slice(b"own change");
    let file = fs::File::options().write(true).open(bench.at("file")).unwrap();
    file.write_all_at(b"own change", 70_000).unwrap();
    assert!(bench.read("file") == own);
    drop(file);
    assert!(bench.read("file") == own);
    bench.unmount();
    let status = bench.status();
    assert_eq!(status["in_use"], Value::Bool(false), "{status}");
    bench.boost(&["clear"]).run().assert_code(&[0]);
}

/// What is in the cache is opened without a question while the server's lease on the folder says that
/// its attributes are true.
#[test]
fn a_second_reading_asks_the_server_for_nothing() {
    let mut bench = or_skip!(Bench::with(&["--audit", "audit"]));
    let names: Vec<String> = (0..5).map(|at| format!("file{at}")).collect();
    let contents: Vec<Vec<u8>> = names.iter().map(|name| bench.noise(name, 700_000)).collect();
    let opens = |bench: &Bench| {
        let audit = fs::read_to_string(bench.served.place.join("audit")).unwrap_or_default();
        audit.lines().filter(|line| line.contains("file")).count()
    };
    bench.mount(&[]);
    let read_all = |bench: &Bench| {
        assert!(fs::read_dir(bench.at("")).unwrap().count() >= names.len());
        for (name, content) in names.iter().zip(&contents) {
            assert!(bench.read(name) == *content, "{name}");
        }
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let before = opens(&bench);
        read_all(&bench);
        // The log is written a moment later.
        std::thread::sleep(Duration::from_millis(500));
        if before > 0 && opens(&bench) == before {
            break;
        }
        assert!(Instant::now() < deadline, "files are opened on the server");
    }
    // Another program changes a file, which is then read from the server.
    let mut changed = contents[3].clone();
    changed[100] ^= 0xFF;
    fs::write(bench.served.behind(&names[3]), &changed).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while bench.read(&names[3]) != changed {
        assert!(Instant::now() < deadline, "the change is not seen");
        std::thread::sleep(Duration::from_millis(50));
    }
    // A file that is open stays readable without its name, whether the cache has it or not.
    let file = fs::File::open(bench.at(&names[4])).unwrap();
    fs::remove_file(bench.at(&names[4])).unwrap();
    let mut content = vec![0; contents[4].len()];
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content == contents[4]);
    drop(file);
    bench.unmount();
}

#[test]
fn a_device_that_breaks_while_mounted_harms_nothing() {
    let mut bench = or_skip!(Bench::new());
    let expected = bench.noise("file", 3_000_000);
    bench.mount(&[]);
    bench.read_until("file", &expected, is_written);
    bench.unmount();
    bench.mount(&[]);
    let blocks = fs::File::options()
        .write(true)
        .open(bench.cache().join("blocks"))
        .unwrap();
    blocks.set_len(8192).unwrap();
    bench.read_until("file", &expected, |status| status["is_on"] == Value::Bool(false));
    fs::remove_dir_all(bench.cache()).unwrap();
    assert!(bench.read("file") == expected);
    bench.unmount();
}

#[test]
fn a_mount_right_after_umount_waits_for_its_cache() {
    let mut bench = or_skip!(Bench::new());
    let expected = bench.noise("file", 300_000);
    bench.mount(&[]);
    // A mount point in use is what is wrong, not the cache that it uses.
    let finished = bench.start("mnt", &[]).run();
    finished.assert_code(&[8]);
    let said = format!("{}{}", finished.out, finished.err);
    assert!(said.contains("something is mounted there already"), "{said}");
    for _ in 0..3 {
        let ending = bench.running.take().unwrap();
        support::unmount(&bench.at(""));
        bench.mount(&[]);
        assert!(bench.read("file") == expected);
        ending.wait().assert_code(&[0]);
    }
    bench.unmount();
}

#[test]
fn unusable_folders_are_refused_in_one_line() {
    let bench = or_skip!(Bench::new());
    let refused = |code: i32, part: &str| {
        let finished = bench.start("mnt", &[]).run();
        finished.assert_code(&[code]);
        let said = format!("{}{}", finished.out, finished.err);
        assert!(said.contains(part), "{said}");
    };
    fs::set_permissions(bench.cache().join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(5, "others may read the key");
    fs::set_permissions(bench.cache().join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let whole = fs::read(bench.cache().join("blocks")).unwrap();
    let foreign = vec![0x55; 1 << 20];
    fs::write(bench.cache().join("blocks"), &foreign).unwrap();
    refused(8, "has other files (blocks)");
    assert!(fs::read(bench.cache().join("blocks")).unwrap() == foreign);
    fs::write(bench.cache().join("blocks"), &whole).unwrap();
    fs::remove_dir_all(bench.cache()).unwrap();
    fs::create_dir(bench.cache()).unwrap();
    fs::write(bench.cache().join("letter"), "dear").unwrap();
    refused(8, "has other files (letter)");
    let finished = bench.boost(&["create", "--size", "128M"]).run();
    finished.assert_code(&[8]);
    assert_eq!(fs::read_dir(bench.cache()).unwrap().count(), 1);
    fs::remove_file(bench.cache().join("letter")).unwrap();
    let finished = bench.boost(&["create", "--size", "900T"]).run();
    finished.assert_code(&[4]);
    assert!(!bench.cache().join("blocks").exists());
}

#[test]
fn a_lost_key_is_an_empty_cache_and_pinned_files_are_fetched() {
    let mut bench = or_skip!(Bench::new());
    fs::create_dir(bench.served.behind("album")).unwrap();
    bench.noise("album/one", 500_000);
    bench.noise("other", 500_000);
    fs::write(bench.cache().join("key"), "short").unwrap();
    bench.mount(&["--pin", "album"]);
    assert!(bench.running.as_ref().unwrap().stdout().contains("key was lost"));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = bench.status();
        let pinned = &status["pinned"];
        assert!(
            pinned["files"].as_u64().is_none_or(|files| files <= 1),
            "{status}"
        );
        if pinned["files_done"] == 1 && pinned["bytes_done"] == 500_000 {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
    bench.unmount();
}
