//! Windows metadata as both views of one folder see it.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use ropeway_smb_wire::security::SecurityDescriptor;
use ropeway_vfs::store::{Access, NodeOpen, Store};
use ropeway_vfs::{MetadataChange, RelPath, SDDL_XATTR, Timestamp, Tree, Xattr};
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use tempfile::TempDir;

use super::{dos, is_bookkeeping, legacy, ntacl, security};
use crate::testing::block_on;
use crate::xattr::Node;
use crate::{LocalOptions, LocalStore, LocalTree, StoreOptions};

const SDDL: &str = "O:S-1-22-1-1G:S-1-22-2-2D:P(A;;FA;;;BA)(A;;0x1200a9;;;WD)";

fn tree(folder: &Path, raw_xattrs: bool) -> Arc<LocalTree> {
    let options = LocalOptions {
        raw_xattrs,
        ..LocalOptions::default()
    };
    LocalTree::open(folder, options).unwrap()
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn value(at: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65536];
    let length = lgetxattr(at, name, &mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

fn set(at: &Path, name: &[u8], value: &[u8]) {
    lsetxattr(at, name, value, XattrFlags::empty()).unwrap();
}

/// Returns the attributes that hold the descriptor of a file.
fn stored(at: &Path) -> Vec<u8> {
    value(at, security::NAME)
        .or_else(|| value(at, security::NAME_FALLBACK))
        .expect("a descriptor in the present form")
}

fn has_old_form(at: &Path) -> bool {
    [legacy::BINARY, legacy::TEXT, legacy::MARKER]
        .iter()
        .any(|name| value(at, name).is_some())
}

fn descriptor(text: &str) -> Vec<u8> {
    SecurityDescriptor::from_text(text.as_bytes()).unwrap().to_bytes()
}

/// Returns a folder with a file `f` whose descriptor an earlier release stored.
fn with_old_form(name: &[u8], stored: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "content").unwrap();
    set(&folder.path().join("f"), name, stored);
    set(folder.path(), legacy::MARKER, b"1");
    folder
}

fn shown(tree: &LocalTree) -> Option<String> {
    let xattrs = block_on(tree.xattrs(&path("f"))).unwrap();
    assert!(xattrs.iter().all(|xattr| xattr.name == SDDL_XATTR), "{xattrs:?}");
    xattrs
        .into_iter()
        .next()
        .map(|xattr| String::from_utf8(xattr.value).unwrap())
}

fn served(folder: &Path) -> Option<Vec<u8>> {
    let store = LocalStore::open(folder, &StoreOptions::default()).unwrap();
    let how = NodeOpen {
        access: Access::Write,
        ..NodeOpen::default()
    };
    let node = store.open(&path("f"), &how).unwrap().node;
    assert_eq!(node.eas().unwrap(), []);
    node.security().unwrap()
}

#[test]
fn descriptors_of_earlier_releases_are_read_by_both_views() {
    let bytes = descriptor(SDDL);
    for (name, old) in [
        (legacy::BINARY, bytes.as_slice()),
        (legacy::TEXT, SDDL.as_bytes()),
    ] {
        let folder = with_old_form(name, old);
        assert_eq!(shown(&tree(folder.path(), false)).as_deref(), Some(SDDL));
        assert_eq!(served(folder.path()).as_ref(), Some(&bytes));
        let at = folder.path().join("f");
        assert_eq!(value(&at, name).as_deref(), Some(old), "reading changes nothing");
    }
}

#[test]
fn a_change_replaces_the_form_of_earlier_releases() {
    let other = SDDL.replace("FA", "FR");
    for (name, old) in [(legacy::BINARY, descriptor(SDDL)), (legacy::TEXT, SDDL.into())] {
        // By the server.
        let folder = with_old_form(name, &old);
        let at = folder.path().join("f");
        let store = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
        let node = store.open(&path("f"), &NodeOpen::default()).unwrap().node;
        node.set_security(&descriptor(&other)).unwrap();
        assert!(!has_old_form(&at));
        assert_eq!(ntacl::decode(&stored(&at)), Some(descriptor(&other)));
        // By a copy.
        let folder = with_old_form(name, &old);
        let at = folder.path().join("f");
        let change = |xattrs| MetadataChange {
            xattrs: Some(xattrs),
            ..MetadataChange::default()
        };
        let wanted = Xattr {
            name: SDDL_XATTR.to_vec(),
            value: other.clone().into_bytes(),
        };
        let tree = tree(folder.path(), false);
        let set = |xattrs| block_on(tree.set_metadata(&path("f"), &change(xattrs))).unwrap();
        assert_eq!(set(vec![wanted]), []);
        assert!(!has_old_form(&at));
        assert_eq!(shown(&tree).as_deref(), Some(other.as_str()));
        assert_eq!(set(Vec::new()), []);
        assert_eq!(shown(&tree), None, "an unwanted descriptor is removed");
    }
}

#[test]
fn raw_copies_replace_the_form_of_earlier_releases() {
    for (name, old) in [(legacy::BINARY, descriptor(SDDL)), (legacy::TEXT, SDDL.into())] {
        let folder = with_old_form(name, &old);
        let xattrs = block_on(tree(folder.path(), true).xattrs(&path("f"))).unwrap();
        assert_eq!(xattrs.len(), 1);
        assert!([security::NAME, security::NAME_FALLBACK].contains(&xattrs[0].name.as_slice()));
        assert_eq!(ntacl::decode(&xattrs[0].value), Some(descriptor(SDDL)));
        let of_root = block_on(tree(folder.path(), true).xattrs(&RelPath::root())).unwrap();
        assert_eq!(of_root, []);
    }
}

#[test]
fn both_views_agree_on_attributes_and_creation_time() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "content").unwrap();
    let tree = tree(folder.path(), false);
    assert!(tree.capabilities().creation_times);
    let change = MetadataChange {
        dos_attributes: Some(0x27),
        created: Some(Timestamp::from_unix(1_000_000_000, 0)),
        ..MetadataChange::default()
    };
    assert_eq!(block_on(tree.set_metadata(&path("f"), &change)).unwrap(), []);
    let metadata = block_on(tree.metadata(&path("f"))).unwrap();
    assert_eq!(
        (metadata.dos_attributes, metadata.created),
        (Some(0x27), change.created)
    );
    let mut listing = block_on(tree.list(&RelPath::root())).unwrap();
    let listed = block_on(listing.next(10)).unwrap().remove(0).metadata.unwrap();
    assert_eq!(listed, metadata);
    assert_eq!(shown(&tree), None, "bookkeeping is not shown");
    let store = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
    let stat = store.open(&path("f"), &NodeOpen::default()).unwrap().stat;
    assert_eq!(
        (stat.dos_attributes, Some(stat.created)),
        (Some(0x27), change.created)
    );
}

#[test]
fn bookkeeping_of_another_end_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "content").unwrap();
    let names: [&[u8]; 3] = [dos::NAME_BYTES, security::NAME_FALLBACK, legacy::BINARY];
    let xattr = |name: &&[u8]| Xattr {
        name: name.to_vec(),
        value: b"forged".to_vec(),
    };
    let change = MetadataChange {
        xattrs: Some(names.iter().map(xattr).collect()),
        ..MetadataChange::default()
    };
    let tree = tree(folder.path(), false);
    let losses = block_on(tree.set_metadata(&path("f"), &change)).unwrap();
    assert!(!losses.is_empty());
    for name in names {
        assert!(is_bookkeeping(name));
        assert_eq!(value(&folder.path().join("f"), name), None);
    }
}

#[test]
fn a_malformed_descriptor_is_not_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("f");
    fs::write(&at, "content").unwrap();
    set(&at, security::NAME_FALLBACK, b"nonsense");
    assert_eq!(shown(&tree(folder.path(), false)).as_deref(), Some(""));
    assert_eq!(served(folder.path()), Some(Vec::new()));
}

#[test]
fn the_protected_attribute_counts() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("f");
    fs::write(&at, "content").unwrap();
    let file = fs::File::open(&at).unwrap();
    let node = Node::File(file.as_fd());
    if security::write(&node, &descriptor(SDDL)).is_err() || value(&at, security::NAME).is_none() {
        println!("skipped: security.NTACL may not be written here");
        return;
    }
    let forged = ntacl::encode(&descriptor("O:WDG:WDD:(A;;FA;;;WD)"), 0, &[0; 32]).unwrap();
    set(&at, security::NAME_FALLBACK, &forged);
    assert_eq!(security::read(&node).unwrap(), Some(descriptor(SDDL)));
}
