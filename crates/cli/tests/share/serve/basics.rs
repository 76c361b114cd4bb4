//! Users, shares, reload and messages.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::serve::server::{PASSWORD, Served, add_user, ground, shown};
use crate::support::{Place, needs, or_skip, text, walk};

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

    // Invalid input changes nothing.
    assert!(user(&["add", "carl"]).exits(5).mentions("--password-file"));
    user(&["add", "guest"]).env("ROPEWAY_PASSWORD", "x").exits(1);
    user(&["rm", "ann", "nobody"]).exits(1);
    assert_eq!(fs::read_to_string(&file).unwrap(), content);
    user(&["rm", "ANN"]).ok();
    assert_eq!(user(&["list"]).ok().out, "Bob\n");

    // With another file of users.
    let other = place.join("other").display().to_string();
    user(&["add", "dora", "--users", &other])
        .env("ROPEWAY_PASSWORD", "x")
        .ok();
    assert_eq!(user(&["list"]).env("ROPEWAY_USERS", &other).ok().out, "dora\n");
    fs::write(place.config_file(), format!("[serve]\nusers = {other:?}\n")).unwrap();
    assert_eq!(user(&["list"]).ok().out, "dora\n");

    // A file that other users can read is refused, by the server too.
    fs::set_permissions(&other, Permissions::from_mode(0o644)).unwrap();
    assert!(user(&["list"]).exits(5).mentions("chmod 600"));
    place.ropeway("serve").arg("data").exits(5);
}

#[test]
fn wrong_usage_gives_one_line_and_changes_nothing() {
    let (place, password) = ground();
    place.folder("user");
    text(&place.join("plain"), "");
    let refused = |code: i32, arguments: &[&str], says: &str| {
        let finished = place.ropeway("serve").args(arguments).exits(code);
        assert!(finished.mentions(says), "{says} expected: {finished}");
        assert_eq!(finished.err.lines().count(), 2, "{finished}");
    };
    refused(1, &[], "there is no folder to share");
    refused(3, &["missing"], "missing");
    refused(3, &["plain"], "plain");
    refused(3, &["data:readonly"], ":ro, :encrypt, :timemachine, :bin");
    refused(3, &["data:bin=30"], ":bin=30d");
    refused(1, &["data:ro:bin"], "nothing is deleted in data");
    refused(1, &["a=data:bin", "b=data:bin=7d"], "two recycle bins");
    refused(1, &["a=data", "A=data"], "would both have the name A");
    refused(1, &["IPC$=data"], "reserved");
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
        "other users can read",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(6, &["data", "--listen", &address], "another program");
    refused(
        6,
        &["data", "--listen", "192.0.2.1:4450"],
        "this machine has no such address",
    );
    if let Ok(run) = place.ropeway_as_nobody("serve") {
        let finished = run.args(["data", "--listen", "127.0.0.1:444"]).run();
        // Some systems give every port to every user.
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
    // Our own client accepts the printed URL.
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
fn the_start_message_has_urls_users_and_protection() {
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
        "users: ann",
        "every request is signed",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("pass phrase"), "{out}");
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_code(&[0]);
    assert!(
        finished.out.ends_with("stopped; all written data is durable\n"),
        "{finished}"
    );
    assert!(finished.err.contains("stopping"), "{finished}");
}

#[test]
fn each_share_has_its_own_options() {
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

/// Returns the files in a share's recycle bin, beneath the day, with their content.
fn in_the_bin(place: &Place) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let bin = place.join("data/.recycle");
    for day in fs::read_dir(bin).into_iter().flatten().flatten() {
        for entry in walk(&day.path()).into_iter().filter(|node| node.is_file()) {
            let name = entry.strip_prefix(day.path()).unwrap().display().to_string();
            found.push((name, fs::read_to_string(entry).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn deleted_files_are_kept_in_the_bin() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, password) = ground();
    for name in ["one", "two", "three"] {
        text(&place.folder("data/deep").join(name), name);
    }
    let served = Served::start(
        &place,
        &[
            "--user",
            "ann",
            "--password-file",
            &password,
            "--smb1",
            "--sign",
            "offered",
            "data:bin=7d,1M",
        ],
    );
    served.works("data", "ann", PASSWORD, "rm deep/one");
    let url = format!("smb://ann@127.0.0.1:{}/data", served.port);
    let ropeway = |command: &str| place.ropeway(command).env("ROPEWAY_PASSWORD", PASSWORD);
    ropeway("rm").arg(format!("{url}/deep/two")).ok();
    let old = served.smbclient(
        "data",
        "ann",
        PASSWORD,
        "rm deep/three",
        &["-m", "NT1", "--option=client min protocol=NT1"],
    );
    assert!(old.status.success(), "{}", shown(&old));
    let expected = ["deep/one", "deep/three", "deep/two"].map(|name| (name.to_owned(), name[5..].to_owned()));
    assert_eq!(in_the_bin(&place), expected);
    // What a mirror deletes is kept, too; temporary names of copies and what is large are not.
    text(&place.join("data/deep/one"), "another");
    fs::write(place.join("data/deep/large"), vec![0; (1 << 20) + 1]).unwrap();
    text(&place.folder("new").join("file"), "content");
    ropeway("mirror")
        .args(["--yes", "--exclude", ".recycle", "new"])
        .arg(&url)
        .ok();
    let names: Vec<String> = in_the_bin(&place).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["deep/one", "deep/one", "deep/three", "deep/two"]);
    // Back from the bin, and out of it for good.
    let day = fs::read_dir(place.join("data/.recycle"))
        .unwrap()
        .flatten()
        .map(|day| day.file_name())
        .min()
        .unwrap();
    let day = day.to_str().unwrap();
    served.works(
        "data",
        "ann",
        PASSWORD,
        &format!("rename .recycle/{day}/deep/two back; rm .recycle/{day}/deep/three"),
    );
    assert_eq!(fs::read_to_string(place.join("data/back")).unwrap(), "two");
    assert_eq!(in_the_bin(&place).len(), 2);
    served.stop();

    text(
        &place.folder("second").join(".recycle"),
        "a file in the bin's place",
    );
    let taken = place.ropeway("serve").arg("second:bin").exits(3);
    assert!(taken.mentions("cannot have a recycle bin"), "{taken}");
    let far = place
        .ropeway("serve")
        .args(["far=smb://ann@127.0.0.1:1/data:bin"])
        .exits(1);
    assert!(far.mentions(":bin is for folders of this machine"), "{far}");
}

#[test]
fn anonymous_sessions_are_accepted_on_request_only() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, _) = ground();
    let served = Served::start(&place, &["data:ro", "--anonymous"]);
    assert_eq!(served.listening["pass_phrase"], Value::Null);
    assert!(served.works("data", "", "", "ls").contains("file"));
    served.stop();
}

#[test]
fn guest_sessions_are_accepted_on_request_only() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, _) = ground();
    add_user(&place, "ann", PASSWORD);
    let served = Served::start(&place, &["data"]);
    served.fails("data", "guest", "", "ls", "NT_STATUS_LOGON_FAILURE");
    served.fails("data", "", "", "ls", "NT_STATUS_");
    served.stop();
    let served = Served::start(&place, &["data:ro", "--guest"]);
    assert!(served.works("data", "guest", "", "ls").contains("file"));
    assert!(served.works("data", "ann", PASSWORD, "ls").contains("file"));
    served.fails("data", "guest", "a password", "ls", "NT_STATUS_LOGON_FAILURE");
    served.fails("data", "nobody known", "", "ls", "NT_STATUS_LOGON_FAILURE");
    served.fails("data", "", "", "ls", "NT_STATUS_");
    let ours = format!("smb://guest@127.0.0.1:{}/data", served.port);
    place.ropeway("ls").arg(&ours).ok();
    served.stop();
}

#[test]
fn a_reload_changes_users_and_shares_and_drops_no_client() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, _) = ground();
    text(&place.folder("second").join("two"), "2");
    let config = place.config_file();
    let shares = |list: &str| fs::write(&config, format!("[serve]\nshare = [{list}]\n")).unwrap();
    shares("\"data\"");
    add_user(&place, "ann", PASSWORD);
    let mut served = Served::start(&place, &[]);
    served.fails("data", "bob", "b", "ls", "NT_STATUS_LOGON_FAILURE");

    // This client stays connected: its requests after the reload use the same connection.
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

    // Errors are reported, and nothing changes.
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

/// `--links`: links that ropeway copies to the share are created as far as the server allows. Also
/// smbclient's `hardlink`, whose new name starts with a separator.
#[test]
fn links_are_created_as_the_flag_allows() {
    let (place, password) = ground();
    let tree = place.folder("tree");
    std::os::unix::fs::symlink("file", tree.join("inside")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", tree.join("absolute")).unwrap();
    std::os::unix::fs::symlink("../../x", tree.join("out")).unwrap();
    for (flag, code, expected) in [
        (None, 1, &["inside"][..]),
        (Some("any"), 0, &["absolute", "inside", "out"]),
        (Some("refuse"), 1, &[]),
    ] {
        let mut arguments = vec!["--user", "ann", "--password-file", &password, "data"];
        arguments.extend(flag.iter().flat_map(|flag| ["--links", flag]));
        let served = Served::start(&place, &arguments);
        let copied = place
            .ropeway("copy")
            .arg("tree")
            .arg(format!(
                "smb://ann@127.0.0.1:{}/data/{}/",
                served.port,
                flag.unwrap_or("default")
            ))
            .env("ROPEWAY_PASSWORD", PASSWORD)
            .run();
        assert_eq!(copied.code() == Some(0), code == 0, "{flag:?}: {copied}");
        let made = place.join("data").join(flag.unwrap_or("default"));
        let mut names: Vec<_> = match fs::read_dir(&made) {
            Ok(entries) => entries.map(|entry| entry.unwrap().file_name()).collect(),
            Err(_) => Vec::new(),
        };
        names.sort();
        assert_eq!(names, expected, "{flag:?}: {copied}");
        if flag.is_none() && needs(false, &["smbclient"]).is_ok() {
            served.works("data", "ann", PASSWORD, "hardlink file twin");
            assert_eq!(fs::read(place.join("data/twin")).unwrap(), b"content");
        }
        served.stop();
    }
}
