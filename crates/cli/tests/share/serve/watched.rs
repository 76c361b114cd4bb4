//! Audit log, metrics, announcements, signals and the systemd unit.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::serve::server::{PASSWORD, Served, ground, shown};
use crate::support::{self, Place, needs, or_skip, text, wait_until};

#[test]
fn the_audit_log_has_user_action_and_status() {
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
    let deletion = old.iter().find(|line| line["action"] == "delete").unwrap();
    assert_eq!(
        (&deletion["user"], &deletion["path"]),
        (&"ann".into(), &"newer".into())
    );
    let failed = old.iter().find(|line| line["status"] == "STATUS_LOGON_FAILURE");
    assert_eq!(
        failed.unwrap()["user"],
        "ann",
        "the user whose password was tried"
    );
    assert_eq!(fs::metadata(&audit).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_blocked_audit_log_delays_no_client_and_a_second_signal_ends_at_once() {
    or_skip!(needs(false, &["smbclient", "mkfifo"]));
    let (place, password) = ground();
    let fifo = place.join("fifo");
    let path = fifo.display().to_string();
    support::tool("mkfifo", &[&path]).unwrap();
    // Full, and without a reader.
    let mut full = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let flags = rustix::fs::fcntl_getfl(&full).unwrap();
    rustix::fs::fcntl_setfl(&full, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while full.write(&[b'\n'; 4096]).is_ok() {}
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
    for _ in 0..3 {
        assert!(served.works("data", "ann", PASSWORD, "ls").contains("file"));
    }
    served.running.signal(Signal::TERM);
    // Connections end at once; the server still waits for the audit log.
    std::thread::sleep(Duration::from_millis(500));
    assert!(served.running.runs());
    served.running.signal(Signal::INT);
    served.running.wait().assert_code(&[130]);
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
    assert!(http.starts_with("127.0.0.1:"), "loopback by default: {http}");
    served.works("data", "ann", PASSWORD, "get file /dev/null; put password new");
    served.fails("data", "ann", "wrong", "ls", "NT_STATUS_LOGON_FAILURE");
    let page = ask(&http, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
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
fn several_addresses_work_and_the_loopback_is_not_announced() {
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
fn the_systemd_unit_is_valid() {
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
    // All its flags are valid: only the folder is missing here.
    let place = Place::new();
    let arguments = exec.split_whitespace().skip(2);
    let finished = place.ropeway("serve").args(arguments).exits(1);
    assert!(finished.mentions("there is no folder to share"), "{finished}");

    or_skip!(needs(false, &["systemd-analyze"]));
    // The program need not be installed for this check.
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

/// Returns the reply to a datagram sent to a multicast group.
fn asked(query: &[u8], group: &str) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let socket = std::net::UdpSocket::bind("192.0.2.7:0").map_err(text)?;
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .map_err(text)?;
    let mut answer = [0; 4000];
    // The server probes for a second before it replies.
    for _ in 0..40 {
        socket.send_to(query, group).map_err(text)?;
        if let Ok(length) = socket.recv(&mut answer) {
            return Ok(answer[..length].to_vec());
        }
    }
    Err(format!("no answer from {group}"))
}

/// Queries multicast DNS as a client that knows only DNS does, and WS-Discovery as Windows does.
fn find() -> Result<(String, String, String), String> {
    let query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x04_smb\x04_tcp\x05local\0\0\x0c\0\x01";
    let dns = asked(query, "224.0.0.251:5353")?;
    assert!(dns.starts_with(b"\x12\x34\x84\0\0\x01"), "{dns:?}");
    let message = |action: &str| {
        format!(
            "<s:Envelope><s:Header><w:Action>{action}</w:Action><w:MessageID>urn:uuid:7</w:MessageID></s:Header>\
             <s:Body><d:Probe><d:Types>p:Device</d:Types></d:Probe></s:Body></s:Envelope>"
        )
    };
    let probe = message("http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe");
    let found = String::from_utf8(asked(probe.as_bytes(), "239.255.255.250:3702")?).unwrap();
    let (_, uuid) = found
        .split_once("<a:Address>urn:uuid:")
        .ok_or_else(|| found.clone())?;
    let get = message("http://schemas.xmlsoap.org/ws/2004/09/transfer/Get");
    let about = ask(
        "192.0.2.7:5357",
        &format!(
            "POST /{} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{get}",
            &uuid[..36],
            get.len()
        ),
    );
    Ok((String::from_utf8_lossy(&dns).into_owned(), found, about))
}

#[test]
fn a_server_beyond_the_loopback_is_found() {
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
        .args(["--json", "--name", "nas"]);
    let run = run.args([
        "data",
        "--user",
        "ann",
        "--password-file",
        &password,
        "--listen",
        "192.0.2.7",
    ]);
    let mut running = run.start();
    let listens = running.until(|running| running.stdout().contains("\"listening\""));
    assert!(listens, "{}", running.stderr());
    let space = fs::File::open(format!("/proc/{}/ns/net", running.id())).unwrap();
    let finder = std::thread::spawn(move || {
        use std::os::fd::AsFd;
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(space.as_fd(), kind).map_err(|error| error.to_string())?;
        find()
    });
    let (dns, found, about) = finder.join().unwrap().unwrap();
    assert!(dns.contains("nas\u{4}_smb\u{4}_tcp\u{5}local"), "{dns:?}");
    assert!(found.contains("ProbeMatches"), "{found}");
    assert!(about.contains("<c:Computer>nas-ropeway/Workgroup:"), "{about}");
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(finished.of_type("warning").is_empty(), "{finished}");
}
