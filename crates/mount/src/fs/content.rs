//! Open files: read, write, holes, locks.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use ropeway_vfs::posix::Permissions;
use ropeway_vfs::store::{Access, Node, NodeStat, RangeLock};
use ropeway_vfs::{ErrorKind, caller};
use rustix::io::Errno;

use super::{Asked, Caller, Fs, OpenFile, answer};
use crate::errno::Answer;
use crate::locks::{Held, Reply, Request, WaitingRequest};
use crate::uses::ReadObserver;
use crate::view::timestamp;

/// Most bytes of one copy inside the store. A copy cannot be interrupted; this many take a fraction
/// of a second.
const COPY_MAX: u64 = 128 << 20;

/// Modes of fallocate(2) (linux/falloc.h).
const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const ZERO_RANGE: i32 = 0x10;

/// `whence` of lseek(2) for holes (linux/fs.h).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Runs of data asked for at once, to find the end of adjoining ones.
const RUNS: usize = 16;

/// Set-user-id and set-group-id bits; without execution by the group the latter means something
/// else (inode(7)).
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

impl Fs {
    pub(super) fn next_handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// Records an open file under its handle.
    pub(super) fn enter(&self, ino: u64, handle: u64, node: Arc<dyn Node>, stat: Option<&NodeStat>) {
        self.inodes.opened(ino, handle, &node);
        let file = OpenFile {
            ino,
            node,
            dirty: self.inodes.dirty(ino),
            is_passed: AtomicBool::new(false),
            close_error: Mutex::default(),
            observer: stat.and_then(|stat| self.observed(ino, stat)),
        };
        self.files.write().insert(handle, Arc::new(file));
    }

    /// Tells the observer that a program has opened a file.
    fn observed(&self, ino: u64, stat: &NodeStat) -> Option<Arc<dyn ReadObserver>> {
        let (observer, place) = (self.observer.as_ref()?, self.inodes.place(ino)?);
        let process = caller::process()?;
        if process == self.reader.load(Ordering::Acquire) {
            return None;
        }
        observer.opened(process, &place.path, stat)
    }

    /// Opens a file for a process; see [`open`](Self::open).
    pub(crate) fn open_for(&self, process: u32, ino: u64, access: Access) -> Answer<(u64, bool)> {
        caller::on_behalf_of(process, || self.open(ino, access))
    }

    /// Opens a file; returns the handle, and whether the kernel may keep what it has in memory.
    pub(crate) fn open(&self, ino: u64, access: Access) -> Answer<(u64, bool)> {
        self.figures.count(Asked::Open);
        let (node, stat) = match self.open_node(ino, access) {
            // No name left: only those who have it open can use it.
            Err(Errno::STALE) => {
                let node = self.inodes.open_node(ino, access).ok_or(Errno::STALE)?;
                let stat = answer(node.stat())?;
                (node, stat)
            }
            opened => opened?,
        };
        let versioning = self.store.versioning();
        let now = versioning.map_or_else(|| timestamp(SystemTime::now()), |source| source.now);
        let is_kept = self.inodes.is_content_kept(ino, &stat, now);
        let handle = self.next_handle();
        self.enter(ino, handle, node, Some(&stat));
        Ok((handle, is_kept))
    }

    /// Reads; returns fewer bytes only at the end.
    pub(crate) fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Answer<usize> {
        let file = self.file(handle)?;
        let start = file.observer.as_ref().map(|observer| (observer, Instant::now()));
        let read = file.node.read_at(buffer, offset);
        if let Some((observer, start)) = start {
            observer.read(offset, buffer.len() as u64, start);
        }
        self.figures.read(*read.as_ref().unwrap_or(&0));
        answer(read)
    }

    /// Writes all of `data`. `appends` writes at the end of the file as it is by now; the kernel
    /// knows the end as of a moment ago. `kills` takes away set-id bits.
    pub(crate) fn write(&self, handle: u64, data: &[u8], at: u64, appends: bool, kills: bool) -> Answer<()> {
        let file = self.file(handle)?;
        if self.is_ending.load(Ordering::SeqCst) {
            return Err(Errno::NOTCONN);
        }
        let offset = match appends {
            true => answer(file.node.stat())?.size.max(at),
            false => at,
        };
        answer(file.node.write_at(data, offset))?;
        self.figures.written(data.len());
        self.count_dirty(&file, data.len() as u64);
        if kills {
            kill_set_ids(&*file.node)?;
        }
        Ok(())
    }

    /// Returns a descriptor with the content of an open file, if the store has one.
    pub(crate) fn content_descriptor(&self, handle: u64) -> Option<Arc<OwnedFd>> {
        self.file(handle).ok()?.node.content_descriptor()
    }

    /// Records that the kernel reads and writes an open file by itself. What it has in memory of the
    /// file from other times is not kept up to date meanwhile.
    pub(crate) fn passed(&self, handle: u64) {
        if let Ok(file) = self.file(handle) {
            file.is_passed.store(true, Ordering::Relaxed);
            self.inodes.forget_content(file.ino);
        }
    }

    /// Counts what the kernel wrote by itself to a file and not to the disk yet.
    pub(super) fn count_passed(&self, file: &OpenFile) {
        let is_written = file.is_passed.load(Ordering::Relaxed) && file.node.access() == Access::Write;
        if !is_written {
            return;
        }
        let now = file.node.unflushed_bytes().unwrap_or(0);
        let before = file.dirty.swap(now, Ordering::Relaxed);
        let change = |total: u64| Some(total.saturating_add(now).saturating_sub(before));
        let _ = self
            .dirty
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    fn count_dirty(&self, file: &OpenFile, bytes: u64) {
        file.dirty.fetch_add(bytes, Ordering::Relaxed);
        self.dirty.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A descriptor is being closed: reports failed writes, releases the owner's locks.
    pub(crate) fn flush(&self, ino: u64, handle: u64, owner: u64) -> Answer<()> {
        if self.locks.close(ino, owner) {
            self.waiting.wake();
        }
        let file = self.file(handle)?;
        match self.closes_late {
            // The store goes on by itself, and keeps the error.
            true => Ok(()),
            false => answer(file.node.write_out()).inspect_err(|error| {
                *file.close_error.lock() = Some(*error);
            }),
        }
    }

    /// Closes a file.
    pub(crate) fn release(&self, ino: u64, handle: u64) {
        if self.locks.close_handle(ino, handle) {
            self.waiting.wake();
        }
        let file = self.files.write().remove(&handle);
        if let Some(file) = file {
            self.count_passed(&file);
            self.inodes.closed(file.ino, handle);
        }
    }

    /// Makes a file durable.
    pub(crate) fn sync(&self, handle: u64, only_data: bool) -> Answer<()> {
        self.figures.count(Asked::Flush);
        let file = self.file(handle)?;
        let dirty = file.dirty.swap(0, Ordering::Relaxed);
        let result = match only_data {
            true => file.node.sync_data(),
            false => file.node.sync(),
        };
        match result {
            Ok(()) => {
                // `sync_all` may have subtracted them already.
                let less = |total: u64| Some(total.saturating_sub(dirty));
                let _ = self
                    .dirty
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
            Err(_) => {
                file.dirty.fetch_add(dirty, Ordering::Relaxed);
            }
        }
        let before = file.close_error.lock().take();
        answer(result).and(before.map_or(Ok(()), Err))
    }

    /// Reserves space, makes holes or zeros.
    pub(crate) fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Answer<()> {
        let node = &self.file(handle)?.node;
        let end = offset
            .checked_add(length)
            .filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or(Errno::FBIG)?;
        let grow = |node: &dyn Node| match answer(node.stat())?.size < end {
            true => answer(node.set_len(end)),
            false => Ok(()),
        };
        match (mode & !KEEP_SIZE, mode & KEEP_SIZE != 0) {
            (0, keeps_size) => {
                answer(node.reserve(offset, length))?;
                if !keeps_size {
                    grow(&**node)?;
                }
                Ok(())
            }
            (PUNCH_HOLE, true) => answer(node.zero(offset, length, true)),
            (ZERO_RANGE, keeps_size) => {
                answer(node.zero(offset, length, false))?;
                if !keeps_size {
                    grow(&**node)?;
                }
                Ok(())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Finds data or a hole.
    pub(crate) fn seek(&self, handle: u64, offset: u64, whence: i32) -> Answer<u64> {
        let node = &self.file(handle)?.node;
        let size = answer(node.stat())?.size;
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let mut at = offset;
        loop {
            let runs = match node.extents(at, size - at, RUNS) {
                Ok(runs) => runs,
                // Without knowledge of holes everything is data.
                Err(error) if error.kind == ErrorKind::Unsupported => {
                    return Ok(if whence == SEEK_DATA { offset } else { size });
                }
                Err(error) => return Err(crate::errno::of(&error)),
            };
            match (whence, runs.first()) {
                (SEEK_DATA, Some(run)) => return Ok(run.offset.max(offset)),
                (SEEK_DATA, None) => return Err(Errno::NXIO),
                (SEEK_HOLE, _) => {}
                _ => return Err(Errno::INVAL),
            }
            let before = at;
            for run in &runs {
                if run.offset > at {
                    return Ok(at);
                }
                at = run.offset + run.length;
            }
            if at >= size || at == before {
                return Ok(at.min(size));
            }
        }
    }

    /// Copies inside the store; returns the bytes copied.
    pub(crate) fn copy(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Answer<u64> {
        let (source, target) = (self.file(from.0)?, self.file(to.0)?);
        let length = length.min(COPY_MAX);
        let copied = answer(target.node.copy_from(&*source.node, from.1, to.1, length))?;
        self.count_dirty(&target, copied);
        Ok(copied)
    }

    /// Returns a lock that excludes this one.
    pub(crate) fn lock_conflict(&self, request: &Request) -> Answer<Option<Held>> {
        self.locks.conflict(request, &|ino| self.lock_node(ino))
    }

    /// Sets a lock and calls `reply`, at once or when the lock is free if `waits`.
    pub(crate) fn lock(self: &Arc<Self>, caller: Caller, request: Request, waits: bool, reply: Reply) {
        let result = self.try_lock(&request);
        if request.lock == RangeLock::None {
            self.waiting.wake();
        }
        match result {
            Ok(true) => reply(Ok(())),
            Err(error) => reply(Err(error)),
            Ok(false) if !waits => reply(Err(Errno::AGAIN)),
            Ok(false) => {
                let fs = Arc::clone(self);
                let thread = caller.thread;
                let parked = WaitingRequest {
                    request,
                    thread,
                    reply,
                };
                self.waiting
                    .park(parked, Box::new(move |request| fs.try_lock(request)));
            }
        }
    }

    fn try_lock(&self, request: &Request) -> Answer<bool> {
        self.locks.set(request, &|ino| self.lock_node(ino))
    }

    /// Opens the node that holds an owner's locks: with write access where that is allowed, so that
    /// it can hold exclusive ones.
    fn lock_node(&self, ino: u64) -> Answer<Arc<dyn Node>> {
        let opened = match self.open_node(ino, Access::Write) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {
                self.open_node(ino, Access::Read)
            }
            opened => opened,
        };
        opened.map(|(node, _)| node)
    }
}

/// Takes away set-id bits, as a write by another user does (inode(7)).
pub(super) fn kill_set_ids(node: &dyn Node) -> Answer<()> {
    let mode = answer(node.stat())?.mode;
    let mut killed = mode & !SET_USER;
    if mode & GROUP_EXECUTES != 0 {
        killed &= !SET_GROUP;
    }
    if killed == mode {
        return Ok(());
    }
    let change = Permissions {
        mode: Some(killed),
        ..Permissions::default()
    };
    answer(node.set_permissions(&change))
}
