//! Small files of the catalog: each is written whole, flushed, and then gets its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_block::Pool;
use ropeway_vfs::{
    CacheMode, Create, Error, ErrorKind, MetadataChange, Name, Op, OpenOptions, RelPath, Result, Timestamp,
    Tree,
};

/// Begin of the name of a catalog folder.
pub(crate) const CATALOG_PREFIX: &str = ".ropeway-fleet";

/// Bytes of a block.
const BLOCK: usize = 64 << 10;

/// Largest file that is read. A segment of 20,000 records has about 2 MiB.
const FILE_MAX: u64 = 64 << 20;

/// Times that a temporary file is written again. Jobs are swept once, at their end.
const SWEPT_TRIES: usize = 3;

/// Attempts to empty a folder into which another still writes. A guess.
const REMOVE_TRIES: usize = 100;

/// Depth of folders that are removed with their content.
const DEPTH_MAX: usize = 2_000;

/// Reads and writes whole files on a tree.
pub(crate) struct Files {
    pub(crate) tree: Arc<dyn Tree>,
    pool: Pool,
    /// Folder for files that are not complete.
    temporary: RelPath,
    /// Begin of the names there, which no other process uses.
    prefix: String,
    number: AtomicU64,
}

/// Whether a name of the source is one of Ropeway's own: incomplete files, or a catalog.
pub(crate) fn is_of_ropeway(name: &Name) -> bool {
    ropeway_copy::is_temporary(name) || name.as_bytes().starts_with(CATALOG_PREFIX.as_bytes())
}

/// Makes a name of digits, dots and letters.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("letters and digits are a name")
}

/// Makes a change of the permission bits alone.
pub(crate) fn of_mode(mode: u32) -> MetadataChange {
    MetadataChange {
        mode: Some(mode),
        ..MetadataChange::default()
    }
}

impl Files {
    pub(crate) fn new(tree: Arc<dyn Tree>, temporary: RelPath, prefix: String) -> Self {
        Self {
            tree,
            pool: Pool::new(BLOCK, 4),
            temporary,
            prefix,
            number: AtomicU64::new(0),
        }
    }

    /// Writes a new file and flushes it.
    pub(crate) async fn write(&self, path: &RelPath, bytes: &[u8]) -> Result<()> {
        let options = OpenOptions::write(Create::New, CacheMode::Keep);
        let file = self.tree.open(path, options).await?;
        for (chunk, number) in bytes.chunks(BLOCK).zip(0_u64..) {
            let mut block = self.pool.get().await;
            block.capacity_mut()[..chunk.len()].copy_from_slice(chunk);
            block.set_len(chunk.len());
            file.write_at(block.freeze(), number * BLOCK as u64).await?;
        }
        file.sync(false).await
    }

    /// Makes a file appear whole and durable, unless there is one of this name. Returns whether it
    /// is new.
    pub(crate) async fn publish(&self, folder: &RelPath, name: &Name, bytes: &[u8]) -> Result<bool> {
        let path = folder.join(name);
        let is_new = match self.write_and_rename(&path, bytes, false).await {
            Ok(()) => true,
            Err(error) if error.kind == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        self.tree.sync_dir(folder).await?;
        Ok(is_new)
    }

    /// Replaces a file that only this process writes. Its name need not be durable.
    pub(crate) async fn replace(&self, path: &RelPath, bytes: &[u8]) -> Result<()> {
        self.write_and_rename(path, bytes, true).await
    }

    /// Writes a temporary file and renames it. If a sweep removes it in between, it is written
    /// again.
    async fn write_and_rename(&self, path: &RelPath, bytes: &[u8], replace: bool) -> Result<()> {
        let mut tries = 0;
        loop {
            let temporary = self.next_temporary();
            self.write(&temporary, bytes).await?;
            match self.tree.rename(&temporary, path, replace).await {
                Err(error) if error.kind.is_absence() && tries < SWEPT_TRIES => tries += 1,
                Ok(()) => return Ok(()),
                Err(error) => {
                    let _ = self.remove(&temporary).await;
                    return Err(error);
                }
            }
        }
    }

    fn next_temporary(&self) -> RelPath {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        self.temporary.join(&name(&format!("{}-{number:x}", self.prefix)))
    }

    /// Reads a file; `None` if there is none.
    pub(crate) async fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        Ok(self.read_dated(path).await?.map(|(bytes, _)| bytes))
    }

    /// Reads a file, and the time at which it was written; `None` if there is none.
    pub(crate) async fn read_dated(&self, path: &RelPath) -> Result<Option<(Vec<u8>, Timestamp)>> {
        let file = match self.tree.open(path, OpenOptions::read(CacheMode::Keep)).await {
            Ok(file) => file,
            Err(error) if error.kind.is_absence() => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = match file.at_open() {
            Some(found) => found,
            None => file.metadata().await?,
        };
        let size = metadata.size.min(FILE_MAX);
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let block = self.pool.get().await;
            let (block, result) = file.read_at(block, bytes.len() as u64, BLOCK).await;
            result?;
            if block.is_empty() {
                break;
            }
            bytes.extend_from_slice(&block);
        }
        Ok(Some((bytes, metadata.modified)))
    }

    /// Returns the time by the clock of the tree: that of a file which is made for it and removed again.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        let path = self.next_temporary();
        self.write(&path, b"?").await?;
        let metadata = self.tree.metadata(&path).await;
        self.remove(&path).await?;
        Ok(metadata?.modified)
    }

    /// Whether there is something of this name.
    pub(crate) async fn exists(&self, folder: &RelPath, name: &Name) -> Result<bool> {
        let mut found = self.tree.lookup(folder, std::slice::from_ref(name)).await?;
        match found.pop() {
            Some(found) => Ok(found?.is_some()),
            None => Ok(false),
        }
    }

    /// Makes a folder. Returns whether it is new.
    pub(crate) async fn make_dir(&self, path: &RelPath) -> Result<bool> {
        match self.tree.make_dir(path, 0o700).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file that may be gone.
    pub(crate) async fn remove(&self, path: &RelPath) -> Result<()> {
        match self.tree.remove_file(path).await {
            Err(error) if error.kind.is_absence() => Ok(()),
            result => result,
        }
    }

    /// Lists names that begin with `prefix`; none if the folder is gone.
    pub(crate) async fn names(&self, folder: &RelPath, prefix: &[u8]) -> Result<Vec<Name>> {
        match self.tree.names_with_prefix(folder, prefix).await {
            Err(error) if error.kind.is_absence() => Ok(Vec::new()),
            result => result,
        }
    }

    /// Removes a folder with its content, into which others may still write. When it returns, the
    /// folder is gone, and nothing can be made in it nor renamed out of it.
    pub(crate) async fn remove_folder(&self, path: &RelPath) -> Result<()> {
        self.remove_folder_at(path.clone(), DEPTH_MAX).await
    }

    async fn remove_inside(&self, path: &RelPath, depth: usize) -> Result<()> {
        for name in self.names(path, b"").await? {
            let inside = path.join(&name);
            match self.tree.remove_file(&inside).await {
                Err(error) if error.kind.is_absence() => {}
                Err(error) if error.kind == ErrorKind::IsADirectory && depth > 0 => {
                    // What is mounted here is not ours.
                    if self.tree.metadata(&inside).await?.is_mount_root {
                        return Err(Error::new(Op::Remove, &inside, ErrorKind::Busy));
                    }
                    self.remove_folder_at(inside, depth - 1).await?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    fn remove_folder_at(&self, path: RelPath, depth: usize) -> ropeway_vfs::Pending<'_, Result<()>> {
        Box::pin(async move {
            let (mut tries, mut is_opened) = (0, false);
            loop {
                match self.remove_inside(&path, depth).await {
                    // A copy of a folder of the source, with its permissions.
                    Err(error) if error.kind == ErrorKind::PermissionDenied && !is_opened => {
                        is_opened = true;
                        match self.tree.set_metadata(&path, &of_mode(0o700)).await {
                            Err(error) if error.kind.is_absence() => return Ok(()),
                            set => drop(set?),
                        }
                        continue;
                    }
                    result => result?,
                }
                match self.tree.remove_dir(&path).await {
                    Err(error) if error.kind.is_absence() => return Ok(()),
                    Err(error) if error.kind == ErrorKind::NotEmpty && tries < REMOVE_TRIES => tries += 1,
                    result => return result,
                }
            }
        })
    }
}
