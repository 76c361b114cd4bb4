//! `ropeway serve URL --write-back`: two servers, the real binary, and a line between them that is
//! slow or cut.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::line::Line;
use crate::support::{
    PASSWORD, Place, Served, Volume, can_mount, content_same, credentials, detach, needs, or_skip, wait_until,
};
use serde_json::Value;

/// Far longer than anything below takes.
const PATIENCE: Duration = Duration::from_secs(90);
const MIB: u64 = 1 << 20;

/// A gateway with a journal, the far server, and the line between them.
struct Gateway {
    near: Served,
    far: Served,
    line: Line,
    cache: String,
    /// Has what clients put, and the cache, unless a test has it elsewhere.
    flash: Place,
}

impl Gateway {
    fn start() -> Self {
        let flash = Place::new();
        let cache = flash.join("cache");
        Self::with_cache(flash, &cache)
    }

    /// With a cache in a folder of the test's choice.
    fn with_cache(flash: Place, cache: &Path) -> Self {
        Self::behind(flash, cache, Line::to)
    }

    /// Behind a line that keeps much of what is under way.
    fn behind_a_long_queue() -> Self {
        let flash = Place::new();
        let cache = flash.join("cache");
        Self::behind(flash, &cache, Line::long_queue_to)
    }

    fn behind(flash: Place, cache: &Path, line: fn(SocketAddr) -> Line) -> Self {
        let cache = cache.display().to_string();
        let create = ["create", &cache, "--size", "128M"];
        flash.ropeway("boost").args(create).ok();
        let far = Served::start(&[]);
        let line = line(far.address());
        let near = line.gateway(&["--boost", &cache, "--write-back"]);
        Self {
            near,
            far,
            line,
            cache,
            flash,
        }
    }

    /// Starts the gateway again, with these flags, after it was killed or stopped.
    fn restart(&mut self, flags: &[&str]) {
        let flags: Vec<&str> = ["--boost", &self.cache]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        self.near = self.line.gateway(&flags);
    }

    fn smbclient(&self, commands: &str) -> Output {
        let address = self.near.address();
        let mut smbclient = Command::new("smbclient");
        smbclient
            .arg(format!("//{}/data", address.ip()))
            .args(["-p", &address.port().to_string(), "-s", "/dev/null", "-m", "SMB3"])
            .args(["-U", &format!("ann%{PASSWORD}"), "-c", commands])
            .current_dir(self.flash.path())
            .stdin(Stdio::null());
        smbclient.output().unwrap()
    }

    #[track_caller]
    fn says(&self, commands: &str) -> String {
        let output = self.smbclient(commands);
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{commands}: {said}");
        said
    }

    /// The content of a file as a new client of the gateway reads it.
    fn read(&self, name: &str) -> Vec<u8> {
        self.says(&format!("get \"{name}\" .got"));
        fs::read(self.flash.join(".got")).unwrap()
    }

    /// Puts content that does not compress: the line is slow for it whatever its ends do.
    fn put(&self, name: &str, size: u64) -> PathBuf {
        let path = self.flash.join(name);
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        fastrand::Rng::with_seed(size).fill(&mut bytes);
        fs::write(&path, bytes).unwrap();
        self.says(&format!("put {name}"));
        path
    }

    /// Returns the journal's figures as `boost status` has them.
    fn status(&self) -> Value {
        let status = self
            .near
            .place
            .ropeway("boost")
            .args(["status", &self.cache, "--json"])
            .ok();
        status.json()[0]["write_back"][0].clone()
    }

    /// Whether the journal is empty, by what lies there.
    fn is_drained(&self) -> bool {
        self.status()["files_in_journal"] == 0
    }

    /// Waits until the far server has everything.
    #[track_caller]
    fn drains(&self) {
        assert!(wait_until(PATIENCE, || self.is_drained()), "{}", self.status());
    }

    /// Starts it again after it was killed, behind a fast line, and waits until the far server has everything.
    #[track_caller]
    fn goes_on(&mut self, flags: &[&str]) {
        self.line.limit(0);
        self.restart(flags);
        self.drains();
    }

    fn far(&self, name: &str) -> Vec<u8> {
        fs::read(self.far.behind(name)).unwrap()
    }

    fn stop(self) {
        self.near.stop();
        self.far.stop();
    }
}

/// Names in the far folder, except the server's own.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_put_at_the_speed_of_the_near_disk_and_arrives() {
    or_skip!(needs(false, &["smbclient"]));
    let gateway = Gateway::start();
    gateway.line.limit(2 * MIB);
    let start = Instant::now();
    let source = gateway.put("big", 32 * MIB);
    let elapsed = start.elapsed();
    println!("32 MiB over 2 MiB/s were put in {elapsed:?}");
    // The line would take 16 s.
    assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
    assert!(!gateway.is_drained());
    let shown = gateway
        .near
        .place
        .ropeway("boost")
        .args(["status", &gateway.cache])
        .ok();
    assert!(
        shown.out.contains("backlog") && shown.out.contains("1 file"),
        "{shown}"
    );
    assert!(wait_until(PATIENCE, || gateway.status()["bytes"].as_u64() > Some(MIB)));
    // Whoever asks here finds all of it, wherever it is.
    let asked = Instant::now();
    assert!(gateway.read("big") == fs::read(&source).unwrap());
    println!("it was read in {:?} meanwhile", asked.elapsed());
    assert!(gateway.says("ls big").contains(&(32 * MIB).to_string()));
    gateway.line.limit(0);
    gateway.drains();
    content_same(&source, &gateway.far.behind("big"));
    assert!(wait_until(PATIENCE, || gateway.status()["drained_bytes"] == 32 * MIB));
    assert_eq!(names(&gateway.far.behind("")), ["big"]);
    gateway.stop();
}

#[test]
fn a_killed_gateway_writes_its_backlog_back_after_the_next_start() {
    or_skip!(needs(false, &["smbclient"]));
    let mut gateway = Gateway::start();
    for flags in [&["--write-back"][..], &[]] {
        gateway.line.limit(2 * MIB);
        let big = gateway.put("big", 24 * MIB);
        let small = gateway.put("small", 1000);
        gateway.near.kill();
        assert!(!gateway.is_drained());
        // The far server has a part of it at most.
        assert!(gateway.far("big").len() as u64 <= 24 * MIB);
        gateway.goes_on(flags);
        content_same(&big, &gateway.far.behind("big"));
        content_same(&small, &gateway.far.behind("small"));
        assert_eq!(names(&gateway.far.behind("")), ["big", "small"]);
        gateway.says("del big; del small");
        assert_eq!(names(&gateway.far.behind("")), [""; 0]);
        if !flags.is_empty() {
            continue;
        }
        // Without the flag new writes go through.
        let through = gateway.put("through", 100_000);
        content_same(&through, &gateway.far.behind("through"));
    }
    gateway.stop();
}

/// What it has sent arrives long after it noted in the journal that a round began. That is its own data,
/// and no change by others.
#[test]
fn a_gateway_killed_with_much_on_its_way_knows_its_own_data_again() {
    or_skip!(needs(false, &["smbclient"]));
    let mut gateway = Gateway::start();
    // The line seems to be fast, so much is sent at once.
    let fast = gateway.put("fast", 48 * MIB);
    gateway.drains();
    gateway.line.limit(MIB);
    let big = gateway.put("big", 32 * MIB);
    assert!(wait_until(PATIENCE, || !gateway.far("big").is_empty()));
    std::thread::sleep(Duration::from_secs(9));
    gateway.near.kill();
    assert!(!gateway.is_drained());
    gateway.goes_on(&["--write-back"]);
    assert_eq!(names(&gateway.far.behind("")), ["big", "fast"]);
    content_same(&fast, &gateway.far.behind("fast"));
    content_same(&big, &gateway.far.behind("big"));
    gateway.stop();
}

/// The next gateway ends the session of the killed one at the far server before it writes.
#[test]
fn what_a_killed_gateway_had_on_its_way_changes_nothing_later() {
    or_skip!(needs(false, &["smbclient"]));
    let mut gateway = Gateway::behind_a_long_queue();
    gateway.line.limit(2 * MIB);
    gateway.put("big", 16 * MIB);
    assert!(wait_until(PATIENCE, || !gateway.far("big").is_empty()));
    gateway.line.hold();
    gateway.near.kill();
    gateway.goes_on(&["--write-back"]);
    let newer: Vec<u8> = fs::read(gateway.flash.join("big"))
        .unwrap()
        .iter()
        .map(|byte| !byte)
        .collect();
    fs::write(gateway.flash.join("big"), &newer).unwrap();
    gateway.says("put big");
    gateway.drains();
    assert!(gateway.far("big") == newer);
    let before = gateway.line.bytes();
    gateway.line.mend();
    std::thread::sleep(Duration::from_secs(3));
    println!("{} bytes arrived late", gateway.line.bytes() - before);
    assert!(
        gateway.far("big") == newer,
        "what was sent before arrived after it"
    );
    assert_eq!(names(&gateway.far.behind("")), ["big"]);
    gateway.stop();
}

/// The journal knows the file by the name that the client used.
#[test]
fn a_backlog_that_was_written_through_a_link_survives_a_restart() {
    or_skip!(needs(false, &["smbclient"]));
    let mut gateway = Gateway::start();
    fs::write(gateway.far.behind("target"), "before").unwrap();
    symlink("target", gateway.far.behind("link")).unwrap();
    gateway.line.limit(MIB);
    let ours = gateway.put("link", 8 * MIB);
    gateway.near.kill();
    assert!(!gateway.is_drained());
    gateway.goes_on(&["--write-back"]);
    content_same(&ours, &gateway.far.behind("target"));
    assert_eq!(names(&gateway.far.behind("")), ["link", "target"]);
    gateway.stop();
}

#[test]
fn what_others_write_at_the_far_end_stays_and_ours_is_beside_it() {
    or_skip!(needs(false, &["smbclient"]));
    let mut gateway = Gateway::start();
    let ours = gateway.put("report.txt", 300_000);
    gateway.drains();
    gateway.line.limit(80_000);
    let ours = {
        let again: Vec<u8> = fs::read(&ours).unwrap().iter().map(|byte| !byte).collect();
        fs::write(gateway.flash.join("report.txt"), &again).unwrap();
        gateway.says("put report.txt");
        again
    };
    // Killed before all of it is there, and changed meanwhile.
    gateway.near.kill();
    std::thread::sleep(Duration::from_secs(7));
    fs::write(gateway.far.behind("report.txt"), "theirs").unwrap();
    gateway.goes_on(&["--write-back"]);
    assert_eq!(gateway.far("report.txt"), b"theirs");
    assert_eq!(gateway.read("report.txt"), b"theirs");
    let found = names(&gateway.far.behind(""));
    let saved = found
        .iter()
        .find(|name| name.starts_with("report (conflict"))
        .unwrap();
    assert!(gateway.far(saved) == ours, "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(wait_until(PATIENCE, || gateway.status()["conflicts"] == 1));
    assert_eq!(gateway.status()["last_conflict"], Value::from(saved.clone()));
    gateway.stop();
}

#[test]
fn writes_to_an_open_file_are_acknowledged_while_the_line_is_cut() {
    or_skip!(can_mount());
    let gateway = Gateway::start();
    fs::create_dir(gateway.near.place.join("mnt")).unwrap();
    let mount = gateway.near.run("mount").arg("--foreground");
    let mut mount = mount.args([gateway.near.url(""), "mnt".to_owned()]).start();
    assert!(mount.until(|mount| mount.stdout().contains("is mounted on")));
    let path = gateway.near.place.join("mnt");
    let mut file = fs::File::create(path.join("file")).unwrap();
    file.write_all(&[1; 100_000]).unwrap();
    file.sync_all().unwrap();
    gateway.line.cut();
    let start = Instant::now();
    file.write_all(&[2; 3_000_000]).unwrap();
    file.sync_all().unwrap();
    let elapsed = start.elapsed();
    println!("acknowledged after {elapsed:?} without a line");
    let is_soon = elapsed < Duration::from_secs(15);
    std::thread::sleep(Duration::from_secs(2));
    gateway.line.mend();
    drop(file);
    mount.signal(rustix::process::Signal::TERM);
    let finished = mount.wait();
    detach(&path);
    assert!(is_soon, "{elapsed:?} {finished}");
    gateway.drains();
    let expected = [vec![1; 100_000], vec![2; 3_000_000]].concat();
    assert!(gateway.far("file") == expected);
    assert_eq!(names(&gateway.far.behind("")), ["file"]);
    gateway.stop();
}

#[test]
fn a_full_near_disk_makes_writes_go_through() {
    or_skip!(needs(true, &["smbclient"]));
    let volume = or_skip!(Volume::tmpfs(144));
    let gateway = Gateway::with_cache(Place::new(), &volume.root().join("cache"));
    gateway.line.limit(16 * MIB);
    let source = gateway.put("big", 48 * MIB);
    gateway.drains();
    content_same(&source, &gateway.far.behind("big"));
    assert_eq!(names(&gateway.far.behind("")), ["big"]);
    // With room again, the journal is used again.
    gateway.line.limit(MIB / 3);
    let small = gateway.put("small", 4 * MIB);
    assert!(!gateway.is_drained());
    gateway.line.limit(0);
    gateway.drains();
    content_same(&small, &gateway.far.behind("small"));
    gateway.stop();
}

#[test]
fn an_end_with_a_backlog_says_what_is_left() {
    or_skip!(needs(false, &["smbclient"]));
    let mut gateway = Gateway::start();
    gateway.line.limit(MIB / 2);
    let source = gateway.put("big", 48 * MIB);
    let (cache, line) = (gateway.cache.clone(), gateway.line.address());
    let near = std::mem::replace(&mut gateway.near, Served::start(&[]));
    let finished = near.stop();
    assert!(
        finished.err.contains("1 file with") && finished.err.contains("next start"),
        "{finished}"
    );
    // Another share is not served over this backlog, and nothing is harmed.
    let place = Place::in_memory();
    let login = credentials(&place.join(".login"));
    let other = place
        .ropeway("serve")
        .args([
            "--listen",
            "127.0.0.1:0",
            "--credentials",
            &login,
            "--boost",
            &cache,
            "--write-back",
        ])
        .arg(format!("data=smb://ann@{line}/other"))
        .run();
    other.assert_code(&[8]);
    assert!(
        other.err.contains("backlog") && other.err.contains("hint"),
        "{other}"
    );
    gateway.line.limit(0);
    let rest = near_of(&gateway);
    std::mem::replace(&mut gateway.near, rest).stop();
    gateway.drains();
    content_same(&source, &gateway.far.behind("big"));
    gateway.stop();
}

fn near_of(gateway: &Gateway) -> Served {
    gateway.line.gateway(&["--boost", &gateway.cache, "--write-back"])
}

#[test]
fn the_flag_needs_a_folder_for_the_journal() {
    let place = Place::in_memory();
    let refused = place
        .ropeway("serve")
        .args(["--write-back", "smb://ann@localhost/data"])
        .run();
    refused.assert_code(&[1]);
    assert!(
        refused.err.contains("--boost") && refused.err.contains("hint"),
        "{refused}"
    );
    let small = [
        "--boost",
        "cache",
        "--write-back",
        "--write-back-size",
        "1M",
        "smb://ann@localhost/data",
    ];
    let refused = place.ropeway("serve").args(small).run();
    refused.assert_code(&[1]);
    assert!(refused.err.contains("64M"), "{refused}");
}
