//! An open node of a store.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_vfs::external::{ContentLease, Watching};
use ropeway_vfs::store::{Access, Entries, Node, NodeChange, NodeStat, RangeLock, StreamInfo, StreamOpen};
use ropeway_vfs::tree::Extent;
use ropeway_vfs::{Error, ErrorKind, Kind, Name, Op, RelPath, Result, Xattr};

use super::range_locks::Holder;
use super::shared_file::SharedFile;

/// An open file, folder or link.
pub(super) struct SmbNode {
    file: Arc<SharedFile>,
    access: Access,
    /// Whether this node keeps the file open on the server.
    is_using: bool,
    holder: Holder,
}

impl SmbNode {
    /// Makes a node. One that reads or writes a file begins a use of it.
    pub(super) fn new(file: Arc<SharedFile>, access: Access) -> Self {
        let is_using = file.kind == Kind::File && access > Access::Attributes;
        if is_using {
            file.begin_use();
        }
        Self::using(file, access, is_using)
    }

    /// Makes a node that takes over a use of its file.
    pub(super) fn with_use(file: Arc<SharedFile>, access: Access) -> Self {
        Self::using(file, access, true)
    }

    fn using(file: Arc<SharedFile>, access: Access, is_using: bool) -> Self {
        if is_using && access == Access::Write {
            file.writers.fetch_add(1, Ordering::AcqRel);
        }
        Self {
            file,
            access,
            is_using,
            holder: Holder::new(),
        }
    }

    pub(super) fn file(&self) -> &Arc<SharedFile> {
        &self.file
    }

    /// Returns the path, unless the name was removed.
    pub(super) fn current_path(&self) -> Result<RelPath> {
        self.file
            .path()
            .ok_or_else(|| self.file.error(Op::Stat, ErrorKind::Gone))
    }

    /// Checks that the content may be read, or written.
    fn check(&self, op: Op, needed: Access) -> Result<()> {
        let kind = match self.file.kind {
            Kind::Directory => ErrorKind::IsADirectory,
            Kind::File if self.access >= needed => return Ok(()),
            _ => ErrorKind::PermissionDenied,
        };
        Err(self.file.error(op, kind))
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        self.file.store.wait(future)
    }
}

impl Drop for SmbNode {
    fn drop(&mut self) {
        self.file.release_locks_of(self.holder);
        if self.is_using && self.access == Access::Write {
            self.file.writers.fetch_sub(1, Ordering::AcqRel);
        }
        if self.is_using {
            self.file.end_use();
        }
    }
}

impl Node for SmbNode {
    fn access(&self) -> Access {
        self.access
    }

    fn stat(&self) -> Result<NodeStat> {
        match self.file.known_stat() {
            Some(stat) => Ok(stat),
            None => self.wait(self.file.stat()),
        }
    }

    fn stat_now(&self) -> Result<NodeStat> {
        self.wait(self.file.stat_now())
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        self.wait(self.file.change(change))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.check(Op::Read, Access::Read)?;
        self.wait(self.file.read(buffer, offset))
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        self.check(Op::Read, Access::Read)?;
        Ok(self.file.read_from_memory(buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.check(Op::Write, Access::Write)?;
        self.wait(self.file.write(data, offset))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.check(Op::SetLength, Access::Write)?;
        self.wait(self.file.set_length(length))
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.check(Op::SetLength, Access::Write)?;
        self.wait(self.file.allocate(length))
    }

    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        self.check(Op::SetLength, Access::Write)?;
        self.wait(self.file.zero(offset, length, hole))
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        self.check(Op::Extents, Access::Read)?;
        self.wait(self.file.extents(offset, length, max))
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        self.check(Op::CopyRange, Access::Write)?;
        if let Some(source) = source.as_any().downcast_ref::<Self>()
            && Arc::ptr_eq(&source.file.store, &self.file.store)
        {
            source.check(Op::CopyRange, Access::Read)?;
            let copied = self.file.copy_range(&source.file, source_offset, offset, length);
            if let Some(copied) = self.wait(copied)? {
                return Ok(copied);
            }
        }
        copy_through(self, source, source_offset, offset, length)
    }

    fn write_out(&self) -> Result<()> {
        match self.file.kind {
            Kind::File => self.wait(self.file.write_out()),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        match self.file.kind {
            Kind::File => self.wait(self.file.sync()),
            Kind::Directory => self.wait(self.file.sync_folder()),
            _ => Ok(()),
        }
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        if self.file.kind != Kind::Directory {
            return Err(self.file.error(Op::List, ErrorKind::NotADirectory));
        }
        let store = &self.file.store;
        let path = self.current_path()?;
        match store.known_entries(&path) {
            Some(entries) => Ok(entries),
            None => self.wait(store.list(&path)),
        }
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        if self.file.kind != Kind::Symlink {
            return Err(self.file.error(Op::Stat, ErrorKind::Misuse));
        }
        let path = self.current_path()?;
        self.wait(self.file.store.tree.read_link(&path))
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.wait(self.file.streams())
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        let (stream, created) = self.wait(self.file.open_stream(name, how))?;
        Ok((Arc::new(stream), created))
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        self.wait(self.file.remove_stream(name))
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        self.wait(self.file.rename_stream(name, to, replace))
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        self.wait(self.file.security()).map(Some)
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        self.wait(self.file.set_security(descriptor))
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        self.wait(self.file.eas())
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        self.wait(self.file.set_ea(name, value))
    }

    fn lease(&self) -> ContentLease {
        self.file.lease()
    }

    fn watch(&self, below: bool) -> Result<Watching> {
        match self.file.kind {
            Kind::Directory => self.wait(self.file.watch_folder(below)),
            _ => self.wait(self.file.watch_content()),
        }
    }

    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        if self.file.kind != Kind::File {
            return Err(Error::new(
                Op::Lock,
                &self.file.last_path(),
                ErrorKind::Unsupported,
            ));
        }
        let lock = match self.access {
            Access::Attributes => RangeLock::None,
            Access::Read => lock.min(RangeLock::Shared),
            Access::Write => lock,
        };
        self.wait(self.file.lock_range(self.holder, first..=last, lock))
    }

    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        match self.file.kind {
            Kind::File => self.wait(self.file.is_range_locked(self.holder, first..=last, write)),
            _ => Ok(false),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes of one step of a copy through this machine.
const STEP: usize = 1 << 20;

/// Copies a range through this machine, in an order in which overlapping ranges of one file keep
/// their bytes. Returns the bytes copied, fewer at the source's end.
pub(super) fn copy_through(
    target: &dyn Node,
    source: &dyn Node,
    source_offset: u64,
    offset: u64,
    length: u64,
) -> Result<u64> {
    let size = source.stat()?.size;
    let length = length.min(size.saturating_sub(source_offset));
    let mut buffer = vec![0; STEP.min(usize::try_from(length).unwrap_or(STEP))];
    let steps = length.div_ceil(STEP as u64);
    let backwards = offset > source_offset;
    for step in 0..steps {
        let step = if backwards { steps - 1 - step } else { step };
        let at = step * STEP as u64;
        let piece = &mut buffer[..usize::try_from(length - at).unwrap_or(STEP).min(STEP)];
        let count = source.read_at(piece, source_offset + at)?;
        target.write_at(&piece[..count], offset + at)?;
    }
    Ok(length)
}
