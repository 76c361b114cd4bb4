//! `serve --smb1` with the real binary, smbclient, and our own client. The odd tree that other
//! clients copy is in `serve_interop.rs`.

#![cfg(feature = "smb1")]

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{
    self, Place, Served, content_same, credentials, file, mixed, one_line_and_a_hint, or_skip, program, text,
};
use ropeway_peers::{Dissection, PeerError, Recorder};
use serde_json::Value;

/// Runs smbclient with SMB 1 alone. Returns whether it succeeded, and what it said.
fn smbclient(served: &Served, arguments: &[&str]) -> Result<(bool, String), String> {
    let smbclient = program("smbclient").ok_or("smbclient is not installed")?;
    let secret = served.place.join(".smbclient");
    credentials(&secret);
    let output = Command::new("timeout")
        .arg("90")
        .arg(smbclient)
        .args(["--configfile", "/dev/null", "-m", "NT1"])
        .arg("--option=client min protocol=NT1")
        .args(["--port", &served.address().port().to_string()])
        .arg("--authentication-file")
        .arg(secret)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

fn share(served: &Served) -> String {
    format!("//{}/data", served.address().ip())
}

#[test]
fn smbclient_lists_and_changes() {
    let served = Served::start(&["--smb1"]);
    let server = served.address().ip().to_string();
    let (ok, said) = or_skip!(smbclient(&served, &["-L", &server]));
    assert!(ok && said.contains("data") && said.contains("IPC$"), "{said}");
    text(&served.behind("a.txt"), "content");
    let near = served.place.join("near");
    text(&near, "from here");
    let commands = format!(
        "put \"{}\" up.txt; rename up.txt new.txt; mkdir folder; cd folder; put \"{}\" in.txt; cd ..; \
         get a.txt \"{}\"; allinfo a.txt; setmode a.txt +h; del nothing-else*; rmdir folder; hardlink a.txt b.txt",
        near.display(),
        near.display(),
        served.place.join("down").display()
    );
    let (_, said) = or_skip!(smbclient(&served, &[&share(&served), "-c", &commands]));
    assert_eq!(
        fs::read(served.behind("new.txt")).unwrap(),
        b"from here",
        "{said}"
    );
    assert_eq!(fs::read(served.place.join("down")).unwrap(), b"content", "{said}");
    assert!(
        said.contains("NT_STATUS_NO_SUCH_FILE"),
        "nothing to delete: {said}"
    );
    assert!(said.contains("NT_STATUS_DIRECTORY_NOT_EMPTY"), "{said}");
    let remove = "cd folder; del in.txt; cd ..; rmdir folder; del *.txt";
    let (ok, said) = or_skip!(smbclient(&served, &[&share(&served), "-c", remove]));
    assert!(ok && !served.behind("folder").exists(), "{said}");
    assert!(!served.behind("new.txt").exists(), "{said}");
    let finished = served.stop();
    let warnings = finished.err.matches("speaks SMB 1").count();
    assert!(
        warnings == 1 && finished.mentions("--smb1: SMB 1 is neither"),
        "{finished}"
    );
}

#[test]
fn read_only_and_encrypted_shares_hold() {
    let served = Served::start(&["--smb1", "--read-only", "sealed=.:encrypt"]);
    text(&served.behind("a.txt"), "content");
    let (_, said) = or_skip!(smbclient(
        &served,
        &[&share(&served), "-c", "del a.txt; mkdir new; ls"]
    ));
    assert!(
        said.contains("NT_STATUS_MEDIA_WRITE_PROTECTED") || said.contains("NT_STATUS_ACCESS_DENIED"),
        "{said}"
    );
    assert!(
        served.behind("a.txt").exists() && !served.behind("new").exists(),
        "{said}"
    );
    let sealed = format!("//{}/sealed", served.address().ip());
    let (ok, said) = or_skip!(smbclient(&served, &[&sealed, "-c", "ls"]));
    assert!(!ok && said.contains("NT_STATUS_ACCESS_DENIED"), "{said}");
    served.stop();
}

#[test]
fn smbclient_is_refused_without_the_flag() {
    let served = Served::start(&[]);
    let (ok, said) = or_skip!(smbclient(&served, &[&share(&served), "-c", "ls"]));
    assert!(!ok, "{said}");
    assert!(!served.stop().mentions("speaks SMB 1"));
}

#[test]
fn our_client_copies_a_tree_both_ways() {
    let served = Served::start(&["--smb1"]);
    let source = served.place.join("source");
    mixed(&source);
    for link in ["link", "dangling"] {
        fs::remove_file(source.join(link)).unwrap();
    }
    let url = |path: &str| served.url(path).replacen("smb://", "smb1://", 1);
    let (near, back) = (source.to_str().unwrap().to_owned(), served.place.join("back"));
    let copied = served.run("copy").args(["-T", &near, &url("target")]).ok();
    content_same(&source, &served.behind("target"));
    assert!(copied.mentions("SMB 1 is neither"), "{copied}");
    served
        .run("check")
        .args(["--checksum", &near, &url("target")])
        .ok();
    served.run("copy").args(["-T", &url("target")]).arg(&back).ok();
    content_same(&source, &back);
    let shares = served.run("ls").arg(url("").replace("data/", "")).ok();
    assert!(shares.mentions("data"), "{shares}");
    served.stop();
}

/// What client and server say, as tshark reads it, an independent reader.
#[test]
fn nothing_is_malformed() {
    let served = Served::start(&["--smb1"]);
    let (source, far, near) = (
        served.place.join("source"),
        served.behind("copied"),
        served.place.join("near"),
    );
    mixed(&source);
    for link in ["link", "dangling"] {
        fs::remove_file(source.join(link)).unwrap();
    }
    let recorder = Recorder::start(served.address()).unwrap();
    let url = format!("smb1://ann@{}/data/copied", recorder.address());
    let (source, near_name) = (source.display().to_string(), near.display().to_string());
    served.run("copy").args(["-T", &source, &url]).ok();
    served.run("ls").args(["-l", &url]).ok();
    served.run("copy").args(["-T", &url, &near_name]).ok();
    served.run("check").args([&url, &near_name]).ok();
    text(&near.join("new"), "more");
    served.run("mirror").args(["--yes", &near_name, &url]).ok();
    content_same(&near, &far);
    let capture = served.place.join("recorded.pcap");
    recorder.finish(&capture).unwrap();
    let found = match Dissection::of(&capture) {
        Err(PeerError::Missing { what, .. }) => support::skip!("{what}"),
        found => found.unwrap(),
    };
    assert!(found.complaints.is_empty(), "{:#?}", found.complaints);
    assert!(found.asked.is_empty(), "SMB 2 was spoken: {:?}", found.asked);
    // NEGOTIATE, SESSION_SETUP_ANDX, TREE_CONNECT_ANDX, NT_CREATE_ANDX, READ_ANDX, WRITE_ANDX, CLOSE,
    // TRANSACTION2, LOGOFF_ANDX, TREE_DISCONNECT ([MS-CIFS] 2.2.2.1).
    for command in [0x72, 0x73, 0x75, 0xA2, 0x2E, 0x2F, 0x04, 0x32] {
        assert!(found.smb1.contains(&command), "{command:#x} in {:x?}", found.smb1);
    }
}

#[test]
fn smb1_cannot_encrypt() {
    let place = Place::new();
    place.folder("data");
    let run = place.ropeway("serve").args([
        "--smb1",
        "--encrypt",
        "required",
        "--listen",
        "127.0.0.1:0",
        "data",
    ]);
    let finished = run.exits(1);
    one_line_and_a_hint(&finished);
    assert!(finished.mentions("SMB 1 cannot encrypt"), "{finished}");
}

/// What a server recorded of reads or writes: size of the largest, and how many were in flight at most.
fn recorded(kept: &Place, trace: &str, kind: &str) -> (u64, usize) {
    let lines = kept.ropeway("trace").args(["--json", "--kind", kind, trace]).ok();
    let lines = lines.out.lines();
    let operations: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let number = |operation: &Value, name: &str| operation[name].as_u64().unwrap();
    let span = |operation: &Value| {
        let start = number(operation, "t_ns");
        start..start + number(operation, "duration_ns")
    };
    let spans: Vec<_> = operations.iter().map(span).collect();
    let at = |moment: &u64| spans.iter().filter(|span| span.contains(moment)).count();
    let lengths = operations.iter().map(|operation| number(operation, "length"));
    let most = spans.iter().map(|span| at(&span.start)).max();
    (lengths.max().unwrap(), most.unwrap())
}

/// Reads and writes of the systems of the past, as a server sees them.
#[test]
fn engines_of_the_past_ask_as_they_did() {
    for (engine, scheme, [read, written], in_flight) in [
        ("xp-smb1", "smb1", [61_440, 65_536], 1),
        ("win7-smb1", "smb1", [32_768, 32_768], 15),
        ("win7-smb2", "smb", [65_536, 65_536], 64),
    ] {
        let kept = Place::new();
        for (kind, size) in [("read", read), ("write", written)] {
            let trace = kept.join(kind).display().to_string();
            let served = Served::start(&["--smb1", "--sign", "offered", "--trace", &trace]);
            let url = served.url("big").replacen("smb", scheme, 1);
            let (far, near) = (served.behind("big"), served.place.join("big"));
            let near_name = near.display().to_string();
            let (source, ends) = match kind {
                "read" => (&far, [&url, &near_name]),
                _ => (&near, [&near_name, &url]),
            };
            file(source, 1_000_003, 1);
            let copy = served
                .run("copy")
                .args(["--engine", engine, "--sign", "offered", "-T"]);
            copy.args(ends).ok();
            content_same(&far, &near);
            served.stop();
            let (largest, most) = recorded(&kept, kind, kind);
            assert_eq!(largest, size, "{engine} {kind}");
            assert!(most <= in_flight, "{engine} {kind}: {most} in flight");
        }
    }
}

#[test]
fn engines_of_the_past_need_servers_of_their_protocol() {
    let served = Served::start(&["--smb1"]);
    text(&served.behind("a.txt"), "content");
    let smb = served.url("a.txt");
    let smb1 = smb.replacen("smb", "smb1", 1);
    for (engine, from, reason) in [
        (
            "xp-smb1",
            smb.as_str(),
            "--engine xp-smb1 speaks SMB 1, and smb://",
        ),
        (
            "win7-smb2",
            smb1.as_str(),
            "--engine win7-smb2 speaks SMB 2, and smb1://",
        ),
        ("win7-smb1", "here", "no end is one"),
    ] {
        text(&served.place.join("here"), "content");
        let refused = served.run("copy").args(["--engine", engine, from, "there"]).run();
        refused.assert_code(&[1]);
        assert!(refused.mentions(reason), "{refused}");
        one_line_and_a_hint(&refused);
        assert!(!served.place.join("there").exists());
    }
    let sealed = served
        .run("copy")
        .args(["--engine", "win7-smb2", "--encrypt", "required"]);
    let refused = sealed.args([smb.as_str(), "there"]).run();
    refused.assert_code(&[1]);
    assert!(
        refused.mentions("speaks SMB 2.0.2, which has no encryption"),
        "{refused}"
    );
    served.stop();
}
