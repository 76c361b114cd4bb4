//! The operations of a file system over a store, without FUSE.
//!
//! A node is used through a handle that has it open, else through its path. What is found under the
//! path must be the node that the kernel means; otherwise the answer is ESTALE, and the kernel looks
//! the name up again. A rename through the mount may come in between: then the operation tries again.
//!
//! Names of a folder are changed by the folder's path, so a folder is renamed only while nobody uses
//! such a path (`folders_move`).

mod attributes;
mod content;
mod figures;
mod names;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use fuser::FileAttr;
use parking_lot::{Mutex, RwLock};
use ropeway_vfs::store::{Access, Node, NodeStat, Store};
use ropeway_vfs::{Name, Owner, RelPath};
use rustix::io::Errno;

pub(crate) use self::attributes::Change;
use self::figures::{Asked, Figures, KINDS};
pub(crate) use self::names::{Creation, Renaming};
use crate::errno::{self, Answer};
use crate::inodes::Inodes;
use crate::listing::Listing;
use crate::locks::{Locks, Waiting};
use crate::uses::{ReadObserver, SharedObserver};
use crate::view::View;

/// Most tries to find a node while names change (a guess: a second altogether).
const TRIES_MAX: u64 = 50;

/// A store as a file system.
pub(crate) struct Fs {
    store: Arc<dyn Store>,
    view: View,
    /// Whether a close does not wait for writes.
    pub(crate) closes_late: bool,
    /// The process that reads files to have them in the kernel's memory; 0: none.
    pub(crate) reader: Arc<AtomicU32>,
    /// Hears what programs open and read.
    pub(crate) observer: Option<SharedObserver>,
    /// Whether new nodes get the owner of the program that makes them: only root can do that.
    gives_owners: bool,
    inodes: Inodes,
    files: RwLock<HashMap<u64, Arc<OpenFile>>>,
    folders: RwLock<HashMap<u64, Arc<OpenFolder>>>,
    handles: AtomicU64,
    folders_move: RwLock<()>,
    locks: Locks,
    waiting: Arc<Waiting>,
    /// Bytes written and not made durable since.
    dirty: Arc<AtomicU64>,
    requests: AtomicU64,
    figures: Figures,
    /// Whether the mount ends: nothing is acknowledged any more that could be lost.
    is_ending: AtomicBool,
}

/// An open file.
struct OpenFile {
    ino: u64,
    node: Arc<dyn Node>,
    dirty: Arc<AtomicU64>,
    /// Whether the kernel reads and writes it by itself.
    is_passed: AtomicBool,
    /// The error that the last failed close of a descriptor has reported: the file may be open by others
    /// (dup(2), fork(2)), whose fsync(2) must fail, too.
    close_error: Mutex<Option<Errno>>,
    /// Hears what is read.
    observer: Option<Arc<dyn ReadObserver>>,
}

/// An open folder.
struct OpenFolder {
    ino: u64,
    parent: u64,
    node: Arc<dyn Node>,
    listing: Mutex<Listing>,
}

/// The program that asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) thread: u32,
}

impl Fs {
    /// Makes the file system.
    ///
    /// # Errors
    /// The store's root cannot be examined.
    pub(crate) fn new(store: Arc<dyn Store>, view: View) -> ropeway_vfs::Result<Self> {
        let root = store.look(&RelPath::root())?;
        Ok(Self {
            inodes: Inodes::new(&root),
            store,
            view,
            closes_late: false,
            reader: Arc::default(),
            observer: None,
            gives_owners: rustix::process::geteuid().is_root(),
            files: RwLock::default(),
            folders: RwLock::default(),
            handles: AtomicU64::new(1),
            folders_move: RwLock::new(()),
            locks: Locks::default(),
            waiting: Arc::default(),
            dirty: Arc::default(),
            requests: AtomicU64::new(0),
            figures: Figures::default(),
            is_ending: AtomicBool::new(false),
        })
    }

    /// How long the kernel may keep names and attributes.
    pub(crate) fn lifetime(&self) -> Duration {
        self.store.attribute_lifetime()
    }

    /// Counts a request.
    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of requests of each kind so far.
    pub(crate) fn requests_by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.into_iter().zip(self.figures.kinds())
    }

    /// Returns the bytes that the kernel has read and written.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        self.figures.bytes()
    }

    /// Returns the number of bytes written and not made durable since.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Returns the number of open files.
    pub(crate) fn open_files(&self) -> usize {
        self.files.read().len()
    }

    /// Makes everything durable; returns how many bytes were not.
    ///
    /// # Errors
    /// Write-back failed.
    pub(crate) fn sync_all(&self) -> ropeway_vfs::Result<u64> {
        let files: Vec<_> = self.files.read().values().map(Arc::clone).collect();
        let mut failure = None;
        for file in files {
            self.count_passed(&file);
            if file.node.access() == Access::Write
                && let Err(error) = file.node.write_out()
            {
                failure.get_or_insert(error);
            }
        }
        let dirty = self.dirty();
        self.store.sync()?;
        let less = |total: u64| Some(total.saturating_sub(dirty));
        let _ = self
            .dirty
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        failure.map_or(Ok(dirty), Err)
    }

    /// Ends all waits; from now on writes fail.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.waiting.end();
    }

    /// Looks up a name.
    pub(crate) fn lookup(&self, parent: u64, name: &[u8]) -> Answer<FileAttr> {
        self.figures.count(Asked::Lookup);
        let name = self.name(name)?;
        let _still = self.folders_move.read();
        let path = self.path_in(parent, &name)?;
        match self.store.look(&path) {
            Ok(stat) => self.entry(parent, &name, &path, &stat),
            Err(error) => {
                if error.kind.is_absence() {
                    self.inodes.removed(parent, &name);
                }
                Err(errno::of(&error))
            }
        }
    }

    /// Forgets lookups.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        self.inodes.forget(ino, lookups);
    }

    /// Records that the kernel gets to know a name, and returns the attributes.
    fn entry(&self, parent: u64, name: &Name, path: &RelPath, stat: &NodeStat) -> Answer<FileAttr> {
        let device = match stat.kind.is_device() {
            true => self
                .store
                .open_itself(path, Access::Attributes)
                .and_then(|opened| opened.node.device()),
            false => Ok(None),
        };
        let device = device.map_err(|error| errno::of(&error))?;
        let ino = self.inodes.looked_up(parent, name, stat);
        Ok(self.view.attributes(ino, stat, device))
    }

    fn name(&self, name: &[u8]) -> Answer<Name> {
        if name.len() > self.store.features().name_max {
            return Err(Errno::NAMETOOLONG);
        }
        Name::new(name).ok_or(Errno::INVAL)
    }

    /// Returns the path of a name in a folder. It is right while `folders_move` is held.
    fn path_in(&self, parent: u64, name: &Name) -> Answer<RelPath> {
        let place = self.inodes.place(parent).ok_or(Errno::NOENT)?;
        Ok(place.path.join(name))
    }

    /// Returns a node to use; `access` is the least that its use needs.
    fn node(&self, ino: u64, access: Access) -> Answer<Arc<dyn Node>> {
        if let Some(node) = self.inodes.open_node(ino, access) {
            return Ok(node);
        }
        self.open_node(ino, access).map(|(node, _)| node)
    }

    /// Opens a node by its path.
    fn open_node(&self, ino: u64, access: Access) -> Answer<(Arc<dyn Node>, NodeStat)> {
        self.by_path(ino, |path| {
            let opened = self.store.open_itself(path, access)?;
            Ok((opened.stat, (opened.node, opened.stat)))
        })
    }

    /// Calls `ask` with a node's path until it finds the node itself. `ask` returns what it found
    /// there besides its result.
    fn by_path<T>(
        &self,
        ino: u64,
        ask: impl Fn(&RelPath) -> ropeway_vfs::Result<(NodeStat, T)>,
    ) -> Answer<T> {
        for tries in 1.. {
            let (changes, _) = self.inodes.changes();
            let place = self.inodes.place(ino).ok_or(Errno::STALE)?;
            let failure = match ask(&place.path) {
                Ok((stat, found)) if stat.id == place.id => return Ok(found),
                Ok(_) => Errno::STALE,
                Err(error) if error.kind.is_absence() => Errno::STALE,
                Err(error) => return Err(errno::of(&error)),
            };
            let (now, under_way) = self.inodes.changes();
            if tries >= TRIES_MAX || (now == changes && !under_way) {
                return Err(failure);
            }
            std::thread::sleep(Duration::from_millis(if tries < 5 { 0 } else { tries }));
        }
        Err(Errno::STALE)
    }

    fn file(&self, handle: u64) -> Answer<Arc<OpenFile>> {
        self.files.read().get(&handle).map(Arc::clone).ok_or(Errno::BADF)
    }

    fn folder(&self, handle: u64) -> Answer<Arc<OpenFolder>> {
        self.folders
            .read()
            .get(&handle)
            .map(Arc::clone)
            .ok_or(Errno::BADF)
    }

    /// The owner to give to a new node; `None` leaves it to the store.
    fn owner_for(&self, caller: Caller) -> Option<Owner> {
        let is_shown = self.view.user.is_none() && self.view.group.is_none();
        (self.gives_owners && is_shown).then_some(Owner {
            user: caller.user,
            group: caller.group,
        })
    }
}

/// Converts an error of the store.
fn answer<T>(result: ropeway_vfs::Result<T>) -> Answer<T> {
    result.map_err(|error| errno::of(&error))
}

#[cfg(test)]
mod tests;
