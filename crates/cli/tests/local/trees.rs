//! Trees with the oddest names and types are copied exactly, by io_uring and by psync, as root and
//! as an ordinary user.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::support::{
    self, Compare, Place, is_root, mixed, needs, odd_names, or_skip, same, set_times, skip, text, tool,
};

/// Both I/O engines.
const BOTH: [&str; 2] = ["psync", "uring"];

/// Copies with both engines, compares, and copies again: the second run may send nothing.
#[track_caller]
fn round_trip(place: &Place, source: &Path) {
    round_trip_with(place, source, &[]);
}

fn round_trip_with(place: &Place, source: &Path, flags: &[&str]) {
    for io in BOTH {
        let target = place.join(format!("target {io}"));
        let copy = || place.copy(source, &target).args(flags).env("ROPEWAY_IO", io);
        let first = copy().ok();
        assert_eq!(first.number("errors"), 0, "{first}");
        same(source, &target);
        let second = copy().arg("-T").ok();
        assert_eq!(second.number("bytes_sent"), 0, "{second}");
        assert_eq!(second.number("files"), first.number("files"), "{second}");
        same(source, &target);
    }
}

fn special(place: &Path, arguments: &[&str]) {
    let path = place.to_str().unwrap();
    let all: Vec<&str> = arguments[..1]
        .iter()
        .copied()
        .chain([path])
        .chain(arguments[1..].iter().copied())
        .collect();
    tool(all[0], &all[1..]).unwrap();
}

#[test]
fn an_ordinary_tree() {
    let place = Place::new();
    let source = place.join("source");
    mixed(&source);
    round_trip(&place, &source);
}

#[test]
fn odd_names_of_files_and_folders() {
    let place = Place::new();
    let source = place.join("source");
    odd_names(&source);
    round_trip(&place, &source);
}

#[test]
fn odd_names_given_on_the_command_line() {
    let place = Place::new();
    let source = place.folder("source");
    let names: [&[u8]; 4] = [b"-rf", b"\xff\n\x80", b" ", &[b'n'; 255]];
    for name in names {
        let name = support::name_bytes(name);
        fs::write(source.join(name), "x").unwrap();
        place
            .ropeway("copy")
            .args(["--json", "--"])
            .arg(name)
            .arg("../out")
            .current_dir(&source)
            .ok();
        assert_eq!(fs::read(place.join("out")).unwrap(), b"x");
        fs::remove_file(place.join("out")).unwrap();
        // Also into a folder with such a name.
        let folder = place.path().join(name);
        fs::create_dir(&folder).unwrap();
        place
            .ropeway("copy")
            .args(["--json", "--"])
            .arg(source.join(name))
            .arg(&folder)
            .ok();
        assert_eq!(fs::read(folder.join(name)).unwrap(), b"x");
    }
}

#[test]
fn symbolic_links_of_every_kind() {
    let place = Place::new();
    let source = place.folder("source");
    let outside = place.join("outside");
    text(&outside, "not part of it");
    let long = "../".repeat(1_300) + "x";
    let links = [
        ("dangling", "nowhere"),
        ("to itself", "to itself"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("up", ".."),
        ("here", "."),
        ("absolute", "/etc/hostname"),
        ("outside", outside.to_str().unwrap()),
        ("long", &long),
        ("spaces", " a b "),
    ];
    for (name, to) in links {
        symlink(to, source.join(name)).unwrap();
    }
    symlink(support::name_bytes(b"\xff\n"), source.join("bytes")).unwrap();
    fs::create_dir(source.join("folder")).unwrap();
    symlink("../folder", source.join("folder/loop")).unwrap();
    for name in ["dangling", "up", "ping"] {
        let moment = rustix::fs::Timespec {
            tv_sec: 1_234_567_890,
            tv_nsec: 987_654_321,
        };
        let times = rustix::fs::Timestamps {
            last_access: moment,
            last_modification: moment,
        };
        rustix::fs::utimensat(
            rustix::fs::CWD,
            source.join(name),
            &times,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
    }
    round_trip(&place, &source);
}

#[test]
fn a_link_given_as_source_is_copied_as_a_link() {
    let place = Place::new();
    mixed(&place.join("real"));
    symlink("real", place.join("link")).unwrap();
    place.copy("link", "copied").ok();
    assert_eq!(fs::read_link(place.join("copied")).unwrap(), Path::new("real"));
}

#[test]
fn pipes_and_sockets() {
    let place = Place::new();
    let source = place.folder("source");
    special(&source.join("fifo"), &["mkfifo"]);
    fs::set_permissions(source.join("fifo"), Permissions::from_mode(0o620)).unwrap();
    text(&source.join("beside"), "x");
    round_trip(&place, &source);
    let _listener = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    let target = place.join("with socket");
    let finished = place.copy(&source, &target).run();
    finished.assert_code(&[0, 2]);
    assert!(
        finished.mentions("socket"),
        "the socket must be reported: {finished}"
    );
    assert!(target.join("beside").exists() && fs::symlink_metadata(target.join("socket")).is_err());
}

#[test]
fn devices() {
    or_skip!(needs(true, &["mknod"]));
    let place = Place::new();
    let source = place.folder("source");
    special(&source.join("null"), &["mknod", "c", "1", "3"]);
    special(&source.join("loop"), &["mknod", "b", "7", "99"]);
    special(&source.join("large"), &["mknod", "c", "300", "70000"]);
    fs::set_permissions(source.join("null"), Permissions::from_mode(0o666)).unwrap();
    round_trip_with(&place, &source, &["--devices"]);
}

#[test]
fn hard_links_across_folders() {
    let place = Place::new();
    let source = place.folder("source");
    for folder in ["a", "b/c", "z"] {
        fs::create_dir_all(source.join(folder)).unwrap();
    }
    support::file(&source.join("z/first"), 100_000, 1);
    for name in ["a/second", "b/c/third", "fourth"] {
        fs::hard_link(source.join("z/first"), source.join(name)).unwrap();
    }
    support::file(&source.join("a/big"), 5 << 20, 2);
    fs::hard_link(source.join("a/big"), source.join("b/big")).unwrap();
    text(&source.join("outside link"), "its other name is not copied");
    fs::hard_link(source.join("outside link"), place.join("elsewhere")).unwrap();
    let target = place.join("target");
    let finished = place.copy(&source, &target).ok();
    fs::remove_file(place.join("elsewhere")).unwrap();
    same(&source, &target);
    let bytes = 100_000 + (5 << 20) + 28;
    assert!(
        finished.number("bytes_sent") <= bytes,
        "each content is sent once: {finished}"
    );
    let apart = place.join("apart");
    place.copy(&source, &apart).arg("--no-hard-links").ok();
    assert_eq!(fs::metadata(apart.join("z/first")).unwrap().nlink(), 1);
    Compare {
        hard_links: false,
        ..Compare::ALL
    }
    .check(&source, &apart);
}

#[test]
fn hard_links_of_a_symbolic_link() {
    let place = Place::new();
    let source = place.folder("source");
    for folder in ["a", "b"] {
        fs::create_dir(source.join(folder)).unwrap();
    }
    symlink("x", source.join("a/link")).unwrap();
    rustix::fs::linkat(
        rustix::fs::CWD,
        source.join("a/link"),
        rustix::fs::CWD,
        source.join("b/same link"),
        rustix::fs::AtFlags::empty(),
    )
    .unwrap();
    round_trip(&place, &source);
}

#[test]
fn sparse_files() {
    let place = Place::new();
    let source = place.folder("source");
    let sparse = |name: &str, size: u64, data: &[(u64, usize)]| {
        let file = File::create(source.join(name)).unwrap();
        file.set_len(size).unwrap();
        for (offset, length) in data {
            file.write_all_at(&vec![0xA5; *length], *offset).unwrap();
        }
    };
    sparse("all hole", 100 << 20, &[]);
    sparse("tail", 10 << 20, &[((10 << 20) - 5, 5)]);
    sparse("head", 64 << 20, &[(0, 1)]);
    sparse("middle", 300 << 20, &[(150 << 20, 70_000)]);
    sparse("odd end", (8 << 20) + 123, &[(1 << 20, 4_096)]);
    let comb: Vec<(u64, usize)> = (0..200).map(|tooth| (tooth * 65_536, 4_096)).collect();
    sparse("comb", 200 * 65_536, &comb);
    for io in BOTH {
        let target = place.join(format!("target {io}"));
        let finished = place.copy(&source, &target).env("ROPEWAY_IO", io).ok();
        same(&source, &target);
        assert!(
            finished.number("bytes_sent") < 8 << 20,
            "holes are not sent: {finished}"
        );
        for entry in fs::read_dir(&source).unwrap() {
            let entry = entry.unwrap();
            let (ours, theirs) = (
                fs::metadata(target.join(entry.file_name())).unwrap(),
                entry.metadata().unwrap(),
            );
            let slack = theirs.blocks() / 4 + 256;
            assert!(
                ours.blocks() <= theirs.blocks() + slack,
                "{:?} grew",
                entry.file_name()
            );
        }
    }
}

#[test]
fn modes_and_set_id_bits() {
    let place = Place::new();
    let source = place.folder("source");
    for mode in [
        0o000, 0o400, 0o600, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1644, 0o7777,
    ] {
        if mode & 0o400 == 0 && !is_root() {
            continue;
        }
        let path = source.join(format!("file {mode:04o}"));
        text(&path, "x");
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    for mode in [0o700, 0o755, 0o1777, 0o2775, 0o3770, 0o500, 0o555] {
        let path = source.join(format!("folder {mode:04o}"));
        fs::create_dir(&path).unwrap();
        text(&path.join("inside"), "x");
        fs::create_dir(path.join("below")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    if is_root() {
        for (number, mode) in [0o4755, 0o2755, 0o6755, 0o644].into_iter().enumerate() {
            let path = source.join(format!("owned {mode:o}"));
            text(&path, "x");
            let id = 1_000 + u32::try_from(number).unwrap();
            std::os::unix::fs::chown(&path, Some(id), Some(id + 1)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
    }
    round_trip(&place, &source);
}

#[test]
fn times_to_the_nanosecond_and_of_folders() {
    let place = Place::new();
    let source = place.join("source");
    fs::create_dir_all(source.join("a/b/c")).unwrap();
    let moments = [
        (0, 0),
        (1, 1),
        (1_700_000_000, 999_999_999),
        (2_000_000_000, 5),
        (4_000_000_000, 0),
    ];
    for (number, (seconds, nanoseconds)) in moments.into_iter().enumerate() {
        let path = source.join(format!("a/b/c/{number}"));
        support::file(&path, number as u64 * 700_000, 1);
        set_times(&path, seconds, nanoseconds);
    }
    let before = std::time::UNIX_EPOCH - std::time::Duration::from_millis(86_400_001);
    text(&source.join("before 1970"), "x");
    File::open(source.join("before 1970"))
        .unwrap()
        .set_modified(before)
        .unwrap();
    for (number, folder) in ["a/b/c", "a/b", "a", "."].into_iter().enumerate() {
        set_times(&source.join(folder), 1_100_000_000 + number as u64, 111_111_111);
    }
    round_trip(&place, &source);
}

#[test]
fn extended_attributes_and_capabilities() {
    or_skip!(needs(true, &["setfattr", "getfattr", "setcap"]));
    let place = Place::new();
    let source = place.folder("source");
    fs::create_dir(source.join("folder")).unwrap();
    text(&source.join("file"), "x");
    support::file(&source.join("big"), 2 << 20, 3);
    symlink("file", source.join("link")).unwrap();
    let large = "v".repeat(3_000);
    for (name, value, on) in [
        ("user.comment", "hello", "file"),
        ("user.empty", "", "file"),
        ("user.with space", "v", "big"),
        ("user.large", large.as_str(), "big"),
        ("user.folder", "f", "folder"),
        ("trusted.deep", "t", "file"),
    ] {
        let path = source.join(on);
        or_skip!(tool(
            "setfattr",
            &["-n", name, "-v", value, path.to_str().unwrap()]
        ));
    }
    let link = source.join("link");
    or_skip!(tool(
        "setfattr",
        &["-h", "-n", "trusted.link", "-v", "l", link.to_str().unwrap()]
    ));
    text(&source.join("capable"), "#!/bin/sh\n");
    let capable = source.join("capable");
    fs::set_permissions(&capable, Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&capable, Some(1_000), Some(1_000)).unwrap();
    or_skip!(tool(
        "setcap",
        &["cap_net_raw,cap_net_bind_service+ep", capable.to_str().unwrap()]
    ));
    round_trip(&place, &source);
}

#[test]
fn a_changed_attribute_is_copied_without_the_contents() {
    or_skip!(needs(false, &["setfattr", "getfattr"]));
    let place = Place::new();
    let source = place.folder("source");
    let file = source.join("file");
    let set = |arguments: &[&str]| {
        let all: Vec<&str> = arguments
            .iter()
            .copied()
            .chain([file.to_str().unwrap()])
            .collect();
        tool("setfattr", &all)
    };
    text(&file, "x");
    or_skip!(set(&["-n", "user.comment", "-v", "first"]));
    or_skip!(set(&["-n", "user.gone", "-v", "soon"]));
    let target = place.join("target");
    place.copy(&source, &target).ok();
    same(&source, &target);
    set(&["-n", "user.comment", "-v", "changed"]).unwrap();
    set(&["-x", "user.gone"]).unwrap();
    let finished = place.copy(&source, &target).arg("-T").ok();
    same(&source, &target);
    assert_eq!(finished.number("bytes_sent"), 0, "{finished}");
}

#[test]
fn access_control_lists() {
    or_skip!(needs(false, &["setfacl", "getfacl", "getfattr"]));
    let place = Place::new();
    let source = place.folder("source");
    fs::create_dir(source.join("folder")).unwrap();
    text(&source.join("file"), "x");
    text(&source.join("masked"), "x");
    let set = |arguments: &[&str], on: &str| {
        let path = source.join(on);
        let all: Vec<&str> = arguments
            .iter()
            .copied()
            .chain([path.to_str().unwrap()])
            .collect();
        tool("setfacl", &all)
    };
    or_skip!(set(&["-m", "u:1000:rw,g:100:r"], "file"));
    or_skip!(set(&["-m", "u:1000:rwx,m::r"], "masked"));
    or_skip!(set(&["-m", "u:1001:rwx"], "folder"));
    or_skip!(set(&["-d", "-m", "u:1001:rwx,g:100:rx,m::rx"], "folder"));
    // One created after the default ACL, so it has inherited one; and one whose ACL was removed.
    text(&source.join("folder/heir"), "x");
    text(&source.join("folder/bare"), "x");
    or_skip!(set(&["-b"], "folder/bare"));
    fs::create_dir(source.join("folder/below")).unwrap();
    round_trip(&place, &source);
}

#[test]
fn a_default_acl_on_the_target_does_not_leak_into_the_copy() {
    or_skip!(needs(false, &["setfacl", "getfattr"]));
    let place = Place::new();
    let source = place.join("source");
    mixed(&source);
    let into = place.folder("into");
    or_skip!(tool(
        "setfacl",
        &["-d", "-m", "u:1001:rwx,g:100:rwx", into.to_str().unwrap()]
    ));
    place.copy(&source, &into).ok();
    same(&source, &into.join("source"));
}

#[test]
fn empty_things() {
    let place = Place::new();
    let empty = place.folder("empty");
    place.copy(&empty, place.join("copy of empty")).ok();
    same(&empty, &place.join("copy of empty"));
    let nest = place.join("nest");
    fs::create_dir_all(nest.join("a/b/c/d")).unwrap();
    for number in 0..50 {
        text(&nest.join(format!("a/{number}")), "");
    }
    round_trip(&place, &nest);
}

#[test]
fn an_ordinary_user_can_copy_everything_but_owners() {
    let place = Place::new();
    let source = place.join("source");
    mixed(&source);
    let locked = source.join("read-only folder");
    fs::create_dir(&locked).unwrap();
    text(&locked.join("inside"), "x");
    fs::set_permissions(&locked, Permissions::from_mode(0o555)).unwrap();
    let home = place.folder_of_nobody("home");
    for io in BOTH {
        let target = home.join(format!("target {io}"));
        let run = or_skip!(place.ropeway_as_nobody("copy"));
        let finished = run
            .arg("--json")
            .arg(&source)
            .arg(&target)
            .env("ROPEWAY_IO", io)
            .ok();
        assert_eq!(finished.number("errors"), 0, "{finished}");
        assert!(
            finished.mentions("owner"),
            "the loss of owners must be reported: {finished}"
        );
        Compare {
            owners: false,
            ..Compare::ALL
        }
        .check(&source, &target);
        let again = or_skip!(place.ropeway_as_nobody("copy"));
        let again = again
            .args(["--json", "-T"])
            .arg(&source)
            .arg(&target)
            .env("ROPEWAY_IO", io)
            .ok();
        assert_eq!(again.number("bytes_sent"), 0, "{again}");
    }
}

#[test]
fn unreadable_files_are_reported_and_the_rest_is_copied() {
    let place = Place::new();
    let source = place.join("source");
    mixed(&source);
    text(&source.join("secret"), "x");
    fs::set_permissions(source.join("secret"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(source.join("closed")).unwrap();
    text(&source.join("closed/inside"), "x");
    fs::set_permissions(source.join("closed"), Permissions::from_mode(0o700)).unwrap();
    let target = place.folder_of_nobody("home").join("target");
    let run = or_skip!(place.ropeway_as_nobody("copy"));
    let finished = run.arg("--json").arg(&source).arg(&target).exits(2);
    assert!(
        finished.mentions("secret") && finished.mentions("closed"),
        "{finished}"
    );
    assert_eq!(finished.number("errors"), 2, "{finished}");
    assert_eq!(fs::read(target.join("one byte")).unwrap(), b"x");
    assert!(!target.join("secret").exists() && !target.join("closed/inside").exists());
    support::no_temporaries(&target);
}

#[test]
fn a_real_tree() {
    let source = Path::new("/usr/include");
    if !source.is_dir() {
        skip!("there is no /usr/include");
    }
    let place = Place::new();
    let target = place.join("target");
    place.copy(source, &target).ok();
    // An ordinary user cannot keep root as the owner.
    Compare {
        owners: is_root(),
        ..Compare::ALL
    }
    .check(source, &target);
}
