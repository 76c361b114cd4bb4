//! Reads the content of a folder, independently of the product.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use walkdir::{DirEntry, WalkDir};

/// Hash of a whole content.
pub(crate) type Hash = [u8; 32];

/// Kind and content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file and its content.
    File(Hash),
    /// A folder.
    Folder,
    /// A symbolic link and its text.
    Link(PathBuf),
    /// A FIFO, device or socket.
    Special,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// Size of a file in bytes; 0 for other nodes.
    pub(crate) size: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Modification time, in nanoseconds.
    pub(crate) modified: i128,
    pub(crate) inode: u64,
    pub(crate) links: u64,
}

impl Node {
    pub(crate) fn is_folder(&self) -> bool {
        self.kind == Kind::Folder
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File(_))
    }

    pub(crate) fn hash(&self) -> Option<Hash> {
        match self.kind {
            Kind::File(hash) => Some(hash),
            _ => None,
        }
    }
}

/// All nodes below a folder, by relative path.
pub(crate) type Snapshot = BTreeMap<PathBuf, Node>;

/// Attempts to read a folder whose nodes vanish meanwhile: a server may still process requests of a killed
/// client.
const TRIES: u32 = 20;

/// Reads a folder. A missing folder is empty.
///
/// # Errors
/// A node cannot be read.
pub(crate) fn snapshot(root: &Path) -> Result<Snapshot> {
    let is_gone = |error: &anyhow::Error| {
        let error = error.root_cause().downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    for _ in 0..TRIES {
        match try_snapshot(root) {
            Err(error) if is_gone(&error) => std::thread::sleep(std::time::Duration::from_millis(20)),
            read => return read,
        }
    }
    try_snapshot(root)
}

fn try_snapshot(root: &Path) -> Result<Snapshot> {
    let mut found = Snapshot::new();
    if fs::symlink_metadata(root).is_ok_and(|metadata| metadata.is_dir()) {
        for entry in WalkDir::new(root).min_depth(1) {
            let entry = entry?;
            let path = entry.path().strip_prefix(root)?.to_path_buf();
            found.insert(path, read_node(entry.path())?);
        }
    }
    Ok(found)
}

/// Reads one node, without following links.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_node(path: &Path) -> Result<Node> {
    let shown = || format!("cannot read {}", path.display());
    let metadata = fs::symlink_metadata(path).with_context(shown)?;
    let kind = metadata.file_type();
    let kind = if kind.is_dir() {
        Kind::Folder
    } else if kind.is_symlink() {
        Kind::Link(fs::read_link(path).with_context(shown)?)
    } else if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
        Kind::Special
    } else {
        Kind::File(*blake3::hash(&fs::read(path).with_context(shown)?).as_bytes())
    };
    let is_file = matches!(kind, Kind::File(_));
    Ok(Node {
        kind,
        size: if is_file { metadata.len() } else { 0 },
        mode: metadata.mode() & 0o7777,
        modified: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        inode: metadata.ino(),
        links: metadata.nlink(),
    })
}

/// Returns the temporary names of jobs below a folder.
///
/// # Errors
/// A folder cannot be listed.
pub(crate) fn temporaries(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in WalkDir::new(root).min_depth(1) {
        let entry = entry?;
        if is_temporary(&entry) {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

/// Whether a name is a temporary name of a job.
pub(super) fn is_temporary(entry: &DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(".ropeway-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        fs::write(folder.path().join("folder/.ropeway-x"), "data").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        let found = snapshot(folder.path()).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found[Path::new("folder")].is_folder());
        assert_eq!(found[Path::new("folder/.ropeway-x")].size, 4);
        assert_eq!(found[Path::new("link")].kind, Kind::Link("nowhere".into()));
        assert_eq!(temporaries(folder.path()).unwrap().len(), 1);
    }
}
