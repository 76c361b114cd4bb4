//! A local folder as the back end of a file server: [`LocalStore`].
//!
//! ```text
//!  LocalStore ─┬─ open ─────── root: openat2 beneath the root; follows links that stay inside
//!              ├─ names: remove, rename, link
//!              ├─ posix: what a mounted file system asks besides: modes, owners, special nodes
//!              ├─ resolve ──── index: names without regard to case, kept current by inotify
//!              ├─ external_changes ── changes of watched nodes by other programs, by fanotify
//!              └─ LocalNode ┬─ descriptors: a bounded number of them for any number of nodes
//!                           ├─ content: reading, writing, holes, copies
//!                           ├─ locks: byte-range locks that other programs see
//!                           ├─ entries: listing
//!                           ├─ xattrs: Windows metadata, by crate::winmeta
//!                           └─ stream: open alternate data streams
//! ```
//!
//! Only regular files, folders and links can be opened for content. The kind is known once a node is open: an open
//! for content does not wait (`O_NONBLOCK`), an open for attributes touches nothing (`O_PATH`).

mod change_times;
mod content;
mod descriptors;
mod entries;
mod exact;
mod external_changes;
mod index;
mod locks;
mod names;
mod node;
mod open;
mod posix;
mod resolve;
mod root;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod volume;
mod xattrs;

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_vfs::external::Observer;
use ropeway_vfs::posix::{NewPosix, RenameMode};
use ropeway_vfs::store::{
    Access, Node, NodeOpen, NodeStat, Opened, Removal, Resolved, Store, StoreFeatures, Task, Versioning,
};
use ropeway_vfs::{Error, ErrorKind, FileId, Op, RelPath, Result, Space};
use rustix::fs::syncfs;

use self::change_times::ChangeTimes;
use self::descriptors::Descriptors;
use self::external_changes::{WatchBounds, Watcher};
use self::index::{Bounds, Indexes};
use self::node::LocalNode;
use self::root::{StoreRoot, failed, open_fault};
use self::stream::OpenStreams;
use crate::beneath::{Links, Root, fault};
use crate::xattr;

/// Number of locks for changes of metadata; nodes share them (a guess: more than a server has threads).
const CHANGE_LOCKS: usize = 64;

/// Options of [`LocalStore::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Most descriptors of open nodes at once. Nodes whose names were removed keep theirs in addition,
    /// and calls under way need a few more.
    pub descriptors_max: usize,
    /// Permission bits of new files; the process's umask is applied to them.
    pub file_mode: u32,
    /// Permission bits of new folders; the process's umask is applied to them.
    pub directory_mode: u32,
    /// Most folders whose names are held in memory and watched.
    pub indexed_folders_max: usize,
    /// Most bytes of names held in memory, of all folders together. A name takes its own bytes and 12 to
    /// 25 more.
    pub indexed_bytes_max: usize,
    /// Most nodes watched for changes by other programs; the kernel keeps their inodes in memory.
    pub watched_nodes_max: usize,
    /// Of these, most folders that are watched because a client watches a tree above them.
    pub watched_folders_max: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            // Leaves room for connections below the usual hard limit of 20,000.
            descriptors_max: 12_000,
            file_mode: 0o666,
            directory_mode: 0o777,
            // Half of the 8,192 watches that old kernels allow a user by default.
            indexed_folders_max: 4096,
            // Some six million names of 20 bytes.
            indexed_bytes_max: 256 << 20,
            // The kernel limits each user too: 8,192, or by memory (fs.fanotify.max_user_marks).
            watched_nodes_max: 65_536,
            watched_folders_max: 16_384,
        }
    }
}

/// A local folder as a [`Store`].
pub struct LocalStore {
    core: Arc<Core>,
}

/// State shared by a store and its nodes.
struct Core {
    root: Arc<StoreRoot>,
    options: StoreOptions,
    features: StoreFeatures,
    descriptors: Arc<Descriptors>,
    indexes: Indexes,
    watcher: Watcher,
    streams: OpenStreams,
    changes: [Mutex<()>; CHANGE_LOCKS],
    /// Whether the root's volume is in memory, without a device.
    root_in_memory: bool,
    /// The root's device number.
    root_volume: u64,
    change_times: ChangeTimes,
}

impl LocalStore {
    /// Opens a folder that exists. It may be reached through links.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Self> {
        let base = StoreRoot::open(path).map_err(|error| fault(Op::Open, &RelPath::root(), error))?;
        Self::of(base, options)
    }

    /// Opens a folder beneath `above`, to which no symbolic link leads.
    pub(crate) fn open_below(above: &Root, path: &RelPath, options: &StoreOptions) -> Result<Self> {
        Self::of(StoreRoot::of(above.below(path, Links::Followed)?), options)
    }

    fn of(base: StoreRoot, options: &StoreOptions) -> Result<Self> {
        let root = RelPath::root();
        let base = Arc::new(base);
        let failed = |error| failed(Op::Open, &root, error);
        let features = volume::features(base.fd()).map_err(failed)?;
        let stat = crate::stat::raw(base.fd(), open::MASK).map_err(failed)?;
        let bounds = Bounds {
            folders: options.indexed_folders_max,
            bytes: options.indexed_bytes_max,
        };
        let watch_bounds = WatchBounds {
            nodes: options.watched_nodes_max,
            folders: options.watched_folders_max,
        };
        let descriptors = Arc::new(Descriptors::new(Arc::clone(&base), options.descriptors_max));
        base.relieve_by(&descriptors);
        let core = Core {
            options: options.clone(),
            features,
            descriptors,
            indexes: Indexes::new(bounds),
            watcher: Watcher::new(&base, watch_bounds),
            streams: OpenStreams::default(),
            changes: std::array::from_fn(|_| Mutex::new(())),
            root_in_memory: volume::in_memory(base.fd()),
            root_volume: crate::stat::volume(&stat),
            change_times: ChangeTimes::default(),
            root: base,
        };
        Ok(Self { core: Arc::new(core) })
    }
}

impl Store for LocalStore {
    fn may_hold_security(&self) -> bool {
        // smbd and copies store descriptors too: any node may have one.
        self.core.features.windows_metadata
    }

    fn folder_security(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        let place = self.core.root.place(path);
        let place = place.map_err(|error| open_fault(Op::Open, path, error))?;
        crate::winmeta::security::read(&xattr::Node::Path(place.as_fd()))
            .map_err(|error| failed(Op::Xattr, path, error))
    }

    fn features(&self) -> &StoreFeatures {
        &self.core.features
    }

    fn versioning(&self) -> Option<Versioning> {
        volume::versioning(self.core.root.fd())
    }

    fn space(&self) -> Result<Space> {
        volume::space(self.core.root.fd()).map_err(|error| failed(Op::Stat, &RelPath::root(), error))
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        resolve::resolve(&self.core, path)
    }

    fn resolve_soon(&self, path: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
        resolve::resolve_soon(&self.core, path, then)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        open::open(&self.core, path, how)
    }

    fn work_in_background(&self) {
        // Without it the reads are as urgent as all others.
        if let Err(error) = crate::sys::be_idle() {
            tracing::debug!(%error, "the kernel gives no idle priority");
        }
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        names::remove(&self.core, path, directory)
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        exact::remove(&self.core, id, path, what)
    }

    fn check_remove(&self, path: &RelPath) -> Result<()> {
        names::check_remove(&self.core, path)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        names::rename(&self.core, from, to, replace)
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        exact::rename(&self.core, id, from, to, replace)
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        match node.as_any().downcast_ref::<LocalNode>() {
            Some(node) => exact::link(&self.core, node, to, replace),
            None => Err(Error::new(Op::Link, to, ErrorKind::Misuse)),
        }
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        names::link(&self.core, from, to, replace)
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        names::symlink(&self.core, path, target)
    }

    fn observe(&self, observer: Arc<dyn Observer>) {
        self.core.watcher.observe(observer);
    }

    fn sync(&self) -> Result<()> {
        syncfs(self.core.root.fd()).map_err(|error| failed(Op::Sync, &RelPath::root(), error))
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        posix::look(&self.core, path)
    }

    fn open_itself(&self, path: &RelPath, access: Access) -> Result<Opened> {
        open::open_itself(&self.core, path, access)
    }

    fn make(&self, path: &RelPath, new: &NewPosix<'_>) -> Result<Opened> {
        posix::make(&self.core, path, new)
    }

    fn rename_posix(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> Result<()> {
        posix::rename(&self.core, from, to, mode)
    }
}

impl Core {
    /// Returns the lock for changes of a node's metadata.
    fn changing(&self, id: FileId) -> &Mutex<()> {
        &self.changes[id.index as usize % CHANGE_LOCKS]
    }

    /// Whether reads of a node never wait for a device.
    fn in_memory(&self, id: FileId) -> bool {
        self.root_in_memory && id.volume == self.root_volume
    }
}
