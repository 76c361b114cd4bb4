//! Clients and folders that are not as they should be, and processes that die or hang.

use std::fs;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{NOBODY, Place, file, needs, or_skip, same, skip, wait_until};
use crate::top::{MIB, PATIENCE, View, slow_copy, socket, top};

#[test]
fn hostile_clients_disturb_nobody() {
    let place = Place::new();
    let running = slow_copy(&place);
    let mut good = View::open(&place, running.id());
    good.until("it reads", |job| job["counters"]["bytes_read"].as_u64() > Some(0));
    let mut silent = View::open(&place, running.id());
    silent.send(r#"{"do":"watch","interval_ms":1}"#);
    for line in [
        "",
        "{}",
        "[[[[",
        "{\"do\":\"boil\"}",
        "\u{0}\u{1b}[2J",
        "{\"do\":\"status\",\"history\":7}",
    ] {
        let mut view = View::open(&place, running.id());
        view.send(line);
        if !line.is_empty() {
            let reply = view.receive();
            assert!(
                reply["ok"] == false && reply["error"].is_string(),
                "{line:?}: {reply}"
            );
        }
        // It is still answered.
        assert!(view.snapshot()["jobs"].is_array());
    }
    let mut long = View::open(&place, running.id());
    // It may be dropped before it has sent all of it.
    _ = long.0.get_mut().write_all(&vec![b'x'; 1 << 20]);
    let mut rest = String::new();
    _ = long.0.read_to_string(&mut rest);
    assert!(rest.is_empty() || rest.contains("too long"), "{rest}");
    // Of very many, some are told that there are too many.
    let crowd: Vec<View> = (0..300).map(|_| View::open(&place, running.id())).collect();
    let mut told = 0;
    for mut view in crowd {
        view.0
            .get_mut()
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut line = String::new();
        told += usize::from(view.0.read_line(&mut line).is_ok() && line.contains("too many views"));
    }
    assert!(told > 0, "nobody was refused");
    assert!(good.snapshot()["jobs"].is_array());
    good.order(json!({"do": "bwlimit", "value": "off"}));
    running.wait().assert_code(&[0]);
    same(&place.join("big"), &place.join("target"));
}

#[test]
fn what_dead_processes_left_is_removed() {
    let place = Place::new();
    let first = slow_copy(&place);
    drop(View::open(&place, first.id()));
    let dead = socket(&place, first.id());
    first.kill();
    assert!(dead.exists(), "a killed process cannot remove it");
    assert_eq!(top(&place), Vec::<Value>::new());
    assert!(!dead.exists(), "top removes it");
    // The number of the name is that of a process that runs and does not listen: this test.
    let own = socket(&place, std::process::id());
    drop(UnixListener::bind(&own).unwrap());
    // And one whose number nobody has.
    let nobody = socket(&place, 4_194_305);
    drop(UnixListener::bind(&nobody).unwrap());
    let second = place.copy("big", "other").args(["--bwlimit", "1M"]).start();
    let mut view = View::open(&place, second.id());
    assert!(!nobody.exists(), "the next process removes it");
    let told = top(&place);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["process"]["pid"], second.id());
    assert!(!own.exists());
    view.order(json!({"do": "cancel"}));
    second.wait().assert_code(&[130]);
}

#[test]
fn a_folder_that_is_not_private_is_refused_and_the_copy_goes_on() {
    let place = Place::new();
    file(&place.join("big"), 3 * MIB, 1);
    let folder = place.folder(".run/ropeway");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = |what: &str| {
        let running = place
            .copy("big", format!("to-{what}"))
            .args(["--bwlimit", "1M"])
            .start();
        let id = running.id();
        running.wait().assert_code(&[0]);
        assert!(!socket(&place, id).exists());
        let listed = place.ropeway("top").arg("--once").ok();
        assert!(
            listed.err.contains("left out") && listed.err.contains(what),
            "{listed}"
        );
        // Others of this machine may be listed.
        let is_listed = |line: &str| line.split_whitespace().next() == Some(&id.to_string());
        assert!(!listed.out.lines().any(is_listed), "{listed}");
    };
    refused("open to others");
    or_skip!(needs(true, &[]));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    // Root looks at folders of all users; processes of root use none of them.
    let running = place.copy("big", "to-foreign").args(["--bwlimit", "1M"]).start();
    let id = running.id();
    running.wait().assert_code(&[0]);
    assert!(!socket(&place, id).exists());
}

/// Not whatever PATH has: another user may not be allowed to run that.
const PYTHON: &str = "/usr/bin/python3";

/// Connects as another user, and returns what the process says.
const CONNECT: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
s.connect(sys.argv[1])
try:
    s.sendall(b'{\"do\":\"cancel\"}\\n')
except OSError:
    pass
print(s.makefile().readline())
";

#[test]
fn another_user_is_refused_and_root_sees_everybody() {
    or_skip!(needs(true, &["setpriv"]));
    if !Path::new(PYTHON).exists() {
        skip!("no {PYTHON}");
    }
    let place = Place::new();
    let running = slow_copy(&place);
    let mut view = View::open(&place, running.id());
    view.until("it reads", |job| job["counters"]["bytes_read"].as_u64() > Some(0));
    // As if somebody had opened the folder after the socket was made.
    let path = socket(&place, running.id());
    for (path, mode) in [
        (place.join(".run"), 0o755),
        (place.join(".run/ropeway"), 0o755),
        (path.clone(), 0o777),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let id = NOBODY.to_string();
    let said = Command::new("setpriv")
        .args([
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            PYTHON,
            "-c",
            CONNECT,
        ])
        .arg(&path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("belongs to another user"), "{said}");
    assert_eq!(view.job()["stopping"], false);
    view.order(json!({"do": "cancel"}));
    running.wait().assert_code(&[130]);

    // A place without folders of root's own runs.
    let place = Place::new();
    let theirs = place.folder_of_nobody("theirs");
    fs::write(theirs.join("big"), vec![1; 8 << 20]).unwrap();
    let run = or_skip!(place.ropeway_as_nobody("copy"));
    let running = run
        .args(["--bwlimit", "1M"])
        .args([theirs.join("big"), theirs.join("copy")])
        .start();
    let of_nobody = |user: &str| {
        let top = place.ropeway("top").args(["--once", "--json", "--user", user]);
        let finished = top.env("TMPDIR", place.join(".tmp")).ok();
        let all: Value = serde_json::from_str(&finished.out).unwrap();
        all.as_array().unwrap().clone()
    };
    let mut seen = Vec::new();
    let is_seen = wait_until(PATIENCE, || {
        seen = of_nobody(&id);
        seen.iter()
            .any(|process| process["jobs"][0]["target"].is_string())
    });
    assert!(is_seen, "{seen:?}");
    assert_eq!(
        (seen.len(), &seen[0]["process"]["uid"]),
        (1, &json!(NOBODY)),
        "{seen:?}"
    );
    // Others of root may run meanwhile.
    let of_root = of_nobody("0");
    assert!(
        of_root.iter().all(|process| process["process"]["uid"] == 0),
        "{of_root:?}"
    );
    running.wait().assert_code(&[0]);
}

#[test]
fn a_process_that_hangs_delays_nobody() {
    let place = Place::new();
    let (one, other) = (
        slow_copy(&place),
        place.copy("big", "other").args(["--bwlimit", "1M"]).start(),
    );
    for running in [&one, &other] {
        View::open(&place, running.id())
            .until("it reads", |job| job["counters"]["bytes_read"].as_u64() > Some(0));
    }
    one.signal(Signal::STOP);
    let told = top(&place);
    let of = |id: u32| told.iter().find(|told| told["process"]["pid"] == id).unwrap();
    assert_eq!(of(one.id())["error"], "it does not answer", "{told:?}");
    assert_eq!(of(other.id())["jobs"][0]["kind"], "copy", "{told:?}");
    let table = place.ropeway("top").arg("--once").ok();
    assert!(
        table.out.contains("it does not answer") && table.out.contains("/other"),
        "{table}"
    );
    one.signal(Signal::CONT);
    for running in [one, other] {
        View::open(&place, running.id()).order(json!({"do": "cancel"}));
        running.wait().assert_code(&[130]);
    }
}
