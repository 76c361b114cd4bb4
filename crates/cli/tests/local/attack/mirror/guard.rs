use std::fs;
use std::path::Path;

use rustix::process::Signal;

use super::{below, mirror, put, reads};
use crate::attack::leftovers;
use crate::support::{Place, Volume, Watching, holds, mixed, or_skip, same, tool};

/// `lost+found`, empty folders and excluded names made a source count as not empty.
#[test]
fn a_source_without_an_included_file_counts_as_empty() {
    let place = Place::new();
    place.folder("source/lost+found");
    place.folder("source/mnt/photos");
    put(&place.join("source/.cache/thumbs"), "x");
    put(&place.join("source/x.tmp"), "x");
    put(&place.join("target/precious/file"), "the only one");
    let before = below(&place.join("target"));
    let flags = ["--exclude", ".cache/", "--exclude", "*.tmp"];
    let finished = mirror(&place, &flags);
    finished.assert_code(&[8]);
    assert!(finished.mentions("empty"), "{finished}");
    assert_eq!(below(&place.join("target")), before, "nothing is changed");
    // Folders alone may be mirrored onto folders.
    fs::remove_file(place.join("target/precious/file")).unwrap();
    mirror(&place, &flags).assert_code(&[0]);
    assert!(!place.join("target/precious").exists());
}

/// A file that was renamed and cannot be read was lost under both names.
#[test]
fn nothing_is_deleted_when_something_failed() {
    let place = Place::new();
    put(&place.join("source/new name"), "the only one");
    put(&place.join("source/other"), "x");
    put(&place.join("target/old name"), "the only one");
    put(&place.join("target/extra/deep"), "x");
    let rule = [
        "--retries",
        "0",
        "--fault",
        "source:read:contains=new name,errno=EIO",
    ];
    let finished = mirror(&place, &rule);
    finished.assert_code(&[2]);
    assert_eq!(reads(&place.join("target/old name")), "the only one");
    assert!(place.join("target/extra/deep").exists());
    assert!(place.join("target/other").exists(), "the rest is copied");
    assert!(finished.mentions("3 nodes of the target"), "{finished}");
    assert!(finished.mentions("old name"), "{finished}");
    assert!(finished.mentions("--delete-on-errors"), "{finished}");
    let all: Vec<&str> = rule.into_iter().chain(["--delete-on-errors"]).collect();
    mirror(&place, &all).assert_code(&[2]);
    assert!(!place.join("target/old name").exists() && !place.join("target/extra").exists());
}

/// A node that the target can never hold must not block deletions forever.
#[test]
fn a_kind_that_the_target_cannot_hold_blocks_no_deletion() {
    let place = Place::new();
    let disk = or_skip!(Volume::fat(16));
    put(&place.join("source/f"), "x");
    std::os::unix::fs::symlink("f", place.join("source/link")).unwrap();
    put(&disk.join("t/extra"), "x");
    let target = disk.join("t");
    let run = place
        .ropeway("mirror")
        .args(["--json", "--yes", "source"])
        .arg(&target);
    let finished = run.run();
    finished.assert_code(&[2]);
    assert!(
        !target.join("extra").exists() && target.join("f").exists(),
        "{finished}"
    );
}

/// The folder was deleted before anything showed that the file can be read.
#[test]
fn a_folder_stays_until_the_file_in_its_place_is_complete() {
    let place = Place::new();
    put(&place.join("source/n"), "new");
    put(&place.join("source/other"), "x");
    put(&place.join("target/n/precious"), "the only one");
    let rule = ["--retries", "0", "--fault", "source:read:path=n,errno=EIO"];
    mirror(&place, &rule).assert_code(&[2]);
    assert_eq!(reads(&place.join("target/n/precious")), "the only one");
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

/// The same for links, which have no contents, and for several names.
#[test]
fn a_folder_stays_until_the_link_in_its_place_is_made() {
    let place = Place::new();
    put(&place.join("source/other"), "x");
    std::os::unix::fs::symlink("other", place.join("source/n")).unwrap();
    put(&place.join("target/n/precious"), "the only one");
    let rule = ["--retries", "0", "--fault", "target:link:errno=EACCES"];
    mirror(&place, &rule).assert_code(&[2]);
    assert_eq!(reads(&place.join("target/n/precious")), "the only one");
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

/// The file was deleted before anything showed that the folder can be listed.
#[test]
fn a_file_stays_until_the_folder_in_its_place_can_be_listed() {
    let place = Place::new();
    put(&place.join("source/n/inside"), "new");
    put(&place.join("source/other"), "x");
    put(&place.join("target/n"), "the only one");
    let rule = ["--retries", "0", "--fault", "source:list:path=n,errno=EACCES"];
    mirror(&place, &rule).assert_code(&[2]);
    assert_eq!(reads(&place.join("target/n")), "the only one");
    mirror(&place, &[]).assert_code(&[0]);
    same(&place.join("source"), &place.join("target"));
}

/// The deletion pass skipped what it could not list, with exit code 0.
#[test]
fn a_listing_that_fails_in_the_deletion_pass_is_reported() {
    // How far ahead the counting walk is decides which listing is the deletion pass's.
    // Each listing takes several calls.
    let source = (1..=14).map(|nth| ("source", nth));
    let cases = source.chain((1..=7).map(|nth| ("target", nth)));
    let mut told = 0;
    for (side, nth) in cases {
        let place = Place::new();
        put(&place.join("source/a file"), "x");
        put(&place.join("source/d/x"), "x");
        put(&place.join("target/d/extra"), "x");
        put(&place.join("target/z/extra"), "x");
        let rule = format!("{side}:list:path=d,nth={nth},errno=EIO");
        let finished = mirror(&place, &["--retries", "0", "--fault", &rule]);
        if place.join("target/d/extra").exists() {
            told += 1;
            finished.assert_code(&[2]);
            assert!(finished.mentions("cannot list"), "{side} {nth}: {finished}");
            let has_failed = finished.mentions("something failed");
            let goes_on = !place.join("target/z").exists();
            assert!(has_failed || goes_on, "the rest is processed: {finished}");
        } else {
            finished.assert_code(&[0, 2]);
        }
        mirror(&place, &[]).assert_code(&[0]);
        same(&place.join("source"), &place.join("target"));
    }
    assert!(told >= 2, "{told}");
}

/// A bind mount of a volume in a folder, undone on drop.
struct Bound<'a>(&'a Path);

impl<'a> Bound<'a> {
    fn new(volume: &Volume, at: &'a Path) -> Result<Self, String> {
        fs::create_dir_all(at).unwrap();
        tool(
            "mount",
            &["--bind".as_ref(), volume.root().as_os_str(), at.as_os_str()],
        )?;
        Ok(Self(at))
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = tool("umount", &["-l".as_ref(), self.0.as_os_str()]);
    }
}

/// With `-x`, volumes on the target were emptied, and so were folders below the mount points of the
/// source.
#[test]
fn one_file_system_applies_to_deletions() {
    let place = Place::new();
    let disk = or_skip!(Volume::tmpfs(1));
    put(&disk.join("precious"), "the only one");
    put(&place.join("source/f"), "x");
    put(&place.join("source/d/g"), "x");
    put(&place.join("source/here/not seen"), "x");
    put(&place.join("target/here/precious"), "the only one");
    let points = ["target/d", "target/extra/disk", "source/here"].map(|point| place.join(point));
    let bound: Result<Vec<_>, _> = points.iter().map(|point| Bound::new(&disk, point)).collect();
    let _bound = or_skip!(bound);
    put(&place.join("target/extra/goes"), "x");
    let finished = mirror(&place, &["-x"]);
    finished.assert_code(&[0]);
    assert_eq!(reads(&disk.join("precious")), "the only one", "{finished}");
    assert_eq!(
        reads(&place.join("target/here/precious")),
        "the only one",
        "below a mount point of the source: {finished}"
    );
    assert!(!place.join("target/extra/goes").exists(), "{finished}");
}

/// The same while watching, where events come from the other volumes too.
#[test]
fn one_file_system_applies_while_watching() {
    let place = Place::new();
    let disk = or_skip!(Volume::tmpfs(1));
    put(&disk.join("precious"), "the only one");
    put(&place.join("source/f"), "x");
    put(&place.join("source/d/precious"), "x");
    put(&place.join("target/here/precious"), "the only one");
    let points = ["target/d", "source/here"].map(|point| place.join(point));
    let bound: Result<Vec<_>, _> = points.iter().map(|point| Bound::new(&disk, point)).collect();
    let _bound = or_skip!(bound);
    let run = place.ropeway("mirror").args(["--yes", "-x", "source", "target"]);
    let running = Watching::start(run);
    put(&place.join("source/here/new"), "not to be copied");
    fs::remove_file(place.join("source/here/new")).unwrap();
    fs::remove_file(place.join("source/d/precious")).unwrap();
    put(&place.join("source/here/other"), "not to be copied");
    put(&place.join("source/one"), "one");
    running.follows("a file", || holds(&place.join("target/one"), "one"));
    put(&place.join("source/two"), "two");
    running.follows("a file", || holds(&place.join("target/two"), "two"));
    assert!(disk.join("precious").exists());
    assert_eq!(below(&place.join("target/here")).len(), 1);
    running.end(Signal::TERM).assert_code(&[0, 130]);
}

/// A volume mounted where the source has nothing was emptied before its folder could not be
/// removed.
#[test]
fn a_volume_mounted_in_an_extra_folder_is_not_emptied() {
    for flags in [&[][..], &["--backup-dir", ".old"]] {
        let place = Place::new();
        let disk = or_skip!(Volume::tmpfs(1));
        put(&disk.join("precious"), "the only one");
        put(&place.join("source/f"), "x");
        let point = place.join("target/extra/disk");
        let _bound = or_skip!(Bound::new(&disk, &point));
        put(&place.join("target/extra/goes"), "x");
        put(&place.join("target/gone"), "x");
        let finished = mirror(&place, flags);
        finished.assert_code(&[2]);
        assert_eq!(reads(&point.join("precious")), "the only one", "{finished}");
        assert!(finished.mentions("mounted here"), "{finished}");
        assert!(!place.join("target/extra/goes").exists(), "{finished}");
        assert!(
            !place.join("target/gone").exists(),
            "the rest is processed: {finished}"
        );
    }
}

/// The count before the first deletion leaves out nodes that stay.
#[test]
fn nodes_that_stay_do_not_count_against_max_delete() {
    let place = Place::new();
    mixed(&place.join("source"));
    for number in 0..9 {
        put(&place.join(format!("target/extra/{number}.keep")), "x");
    }
    put(&place.join("target/extra/goes"), "x");
    mirror(&place, &["--max-delete", "2", "--exclude", "*.keep"]).assert_code(&[0]);
    assert!(place.join("target/extra/8.keep").exists() && !place.join("target/extra/goes").exists());
}

/// Nothing was deleted below a folder whose name the target cannot hold.
#[test]
fn extras_below_folders_with_mapped_names_are_deleted() {
    let place = Place::new();
    put(&place.join("source/a:b/c/f"), "x");
    let flags = ["--names", "map"];
    mirror(&place, &flags).assert_code(&[0]);
    let folders = below(&place.join("target"));
    assert_eq!(folders.len(), 3);
    put(&place.join("target").join(&folders[1]).join("extra"), "x");
    put(&place.join("target").join(&folders[0]).join("extra too"), "x");
    mirror(&place, &flags).assert_code(&[0]);
    assert_eq!(below(&place.join("target")), folders);
}

/// The pass that deletes is left out where there is nothing to delete, but not where a dead job left something.
#[test]
fn a_mirror_without_changes_sweeps_a_dead_ones_names() {
    let place = Place::new();
    leftovers::tree(&place.join("dead"), 10);
    put(&place.join("source/a"), "a");
    place.folder("target");
    mirror(&place, &[]).assert_code(&[0]);
    leftovers::begin(place.copy("dead", "target")).kill();
    let target = place.join("target");
    assert!(!leftovers::nodes(&target).is_empty());
    mirror(&place, &[]).assert_code(&[0]);
    leftovers::none_left(&target);
}
