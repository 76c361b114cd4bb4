//! Helpers of the decorators' tests.

use std::sync::Arc;

use ropeway_block::Pool;

use crate::clock::simulate;
use crate::{CacheMode, Clock, Create, File, MemoryTree, OpenOptions, RelPath, Result, Tree, VirtualClock};

pub(super) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

pub(super) fn clock() -> (VirtualClock, Arc<dyn Clock>) {
    let clock = VirtualClock::new();
    (clock.clone(), Arc::new(clock))
}

/// Makes a memory tree with one file `file` of `size` zeroes. For speed it keeps no content.
pub(super) fn source(size: u64) -> Arc<MemoryTree> {
    let tree = Arc::new(MemoryTree::new().with_discard());
    simulate(&VirtualClock::new(), async {
        let file = create(&*tree, "file").await.unwrap();
        file.set_len(size).await.unwrap();
    });
    tree
}

pub(super) async fn reader(tree: &dyn Tree) -> Arc<dyn File> {
    tree.open(&path("file"), OpenOptions::read(CacheMode::Auto))
        .await
        .unwrap()
}

pub(super) async fn create(tree: &dyn Tree, at: &str) -> Result<Arc<dyn File>> {
    tree.open(&path(at), OpenOptions::write(Create::New, CacheMode::Auto))
        .await
}

pub(super) async fn read(file: &dyn File, pool: &Pool, offset: u64, length: usize) -> Result<usize> {
    let (block, result) = file.read_at(pool.get().await, offset, length).await;
    result.map(|()| block.len())
}

pub(super) async fn write(file: &dyn File, pool: &Pool, offset: u64, length: usize) -> Result<()> {
    let mut block = pool.get().await;
    block.set_len(length);
    file.write_at(block.freeze(), offset).await
}
