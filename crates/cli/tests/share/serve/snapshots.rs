//! Snapshots of a share as previous versions: what smbclient and our own client see of them.

use std::fs;

use crate::serve::server::{PASSWORD, Served, ground};
use crate::support::{Place, needs, or_skip, text};

const THEN: &str = "@GMT-2026.11.25-04.25.00";
const LATER: &str = "@GMT-2026.11.26-04.25.00";

/// Starts a server of `data`, whose snapshots of two days lie in `snap`.
fn served(place: &Place, password: &str) -> Served {
    text(&place.folder("data/deep").join("a.txt"), "now");
    for (day, content) in [("25", "then"), ("26", "later")] {
        let folder = place.folder(&format!("snap/auto-2026-11-{day}-0425Z/deep"));
        text(&folder.join("a.txt"), content);
        text(&folder.join("gone.txt"), "deleted since");
    }
    place.folder("snap/by hand");
    let share = format!("data:snapshots={}", place.join("snap/*").display());
    Served::start(
        place,
        &[
            "--user",
            "ann",
            "--password-file",
            password,
            "--sign",
            "offered",
            &share,
        ],
    )
}

#[test]
fn clients_see_what_was() {
    let (place, password) = ground();
    let served = served(&place, &password);
    let ropeway = |command: &str| place.ropeway(command).env("ROPEWAY_PASSWORD", PASSWORD);
    let url = |path: &str| format!("smb://ann@127.0.0.1:{}/data/{path}", served.port);
    for (token, content) in [(THEN, "then"), (LATER, "later")] {
        let listed = ropeway("ls").arg(url(&format!("{token}/deep"))).ok().out;
        assert!(
            listed.contains("a.txt") && listed.contains("gone.txt"),
            "{listed}"
        );
        let near = place.join(token);
        ropeway("copy")
            .args(["-T", &url(&format!("{token}/deep"))])
            .arg(&near)
            .ok();
        assert_eq!(fs::read_to_string(near.join("a.txt")).unwrap(), content);
    }
    // Back to where it was deleted, which is how people use it.
    let from = url(&format!("{THEN}/deep/gone.txt"));
    ropeway("copy").args(["-T", &from, &url("deep/gone.txt")]).ok();
    let back = fs::read_to_string(place.join("data/deep/gone.txt")).unwrap();
    assert_eq!(back, "deleted since");
    let missing = url("@GMT-2026.11.25-04.25.01/deep");
    ropeway("ls").arg(missing).exits(3);
    // One that is made now is there at once.
    text(&place.folder("snap/2026-11-27_00-00-00Z").join("new"), "new");
    ropeway("ls")
        .arg(url("@GMT-2026.11.27-00.00.00"))
        .ok()
        .mentions("new");
    assert_eq!(fs::read_to_string(place.join("data/deep/a.txt")).unwrap(), "now");
    served.stop();
}

#[test]
fn smbclient_sees_them_and_changes_nothing() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, password) = ground();
    let served = served(&place, &password);
    let listed = served.works("data", "ann", PASSWORD, "allinfo deep/a.txt");
    for token in [THEN, LATER] {
        assert!(listed.contains(token), "{listed}");
    }
    let near = place.join("near").display().to_string();
    served.works(
        "data",
        "ann",
        PASSWORD,
        &format!("get \\{THEN}\\deep\\a.txt \"{near}\""),
    );
    assert_eq!(fs::read_to_string(&near).unwrap(), "then");
    for change in [
        format!("put \"{near}\" \\{THEN}\\deep\\b.txt"),
        format!("put \"{near}\" \\{THEN}\\deep\\a.txt"),
        format!("mkdir \\{THEN}\\x"),
        format!("rm \\{THEN}\\deep\\a.txt"),
        format!("rmdir \\{THEN}\\deep"),
    ] {
        served.fails("data", "ann", PASSWORD, &change, "NT_STATUS_");
    }
    for (day, content) in [("25", "then"), ("26", "later")] {
        let folder = place.join(format!("snap/auto-2026-11-{day}-0425Z"));
        assert_eq!(fs::read_to_string(folder.join("deep/a.txt")).unwrap(), content);
        assert_eq!(fs::read_dir(folder.join("deep")).unwrap().count(), 2);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }
    served.stop();
}

/// A link in a snapshot leads nowhere outside it.
#[test]
fn nothing_escapes_from_a_snapshot() {
    or_skip!(needs(false, &["smbclient"]));
    let (place, password) = ground();
    text(&place.join("secret"), "secret");
    let served = served(&place, &password);
    let folder = place.join("snap/auto-2026-11-25-0425Z");
    std::os::unix::fs::symlink(place.join("secret"), folder.join("out")).unwrap();
    std::os::unix::fs::symlink("../../secret", folder.join("up")).unwrap();
    std::os::unix::fs::symlink("deep/a.txt", folder.join("inside")).unwrap();
    let near = place.join("near");
    let get = |name: &str| format!("get \\{THEN}\\{name} \"{}\"", near.display());
    for name in [
        "out",
        "up",
        "..\\..\\secret",
        "..\\auto-2026-11-26-0425Z\\deep\\a.txt",
    ] {
        served.fails("data", "ann", PASSWORD, &get(name), "NT_STATUS_");
        let stolen = fs::read_to_string(&near).unwrap_or_default();
        assert!(stolen.is_empty(), "{name}: {stolen}");
    }
    served.works("data", "ann", PASSWORD, &get("inside"));
    assert_eq!(fs::read_to_string(&near).unwrap(), "then");
    served.stop();
}

#[test]
fn folders_without_snapshots_are_refused() {
    let (place, _) = ground();
    place.folder("data");
    let refused = |share: &str, code: i32, says: &str| {
        let finished = place.ropeway("serve").arg(share).exits(code);
        assert!(finished.mentions(says), "{share}: {says} expected: {finished}");
        assert_eq!(finished.err.lines().count(), 2, "{finished}");
    };
    refused("data:snapshots", 3, "no .zfs/snapshot and no .snapshots");
    refused("data:snapshots=/missing/*", 3, "/missing/*");
    refused(
        "smb://ann@127.0.0.1:1/data:snapshots",
        1,
        "folders of this machine",
    );
}
