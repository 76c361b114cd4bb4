//! Other SMB clients, and our own, against `ropeway serve` with the real binary. Each reads a tree
//! of odd names, writes it back and lists it. Files are compared byte for byte, listings with the
//! disk.
//!
//! Debian's smbclient is used as installed. `cargo xtask ci` installs rclone and the Python clients
//! below `target/interop`; without them their tests are skipped.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{
    PASSWORD, Served, assert_listing, case_twins, content_same, credentials, file, interop, odd_tree,
    or_skip, program, same_as_seen, seen_listing,
};
use serde_json::Value;

/// A run of another client that takes longer hangs. Generous, as for our own binary.
const HANG_SECONDS: &str = "90";

/// A listing: paths with `/`, and the sizes of files.
type Listing = BTreeMap<String, Option<u64>>;

/// An SMB client.
trait Client {
    /// Copies a folder of the share to a new local folder.
    fn get(&self, served: &Served, remote: &str, local: &Path);
    /// Copies a local folder to a new folder of the share.
    fn put(&self, served: &Served, local: &Path, remote: &str);
    /// Lists everything below a folder of the share.
    fn list(&self, served: &Served, remote: &str) -> Listing;
}

/// Reads, writes and lists the odd tree.
#[track_caller]
fn both_ways(served: &Served, client: &impl Client) {
    let (source, near) = (served.behind("source"), served.place.join("near"));
    for folder in [&source, &near, &served.behind("target"), &served.behind("twins")] {
        let _ = fs::remove_dir_all(folder);
    }
    odd_tree(&source);
    assert_listing(&seen_listing(&source), &client.list(served, "source"));
    client.get(served, "source", &near);
    same_as_seen(&source, &near);
    client.put(served, &near, "target");
    content_same(&source, &served.behind("target"));
    assert_listing(&seen_listing(&source), &client.list(served, "target"));
    fs::remove_dir_all(&near).unwrap();
    case_twins(&served.behind("twins"));
    assert_listing(
        &seen_listing(&served.behind("twins")),
        &client.list(served, "twins"),
    );
    client.get(served, "twins", &near);
    same_as_seen(&served.behind("twins"), &near);
}

/// Returns the standard output; the command must succeed in time.
#[track_caller]
fn said(command: &Command) -> String {
    let mut bounded = Command::new("timeout");
    bounded
        .arg(HANG_SECONDS)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        bounded.env(name, value.unwrap_or_default());
    }
    let output = bounded
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{out}\n{complaint}",
        output.status
    );
    out
}

/// Samba's smbclient, with flags.
struct Smbclient {
    program: PathBuf,
    flags: Vec<String>,
}

impl Smbclient {
    fn find(flags: &[&str]) -> Result<Self, String> {
        Ok(Self {
            program: program("smbclient").ok_or("smbclient is not installed")?,
            flags: flags.iter().map(ToString::to_string).collect(),
        })
    }

    /// Makes a client with one dialect only.
    fn with_dialect(dialect: &str, flags: &[&str]) -> Result<Self, String> {
        let mut client = Self::find(flags)?;
        for end in ["min", "max"] {
            client
                .flags
                .push(format!("--option=client {end} protocol={dialect}"));
        }
        Ok(client)
    }

    fn command(&self, served: &Served, commands: &str) -> Command {
        let secret = served.place.join(".smbclient");
        credentials(&secret);
        let mut command = Command::new(&self.program);
        command
            .args(["--configfile", "/dev/null", "--port"])
            .arg(served.address().port().to_string())
            .arg(format!("//{}/data", served.address().ip()))
            .arg("--authentication-file")
            .arg(secret)
            .args(&self.flags)
            .arg("-c")
            .arg(commands);
        command
    }
}

impl Client for Smbclient {
    fn get(&self, served: &Served, remote: &str, local: &Path) {
        fs::create_dir(local).unwrap();
        let commands = format!(
            "cd {remote}; lcd \"{}\"; prompt OFF; recurse ON; mget *",
            local.display()
        );
        said(&self.command(served, &commands));
    }

    fn put(&self, served: &Served, local: &Path, remote: &str) {
        let commands = format!(
            "mkdir {remote}; cd {remote}; lcd \"{}\"; prompt OFF; recurse ON; mput *",
            local.display()
        );
        said(&self.command(served, &commands));
    }

    fn list(&self, served: &Served, remote: &str) -> Listing {
        let text = said(&self.command(served, &format!("cd {remote}; recurse ON; ls")));
        let mut folder = String::new();
        let mut listing = Listing::new();
        for line in text.lines() {
            if let Some(path) = line.strip_prefix('\\') {
                folder = match path.strip_prefix(remote).unwrap().strip_prefix('\\') {
                    Some(below) => below.replace('\\', "/") + "/",
                    None => String::new(),
                };
            } else if let Some((name, size)) = smbclient_line(line) {
                listing.insert(format!("{folder}{name}"), size);
            }
        }
        listing
    }
}

/// Parses `  NAME   ATTRIBUTES   SIZE  Sat Nov 21 20:00:00 2026`.
fn smbclient_line(line: &str) -> Option<(String, Option<u64>)> {
    const DATE: usize = "Sat Nov 21 20:00:00 2026".len();
    let rest = line.strip_prefix("  ")?;
    let rest = rest.get(..rest.len().checked_sub(DATE)?)?.trim_end();
    let (rest, size) = rest.rsplit_once(' ')?;
    let (name, attributes) = rest.trim_end().rsplit_once(' ')?;
    // The name is padded. It ends neither with a space nor with a dot, because these are mapped.
    let name = name.trim_end_matches(' ');
    let size = size.parse().ok()?;
    (!matches!(name, "." | "..")).then(|| (name.to_owned(), (!attributes.contains('D')).then_some(size)))
}

#[test]
fn smbclient_in_every_dialect() {
    let served = Served::start(&[]);
    for dialect in ["SMB2_02", "SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11"] {
        println!("{dialect}");
        both_ways(&served, &or_skip!(Smbclient::with_dialect(dialect, &[])));
    }
    served.stop();
}

/// With SMB 1 for old clients, the others keep their dialects.
#[cfg(feature = "smb1")]
#[test]
fn smbclient_with_smb1() {
    let served = Served::start(&["--smb1"]);
    for dialect in ["NT1", "SMB3_11"] {
        println!("{dialect}");
        both_ways(&served, &or_skip!(Smbclient::with_dialect(dialect, &[])));
    }
    served.stop();
}

#[test]
fn smbclient_where_signing_is_required() {
    let served = Served::start(&["--sign", "required", "--encrypt", "off"]);
    for dialect in ["SMB2_02", "SMB3_11"] {
        both_ways(
            &served,
            &or_skip!(Smbclient::with_dialect(dialect, &["--client-protection=sign"])),
        );
    }
    // A client that prefers not to sign signs anyway.
    both_ways(&served, &or_skip!(Smbclient::find(&["--client-protection=off"])));
    served.stop();
}

#[test]
fn smbclient_where_encryption_is_required() {
    let served = Served::start(&["--encrypt", "required"]);
    for dialect in ["SMB3_00", "SMB3_02", "SMB3_11"] {
        both_ways(
            &served,
            &or_skip!(Smbclient::with_dialect(dialect, &["--client-protection=encrypt"])),
        );
    }
    both_ways(&served, &or_skip!(Smbclient::find(&[])));
    let old = or_skip!(Smbclient::with_dialect("SMB2_10", &[]));
    let refused = old.command(&served, "ls").stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stdout);
    assert!(
        !refused.status.success() && told.contains("ACCESS_DENIED"),
        "{told}"
    );
    served.stop();
}

#[test]
fn smbclient_where_nothing_is_required() {
    let served = Served::start(&["--sign", "offered", "--encrypt", "off"]);
    both_ways(&served, &or_skip!(Smbclient::find(&["--client-protection=off"])));
    served.stop();
}

/// rclone, configured by its environment only: no configuration file, and no password in the
/// process list.
struct Rclone(PathBuf);

impl Rclone {
    fn command(&self, served: &Served, words: &[&str]) -> Command {
        let mut obscure = Command::new(&self.0)
            .args(["obscure", "-"])
            .env("RCLONE_CONFIG", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        obscure
            .stdin
            .take()
            .unwrap()
            .write_all(PASSWORD.as_bytes())
            .unwrap();
        let obscured = obscure.wait_with_output().unwrap();
        let mut command = Command::new(&self.0);
        command
            .env("RCLONE_CONFIG", "")
            .env("RCLONE_SMB_HOST", served.address().ip().to_string())
            .env("RCLONE_SMB_PORT", served.address().port().to_string())
            // Names unchanged: rclone's own mapping is for servers that cannot hold them.
            .env("RCLONE_SMB_ENCODING", "None")
            .env("RCLONE_LOCAL_ENCODING", "Slash,Dot")
            .env("RCLONE_SMB_USER", "ann")
            .env(
                "RCLONE_SMB_PASS",
                String::from_utf8_lossy(&obscured.stdout).trim(),
            )
            .args([
                "--retries",
                "1",
                "--low-level-retries",
                "1",
                "--no-unicode-normalization",
            ])
            .args(words);
        command
    }
}

impl Client for Rclone {
    fn get(&self, served: &Served, remote: &str, local: &Path) {
        let (from, to) = (format!(":smb:data/{remote}"), local.to_str().unwrap());
        said(&self.command(served, &["copy", "--create-empty-src-dirs", &from, to]));
    }

    fn put(&self, served: &Served, local: &Path, remote: &str) {
        let (from, to) = (local.to_str().unwrap(), format!(":smb:data/{remote}"));
        said(&self.command(served, &["copy", "--create-empty-src-dirs", from, &to]));
    }

    fn list(&self, served: &Served, remote: &str) -> Listing {
        let text = said(&self.command(served, &["lsjson", "-R", &format!(":smb:data/{remote}")]));
        let nodes: Vec<Value> = serde_json::from_str(&text).unwrap();
        let entry = |node: &Value| {
            let size = (node["IsDir"] == false).then(|| node["Size"].as_u64().unwrap());
            // rclone shows DEL as its symbol.
            (node["Path"].as_str().unwrap().replace('␡', "\x7f"), size)
        };
        nodes.iter().map(entry).collect()
    }
}

#[test]
fn rclone() {
    let client = Rclone(or_skip!(interop("bin/rclone")));
    let served = Served::start(&["--sign", "required"]);
    both_ways(&served, &client);
    served.stop();
}

/// A Python client, run by `interop/tree.py`.
struct Python {
    program: PathBuf,
    kind: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

impl Python {
    fn find(
        kind: &'static str,
        environment: &'static [(&'static str, &'static str)],
    ) -> Result<Self, String> {
        Ok(Self {
            program: interop("venv/bin/python3")?,
            kind,
            environment,
        })
    }

    fn said(&self, served: &Served, words: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/share/interop/tree.py");
        let address = served.address();
        let mut command = Command::new(&self.program);
        command
            .arg("-B")
            .arg(script)
            .args([
                self.kind,
                &address.ip().to_string(),
                &address.port().to_string(),
                "data",
            ])
            .args(words)
            .env("SMB_USER", "ann")
            .env("SMB_PASSWORD", PASSWORD)
            .envs(self.environment.iter().copied());
        said(&command)
    }
}

impl Client for Python {
    fn get(&self, served: &Served, remote: &str, local: &Path) {
        self.said(served, &["get", remote, local.to_str().unwrap()]);
    }

    fn put(&self, served: &Served, local: &Path, remote: &str) {
        self.said(served, &["put", local.to_str().unwrap(), remote]);
    }

    fn list(&self, served: &Served, remote: &str) -> Listing {
        let text = self.said(served, &["list", remote]);
        let entry = |line: &str| {
            let node: Value = serde_json::from_str(line).unwrap();
            let size = (node["folder"] == false).then(|| node["size"].as_u64().unwrap());
            (node["path"].as_str().unwrap().to_owned(), size)
        };
        text.lines().map(entry).collect()
    }
}

#[test]
fn impacket() {
    let served = Served::start(&[]);
    both_ways(&served, &or_skip!(Python::find("impacket", &[])));
    both_ways(
        &served,
        &or_skip!(Python::find("impacket", &[("SMB_DIALECT", "2.0.2")])),
    );
    both_ways(
        &served,
        &or_skip!(Python::find("impacket", &[("SMB_DIALECT", "2.1")])),
    );
    served.stop();
}

/// With SMB 1, impacket sends names in UTF-8 as if they were of a code page, so these are ASCII.
#[cfg(feature = "smb1")]
#[test]
fn impacket_with_smb1() {
    let served = Served::start(&["--smb1"]);
    let client = or_skip!(Python::find("impacket", &[("SMB_DIALECT", "NT1")]));
    let (source, near) = (served.behind("source"), served.place.join("near"));
    fs::create_dir_all(source.join("deep/er")).unwrap();
    file(&source.join("deep/er/large"), 300_000, 7);
    file(&source.join("deep/empty"), 0, 8);
    client.get(&served, "source", &near);
    content_same(&source, &near);
    client.put(&served, &near, "target");
    content_same(&source, &served.behind("target"));
    assert_listing(&seen_listing(&source), &client.list(&served, "target"));
    served.stop();
}

#[test]
fn smbprotocol() {
    let served = Served::start(&[]);
    both_ways(&served, &or_skip!(Python::find("smbprotocol", &[])));
    both_ways(
        &served,
        &or_skip!(Python::find("smbprotocol", &[("SMB_ENCRYPT", "1")])),
    );
    served.stop();
}

/// Our own client, with flags.
struct Ropeway(&'static [&'static str]);

impl Ropeway {
    #[track_caller]
    fn copy(&self, served: &Served, flags: &[&str], from: &str, to: &str) {
        let run = served.run("copy").args(["--json", "-T"]).args(self.0).args(flags);
        let finished = run.args([from, to]).ok();
        assert_eq!(finished.number("errors"), 0, "{finished}");
    }

    fn list(&self, served: &Served, remote: &str) -> Listing {
        let run = served.run("ls").args(["--json", "-R"]).args(self.0);
        let finished = run.arg(served.url(remote)).ok();
        let entry = |node: Value| {
            let size = (node["kind"] == "file").then(|| node["size"].as_u64().unwrap());
            // DEL is shown as an escape.
            (node["path"].as_str().unwrap().replace("\\x7f", "\x7f"), size)
        };
        finished.of_type("entry").into_iter().map(entry).collect()
    }
}

impl Ropeway {
    /// Reads, writes and compares with the disk.
    #[track_caller]
    fn both_ways(&self, served: &Served) {
        let (source, near) = (served.behind("source"), served.place.join("near"));
        for folder in [&source, &near, &served.behind("target"), &served.behind("twins")] {
            let _ = fs::remove_dir_all(folder);
        }
        odd_tree(&source);
        // Our client maps the first three names, and JSON shows the last one escaped.
        without_devices(&source);
        let raw = OsStr::from_bytes(b"\xff\xfe not utf-8 \x80");
        fs::remove_file(source.join(raw)).unwrap();
        fs::remove_dir_all(source.join("folders").join(raw)).unwrap();
        let (near_path, as_they_are) = (near.to_str().unwrap(), &["--names", "refuse"]);
        self.copy(served, as_they_are, &served.url("source"), near_path);
        same_as_seen(&source, &near);
        self.copy(served, as_they_are, near_path, &served.url("target"));
        content_same(&source, &served.behind("target"));
        let check = served.run("check").args(self.0).arg("--checksum");
        check.arg(served.url("source")).arg(served.url("target")).ok();
        assert_listing(&seen_listing(&source), &self.list(served, "source"));
        self.names_both_ways(served);
        case_twins(&served.behind("twins"));
        fs::remove_dir_all(&near).unwrap();
        self.copy(served, &[], &served.url("twins"), near_path);
        content_same(&served.behind("twins"), &near);
    }
}

impl Ropeway {
    /// Names that Windows forbids are mapped on one end and mapped back on the other: both disks
    /// have the same names.
    #[track_caller]
    fn names_both_ways(&self, served: &Served) {
        let (odd, near, back) = (
            served.behind("odd"),
            served.place.join("odd near"),
            served.behind("odd back"),
        );
        for folder in [&odd, &near, &back] {
            let _ = fs::remove_dir_all(folder);
        }
        odd_tree(&odd);
        self.copy(served, &[], &served.url("odd"), near.to_str().unwrap());
        content_same(&odd, &near);
        // Names of devices are mapped because of Windows, and no server maps them back.
        without_devices(&odd);
        without_devices(&near);
        self.copy(served, &[], near.to_str().unwrap(), &served.url("odd back"));
        content_same(&odd, &back);
    }
}

fn without_devices(tree: &Path) {
    for name in ["con", "COM1", "NUL.txt"] {
        fs::remove_file(tree.join(name)).unwrap();
        fs::remove_dir_all(tree.join("folders").join(name)).unwrap();
    }
}

#[test]
fn ropeway_in_every_dialect() {
    let served = Served::start(&[]);
    for flags in [
        &["--dialect", "2.0.2"],
        &["--dialect", "2.1"],
        &["--dialect", "3.0"],
        &["--dialect", "3.0.2"],
        &["--dialect", "3.1.1"],
        &["--encrypt", "required"],
    ] {
        println!("{flags:?}");
        Ropeway(flags).both_ways(&served);
    }
    served.stop();
}

/// SMB 2.0.2 reads 64 KiB at once, so larger blocks are read in pieces. The pool ran out of blocks
/// when each file had some pieces and waited for others.
#[test]
fn files_read_in_pieces_do_not_deadlock() {
    let served = Served::start(&[]);
    let source = served.behind("source");
    fs::create_dir(&source).unwrap();
    for number in 0..60 {
        file(&source.join(number.to_string()), 65_537, number);
    }
    file(&source.join("big"), (5 << 20) + 17, 60);
    let near = served.place.join("near");
    for _ in 0..5 {
        let from = served.url("source");
        Ropeway(&["--dialect", "2.0.2"]).copy(&served, &[], &from, near.to_str().unwrap());
        content_same(&source, &near);
        fs::remove_dir_all(&near).unwrap();
    }
    served.stop();
}

#[test]
fn ropeway_where_encryption_is_required() {
    let served = Served::start(&["--encrypt", "required"]);
    Ropeway(&[]).both_ways(&served);
    served.stop();
}

#[test]
fn lines_of_smbclient_are_parsed() {
    let line = "  two  spaces                         AH     1234  Sat Nov 21 20:00:00 2026";
    assert_eq!(smbclient_line(line), Some(("two  spaces".to_owned(), Some(1234))));
    let line = "  x                                   D        0  Sat Nov 21 20:00:00 2026";
    assert_eq!(smbclient_line(line), Some(("x".to_owned(), None)));
    assert_eq!(
        smbclient_line("  .                     D        0  Sat Nov 21 20:00:00 2026"),
        None
    );
    assert_eq!(smbclient_line(""), None);
}
