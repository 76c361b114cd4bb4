//! Targets that are not regular files: links, FIFOs, sockets and devices.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::support::{Place, no_temporaries, or_skip, set_times, text, tool};

fn fifo(path: &Path) {
    tool("mkfifo", &[path.as_os_str()]).unwrap();
}

/// Makes `image`, a file, a FIFO, a socket and links.
fn ground() -> Place {
    let place = Place::new();
    text(&place.join("image"), "an image");
    fifo(&place.join("fifo"));
    drop(UnixListener::bind(place.join("socket")).unwrap());
    text(&place.join("file"), "old");
    symlink("file", place.join("link")).unwrap();
    symlink("nowhere", place.join("dangling")).unwrap();
    symlink("fifo", place.join("to fifo")).unwrap();
    place
}

fn kind(path: &Path) -> fs::FileType {
    fs::symlink_metadata(path).unwrap().file_type()
}

/// A regular file replaced the FIFO or socket, and the process at its other end waited forever.
#[test]
fn a_fifo_or_socket_as_target_is_refused_and_stays() {
    let place = ground();
    for flags in [&[][..], &["-T"], &["--force"], &["--inplace"]] {
        for target in ["fifo", "socket", "to fifo"] {
            let finished = place.ropeway("copy").args(flags).args(["image", target]).exits(1);
            assert!(finished.mentions("hint:"), "{finished}");
        }
    }
    // A device like /dev/null, where creating one is allowed.
    let null = place.join("null");
    if tool(
        "mknod",
        &[null.as_os_str(), "c".as_ref(), "1".as_ref(), "3".as_ref()],
    )
    .is_ok()
    {
        place.ropeway("copy").args(["image", "null"]).exits(1);
        assert!(kind(&null).is_char_device());
    }
    // Also under its own name in a folder.
    fs::create_dir(place.join("folder")).unwrap();
    fifo(&place.join("folder/image"));
    place.ropeway("copy").args(["image", "folder"]).exits(1);
    assert!(kind(&place.join("fifo")).is_fifo() && kind(&place.join("folder/image")).is_fifo());
    assert!(kind(&place.join("socket")).is_socket() && kind(&place.join("to fifo")).is_symlink());
    // The same FIFO may be copied over itself.
    place.copy("fifo", "folder").ok();
    place.copy("fifo", "folder").ok();
}

/// A file replaced the device node. It would have filled /dev, and the run reported SAFE TO UNPLUG.
#[test]
fn a_block_device_as_target_is_refused_and_stays() {
    let place = ground();
    let device = place.join("device");
    // The number of a device that does not exist (reserved for local and experimental use).
    or_skip!(tool(
        "mknod",
        &[device.as_os_str(), "b".as_ref(), "240".as_ref(), "7".as_ref()]
    ));
    let finished = place.ropeway("copy").args(["image", "device"]).exits(1);
    assert!(finished.mentions("--write-device"), "{finished}");
    symlink("device", place.join("to device")).unwrap();
    place.ropeway("copy").args(["image", "to device"]).exits(1);
    assert!(kind(&device).is_block_device() && kind(&place.join("to device")).is_symlink());
    // A node without a device behind it cannot be written.
    place
        .ropeway("copy")
        .args(["--write-device", "image", "device"])
        .exits(4);
    for target in ["file", "fifo", "link", "nothing here"] {
        place
            .ropeway("copy")
            .args(["--write-device", "image", target])
            .exits(1);
    }
    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "old");
}

/// A file replaced the link, and the link's target kept its old contents.
#[test]
fn a_link_to_a_file_is_followed_as_cp_does_it() {
    for flags in [&[][..], &["-T"], &["--inplace"], &["--backup"]] {
        let place = ground();
        place.copy("image", "link").args(flags).ok();
        assert!(kind(&place.join("link")).is_symlink(), "{flags:?}");
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "an image");
        if flags == ["--backup"] {
            assert_eq!(fs::read_to_string(place.join("file~")).unwrap(), "old");
        }
        no_temporaries(place.path());
        assert_eq!(place.copy("image", "link").ok().number("skipped"), 1);
        // The source itself, through the link.
        place.ropeway("copy").args(["file", "link"]).exits(1);
        let finished = place
            .ropeway("copy")
            .args(flags)
            .args(["image", "dangling"])
            .exits(1);
        assert!(finished.mentions("dangling"), "{finished}");
        assert!(kind(&place.join("dangling")).is_symlink() && !place.join("nowhere").exists());
        // A link is copied as a link, over a link.
        place.copy("dangling", "link").arg("-T").ok();
        assert_eq!(fs::read_link(place.join("link")).unwrap(), Path::new("nowhere"));
    }
}

/// Inside trees, a copy replaced a FIFO, socket or device by a regular file.
#[test]
fn a_tree_does_not_replace_fifos_and_sockets_unless_it_is_mirrored() {
    let place = Place::new();
    let names = ["fifo", "socket", "link", "plain"];
    fs::create_dir(place.join("source")).unwrap();
    for name in names {
        text(&place.join("source").join(name), "new content");
    }
    let target = place.folder("target");
    fifo(&target.join("fifo"));
    drop(UnixListener::bind(target.join("socket")).unwrap());
    text(&place.join("outside"), "outside");
    set_times(&place.join("outside"), 1_000_000_000, 0);
    symlink("../outside", target.join("link")).unwrap();
    for flags in [&[][..], &["--force"], &["--inplace"], &["--checksum"]] {
        let finished = place.copy("source", "target").arg("-T").args(flags).exits(2);
        assert_eq!(finished.number("errors"), 2, "{finished}");
        assert!(finished.mentions("a FIFO stands there"), "{finished}");
        assert!(kind(&target.join("fifo")).is_fifo() && kind(&target.join("socket")).is_socket());
        // A link is replaced, never written through.
        assert!(kind(&target.join("link")).is_file());
        assert_eq!(fs::read_to_string(place.join("outside")).unwrap(), "outside");
    }
    place
        .ropeway("mirror")
        .args(["--yes", "--json", "source", "target"])
        .ok();
    for name in names {
        assert_eq!(
            fs::read_to_string(target.join(name)).unwrap(),
            "new content",
            "{name}"
        );
    }
}
