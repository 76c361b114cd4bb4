//! After memory hogs: what they threw out of the kernel's memory of a mount comes back, with the real
//! binary, kernel and pressure, in a group with little memory (cgroup, version 1 or 2).

use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{self, Run, Running, Served, can_mount, detach, or_skip, wait_until};
use serde_json::Value;

/// Memory of the group, and the files of the working set.
const LIMIT: u64 = 256 << 20;
const FILES: usize = 24;
const FILE_BYTES: usize = 1_000_000;
/// Blocks of the cache that they fill.
const BLOCKS: u64 = FILES as u64 * (FILE_BYTES as u64).div_ceil(64 << 10);

/// Groups made so far.
static GROUPS: AtomicU32 = AtomicU32::new(0);

/// A group with little memory, which goes when its processes have ended.
struct Group {
    path: PathBuf,
}

impl Group {
    /// # Errors
    /// No group may be made here.
    fn new() -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut why = "there is no cgroup for memory".to_owned();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let path = path.trim_start_matches('/');
            let (folder, limit) = match controllers {
                "" => (Path::new("/sys/fs/cgroup").join(path), "memory.max"),
                "memory" => (
                    Path::new("/sys/fs/cgroup/memory").join(path),
                    "memory.limit_in_bytes",
                ),
                _ => continue,
            };
            let number = GROUPS.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("ropeway-test-{}-{number}", std::process::id()));
            if let Err(error) = fs::create_dir(&path) {
                why = error.to_string();
                continue;
            }
            let group = Self { path };
            match fs::write(group.path.join(limit), LIMIT.to_string()) {
                Ok(()) => return Ok(group),
                Err(error) => why = error.to_string(),
            }
        }
        Err(format!("no group with little memory: {why}"))
    }

    /// A command line that runs what follows it in the group.
    fn inside(&self) -> [String; 4] {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.path.display());
        ["sh".into(), "-c".into(), enter, "sh".into()]
    }

    /// Bytes of memory of its processes, without the page cache.
    fn own_bytes(&self) -> u64 {
        let stat = fs::read_to_string(self.path.join("memory.stat")).unwrap();
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let own = lines.find(|(name, _)| ["rss", "anon"].contains(name));
        own.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_until(Duration::from_secs(5), || fs::remove_dir(&self.path).is_ok());
    }
}

struct Bench {
    // Dropped in this order: the mount, the server, the group.
    running: Option<Running>,
    served: Served,
    group: Group,
}

impl Bench {
    fn new() -> Result<Self, String> {
        support::needs(true, &["umount"])?;
        can_mount()?;
        let group = Group::new()?;
        let served = Served::start(&[]);
        fs::create_dir(served.place.join("mnt")).unwrap();
        let made = served
            .place
            .ropeway("boost")
            .args(["create", "--size", "128M", "cache"]);
        made.run().assert_code(&[0]);
        Ok(Self {
            running: None,
            served,
            group,
        })
    }

    fn inside(&self, command: &str) -> Run {
        let before = self.group.inside();
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        self.served.run_by(&before, command)
    }

    fn mount(&mut self, flags: &[&str]) {
        let run = self.inside("mount").args(["--foreground", "--boost", "cache"]);
        let mut running = run
            .args(flags)
            .args([self.served.url(""), "mnt".to_owned()])
            .start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", running.stdout(), running.stderr());
        self.running = Some(running);
    }

    fn file(&self, number: usize) -> PathBuf {
        self.served.place.join(format!("mnt/file{number}"))
    }

    /// Programs of the group read all files.
    fn read_all(&self) {
        let before = self.group.inside();
        let mut cat = Command::new(&before[0]);
        cat.args(&before[1..]).arg("cat");
        cat.args((0..FILES).map(|number| self.file(number)));
        let output = cat.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut expected = Vec::new();
        for number in 0..FILES {
            expected.extend(content(number));
        }
        assert!(output.stdout == expected, "other content");
    }

    /// The kernel has nothing of the files in memory any more.
    fn forget_all(&self) {
        for number in 0..FILES {
            let file = fs::File::open(self.file(number)).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }

    fn status(&self) -> Value {
        let run = self.served.place.ropeway("boost");
        let finished = run.args(["status", "--json", "cache"]).run();
        finished.assert_code(&[0]);
        serde_json::from_str(finished.out.trim()).unwrap()
    }

    /// Share of the files that the kernel has in memory. No data is read.
    fn kept(&self) -> f64 {
        let kept = (0..FILES).map(|number| {
            let file = fs::File::open(self.file(number)).unwrap();
            let kept = ropeway_local::kept_in_memory(file.as_fd(), 0, FILE_BYTES as u64);
            kept.unwrap().expect("root is told") as f64
        });
        kept.sum::<f64>() / (FILES * FILE_BYTES) as f64
    }

    /// Processes take all memory of the group, until nearly nothing of the files is left.
    fn hogs(&self) {
        for left_over in [8_u64, 4, 2, 1, 0, 0, 0, 0] {
            let bytes = LIMIT.saturating_sub(self.group.own_bytes() + (left_over << 20));
            let task = serde_json::json!({ "hog": bytes }).to_string();
            // It may be killed for want of memory.
            self.inside("lab").args(["boost-worker", &task]).run();
            if self.kept() < 0.2 {
                return;
            }
        }
        panic!("the hogs left {:.2} of the files in memory", self.kept());
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.served.place.join("mnt"));
    }
}

fn content(number: usize) -> Vec<u8> {
    let mut content = vec![0; FILE_BYTES];
    fastrand::Rng::with_seed(number as u64).fill(&mut content);
    content
}

fn number(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap()
}

#[test]
fn what_memory_hogs_threw_out_is_back_before_a_program_asks_for_it() {
    let mut bench = or_skip!(Bench::new());
    for number in 0..FILES {
        fs::write(bench.served.behind(&format!("file{number}")), content(number)).unwrap();
    }
    // What is read within two seconds of its change is not cached.
    std::thread::sleep(Duration::from_millis(2500));
    bench.mount(&["--boost-sequential", "always"]);
    bench.read_all();
    bench.read_all();
    // A busy disk takes not every block at once: what it left is read again.
    let is_written = wait_until(Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_millis(1500));
        let is_whole = number(&bench.status(), "blocks") >= BLOCKS;
        if !is_whole {
            bench.forget_all();
            bench.read_all();
        }
        is_whole
    });
    assert!(is_written, "{}", bench.status());
    assert!(
        bench.kept() > 0.99,
        "the kernel keeps what was read: {:.2}",
        bench.kept()
    );
    let before = bench.status();
    assert_eq!(before["predict"]["bringing"]["bytes"], 0, "{before}");

    bench.hogs();
    let gone = bench.kept();
    let started = Instant::now();
    let is_back = wait_until(Duration::from_secs(60), || {
        // Looking is no use of the machine, but it takes a while.
        std::thread::sleep(Duration::from_millis(500));
        bench.kept() > 0.99
    });
    // The status is up to a second old.
    std::thread::sleep(Duration::from_millis(1500));
    let status = bench.status();
    assert!(is_back, "{gone:.2} then {:.2} in memory: {status}", bench.kept());
    eprintln!(
        "{gone:.2} of the files were left; all are back after {:?}",
        started.elapsed()
    );
    let bringing = &status["predict"]["bringing"];
    assert!(number(bringing, "episodes") >= 1, "{bringing}");
    assert!(
        number(bringing, "bytes") as f64 > 0.7 * (FILES * FILE_BYTES) as f64,
        "{bringing}"
    );
    assert_eq!(
        number(bringing, "bytes_from_source"),
        0,
        "a share is far away: {bringing}"
    );
    programs_are_answered_by_the_kernel(&bench, &before);
    the_reader_ends_with_the_mount(&mut bench);
}

/// Neither the cache nor the server is asked.
fn programs_are_answered_by_the_kernel(bench: &Bench, before: &Value) {
    let lookups = |status: &Value| {
        let names = ["memory_hits", "device_hits", "misses"];
        names.map(|name| number(status, name)).iter().sum::<u64>()
    };
    bench.read_all();
    std::thread::sleep(Duration::from_millis(1500));
    let after = bench.status();
    // The kernel keeps what it can while others use the machine: not quite all.
    let few = number(before, "blocks") / 20;
    assert!(lookups(&after) - lookups(before) <= few, "{before}\n{after}");
    let requests = |status: &Value| number(&status["predict"], "requests");
    assert!(requests(&after) - requests(before) <= few, "{before}\n{after}");
    let used = number(&after["predict"]["bringing"], "bytes_used");
    assert!(
        used > 0 && used <= number(&after["predict"]["bringing"], "bytes"),
        "{after}"
    );
    let text = bench
        .served
        .place
        .ropeway("boost")
        .args(["status", "--predict", "cache"])
        .ok();
    assert!(
        text.out.contains("after the hogs") && text.out.contains("brought back"),
        "{text}"
    );
}

/// The reading process does not hold the mount, and ends with it.
fn the_reader_ends_with_the_mount(bench: &mut Bench) {
    support::unmount(&bench.served.place.join("mnt"));
    bench.running.take().unwrap().wait().assert_code(&[0]);
    let left = wait_until(Duration::from_secs(5), || {
        fs::read_to_string(bench.group.path.join("cgroup.procs"))
            .unwrap()
            .is_empty()
    });
    assert!(left, "a process is left in the group");
}

#[test]
fn nothing_is_brought_back_without_prefetching() {
    let mut bench = or_skip!(Bench::new());
    bench.mount(&["--prefetch", "off"]);
    std::thread::sleep(Duration::from_millis(1500));
    let status = bench.status();
    assert_eq!(
        status["predict"]["bringing"]["is_on"],
        Value::Bool(false),
        "{status}"
    );
}
