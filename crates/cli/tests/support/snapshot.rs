//! Snapshots of a tree by stat(2) and a hash, to assert that nothing was changed or that everything
//! is equal.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: &'static str,
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
    /// For files.
    pub(crate) size: u64,
    /// For everything but folders.
    pub(crate) links: u64,
    /// For devices.
    pub(crate) device: u64,
    /// Target of a link.
    pub(crate) text: PathBuf,
    /// BLAKE3 of a file.
    pub(crate) hash: Option<blake3::Hash>,
}

/// Nodes by their paths below the root; the root has the empty path.
pub(crate) type Snapshot = BTreeMap<PathBuf, Entry>;

/// Takes a snapshot including contents. A missing root gives an empty one.
pub(crate) fn snapshot(root: &Path) -> Snapshot {
    take(root, true)
}

/// Takes a snapshot of attributes only.
pub(crate) fn attributes(root: &Path) -> Snapshot {
    take(root, false)
}

fn take(root: &Path, contents: bool) -> Snapshot {
    let mut nodes = Snapshot::new();
    let Ok(metadata) = fs::symlink_metadata(root) else {
        return nodes;
    };
    nodes.insert(PathBuf::new(), entry(root, &metadata, contents));
    if !metadata.is_dir() {
        return nodes;
    }
    for path in super::walk(root) {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let entry = entry(&path, &metadata, contents);
        nodes.insert(path.strip_prefix(root).unwrap().to_owned(), entry);
    }
    nodes
}

fn entry(path: &Path, metadata: &Metadata, contents: bool) -> Entry {
    let kind = kind(metadata);
    let is_file = kind == "file";
    Entry {
        kind,
        mode: if kind == "symlink" {
            0
        } else {
            metadata.mode() & 0o7777
        },
        user: metadata.uid(),
        group: metadata.gid(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        size: if is_file { metadata.size() } else { 0 },
        links: if kind == "directory" { 1 } else { metadata.nlink() },
        device: if kind.ends_with("device") {
            metadata.rdev()
        } else {
            0
        },
        text: fs::read_link(path).unwrap_or_default(),
        hash: (is_file && contents).then(|| hash(path)),
    }
}

fn hash(path: &Path) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    hasher.update_reader(file).unwrap();
    hasher.finalize()
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () => "block device",
    }
}
