//! The code for older kernels gives the same results.

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, openat};

use super::*;
use crate::winmeta::dos;
use crate::xattr;

#[test]
fn attributes_are_found_by_every_way() {
    for folder in folders() {
        let store = store(folder.path());
        let how = NodeOpen {
            create: Some(NewNode {
                directory: false,
                dos_attributes: Some(0x22),
            }),
            ..CREATE
        };
        store.open(&path("hidden"), &how).unwrap();
        put(&store, "plain", b"");
        store.symlink(&path("link"), b"hidden").unwrap();
        let root = std::fs::File::open(folder.path()).unwrap();
        for (name, wanted) in [(c"hidden", Some(0x22)), (c"plain", None)] {
            let open = |flags| openat(&root, name, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
            let (file, node) = (open(OFlags::RDONLY), open(OFlags::PATH));
            let found = [
                dos::at(root.as_fd(), name),
                dos::at_by_path(root.as_fd(), name),
                dos::of_file(file.as_fd()),
                dos::of_path(node.as_fd()),
                dos::by_path(node.as_fd()),
            ];
            for dos in found {
                assert_eq!(dos.unwrap().attributes, wanted);
            }
            let (mut by_path, names) = ([0; 512], xattr::list(&xattr::Node::Path(node.as_fd())).unwrap());
            let length = xattr::list_by_path(node.as_fd(), &mut by_path).unwrap();
            let by_path = by_path[..length].split_inclusive(|byte| *byte == 0);
            let by_path: Vec<_> = by_path.map(|name| name[..name.len() - 1].to_vec()).collect();
            assert_eq!(names, by_path);
            assert_eq!(names, xattr::list(&xattr::Node::File(file.as_fd())).unwrap());
        }
        // An attribute of a link, which cannot exist.
        for dos in [
            dos::at(root.as_fd(), c"link"),
            dos::at_by_path(root.as_fd(), c"link"),
        ] {
            assert_eq!(dos.unwrap().attributes, None);
        }
        for dos in [dos::at(root.as_fd(), c"no"), dos::at_by_path(root.as_fd(), c"no")] {
            assert_eq!(dos.unwrap_err(), rustix::io::Errno::NOENT);
        }
    }
}
