//! The store: forwards everything, wraps nodes.

use std::sync::Arc;
use std::time::Duration;

use ropeway_cache::{FileKey, Version};
use ropeway_vfs::external::Observer;
use ropeway_vfs::patience::Reachability;
use ropeway_vfs::posix::{NewKind, NewPosix, RenameMode};
use ropeway_vfs::store::{
    Access, NewNode, Node, NodeOpen, NodeStat, Opened, Removal, Resolved, Store, StoreFeatures, Task,
    Versioning,
};
use ropeway_vfs::{FileId, Kind, RelPath, Result, Space};

use crate::ahead::worker;
use crate::boost::{Boost, ShareUse};
use crate::confirm::{self, Confirmer};
use crate::files::{FileState, Files};
use crate::known::Ask;
use crate::node::BoostNode;
use crate::noting::Noting;
use crate::offline::Offline;

/// A store whose reads go through a cache.
pub struct BoostStore {
    shared: Arc<StoreShared>,
}

/// What the nodes of a store share.
pub(crate) struct StoreShared {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) boost: Boost,
    pub(crate) files: Files,
    /// For the time in which the source is lost; `None` if it cannot be, or if that is not wanted.
    pub(crate) offline: Option<Offline>,
    pub(crate) confirmer: Confirmer,
    /// Name of the source in messages.
    pub(crate) name: String,
    /// The use of `share`, and whether another store has the same.
    pub(crate) share_use: Arc<ShareUse>,
    pub(crate) share: [u8; 16],
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
        Self::named(inner, boost, share, "the cache")
    }

    /// Puts a cache in front of a store that messages call by a name.
    pub fn named(inner: Arc<dyn Store>, boost: Boost, share: [u8; 16], name: &str) -> Self {
        let root = inner.look(&RelPath::root());
        let volume = root.ok().map(|stat| stat.id.volume);
        let bound = boost.shared.offline_reads();
        let offline = bound.and_then(|bound| Offline::new(&*inner, bound));
        let shared = Arc::new(StoreShared {
            share_use: boost.shared.share_uses.begin(share),
            inner,
            boost,
            files: Files::default(),
            offline,
            confirmer: Confirmer::default(),
            name: name.to_owned(),
            share,
            volume,
        });
        if shared.offline.is_some() {
            confirm::start(&shared);
        }
        if let Some(ahead) = &shared.boost.shared.ahead {
            ahead.join(share, &shared);
        }
        Self { shared }
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

    /// Opens a node to fill the cache: no program has opened it.
    pub(crate) fn open_to_fill(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        self.open_with(path, how, || self.shared.inner.open(path, how))
    }

    /// Opens through the source, and keeps what it says.
    fn open_with(&self, path: &RelPath, how: &NodeOpen, open: impl Fn() -> Result<Opened>) -> Result<Opened> {
        let shared = &self.shared;
        let ask = if how.link_itself {
            Ask::Itself
        } else {
            Ask::Followed
        };
        let asking = || {
            let question = shared.question();
            let opened = open();
            if how.create.is_none() {
                shared.note_result(question, path, ask, opened.as_ref().map(|opened| &opened.stat));
            }
            let opened = opened?;
            let node = BoostNode::opened(shared, path, how, question, &opened);
            Ok(Opened {
                node: Arc::new(node),
                ..opened
            })
        };
        if how.create.is_some() {
            return shared.changing_names(&[path], asking);
        }
        if how.access == Access::Write && !how.allow_less_access {
            return asking();
        }
        shared.ask_or(asking, |offline, now| shared.open_known(offline, now, path, how))
    }
}

impl StoreShared {
    /// Returns how versions are told apart.
    pub(crate) fn versioning(&self) -> Option<Versioning> {
        self.boost.shared.versioning(&*self.inner)
    }

    /// Takes the answer to a question, which has a number and a time.
    pub(crate) fn learn(&self, file: &FileState, question: (u64, Duration), stat: &NodeStat) {
        if let Some(source) = self.versioning() {
            let now = self.boost.shared.now();
            file.coherence.lock().learn(question, now, stat, &source);
        }
    }

    /// Returns the version of a file under which its blocks may be found now, if it is known.
    pub(crate) fn known_version(&self, file: &FileKey) -> Option<Version> {
        let id = FileId {
            volume: file.volume,
            index: u64::try_from(file.file).ok()?,
        };
        let (file, source) = (self.files.get(id)?, self.versioning()?);
        file.coherence.lock().usable(self.boost.shared.now(), &source)
    }

    /// Tells the predictor that a program has opened a file to read it.
    pub(crate) fn note_opening(&self, path: &RelPath, opened: &Opened) {
        let Some(ahead) = &self.boost.shared.ahead else {
            return;
        };
        let is_reader = self.boost.shared.hogs.is_reader();
        if is_reader || opened.node.access() == Access::Attributes || opened.created {
            return;
        }
        if let Some(file) = self.file_key(&opened.stat) {
            let now = self.boost.shared.now();
            ahead.opened(file, path, worker::program(), worker::moment(), now);
        }
    }

    /// Whether a file may be cached.
    pub(crate) fn is_ours(&self, stat: &NodeStat) -> bool {
        stat.kind == Kind::File && Some(stat.id.volume) == self.volume && stat.id.index != 0
    }

    /// Returns the key of a file's blocks.
    pub(crate) fn file_key(&self, stat: &NodeStat) -> Option<FileKey> {
        self.is_ours(stat).then(|| FileKey {
            share: self.share,
            volume: stat.id.volume,
            file: u128::from(stat.id.index),
        })
    }

    /// Returns the state of a file that may be cached.
    pub(crate) fn file_of(&self, stat: &NodeStat) -> Option<Arc<FileState>> {
        let key = self.file_key(stat)?;
        let source = self.versioning();
        let now = self.boost.shared.now();
        let forget = || {
            // What was known of the files whose states are removed could not be judged any more.
            if let Some(offline) = &self.offline {
                offline.known.lock().clear();
            }
        };
        Some(self.files.of(stat.id, key, now, source.as_ref(), forget))
    }
}

impl Store for BoostStore {
    fn features(&self) -> &StoreFeatures {
        self.shared.inner.features()
    }

    fn space(&self) -> Result<Space> {
        self.shared.space()
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        let known = |offline: &Offline, now| StoreShared::resolve_known(offline, now, path);
        self.shared.ask_or(|| self.shared.inner.resolve(path), known)
    }

    fn resolve_soon(&self, path: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
        if self.shared.offline.is_some() {
            return self.resolve(path).map(Resolved::Path);
        }
        self.shared.inner.resolve_soon(path, then)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let opened = self.open_with(path, how, || self.shared.inner.open(path, how))?;
        self.shared.note_opening(path, &opened);
        Ok(opened)
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        let shared = &self.shared;
        shared.changing_names(&[path], || shared.inner.remove(path, directory))
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        let shared = &self.shared;
        shared.changing_names(&[path], || shared.inner.remove_node(id, path, what))
    }

    fn check_remove(&self, path: &RelPath) -> Result<()> {
        self.shared.inner.check_remove(path)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let shared = &self.shared;
        shared.changing_names(&[from, to], || shared.inner.rename(from, to, replace))
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let shared = &self.shared;
        shared.changing_names(&[from, to], || shared.inner.rename_node(id, from, to, replace))
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        let (shared, node) = (&self.shared, BoostNode::source_of(node)?);
        shared.changing_names(&[to], || shared.inner.link_node(node, to, replace))
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let shared = &self.shared;
        shared.changing_names(&[from, to], || shared.inner.link(from, to, replace))
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        let shared = &self.shared;
        shared.changing_names(&[path], || shared.inner.symlink(path, target))
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
        let store = Arc::downgrade(&self.shared);
        self.shared.inner.observe(Arc::new(Noting { store, observer }));
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

    fn reachability(&self) -> Option<Reachability> {
        self.shared.inner.reachability()
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        let shared = &self.shared;
        let asking = || {
            let question = shared.question();
            let stat = shared.inner.look(path);
            shared.note_result(question, path, Ask::Itself, stat.as_ref());
            stat
        };
        shared.ask_or(asking, |offline, now| shared.last_look(offline, now, path))
    }

    fn open_known(&self, path: &RelPath) -> Option<Opened> {
        let shared = &self.shared;
        let question = shared.question();
        let opened = shared.inner.open_known(path)?;
        let how = NodeOpen {
            access: Access::Read,
            link_itself: true,
            ..NodeOpen::default()
        };
        let node = BoostNode::opened(shared, path, &how, question, &opened);
        Some(Opened {
            node: Arc::new(node),
            ..opened
        })
    }

    fn work_in_background(&self) {
        self.shared.inner.work_in_background();
    }

    fn list_soon(&self, dir: &RelPath) {
        if !self.shared.is_lost() {
            self.shared.inner.list_soon(dir);
        }
    }

    fn open_itself(&self, path: &RelPath, access: Access) -> Result<Opened> {
        let shared = &self.shared;
        if access == Access::Read
            && let Some(opened) = self.open_kept(path)
        {
            shared.note_opening(path, &opened);
            return Ok(opened);
        }
        let how = NodeOpen {
            access,
            link_itself: true,
            ..NodeOpen::default()
        };
        let opened = self.open_with(path, &how, || shared.inner.open_itself(path, access))?;
        shared.note_opening(path, &opened);
        Ok(opened)
    }

    fn make(&self, path: &RelPath, new: &NewPosix<'_>) -> Result<Opened> {
        let how = NodeOpen {
            access: new.access,
            create: Some(NewNode {
                directory: matches!(new.kind, NewKind::Directory),
                dos_attributes: None,
            }),
            link_itself: true,
            ..NodeOpen::default()
        };
        self.open_with(path, &how, || self.shared.inner.make(path, new))
    }

    fn rename_posix(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> Result<()> {
        let shared = &self.shared;
        shared.changing_names(&[from, to], || shared.inner.rename_posix(from, to, mode))
    }
}
