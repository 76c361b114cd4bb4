//! `ropeway serve` of a share of another server: two servers, the real binary, and a line between
//! them that can be cut.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::line::Line;
use crate::support::{
    PASSWORD, Place, Running, Served, can_mount, content_same, credentials, detach, needs, or_skip,
    patterned, text, wait_until,
};

/// Far longer than anything below takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway, the far server, and the line between them.
struct Gateway {
    near: Served,
    far: Served,
    line: Line,
}

impl Gateway {
    /// Starts them with more flags for the gateway.
    fn start(flags: &[&str]) -> Self {
        let far = Served::start(&[]);
        let line = Line::to(far.address());
        let near = line.gateway(flags);
        Self { near, far, line }
    }

    /// Runs commands of smbclient on a share of the gateway.
    fn smbclient(&self, share: &str, commands: &str) -> Output {
        let address = self.near.address();
        let mut smbclient = Command::new("smbclient");
        smbclient
            .arg(format!("//{}/{share}", address.ip()))
            .args(["-p", &address.port().to_string(), "-s", "/dev/null", "-m", "SMB3"])
            .args(["-U", &format!("ann%{PASSWORD}"), "-c", commands])
            .current_dir(self.near.place.path())
            .stdin(Stdio::null());
        smbclient.output().unwrap()
    }

    #[track_caller]
    fn says(&self, commands: &str) -> String {
        let output = self.smbclient("data", commands);
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
        self.says(&format!("get {name} .got"));
        fs::read(self.near.place.join(".got")).unwrap()
    }

    fn stop(self) {
        self.near.stop();
        self.far.stop();
    }
}

fn near_file(gateway: &Gateway, name: &str, size: u64) -> PathBuf {
    let path = gateway.near.place.join(name);
    patterned(&path, size);
    path
}

#[test]
fn clients_of_a_gateway_use_the_far_share() {
    or_skip!(needs(false, &["smbclient"]));
    let gateway = Gateway::start(&[]);
    let (near, far) = (&gateway.near, &gateway.far);
    // Our client: what is written is behind the far server when the command ends.
    let source = near_file(&gateway, "big", 3_000_000);
    near.run("copy")
        .args([source.as_os_str(), near.url("big").as_ref()])
        .ok();
    content_same(&source, &far.behind("big"));
    // Another client: other case of names, new names, removals.
    gateway.says("mkdir Folder; cd folder; put .login one; rename ONE Two; cd ..; del BIG");
    assert!(far.behind("Folder/Two").exists() && !far.behind("big").exists());
    let listed = gateway.says("ls folder\\*");
    assert!(listed.contains("Two"), "{listed}");
    // Attributes and times are the far server's.
    gateway.says("setmode Folder\\Two +rh");
    let shown = far
        .run("stat")
        .args([far.url("Folder/Two"), "--json".to_owned()])
        .ok();
    let here = near
        .run("stat")
        .args([near.url("Folder/Two"), "--json".to_owned()])
        .ok();
    for field in ["dos_attributes", "modified", "created", "size"] {
        assert_eq!(shown.json()[0][field], here.json()[0][field], "{field}: {here}");
    }
    let usage = near.run("rm").args(["-ry", &near.url("Folder")]).ok();
    assert!(!far.behind("Folder").exists(), "{usage}");
    gateway.stop();
}

#[test]
fn a_change_at_either_end_is_seen_at_the_other() {
    or_skip!(needs(false, &["smbclient"]));
    let gateway = Gateway::start(&[]);
    text(&gateway.far.behind("file"), "first");
    assert_eq!(gateway.read("file"), b"first");
    // The far server's other clients and local programs.
    text(&gateway.far.behind("file"), "second, longer");
    assert!(wait_until(PATIENCE, || gateway.read("file") == b"second, longer"));
    text(&gateway.near.place.join("third"), "third");
    gateway.says("put third file");
    assert_eq!(fs::read(gateway.far.behind("file")).unwrap(), b"third");
    // Two clients of the gateway see each other at once.
    assert_eq!(gateway.read("file"), b"third");
    gateway.stop();
}

#[test]
fn a_cut_line_delays_writes_and_loses_none() {
    or_skip!(needs(false, &["smbclient"]));
    let gateway = Gateway::start(&["local=.", "--timeout", "60s"]);
    let source = near_file(&gateway, "big", 30_000_000);
    let near = &gateway.near;
    gateway.line.limit(4 << 20);
    let mut copy = near
        .run("copy")
        .args([source.as_os_str(), near.url("big").as_ref()])
        .start();
    let before = gateway.line.bytes();
    assert!(copy.until(|_| gateway.line.bytes() > before + 2_000_000));
    gateway.line.cut();
    // Other shares go on, and so does a connection that waits for the far server.
    let local = gateway.smbclient("local", "ls .login");
    assert!(local.status.success(), "{local:?}");
    let mut waits = near.run("ls").arg(near.url("")).start();
    assert!(!wait_until(Duration::from_secs(2), || !waits.runs() || !copy.runs()));
    gateway.line.limit(0);
    gateway.line.mend();
    copy.wait().assert_code(&[0]);
    waits.wait().assert_code(&[0]);
    content_same(&source, &gateway.far.behind("big"));
    gateway.stop();
}

/// Mounts the share of a gateway, as a client that caches under leases.
fn mounted(gateway: &Gateway) -> Running {
    fs::create_dir(gateway.near.place.join("mnt")).unwrap();
    let mount = gateway.near.run("mount").arg("--foreground");
    let mut running = mount.args([gateway.near.url(""), "mnt".to_owned()]).start();
    let is_up = running.until(|running| running.stdout().contains("is mounted on"));
    assert!(is_up, "{}{}", running.stdout(), running.stderr());
    running
}

#[test]
fn a_client_that_caches_hears_of_changes_at_the_far_end() {
    or_skip!(can_mount());
    or_skip!(needs(false, &["smbclient"]));
    let gateway = Gateway::start(&[]);
    text(&gateway.far.behind("file"), "first");
    let mount = mounted(&gateway);
    let path = gateway.near.place.join("mnt");
    let file = fs::File::open(path.join("file")).unwrap();
    let read = || {
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(&read(), b"first");
    assert_eq!(&read(), b"first");
    // Same length, while it is open here.
    text(&gateway.far.behind("file"), "other");
    let is_seen = wait_until(PATIENCE, || &read() == b"other");
    // Another client of the gateway.
    text(&gateway.near.place.join("third"), "third");
    gateway.says("put third file");
    let is_seen_near = wait_until(PATIENCE, || &read() == b"third");
    drop(file);
    mount.signal(rustix::process::Signal::TERM);
    let finished = mount.wait();
    detach(&path);
    assert!(is_seen && is_seen_near, "{is_seen} {is_seen_near} {finished}");
    gateway.stop();
}

#[test]
fn what_one_client_has_read_the_next_one_reads_from_the_cache() {
    or_skip!(needs(false, &["smbclient"]));
    const SIZE: u64 = 4 << 20;
    let flash = Place::new();
    let cache = flash.join("cache").display().to_string();
    flash
        .ropeway("boost")
        .args(["create", &cache, "--size", "128M"])
        .ok();
    let mut gateway = Gateway::start(&["--boost", &cache]);
    patterned(&gateway.far.behind("big"), SIZE);
    let content = fs::read(gateway.far.behind("big")).unwrap();
    let is_cheap = |gateway: &Gateway| {
        let before = gateway.line.bytes();
        assert!(gateway.read("big") == content);
        gateway.line.bytes() - before < SIZE / 20
    };
    // A file that has just changed is not kept yet.
    assert!(wait_until(PATIENCE, || is_cheap(&gateway)));
    // The cache is still there after a restart.
    let next = gateway.line.gateway(&[]);
    std::mem::replace(&mut gateway.near, next).stop();
    let again = gateway.line.gateway(&["--boost", &cache]);
    std::mem::replace(&mut gateway.near, again).stop();
    assert!(is_cheap(&gateway));
    // What changes at the far end is read there.
    let other: Vec<u8> = content.iter().map(|byte| !byte).collect();
    fs::write(gateway.far.behind("big"), &other).unwrap();
    assert!(wait_until(PATIENCE, || gateway.read("big") == other));
    gateway.stop();
}

#[test]
fn a_far_server_that_is_away_is_reported() {
    let place = Place::in_memory();
    let login = credentials(&place.join(".login"));
    let serve = |url: &str, login: &str| {
        let flags = [
            "--listen",
            "127.0.0.1:0",
            "--credentials",
            login,
            "--timeout",
            "1s",
        ];
        place
            .ropeway("serve")
            .args(flags)
            .arg(format!("data={url}"))
            .run()
    };
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let away = serve(&format!("smb://ann@{closed}/data"), &login);
    away.assert_code(&[6]);
    assert!(away.err.contains(&closed.to_string()), "{away}");
    let far = Served::start(&[]);
    let missing = serve(&far.url("").replace("/data/", "/none"), &login);
    missing.assert_code(&[3]);
    assert!(missing.err.contains("none"), "{missing}");
    text(Path::new(&login), "username=ann\npassword=wrong\n");
    serve(&far.url(""), &login).assert_code(&[5]);
    far.stop();
}
