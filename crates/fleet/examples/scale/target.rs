//! A target that accepts everything and keeps nothing, with a real folder for the catalog, and a
//! mover that copies nothing.

use std::any::Any;
use std::sync::Arc;

use ropeway_block::Pool;
use ropeway_fleet::error::Result as FleetResult;
use ropeway_fleet::run::{Move, Moved, Mover};
use ropeway_fleet::store::CATALOG_PREFIX;
use ropeway_fleet::task::nanoseconds;
use ropeway_vfs::{
    Capabilities, ContentHash, Error, ErrorKind, File, Kind, Listing, Loss, Metadata, MetadataChange, Name,
    Op, OpenOptions, Pending, RelPath, Result, Space, Timestamp, Tree, Xattr,
};

use crate::source::CONTENTS;

/// The target.
pub(crate) struct Target {
    /// Holds the catalog.
    pub(crate) inner: Arc<dyn Tree>,
}

/// Whether a path is one of the catalog, or of its root.
fn is_real(path: &RelPath) -> bool {
    path.is_root() || path.as_bytes().starts_with(CATALOG_PREFIX.as_bytes())
}

/// Whether it is a path of a stage: files there were not copied, so there are none.
fn is_staged(path: &RelPath) -> bool {
    let mut parts = path.as_bytes().split(|byte| *byte == b'/');
    is_real(path) && parts.nth(2) == Some(b"stage")
}

/// Returns what stands at a path: all folders of the source, and no file.
fn standing(path: &RelPath) -> Option<Metadata> {
    let last = path.as_bytes().rsplit(|byte| *byte == b'/').next()?;
    let is_folder = matches!(last.first(), Some(b'd' | b'h' | b'c'));
    is_folder.then(|| {
        let mut metadata = Metadata::bare(Kind::Directory, 0, Timestamp(0));
        metadata.mode = Some(0o755);
        metadata
    })
}

fn done<'a>() -> Pending<'a, Result<()>> {
    Box::pin(async { Ok(()) })
}

fn refused<'a, T: Send + 'a>(path: &RelPath) -> Pending<'a, Result<T>> {
    let error = Error::new(Op::Write, path, ErrorKind::Unsupported);
    Box::pin(async { Err(error) })
}

impl Tree for Target {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        if is_real(path) {
            return self.inner.metadata(path);
        }
        Box::pin(async move { standing(path).ok_or_else(|| Error::new(Op::Stat, path, ErrorKind::NotFound)) })
    }
    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        if is_real(dir) && !dir.is_root() {
            return self.inner.lookup(dir, names);
        }
        let found = names.iter().map(|_| Ok(None)).collect();
        Box::pin(async { Ok(found) })
    }
    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        self.inner.list(dir)
    }
    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        match is_real(path) {
            true => self.inner.open(path, options),
            false => refused(path),
        }
    }
    fn make_dir<'a>(&'a self, path: &'a RelPath, mode: u32) -> Pending<'a, Result<()>> {
        match is_real(path) {
            true => self.inner.make_dir(path, mode),
            false => done(),
        }
    }
    fn make_symlink<'a>(&'a self, path: &'a RelPath, _: &'a [u8]) -> Pending<'a, Result<()>> {
        refused(path)
    }
    fn make_hard_link<'a>(&'a self, _: &'a RelPath, _: &'a RelPath) -> Pending<'a, Result<()>> {
        done()
    }
    fn make_special<'a>(&'a self, path: &'a RelPath, _: &'a Metadata) -> Pending<'a, Result<()>> {
        refused(path)
    }
    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        refused(path)
    }
    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        match is_real(path) {
            true => self.inner.remove_file(path),
            false => refused(path),
        }
    }
    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        match is_real(path) {
            true => self.inner.remove_dir(path),
            false => refused(path),
        }
    }
    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        match (is_staged(from), is_real(to)) {
            (true, _) => done(),
            (false, true) => self.inner.rename(from, to, replace),
            // A large file, which is real until it gets its name.
            (false, false) => self.inner.remove_file(from),
        }
    }
    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        match is_real(path) {
            true => self.inner.set_metadata(path, change),
            false => Box::pin(async { Ok(Vec::new()) }),
        }
    }
    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        match is_real(path) {
            true => self.inner.xattrs(path),
            false => Box::pin(async { Ok(Vec::new()) }),
        }
    }
    fn space(&self) -> Pending<'_, Result<Space>> {
        self.inner.space()
    }
    fn sync(&self) -> Pending<'_, Result<()>> {
        // What would be made durable is not there. The catalog flushes its own files.
        done()
    }
    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>> {
        match is_real(dir) {
            true => self.inner.sync_dir(dir),
            false => done(),
        }
    }
    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        self.inner.names_with_prefix(dir, prefix)
    }
}

/// Reports every file as copied.
pub(crate) struct NoMover {
    pool: Pool,
    hashes: Vec<ContentHash>,
}

impl NoMover {
    /// Makes a mover that knows the hashes of all contents.
    pub(crate) fn new() -> Self {
        let hash = |number: u64| *blake3::hash(&number.to_le_bytes()).as_bytes();
        Self {
            pool: Pool::new(64 << 10, 4),
            hashes: (0..CONTENTS).map(hash).collect(),
        }
    }

    fn moved(&self, wanted: &Move) -> Moved {
        let Metadata { size, modified, .. } = wanted.metadata;
        Moved::Copied {
            size,
            modified: nanoseconds(modified),
            hash: self.hashes.get((size % CONTENTS) as usize).copied(),
        }
    }
}

impl Mover for NoMover {
    fn copy<'a>(&'a self, _: &'a RelPath, moves: &'a [Move]) -> Pending<'a, FleetResult<Vec<Moved>>> {
        let moved = moves.iter().map(|wanted| self.moved(wanted)).collect();
        Box::pin(async { Ok(moved) })
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }
}
