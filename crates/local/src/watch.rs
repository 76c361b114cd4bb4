//! Watches a tree for changes: inotify on every folder.
//!
//! Each watch has a thread that reads the kernel's events and watches every folder. A new folder is
//! watched first and listed then, so that nothing in it is missed; its entries are reported as
//! changes. Changes wait in a bounded set, each path once. Beyond the bound, and when the kernel lost
//! events, one [`Change::Overflow`] replaces them.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use ropeway_vfs::tree::{Change, Watch};
use ropeway_vfs::{Error, ErrorKind, Name, Op, Pending, RelPath, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, fstat, stat};
use rustix::io::Errno;

use crate::beneath::fault;
use crate::inotify::{Event, Instance, WatchId};
use crate::tree::Inner;

/// Most changes that wait: some 10 MiB of paths. With more, a rescan is cheaper.
const CHANGES_MAX: usize = 65_536;

/// Interval at which a watch checks that its root is still at its path.
const ROOT_INTERVAL: Duration = Duration::from_secs(1);

/// Events asked of each folder.
const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

/// A running watch; its drop ends the thread.
pub(crate) struct LocalWatch {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    stop: OwnedFd,
}

#[derive(Default)]
struct State {
    changes: HashSet<RelPath>,
    overflow: bool,
    /// The error that ended the watch.
    failure: Option<Error>,
    ended: bool,
    waker: Option<Waker>,
}

impl LocalWatch {
    /// Watches every folder of a tree; returns when all are watched. Blocks.
    pub(crate) fn start(tree: &Arc<Inner>) -> Result<Self> {
        let top = RelPath::root();
        let failed = |error: io::Error| limit_error(error, &top);
        let inotify = Instance::new().map_err(|error| failed(error.into()))?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| fault(Op::Watch, &top, error))?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            stop,
        });
        let mut watcher = Watcher {
            tree: Arc::clone(tree),
            inotify,
            paths: HashMap::new(),
            shared: Arc::clone(&shared),
        };
        watcher.add(&top, false)?;
        std::thread::Builder::new()
            .name("ropeway-watch".into())
            .spawn(move || {
                let failure = watcher.run().err();
                watcher.shared.end(failure);
            })
            .map_err(|error| fault(Op::Watch, &top, error))?;
        Ok(Self { shared })
    }
}

impl Watch for LocalWatch {
    fn next(&mut self) -> Pending<'_, Result<Vec<Change>>> {
        Box::pin(poll_fn(|context| {
            let mut state = self.shared.lock();
            if state.overflow {
                state.overflow = false;
                state.changes.clear();
                return Poll::Ready(Ok(vec![Change::Overflow]));
            }
            if !state.changes.is_empty() {
                let mut changes: Vec<_> = state.changes.drain().collect();
                changes.sort_unstable();
                return Poll::Ready(Ok(changes.into_iter().map(Change::Path).collect()));
            }
            if state.ended {
                let gone = || Error::new(Op::Watch, &RelPath::root(), ErrorKind::Gone);
                return Poll::Ready(Err(state.failure.take().unwrap_or_else(gone)));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        }))
    }
}

impl Drop for LocalWatch {
    fn drop(&mut self) {
        // The counter is fresh: it takes one event.
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn change(&self, path: RelPath) {
        let mut state = self.lock();
        if state.overflow {
            return;
        }
        state.changes.insert(path);
        if state.changes.len() > CHANGES_MAX {
            state.changes.clear();
            state.overflow = true;
        }
        wake(state);
    }

    fn overflow(&self) {
        let mut state = self.lock();
        state.overflow = true;
        state.changes.clear();
        wake(state);
    }

    fn end(&self, failure: Option<Error>) {
        let mut state = self.lock();
        state.ended = true;
        state.failure = failure;
        wake(state);
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The thread's side: which watch is which folder.
struct Watcher {
    tree: Arc<Inner>,
    inotify: Instance,
    paths: HashMap<WatchId, RelPath>,
    shared: Arc<Shared>,
}

impl Watcher {
    fn run(&mut self) -> Result<()> {
        let mut looked = Instant::now();
        loop {
            if self.wait()? {
                return Ok(());
            }
            // The kernel does not report a rename of a folder above, or a mount over the root.
            if looked.elapsed() >= ROOT_INTERVAL {
                self.is_in_place()?;
                looked = Instant::now();
            }
            let mut events = Vec::new();
            self.inotify
                .read(|event| events.push(event))
                .map_err(|error| fault(Op::Watch, &RelPath::root(), error))?;
            for event in &events {
                self.handle(event)?;
            }
        }
    }

    /// Waits for events, at most [`ROOT_INTERVAL`]; returns true when the watch is to end.
    fn wait(&self) -> Result<bool> {
        let mut fds = [
            PollFd::from_borrowed_fd(self.inotify.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.stop.as_fd(), PollFlags::IN),
        ];
        let failed = |error| fault(Op::Watch, &RelPath::root(), error);
        let span = Timespec {
            tv_sec: ROOT_INTERVAL.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&span))).map_err(failed)?;
        Ok(!fds[1].revents().is_empty())
    }

    /// Fails if the root was removed or its path leads to another folder. The tree is the folder that was
    /// opened; to continue with another one would copy from the wrong place.
    fn is_in_place(&self) -> Result<()> {
        let top = RelPath::root();
        let opened = fstat(self.tree.root.fd()).map_err(|error| fault(Op::Watch, &top, error))?;
        let is_there = match stat(&self.tree.path) {
            Ok(named) => (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino),
            // Other errors prove nothing, e.g. EACCES of a folder above.
            Err(error) => !matches!(error, Errno::NOENT | Errno::NOTDIR),
        };
        if opened.st_nlink > 0 && is_there {
            return Ok(());
        }
        let mut error = Error::new(Op::Watch, &top, ErrorKind::Gone);
        error.source = Some(io::Error::other(
            "the folder was removed, renamed or replaced by another",
        ));
        Err(error)
    }

    fn handle(&mut self, event: &Event) -> Result<()> {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            // New folders may have been missed too.
            self.add(&RelPath::root(), false)?;
            self.shared.overflow();
            return Ok(());
        }
        let Some(dir) = self.paths.get(&event.watch).cloned() else {
            return Ok(());
        };
        if event
            .flags
            .intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT | ReadFlags::DELETE_SELF)
        {
            self.paths.remove(&event.watch);
            if dir.is_root() {
                return Err(Error::new(Op::Watch, &dir, ErrorKind::Gone));
            }
            return Ok(());
        }
        if event.flags.contains(ReadFlags::MOVE_SELF) && dir.is_root() {
            return self.is_in_place();
        }
        let Some(name) = &event.name else {
            // The folder itself: its attributes.
            self.shared.change(dir);
            return Ok(());
        };
        let path = dir.join(name);
        if event.flags.contains(ReadFlags::ISDIR) {
            if event.flags.contains(ReadFlags::MOVED_FROM) {
                self.forget(&path);
            } else if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                self.add(&path, true)?;
            }
        }
        self.shared.change(path);
        Ok(())
    }

    /// Watches a folder and everything below it. `report`: reports what is found as changed.
    fn add(&mut self, top: &RelPath, report: bool) -> Result<()> {
        let mut waiting = vec![top.clone()];
        while let Some(path) = waiting.pop() {
            let fd = match self.tree.root.dir(Op::Watch, &path) {
                Ok(fd) => fd,
                Err(error) if is_passing(&error) && !path.is_root() => continue,
                Err(error) => return Err(error),
            };
            let watch = self
                .inotify
                .add(fd.as_fd(), MASK)
                .map_err(|error| limit_error(error.into(), &path))?;
            self.paths.insert(watch, path.clone());
            let listed = |error| fault(Op::Watch, &path, error);
            for entry in Dir::new(fd).map_err(listed)? {
                let entry = match entry {
                    Ok(entry) => entry,
                    // Removed meanwhile.
                    Err(Errno::NOENT) => break,
                    Err(error) => return Err(listed(error)),
                };
                let Some(name) = Name::new(entry.file_name().to_bytes()) else {
                    continue;
                };
                let child = path.join(&name);
                if report {
                    self.shared.change(child.clone());
                }
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    waiting.push(child);
                }
            }
        }
        Ok(())
    }

    /// Ends the watches of a folder that was moved away, and of everything below it.
    fn forget(&mut self, top: &RelPath) {
        let gone: Vec<_> = self
            .paths
            .extract_if(|_, path| path.strip_prefix(top).is_some())
            .map(|(watch, _)| watch)
            .collect();
        for watch in gone {
            self.inotify.remove(watch);
        }
    }
}

/// Whether the folder is gone, is no folder any more, or may not be read: there is nothing to watch.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::SymbolicLink
            | ErrorKind::PermissionDenied
    )
}

/// Names the limit that is reached: the errno alone says "no space left on device".
fn limit_error(error: io::Error, path: &RelPath) -> Error {
    let knob = match error.raw_os_error() {
        Some(libc::ENOSPC) => "max_user_watches",
        Some(libc::EMFILE) => "max_user_instances",
        _ => return fault(Op::Watch, path, error),
    };
    let value = std::fs::read_to_string(format!("/proc/sys/fs/inotify/{knob}")).unwrap_or_default();
    let message = format!(
        "the limit fs.inotify.{knob} = {} is reached; raise it with sysctl",
        value.trim()
    );
    let source = Some(io::Error::other(message));
    Error {
        op: Op::Watch,
        path: path.clone(),
        kind: ErrorKind::Exhausted,
        source,
    }
}
