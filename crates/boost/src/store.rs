//! The store: forwards everything, wraps nodes.

use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::external::Observer;
use ropeway_vfs::posix::{NewPosix, RenameMode};
use ropeway_vfs::store::{
    Access, Node, NodeOpen, NodeStat, Opened, Removal, Resolved, Store, StoreFeatures, Task, Versioning,
};
use ropeway_vfs::{FileId, Kind, RelPath, Result, Space};

use crate::boost::Boost;
use crate::files::{FileState, Files};
use crate::node::BoostNode;

/// A store whose reads go through a cache.
pub struct BoostStore {
    shared: Arc<StoreShared>,
}

/// What the nodes of a store share.
pub(crate) struct StoreShared {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) boost: Boost,
    pub(crate) files: Files,
    share: [u8; 16],
    /// The root's volume: other volumes beneath it may keep other times.
    volume: Option<u64>,
}

/// Returns the identity of a share or folder by its name, for [`BoostStore::new`].
pub fn share_id(name: &str) -> [u8; 16] {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, name.as_bytes());
    hash.as_ref()[..16].try_into().expect("16 of 32 bytes")
}

impl BoostStore {
    /// Puts a cache in front of a store. `share` tells stores on one cache apart; see [`share_id`].
    pub fn new(inner: Arc<dyn Store>, boost: Boost, share: [u8; 16]) -> Self {
        let root = inner.look(&RelPath::root());
        let volume = root.ok().map(|stat| stat.id.volume);
        let shared = StoreShared {
            inner,
            boost,
            files: Files::default(),
            share,
            volume,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the store behind the cache.
    pub fn source(&self) -> &Arc<dyn Store> {
        &self.shared.inner
    }

    /// Whether the session ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.boost.shared.is_closed()
    }

    /// Waits for this time, or until the session ends.
    pub(crate) fn wait(&self, time: Duration) {
        self.shared.boost.shared.wait(time);
    }

    /// Waits until no program waits for the source, looking every `pause`.
    pub(crate) fn wait_for_idle(&self, pause: Duration) {
        let boost = &self.shared.boost.shared;
        while !boost.is_idle() && !boost.is_closed() {
            boost.wait(pause);
        }
    }

    /// Opens a file whose beginning and end are in the cache, so that the source need not be asked
    /// for it. Who could read that version once may do so still: taking the right away would have
    /// made another version.
    fn open_kept(&self, path: &RelPath) -> Option<Opened> {
        if !self.shared.boost.shared.is_on() {
            return None;
        }
        let opened = self.open_known(path)?;
        let node = opened.node.as_any().downcast_ref::<BoostNode>()?;
        let last = opened.stat.size.checked_sub(1)?;
        (node.is_kept(0, 1) && node.is_kept(last, 1)).then_some(opened)
    }

    fn opened(&self, number: u64, opened: Opened) -> Opened {
        Opened {
            node: StoreShared::wrap(&self.shared, number, &opened.stat, opened.node),
            ..opened
        }
    }
}

impl StoreShared {
    /// Returns how versions are told apart.
    pub(crate) fn versioning(&self) -> Option<Versioning> {
        self.boost.shared.versioning(&*self.inner)
    }

    /// Takes the answer to a question.
    pub(crate) fn learn(&self, file: &FileState, number: u64, stat: &NodeStat) {
        if let Some(source) = self.versioning() {
            let now = self.boost.shared.now();
            file.coherence.lock().learn(number, now, stat, &source);
        }
    }

    fn wrap(this: &Arc<Self>, number: u64, stat: &NodeStat, inner: Arc<dyn Node>) -> Arc<dyn Node> {
        let is_ours = stat.kind == Kind::File && Some(stat.id.volume) == this.volume && stat.id.index != 0;
        let file = is_ours.then(|| {
            let source = this.versioning();
            let now = this.boost.shared.now();
            let file = this.files.of(stat.id, this.share, now, source.as_ref());
            this.learn(&file, number, stat);
            file
        });
        Arc::new(BoostNode {
            inner,
            store: Arc::clone(this),
            file,
        })
    }
}

impl Store for BoostStore {
    fn features(&self) -> &StoreFeatures {
        self.shared.inner.features()
    }

    fn space(&self) -> Result<Space> {
        self.shared.inner.space()
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        self.shared.inner.resolve(path)
    }

    fn resolve_soon(&self, path: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
        self.shared.inner.resolve_soon(path, then)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let number = self.shared.files.ask();
        let opened = self.shared.inner.open(path, how)?;
        Ok(self.opened(number, opened))
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        self.shared.inner.remove(path, directory)
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        self.shared.inner.remove_node(id, path, what)
    }

    fn check_remove(&self, path: &RelPath) -> Result<()> {
        self.shared.inner.check_remove(path)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.shared.inner.rename(from, to, replace)
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.shared.inner.rename_node(id, from, to, replace)
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        self.shared
            .inner
            .link_node(BoostNode::source_of(node), to, replace)
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.shared.inner.link(from, to, replace)
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        self.shared.inner.symlink(path, target)
    }

    fn may_hold_security(&self) -> bool {
        self.shared.inner.may_hold_security()
    }

    fn folder_security(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        self.shared.inner.folder_security(path)
    }

    fn may_have_xattrs(&self) -> bool {
        self.shared.inner.may_have_xattrs()
    }

    fn observe(&self, observer: Arc<dyn Observer>) {
        self.shared.inner.observe(observer);
    }

    fn sync(&self) -> Result<()> {
        self.shared.inner.sync()
    }

    fn attribute_lifetime(&self) -> Duration {
        self.shared.inner.attribute_lifetime()
    }

    fn versioning(&self) -> Option<Versioning> {
        self.shared.inner.versioning()
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        self.shared.inner.look(path)
    }

    fn open_known(&self, path: &RelPath) -> Option<Opened> {
        let number = self.shared.files.ask();
        let opened = self.shared.inner.open_known(path)?;
        Some(self.opened(number, opened))
    }

    fn open_itself(&self, path: &RelPath, access: Access) -> Result<Opened> {
        if access == Access::Read
            && let Some(opened) = self.open_kept(path)
        {
            return Ok(opened);
        }
        let number = self.shared.files.ask();
        let opened = self.shared.inner.open_itself(path, access)?;
        Ok(self.opened(number, opened))
    }

    fn make(&self, path: &RelPath, new: &NewPosix<'_>) -> Result<Opened> {
        let number = self.shared.files.ask();
        let opened = self.shared.inner.make(path, new)?;
        Ok(self.opened(number, opened))
    }

    fn rename_posix(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> Result<()> {
        self.shared.inner.rename_posix(from, to, mode)
    }
}
