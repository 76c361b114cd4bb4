//! A tree under test, with helpers to use it.

use std::fmt::Debug;
use std::sync::Arc;

use ropeway_block::{Block, Pool};

use crate::{
    CacheMode, Capabilities, Create, DirEntry, Error, ErrorKind, File, Metadata, MetadataChange, Name,
    OpenOptions, RelPath, Result, Tree,
};

/// A fresh tree and a pool for one rule.
pub struct Stage {
    /// The tree, empty at first.
    pub tree: Arc<dyn Tree>,
    /// Pool of the blocks to read and write.
    pub pool: Pool,
}

/// Parses a path.
pub(super) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("the rules name paths")
}

/// Parses a name.
pub(super) fn name(bytes: impl AsRef<[u8]>) -> Name {
    Name::new(bytes.as_ref()).expect("the rules name names")
}

/// Returns bytes that differ from place to place.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    crate::memory::synthetic(seed, 0, &mut bytes);
    bytes
}

/// Asserts that a result is a failure of one of these kinds.
pub(super) fn fails<T>(what: &str, result: Result<T>, kinds: &[ErrorKind]) {
    match result {
        Ok(_) => panic!("{what}: succeeded, but {kinds:?} was expected"),
        Err(error) => assert!(
            kinds.contains(&error.kind),
            "{what}: failed with {:?} ({error}), but {kinds:?} was expected",
            error.kind
        ),
    }
}

/// Asserts that a result is a success.
#[track_caller]
pub(super) fn works<T>(what: impl Debug, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what:?}: {error} ({:?})", error.kind),
    }
}

impl Stage {
    /// Makes the stage for one rule.
    pub fn new(tree: Arc<dyn Tree>, pool: Pool) -> Self {
        assert!(
            pool.slots() >= 2 && pool.block_size() >= 1 << 16,
            "the contract needs two slots of 64 KiB"
        );
        Self { tree, pool }
    }

    pub(super) fn can(&self) -> &Capabilities {
        self.tree.capabilities()
    }

    /// Returns a block with these bytes.
    pub(super) async fn block(&self, bytes: &[u8]) -> Block {
        let mut block = self.pool.get().await;
        block.capacity_mut()[..bytes.len()].copy_from_slice(bytes);
        block.set_len(bytes.len());
        block.freeze()
    }

    pub(super) async fn open(&self, at: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.tree.open(&path(at), options).await
    }

    pub(super) async fn open_to_write(&self, at: &str, create: Create) -> Arc<dyn File> {
        works(
            at,
            self.open(at, OpenOptions::write(create, CacheMode::Auto)).await,
        )
    }

    pub(super) async fn open_to_read(&self, at: &str) -> Arc<dyn File> {
        works(at, self.open(at, OpenOptions::read(CacheMode::Auto)).await)
    }

    /// Makes a file with this content.
    pub(super) async fn write(&self, at: &str, bytes: &[u8]) {
        let file = self.open_to_write(at, Create::New).await;
        self.write_at(&*file, bytes, 0).await;
    }

    pub(super) async fn write_at(&self, file: &dyn File, bytes: &[u8], offset: u64) {
        let mut at = offset;
        for part in bytes.chunks(1 << 16) {
            let block = self.block(part).await;
            works(file.path(), file.write_at(block, at).await);
            at += part.len() as u64;
        }
    }

    /// Reads the whole content of a file.
    pub(super) async fn read(&self, at: &str) -> Vec<u8> {
        let file = self.open_to_read(at).await;
        let size = works(at, file.metadata().await).size;
        self.read_at(&*file, 0, size as usize).await
    }

    /// Reads up to `length` bytes in as many reads as needed.
    pub(super) async fn read_at(&self, file: &dyn File, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let wanted = (length - bytes.len()).min(1 << 16);
            let block = self.pool.get().await;
            let (block, result) = file.read_at(block, offset + bytes.len() as u64, wanted).await;
            works(file.path(), result);
            assert!(block.len() <= wanted, "a read gave more than was asked");
            bytes.extend_from_slice(&block);
            if block.len() < wanted {
                break;
            }
        }
        bytes
    }

    pub(super) async fn make_dir(&self, at: &str) {
        works(at, self.tree.make_dir(&path(at), 0o755).await);
    }

    pub(super) async fn metadata(&self, at: &str) -> Metadata {
        works(at, self.tree.metadata(&path(at)).await)
    }

    pub(super) async fn exists(&self, at: &str) -> bool {
        match self.tree.metadata(&path(at)).await {
            Ok(_) => true,
            Err(error) if error.kind == ErrorKind::NotFound => false,
            Err(error) => panic!("{at}: {error}"),
        }
    }

    pub(super) async fn rename(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        self.tree.rename(&path(from), &path(to), replace).await
    }

    pub(super) async fn set(&self, at: &str, change: MetadataChange) -> Vec<crate::Loss> {
        works(at, self.tree.set_metadata(&path(at), &change).await)
    }

    /// Lists all entries of a folder, in chunks of `max`.
    pub(super) async fn list(&self, at: &RelPath, max: usize) -> Vec<DirEntry> {
        let mut listing = works(at, self.tree.list(at).await);
        let mut entries = Vec::new();
        loop {
            let chunk = works(at, listing.next(max).await);
            assert!(chunk.len() <= max, "a chunk holds at most what was asked");
            if chunk.is_empty() {
                return entries;
            }
            entries.extend(chunk);
        }
    }

    /// Lists the sorted names of a folder.
    pub(super) async fn names(&self, at: &str) -> Vec<Name> {
        let entries = self.list(&path(at), 100).await;
        let mut names: Vec<Name> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }
}

/// Asserts a failure and returns the error.
pub(super) fn error_of<T>(what: &str, result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("{what}: succeeded, but a failure was expected"),
        Err(error) => error,
    }
}
