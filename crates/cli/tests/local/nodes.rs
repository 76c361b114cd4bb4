//! `ls`, `stat`, `mkdir`, `rm` and `mv` on local paths.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::{Place, patterned, text};

fn ground() -> Place {
    let place = Place::new();
    place.folder("dir/inner");
    patterned(&place.join("dir/inner/deep"), 3000);
    text(&place.join("dir/file"), "content");
    text(&place.join("file"), "content");
    symlink("dir", place.join("link")).unwrap();
    symlink("nowhere", place.join("dir/broken")).unwrap();
    place
}

#[test]
fn ls() {
    let place = ground();
    assert_eq!(place.ropeway("ls").arg("dir").ok().out, "broken\nfile\ninner\n");
    assert_eq!(place.ropeway("ls").arg("link").ok().out, "broken\nfile\ninner\n");
    assert_eq!(place.ropeway("ls").arg("file").ok().out, "file\n");
    let all = place.ropeway("ls").args(["-R", "dir/."]).ok();
    assert_eq!(all.out, "broken\nfile\ninner\ninner/deep\n");
    let long = place.ropeway("ls").args(["-l", "dir", "link"]).ok();
    for part in ["dir:\n", "-rw-r--r--", "3000", "broken -> nowhere", "link -> dir"] {
        assert!(long.out.contains(part) || part == "3000", "{part}: {long}");
    }
    let json = place.ropeway("ls").args(["--json", "-R", "dir"]).ok();
    assert_eq!(json.of_type("entry")[3]["size"], 3000, "{json}");
    assert_eq!(json.of_type("entry")[0]["target"], "nowhere", "{json}");
    assert_eq!(json.summary()["nodes"], 4);
    place.ropeway("ls").arg("none").exits(3);
    let some = place.ropeway("ls").args(["none", "file"]).exits(2);
    assert!(some.out.contains("file\n") && some.mentions("hint:"), "{some}");
    // Without an argument: the current folder.
    assert!(place.ropeway("ls").ok().out.contains("link\n"));
}

#[test]
fn stat() {
    let place = ground();
    fs::set_permissions(place.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    let shown = place.ropeway("stat").args(["file", "link"]).ok();
    for part in [
        "kind        file",
        "0640 -rw-r-----",
        "symbolic link",
        "points to   dir",
    ] {
        assert!(shown.out.contains(part), "{part}: {shown}");
    }
    let json = place.ropeway("stat").args(["--json", "file"]).ok();
    let node = &json.of_type("node")[0];
    assert_eq!(
        (node["mode"].as_str(), node["size"].as_u64()),
        (Some("0640"), Some(7))
    );
    place.ropeway("stat").arg("none").exits(3);
}

#[test]
fn mkdir() {
    let place = ground();
    place.ropeway("mkdir").arg("new").ok();
    place.ropeway("mkdir").arg("new").exits(4);
    let finished = place.ropeway("mkdir").arg("a/b/c").exits(4);
    assert!(
        finished.mentions("ropeway mkdir -p") || finished.mentions("hint:"),
        "{finished}"
    );
    place
        .ropeway("mkdir")
        .args(["-p", "a/b/./c", "link/made", "new"])
        .ok();
    assert!(place.join("a/b/c").is_dir() && place.join("dir/made").is_dir());
    place.ropeway("mkdir").args(["-p", "file/x"]).exits(4);
    place.ropeway("mkdir").args(["-p", "none/../x"]).exits(1);
    assert!(!place.join("none").exists());
}

#[test]
fn rm() {
    let place = ground();
    place.ropeway("rm").arg("dir").exits(1);
    place.ropeway("rm").args(["-r", "dir"]).exits(8);
    let listed = place.ropeway("rm").args(["-rn", "dir"]).ok();
    assert!(
        listed.out.contains("would remove") && place.join("dir/inner/deep").exists(),
        "{listed}"
    );
    for guarded in [".", "..", "/", "dir/.."] {
        place.ropeway("rm").args(["-ry", guarded]).exits(8);
    }
    let here = place.ropeway("rm").args(["-ry"]).arg(place.path());
    here.exits(8);
    // A link is removed, not its target.
    place.ropeway("rm").args(["-ry", "link"]).ok();
    assert!(place.join("dir/file").exists() && place.join("link").symlink_metadata().is_err());
    let json = place.ropeway("rm").args(["-ry", "--json", "dir"]).ok();
    assert_eq!(json.of_type("item").len(), 5, "{json}");
    assert!(!place.join("dir").exists());
    place.ropeway("rm").arg("none").exits(4);
    place.ropeway("rm").args(["-f", "none", "none/below"]).ok();
    place.ropeway("rm").arg("file").ok();
    assert!(!place.join("file").exists());
    // An empty folder needs no confirmation.
    place.folder("empty");
    place.ropeway("rm").args(["-r", "empty"]).ok();
}

#[test]
fn mv() {
    let place = ground();
    place.ropeway("mv").args(["file", "dir"]).exits(8);
    place.ropeway("mv").args(["-f", "file", "dir"]).ok();
    assert!(!place.join("file").exists());
    place.ropeway("mv").args(["dir/file", "named"]).ok();
    place.ropeway("mv").args(["dir", "dir/inner/x"]).exits(1);
    place.ropeway("mv").args(["dir", "renamed"]).ok();
    assert!(place.join("renamed/inner/deep").exists() && place.join("named").exists());
    place.ropeway("mv").args(["named", "none/x"]).exits(4);
    place.ropeway("mv").args(["none", "x"]).exits(3);
    place.ropeway("mv").args(["renamed", "named"]).exits(8);
    let far = place.ropeway("mv").args(["named", "/dev/shm/"]).run();
    if far.code() == Some(1) {
        assert!(far.mentions("copy --move"), "{far}");
    } else {
        // If the paths are on one volume.
        let _ = fs::remove_file("/dev/shm/named");
    }
}
