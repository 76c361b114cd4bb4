use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{below, mirror, put, reads};
use crate::support::{Place, Served, file, set_times};

const MIB: u64 = 1 << 20;

/// `--inplace` disabled `--backup` silently.
#[test]
fn the_backup_of_a_file_overwritten_in_place_is_complete() {
    for (flag, kept) in [
        ("--backup", "target/d/f~"),
        ("--backup-dir=.old", "target/.old/d/f"),
    ] {
        let place = Place::new();
        for folder in ["source/d", "target/d"] {
            place.folder(folder);
        }
        file(&place.join("source/d/f"), 5 * MIB + 3, 1);
        file(&place.join("target/d/f"), 6 * MIB + 7, 2);
        set_times(&place.join("target/d/f"), 1_000_000_000, 5);
        let old = fs::read(place.join("target/d/f")).unwrap();
        let before = fs::metadata(place.join("target/d/f")).unwrap().ino();
        place
            .ropeway("copy")
            .args(["--inplace", flag, "-T", "source", "target"])
            .ok();
        let now = place.join("target/d/f");
        assert_eq!(
            fs::read(place.join("source/d/f")).unwrap(),
            fs::read(&now).unwrap()
        );
        assert_eq!(fs::metadata(&now).unwrap().ino(), before, "it is the same file");
        assert_eq!(fs::read(place.join(kept)).unwrap(), old);
        assert_eq!(fs::metadata(place.join(kept)).unwrap().mtime(), 1_000_000_000);
    }
}

/// A run that resumes after a kill must not take the half-written file for the old version.
#[test]
fn a_kill_while_overwriting_in_place_leaves_the_old_version_in_the_backup() {
    for size in [3 * MIB, 24 * MIB] {
        let place = Place::new();
        for folder in ["source", "target"] {
            place.folder(folder);
        }
        file(&place.join("source/f"), size, 1);
        file(&place.join("target/f"), size, 2);
        set_times(&place.join("target/f"), 1_000_000_000, 5);
        let old = fs::read(place.join("target/f")).unwrap();
        let flags = ["--inplace", "--backup", "--json", "-T", "source", "target"];
        let mut running = place
            .ropeway("copy")
            .args(flags)
            .args(["--slow-target", "write=2MB"])
            .start();
        // Until the first new bytes are there.
        let changed = running.until(|_| fs::read(place.join("target/f")).unwrap() != old);
        assert!(changed);
        running.kill();
        assert_eq!(fs::read(place.join("target/f~")).unwrap(), old);
        place.ropeway("copy").args(flags).ok();
        assert_eq!(
            fs::read(place.join("source/f")).unwrap(),
            fs::read(place.join("target/f")).unwrap()
        );
        assert!(fs::read(place.join("target/f~")).unwrap() == old, "{size}");
        // A later version is a new one.
        let second = fs::read(place.join("target/f")).unwrap();
        file(&place.join("source/f"), size + 1, 3);
        place.ropeway("copy").args(flags).ok();
        assert!(fs::read(place.join("target/f~")).unwrap() == second, "{size}");
    }
}

/// A node in the place of one of another kind was deleted without a backup.
#[test]
fn a_node_replaced_by_another_kind_is_backed_up() {
    for (flag, prefix, suffix) in [("--backup", "", "~"), ("--backup-dir=.old", ".old/", "")] {
        let place = Place::new();
        put(&place.join("source/was folder"), "now a file");
        put(&place.join("source/was file/inside"), "now in a folder");
        std::os::unix::fs::symlink("x", place.join("source/link")).unwrap();
        put(&place.join("target/was folder/a/b"), "precious b");
        put(&place.join("target/was file"), "precious file");
        put(&place.join("target/link/c"), "precious c");
        mirror(&place, &[flag]).assert_code(&[0]);
        let kept =
            |name: &str, rest: &str| reads(&place.join(format!("target/{prefix}{name}{suffix}{rest}")));
        assert_eq!(kept("was folder", "/a/b"), "precious b");
        assert_eq!(kept("was file", ""), "precious file");
        assert_eq!(kept("link", "/c"), "precious c");
        assert_eq!(reads(&place.join("target/was folder")), "now a file");
        assert_eq!(reads(&place.join("target/was file/inside")), "now in a folder");
        assert!(place.join("target/link").is_symlink());
        // They survive the next run, which does nothing.
        let before = below(&place.join("target"));
        let again = mirror(&place, &[flag]);
        again.assert_code(&[0]);
        assert_eq!(again.counter("deleted"), 0);
        assert_eq!(below(&place.join("target")), before);
    }
}

/// The second deletion of a folder of one name failed forever ("Directory not empty").
#[test]
fn a_folder_can_be_deleted_with_a_backup_repeatedly() {
    for (flag, kept) in [("--backup", "target/d~"), ("--backup-dir=.old", "target/.old/d")] {
        let place = Place::new();
        put(&place.join("source/stays"), "x");
        put(&place.join("target/d/both"), "first");
        put(&place.join("target/d/in/first"), "only in the first");
        mirror(&place, &[flag]).assert_code(&[0]);
        put(&place.join("target/d/both"), "second");
        put(&place.join("target/d/in/second"), "only in the second");
        mirror(&place, &[flag]).assert_code(&[0]);
        assert!(!place.join("target/d").exists());
        assert_eq!(reads(&place.join(kept).join("both")), "second");
        assert_eq!(reads(&place.join(kept).join("in/first")), "only in the first");
        assert_eq!(reads(&place.join(kept).join("in/second")), "only in the second");
    }
}

/// An older backup of another kind is neither lost nor an obstacle.
#[test]
fn an_older_backup_of_another_kind_gets_a_number() {
    for (flag, kept, older) in [
        ("--backup", "target/n~", "target/n.~1~~"),
        ("--backup-dir=.old", "target/.old/n", "target/.old/n.~1~"),
    ] {
        let place = Place::new();
        put(&place.join("source/stays"), "x");
        put(&place.join("target/n"), "a file");
        mirror(&place, &[flag]).assert_code(&[0]);
        put(&place.join("target/n/below"), "a folder");
        mirror(&place, &[flag]).assert_code(&[0]);
        assert_eq!(reads(&place.join(kept).join("below")), "a folder");
        assert_eq!(reads(&place.join(older)), "a file");
        mirror(&place, &[flag]).assert_code(&[0]);
        assert_eq!(reads(&place.join(older)), "a file", "it survives");
    }
}

/// The backup folder is in a folder that the source does not have.
#[test]
fn backups_below_an_extra_folder_are_kept() {
    let place = Place::new();
    put(&place.join("source/stays"), "x");
    put(&place.join("target/keep/other"), "extra");
    put(&place.join("target/gone"), "gone");
    for _ in 0..2 {
        mirror(&place, &["--backup-dir", "keep/old"]).assert_code(&[0]);
        assert_eq!(reads(&place.join("target/keep/old/gone")), "gone");
        assert_eq!(reads(&place.join("target/keep/old/keep/other")), "extra");
        assert!(!place.join("target/keep/other").exists());
    }
}

/// The same after a read error: a half-overwritten file is not a version to keep.
#[test]
fn a_failure_while_overwriting_in_place_leaves_the_old_version_in_the_backup() {
    let place = Place::new();
    for folder in ["source", "target"] {
        place.folder(folder);
    }
    file(&place.join("source/f"), 3 * MIB, 1);
    file(&place.join("target/f"), 3 * MIB, 2);
    set_times(&place.join("target/f"), 1_000_000_000, 5);
    let old = fs::read(place.join("target/f")).unwrap();
    let flags = [
        "--inplace",
        "--backup",
        "--retries",
        "0",
        "-T",
        "source",
        "target",
    ];
    let rule = "source:read:contains=f,after_bytes=2097152,errno=EIO";
    let failing = || place.ropeway("copy").args(flags).args(["--fault", rule]);
    // The last run succeeds.
    for run in [
        failing().run(),
        failing().run(),
        place.ropeway("copy").args(flags).ok(),
    ] {
        assert!(fs::read(place.join("target/f~")).unwrap() == old, "{run}");
    }
    assert_eq!(
        fs::read(place.join("source/f")).unwrap(),
        fs::read(place.join("target/f")).unwrap()
    );
}

/// The same on a share.
#[test]
fn backups_are_kept_on_a_share() {
    let served = Served::start(&[]);
    let source = served.place.join("source");
    put(&source.join("was folder"), "now a file");
    put(&source.join("was file/inside"), "now in a folder");
    put(&source.join("f"), "new content");
    put(&served.behind("t/was folder/a"), "precious a");
    put(&served.behind("t/was file"), "precious file");
    put(&served.behind("t/f"), "old");
    set_times(&served.behind("t/f"), 1_000_000_000, 0);
    let mirror = || {
        let run = served
            .run("mirror")
            .args(["--json", "--yes", "--inplace", "--backup-dir", ".old"]);
        run.args([source.to_str().unwrap(), &served.url("t")]).ok()
    };
    for version in ["first", "second"] {
        put(&served.behind("t/gone/both"), version);
        put(&served.behind(&format!("t/gone/{version}")), version);
        mirror();
        let kept = |name: &str| reads(&served.behind(&format!("t/.old/{name}")));
        assert_eq!(kept("was folder/a"), "precious a");
        assert_eq!(kept("was file"), "precious file");
        assert_eq!(kept("f"), "old");
        assert_eq!(kept("gone/both"), version);
        assert_eq!(kept("gone/first"), "first");
        assert_eq!(reads(&served.behind("t/f")), "new content");
        assert_eq!(reads(&served.behind("t/was file/inside")), "now in a folder");
    }
    assert_eq!(mirror().counter("deleted"), 0);
    served.stop();
}
