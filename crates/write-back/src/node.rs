//! An open node: content through the journal, everything else forwarded.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_vfs::external::{ContentLease, Watching};
use ropeway_vfs::posix::{Permissions, XattrSet};
use ropeway_vfs::store::{Access, Entries, Node, NodeChange, NodeStat, RangeLock, StreamInfo, StreamOpen};
use ropeway_vfs::tree::Extent;
use ropeway_vfs::{Error, Name, Op, Result, Xattr};

use crate::files::{File, View};
use crate::shared::{Change, Shared};

/// A node of a [`WriteBackStore`](crate::WriteBackStore).
pub(crate) struct WriteBackNode {
    inner: Arc<dyn Node>,
    shared: Arc<Shared>,
    /// The file whose content this is; for a stream, the file that it belongs to.
    file: Option<Arc<File>>,
    is_stream: bool,
}

impl WriteBackNode {
    /// Wraps a node. `file` counts it already.
    pub(crate) fn new(inner: Arc<dyn Node>, shared: Arc<Shared>, file: Option<Arc<File>>) -> Self {
        Self {
            inner,
            shared,
            file,
            is_stream: false,
        }
    }

    pub(crate) fn inner(&self) -> &dyn Node {
        &*self.inner
    }

    /// The file whose content this node has, unless it is a stream.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        self.file.as_ref().filter(|_| !self.is_stream)
    }

    /// Changes the content: through the journal where that is possible.
    fn write(&self, change: &Change<'_>) -> Result<()> {
        let far = || match change {
            Change::Data(offset, data) => self.inner.write_at(data, *offset),
            Change::Length(length) => self.inner.set_len(*length),
            Change::Attributes(change) => self.inner.change(change),
        };
        match &self.file {
            None => far(),
            Some(file) if self.is_stream => self.shared.exclusively(file, None, far),
            // The far store says why not.
            Some(_) if self.inner.access() != Access::Write && !matches!(change, Change::Attributes(_)) => {
                far()
            }
            Some(file) => self.shared.change(file, &self.inner, change),
        }
    }

    /// Runs what must find no backlog.
    fn settled<T>(&self, run: impl FnOnce(&dyn Node) -> Result<T>) -> Result<T> {
        match &self.file {
            Some(file) => {
                let node = Some(&self.inner).filter(|_| !self.is_stream);
                file.is_through_dirty.store(true, Ordering::Release);
                self.shared.set_through_dirty();
                self.shared.exclusively(file, node, || run(&*self.inner))
            }
            None => run(&*self.inner),
        }
    }

    fn read_view(&self, view: &View, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let end = view.size.min(offset.saturating_add(buffer.len() as u64));
        let Some(length) = end.checked_sub(offset).filter(|length| *length > 0) else {
            return Ok(0);
        };
        // At most the buffer's.
        let buffer = &mut buffer[..length as usize];
        let from_far = gap(view, offset, end);
        buffer.fill(0);
        if let Some((start, stop)) = from_far {
            let far = &mut buffer[(start - offset) as usize..(stop - offset) as usize];
            let count = self.inner.read_at(far, start)?;
            far[count..].fill(0);
        }
        for (at, piece) in &view.pieces {
            let (start, stop) = ((*at).max(offset), (at + piece.length).min(end));
            if start < stop {
                let into = &mut buffer[(start - offset) as usize..(stop - offset) as usize];
                let read = view.parts.read(piece, start - at, into);
                read.map_err(|error| self.error(Op::Read, error))?;
            }
        }
        Ok(buffer.len())
    }

    fn error(&self, op: Op, error: std::io::Error) -> Error {
        let path = self.file.as_ref().map(|file| file.path()).unwrap_or_default();
        Error::from_io(op, &path, error)
    }
}

/// Returns the range that must be read from the far file: from the first to the last byte that only
/// it has.
fn gap(view: &View, offset: u64, end: u64) -> Option<(u64, u64)> {
    let end = end.min(view.far_valid);
    let (mut at, mut first, mut last) = (offset, None, 0);
    let ends = view
        .pieces
        .iter()
        .map(|(start, piece)| (*start, start + piece.length));
    for (start, stop) in ends.chain([(end, end)]) {
        let start = start.min(end);
        if start > at {
            first.get_or_insert(at);
            last = start;
        }
        at = at.max(stop);
    }
    first.map(|first| (first, last))
}

impl Drop for WriteBackNode {
    fn drop(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_stream) else {
            return;
        };
        if file.nodes.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let is_removed = file.state.lock().is_removed;
        if is_removed {
            self.shared.let_go(&mut file.drain.lock());
            self.shared.drop_backlog(file);
        }
        self.shared.files.forget_if_idle(file);
    }
}

impl Node for WriteBackNode {
    fn access(&self) -> Access {
        self.inner.access()
    }

    fn stat(&self) -> Result<NodeStat> {
        let Some(file) = self.file() else {
            return self.inner.stat();
        };
        {
            let state = file.state.lock();
            let known = state.pending.as_ref().and_then(|pending| pending.stat);
            // A removed file's number of links is the far store's to say.
            if let Some(mut stat) = known.filter(|_| !state.is_removed && !state.is_lost) {
                // With a backlog nothing is asked: the line may be cut.
                state.overlay(&mut stat);
                return Ok(stat);
            }
        }
        let count = self.shared.changes.count();
        let mut stat = self.inner.stat()?;
        let state = file.state.lock();
        match state.pending {
            Some(_) => state.overlay(&mut stat),
            None => {
                let end = self.shared.changes.end_since(count, stat.id);
                stat = end.unwrap_or(stat);
            }
        }
        Ok(stat)
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        match self.file() {
            Some(file) if file.has_backlog() => self.write(&Change::Attributes(change)),
            _ => self.settled(|inner| inner.change(change)),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64);
        let view = self.file().and_then(|file| file.view(offset, end));
        match view {
            Some(view) if self.inner.access() != Access::Attributes => self.read_view(&view, buffer, offset),
            _ => self.inner.read_at(buffer, offset),
        }
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        match self.file() {
            Some(file) if file.has_backlog() => Ok(None),
            _ => self.inner.read_cached(buffer, offset),
        }
    }

    fn in_memory(&self) -> bool {
        self.inner.in_memory()
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write(&Change::Data(offset, data))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.write(&Change::Length(length))
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.settled(|inner| inner.allocate(length))
    }

    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        self.settled(|inner| inner.zero(offset, length, hole))
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        let size = match self.file().and_then(|file| file.view(0, 0)) {
            Some(view) => view.size,
            None => return self.inner.extents(offset, length, max),
        };
        // All of it counts as data.
        let end = offset.saturating_add(length).min(size);
        let extent = (end > offset && max > 0).then(|| Extent {
            offset,
            length: end - offset,
        });
        Ok(extent.into_iter().collect())
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        let own = source.as_any().downcast_ref::<Self>();
        let Some(own) = own else {
            return self.settled(|inner| inner.copy_from(source, source_offset, offset, length));
        };
        if let Some(file) = own.file() {
            self.shared.drain_all(file, Some(&own.inner))?;
        }
        self.settled(|inner| inner.copy_from(&*own.inner, source_offset, offset, length))
    }

    fn write_out(&self) -> Result<()> {
        match self.file() {
            Some(file) if file.state.lock().is_lost => self.sync(),
            Some(file) if file.has_backlog() && !file.is_through_dirty.load(Ordering::Acquire) => Ok(()),
            _ => self.inner.write_out(),
        }
    }

    fn sync(&self) -> Result<()> {
        match self.file() {
            Some(file) => self.shared.sync(file, &self.inner),
            None => self.inner.sync(),
        }
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        let count = self.shared.changes.count();
        let inner = self.inner.entries()?;
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(WithBacklog { inner, shared, count }))
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        self.inner.link_target()
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.inner.streams()
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        let (inner, created) = match how.create {
            true => self.settled(|inner| inner.open_stream(name, how))?,
            false => self.inner.open_stream(name, how)?,
        };
        let stream = Self {
            inner,
            shared: Arc::clone(&self.shared),
            file: self.file.clone(),
            is_stream: true,
        };
        Ok((Arc::new(stream), created))
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        self.settled(|inner| inner.remove_stream(name))
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        self.settled(|inner| inner.rename_stream(name, to, replace))
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        self.inner.security()
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        self.settled(|inner| inner.set_security(descriptor))
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        self.inner.eas()
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        self.settled(|inner| inner.set_ea(name, value))
    }

    fn watch(&self, below: bool) -> Result<Watching> {
        self.inner.watch(below)
    }

    fn lease(&self) -> ContentLease {
        self.inner.lease()
    }

    /// Whoever gets the lock at the far server next finds what was written under this one.
    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        if let Some(file) = self.file()
            && let Err(error) = self.shared.drain_all(file, Some(&self.inner))
        {
            if lock != RangeLock::None {
                return Err(error);
            }
            // A lock that stayed would be worse.
            tracing::warn!(%error, "a lock ends before the far server has what was written under it");
        }
        self.inner.lock_range(first, last, lock)
    }

    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        self.inner.is_range_locked(first, last, write)
    }

    fn sync_data(&self) -> Result<()> {
        match self.file() {
            Some(file) => self.shared.sync(file, &self.inner),
            None => self.inner.sync_data(),
        }
    }

    fn set_permissions(&self, permissions: &Permissions) -> Result<()> {
        self.settled(|inner| inner.set_permissions(permissions))
    }

    fn device(&self) -> Result<Option<(u32, u32)>> {
        self.inner.device()
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        self.settled(|inner| inner.reserve(offset, length))
    }

    fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        self.inner.xattr_names()
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.xattr(name)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        self.settled(|inner| inner.set_xattr(name, value, how))
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.settled(|inner| inner.remove_xattr(name))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A listing with what the far files lack.
struct WithBacklog {
    inner: Box<dyn Entries>,
    shared: Arc<Shared>,
    /// Changes when the listing began.
    count: u64,
}

impl Entries for WithBacklog {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        let mut entry = self.inner.next()?;
        if let Some((_, stat)) = &mut entry {
            self.shared.overlay(stat, self.count);
        }
        Ok(entry)
    }
}
