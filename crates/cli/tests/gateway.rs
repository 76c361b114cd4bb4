//! `ropeway serve` of a share of another server: two servers, the real binary, and a line between
//! them that can be cut.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

#[path = "gateway/line.rs"]
mod line;
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use line::Line;
use support::{
    PASSWORD, Place, Served, content_same, needs, or_skip, patterned, text, wait_until,
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
        let url = format!("smb://ann@{}/data", line.address());
        let place = Place::in_memory();
        let login = credentials(&place);
        let flags: Vec<&str> = ["--credentials", &login].iter().chain(flags).copied().collect();
        let near = Served::serving(place, Path::new(&url), &flags);
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

/// Writes the login at the far server to a file, and returns its path.
fn credentials(place: &Place) -> String {
    let path = place.join(".login");
    text(&path, &format!("username=ann\npassword={PASSWORD}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
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
    near.run("copy").args([source.as_os_str(), near.url("big").as_ref()]).ok();
    content_same(&source, &far.behind("big"));
    // Another client: other case of names, new names, removals.
    gateway.says("mkdir Folder; cd folder; put .login one; rename ONE Two; cd ..; del BIG");
    assert!(far.behind("Folder/Two").exists() && !far.behind("big").exists());
    let listed = gateway.says("ls folder\\*");
    assert!(listed.contains("Two"), "{listed}");
    // Attributes and times are the far server's.
    gateway.says("setmode Folder\\Two +rh");
    let shown = far.run("stat").args([far.url("Folder/Two"), "--json".to_owned()]).ok();
    let here = near.run("stat").args([near.url("Folder/Two"), "--json".to_owned()]).ok();
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
    let mut copy = near.run("copy").args([source.as_os_str(), near.url("big").as_ref()]).start();
    let before = gateway.line.bytes();
    assert!(copy.until(|_| gateway.line.bytes() > before + 2_000_000));
    gateway.line.cut();
    // Other shares go on, and so does a connection that waits for the far server.
    let local = gateway.smbclient("local", "ls .login");
    assert!(local.status.success(), "{local:?}");
    let mut waits = near.run("ls").arg(near.url("")).start();
    assert!(!wait_until(Duration::from_secs(2), || !waits.runs() || !copy.runs()));
    gateway.line.mend();
    copy.wait().assert_code(&[0]);
    waits.wait().assert_code(&[0]);
    content_same(&source, &gateway.far.behind("big"));
    gateway.stop();
}

#[test]
fn a_far_server_that_is_away_is_reported() {
    let place = Place::in_memory();
    let login = credentials(&place);
    let serve = |url: &str, login: &str| {
        let flags = ["--listen", "127.0.0.1:0", "--credentials", login, "--timeout", "1s"];
        place.ropeway("serve").args(flags).arg(format!("data={url}")).run()
    };
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
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
