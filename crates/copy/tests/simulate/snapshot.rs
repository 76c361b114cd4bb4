//! Snapshots of trees, for the judge.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{FileId, Kind, RelPath, Timestamp, Tree, Xattr};

/// The parts of a node that the judge compares.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    /// The bytes of a file, or the text of a link.
    pub content: Arc<Vec<u8>>,
    pub mode: Option<u32>,
    pub modified: Timestamp,
    pub xattrs: Vec<Xattr>,
    pub id: Option<FileId>,
    pub links: u64,
}

/// All nodes of a tree except its root, by path.
pub type Snapshot = BTreeMap<Vec<u8>, Node>;

/// Returns the result of a future of a tree in memory, which is ready at once.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("trees in memory do not wait")
}

pub fn path(bytes: &[u8]) -> RelPath {
    match bytes.is_empty() {
        true => RelPath::root(),
        false => RelPath::parse(bytes).expect("paths of a scenario are valid"),
    }
}

pub fn snapshot(tree: &MemoryTree) -> Snapshot {
    let mut all = Snapshot::new();
    let mut folders = vec![RelPath::root()];
    while let Some(dir) = folders.pop() {
        let mut listing = now(tree.list(&dir)).expect("a folder can be listed");
        for entry in now(listing.next(usize::MAX)).expect("a folder can be listed") {
            let at = dir.join(&entry.name);
            let metadata = entry.metadata.expect("a node in memory has metadata");
            let content = match metadata.kind {
                Kind::File => tree.content(&at).expect("a file can be read"),
                Kind::Symlink => now(tree.read_link(&at)).expect("a link can be read"),
                _ => Vec::new(),
            };
            if metadata.is_dir() {
                folders.push(at.clone());
            }
            let node = Node {
                kind: metadata.kind,
                content: Arc::new(content),
                mode: metadata.mode,
                modified: metadata.modified,
                xattrs: now(tree.xattrs(&at)).expect("a node can be read"),
                id: metadata.id,
                links: metadata.links,
            };
            all.insert(at.as_bytes().to_vec(), node);
        }
    }
    all
}
