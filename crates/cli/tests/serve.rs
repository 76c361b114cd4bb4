//! `ropeway serve` as its user sees it: users, shares, reload, audit, metrics, stopping. The real binary, on loopback.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod support;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::{Finished, Place, Running, needs, or_skip, text, wait_until};

const PASSWORD: &str = "correct horse";

/// A server under way.
struct Served {
    running: Running,
    port: u16,
    listening: Value,
    folder: PathBuf,
}

impl Served {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let run = place.ropeway("serve").args(["--json", "--listen", "127.0.0.1:0"]);
        let mut running = run.args(arguments).start();
        let listens = running.until(|running| running.stdout().contains("\"listening\""));
        assert!(listens, "{}\n{}", running.stdout(), running.stderr());
        let out = running.stdout();
        let line = out.lines().find(|line| line.contains("\"listening\"")).unwrap();
        let listening: Value = serde_json::from_str(line).unwrap();
        let address = listening["addresses"][0].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self {
            running,
            port,
            listening,
            folder: place.path().to_owned(),
        }
    }

    fn stop(self) -> Finished {
        self.running.signal(Signal::TERM);
        let finished = self.running.wait();
        finished.assert_code(&[0]);
        finished
    }

    /// SIGHUP; the lines that it made.
    fn reload(&mut self) -> Vec<Value> {
        let before = self.running.stdout().lines().count();
        self.running.signal(Signal::HUP);
        let told = |running: &Running| {
            let out = running.stdout();
            out.lines().skip(before).any(|line| line.contains("\"reloaded\""))
        };
        assert!(self.running.until(told), "{}", self.running.stderr());
        let out = self.running.stdout();
        out.lines()
            .skip(before)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn smbclient(&self, share: &str, user: &str, password: &str, command: &str, more: &[&str]) -> Output {
        let mut process = Command::new("smbclient");
        process
            .arg(format!("//127.0.0.1/{share}"))
            .args(["-p", &self.port.to_string(), "-s", "/dev/null", "-m", "SMB3"])
            .args(more)
            .args(["-c", command])
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null());
        if user.is_empty() {
            process.arg("-U%");
        } else {
            process.arg("-U").arg(format!("{user}%{password}"));
        }
        process.output().unwrap()
    }

    #[track_caller]
    fn works(&self, share: &str, user: &str, password: &str, command: &str) -> String {
        let output = self.smbclient(share, user, password, command, &[]);
        let shown = shown(&output);
        assert!(output.status.success(), "{shown}\n{}", self.running.stderr());
        shown
    }

    #[track_caller]
    fn fails(&self, share: &str, user: &str, password: &str, command: &str, why: &str) {
        let output = self.smbclient(share, user, password, command, &[]);
        let shown = shown(&output);
        assert!(shown.contains(why), "{why} expected: {shown}");
    }
}

fn shown(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn private(place: &Place, name: &str, content: &str) -> PathBuf {
    let path = place.join(name);
    text(&path, content);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// A folder `data` with `file` in it, and a password file.
fn ground() -> (Place, String) {
    let place = Place::new();
    text(&place.folder("data").join("file"), "content");
    let password = private(&place, "password", &format!("{PASSWORD}\n"));
    (place, password.display().to_string())
}

fn add_user(place: &Place, name: &str, password: &str) {
    let run = place.ropeway("serve").args(["user", "add", name]);
    run.env("ROPEWAY_PASSWORD", password).ok();
}

#[test]
fn users_are_added_listed_and_removed() {
    let (place, password) = ground();
    let user = |arguments: &[&str]| place.ropeway("serve").arg("user").args(arguments);
    user(&["add", "ann", "--password-file", &password]).ok();
    user(&["add", "Bob"]).env("ROPEWAY_PASSWORD", "x").ok();
    assert_eq!(user(&["list"]).ok().out, "ann\nBob\n");
    let listed = user(&["list", "--json"]).ok().of_type("user");
    assert_eq!(listed[1]["name"], "Bob");
    let file = place.join(".config/ropeway/users");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let content = fs::read_to_string(&file).unwrap();
    assert!(!content.contains(PASSWORD), "{content}");

    // What is wrong changes nothing.
    assert!(user(&["add", "carl"]).exits(5).mentions("--password-file"));
    user(&["add", "guest"]).env("ROPEWAY_PASSWORD", "x").exits(1);
    user(&["rm", "ann", "nobody"]).exits(1);
    assert_eq!(fs::read_to_string(&file).unwrap(), content);
    user(&["rm", "ANN"]).ok();
    assert_eq!(user(&["list"]).ok().out, "Bob\n");

    // Elsewhere.
    let other = place.join("other").display().to_string();
    user(&["add", "dora", "--users", &other])
        .env("ROPEWAY_PASSWORD", "x")
        .ok();
    assert_eq!(user(&["list"]).env("ROPEWAY_USERS", &other).ok().out, "dora\n");
    fs::write(place.config_file(), format!("[serve]\nusers = {other:?}\n")).unwrap();
    assert_eq!(user(&["list"]).ok().out, "dora\n");

    // A file that others may read is refused, by the server too.
    fs::set_permissions(&other, Permissions::from_mode(0o644)).unwrap();
    assert!(user(&["list"]).exits(5).mentions("chmod 600"));
    place.ropeway("serve").arg("data").exits(5);
}

#[test]
fn wrong_use_is_one_line_and_touches_nothing() {
    let (place, password) = ground();
    place.folder("user");
    text(&place.join("plain"), "");
    let refused = |code: i32, arguments: &[&str], says: &str| {
        let finished = place.ropeway("serve").args(arguments).exits(code);
        assert!(finished.mentions(says), "{says} expected: {finished}");
        assert_eq!(finished.err.lines().count(), 2, "{finished}");
    };
    refused(1, &[], "no folder is named");
    refused(3, &["missing"], "missing");
    refused(3, &["plain"], "plain");
    refused(3, &["data:readonly"], ":ro and :encrypt");
    refused(1, &["a=data", "A=data"], "would both be called A");
    refused(1, &["IPC$=data"], "servers need");
    refused(1, &[&format!("{}=data", "x".repeat(81))], "80");
    refused(
        1,
        &["data", "--min-dialect=3.0", "--max-dialect=2.1"],
        "--min-dialect",
    );
    refused(
        1,
        &["data", "--encrypt=required", "--max-dialect=2.1"],
        "no encryption",
    );
    refused(1, &["data:encrypt", "--encrypt=off"], "does not encrypt");
    refused(1, &["data", "--encrypt=required", "--anonymous"], "--anonymous");
    refused(1, &["data", "--listen=nas"], "--listen");
    refused(1, &["data", "--name=a b"], "--name");
    fs::set_permissions(&password, Permissions::from_mode(0o640)).unwrap();
    refused(
        5,
        &["data", "--user=ann", "--password-file", &password],
        "others may read",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(6, &["data", "--listen", &address], "another program");
    refused(
        6,
        &["data", "--listen", "192.0.2.1:4450"],
        "no address of this machine",
    );
    if let Ok(run) = place.ropeway_as_nobody("serve") {
        let finished = run.args(["data", "--listen", "127.0.0.1:444"]).run();
        // Some systems let everybody have every port.
        if finished.code() != Some(0) {
            finished.assert_code(&[5]);
            assert!(finished.mentions("ropeway-serve.service"), "{finished}");
        }
    }
}

#[test]
fn without_a_user_there_is_a_random_pass_phrase() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, _) = ground();
    let served = Served::start(&place, &["data"]);
    let phrase = served.listening["pass_phrase"].as_str().unwrap().to_owned();
    assert_eq!(phrase.len(), 35);
    assert_eq!(served.listening["users"][0], "ropeway");
    let url = served.listening["urls"][0].as_str().unwrap().to_owned();
    assert_eq!(url, format!("smb://ropeway@127.0.0.1:{}/data", served.port));
    assert!(served.works("data", "ropeway", &phrase, "ls").contains("file"));
    served.fails("data", "ropeway", "wrong", "ls", "NT_STATUS_LOGON_FAILURE");
    served.fails("data", "", "", "ls", "NT_STATUS_");
    // Our own client takes the URL as it is.
    let run = place.ropeway("ls").arg(&url).env("ROPEWAY_PASSWORD", &phrase);
    assert!(run.ok().mentions("file"));
    let finished = served.stop();
    let last = finished.json().pop().unwrap();
    assert_eq!(
        (&last["type"], &last["durable"]),
        (&"stopped".into(), &true.into())
    );
}

#[test]
fn people_are_told_what_they_need() {
    let (place, password) = ground();
    let run = place
        .ropeway("serve")
        .args(["--listen", "127.0.0.1:0", "--user", "ann"]);
    let mut running = run.args(["--password-file", &password, "pics=data:ro"]).start();
    assert!(
        running.until(|running| running.stdout().contains("Ctrl-C")),
        "{}",
        running.stderr()
    );
    let out = running.stdout();
    for line in [
        "smb://ann@127.0.0.1:",
        "/pics  (",
        "read-only)",
        "may log in: ann",
        "every request is signed",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("pass phrase"), "{out}");
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(
        finished.out.ends_with("stopped; everything written is durable\n"),
        "{finished}"
    );
    assert!(finished.err.contains("stopping"), "{finished}");
}

#[test]
fn shares_have_options_of_their_own() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, password) = ground();
    text(&place.folder("user").join("inside"), "x");
    let one = ["--user", "ann", "--password-file", &password];
    let arguments = [
        &one[..],
        &[
            "w=data",
            "r=data:ro",
            "e=data:encrypt",
            "./user",
            "--share",
            "more=data",
        ],
    ]
    .concat();
    let served = Served::start(&place, &arguments);
    served.works("w", "ann", PASSWORD, "put password new; rm new");
    served.fails("r", "ann", PASSWORD, "put password new", "NT_STATUS_");
    assert!(!place.join("data/new").exists());
    assert!(served.works("user", "ann", PASSWORD, "ls").contains("inside"));
    assert!(served.works("more", "ann", PASSWORD, "ls").contains("file"));
    let old = served.smbclient("e", "ann", PASSWORD, "ls", &["-m", "SMB2_10"]);
    assert!(shown(&old).contains("NT_STATUS_ACCESS_DENIED"), "{}", shown(&old));
    let sealed = served.smbclient("e", "ann", PASSWORD, "ls", &["--client-protection=encrypt"]);
    assert!(sealed.status.success(), "{}", shown(&sealed));
    served.stop();

    let served = Served::start(
        &place,
        &[&one[..], &["data", "--read-only", "--max-dialect=2.1"]].concat(),
    );
    served.fails("data", "ann", PASSWORD, "mkdir x", "NT_STATUS_");
    let new = served.smbclient(
        "data",
        "ann",
        PASSWORD,
        "ls",
        &["--option=client min protocol=SMB3"],
    );
    assert!(!new.status.success(), "{}", shown(&new));
    served.stop();
}

#[test]
fn nobody_gets_in_only_when_asked_for() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, _) = ground();
    let served = Served::start(&place, &["data:ro", "--anonymous"]);
    assert_eq!(served.listening["pass_phrase"], Value::Null);
    assert!(served.works("data", "", "", "ls").contains("file"));
    served.stop();
}

#[test]
fn a_reload_changes_users_and_shares_and_drops_nobody() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, _) = ground();
    text(&place.folder("second").join("two"), "2");
    let config = place.config_file();
    let shares = |list: &str| fs::write(&config, format!("[serve]\nshare = [{list}]\n")).unwrap();
    shares("\"data\"");
    add_user(&place, "ann", PASSWORD);
    let mut served = Served::start(&place, &[]);
    served.fails("data", "bob", "b", "ls", "NT_STATUS_LOGON_FAILURE");

    // A client that stays: what it asks after the reload is answered on the connection it had.
    let mut staying = Command::new("smbclient")
        .arg("//127.0.0.1/data")
        .args(["-p", &served.port.to_string(), "-s", "/dev/null", "-m", "SMB3"])
        .args(["-U", &format!("ann%{PASSWORD}")])
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    staying.stdin.as_mut().unwrap().write_all(b"ls\n").unwrap();
    std::thread::sleep(Duration::from_millis(500));

    add_user(&place, "bob", "b");
    shares("\"data\", \"two=second:ro\"");
    let told = served.reload().pop().unwrap();
    let changes = told["changes"].to_string();
    assert!(
        changes.contains("user bob added") && changes.contains("share two added"),
        "{told}"
    );
    assert!(served.works("two", "bob", "b", "ls").contains("two"));
    staying
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"get file after\nquit\n")
        .unwrap();
    assert!(staying.wait().unwrap().success());
    let mut said = String::new();
    staying.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains("NT_STATUS"), "{said}");
    assert_eq!(fs::read_to_string(place.join("after")).unwrap(), "content");

    // What is wrong is told, and nothing changes.
    shares("\"gone\"");
    let told = served.reload();
    assert!(
        told[0]["message"]
            .as_str()
            .unwrap()
            .contains("the shares stay as they were"),
        "{told:?}"
    );
    assert!(served.works("two", "bob", "b", "ls").contains("two"));
    fs::write(&config, "[serve]\nshare = 7 8\n").unwrap();
    assert_eq!(served.reload()[0]["type"], "warning");
    shares("\"second\"");
    place.ropeway("serve").args(["user", "rm", "ann"]).ok();
    let changes = served.reload().pop().unwrap()["changes"].to_string();
    for change in [
        "user ann removed",
        "share data removed",
        "share two removed",
        "share second added",
    ] {
        assert!(changes.contains(change), "{change}: {changes}");
    }
    served.fails("second", "ann", PASSWORD, "ls", "NT_STATUS_LOGON_FAILURE");
    served.fails("data", "bob", "b", "ls", "NT_STATUS_BAD_NETWORK_NAME");
    served.stop();
}

#[test]
fn the_audit_has_who_did_what() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, password) = ground();
    let audit = place.join("audit");
    let path = audit.display().to_string();
    let arguments = [
        "data",
        "--user",
        "ann",
        "--password-file",
        &password,
        "--audit",
        &path,
    ];
    let mut served = Served::start(&place, &arguments);
    served.works(
        "data",
        "ann",
        PASSWORD,
        "put password new; rename new newer; rm newer",
    );
    served.fails("data", "ann", "wrong", "ls", "NT_STATUS_LOGON_FAILURE");
    let lines = |path: &Path| -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    // The file is rotated.
    let old = place.join("audit.1");
    assert!(wait_until(Duration::from_secs(10), || {
        lines(&audit)
            .iter()
            .any(|line| line["status"] == "STATUS_LOGON_FAILURE")
    }));
    fs::rename(&audit, &old).unwrap();
    served.reload();
    served.works("data", "ann", PASSWORD, "ls");
    served.stop();
    let (old, new) = (lines(&old), lines(&audit));
    assert!(!new.is_empty());
    for line in old.iter().chain(&new) {
        let time = line["time"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        assert!(line["action"].is_string() && line["status"].is_string(), "{line}");
    }
    let login = old.iter().find(|line| line["action"] == "login").unwrap();
    assert_eq!(
        (&login["user"], &login["status"]),
        (&"ann".into(), &"STATUS_SUCCESS".into())
    );
    assert!(login["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    let about = |name: &str| {
        old.iter()
            .any(|line| line["path"] == name && line["share"] == "data")
    };
    assert!(about("new"), "{old:?}");
    assert_eq!(fs::metadata(&audit).unwrap().permissions().mode() & 0o777, 0o600);
}

fn ask(address: &str, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_count() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, password) = ground();
    let arguments = [
        "data",
        "--user",
        "ann",
        "--password-file",
        &password,
        "--http",
        "0",
    ];
    let served = Served::start(&place, &arguments);
    let http = served.listening["http"].as_str().unwrap().to_owned();
    assert!(http.starts_with("127.0.0.1:"), "loopback unless told: {http}");
    served.works("data", "ann", PASSWORD, "get file /dev/null; put password new");
    served.fails("data", "ann", "wrong", "ls", "NT_STATUS_LOGON_FAILURE");
    let page = ask(&http, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let value = |name: &str| -> f64 {
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {page}")).parse().unwrap()
    };
    assert_eq!(value("ropeway_smb_read_bytes_total"), 7.0);
    assert_eq!(
        value("ropeway_smb_written_bytes_total"),
        PASSWORD.len() as f64 + 1.0
    );
    assert_eq!(value("ropeway_smb_logins_failed_total"), 1.0);
    assert!(value("ropeway_smb_logins_total") >= 1.0);
    assert!(value("ropeway_smb_requests_total") >= 4.0);
    assert!(value("process_open_fds") > 3.0 && value("process_resident_memory_bytes") > 1e6);
    assert!(ask(&http, "GET /healthz HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
    assert!(ask(&http, "DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    served.stop();
}

#[test]
fn several_addresses_are_listened_on_and_a_loopback_is_not_announced() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, password) = ground();
    let one = ["--user", "ann", "--password-file", &password];
    let served = Served::start(
        &place,
        &[&one[..], &["data", "--listen", "127.0.0.2:0", "--announce"]].concat(),
    );
    let addresses = served.listening["addresses"].as_array().unwrap();
    assert_eq!(addresses.len(), 2);
    for address in addresses {
        let url = format!("smb://ann@{}/data", address.as_str().unwrap());
        let run = place.ropeway("ls").arg(&url).env("ROPEWAY_PASSWORD", PASSWORD);
        assert!(run.ok().mentions("file"), "{url}");
    }
    let finished = served.stop();
    let warnings = finished.of_type("warning");
    assert!(
        warnings[0]["message"].as_str().unwrap().contains("loopback"),
        "{finished}"
    );
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/ropeway-serve.service");
    let content = fs::read_to_string(&unit).unwrap();
    let capabilities = content.lines().filter(|line| line.contains("CAP_"));
    for line in capabilities {
        let (_, value) = line.split_once('=').unwrap();
        assert_eq!(value, "CAP_NET_BIND_SERVICE", "{line}");
    }
    let exec = content
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    // Its flags are flags: only the folder is missing here.
    let place = Place::new();
    let arguments = exec.split_whitespace().skip(2);
    let finished = place.ropeway("serve").args(arguments).exits(1);
    assert!(finished.mentions("no folder is named"), "{finished}");

    or_skip!(needs(false, &["systemd-analyze"]));
    // The program need not be installed for the check.
    let here = content.replace("/usr/bin/ropeway", "/bin/true");
    let copy = place.join("ropeway-serve.service");
    text(&copy, &here);
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&copy)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = shown(&output);
    let about_it: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("ropeway-serve"))
        .collect();
    if !output.status.success() && about_it.is_empty() {
        support::skip!("systemd-analyze does not work here: {said}");
    }
    assert!(about_it.is_empty(), "{said}");
}

/// A query of one question, as plain DNS has it, and what the answer says as text.
fn dns_answer(question: &[u8]) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let socket = std::net::UdpSocket::bind("192.0.2.7:0").map_err(text)?;
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .map_err(text)?;
    let query = [&b"\x12\x34\0\0\0\x01\0\0\0\0\0\0"[..], question, b"\0\x0c\0\x01"].concat();
    let mut answer = [0; 1500];
    // It probes for a second before it answers.
    for _ in 0..40 {
        socket.send_to(&query, "224.0.0.251:5353").map_err(text)?;
        if let Ok(length) = socket.recv(&mut answer) {
            let answer = &answer[..length];
            assert!(answer.starts_with(b"\x12\x34\x84\0\0\x01"), "{answer:?}");
            return Ok(String::from_utf8_lossy(answer).into_owned());
        }
    }
    Err("no answer".to_owned())
}

#[test]
fn an_announced_server_is_found() {
    or_skip!(needs(true, &["unshare", "ip"]));
    let (place, password) = ground();
    let set_up = "ip link set lo up && ip link add net0 type veth peer name net1 && ip link set net1 up && ip addr add 192.0.2.7/24 dev net0 && \
                  ip link set net0 up && exec \"$@\"";
    let before = ["unshare", "-n", "sh", "-c", set_up, "sh"];
    if let Err(why) = support::tool("unshare", &[&before[1..], &["true"]].concat()) {
        support::skip!("no network namespaces here: {why}");
    }
    let run = place
        .ropeway_by(&before, "serve")
        .args(["--json", "--name", "nas", "--announce"]);
    let run = run.args([
        "data",
        "--user",
        "ann",
        "--password-file",
        &password,
        "--listen",
        "192.0.2.7:4450",
    ]);
    let mut running = run.start();
    let listens = running.until(|running| running.stdout().contains("\"listening\""));
    assert!(listens, "{}", running.stderr());
    let space = fs::File::open(format!("/proc/{}/ns/net", running.id())).unwrap();
    let asked = std::thread::spawn(move || {
        use std::os::fd::AsFd;
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(space.as_fd(), kind).map_err(|error| error.to_string())?;
        dns_answer(b"\x04_smb\x04_tcp\x05local\0")
    });
    let answer = asked.join().unwrap().unwrap();
    assert!(answer.contains("nas\u{4}_smb\u{4}_tcp\u{5}local"), "{answer:?}");
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(finished.of_type("warning").is_empty(), "{finished}");
}
