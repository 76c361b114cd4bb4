//! Links that a server follows itself and shows as folders: nothing outside the named folder is
//! removed. With the real binary against a private smbd, which does this by default.

use std::fs::{self, FileTimes};
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{Ground, text};
use ropeway_peers::or_skip;

fn ground() -> Result<Ground, ropeway_peers::PeerError> {
    let ground = Ground::start()?;
    let place = &ground.place;
    for folder in ["data/precious/sub", "data/victim/real/deep", "data/other"] {
        place.folder(folder);
    }
    for file in [
        "precious/data",
        "precious/sub/more",
        "victim/file",
        "victim/real/deep/file",
        "other/file",
    ] {
        text(&place.join(format!("data/{file}")), "content");
    }
    Ok(ground)
}

#[track_caller]
fn all_there(ground: &Ground, paths: &[&str]) {
    for path in paths {
        assert!(ground.behind(&format!("data/{path}")).exists(), "{path} is gone");
    }
}

const OUTSIDE: [&str; 3] = ["precious/data", "precious/sub/more", "other/file"];

#[test]
fn rm_leaves_the_target_of_a_followed_link() {
    for target in ["../precious", "..", ".", "../precious/sub", "../other"] {
        let ground = or_skip!(ground());
        symlink(target, ground.behind("data/victim/link")).unwrap();
        let run = ground
            .run("rm")
            .args(["-r", "--yes"])
            .arg(ground.url("data/victim"));
        let finished = run.exits(2);
        assert!(
            finished.mentions("follows symbolic links"),
            "{target}: {finished}"
        );
        all_there(&ground, &OUTSIDE);
        assert!(
            !ground.behind("data/victim/real").exists(),
            "{target}: {finished}"
        );
        assert!(
            !ground.behind("data/victim/file").exists(),
            "{target}: {finished}"
        );
        assert!(ground.behind("data/victim/link").exists(), "{target}: {finished}");
    }
}

#[test]
fn rm_of_a_link_leaves_its_target() {
    let ground = or_skip!(ground());
    for (target, link) in [
        ("precious", "link"),
        ("../precious", "victim/link"),
        (".", "victim/self"),
    ] {
        let path = ground.behind(&format!("data/{link}"));
        symlink(target, &path).unwrap();
        let run = ground
            .run("rm")
            .args(["-r", "--yes"])
            .arg(ground.url(&format!("data/{link}")));
        run.exits(4);
        all_there(&ground, &OUTSIDE);
        fs::remove_file(path).unwrap();
    }
    // Without links there is no obstacle.
    ground
        .run("rm")
        .args(["-r", "--yes"])
        .arg(ground.url("data/victim"))
        .ok();
    assert!(!ground.behind("data/victim").exists());
}

#[test]
fn a_mirror_leaves_the_targets_of_followed_links() {
    let ground = or_skip!(ground());
    let source = ground.place.folder("source");
    for folder in ["keep", "both"] {
        ground.place.folder(&format!("source/{folder}"));
    }
    text(&source.join("keep/file"), "content");
    text(&source.join("both/file"), "content");
    ground.place.folder("data/victim/keep/inner");
    text(&ground.behind("data/victim/keep/file"), "content");
    text(&ground.behind("data/victim/keep/inner/extra"), "content");
    for (target, link) in [
        ("../precious", "extra"),
        ("..", "up"),
        (".", "self"),
        ("../other", "both"),
        ("keep", "beside"),
        ("../../precious", "real/inner"),
    ] {
        symlink(target, ground.behind(&format!("data/victim/{link}"))).unwrap();
    }
    let finished = ground
        .run("mirror")
        .args(["--yes", "--max-delete", "100%"])
        .arg(format!("{}/", source.display()))
        .arg(ground.url("data/victim"))
        .exits(2);
    assert!(finished.mentions("symbolic link"), "{finished}");
    all_there(&ground, &OUTSIDE);
    all_there(&ground, &["victim/keep/file", "victim/real/inner"]);
    for gone in ["victim/file", "victim/real/deep"] {
        assert!(
            !ground.behind(&format!("data/{gone}")).exists(),
            "{gone}: {finished}"
        );
    }
}

/// An older backup has the link's name, so a folder would be merged into it.
#[test]
fn a_backup_leaves_the_targets_of_followed_links() {
    let ground = or_skip!(ground());
    let source = ground.place.folder("source");
    text(&source.join("keep"), "content");
    for folder in ["link", "real/link"] {
        ground.place.folder(&format!("data/victim/kept/{folder}"));
        text(
            &ground.behind(&format!("data/victim/kept/{folder}/older")),
            "older",
        );
    }
    symlink("../precious", ground.behind("data/victim/link")).unwrap();
    symlink("../../precious", ground.behind("data/victim/real/link")).unwrap();
    let finished = ground
        .run("mirror")
        .args(["--yes", "--max-delete", "100%", "--backup-dir", "kept"])
        .arg(format!("{}/", source.display()))
        .arg(ground.url("data/victim"))
        .ok();
    all_there(&ground, &OUTSIDE);
    for link in ["link", "real/link"] {
        assert!(
            !ground.behind(&format!("data/victim/{link}")).exists(),
            "{link}: {finished}"
        );
        let kept = ground.behind(&format!("data/victim/kept/{link}"));
        assert!(kept.is_symlink(), "{link} is backed up as a link: {finished}");
    }
}

#[test]
fn a_move_leaves_the_targets_of_followed_links() {
    let ground = or_skip!(ground());
    symlink("../precious", ground.behind("data/victim/link")).unwrap();
    let target = ground.place.folder("target");
    let run = ground
        .run("copy")
        .args(["--move", "-T"])
        .arg(ground.url("data/victim"));
    let finished = run.arg(target.join("moved")).exits(2);
    assert!(finished.mentions("follows symbolic links"), "{finished}");
    all_there(&ground, &OUTSIDE);
    assert!(!ground.behind("data/victim/real").exists(), "{finished}");
    assert!(target.join("moved/link/data").exists());
}

#[test]
fn a_loop_of_followed_links_is_cut() {
    let ground = or_skip!(ground());
    symlink(".", ground.behind("data/victim/loop")).unwrap();
    symlink("../..", ground.behind("data/victim/real/up")).unwrap();
    // Without a stored creation time, Samba reports the earliest of a folder's times, and a listing
    // changes one of them.
    let victim = ground.behind("data/victim");
    let early = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = FileTimes::new()
        .set_accessed(early)
        .set_modified(early + Duration::from_secs(9));
    fs::File::open(victim).unwrap().set_times(times).unwrap();
    let target = ground.place.folder("target");
    let run = ground.run("copy").arg("-T").arg(ground.url("data/victim"));
    let finished = run.arg(target.join("copy")).exits(2);
    assert!(finished.mentions("contains itself"), "{finished}");
    assert!(target.join("copy/real/deep/file").exists(), "{finished}");
    assert!(!target.join("copy/loop").exists(), "{finished}");
    let listed = ground.run("ls").arg("-R").arg(ground.url("data/victim")).exits(2);
    assert!(
        listed.mentions("contains itself") && listed.out.contains("real/deep/file"),
        "{listed}"
    );
    assert!(!listed.out.contains("loop/file"), "{listed}");
    let checked = ground
        .run("check")
        .arg(ground.url("data/victim"))
        .arg(target.join("copy"));
    checked.exits(2);
}

/// A leftover of a dead job is replaced by a link, or contains one.
#[test]
fn a_sweep_leaves_the_targets_of_followed_links() {
    let name = ".ropeway-0123456789abcdef-0123456789abcdef";
    for (target, link) in [
        ("precious", name.to_owned()),
        ("../data/precious", name.to_owned()),
        ("other", format!("{name}/link")),
        ("../precious", format!("{name}/link")),
        ("..", format!("{name}/link")),
    ] {
        let ground = or_skip!(ground());
        if link != name {
            ground.place.folder(&format!("data/{name}"));
        }
        symlink(target, ground.behind(&format!("data/{link}"))).unwrap();
        let swept = ground
            .run("jobs")
            .args(["sweep", "--all"])
            .arg(ground.url("data"))
            .run();
        all_there(&ground, &OUTSIDE);
        all_there(&ground, &["victim/file", "victim/real/deep/file"]);
        assert!(
            target == "other" || swept.mentions("symbolic link"),
            "{target}: {swept}"
        );
    }
}
