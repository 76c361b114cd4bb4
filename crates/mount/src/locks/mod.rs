//! Byte-range locks (fcntl(2)) of programs that use the mount.
//!
//! [`Ranges`] decides between programs of this mount. The store then takes the lock too, so that
//! programs behind the mount and other machines see it: one node of the store for each owner, since
//! two nodes exclude each other like two programs. A store without locks leaves it at the first
//! step. Locks of flock(2) stay in the kernel.
//!
//! A request that waits is parked here and takes no thread. The kernel cannot withdraw it (fuser
//! answers FUSE_INTERRUPT with ENOSYS), so a thread looks whether a signal is pending for its
//! program and then ends the wait.

mod ranges;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_vfs::ErrorKind;
use ropeway_vfs::store::{Node, RangeLock};
use rustix::io::Errno;

use self::ranges::Ranges;
pub(crate) use self::ranges::{Held, Span};
pub(crate) use self::waiting::{Reply, Waiting, WaitingRequest};
use crate::errno::{self, Answer};

/// Last byte that the store can lock (off_t).
const LAST: u64 = i64::MAX as u64;

/// A lock that a program asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Inode number.
    pub(crate) ino: u64,
    /// The handle it is asked through; closing the handle ends the lock.
    pub(crate) handle: u64,
    /// Owner as the kernel names it.
    pub(crate) owner: u64,
    /// Process to report to others.
    pub(crate) pid: u32,
    pub(crate) span: Span,
    pub(crate) lock: RangeLock,
}

/// Opens the node that holds an owner's locks in the store.
pub(crate) type Open<'a> = &'a dyn Fn(u64) -> Answer<Arc<dyn Node>>;

/// All locks of the mount.
#[derive(Default)]
pub(crate) struct Locks {
    files: Mutex<HashMap<u64, Arc<Mutex<FileLocks>>>>,
}

/// Locks of one file.
#[derive(Default)]
struct FileLocks {
    ranges: Ranges,
    nodes: HashMap<u64, Arc<dyn Node>>,
}

impl Locks {
    /// Sets a lock; returns `false` while another lock excludes it.
    pub(crate) fn set(&self, request: &Request, open: Open<'_>) -> Answer<bool> {
        if request.lock == RangeLock::None {
            self.release(request);
            return Ok(true);
        }
        let file = Arc::clone(self.files.lock().entry(request.ino).or_default());
        let result = file.lock().set(request, open);
        drop(file);
        self.tidy(request.ino);
        result
    }

    /// Returns a lock of another owner that excludes this one.
    pub(crate) fn conflict(&self, request: &Request, open: Open<'_>) -> Answer<Option<Held>> {
        let file = self.files.lock().get(&request.ino).map(Arc::clone);
        let file = file.unwrap_or_default();
        let file = file.lock();
        if let Some(held) = file.ranges.conflict(request.owner, request.span, request.lock) {
            return Ok(Some(held));
        }
        let node = match file.nodes.get(&request.owner) {
            Some(node) => Arc::clone(node),
            // A file without a name: nobody else can lock it.
            None => match open(request.ino) {
                Ok(node) => node,
                Err(_) => return Ok(None),
            },
        };
        let write = request.lock == RangeLock::Exclusive;
        let (first, last) = (request.span.first.min(LAST), request.span.last.min(LAST));
        match node.is_range_locked(first, last, write) {
            Ok(false) => Ok(None),
            // The store does not say who holds it.
            Ok(true) => Ok(Some(Held::unknown(request.span, request.lock))),
            Err(error) if error.kind == ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(errno::of(&error)),
        }
    }

    fn release(&self, request: &Request) {
        let file = self.files.lock().get(&request.ino).map(Arc::clone);
        if let Some(file) = file {
            file.lock().release(request.owner, request.span);
            drop(file);
            self.tidy(request.ino);
        }
    }

    /// Releases all locks of an owner, as close(2) does; returns whether there were any.
    pub(crate) fn close(&self, ino: u64, owner: u64) -> bool {
        let Some(file) = self.files.lock().get(&ino).map(Arc::clone) else {
            return false;
        };
        let had = file.lock().release(owner, Span::ALL);
        drop(file);
        self.tidy(ino);
        had
    }

    /// Releases all locks that were taken through a handle.
    pub(crate) fn close_handle(&self, ino: u64, handle: u64) -> bool {
        let Some(file) = self.files.lock().get(&ino).map(Arc::clone) else {
            return false;
        };
        let mut locks = file.lock();
        let owners = locks.ranges.owners_through(handle);
        for owner in &owners {
            locks.release(*owner, Span::ALL);
        }
        drop(locks);
        drop(file);
        self.tidy(ino);
        !owners.is_empty()
    }

    fn tidy(&self, ino: u64) {
        let mut files = self.files.lock();
        // Whoever else has the file holds a second reference.
        let is_unused =
            |file: &Arc<Mutex<FileLocks>>| Arc::strong_count(file) == 1 && file.lock().ranges.is_empty();
        if files.get(&ino).is_some_and(is_unused) {
            files.remove(&ino);
        }
    }
}

impl FileLocks {
    fn set(&mut self, request: &Request, open: Open<'_>) -> Answer<bool> {
        let Request {
            ino,
            owner,
            span,
            lock,
            ..
        } = *request;
        if self.ranges.conflict(owner, span, lock).is_some() {
            return Ok(false);
        }
        let node = match self.nodes.get(&owner) {
            Some(node) => Some(Arc::clone(node)),
            // A file without a name: nobody else can lock it.
            None => open(ino).ok(),
        };
        if let Some(node) = node {
            match node.lock_range(span.first.min(LAST), span.last.min(LAST), lock) {
                Ok(true) => drop(self.nodes.insert(owner, node)),
                Ok(false) => return Ok(false),
                Err(error) if error.kind == ErrorKind::Unsupported => {}
                Err(error) if error.kind == ErrorKind::Exhausted => return Err(Errno::NOLCK),
                Err(error) => return Err(errno::of(&error)),
            }
        }
        self.ranges.set(Held::of(request));
        Ok(true)
    }

    fn release(&mut self, owner: u64, span: Span) -> bool {
        let had = self.ranges.clear(owner, span);
        let whole = !self.ranges.has(owner);
        if let Some(node) = self.nodes.get(&owner) {
            let span = if whole { Span::ALL } else { span };
            // A failure leaves the lock to the end of the node.
            let _ = node.lock_range(span.first.min(LAST), span.last.min(LAST), RangeLock::None);
        }
        if whole {
            self.nodes.remove(&owner);
        }
        had
    }
}
