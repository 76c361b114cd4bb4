//! A tree that only says what would be done to it, for `--dry-run`.
//!
//! Reads pass. Each change is reported in order and succeeds without effect. So that a walk of folders which would
//! have been made goes on, a folder that is not there is shown as empty (`lookup`: no name found, `list`: no entry);
//! everything else is shown as it is.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use ropeway_block::{Block, BlockMut};

use super::Action;
use crate::tree::Watch;
use crate::{
    Capabilities, Create, DirEntry, Error, ErrorKind, Extent, File, Kind, Listing, Loss, Metadata,
    MetadataChange, Name, OpenOptions, Pending, RelPath, Result, Space, Timestamp, Tree, Xattr,
};

/// A change that would have been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// What: a creating, linking, removing, renaming, writing, length or attribute [`Action`].
    pub action: Action,
    /// On which node; the new name, for links and renames.
    pub path: RelPath,
    /// The old name of a rename, the existing file of a hard link.
    pub other: Option<RelPath>,
    /// Bytes that would be written.
    pub bytes: u64,
}

type Report = Arc<dyn Fn(Intent) + Send + Sync>;

/// A tree that takes no change.
pub struct DryRun {
    inner: Arc<dyn Tree>,
    report: Report,
}

impl DryRun {
    /// Reports to `report` what would be done to `inner`. The report is given while the operation runs: keep it short.
    pub fn new(inner: Arc<dyn Tree>, report: impl Fn(Intent) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            inner,
            report: Arc::new(report),
        })
    }

    fn would<T: Default + Send + 'static>(
        &self,
        action: Action,
        path: &RelPath,
        other: Option<&RelPath>,
    ) -> Pending<'static, Result<T>> {
        (self.report)(Intent {
            action,
            path: path.clone(),
            other: other.cloned(),
            bytes: 0,
        });
        Box::pin(std::future::ready(Ok(T::default())))
    }

    /// Whether opening to create would be refused; else the file as it is, where it is.
    async fn open_to_write(&self, path: &RelPath, options: OpenOptions) -> Result<Arc<dyn File>> {
        let there = match self.inner.metadata(path).await {
            Ok(found) => Some(found),
            Err(error) if error.kind == ErrorKind::NotFound && options.create != Create::No => None,
            Err(error) => return Err(error),
        };
        let action = match (&there, options.create) {
            (Some(_), Create::New) => {
                return Err(Error::new(Action::Create.op(), path, ErrorKind::AlreadyExists));
            }
            (Some(_), Create::No | Create::IfMissing) => Action::Open,
            (None, _) | (Some(_), Create::Truncate) => Action::Create,
        };
        if action == Action::Create {
            self.would::<()>(action, path, None).await?;
        }
        let inner = match there {
            Some(_) if options.create != Create::Truncate => {
                Some(self.inner.open(path, OpenOptions::read(options.cache)).await?)
            }
            _ => None,
        };
        Ok(Arc::new(DryFile {
            inner,
            path: path.clone(),
            report: Arc::clone(&self.report),
            size: Mutex::new(0),
        }))
    }
}

impl Tree for DryRun {
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
        self.inner.metadata(path)
    }

    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        Box::pin(async move {
            match self.inner.lookup(dir, names).await {
                Err(error) if error.kind == ErrorKind::NotFound => {
                    Ok(names.iter().map(|_| Ok(None)).collect())
                }
                other => other,
            }
        })
    }

    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            match self.inner.list(dir).await {
                Err(error) if error.kind == ErrorKind::NotFound => {
                    Ok(Box::new(NoEntries) as Box<dyn Listing>)
                }
                other => other,
            }
        })
    }

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        if !options.write && options.create == Create::No {
            return self.inner.open(path, options);
        }
        Box::pin(self.open_to_write(path, options))
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, _mode: u32) -> Pending<'a, Result<()>> {
        self.would(Action::MakeDir, path, None)
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, _text: &'a [u8]) -> Pending<'a, Result<()>> {
        self.would(Action::Symlink, path, None)
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        self.would(Action::HardLink, new, Some(existing))
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, _metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        self.would(Action::Special, path, None)
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        self.inner.read_link(path)
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.would(Action::RemoveFile, path, None)
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.would(Action::RemoveDir, path, None)
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, _replace: bool) -> Pending<'a, Result<()>> {
        self.would(Action::Rename, to, Some(from))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        _change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        self.would(Action::SetAttributes, path, None)
    }

    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        self.inner.xattrs(path)
    }

    fn space(&self) -> Pending<'_, Result<Space>> {
        self.inner.space()
    }

    fn sync(&self) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn sync_dir<'a>(&'a self, _dir: &'a RelPath) -> Pending<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        self.inner.watch()
    }
}

/// The listing of a folder that would have been made.
struct NoEntries;

impl Listing for NoEntries {
    fn next(&mut self, _max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// A file opened for writing: reads see what is there, writes are reported and gone.
struct DryFile {
    /// `None` for a file that would be new or emptied.
    inner: Option<Arc<dyn File>>,
    path: RelPath,
    report: Report,
    /// Bytes that the file would have, as far as writes and lengths say.
    size: Mutex<u64>,
}

impl DryFile {
    fn would<T: Default + Send + 'static>(&self, action: Action, bytes: u64) -> Pending<'static, Result<T>> {
        (self.report)(Intent {
            action,
            path: self.path.clone(),
            other: None,
            bytes,
        });
        Box::pin(std::future::ready(Ok(T::default())))
    }

    fn done<T: Default + Send + 'static>() -> Pending<'static, Result<T>> {
        Box::pin(std::future::ready(Ok(T::default())))
    }

    fn size(&self, change: impl FnOnce(u64) -> u64) -> u64 {
        let mut size = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        *size = change(*size);
        *size
    }
}

impl File for DryFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> &RelPath {
        &self.path
    }

    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        match &self.inner {
            Some(inner) => inner.metadata(),
            None => {
                let size = self.size(|size| size);
                let metadata = Metadata::bare(Kind::File, size, Timestamp::default());
                Box::pin(std::future::ready(Ok(metadata)))
            }
        }
    }

    fn read_at(
        &self,
        mut block: BlockMut,
        offset: u64,
        length: usize,
    ) -> Pending<'_, (BlockMut, Result<()>)> {
        match &self.inner {
            Some(inner) => inner.read_at(block, offset, length),
            None => {
                block.set_len(0);
                Box::pin(std::future::ready((block, Ok(()))))
            }
        }
    }

    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>> {
        let bytes = block.len() as u64;
        self.size(|size| size.max(offset.saturating_add(bytes)));
        self.would(Action::Write, bytes)
    }

    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>> {
        match &self.inner {
            Some(inner) => inner.next_extent(offset),
            None => Self::done(),
        }
    }

    fn set_len(&self, length: u64) -> Pending<'_, Result<()>> {
        self.size(|_| length);
        self.would(Action::SetLength, 0)
    }

    fn allocate(&self, _length: u64) -> Pending<'_, Result<()>> {
        Self::done()
    }

    fn punch_hole(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        self.would(Action::PunchHole, 0)
    }

    fn start_writeback(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Self::done()
    }

    fn wait_writeback(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Self::done()
    }

    fn sync(&self, _data_only: bool) -> Pending<'_, Result<()>> {
        Self::done()
    }

    fn drop_cache(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Self::done()
    }

    fn cached(&self, _offset: u64, _length: u64) -> Pending<'_, Result<Option<u64>>> {
        Self::done()
    }

    fn set_metadata<'a>(&'a self, _change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>> {
        self.would(Action::SetAttributes, 0)
    }

    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        match &self.inner {
            Some(inner) => inner.xattrs(),
            None => Self::done(),
        }
    }
}

#[cfg(test)]
#[path = "dry_run_tests.rs"]
mod tests;
