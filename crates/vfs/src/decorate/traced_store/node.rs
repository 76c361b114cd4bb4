//! An open node whose operations are recorded.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::{Records, What, stream_path};
use crate::Name;
use crate::error::Result;
use crate::external::{ContentLease, Watching};
use crate::metadata::{Timestamp, Xattr};
use crate::posix::{Permissions, XattrSet};
use crate::store::{Access, Entries, Node, NodeChange, NodeStat, RangeLock, StreamInfo, StreamOpen};
use crate::tree::Extent;

/// The node. It is closed, which is recorded too, when the last handle goes.
pub(super) struct TracedNode {
    inner: Arc<dyn Node>,
    path: Arc<[u8]>,
    records: Records,
}

/// Returns the node of the inner store.
pub(super) fn inner_of(node: &dyn Node) -> &dyn Node {
    match node.as_any().downcast_ref::<TracedNode>() {
        Some(traced) => &*traced.inner,
        None => node,
    }
}

/// Returns the path that a node was opened by; empty for a foreign node.
pub(super) fn path_of(node: &dyn Node) -> &[u8] {
    let traced = node.as_any().downcast_ref::<TracedNode>();
    traced.map_or(&[], |traced| &traced.path)
}

impl TracedNode {
    pub(super) fn new(inner: Arc<dyn Node>, path: Arc<[u8]>, records: Records) -> Self {
        Self { inner, path, records }
    }

    fn what(&self, kind: &'static str) -> What<'_> {
        What::on(kind, &self.path)
    }

    fn plain<T>(&self, kind: &'static str, operation: impl FnOnce(&dyn Node) -> Result<T>) -> Result<T> {
        self.records.plain(&self.what(kind), || operation(&*self.inner))
    }

    fn range<T>(
        &self,
        kind: &'static str,
        (offset, length): (u64, u64),
        operation: impl FnOnce(&dyn Node) -> Result<T>,
    ) -> Result<T> {
        let what = self.what(kind).range(offset, length);
        self.records.plain(&what, || operation(&*self.inner))
    }
}

impl Drop for TracedNode {
    fn drop(&mut self) {
        let now = self.records.observer.now();
        self.records.record(&self.what("close"), now, 0);
    }
}

impl Node for TracedNode {
    fn access(&self) -> Access {
        self.inner.access()
    }

    fn stat(&self) -> Result<NodeStat> {
        self.plain("stat", |node| node.stat())
    }

    fn stat_now(&self) -> Result<NodeStat> {
        self.plain("stat", |node| node.stat_now())
    }

    fn birth(&self) -> Result<Option<Timestamp>> {
        self.plain("stat", |node| node.birth())
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        self.plain("set_attributes", |node| node.change(change))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let what = self.what("read").range(offset, buffer.len() as u64);
        let operation = || self.inner.read_at(buffer, offset);
        self.records.counted(&what, |done| *done as u64, operation)
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        let what = self.what("read").range(offset, buffer.len() as u64);
        let start = self.records.observer.now();
        let result = self.inner.read_cached(buffer, offset);
        match &result {
            // Not read: the caller reads otherwise.
            Ok(None) => {}
            Ok(Some(done)) => self.records.record(&what, start, *done as i64),
            Err(error) => self.records.record(&what, start, super::failure(error)),
        }
        result
    }

    fn in_memory(&self) -> bool {
        self.inner.in_memory()
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let length = data.len() as u64;
        let what = self.what("write").range(offset, length);
        let operation = || self.inner.write_at(data, offset);
        self.records.counted(&what, |()| length, operation)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.range("set_length", (0, length), |node| node.set_len(length))
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.range("allocate", (0, length), |node| node.allocate(length))
    }

    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        self.range("allocate", (offset, length), |node| {
            node.zero(offset, length, hole)
        })
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        self.range("extents", (offset, length), |node| {
            node.extents(offset, length, max)
        })
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        let what = What {
            to: &self.path,
            ..What::on("copy_range", path_of(source)).range(offset, length)
        };
        let source = inner_of(source);
        let operation = || self.inner.copy_from(source, source_offset, offset, length);
        self.records.counted(&what, |done| *done, operation)
    }

    fn write_out(&self) -> Result<()> {
        self.plain("writeback", |node| node.write_out())
    }

    fn begin_sync(&self) -> Result<()> {
        self.inner.begin_sync()
    }

    fn sync(&self) -> Result<()> {
        self.plain("sync", |node| node.sync())
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        let start = self.records.observer.now();
        match self.inner.entries() {
            Ok(inner) => Ok(Box::new(TracedEntries {
                inner,
                path: Arc::clone(&self.path),
                records: self.records.clone(),
                start,
                count: 0,
                failure: None,
            })),
            Err(error) => {
                self.records
                    .record(&self.what("list"), start, super::failure(&error));
                Err(error)
            }
        }
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        self.plain("read_link", |node| node.link_target())
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.plain("xattr", |node| node.streams())
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        let path = stream_path(&self.path, name);
        let what = What::on("open", &path);
        let opened = self.records.plain(&what, || self.inner.open_stream(name, how));
        let (inner, is_new) = opened?;
        let node = Self::new(inner, path, self.records.clone());
        Ok((Arc::new(node), is_new))
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        let path = stream_path(&self.path, name);
        let what = What::on("remove", &path);
        self.records.plain(&what, || self.inner.remove_stream(name))
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        let (path, to_path) = (stream_path(&self.path, name), stream_path(&self.path, to));
        let what = What {
            to: &to_path,
            ..What::on("rename", &path)
        };
        self.records
            .plain(&what, || self.inner.rename_stream(name, to, replace))
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        self.plain("xattr", |node| node.security())
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        self.plain("xattr", |node| node.set_security(descriptor))
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        self.plain("xattr", |node| node.eas())
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        self.plain("xattr", |node| node.set_ea(name, value))
    }

    fn watch(&self, below: bool) -> Result<Watching> {
        self.plain("watch", |node| node.watch(below))
    }

    fn lease(&self) -> ContentLease {
        self.inner.lease()
    }

    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        let range = (first, last.saturating_sub(first).saturating_add(1));
        self.range("lock", range, |node| node.lock_range(first, last, lock))
    }

    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        let range = (first, last.saturating_sub(first).saturating_add(1));
        self.range("lock", range, |node| node.is_range_locked(first, last, write))
    }

    fn sync_data(&self) -> Result<()> {
        self.plain("sync", |node| node.sync_data())
    }

    fn set_permissions(&self, permissions: &Permissions) -> Result<()> {
        self.plain("set_attributes", |node| node.set_permissions(permissions))
    }

    fn device(&self) -> Result<Option<(u32, u32)>> {
        self.inner.device()
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        self.range("allocate", (offset, length), |node| node.reserve(offset, length))
    }

    fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        self.plain("xattr", |node| node.xattr_names())
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.plain("xattr", |node| node.xattr(name))
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        self.plain("xattr", |node| node.set_xattr(name, value, how))
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.plain("xattr", |node| node.remove_xattr(name))
    }

    /// There is none: what others read and write by it would not be recorded.
    fn content_descriptor(&self) -> Option<Arc<OwnedFd>> {
        None
    }

    fn unflushed_bytes(&self) -> Option<u64> {
        self.inner.unflushed_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A listing: one record when it ends, with the number of entries.
struct TracedEntries {
    inner: Box<dyn Entries>,
    path: Arc<[u8]>,
    records: Records,
    start: Duration,
    count: u64,
    failure: Option<i64>,
}

impl Entries for TracedEntries {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        let next = self.inner.next();
        match &next {
            Ok(Some(_)) => self.count += 1,
            Ok(None) => {}
            Err(error) => self.failure = Some(super::failure(error)),
        }
        next
    }
}

impl Drop for TracedEntries {
    fn drop(&mut self) {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        let result = self.failure.unwrap_or(count);
        self.records
            .record(&What::on("list", &self.path), self.start, result);
    }
}
