//! Records each operation on a store, for `serve --trace` and `mount --trace`.
//!
//! Questions that cost nothing (features, lifetimes, hints) are passed on without a record. The
//! requester ([`Requester`]) is that of the calling thread.

mod node;

use std::sync::Arc;
use std::time::Duration;

use self::node::TracedNode;
use crate::error::Result;
use crate::external::Observer;
use crate::metadata::FileId;
use crate::patience::Reachability;
use crate::posix::{NewKind, NewPosix, RenameMode};
use crate::store::{
    Access, Node, NodeOpen, NodeStat, Opened, Removal, Resolved, Store, StoreFeatures, Task, Versioning,
};
use crate::trace::{By, Record, Requester, SharedObserver, failure};
use crate::tree::Space;
use crate::{Name, RelPath};

/// A store whose operations are recorded.
pub struct TracedStore {
    inner: Arc<dyn Store>,
    records: Records,
}

/// Where records go.
#[derive(Clone)]
struct Records {
    observer: SharedObserver,
    /// In front of all paths: the name of the share, where there are several.
    prefix: Arc<[u8]>,
}

/// What is recorded of an operation, besides times and result.
struct What<'a> {
    kind: &'static str,
    path: &'a [u8],
    to: &'a [u8],
    offset: u64,
    length: u64,
}

impl<'a> What<'a> {
    fn on(kind: &'static str, path: &'a [u8]) -> Self {
        Self {
            kind,
            path,
            to: &[],
            offset: 0,
            length: 0,
        }
    }

    fn range(self, offset: u64, length: u64) -> Self {
        Self {
            offset,
            length,
            ..self
        }
    }

    fn to(self, to: &'a RelPath) -> Self {
        Self {
            to: to.as_bytes(),
            ..self
        }
    }
}

impl Records {
    /// Records an operation that ends with as many bytes as `count` says.
    fn counted<T>(
        &self,
        what: &What<'_>,
        count: impl FnOnce(&T) -> u64,
        operation: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let start = self.observer.now();
        let result = operation();
        let done = match &result {
            Ok(value) => i64::try_from(count(value)).unwrap_or(i64::MAX),
            Err(error) => failure(error),
        };
        self.record(what, start, done);
        result
    }

    /// Records an operation without a number of bytes.
    fn plain<T>(&self, what: &What<'_>, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.counted(what, |_| 0, operation)
    }

    fn record(&self, what: &What<'_>, start: Duration, result: i64) {
        let Requester { connection, process } = Requester::present();
        let (path, to) = (self.prefixed(what.path), self.prefixed(what.to));
        self.observer.record(Record {
            start,
            duration: self.observer.now().saturating_sub(start),
            end: None,
            kind: what.kind,
            path: &path,
            to: if what.to.is_empty() { &[] } else { &to },
            offset: what.offset,
            length: what.length,
            result,
            by: By {
                connection,
                process,
                ..By::default()
            },
        });
    }

    /// Returns a path with the prefix.
    fn prefixed<'p>(&self, path: &'p [u8]) -> std::borrow::Cow<'p, [u8]> {
        match (&*self.prefix, path) {
            ([], path) => path.into(),
            (prefix, []) => prefix.to_vec().into(),
            (prefix, path) => [prefix, path].join(&b'/').into(),
        }
    }
}

impl TracedStore {
    /// Reports each operation on `inner` to `observer` when it has ended. `prefix` stands in front of
    /// all paths.
    pub fn wrap(inner: Arc<dyn Store>, observer: SharedObserver, prefix: &str) -> Arc<dyn Store> {
        let records = Records {
            observer,
            prefix: Arc::from(prefix.as_bytes()),
        };
        Arc::new(Self { inner, records })
    }

    fn node(&self, path: &RelPath, node: Arc<dyn Node>) -> Arc<dyn Node> {
        let path = Arc::from(path.as_bytes());
        Arc::new(TracedNode::new(node, path, self.records.clone()))
    }

    fn opened(&self, path: &RelPath, opened: Opened) -> Opened {
        Opened {
            node: self.node(path, opened.node),
            ..opened
        }
    }

    fn named(
        &self,
        kind: &'static str,
        path: &RelPath,
        operation: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.records.plain(&What::on(kind, path.as_bytes()), operation)
    }

    fn moved(
        &self,
        kind: &'static str,
        (from, to): (&RelPath, &RelPath),
        operation: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.records
            .plain(&What::on(kind, from.as_bytes()).to(to), operation)
    }
}

impl Store for TracedStore {
    fn features(&self) -> &StoreFeatures {
        self.inner.features()
    }

    fn space(&self) -> Result<Space> {
        self.records
            .plain(&What::on("volume", b""), || self.inner.space())
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        let what = What::on("resolve", path.as_bytes());
        self.records.plain(&what, || self.inner.resolve(path))
    }

    fn resolve_soon(&self, path: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
        let what = What::on("resolve", path.as_bytes());
        self.records.plain(&what, || self.inner.resolve_soon(path, then))
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let kind = match how.create {
            Some(new) if new.directory => "make_dir",
            Some(_) => "create",
            None => "open",
        };
        let what = What::on(kind, path.as_bytes());
        let opened = self.records.plain(&what, || self.inner.open(path, how))?;
        Ok(self.opened(path, opened))
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        self.named("remove", path, || self.inner.remove(path, directory))
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        self.named("remove", path, || self.inner.remove_node(id, path, what))
    }

    fn check_remove(&self, path: &RelPath) -> Result<()> {
        self.named("access", path, || self.inner.check_remove(path))
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.moved("rename", (from, to), || self.inner.rename(from, to, replace))
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.moved("rename", (from, to), || {
            self.inner.rename_node(id, from, to, replace)
        })
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        let path = node::path_of(node);
        let what = What::on("link", path).to(to);
        let inner = node::inner_of(node);
        self.records
            .plain(&what, || self.inner.link_node(inner, to, replace))
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.moved("link", (from, to), || self.inner.link(from, to, replace))
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        self.named("link", path, || self.inner.symlink(path, target))
    }

    fn may_hold_security(&self) -> bool {
        self.inner.may_hold_security()
    }

    fn folder_security(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        let what = What::on("xattr", path.as_bytes());
        self.records.plain(&what, || self.inner.folder_security(path))
    }

    fn may_have_xattrs(&self) -> bool {
        self.inner.may_have_xattrs()
    }

    fn observe(&self, observer: Arc<dyn Observer>) {
        self.inner.observe(observer);
    }

    fn sync(&self) -> Result<()> {
        self.records.plain(&What::on("sync", b""), || self.inner.sync())
    }

    fn attribute_lifetime(&self) -> Duration {
        self.inner.attribute_lifetime()
    }

    fn versioning(&self) -> Option<Versioning> {
        self.inner.versioning()
    }

    fn reachability(&self) -> Option<Reachability> {
        self.inner.reachability()
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        let what = What::on("stat", path.as_bytes());
        self.records.plain(&what, || self.inner.look(path))
    }

    fn open_itself(&self, path: &RelPath, access: Access) -> Result<Opened> {
        let what = What::on("open", path.as_bytes());
        let opened = self
            .records
            .plain(&what, || self.inner.open_itself(path, access))?;
        Ok(self.opened(path, opened))
    }

    fn open_known(&self, path: &RelPath) -> Option<Opened> {
        let start = self.records.observer.now();
        let opened = self.inner.open_known(path)?;
        self.records.record(&What::on("open", path.as_bytes()), start, 0);
        Some(self.opened(path, opened))
    }

    fn list_soon(&self, dir: &RelPath) {
        self.inner.list_soon(dir);
    }

    fn work_in_background(&self) {
        self.inner.work_in_background();
    }

    fn make(&self, path: &RelPath, new: &NewPosix<'_>) -> Result<Opened> {
        let kind = match new.kind {
            NewKind::Directory => "make_dir",
            NewKind::Symlink(_) => "link",
            _ => "create",
        };
        let what = What::on(kind, path.as_bytes());
        let opened = self.records.plain(&what, || self.inner.make(path, new))?;
        Ok(self.opened(path, opened))
    }

    fn rename_posix(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> Result<()> {
        self.moved("rename", (from, to), || self.inner.rename_posix(from, to, mode))
    }
}

/// Returns the path of a stream.
fn stream_path(path: &[u8], name: &Name) -> Arc<[u8]> {
    Arc::from([path, name.as_bytes()].join(&b':'))
}
