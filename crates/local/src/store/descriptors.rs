//! Bounded descriptors for any number of open nodes.
//!
//! ```text
//!  LocalNode ── Handle ──┐              ┌── ring: slots with a descriptor, a clock hand goes round
//!                        ├── Slot ──────┤
//!  LocalNode ── Handle ──┘              └── paths: all slots by their current path
//! ```
//!
//! A node's descriptor is in its slot. When there are too many, the clock algorithm closes those of slots
//! not used since its last round. The next use opens the node again by its path, and accepts only the same
//! node: device, inode and birth time. A rename through the store changes the paths of the slots concerned.
//! A node whose name is removed or replaced through the store is pinned first and keeps its descriptor. A
//! rename by another program makes nodes without a descriptor [`ErrorKind::Gone`]. Byte-range locks belong
//! to the descriptor that took them, so a node with locks keeps its descriptor too; only a part of all nodes
//! may.
//!
//! Lock order: a slot's descriptor, `renames`, the table, a slot's path. Code that holds the table uses
//! `try_lock` for descriptors. Descriptors are closed outside all locks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ropeway_vfs::{Error, ErrorKind, FileId, Op, RelPath, Result};
use rustix::fs::{OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::root::{StoreRoot, open_fault};
use crate::stat;

/// Index of a slot that is not in the ring.
const OUTSIDE: usize = usize::MAX;

/// The clock closes 1 of this many descriptors at once, so that not every open pays for the search (a
/// guess).
const BATCH_DIVISOR: usize = 16;

/// Nodes with locks keep at most 1 of this many descriptors; the others are left for other work (a
/// guess).
const HELD_DIVISOR: usize = 2;

/// An open node, with its descriptor if it has one.
pub(super) struct Slot {
    serial: u64,
    /// Identity of the node.
    pub(super) id: FileId,
    /// Birth time: an inode number may be used again.
    birth: Option<(i64, u32)>,
    /// Flags to open the node again.
    flags: OFlags,
    fd: Mutex<Option<Arc<OwnedFd>>>,
    used: AtomicBool,
    pinned: AtomicBool,
    /// Whether the node has locks, which belong to the descriptor.
    held: AtomicBool,
    /// Changed only with the table locked.
    path: Mutex<RelPath>,
    /// Index in the ring; changed only with the table locked.
    place: AtomicUsize,
    /// Whether the owner is gone; changed only with the table locked.
    dead: AtomicBool,
}

/// Owner of a slot: its drop removes the slot from the table.
pub(super) struct Handle {
    slot: Arc<Slot>,
    descriptors: Arc<Descriptors>,
}

/// All slots of a store.
pub(super) struct Descriptors {
    root: Arc<StoreRoot>,
    max: usize,
    table: Mutex<Table>,
    renames: RwLock<()>,
    /// Number of slots with locks.
    pub(super) held: AtomicUsize,
    /// Number of times a node was opened again.
    #[cfg(test)]
    pub(super) reopened: AtomicUsize,
}

#[derive(Default)]
struct Table {
    serial: u64,
    /// By path and serial number.
    paths: BTreeMap<(Vec<u8>, u64), Arc<Slot>>,
    ring: Vec<Arc<Slot>>,
    hand: usize,
}

/// Nodes that keep their descriptors while one of their names is removed or replaced.
pub(super) struct Pinned {
    slots: Vec<Arc<Slot>>,
}

impl Descriptors {
    pub(super) fn new(root: Arc<StoreRoot>, max: usize) -> Self {
        Self {
            root,
            max: max.max(1),
            table: Mutex::default(),
            renames: RwLock::new(()),
            held: AtomicUsize::new(0),
            #[cfg(test)]
            reopened: AtomicUsize::new(0),
        }
    }

    /// Lock to hold while a node is opened by path and entered; renames wait.
    pub(super) fn opening(&self) -> RwLockReadGuard<'_, ()> {
        self.renames.read()
    }

    /// Lock to hold while a name is changed; opens wait.
    pub(super) fn renaming(&self) -> RwLockWriteGuard<'_, ()> {
        self.renames.write()
    }

    /// Enters a node that was opened with `flags` under `path`.
    pub(super) fn enter(
        self: &Arc<Self>,
        path: &RelPath,
        fd: OwnedFd,
        stat: &Statx,
        flags: OFlags,
    ) -> Handle {
        let mut table = self.lock();
        table.serial += 1;
        let slot = Arc::new(Slot {
            serial: table.serial,
            id: id_of(stat),
            birth: birth_of(stat),
            flags,
            fd: Mutex::new(Some(Arc::new(fd))),
            used: AtomicBool::new(true),
            pinned: AtomicBool::new(false),
            held: AtomicBool::new(false),
            path: Mutex::new(path.clone()),
            place: AtomicUsize::new(OUTSIDE),
            dead: AtomicBool::new(false),
        });
        let key = (path.as_bytes().to_vec(), slot.serial);
        table.paths.insert(key, Arc::clone(&slot));
        let victims = table.admit(&slot, self.max);
        drop(table);
        drop(victims);
        Handle {
            slot,
            descriptors: Arc::clone(self),
        }
    }

    /// Closes idle descriptors when the process has no more; returns false if none was idle.
    pub(super) fn relieve(&self) -> bool {
        let mut table = self.lock();
        let count = table.ring.len().div_ceil(BATCH_DIVISOR).max(1);
        let victims = table.evict(count);
        drop(table);
        !victims.is_empty()
    }

    /// Makes the nodes under `path` keep their descriptors, opening those that have none.
    pub(super) fn pin(&self, path: &RelPath) -> Pinned {
        let slots = self.lock().at(path);
        let slots: Vec<_> = slots
            .into_iter()
            .filter(|slot| !slot.pinned.swap(true, Ordering::Relaxed))
            .collect();
        for slot in &slots {
            // A node that is gone already stays gone.
            let _ = slot.open(self, Op::Open);
        }
        Pinned { slots }
    }

    /// Records that a name was removed or replaced: its nodes have no path any more.
    pub(super) fn forget_path(&self, path: &RelPath, pinned: Pinned) {
        let mut table = self.lock();
        for slot in &pinned.slots {
            table.paths.remove(&(path.as_bytes().to_vec(), slot.serial));
        }
        // Opened since; those that still have a descriptor keep it. What is under the name now may be another node, made
        // since: it is pinned in vain and keeps its path.
        for slot in table.at(path) {
            slot.pinned.store(true, Ordering::Relaxed);
        }
    }

    /// Records a rename: changes the paths of the node and of all nodes beneath it.
    pub(super) fn renamed(&self, from: &RelPath, to: &RelPath) {
        let mut table = self.lock();
        for slot in table.beneath(from) {
            let mut path = slot.path();
            let Some(rest) = path.strip_prefix(from) else {
                continue;
            };
            let new = to.join_path(&rest);
            table.paths.remove(&(path.as_bytes().to_vec(), slot.serial));
            table
                .paths
                .insert((new.as_bytes().to_vec(), slot.serial), Arc::clone(&slot));
            *path = new;
        }
    }

    /// Returns the number of slots that have a descriptor.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().ring.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

impl Pinned {
    /// Unpins the nodes: the name was not removed after all.
    pub(super) fn release(self) {
        for slot in &self.slots {
            slot.pinned.store(false, Ordering::Relaxed);
        }
    }
}

impl Handle {
    pub(super) fn id(&self) -> FileId {
        self.slot.id
    }

    /// Returns the path of the node as far as the store knows.
    pub(super) fn path(&self) -> RelPath {
        self.slot.path().clone()
    }

    /// Returns whether the descriptor can read, and whether it can write.
    pub(super) fn modes(&self) -> (bool, bool) {
        let mode = self.slot.flags & OFlags::RWMODE;
        match self.is_path_only() {
            true => (false, false),
            false => (mode != OFlags::WRONLY, mode != OFlags::RDONLY),
        }
    }

    /// Whether the descriptor was opened with `O_PATH`.
    pub(super) fn is_path_only(&self) -> bool {
        self.slot.flags.contains(OFlags::PATH)
    }

    /// Returns the descriptor; opens the node again if it was closed.
    pub(super) fn fd(&self, op: Op) -> Result<Arc<OwnedFd>> {
        self.slot.open(&self.descriptors, op)
    }

    /// Returns the descriptor, which the node keeps until [`Self::let_go`].
    pub(super) fn hold(&self, op: Op) -> Result<Arc<OwnedFd>> {
        if !self.slot.held.swap(true, Ordering::AcqRel) {
            let max = (self.descriptors.max / HELD_DIVISOR).max(1);
            if self.descriptors.held.fetch_add(1, Ordering::AcqRel) >= max {
                self.let_go();
                return Err(Error::new(op, &self.path(), ErrorKind::Exhausted));
            }
        }
        // If the clock took the descriptor, that was before: it is opened again and stays.
        self.fd(op)
    }

    /// Whether the descriptor is held.
    pub(super) fn is_held(&self) -> bool {
        self.slot.held.load(Ordering::Acquire)
    }

    /// Lets the clock close the descriptor again.
    pub(super) fn let_go(&self) {
        if self.slot.held.swap(false, Ordering::AcqRel) {
            self.descriptors.held.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut table = self.descriptors.lock();
        let key = (self.slot.path().as_bytes().to_vec(), self.slot.serial);
        table.paths.remove(&key);
        table.leave(&self.slot);
        self.slot.dead.store(true, Ordering::Relaxed);
        drop(table);
        self.let_go();
        let fd = self.slot.lock().take();
        drop(fd);
    }
}

impl Slot {
    fn path(&self) -> MutexGuard<'_, RelPath> {
        self.path.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.fd.lock()
    }

    fn open(self: &Arc<Self>, descriptors: &Descriptors, op: Op) -> Result<Arc<OwnedFd>> {
        let mut guard = self.lock();
        if let Some(fd) = &*guard {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return Ok(Arc::clone(fd));
        }
        let renames = descriptors.opening();
        let fd = Arc::new(self.reopen(descriptors, op)?);
        drop(renames);
        *guard = Some(Arc::clone(&fd));
        self.used.store(true, Ordering::Relaxed);
        #[cfg(test)]
        descriptors.reopened.fetch_add(1, Ordering::Relaxed);
        let victims = descriptors.lock().admit(self, descriptors.max);
        drop(guard);
        drop(victims);
        Ok(fd)
    }

    fn reopen(&self, descriptors: &Descriptors, op: Op) -> Result<OwnedFd> {
        let path = self.path().clone();
        let gone = || Error::new(op, &path, ErrorKind::Gone);
        let fd = match descriptors.root.open_at(&path, self.flags, 0) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::ISDIR) => {
                return Err(gone());
            }
            Err(error) => return Err(open_fault(op, &path, error)),
        };
        let stat = stat::raw(fd.as_fd(), StatxFlags::INO | StatxFlags::BTIME)
            .map_err(|error| open_fault(op, &path, error))?;
        if id_of(&stat) == self.id && birth_of(&stat) == self.birth {
            Ok(fd)
        } else {
            Err(gone())
        }
    }
}

impl Table {
    /// Puts a slot that has a descriptor into the ring. Returns the descriptors to close for it; the caller
    /// drops them outside all locks.
    fn admit(&mut self, slot: &Arc<Slot>, max: usize) -> Vec<Arc<OwnedFd>> {
        if slot.dead.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let victims = if self.ring.len() >= max {
            self.evict(max.div_ceil(BATCH_DIVISOR))
        } else {
            Vec::new()
        };
        slot.place.store(self.ring.len(), Ordering::Relaxed);
        self.ring.push(Arc::clone(slot));
        victims
    }

    /// Takes up to `count` idle descriptors; looks at each slot twice at most.
    fn evict(&mut self, count: usize) -> Vec<Arc<OwnedFd>> {
        let mut victims = Vec::with_capacity(count);
        let mut steps = self.ring.len() * 2;
        while victims.len() < count && steps > 0 && !self.ring.is_empty() {
            steps -= 1;
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let slot = Arc::clone(&self.ring[self.hand]);
            self.hand += 1;
            if slot.pinned.load(Ordering::Relaxed) || slot.used.swap(false, Ordering::Relaxed) {
                continue;
            }
            let Some(mut fd) = slot.fd.try_lock() else {
                continue;
            };
            // Whoever holds it after this finds no descriptor, and opens it again.
            if slot.held.load(Ordering::Acquire) {
                continue;
            }
            if let Some(fd) = fd.take() {
                victims.push(fd);
            }
            // The slot that takes this one's place in the ring comes next.
            self.hand -= 1;
            self.leave(&slot);
        }
        victims
    }

    fn leave(&mut self, slot: &Slot) {
        let place = slot.place.swap(OUTSIDE, Ordering::Relaxed);
        if place == OUTSIDE {
            return;
        }
        self.ring.swap_remove(place);
        if let Some(moved) = self.ring.get(place) {
            moved.place.store(place, Ordering::Relaxed);
        }
    }

    /// The slots under a path.
    fn at(&self, path: &RelPath) -> Vec<Arc<Slot>> {
        let key = |serial| (path.as_bytes().to_vec(), serial);
        self.collect(key(0)..key(u64::MAX))
    }

    /// The slots under a path and beneath it.
    fn beneath(&self, path: &RelPath) -> Vec<Arc<Slot>> {
        let key = |end: &[u8]| ([path.as_bytes(), end].concat(), 0);
        let mut slots = self.at(path);
        // '0' follows '/'.
        slots.extend(self.collect(key(b"/")..key(b"0")));
        slots
    }

    fn collect(&self, keys: Range<(Vec<u8>, u64)>) -> Vec<Arc<Slot>> {
        self.paths.range(keys).map(|(_, slot)| Arc::clone(slot)).collect()
    }
}

/// Returns a node's identity.
pub(super) fn id_of(stat: &Statx) -> FileId {
    FileId {
        volume: stat::volume(stat),
        index: stat.stx_ino,
    }
}

fn birth_of(stat: &Statx) -> Option<(i64, u32)> {
    let has = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    has.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}
