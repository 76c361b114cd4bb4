//! Tests of the store, on a disk and in memory.

mod contract;
mod escapes;
mod external_changes;
mod fallbacks;
mod kept;
mod limits;
mod locks;
mod posix;
mod resolve;
mod swapped;
mod times;

use std::path::Path;
use std::sync::Arc;

use ropeway_vfs::store::{Access, NewNode, Node, NodeOpen, NodeStat, Opened, Store};
use ropeway_vfs::{Error, ErrorKind, Name, RelPath};
use tempfile::TempDir;

use super::{LocalStore, StoreOptions};

/// Returns the folders in which tests run: for temporary files, and in memory if there is one.
fn folders() -> Vec<TempDir> {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(tempfile::tempdir_in("/dev/shm").ok());
    folders
}

fn store(folder: &Path) -> LocalStore {
    LocalStore::open(folder, &StoreOptions::default()).unwrap()
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

const READ: NodeOpen = NodeOpen {
    access: Access::Read,
    allow_less_access: false,
    create: None,
    exclusive: false,
    link_itself: false,
};

const WRITE: NodeOpen = NodeOpen {
    access: Access::Write,
    ..READ
};

const LOOK: NodeOpen = NodeOpen {
    access: Access::Attributes,
    ..READ
};

const CREATE: NodeOpen = NodeOpen {
    create: Some(NewNode {
        directory: false,
        dos_attributes: None,
    }),
    ..WRITE
};

const MAKE_DIR: NodeOpen = NodeOpen {
    create: Some(NewNode {
        directory: true,
        dos_attributes: None,
    }),
    exclusive: true,
    ..READ
};

fn open(store: &dyn Store, at: &str, how: &NodeOpen) -> Arc<dyn Node> {
    store.open(&path(at), how).unwrap().node
}

fn put(store: &dyn Store, at: &str, content: &[u8]) -> Arc<dyn Node> {
    let node = open(store, at, &CREATE);
    node.set_len(0).unwrap();
    node.write_at(content, 0).unwrap();
    node
}

fn content(node: &dyn Node) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 20];
    let count = node.read_at(&mut buffer, 0).unwrap();
    buffer.truncate(count);
    buffer
}

fn list(node: &dyn Node) -> Vec<(String, NodeStat)> {
    let mut entries = node.entries().unwrap();
    let mut found = Vec::new();
    while let Some((name, stat)) = entries.next().unwrap() {
        found.push((name.to_string(), stat));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn kind_of<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().expect("it succeeded").kind
}

fn refused(result: Result<Opened, Error>) -> ErrorKind {
    kind_of(result)
}
