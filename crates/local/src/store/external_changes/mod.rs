//! Changes beneath the root by other programs, by fanotify.
//!
//! ```text
//!  Node::watch ── mark on the inode ──▶ kernel ──▶ thread ── not of this process? ──▶ Observer
//!                   └ mark_table: which watch needs which mark, paths of watched folders
//! ```
//! A store has one group of inode marks, which needs no privilege. Without privilege the kernel does not name
//! the process of an event, but it does mark events of this process, which is enough. Events of this process
//! are used to watch the folders that it makes beneath watched ones. The thread reads at most once in each
//! [`PAUSE`], so that a single client that writes much does not wake it for each write; meanwhile the kernel
//! merges equal events.
//!
//! The kernel does not report writes through a memory mapping. Removing a mark takes the node. If the node
//! cannot be opened any more, because another program renamed it after its descriptor was closed, the mark
//! stays until the inode goes, and counts.

mod events;
mod mark_table;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use ropeway_vfs::external::{ExternalChange, Observer};
use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, fstatvfs, statat};
use rustix::io::Errno;

use self::events::{Key, events};
use self::mark_table::{Growth, Mark, MarkTable, found};
use super::descriptors::{Descriptors, Handle};
use super::root::{StoreRoot, failed};
use crate::sys::fanotify;

/// Shortest time between two reads of events.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Bytes of one read from the kernel: hundreds of events.
const BUFFER_BYTES: usize = 64 * 1024;

/// Bytes of one getdents64 call.
const LIST_BYTES: usize = 32 * 1024;

/// Events asked of a file.
const FILE: u64 = libc::FAN_MODIFY | libc::FAN_ATTRIB | libc::FAN_MOVE_SELF | libc::FAN_DELETE_SELF;

/// Events asked of a folder.
const FOLDER: u64 = FILE
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_ONDIR
    | libc::FAN_EVENT_ON_CHILD;

/// Events asked of a folder before Linux 5.17.
const FOLDER_BEFORE: u64 = FOLDER & !libc::FAN_RENAME | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;

/// Bounds of what is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchBounds {
    pub(super) nodes: usize,
    pub(super) folders: usize,
}

/// Watches nodes beneath a root; starts with the first watch.
pub(super) struct Watcher {
    root: Arc<StoreRoot>,
    bounds: WatchBounds,
    observer: Arc<Mutex<Option<Arc<dyn Observer>>>>,
    /// `None` if the system cannot watch.
    group: OnceLock<Option<Arc<Group>>>,
}

/// A node to watch.
pub(super) struct Watched<'a> {
    pub(super) handle: &'a Arc<Handle>,
    pub(super) directory: bool,
    /// Whether everything beneath it is watched too.
    pub(super) below: bool,
}

/// The group of marks.
struct Group {
    fd: OwnedFd,
    stop: OwnedFd,
    root: Arc<StoreRoot>,
    bounds: WatchBounds,
    process: i32,
    has_rename: AtomicBool,
    warned: AtomicBool,
    mark_table: Mutex<MarkTable>,
    observer: Arc<Mutex<Option<Arc<dyn Observer>>>>,
}

/// A node that is watched.
struct Guard {
    group: Arc<Group>,
    handle: Arc<Handle>,
    key: Key,
    tree: bool,
}

impl Watcher {
    pub(super) fn new(root: &Arc<StoreRoot>, bounds: WatchBounds) -> Self {
        Self {
            root: Arc::clone(root),
            bounds,
            observer: Arc::default(),
            group: OnceLock::new(),
        }
    }

    pub(super) fn observe(&self, observer: Arc<dyn Observer>) {
        let before = lock(&self.observer).replace(observer);
        drop(before);
    }

    /// Watches a node until the returned guard is dropped.
    pub(super) fn watch(
        &self,
        descriptors: &Descriptors,
        what: &Watched<'_>,
    ) -> Result<impl Send + Sync + 'static> {
        let refused = || Error::new(Op::Watch, &what.handle.path(), ErrorKind::Unsupported);
        let group = self
            .group
            .get_or_init(|| self.start())
            .as_ref()
            .ok_or_else(refused)?;
        group.watch(descriptors, what)
    }

    /// Records a rename by this process.
    pub(super) fn renamed(&self, from: &RelPath, to: &RelPath) {
        let Some(Some(group)) = self.group.get() else {
            return;
        };
        let needless = {
            let mut mark_table = group.mark_table();
            if mark_table.folder_count() == 0 {
                return;
            }
            mark_table.renamed(from, to)
        };
        group.release_all(&needless);
    }

    fn start(&self) -> Option<Arc<Group>> {
        let group = Group::new(&self.root, self.bounds, &self.observer)
            .inspect_err(
                |error| tracing::info!(%error, "changes by other programs cannot be watched, so clients cannot cache"),
            )
            .ok()?;
        let group = Arc::new(group);
        let reader = Arc::clone(&group);
        std::thread::Builder::new()
            .name("ropeway-changes".into())
            .spawn(move || reader.run())
            .ok()?;
        Some(group)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(Some(group)) = self.group.get() {
            // The counter is fresh: it takes one event.
            let _ = rustix::io::write(&group.stop, &1u64.to_ne_bytes());
        }
    }
}

impl Group {
    fn new(
        root: &Arc<StoreRoot>,
        bounds: WatchBounds,
        observer: &Arc<Mutex<Option<Arc<dyn Observer>>>>,
    ) -> rustix::io::Result<Self> {
        Ok(Self {
            fd: fanotify::group()?,
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            root: Arc::clone(root),
            bounds,
            process: rustix::process::getpid().as_raw_pid(),
            has_rename: AtomicBool::new(true),
            warned: AtomicBool::new(false),
            mark_table: Mutex::default(),
            observer: Arc::clone(observer),
        })
    }

    fn mark_table(&self) -> MutexGuard<'_, MarkTable> {
        lock(&self.mark_table)
    }

    fn watch(self: &Arc<Self>, descriptors: &Descriptors, what: &Watched<'_>) -> Result<Guard> {
        let fd = what.handle.fd(Op::Watch)?;
        let error = |error| failed(Op::Watch, &what.handle.path(), error);
        let key = key_of(fd.as_fd()).map_err(error)?;
        let tree = what.directory && what.below;
        {
            // The path stays valid until it is in the table.
            let _still = descriptors.opening();
            let path = what.directory.then(|| what.handle.path());
            let mut mark_table = self.mark_table();
            self.mark(&mut mark_table, fd.as_fd(), &key, what)
                .map_err(error)?;
            if let Some(path) = path {
                mark_table.place(&key, &path);
            }
            if let Some(mark) = mark_table.marks.get_mut(&key) {
                mark.users += 1;
                mark.trees += u32::from(tree);
            }
        }
        let guard = Guard {
            group: Arc::clone(self),
            handle: Arc::clone(what.handle),
            key,
            tree,
        };
        if tree {
            self.grow(&guard.handle.path(), &mut None);
        }
        Ok(guard)
    }

    /// Adds a mark, unless the node has it.
    fn mark(
        &self,
        mark_table: &mut MarkTable,
        fd: BorrowedFd<'_>,
        key: &Key,
        what: &Watched<'_>,
    ) -> rustix::io::Result<()> {
        let known = mark_table
            .marks
            .get(key)
            .filter(|mark| !mark.gone)
            .map(|mark| mark.mask);
        if known.is_some_and(|mask| mask & FILE == FILE && (!what.directory || mask & libc::FAN_CREATE != 0))
        {
            return Ok(());
        }
        if known.is_none() && mark_table.marks.len() >= self.bounds.nodes {
            return Err(Errno::NOSPC);
        }
        let mask = self.ask(fd, what.directory)?;
        let mark = mark_table.marks.entry(key.clone()).or_insert_with(|| Mark {
            id: what.handle.id(),
            mask,
            users: 0,
            trees: 0,
            path: None,
            gone: false,
        });
        mark.mask = mask;
        Ok(())
    }

    fn ask(&self, fd: BorrowedFd<'_>, directory: bool) -> rustix::io::Result<u64> {
        let add = |mask| fanotify::mark(self.fd.as_fd(), true, mask, fd).map(|()| mask);
        if !directory {
            return add(FILE);
        }
        if self.has_rename.load(Ordering::Relaxed) {
            match add(FOLDER) {
                Err(Errno::INVAL) => self.has_rename.store(false, Ordering::Relaxed),
                result => return result,
            }
        }
        add(FOLDER_BEFORE)
    }

    /// Watches a folder and everything beneath it. `report`: reports what is found as new.
    fn grow(&self, top: &RelPath, report: &mut Option<Vec<ExternalChange>>) {
        let mut waiting = vec![top.clone()];
        while let Some(path) = waiting.pop() {
            match self.grow_one(&path, &mut waiting, report) {
                Ok(()) => {}
                Err(Errno::NOSPC | Errno::NOMEM) => {
                    if !self.warned.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%path, "too many folders: changes by local programs are not watched in all of them");
                    }
                    return;
                }
                // It was removed meanwhile, or may not be read.
                Err(error) => tracing::debug!(%path, %error, "a folder is not watched"),
            }
        }
    }

    fn grow_one(
        &self,
        path: &RelPath,
        waiting: &mut Vec<RelPath>,
        report: &mut Option<Vec<ExternalChange>>,
    ) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let dir = self.root.open_at(path, flags, 0)?;
        let key = key_of(dir.as_fd())?;
        {
            let mut mark_table = self.mark_table();
            if !mark_table.marks.contains_key(&key) {
                if mark_table.folder_count() >= self.bounds.folders
                    || mark_table.marks.len() >= self.bounds.nodes
                {
                    return Err(Errno::NOSPC);
                }
                let mask = self.ask(dir.as_fd(), true)?;
                let stat = crate::stat::raw(&dir, super::open::MASK)?;
                let mark = Mark {
                    id: ropeway_vfs::FileId {
                        volume: crate::stat::volume(&stat),
                        index: stat.stx_ino,
                    },
                    mask,
                    users: 0,
                    trees: 0,
                    path: None,
                    gone: false,
                };
                mark_table.marks.insert(key.clone(), mark);
            }
            mark_table.place(&key, path);
        }
        let mut buffer: Vec<MaybeUninit<u8>> = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let Some(name) = Name::new(entry.file_name().to_bytes()) else {
                continue;
            };
            let directory = match entry.file_type() {
                FileType::Unknown => statat(&dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
                kind => kind == FileType::Directory,
            };
            if let Some(report) = report {
                report.push(found(path, &name, directory));
            }
            if directory {
                waiting.push(path.join(&name));
            }
        }
        Ok(())
    }

    /// Unmarks the folders at a path, unless a watch needs them.
    fn release_all(&self, folders: &[(RelPath, Key)]) {
        for (path, key) in folders {
            let Ok(dir) = self.root.open_at(path, OFlags::PATH | OFlags::NOFOLLOW, 0) else {
                continue;
            };
            if key_of(dir.as_fd()).as_ref() == Ok(key) {
                self.release(key, Some(dir.as_fd()));
            }
        }
    }

    /// Unmarks a node, unless a watch needs it.
    fn release(&self, key: &Key, fd: Option<BorrowedFd<'_>>) {
        let mut mark_table = self.mark_table();
        if mark_table.is_needed(key) {
            return;
        }
        let Some(mark) = mark_table.marks.get(key) else {
            return;
        };
        let removed =
            fd.is_some_and(|fd| fanotify::mark(self.fd.as_fd(), false, mark.mask, fd) != Err(Errno::NOMEM));
        if mark.gone || removed {
            mark_table.remove(key);
        }
    }

    fn run(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while !self.stops(Some(&self.fd), None) {
            match rustix::io::read(&self.fd, &mut buffer[..]) {
                Ok(count) => self.read(&buffer[..count]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "changes by other programs are not watched any more");
                    let mut reports = Vec::new();
                    self.mark_table().lose(&mut reports);
                    self.report(&reports);
                    return;
                }
            }
            if self.stops(None, Some(&PAUSE)) {
                return;
            }
        }
    }

    /// Waits for events or a timeout. Returns whether the store is gone.
    fn stops(&self, other: Option<&OwnedFd>, timeout: Option<&Timespec>) -> bool {
        let stop = PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN);
        let other = other.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
        let mut fds: Vec<_> = std::iter::once(stop).chain(other).collect();
        // If waiting fails, the next read reports the error.
        let _ = poll(&mut fds, timeout);
        !fds[0].revents().is_empty()
    }

    fn read(&self, bytes: &[u8]) {
        let mut reports = Vec::new();
        for event in events(bytes) {
            if event.has(libc::FAN_Q_OVERFLOW) {
                let trees = {
                    let mark_table = self.mark_table();
                    mark_table.lose(&mut reports);
                    mark_table.trees()
                };
                // Events of new folders may be among the lost ones.
                for tree in trees {
                    self.grow(&tree, &mut None);
                }
                continue;
            }
            let own = event.process == self.process;
            let is_there = |path: &RelPath| {
                self.root
                    .open_at(path, OFlags::PATH | OFlags::NOFOLLOW, 0)
                    .is_ok()
            };
            let taken = self.mark_table().take(&event, own, is_there);
            reports.extend(taken.reports);
            self.release_all(&taken.needless);
            for Growth { path, report } in taken.growth {
                let mut more = report.then(Vec::new);
                self.grow(&path, &mut more);
                reports.extend(more.into_iter().flatten());
            }
        }
        reports.dedup();
        self.report(&reports);
    }

    fn report(&self, reports: &[ExternalChange]) {
        let observer = lock(&self.observer).clone();
        if let Some(observer) = observer.filter(|_| !reports.is_empty()) {
            observer.changed(reports);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let below = {
            let mut mark_table = self.group.mark_table();
            let Some(mark) = mark_table.marks.get_mut(&self.key) else {
                return;
            };
            mark.users = mark.users.saturating_sub(1);
            mark.trees = mark.trees.saturating_sub(u32::from(self.tree));
            let last = self.tree && mark.trees == 0;
            let path = mark.path.clone().filter(|_| last);
            path.map(|path| mark_table.within(&path)).unwrap_or_default()
        };
        let fd = self.handle.fd(Op::Watch).ok();
        self.group.release(&self.key, fd.as_ref().map(AsFd::as_fd));
        self.group.release_all(&below);
    }
}

fn key_of(fd: BorrowedFd<'_>) -> rustix::io::Result<Key> {
    let volume = fstatvfs(fd)?.f_fsid;
    let handle = fanotify::handle_of(fd)?;
    Ok(Key { volume, handle })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
