//! A mirror makes the target equal, and its guards prevent unwanted deletions.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::{self, Finished, Place, content_same, mixed, or_skip, same, snapshot, text};

/// Makes a source, and a target with the same nodes and more.
fn with_extras() -> Place {
    let place = Place::new();
    mixed(&place.join("source"));
    place.copy("source", "target").ok();
    let target = place.join("target");
    text(&target.join("extra"), "x");
    fs::create_dir_all(target.join("extra folder/deep")).unwrap();
    text(&target.join("extra folder/deep/file"), "x");
    symlink("/etc", target.join("extra link")).unwrap();
    text(&target.join("deep/er/extra"), "x");
    place
}

fn mirror(place: &Place, flags: &[&str]) -> Finished {
    place
        .ropeway("mirror")
        .args(["--json", "source", "target"])
        .args(flags)
        .run()
}

#[test]
fn a_mirror_makes_the_target_equal() {
    let place = with_extras();
    text(&place.join("source/changed"), "new");
    let finished = mirror(&place, &["--yes"]);
    finished.assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
    let again = mirror(&place, &["--yes"]);
    again.assert_code(&[0]);
    assert_eq!(again.number("bytes_sent"), 0);
}

#[test]
fn a_mirror_creates_a_new_target() {
    let place = Place::new();
    mixed(&place.join("source"));
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

#[test]
fn a_mirror_never_copies_into_an_existing_target() {
    let place = Place::new();
    mixed(&place.join("source"));
    place.folder("target");
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

#[test]
fn without_a_terminal_deletions_need_yes() {
    let place = with_extras();
    text(&place.join("source/new"), "x");
    let before = snapshot(&place.join("target"));
    let finished = mirror(&place, &[]);
    finished.assert_code(&[8]);
    assert!(finished.mentions("--yes"), "{finished}");
    assert_eq!(snapshot(&place.join("target")), before, "nothing is changed");
}

#[test]
fn max_delete_refuses_before_the_first_deletion() {
    let place = with_extras();
    let before = snapshot(&place.join("target"));
    for bound in ["0", "3", "1%"] {
        let finished = mirror(&place, &["--yes", "--max-delete", bound]);
        finished.assert_code(&[8]);
        assert!(finished.mentions("--max-delete"), "{finished}");
        assert_eq!(snapshot(&place.join("target")), before, "nothing is changed");
    }
    mirror(&place, &["--yes", "--max-delete", "6"]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

#[test]
fn an_empty_source_is_refused() {
    let place = with_extras();
    let before = snapshot(&place.join("target"));
    fs::rename(place.join("source"), place.join("elsewhere")).unwrap();
    fs::create_dir(place.join("source")).unwrap();
    let finished = mirror(&place, &["--yes"]);
    finished.assert_code(&[8]);
    assert!(finished.mentions("empty"), "{finished}");
    assert_eq!(snapshot(&place.join("target")), before);
}

#[test]
fn a_missing_source_deletes_nothing() {
    let place = with_extras();
    let before = snapshot(&place.join("target"));
    fs::rename(place.join("source"), place.join("elsewhere")).unwrap();
    mirror(&place, &["--yes"]).assert_code(&[3]);
    assert_eq!(snapshot(&place.join("target")), before);
}

#[test]
fn excluded_names_survive_without_delete_excluded() {
    let place = with_extras();
    text(&place.join("source/skip.me"), "not copied");
    text(&place.join("target/keep.me"), "excluded");
    let flags = ["--yes", "--exclude", "*.me", "--exclude", "/extra folder"];
    mirror(&place, &flags).assert_code(&[0]);
    let target = place.join("target");
    assert!(target.join("keep.me").exists() && target.join("extra folder/deep/file").exists());
    assert!(!target.join("skip.me").exists() && !target.join("extra").exists());
    let all: Vec<&str> = flags.into_iter().chain(["--delete-excluded"]).collect();
    mirror(&place, &all).assert_code(&[0]);
    fs::remove_file(place.join("source/skip.me")).unwrap();
    content_same(&place.join("source"), &target);
}

#[test]
fn a_folder_that_cannot_be_listed_deletes_nothing_there() {
    let place = with_extras();
    let rule = "source:list:path=deep/er,errno=EACCES";
    let finished = mirror(&place, &["--yes", "--retries", "0", "--fault", rule]);
    finished.assert_code(&[2]);
    let target = place.join("target");
    assert!(
        target.join("deep/er/extra").exists(),
        "its listing was incomplete: {finished}"
    );
    assert!(target.join("deep/er/and/deeper/leaf").exists());
    assert!(finished.mentions("deep/er"), "{finished}");
}

#[test]
fn a_folder_closed_to_an_ordinary_user_deletes_nothing_there() {
    let place = Place::new();
    mixed(&place.join("source"));
    fs::create_dir(place.join("source/closed")).unwrap();
    text(&place.join("source/closed/inside"), "x");
    let home = place.folder_of_nobody("home");
    let target = home.join("target");
    let run = or_skip!(place.ropeway_as_nobody("mirror"));
    run.arg("--json").arg(place.join("source")).arg(&target).ok();
    assert!(target.join("closed/inside").exists());
    fs::set_permissions(place.join("source/closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let run = or_skip!(place.ropeway_as_nobody("mirror"));
    run.args(["--json", "--yes"])
        .arg(place.join("source"))
        .arg(&target)
        .exits(2);
    assert!(
        target.join("closed/inside").exists(),
        "unlisted nodes must not be deleted"
    );
}

#[test]
fn read_only_folders_of_the_target_are_emptied_too() {
    let place = with_extras();
    let closed = place.join("target/extra folder/deep");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    mirror(&place, &["--yes"]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

/// Excluded names also survive in folders that the source does not have, or that it replaces by a
/// file.
#[test]
fn excluded_names_survive_below_deleted_folders() {
    let place = Place::new();
    for folder in [
        "source",
        "target/extra/deep",
        "target/extra/goes",
        "target/gone/cache",
        "target/f",
    ] {
        place.folder(folder);
    }
    text(&place.join("source/f"), "file");
    for (path, stays) in [
        ("target/extra/deep/keep.tmp", true),
        ("target/extra/deep/other", false),
        ("target/extra/goes/x", false),
        ("target/gone/cache/p", true),
        ("target/gone/q", false),
        ("target/f/keep.tmp", true),
    ] {
        text(&place.join(path), if stays { "stays" } else { "goes" });
    }
    let flags = [
        "--yes",
        "--delete-on-errors",
        "--exclude",
        "*.tmp",
        "--exclude",
        "cache/",
    ];
    let finished = mirror(&place, &flags);
    // The file cannot replace a folder in which something stays.
    finished.assert_code(&[2]);
    assert_eq!(finished.number("errors"), 1, "{finished}");
    for stays in ["extra/deep/keep.tmp", "gone/cache/p", "f/keep.tmp"] {
        assert!(place.join("target").join(stays).exists(), "{stays}: {finished}");
    }
    for goes in ["extra/deep/other", "extra/goes", "gone/q"] {
        assert!(!place.join("target").join(goes).exists(), "{goes}: {finished}");
    }
    mirror(&place, &["--yes", "--delete-excluded"]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

/// A source that is emptied during the copy does not empty the target.
#[test]
fn a_source_emptied_meanwhile_deletes_nothing() {
    let place = Place::new();
    for folder in ["source", "target"] {
        place.folder(folder);
        for number in 0..20 {
            text(&place.join(folder).join(format!("k{number}")), "kept");
        }
    }
    support::file(&place.join("source/big"), 4 << 20, 1);
    let mut running = place
        .ropeway("mirror")
        .args(["--json", "--yes", "source", "target", "--bwlimit", "1M"])
        .start();
    running.reach("bytes_sent", 1);
    fs::remove_dir_all(place.join("source")).unwrap();
    place.folder("source");
    let finished = running.wait();
    assert_ne!(finished.code(), Some(0), "{finished}");
    assert!(place.join("target/k7").exists(), "{finished}");
}

/// If several names replace existing files, each keeps a backup.
#[test]
fn backups_are_kept_when_hard_links_replace_files() {
    let place = Place::new();
    for folder in ["source", "target"] {
        place.folder(folder);
    }
    text(&place.join("source/f"), "new");
    fs::hard_link(place.join("source/f"), place.join("source/g")).unwrap();
    text(&place.join("target/f"), "old f");
    text(&place.join("target/g"), "old g");
    place
        .ropeway("copy")
        .args(["-T", "--backup", "source", "target"])
        .ok();
    for name in ["f", "g"] {
        let kept = fs::read_to_string(place.join("target").join(format!("{name}~"))).unwrap();
        assert_eq!(kept, format!("old {name}"));
        assert_eq!(
            fs::read_to_string(place.join("target").join(name)).unwrap(),
            "new"
        );
    }
}

/// It emptied the mounted folder: a folder of the same volume has the same number as the one it is mounted in.
#[test]
fn a_folder_that_is_mounted_in_an_extra_folder_keeps_its_content() {
    let place = with_extras();
    text(&place.folder("precious").join("f"), "precious");
    for flags in [&["--yes"][..], &["--yes", "--backup-dir", "backups"]] {
        let to = place.folder("target/extra folder/deep/mounted");
        if !support::bind_mounted(&place.join("precious"), &to) {
            return;
        }
        let finished = mirror(&place, flags);
        std::process::Command::new("umount").arg(&to).status().unwrap();
        finished.assert_code(&[2]);
        assert!(finished.mentions("is mounted here"), "{finished}");
        assert!(place.join("precious/f").exists(), "{flags:?}");
        assert!(to.exists() && !place.join("target/extra folder/deep/file").exists());
    }
}
