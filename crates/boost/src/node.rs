//! An open node: forwards everything, reads through the cache.

use std::any::Any;
use std::sync::Arc;

use ropeway_vfs::external::{ContentLease, Watching};
use ropeway_vfs::posix::{Permissions, XattrSet};
use ropeway_vfs::store::{Access, Entries, Node, NodeChange, NodeStat, RangeLock, StreamInfo, StreamOpen};
use ropeway_vfs::tree::Extent;
use ropeway_vfs::{Name, Result, Xattr};

use crate::boost::Shared;
use crate::files::FileState;
use crate::store::StoreShared;

/// A node of a [`BoostStore`](crate::BoostStore).
pub(crate) struct BoostNode {
    pub(crate) inner: Arc<dyn Node>,
    pub(crate) store: Arc<StoreShared>,
    /// The state of a file that may be cached.
    pub(crate) file: Option<Arc<FileState>>,
}

impl BoostNode {
    /// Returns the source's node behind a node.
    pub(crate) fn source_of(node: &dyn Node) -> &dyn Node {
        let own = node.as_any().downcast_ref::<Self>();
        own.map_or(node, |own| &*own.inner)
    }

    pub(crate) fn boost(&self) -> &Shared {
        &self.store.boost.shared
    }

    /// Runs a change of the content, during which the cache is not used for the file.
    fn changing<T>(&self, change: impl FnOnce(&dyn Node) -> Result<T>) -> Result<T> {
        let Some(file) = &self.file else {
            return change(&*self.inner);
        };
        file.coherence.lock().begin_change();
        let changed = change(&*self.inner);
        let next = self.store.files.ask();
        let now = self.boost().now();
        if let Some(source) = self.store.versioning() {
            file.coherence.lock().end_change(next, now, &source);
        } else {
            file.coherence.lock().end_change_unseen();
        }
        changed
    }

    /// Runs what writes out all changes made before.
    fn writing_out(&self, write: impl FnOnce(&dyn Node) -> Result<()>) -> Result<()> {
        let changes = self.file.as_ref().map(|file| file.coherence.lock().changes());
        write(&*self.inner)?;
        if let (Some(file), Some(changes)) = (&self.file, changes)
            && let Some(source) = self.store.versioning()
        {
            let next = self.store.files.ask();
            let now = self.boost().now();
            file.coherence.lock().written_out(changes, next, now, &source);
        }
        Ok(())
    }
}

impl Node for BoostNode {
    fn access(&self) -> Access {
        self.inner.access()
    }

    fn stat(&self) -> Result<NodeStat> {
        match &self.file {
            Some(file) => self.ask(file),
            None => self.inner.stat(),
        }
    }

    fn stat_now(&self) -> Result<NodeStat> {
        self.inner.stat_now()
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        let (Some(file), Some(_)) = (&self.file, change.changed) else {
            return self.inner.change(change);
        };
        // The time could be that of an earlier version.
        file.coherence.lock().bar(true);
        let changed = self.changing(|inner| inner.change(change));
        self.boost().forget(file);
        changed
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(buffer, offset, true)
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        self.inner.read_cached(buffer, offset)
    }

    fn in_memory(&self) -> bool {
        self.inner.in_memory()
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.changing(|inner| inner.write_at(data, offset))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.changing(|inner| inner.set_len(length))
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.changing(|inner| inner.allocate(length))
    }

    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        self.changing(|inner| inner.zero(offset, length, hole))
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        self.inner.extents(offset, length, max)
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        let source = Self::source_of(source);
        self.changing(|inner| inner.copy_from(source, source_offset, offset, length))
    }

    fn write_out(&self) -> Result<()> {
        self.writing_out(|inner| inner.write_out())
    }

    fn sync(&self) -> Result<()> {
        self.writing_out(|inner| inner.sync())
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        self.inner.entries()
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        self.inner.link_target()
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.inner.streams()
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        let (inner, created) = self.inner.open_stream(name, how)?;
        let stream = Self {
            inner,
            store: Arc::clone(&self.store),
            file: None,
        };
        Ok((Arc::new(stream), created))
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        self.inner.remove_stream(name)
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        self.inner.rename_stream(name, to, replace)
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        self.inner.security()
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        self.inner.set_security(descriptor)
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        self.inner.eas()
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        self.inner.set_ea(name, value)
    }

    fn watch(&self, below: bool) -> Result<Watching> {
        self.inner.watch(below)
    }

    fn lease(&self) -> ContentLease {
        self.inner.lease()
    }

    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        self.inner.lock_range(first, last, lock)
    }

    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        self.inner.is_range_locked(first, last, write)
    }

    fn sync_data(&self) -> Result<()> {
        self.writing_out(|inner| inner.sync_data())
    }

    fn set_permissions(&self, permissions: &Permissions) -> Result<()> {
        self.inner.set_permissions(permissions)
    }

    fn device(&self) -> Result<Option<(u32, u32)>> {
        self.inner.device()
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        self.changing(|inner| inner.reserve(offset, length))
    }

    fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        self.inner.xattr_names()
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.xattr(name)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        self.inner.set_xattr(name, value, how)
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.inner.remove_xattr(name)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
