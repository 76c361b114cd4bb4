//! Other file systems: reflinks, FAT, memory, and copies between volumes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::support::{
    self, Place, Volume, content_same, file, mixed, needs, odd_names, or_skip, same, text, tool,
};

const MIB: u64 = 1 << 20;

/// Files up to this size may go through a buffer instead of being reflinked.
const SMALL: u64 = 64 << 10;

/// Checks that a copy on one volume with reflinks sends nothing (except small files), and that the
/// blocks are shared.
fn shares_blocks(volume: Result<Volume, String>) {
    let volume = or_skip!(volume);
    let place = Place::new();
    let (source, target) = (volume.join("source"), volume.join("target"));
    mixed(&source);
    file(&source.join("big"), 24 * MIB + 5, 1);
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.set_len(40 * MIB).unwrap();
    sparse.write_all_at(&[1; 100_000], 20 * MIB).unwrap();
    // The free space is known only after write-back of the source.
    tool("sync", &["-f".as_ref(), volume.root().as_os_str()]).unwrap();
    let before = volume.free();
    let finished = place.copy(&source, &target).ok();
    same(&source, &target);
    let lengths = support::walk(&source)
        .into_iter()
        .map(|path| fs::symlink_metadata(path).unwrap().len());
    let small: u64 = lengths.filter(|length| *length <= SMALL).sum();
    assert!(finished.number("bytes_sent") <= small, "{finished}");
    assert!(finished.number("bytes") > 60 * MIB);
    let alone = place.copy(source.join("big"), volume.join("alone")).ok();
    assert_eq!(alone.number("bytes_sent"), 0, "{alone}");
    assert!(
        before.saturating_sub(volume.free()) < 12 * MIB,
        "the data was copied after all"
    );
    if needs(false, &["filefrag"]).is_ok() {
        let extents = tool("filefrag", &["-v".as_ref(), target.join("big").as_os_str()]).unwrap();
        assert!(extents.contains("shared"), "{extents}");
    }
    let verified = place.copy(&source, volume.join("verified")).arg("--verify").ok();
    same(&source, &volume.join("verified"));
    assert_eq!(verified.number("errors"), 0);
}

#[test]
fn reflinks_on_xfs() {
    shares_blocks(Volume::xfs());
}

#[test]
fn reflinks_on_btrfs() {
    shares_blocks(Volume::btrfs());
}

#[test]
fn a_reflinked_copy_is_independent() {
    let volume = or_skip!(Volume::xfs());
    let place = Place::new();
    file(&volume.join("a"), 8 * MIB, 1);
    file(&place.join("kept"), 8 * MIB, 1);
    place.copy(volume.join("a"), volume.join("b")).ok();
    support::write_at(&volume.join("a"), 4 * MIB, b"only here");
    content_same(&place.join("kept"), &volume.join("b"));
}

#[test]
fn between_volumes() {
    let place = Place::new();
    let source = place.join("source");
    mixed(&source);
    odd_names(&source.join("odd"));
    let volumes = [
        Volume::tmpfs(64),
        Volume::ext4(96),
        Volume::xfs(),
        Volume::btrfs(),
    ];
    for (number, volume) in volumes.into_iter().enumerate() {
        let volume = match volume {
            Ok(volume) => volume,
            Err(why) => {
                println!("skipped: volume {number}: {why}");
                continue;
            }
        };
        for io in ["psync", "uring"] {
            for cache in ["auto", "direct"] {
                let target = volume.join(format!("{io} {cache}"));
                place
                    .copy(&source, &target)
                    .args(["--cache", cache, "--verify"])
                    .env("ROPEWAY_IO", io)
                    .ok();
                same(&source, &target);
                fs::remove_dir_all(&target).unwrap();
            }
        }
        // And back.
        place.copy(&source, volume.join("there")).ok();
        let back = place.join(format!("back {number}"));
        place.copy(volume.join("there"), &back).ok();
        same(&source, &back);
    }
}

#[test]
fn losses_on_a_volume_are_reported_and_are_not_failures() {
    let volume = or_skip!(Volume::fat(96));
    let place = Place::new();
    let source = place.folder("source");
    text(&source.join("file"), "x");
    fs::hard_link(source.join("file"), source.join("twin")).unwrap();
    let target = volume.join("target");
    let finished = place.copy(&source, &target).ok();
    assert!(
        finished.mentions("hard_link") || finished.mentions("hard link"),
        "each loss is reported: {finished}"
    );
    content_same(&source, &target);
    // The volume cannot hold links at all: the link is reported, and the rest is copied.
    std::os::unix::fs::symlink("file", source.join("link")).unwrap();
    let finished = place.copy(&source, volume.join("second")).exits(2);
    assert!(finished.mentions("link"), "{finished}");
    assert!(volume.join("second/twin").exists());
}

#[test]
fn fat_has_times_of_two_seconds_but_nothing_is_copied_twice() {
    let volume = or_skip!(Volume::fat(96));
    let place = Place::new();
    let source = place.folder("source");
    fs::create_dir(source.join("folder")).unwrap();
    for number in 0..12_u32 {
        let path = source.join(format!("folder/file {number}"));
        file(&path, u64::from(number) * 10_000, u64::from(number));
        support::set_times(&path, 1_600_000_001 + u64::from(number), number * 83_000_000);
    }
    file(&source.join("big"), 6 * MIB, 9);
    let target = volume.join("target");
    let first = place.copy(&source, &target).ok();
    content_same(&source, &target);
    assert!(first.number("bytes_sent") > 6 * MIB);
    let second = place.copy(&source, &target).arg("-T").ok();
    assert_eq!(second.number("bytes_sent"), 0, "{second}");
    place
        .ropeway("check")
        .arg(&source)
        .arg(&target)
        .args(["--no-mode", "--no-owner", "--no-xattrs"])
        .ok();
    let mirrored = place
        .ropeway("mirror")
        .arg("--json")
        .arg(&source)
        .arg(&target)
        .ok();
    assert_eq!(mirrored.number("bytes_sent"), 0, "{mirrored}");
    text(&source.join("folder/file 3"), "changed");
    let third = place.copy(&source, &target).arg("-T").ok();
    assert_eq!(third.number("bytes_sent"), 7, "{third}");
    // The way back too.
    place.copy(&target, place.join("back")).ok();
    content_same(&source, &place.join("back"));
}

#[test]
fn names_that_fat_cannot_hold_are_never_lost_silently() {
    let volume = or_skip!(Volume::fat(64));
    let place = Place::new();
    let source = place.folder("source");
    for name in ["a:b", "what?", "star*", "tab\t", "plain"] {
        text(&source.join(name), name);
    }
    // fusefat supports ASCII names only, so mapping cannot help: each name is reported, and the
    // rest is copied.
    for flags in [&["--names", "refuse"][..], &[]] {
        let target = volume.join(format!("target {}", flags.len()));
        let finished = place.copy(&source, &target).args(flags).run();
        finished.assert_code(&[2, 8]);
        for name in ["a:b", "what?", "star*"] {
            assert!(finished.mentions(name), "{name} is lost: {finished}");
        }
        if finished.code() == Some(2) {
            assert_eq!(fs::read_to_string(target.join("plain")).unwrap(), "plain");
        }
    }
}

#[test]
fn names_that_exfat_cannot_hold_are_mapped_and_mapped_back() {
    let volume = or_skip!(Volume::exfat(64));
    let place = Place::new();
    let source = place.folder("source");
    let names = [
        "a:b",
        "what?",
        "star*",
        "<angle>",
        "pipe|",
        "quote\"",
        "back\\slash",
        "trailing dot.",
        "trailing space ",
        "tab\t",
        "CON",
        "plain",
    ];
    for name in names {
        text(&source.join(name), name);
    }
    fs::create_dir(source.join("folder: odd")).unwrap();
    text(&source.join("folder: odd/in?side"), "x");
    let refusing = place
        .copy(&source, volume.join("refused"))
        .args(["--names", "refuse"])
        .run();
    refusing.assert_code(&[2, 8]);
    assert!(refusing.mentions("a:b"), "{refusing}");
    let target = volume.join("target");
    let finished = place.copy(&source, &target).ok();
    assert!(finished.mentions("name"), "the mapping is reported: {finished}");
    assert_eq!(support::walk(&target).len(), support::walk(&source).len());
    let again = place.copy(&source, &target).arg("-T").ok();
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
    place.copy(&target, place.join("back")).ok();
    content_same(&source, &place.join("back"));
    let mirror = place
        .ropeway("mirror")
        .args(["--json", "--yes", "--max-delete", "0"]);
    let mirrored = mirror.arg(&source).arg(&target).ok();
    assert_eq!(
        mirrored.number("bytes_sent"),
        0,
        "mapped names are not extras: {mirrored}"
    );
}

#[test]
fn a_tree_on_exfat() {
    let volume = or_skip!(Volume::exfat(96));
    let place = Place::new();
    let source = place.join("source");
    mixed(&source);
    for link in ["link", "dangling"] {
        fs::remove_file(source.join(link)).unwrap();
    }
    for io in ["psync", "uring"] {
        let target = volume.join(io);
        place
            .copy(&source, &target)
            .env("ROPEWAY_IO", io)
            .arg("--verify")
            .ok();
        content_same(&source, &target);
        let again = place.copy(&source, &target).env("ROPEWAY_IO", io).arg("-T").ok();
        assert_eq!(again.number("bytes_sent"), 0, "{again}");
    }
}

fn case_collisions(volume: Result<Volume, String>) {
    let volume = or_skip!(volume);
    let place = Place::new();
    let source = place.folder("source");
    for name in ["Read Me", "read me", "other"] {
        text(&source.join(name), name);
    }
    let target = volume.join("target");
    let finished = place.copy(&source, &target).run();
    finished.assert_code(&[2, 8]);
    assert!(
        finished.mentions("case") && finished.mentions("Read Me"),
        "{finished}"
    );
    if finished.code() == Some(8) {
        return;
    }
    assert_eq!(fs::read_to_string(target.join("other")).unwrap(), "other");
    // If one of the files is there, it is complete and has its own contents.
    let found: Vec<String> = fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.eq_ignore_ascii_case("read me"))
        .collect();
    assert!(found.len() <= 1, "{found:?}");
    for name in found {
        assert_eq!(fs::read_to_string(target.join(&name)).unwrap(), name);
    }
}

#[test]
fn names_that_differ_only_in_case_are_reported_on_fat() {
    case_collisions(Volume::fat(64));
}

#[test]
fn names_that_differ_only_in_case_are_reported_on_exfat() {
    case_collisions(Volume::exfat(64));
}

#[test]
fn preflight_finds_a_lack_of_space_before_the_first_write() {
    let volume = or_skip!(Volume::ext4(64));
    let place = Place::new();
    let source = place.folder("source");
    file(&source.join("a"), 40 * MIB, 1);
    file(&source.join("b"), 40 * MIB, 2);
    let target = volume.join("target");
    let finished = place.copy(&source, &target).arg("--preflight").exits(4);
    assert!(
        finished.mentions("space") || finished.mentions("room"),
        "{finished}"
    );
    assert!(
        !target.exists() || fs::read_dir(&target).unwrap().next().is_none(),
        "nothing is written"
    );
    // A tree that already exists needs no space.
    fs::remove_file(source.join("b")).unwrap();
    place.copy(&source, &target).ok();
    place.copy(&source, &target).args(["-T", "--preflight"]).ok();
    same(&source, &target);
}

#[test]
fn a_mount_point_as_the_target() {
    let volume = or_skip!(Volume::tmpfs(64));
    let place = Place::new();
    mixed(&place.join("source"));
    place.copy("source", volume.root()).ok();
    same(&place.join("source"), &volume.join("source"));
    place
        .ropeway("mirror")
        .args(["--json", "--yes", "source"])
        .arg(volume.root())
        .ok();
    same(&place.join("source"), &volume.root());
}

#[test]
fn a_target_without_extended_attributes_says_so() {
    let volume = or_skip!(Volume::fat(64));
    or_skip!(needs(false, &["setfattr"]));
    let place = Place::new();
    let source = place.folder("source");
    text(&source.join("file"), "x");
    let path = source.join("file");
    or_skip!(tool(
        "setfattr",
        &["-n", "user.comment", "-v", "hello", path.to_str().unwrap()]
    ));
    let finished = place.copy(&source, volume.join("target")).ok();
    assert!(
        finished.mentions("xattr") || finished.mentions("extended attribute"),
        "{finished}"
    );
    content_same(&source, &volume.join("target"));
}
