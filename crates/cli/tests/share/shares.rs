//! Shares as ends of a copy, with the real binary against a private smbd; and URLs that are refused
//! without a server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::support::{
    Ground, Place, Run, content_same, credentials, mixed, no_temporaries, one_line_and_a_hint, patterned,
    text,
};
use ropeway_peers::{ClosedPort, Share, or_skip};

#[test]
fn invalid_urls_are_refused() {
    let place = Place::new();
    text(&place.join("file"), "content");
    for arguments in [
        &["copy", "file", "smb://ann:hunter2@nas/share"][..],
        &["copy", "smb://ann@nas:0/share", "copied"],
        &["copy", "smb://ann@nas/", "copied"],
        &["copy", "file", "smb://ann@nas"],
        &["mirror", "smb://ann@[::1/share", "copied"],
        &["check", "smb://ann@fd00::1/share", "file"],
        &["check", "file", "smb://ann@nas/share/../x"],
        &["stat", "smb://ann@nas/share/%zz"],
        &["ls", "smb://"],
        &["mkdir", "smb://ann@nas/"],
        &["rm", "smb:///share"],
        &["mv", "file", "smb://ann@nas/share/file"],
        &["mv", "smb://ann@nas/one/file", "smb://ann@nas/other/"],
        &["mv", "smb://ann@nas/share/file", "smb://ann@other/share/"],
        &["copy", "--dialect", "1.0", "file", "smb://ann@nas/share"],
        &[
            "copy",
            "--dialect",
            "..2.1",
            "--max-dialect",
            "3.0",
            "file",
            "smb://ann@nas/share",
        ],
        &[
            "copy",
            "--encrypt",
            "required",
            "--max-dialect",
            "2.1",
            "file",
            "smb://ann@nas/share",
        ],
        &["copy", "--sign", "off", "file", "smb://ann@nas/share"],
        &["copy", "--channels", "0", "file", "smb://ann@nas/share"],
    ] {
        let finished = place.ropeway(arguments[0]).args(&arguments[1..]).exits(1);
        one_line_and_a_hint(&finished);
    }
    let finished = place
        .ropeway("mv")
        .args(["file", "smb://ann@nas/share/"])
        .exits(1);
    assert!(finished.mentions("copy --move"), "{finished}");
    assert!(!place.join("copied").exists());
}

#[test]
fn an_unreachable_server_is_reported() {
    let place = Place::new();
    text(&place.join("file"), "content");
    let port = ClosedPort::new().unwrap();
    let url = format!("smb://ann@{}/share", port.address());
    for arguments in [
        &["copy", "file", &url][..],
        &["copy", &url, "copied"],
        &["mirror", "--yes", &url, "copied"],
        &["check", &url, "file"],
        &["ls", &url],
        &["ls", &format!("smb://ann@{}/", port.address())],
        &["stat", &url],
        &["mkdir", "-p", &format!("{url}/a/b")],
        &["rm", "-rf", &format!("{url}/a")],
        &["mv", &format!("{url}/a"), &format!("{url}/b")],
    ] {
        let finished = place
            .ropeway(arguments[0])
            .args(&arguments[1..])
            .env("ROPEWAY_PASSWORD", "hunter2")
            .env("ROPEWAY_TIMEOUT", "2s")
            .exits(6);
        one_line_and_a_hint(&finished);
    }
    let finished = place
        .ropeway("copy")
        .args(["--json", &url, "copied"])
        .env("ROPEWAY_PASSWORD", "x")
        .exits(6);
    let last = finished.json().pop().unwrap();
    assert_eq!(
        (last["type"].as_str(), last["exit_code"].as_u64()),
        (Some("error"), Some(6))
    );
}

#[test]
fn credentials_are_private_and_complete() {
    let place = Place::new();
    let port = ClosedPort::new().unwrap();
    let url = format!("smb://ann@{}/share", port.address());
    let file = place.join("credentials");
    let ls = |code: i32| {
        let run = place.ropeway("ls").arg("--credentials").arg(&file).arg(&url);
        let finished = run.env("ROPEWAY_TIMEOUT", "2s").exits(code);
        one_line_and_a_hint(&finished);
        finished
    };
    text(&file, "username=ann\npassword=hunter2\n");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert!(ls(5).mentions("chmod 600"));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    // Valid, so ropeway tries the server, which does not exist.
    ls(6);
    text(&file, "username=ann\nhunter2\n");
    assert!(ls(1).mentions("credentials:2"));
    // A file for another user: there is no password, and no terminal to ask on.
    text(&file, "username=bob\npassword=hunter2\n");
    assert!(ls(5).mentions("ROPEWAY_PASSWORD"));
    fs::remove_file(&file).unwrap();
    ls(1);
    // A copy between local folders does not read it.
    text(&place.join("file"), "content");
    let run = place.ropeway("copy").arg("--credentials").arg(&file);
    run.args(["file", "copied"]).ok();
}

#[test]
fn shares_and_folders_are_listed() {
    let ground = or_skip!(Ground::start());
    fs::create_dir(ground.behind("data/sub")).unwrap();
    patterned(&ground.behind("data/sub/a file"), 5000);
    text(&ground.behind("data/top"), "x");
    let shares = ground.run("ls").arg(ground.url("")).ok();
    for name in ["data", "more", "fixed"] {
        assert!(shares.out.lines().any(|line| line == name), "{shares}");
    }
    let shares = ground.run("ls").arg("--json").arg(ground.url("")).ok();
    let kinds: Vec<_> = shares
        .of_type("share")
        .iter()
        .map(|share| share["kind"].clone())
        .collect();
    assert!(
        kinds.contains(&"disk".into()) && kinds.contains(&"pipes".into()),
        "{shares}"
    );
    assert_eq!(ground.run("ls").arg(ground.url("data")).ok().out, "sub\ntop\n");
    let all = ground.run("ls").arg("-R").arg(ground.url("data")).ok();
    assert_eq!(all.out, "sub\ntop\nsub/a file\n", "folder by folder");
    let long = ground.run("ls").arg("-l").arg(ground.url("data/sub")).ok();
    assert!(
        long.out.contains(" 5000 ") && long.out.ends_with("a file\n"),
        "{long}"
    );
    let json = ground
        .run("ls")
        .args(["--json", "-R"])
        .arg(ground.url("data"))
        .ok();
    let entries = json.of_type("entry");
    assert_eq!(entries.len(), 3, "{json}");
    assert_eq!(
        (entries[2]["path"].as_str(), entries[2]["size"].as_u64()),
        (Some("sub/a file"), Some(5000))
    );
    assert_eq!(json.summary()["nodes"], 3);
    ground.run("ls").arg(ground.url("data/none")).exits(3);
}

#[test]
fn stat_mkdir_mv_and_rm_work_on_shares() {
    let ground = or_skip!(Ground::start());
    text(&ground.behind("data/file"), "content");
    let stat = ground.run("stat").arg("--json").arg(ground.url("data/file")).ok();
    let node = &stat.of_type("node")[0];
    assert_eq!(
        (node["kind"].as_str(), node["size"].as_u64()),
        (Some("file"), Some(7)),
        "{stat}"
    );
    assert!(ground.run("stat").arg(ground.url("data")).ok().mentions("folder"));
    ground.run("stat").arg(ground.url("data/none")).exits(3);

    ground.run("mkdir").arg(ground.url("data/a/b")).exits(4);
    ground.run("mkdir").arg("-p").arg(ground.url("data/a/b%20c")).ok();
    assert!(ground.behind("data/a/b c").is_dir());
    ground.run("mkdir").arg("-p").arg(ground.url("data/a/b c")).ok();
    ground.run("mkdir").arg(ground.url("data/a")).exits(4);

    ground
        .run("mv")
        .args([ground.url("data/file"), ground.url("data/a")])
        .ok();
    assert!(ground.behind("data/a/file").is_file());
    ground
        .run("mv")
        .args([ground.url("data/a/file"), ground.url("data/named")])
        .ok();
    text(&ground.behind("data/other"), "other");
    ground
        .run("mv")
        .args([ground.url("data/named"), ground.url("data/other")])
        .exits(8);
    ground
        .run("mv")
        .arg("-f")
        .args([ground.url("data/named"), ground.url("data/other")])
        .ok();
    assert_eq!(fs::read(ground.behind("data/other")).unwrap(), b"content");
    let finished = ground
        .run("mv")
        .args([ground.url("data/other"), ground.url("more/")])
        .exits(1);
    assert!(finished.mentions("copy --move"), "{finished}");

    ground.run("rm").arg(ground.url("data/a")).exits(1);
    ground.run("rm").arg("-r").arg(ground.url("data/a")).exits(8);
    ground.run("rm").arg("-ry").arg(ground.url("data")).exits(8);
    ground.run("rm").args(["-r", "-n"]).arg(ground.url("data/a")).ok();
    assert!(ground.behind("data/a/b c").is_dir());
    ground.run("rm").arg("-ry").arg(ground.url("data/a")).ok();
    ground.run("rm").arg(ground.url("data/other")).ok();
    assert_eq!(fs::read_dir(ground.behind("data")).unwrap().count(), 0);
    ground.run("rm").arg(ground.url("data/none")).exits(4);
    ground.run("rm").arg("-f").arg(ground.url("data/none")).ok();
}

#[test]
fn every_command_prints_json_and_refuses_a_password_in_a_url() {
    let ground = or_skip!(Ground::start());
    text(&ground.place.join("file"), "content");
    let (file, dir) = (ground.url("data/file"), ground.url("data/dir"));
    let (named, data) = (ground.url("data/dir/named"), ground.url("data"));
    for (arguments, kind, action) in [
        (&["copy", "file", &file][..], "phase", ""),
        (&["mkdir", &dir], "item", "mkdir"),
        (&["mv", &file, &named], "item", "mv"),
        (&["ls", "-R", &data], "entry", ""),
        (&["stat", &named], "node", ""),
        (&["mirror", "--yes", &dir, "mirrored"], "phase", ""),
        (&["check", &dir, "mirrored"], "summary", ""),
        (&["rm", "-ry", &dir], "item", "delete"),
    ] {
        let with_password: Vec<String> = arguments[1..]
            .iter()
            .map(|argument| argument.replace("ann@", "ann:hunter2@"))
            .collect();
        let refused = ground.run(arguments[0]).args(&with_password).exits(1);
        one_line_and_a_hint(&refused);
        assert!(!refused.err.contains("ann:"), "{refused}");
        let run = ground.run(arguments[0]).arg("--json").args(&arguments[1..]);
        let finished = run.ok();
        assert_eq!(finished.summary()["exit_code"], 0, "{finished}");
        let lines = finished.of_type(kind);
        assert!(
            lines
                .iter()
                .any(|line| action.is_empty() || line["action"] == action),
            "{finished}"
        );
        let wrong = ground.run(arguments[0]).arg("--json").args(&arguments[1..]);
        let wrong = wrong.env("ROPEWAY_PASSWORD", "wrong").exits(5);
        let last = wrong.json().pop().unwrap();
        assert_eq!(
            (&last["type"], &last["exit_code"]),
            (&"error".into(), &5.into()),
            "{wrong}"
        );
        assert!(last["hint"].is_string(), "{wrong}");
    }
    assert!(!ground.behind("data/dir").exists());
    assert_eq!(fs::read(ground.place.join("mirrored/named")).unwrap(), b"content");
}

#[test]
fn trees_go_both_ways() {
    let ground = or_skip!(Ground::start());
    let source = ground.place.join("tree");
    mixed(&source);
    // Samba 4.17 accepts no symbolic links from SMB clients.
    for link in ["link", "dangling"] {
        fs::remove_file(source.join(link)).unwrap();
    }
    let copy = |from: &str, to: &str| {
        let finished = ground.run("copy").args(["--json", "--verify", from, to]).run();
        finished.assert_code(&[0]);
        assert_eq!(finished.number("errors"), 0, "{finished}");
        finished
    };
    // Into the share, which exists; the copy has the folder's name there.
    copy(source.to_str().unwrap(), &ground.url("data"));
    no_temporaries(&ground.behind("data"));
    copy(
        &ground.url("data/tree"),
        ground.place.join("back").to_str().unwrap(),
    );
    content_same(&source, &ground.place.join("back"));
    // From share to share, and again: nothing is sent.
    copy(&ground.url("data/tree"), &ground.url("more/tree"));
    let again = ground.run("copy").args(["--json", "-T"]);
    let again = again
        .arg(ground.url("data/tree"))
        .arg(ground.url("more/tree"))
        .ok();
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
    ground
        .run("check")
        .arg("--checksum")
        .args([ground.url("data/tree"), ground.url("more/tree")])
        .ok();
    text(&ground.behind("more/tree/extra"), "extra");
    ground
        .run("check")
        .args([ground.url("data/tree"), ground.url("more/tree")])
        .exits(7);
    ground
        .run("mirror")
        .arg("--yes")
        .args([ground.url("data/tree"), ground.url("more/tree")])
        .ok();
    assert!(!ground.behind("more/tree/extra").exists());
    ground
        .run("check")
        .args([ground.url("data/tree"), ground.url("more/tree")])
        .ok();
    // One file, to a new name.
    text(&ground.place.join("file"), "content");
    ground.run("copy").arg("file").arg(ground.url("data/named")).ok();
    assert_eq!(fs::read(ground.behind("data/named")).unwrap(), b"content");
}

#[test]
fn invalid_ends_on_a_share_are_refused() {
    let ground = or_skip!(Ground::start());
    fs::create_dir(ground.behind("data/dir")).unwrap();
    text(&ground.behind("data/dir/file"), "content");
    text(&ground.behind("data/file"), "content");
    text(&ground.place.join("local"), "content");
    let refused = |code: i32, from: &str, to: &str| {
        one_line_and_a_hint(&ground.run("copy").args([from, to]).exits(code));
    };
    let url = |path: &str| ground.url(path);
    refused(3, &url("data/none"), "copied");
    refused(3, &url("none/file"), "copied");
    refused(4, "local", &url("none"));
    refused(4, "local", &url("data/none/file"));
    refused(1, "local", &url("data/file/file"));
    refused(1, &url("data/dir"), &url("data/dir/inner"));
    refused(1, &url("data/dir"), &url("DATA/dir"));
    refused(1, &url("data/file"), &url("data/file"));
    refused(1, &url("data/dir"), &url("data/file"));
    refused(1, &url("data/dir"), &url("data/dir/file"));
    let before = fs::read_dir(ground.behind("data")).unwrap().count();
    assert_eq!(before, 2);
}

#[test]
fn missing_permissions_are_reported() {
    let ground = or_skip!(Ground::start());
    text(&ground.place.join("local"), "content");
    let wrong = |run: Run| {
        let finished = run.env("ROPEWAY_PASSWORD", "hunter2").exits(5);
        one_line_and_a_hint(&finished);
    };
    wrong(ground.place.ropeway("ls").arg(ground.url("")));
    wrong(ground.place.ropeway("copy").arg(ground.url("data")).arg("copied"));
    wrong(ground.place.ropeway("copy").arg("local").arg(ground.url("data")));
    wrong(
        ground
            .place
            .ropeway("stat")
            .arg(ground.smbd.url_as(Some("nobody-here"), "data")),
    );
    let finished = ground.place.ropeway("ls").arg(ground.url("data")).exits(5);
    one_line_and_a_hint(&finished);
    // A read-only share.
    let finished = ground.run("copy").arg("local").arg(ground.url("fixed")).run();
    finished.assert_code(&[4, 5]);
    ground
        .run("mkdir")
        .arg(ground.url("fixed/new"))
        .run()
        .assert_code(&[4, 5]);
    assert_eq!(fs::read_dir(ground.behind("fixed")).unwrap().count(), 0);
}

#[test]
fn a_password_comes_from_a_file_too() {
    let ground = or_skip!(Ground::start());
    text(&ground.behind("data/file"), "content");
    let file = ground.place.join("credentials");
    credentials(&file);
    let ls = ground.place.ropeway("ls").arg("--credentials").arg(&file);
    assert_eq!(ls.arg(ground.url("data")).ok().out, "file\n");
    // The file gives the user too.
    let ls = ground.place.ropeway("ls").arg("--credentials").arg(&file);
    assert_eq!(ls.arg(ground.smbd.url_as(None, "data")).ok().out, "file\n");
}

#[test]
fn flags_reach_the_server() {
    let ground = or_skip!(Ground::start());
    text(&ground.behind("data/file"), "content");
    for flags in [
        &["--max-dialect", "2.0.2", "--encrypt", "off"][..],
        &["--dialect", "2.1", "--sign", "required"],
        &["--dialect", "3.0", "--encrypt", "required"],
        &["--dialect", "3.0.2..", "--sign", "offered", "--encrypt", "off"],
        &["--dialect", "3.1.1", "--encrypt", "required", "--channels", "1"],
        &["--tcp-window", "1M", "--timeout", "10s", "--compress"],
    ] {
        let ls = ground.run("ls").args(flags).arg(ground.url("data")).ok();
        assert_eq!(ls.out, "file\n");
    }
}

#[test]
fn a_share_inside_another_share_is_recognised() {
    let ground = or_skip!(Ground::with(|place, builder| {
        let dir = place.folder("data/dir");
        text(&dir.join("file"), "content");
        place.folder("data/dir/below");
        builder
            .share(Share::new("data", &place.join("data")))
            .share(Share::new("inner", &dir))
    }));
    let copy = |from: &str, to: &str| {
        let ends = [ground.url(from), ground.url(to)];
        ground.run("copy").arg("-T").args(ends).exits(1)
    };
    // A folder whose last access is older than its last change: Samba reports that as its creation
    // time until it is listed.
    let dir = ground.behind("data/dir");
    let touched = std::process::Command::new("touch")
        .args(["-a", "-d", "2026-01-01"])
        .arg(&dir)
        .status();
    assert!(touched.unwrap().success());
    assert!(copy("data/dir", "inner/below").mentions("inside the source"));
    assert!(copy("data/dir", "inner").mentions("the same"));
    assert!(copy("data/dir/file", "inner/file").mentions("the same"));
    let ends = [ground.url("data/dir/below"), ground.url("inner")];
    let finished = ground.run("mirror").arg("--yes").args(ends).exits(1);
    assert!(finished.mentions("inside the target"), "{finished}");
}

#[test]
fn names_with_any_bytes_work_in_urls() {
    let ground = or_skip!(Ground::start());
    text(&ground.place.join("file"), "content");
    for name in ["100%25", "%3A%3A1", "@GMT like", "%C3%A9t%C3%A9", "a;b@c#d"] {
        if name.contains("%3A") {
            // No server accepts a colon; the server's message is passed on.
            ground
                .run("mkdir")
                .arg(ground.url(&format!("data/{name}")))
                .exits(4);
            continue;
        }
        ground.run("mkdir").arg(ground.url(&format!("data/{name}"))).ok();
        ground
            .run("copy")
            .arg("file")
            .arg(ground.url(&format!("data/{name}/")))
            .ok();
        let ls = ground.run("ls").arg(ground.url(&format!("data/{name}"))).ok();
        assert_eq!(ls.out, "file\n");
    }
    assert!(ground.behind("data/été/file").is_file() && ground.behind("data/100%/file").is_file());
    // A byte that is not UTF-8 is sent to the server as U+EFFF, and comes back.
    ground.run("mkdir").arg(ground.url("data/odd%FF")).ok();
    ground
        .run("copy")
        .arg("file")
        .arg(ground.url("data/odd%FF/"))
        .ok();
    ground.run("copy").arg(ground.url("data/odd%FF")).arg("back").ok();
    assert_eq!(fs::read(ground.place.join("back/file")).unwrap(), b"content");
}

#[test]
fn a_copy_to_a_share_resumes_after_a_kill() {
    let ground = or_skip!(Ground::start());
    let source = ground.place.folder("tree");
    for number in 0..4 {
        patterned(&source.join(format!("{number}")), 8 << 20);
    }
    let copy = || {
        ground
            .run("copy")
            .args(["--json", "tree"])
            .arg(ground.url("data"))
    };
    let mut running = copy().args(["--bwlimit", "8M"]).start();
    running.reach("bytes_sent", 16 << 20);
    running.kill();
    let again = copy().ok();
    assert_eq!(again.summary()["resumed"], true, "{again}");
    assert_eq!(again.number("files"), 4, "{again}");
    content_same(&source, &ground.behind("data/tree"));
    no_temporaries(&ground.behind("data"));
    assert_eq!(fs::read_dir(ground.behind("data")).unwrap().count(), 1);
}

#[test]
fn a_trace_has_operations_of_both_ends() {
    let ground = or_skip!(Ground::start());
    text(&ground.place.join("file"), "content");
    let copy = ground.run("copy").args(["--trace", "trace", "file"]);
    copy.arg(ground.url("data")).ok();
    let shown = ground.run("trace").args(["--json", "trace"]).ok();
    for end in ["source", "target"] {
        assert!(
            shown.json().iter().any(|line| line["end"] == end),
            "{end}: {shown}"
        );
    }
}
