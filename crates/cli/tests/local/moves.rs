//! Moves remove what was copied and nothing else; links, and one tree that is seen in two ways, are
//! left alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::{Place, Served, bind_mounted, content_same, mixed};

/// Makes two files that look the same: same size, same time.
fn twins(one: &Path, one_says: &str, other: &Path, other_says: &str) {
    assert_eq!(one_says.len(), other_says.len());
    text(one, one_says);
    text(other, other_says);
    let time = fs::metadata(one).unwrap().modified().unwrap();
    let times = fs::FileTimes::new().set_modified(time);
    fs::File::options()
        .write(true)
        .open(other)
        .unwrap()
        .set_times(times)
        .unwrap();
}

/// Writes a file and creates its parent folders.
fn text(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn reads(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn copied_files_are_removed_from_the_source() {
    let place = Place::new();
    mixed(&place.join("source"));
    mixed(&place.join("kept"));
    place
        .ropeway("copy")
        .args(["--move", "-T", "source", "target"])
        .ok();
    content_same(&place.join("kept"), &place.join("target"));
    assert!(
        !place.join("source/deep").exists(),
        "folders are removed when they are empty"
    );
    // Includes files that an earlier run copied.
    mixed(&place.join("source"));
    place.ropeway("copy").args(["-T", "source", "again"]).ok();
    place
        .ropeway("copy")
        .args(["--move", "-T", "source", "again"])
        .ok();
    assert!(!place.join("source/deep").exists());
    content_same(&place.join("kept"), &place.join("again"));
}

#[test]
fn kept_files_stay_in_the_source() {
    let place = Place::new();
    twins(&place.join("source/f"), "new", &place.join("target/f"), "old");
    symlink("new", place.join("source/l")).unwrap();
    symlink("old", place.join("target/l")).unwrap();
    for flag in ["--ignore-existing", "--update"] {
        place
            .ropeway("copy")
            .args(["--move", flag, "source/f", "target"])
            .ok();
        if flag == "--ignore-existing" {
            assert_eq!(reads(&place.join("source/f")), "new");
        }
        place
            .ropeway("copy")
            .args(["--move", "--ignore-existing", "source/l", "target"])
            .ok();
        assert!(place.join("source/l").is_symlink());
        assert_eq!(fs::read_link(place.join("target/l")).unwrap(), Path::new("old"));
    }
}

#[test]
fn failed_files_stay_in_the_source() {
    let place = Place::new();
    twins(&place.join("source/f"), "new", &place.join("target/f"), "old");
    symlink("new", place.join("source/l")).unwrap();
    symlink("old", place.join("target/l")).unwrap();
    let arguments = ["--move", "--checksum", "--retries", "0", "source/.", "target"];
    let rule = "target:rename:errno=EACCES";
    let finished = place
        .ropeway("copy")
        .args(arguments)
        .args(["--fault", rule])
        .run();
    finished.assert_code(&[2, 5]);
    assert_eq!(
        (reads(&place.join("source/f")), reads(&place.join("target/f"))),
        ("new".into(), "old".into())
    );
    assert!(place.join("source/l").is_symlink());
    let left: Vec<_> = fs::read_dir(place.join("target"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "nothing half done is left: {left:?}");
    // Without the fault they are moved.
    place.ropeway("copy").args(arguments).ok();
    assert_eq!(reads(&place.join("target/f")), "new");
    assert!(!place.join("source/f").exists() && !place.join("source/l").is_symlink());
}

#[test]
fn nothing_is_removed_before_it_is_durable() {
    let place = Place::new();
    text(&place.join("source/f"), "x");
    place
        .ropeway("copy")
        .args(["--move", "--durability", "none", "source", "target"])
        .exits(1);
    assert!(place.join("source/f").exists());
}

/// Without times, a copied file is recognised by its state at the time of the copy.
#[test]
fn a_move_works_without_times() {
    let place = Place::new();
    text(&place.join("source/f"), "x");
    place
        .ropeway("copy")
        .args(["--move", "--no-times", "-T", "source", "target"])
        .ok();
    assert!(!place.join("source/f").exists());
    assert_eq!(reads(&place.join("target/f")), "x");
}

/// Two names of one file on the target are two files in the source.
#[test]
fn inplace_does_not_write_through_a_hard_link() {
    let place = Place::new();
    twins(&place.join("source/f"), "one", &place.join("source/g"), "two");
    let old = place.join("target/f");
    text(&old, "old");
    // Of equal size and time it would be taken for equal.
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(&old).unwrap().set_modified(then).unwrap();
    fs::hard_link(&old, place.join("target/g")).unwrap();
    fs::hard_link(&old, place.join("other")).unwrap();
    let arguments = ["--move", "--inplace", "-T", "source", "target"];
    place.ropeway("copy").args(arguments).ok();
    assert_eq!(reads(&place.join("target/f")), "one");
    assert_eq!(reads(&place.join("target/g")), "two");
    assert_eq!(reads(&place.join("other")), "old");
}

/// Ended during the check whether both ends are one: the next run removes the probe's leftover.
#[test]
fn an_interrupted_move_resumes() {
    let place = Place::new();
    text(&place.join("source/f"), "precious");
    let arguments = ["--move", "-T", "source", "target"];
    let rule = "source:remove:errno=EIO,times=9";
    let broken = place
        .ropeway("copy")
        .args(arguments)
        .args(["--retries", "0", "--fault", rule])
        .run();
    broken.assert_code(&[2, 3]);
    assert_eq!(reads(&place.join("source/f")), "precious");
    place.ropeway("copy").args(arguments).ok();
    for (folder, count) in [("source", 0), ("target", 1)] {
        assert_eq!(
            fs::read_dir(place.join(folder)).unwrap().count(),
            count,
            "{folder}"
        );
    }
    assert_eq!(reads(&place.join("target/f")), "precious");
}

/// One folder by its path and through a share, and by two names of its server.
#[test]
fn a_copy_onto_itself_removes_nothing() {
    let served = Served::start(&[]);
    text(&served.behind("s/a"), "the only one");
    text(&served.behind("s/in/b"), "the only other");
    let local = served.behind("s").display().to_string();
    let far = served.url("s");
    let port = served.address().port();
    let alias = format!("smb://ann@localhost:{port}/data/s");
    let pairs = [(&far, &local), (&local, &far), (&far, &alias)];
    for (from, to) in pairs {
        for flags in [&["--move"][..], &["--move", "--force"]] {
            for below in ["", "/a"] {
                let (from, to) = (format!("{from}{below}"), format!("{to}{below}"));
                let finished = served.run("copy").args(flags).args(["-T", &from, &to]).run();
                finished.assert_code(&[1, 8]);
                assert_eq!(reads(&served.behind("s/a")), "the only one", "{from} {to}");
                assert_eq!(reads(&served.behind("s/in/b")), "the only other");
            }
        }
    }
    // Into its parent folder, which is where it is already.
    let above = served.behind("").display().to_string();
    served.run("copy").args(["--move", &far, &above]).run();
    assert_eq!(reads(&served.behind("s/a")), "the only one");
    // A mirror does not delete its own source.
    let inner = served.url("s/in");
    let finished = served.run("mirror").args(["--yes", &inner, &local]).run();
    finished.assert_code(&[1, 8]);
    assert_eq!(reads(&served.behind("s/in/b")), "the only other");
    served.stop();
}

/// If nothing shows beforehand that both ends are one, the first file that moves does.
#[test]
fn a_mount_of_the_source_is_recognised() {
    let place = Place::new();
    text(&place.join("source/in/f"), "the only one");
    place.folder("target/in");
    let (from, to) = (place.join("source/in"), place.join("target/in"));
    if !bind_mounted(&from, &to) {
        return;
    }
    let finished = place
        .ropeway("copy")
        .args(["--move", "-T", "source", "target"])
        .run();
    let there = reads(&place.join("source/in/f"));
    Command::new("umount").arg(&to).status().unwrap();
    assert_eq!(there, "the only one", "{finished}");
    finished.assert_code(&[8]);
    assert!(finished.mentions("seen in two ways"), "{finished}");
}

/// Links on a share are links: removing or moving a tree does not affect their targets.
#[test]
fn links_of_a_share_are_not_followed() {
    let served = Served::start(&[]);
    text(&served.behind("photos/1.jpg"), "jpg");
    text(&served.behind("album/own"), "own");
    symlink("../photos", served.behind("album/all")).unwrap();
    symlink("..", served.behind("album/up")).unwrap();
    served.run("copy").args(["-T", &served.url("album"), "back"]).ok();
    let back = served.place.join("back");
    assert_eq!(fs::read_link(back.join("all")).unwrap(), Path::new("../photos"));
    assert_eq!(fs::read_link(back.join("up")).unwrap(), Path::new(".."));
    served
        .run("check")
        .args(["--checksum", &served.url("album"), "back"])
        .ok();
    served
        .run("copy")
        .args(["--move", "-T", &served.url("album"), "moved"])
        .ok();
    assert_eq!(reads(&served.behind("photos/1.jpg")), "jpg");
    assert!(!served.behind("album/own").exists() && served.place.join("moved/all").is_symlink());
    symlink("../photos", served.behind("album/all")).unwrap();
    served.run("rm").args(["-r", "--yes", &served.url("album")]).ok();
    assert!(!served.behind("album").exists());
    assert_eq!(reads(&served.behind("photos/1.jpg")), "jpg");
    served.stop();
}

/// Links are copied to our own server as links, one by one and over others.
#[test]
fn links_are_copied_to_a_share() {
    let served = Served::start(&["--links", "any"]);
    let links = served.place.folder("links");
    text(&links.join("f"), "f");
    for (name, leads) in [("rel", "f"), ("nowhere", "missing"), ("abs", "/etc/passwd")] {
        symlink(leads, links.join(name)).unwrap();
    }
    served
        .run("copy")
        .args(["-T", "links", &served.url("links")])
        .ok();
    content_same(&links, &served.behind("links"));
    served
        .run("copy")
        .args(["links/nowhere", &served.url("one")])
        .ok();
    assert_eq!(fs::read_link(served.behind("one")).unwrap(), Path::new("missing"));
    fs::remove_file(links.join("rel")).unwrap();
    symlink("elsewhere", links.join("rel")).unwrap();
    served
        .run("mirror")
        .args(["--yes", "links", &served.url("links")])
        .ok();
    content_same(&links, &served.behind("links"));
    served.run("check").args(["links", &served.url("links")]).ok();
    served.stop();
}

/// A node that the server cannot delete is not reported as deleted.
#[test]
fn a_deletion_that_fails_is_reported() {
    let served = Served::start(&[]);
    let folder = served.place.folder("data/fixed");
    text(&folder.join("f"), "f");
    let immutable = |flag: &str| {
        let changed = Command::new("chattr").arg(flag).arg(&folder).output();
        changed.is_ok_and(|output| output.status.success())
    };
    if !immutable("+i") {
        println!("skipped: chattr +i does not work here");
        return;
    }
    let removed = served.run("rm").arg(served.url("fixed/f")).run();
    let there = folder.join("f").exists();
    assert!(immutable("-i") && there);
    removed.assert_code(&[2, 4, 5]);
    served.stop();
}

/// A path that no request can hold is refused before anything is sent; it ended the program.
#[test]
fn a_path_too_long_for_a_share_is_refused() {
    let served = Served::start(&[]);
    let long = vec!["a name of a folder"; 3000].join("/");
    for command in ["ls", "stat", "mkdir", "rm"] {
        let ended = served.run(command).arg(served.url(&long)).run();
        ended.assert_code(&[2, 3, 4]);
        assert!(ended.err.contains("too long for a share"), "{ended}");
    }
    served.stop();
}
