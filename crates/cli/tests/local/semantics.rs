//! Where copies go, what they replace and what they leave alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::support::{self, Place, Volume, content_same, mixed, or_skip, same, set_times, snapshot, text};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Makes a place with a mixed tree in `source`.
fn with_tree() -> Place {
    let place = Place::new();
    mixed(&place.join("source"));
    place
}

#[test]
fn a_folder_goes_to_a_new_name_or_into_a_folder() {
    let place = with_tree();
    place.copy("source", "new").ok();
    same(&place.join("source"), &place.join("new"));
    place.folder("existing");
    place.copy("source", "existing").ok();
    same(&place.join("source"), &place.join("existing/source"));
    place.copy("source/", "existing/").ok();
    assert!(!place.join("existing/source/source").exists());
    place.copy("source/.", "content").ok();
    same(&place.join("source"), &place.join("content"));
}

#[test]
fn a_finished_copy_goes_into_its_target_like_cp() {
    let place = with_tree();
    place.copy("source", "target").ok();
    place.copy("source", "target").ok();
    same(&place.join("source"), &place.join("target/source"));
}

#[test]
fn no_target_directory_never_copies_into_a_folder() {
    let place = with_tree();
    let target = place.folder("target");
    text(&target.join("stranger"), "stays");
    place.copy("source", "target").arg("-T").ok();
    assert!(!target.join("source").exists());
    assert_eq!(read(target.join("stranger")), "stays");
    fs::remove_file(target.join("stranger")).unwrap();
    place.copy("source", "target").arg("-T").ok();
    same(&place.join("source"), &target);
}

#[test]
fn several_sources_go_into_a_folder() {
    let place = with_tree();
    text(&place.join("file"), "f");
    symlink("file", place.join("link")).unwrap();
    place.folder("into");
    let finished = place
        .ropeway("copy")
        .args(["--json", "source", "file", "link", "into"])
        .ok();
    same(&place.join("source"), &place.join("into/source"));
    assert_eq!(read(place.join("into/file")), "f");
    assert_eq!(fs::read_link(place.join("into/link")).unwrap(), Path::new("file"));
    assert!(finished.number("files") >= 2);
}

#[test]
fn several_sources_of_one_name_are_not_mixed_up() {
    let place = Place::new();
    for (folder, content) in [("a", "1"), ("b", "2")] {
        place.folder(folder);
        text(&place.join(folder).join("same"), content);
    }
    place.folder("into");
    let finished = place
        .ropeway("copy")
        .args(["--json", "a/same", "b/same", "into"])
        .run();
    assert_ne!(finished.code(), Some(0), "one of the sources is lost: {finished}");
}

#[test]
fn files_go_to_files_and_into_folders() {
    let place = Place::new();
    support::file(&place.join("a"), 100_000, 1);
    place.copy("a", "b").ok();
    same(&place.join("a"), &place.join("b"));
    place.folder("folder");
    place.copy("a", "folder").ok();
    same(&place.join("a"), &place.join("folder/a"));
    text(&place.join("old"), "something else");
    let before = fs::metadata(place.join("old")).unwrap().ino();
    place.copy("a", "old").ok();
    same(&place.join("a"), &place.join("old"));
    assert_ne!(
        fs::metadata(place.join("old")).unwrap().ino(),
        before,
        "complete or not at all: by renaming"
    );
}

#[test]
fn a_target_link_to_a_folder_is_copied_into_and_one_to_a_file_is_replaced() {
    let place = with_tree();
    place.folder("real");
    symlink("real", place.join("link")).unwrap();
    place.copy("source", "link").ok();
    same(&place.join("source"), &place.join("real/source"));
    text(&place.join("precious"), "stays");
    place.folder("t");
    symlink("../precious", place.join("t/one byte")).unwrap();
    place.copy("source/one byte", "t/").ok();
    assert_eq!(
        (read(place.join("precious")), read(place.join("t/one byte"))),
        ("stays".into(), "x".into())
    );
}

#[test]
fn links_in_the_target_are_never_followed() {
    let place = with_tree();
    let outside = place.folder("outside");
    text(&outside.join("leaf"), "stays");
    let before = snapshot(&outside);
    for command in ["copy", "mirror"] {
        let target = place.folder(&format!("target of {command}"));
        symlink(&outside, target.join("deep")).unwrap();
        let run = place.ropeway(command).args(["--json", "source"]).arg(&target);
        let finished = if command == "copy" {
            run.arg("-T").run()
        } else {
            run.arg("--yes").run()
        };
        finished.assert_code(&[0, 2]);
        assert_eq!(snapshot(&outside), before, "written through a link");
        if finished.code() == Some(0) {
            same(&place.join("source"), &target);
        }
    }
}

#[test]
fn a_second_run_sends_nothing_and_changes_nothing() {
    let place = with_tree();
    let target = place.join("target");
    let first = place.copy("source", "target").ok();
    assert!(first.number("bytes_sent") > 0);
    let inodes = |root: &Path| -> Vec<u64> {
        support::walk(root)
            .iter()
            .map(|path| fs::symlink_metadata(path).unwrap().ino())
            .collect()
    };
    let before = inodes(&target);
    let second = place.copy("source", "target").arg("-T").ok();
    assert_eq!(second.number("bytes_sent"), 0);
    assert_eq!(second.number("bytes"), first.number("bytes"));
    assert_eq!(inodes(&target), before);
    let forced = place.copy("source", "target").args(["-T", "--force"]).ok();
    assert_eq!(forced.number("bytes_sent"), first.number("bytes_sent"));
    same(&place.join("source"), &target);
}

#[test]
fn only_changed_files_are_sent() {
    let place = with_tree();
    place.copy("source", "target").ok();
    let source = place.join("source");
    text(&source.join("deep/er/and/deeper/leaf"), "a longer leaf\n");
    text(&source.join("new"), "1234567");
    let finished = place.copy("source", "target").arg("-T").ok();
    assert_eq!(finished.number("bytes_sent"), 14 + 7);
    // A change of attributes alone sends no data.
    set_times(&source.join("deep/4096.bin"), 5, 5);
    fs::set_permissions(source.join("deep/4097.bin"), fs::Permissions::from_mode(0o640)).unwrap();
    let finished = place.copy("source", "target").args(["-T", "--checksum"]).ok();
    assert_eq!(finished.number("bytes_sent"), 0, "{finished}");
    same(&source, &place.join("target"));
}

#[test]
fn update_and_ignore_existing() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.folder("target"));
    for (name, seconds) in [("older", 1_000), ("newer", 3_000), ("missing", 2_000)] {
        text(&source.join(name), "from the source");
        set_times(&source.join(name), seconds, 0);
    }
    for name in ["older", "newer"] {
        text(&target.join(name), "at the target");
        set_times(&target.join(name), 2_000, 0);
    }
    place
        .copy("source", "target")
        .args(["-T", "--ignore-existing"])
        .ok();
    let contents = || ["older", "newer", "missing"].map(|name| read(target.join(name)));
    assert_eq!(contents(), ["at the target", "at the target", "from the source"]);
    place.copy("source", "target").args(["-T", "--update"]).ok();
    assert_eq!(
        contents(),
        ["at the target", "from the source", "from the source"]
    );
    place.copy("source", "target").arg("-T").ok();
    assert_eq!(contents(), ["from the source"; 3]);
}

#[test]
fn backups_are_kept() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.folder("target"));
    fs::create_dir_all(source.join("sub")).unwrap();
    text(&source.join("sub/file"), "new");
    text(&source.join("same"), "same");
    fs::create_dir_all(target.join("sub")).unwrap();
    text(&target.join("sub/file"), "old one");
    let base = |flags: &[&str]| place.copy("source", "target").arg("-T").args(flags).ok();
    base(&["--backup"]);
    assert_eq!(
        (read(target.join("sub/file")), read(target.join("sub/file~"))),
        ("new".into(), "old one".into())
    );
    text(&source.join("sub/file"), "newest");
    base(&["--backup=.bak"]);
    assert_eq!(
        (read(target.join("sub/file")), read(target.join("sub/file.bak"))),
        ("newest".into(), "new".into())
    );
    text(&source.join("sub/file"), "the last");
    base(&["--backup-dir", "kept"]);
    assert_eq!(
        (read(target.join("sub/file")), read(target.join("kept/sub/file"))),
        ("the last".into(), "newest".into())
    );
    assert!(!target.join("same~").exists());
}

#[test]
fn a_mirror_with_a_backup_folder_keeps_what_it_deletes() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.folder("target"));
    text(&source.join("file"), "f");
    fs::create_dir_all(target.join("gone")).unwrap();
    text(&target.join("gone/extra"), "precious");
    for _ in 0..2 {
        place
            .ropeway("mirror")
            .args(["--json", "--yes", "--backup-dir", "kept", "source", "target"])
            .ok();
        assert_eq!(
            read(target.join("kept/gone/extra")),
            "precious",
            "and a second run leaves the backup alone"
        );
        assert!(!target.join("gone").exists());
    }
}

#[test]
fn inplace_writes_into_the_existing_file() {
    let place = with_tree();
    let target = place.join("target");
    place.copy("source", "target").ok();
    let file = "deep/3145745.bin";
    let inode = fs::metadata(target.join(file)).unwrap().ino();
    support::file(&place.join("source").join(file), (3 << 20) - 100, 77);
    place.copy("source", "target").args(["-T", "--inplace"]).ok();
    assert_eq!(fs::metadata(target.join(file)).unwrap().ino(), inode);
    same(&place.join("source"), &target);
}

#[test]
fn gentle_copies_the_same() {
    let place = with_tree();
    let holes = place.join("source/holes");
    fs::File::create(&holes).unwrap().set_len(3 << 20).unwrap();
    for at in 0..6 {
        support::write_at(&holes, at * (512 << 10), b"an extent");
    }
    let target = place.join("target");
    place.copy("source", "target").arg("--gentle").ok();
    same(&place.join("source"), &target);
    place
        .ropeway("check")
        .args(["--gentle", "-c", "source", "target"])
        .ok();
    text(&place.join("source/new"), "new");
    text(&target.join("extra"), "extra");
    place
        .ropeway("mirror")
        .args(["--gentle", "--yes", "source", "target"])
        .ok();
    same(&place.join("source"), &target);
}

#[test]
fn inplace_does_not_write_through_a_shared_name_of_the_target() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.folder("target"));
    text(&source.join("a"), "new");
    text(&source.join("b"), "other");
    text(&target.join("a"), "old!");
    fs::hard_link(target.join("a"), target.join("b")).unwrap();
    place.copy("source", "target").arg("-T").ok();
    assert_eq!(
        (read(target.join("a")), read(target.join("b"))),
        ("new".into(), "other".into())
    );
}

#[test]
fn move_removes_the_source_when_all_is_copied() {
    let place = with_tree();
    place.copy("source", "keep").ok();
    place.copy("source", "moved").arg("--move").ok();
    same(&place.join("keep"), &place.join("moved"));
    let left: Vec<_> = if place.join("source").exists() {
        support::walk(&place.join("source"))
    } else {
        Vec::new()
    };
    assert!(
        left.iter().all(|path| path.is_dir() && !path.is_symlink()),
        "{left:?}"
    );
    text(&place.join("file"), "f");
    place.copy("file", "keep").arg("--move").ok();
    assert!(!place.join("file").exists() && place.join("keep/file").exists());
}

#[test]
fn a_move_keeps_failed_files_in_the_source() {
    let place = with_tree();
    let finished = place
        .copy("source", "moved")
        .args([
            "--move",
            "--retries",
            "0",
            "--fault",
            "source:read:contains=65536,errno=EIO",
        ])
        .exits(2);
    assert!(finished.mentions("65536.bin"));
    assert!(
        place.join("source/deep/65536.bin").exists(),
        "failed files must stay"
    );
    assert!(!place.join("source/deep/4096.bin").exists() && place.join("moved/deep/4096.bin").exists());
}

#[test]
fn one_file_system_stops_at_mounts() {
    let inner = or_skip!(Volume::tmpfs(8));
    text(&inner.join("on another volume"), "x");
    let place = with_tree();
    let mount = place.join("source/mount");
    fs::create_dir(&mount).unwrap();
    or_skip!(support::tool(
        "mount",
        &["--bind".as_ref(), inner.root().as_os_str(), mount.as_os_str()]
    ));
    let bounded = place.copy("source", "bounded").arg("-x").run();
    let whole = place.copy("source", "whole").run();
    or_skip!(support::tool("umount", &["-l".as_ref(), mount.as_os_str()]));
    bounded.assert_code(&[0]);
    whole.assert_code(&[0]);
    assert!(place.join("whole/mount/on another volume").exists());
    assert!(place.join("bounded/mount").is_dir() && !place.join("bounded/mount/on another volume").exists());
    content_same(&place.join("source"), &place.join("bounded"));
}

#[test]
fn checksum_finds_changes_that_size_and_time_hide() {
    let place = with_tree();
    let target = place.join("target");
    place.copy("source", "target").ok();
    let file = target.join("deep/4096.bin");
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    support::write_at(&file, 100, b"flipped");
    fs::File::open(&file).unwrap().set_modified(time).unwrap();
    assert_eq!(
        place.copy("source", "target").arg("-T").ok().number("bytes_sent"),
        0
    );
    place.ropeway("check").args(["--json", "source", "target"]).ok();
    place
        .ropeway("check")
        .args(["--json", "--checksum", "source", "target"])
        .exits(7);
    assert_eq!(
        place
            .copy("source", "target")
            .args(["-T", "--checksum"])
            .ok()
            .number("bytes_sent"),
        4_096
    );
    same(&place.join("source"), &target);
}

#[test]
fn a_dry_run_changes_nothing() {
    let place = with_tree();
    let before = snapshot(&place.join("source"));
    let finished = place.copy("source", "target").arg("--dry-run").ok();
    assert!(!place.join("target").exists());
    assert!(
        finished.mentions("3145745.bin"),
        "a dry run lists its actions: {finished}"
    );
    place.copy("source", "target").ok();
    text(&place.join("target/extra"), "x");
    text(&place.join("target/empty"), "other");
    let target = snapshot(&place.join("target"));
    place.copy("source", "target").args(["-T", "-n"]).ok();
    let finished = place
        .ropeway("mirror")
        .args(["--json", "-n", "--yes", "source", "target"])
        .ok();
    assert!(finished.mentions("extra"), "{finished}");
    place.copy("source", "target").args(["-T", "-n", "--move"]).ok();
    assert_eq!(snapshot(&place.join("target")), target);
    assert_eq!(snapshot(&place.join("source")), before);
    assert!(!place.jobs().exists() || support::walk(&place.jobs()).is_empty());
}

#[test]
fn kinds_that_conflict() {
    let place = Place::new();
    let (source, target) = (place.folder("source"), place.folder("target"));
    fs::create_dir(source.join("folder here")).unwrap();
    text(&source.join("folder here/inside"), "x");
    text(&source.join("file here"), "file");
    symlink("x", source.join("link here")).unwrap();
    text(&source.join("fine"), "fine");
    text(&target.join("folder here"), "a file");
    fs::create_dir(target.join("file here")).unwrap();
    text(&target.join("file here/precious"), "stays");
    text(&target.join("link here"), "a file");
    // A copy never replaces a folder that has contents by a file. The rest is copied and the
    // conflict is reported.
    let finished = place.copy("source", "target").arg("-T").exits(2);
    assert!(finished.mentions("file here"), "{finished}");
    assert_eq!(read(target.join("file here/precious")), "stays");
    assert_eq!(read(target.join("fine")), "fine");
    support::no_temporaries(&target);
    // A mirror does, because it makes the target equal.
    place
        .ropeway("mirror")
        .args(["--json", "--yes", "source", "target"])
        .ok();
    same(&source, &target);
}

#[test]
fn every_engine_gives_an_equal_tree() {
    let place = with_tree();
    for engine in ["auto", "xp", "vista", "vista-sp1"] {
        for io in ["psync", "uring"] {
            let target = place.join(format!("{engine} {io}"));
            place
                .copy("source", &target)
                .args(["--engine", engine])
                .env("ROPEWAY_IO", io)
                .ok();
            same(&place.join("source"), &target);
        }
    }
}

#[test]
fn every_cache_mode_and_durability_gives_an_equal_tree() {
    let place = with_tree();
    support::file(&place.join("source/odd size"), (9 << 20) + 4_001, 5);
    for cache in ["auto", "keep", "leave", "direct"] {
        for io in ["psync", "uring"] {
            let target = place.join(format!("{cache} {io}"));
            place
                .copy("source", &target)
                .args(["--cache", cache])
                .env("ROPEWAY_IO", io)
                .ok();
            same(&place.join("source"), &target);
        }
    }
    for durability in ["none", "end", "file"] {
        let target = place.join(durability);
        let finished = place
            .copy("source", &target)
            .args(["--durability", durability])
            .ok();
        same(&place.join("source"), &target);
        let summary = finished.summary();
        if durability == "none" {
            assert!(
                summary["seconds_durable"].is_null(),
                "the run did not wait for durability: {summary}"
            );
        } else {
            assert_eq!(summary["bytes_durable"], summary["bytes"], "{summary}");
            assert!(
                summary["seconds_durable"].as_f64() >= summary["seconds_perceived"].as_f64(),
                "{summary}"
            );
        }
    }
}

#[test]
fn verify_and_manifests() {
    let place = with_tree();
    let finished = place
        .copy("source", "target")
        .args(["--verify", "--manifest", "hashes"])
        .ok();
    same(&place.join("source"), &place.join("target"));
    assert_eq!(finished.number("errors"), 0);
    let manifest = read(place.join("hashes"));
    let expected = blake3::hash(&fs::read(place.join("source/deep/3145745.bin")).unwrap());
    let line = manifest
        .lines()
        .find(|line| line.ends_with("deep/3145745.bin"))
        .unwrap();
    assert!(line.starts_with(expected.to_hex().as_str()), "{line}");
    let check = || {
        place
            .ropeway("check")
            .args(["--json", "--manifest", "hashes", "target"])
    };
    check().ok();
    let victim = place.join("target/deep/65536.bin");
    let time = fs::metadata(&victim).unwrap().modified().unwrap();
    let byte = support::byte_at(&victim, 40_000);
    support::write_at(&victim, 40_000, &[byte ^ 1]);
    fs::File::open(&victim).unwrap().set_modified(time).unwrap();
    let finished = check().exits(7);
    assert!(finished.mentions("65536.bin"), "{finished}");
    support::write_at(&victim, 40_000, &[byte]);
    check().ok();
    fs::remove_file(&victim).unwrap();
    assert!(check().exits(7).mentions("65536.bin"));
}

#[test]
fn check_reports_every_kind_of_difference() {
    let place = with_tree();
    place.copy("source", "target").ok();
    let check = |flags: &[&str]| {
        place
            .ropeway("check")
            .args(["--json", "source", "target"])
            .args(flags)
            .run()
    };
    check(&[]).assert_code(&[0]);
    check(&["--checksum"]).assert_code(&[0]);
    let target = place.join("target");
    text(&target.join("extra"), "x");
    let finished = check(&[]);
    finished.assert_code(&[7]);
    assert!(finished.mentions("extra"), "{finished}");
    fs::remove_file(target.join("extra")).unwrap();
    fs::remove_file(target.join("empty")).unwrap();
    let finished = check(&[]);
    finished.assert_code(&[7]);
    assert!(
        finished.mentions("empty") && finished.mentions("missing"),
        "{finished}"
    );
    place.copy("source", "target").arg("-T").ok();
    check(&[]).assert_code(&[0]);
    fs::set_permissions(target.join("deep"), fs::Permissions::from_mode(0o711)).unwrap();
    check(&[]).assert_code(&[7]);
    check(&["--no-mode"]).assert_code(&[0]);
}
