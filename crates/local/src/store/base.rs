//! The store's root: opening beneath it, following links that stay there.
//!
//! One openat2(2) with `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS` resolves a whole path; the kernel refuses with EXDEV what
//! leads out, whatever is renamed or replaced meanwhile. Where that call is missing or forbidden, and for paths longer than
//! it takes, the path is walked component by component and no link is followed at all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use rustix::io::Errno;

use super::descriptors::Descriptors;
use crate::beneath::{fault, openat2_is_refused};

/// Longest path given to one openat2 call: PATH_MAX (4096) with its NUL.
const PATH_BYTES_MAX: usize = 4095;

/// Tries when a rename elsewhere made the kernel unsure of a path (EAGAIN of openat2); a guess.
const RACE_TRIES: usize = 16;

/// What must not happen on the way.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// A folder that only serves as a place for names.
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The open root folder.
pub(super) struct Base {
    fd: OwnedFd,
    has_openat2: AtomicBool,
    /// Who gives up descriptors where the process has no more.
    relief: OnceLock<Weak<Descriptors>>,
}

/// A folder as a place for names: the root's own descriptor, or one made for the purpose.
pub(super) enum Place<'a> {
    Root(BorrowedFd<'a>),
    Folder(OwnedFd),
}

impl AsFd for Place<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Place::Root(fd) => *fd,
            Place::Folder(fd) => fd.as_fd(),
        }
    }
}

impl Base {
    /// Opens the root; it may be reached through links.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            fd: openat(CWD, path, flags, Mode::empty())?,
            has_openat2: AtomicBool::new(true),
            relief: OnceLock::new(),
        })
    }

    /// From now on these are given up where the process has no more descriptors.
    pub(super) fn relieve_by(&self, descriptors: &Arc<Descriptors>) {
        // Set once, right after opening.
        let _ = self.relief.set(Arc::downgrade(descriptors));
    }

    /// Makes a call that needs a descriptor, again where idle ones had to be given up first.
    pub(super) fn relieved<T>(&self, call: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match call() {
            Err(Errno::MFILE | Errno::NFILE) if self.relieve() => call(),
            result => result,
        }
    }

    fn relieve(&self) -> bool {
        let descriptors = self.relief.get().and_then(Weak::upgrade);
        descriptors.is_some_and(|descriptors| descriptors.relieve())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// From now on walk component by component, as where openat2 is missing.
    #[cfg(test)]
    pub(super) fn forget_openat2(&self) {
        self.has_openat2.store(false, Ordering::Relaxed);
    }

    /// Opens a node. With `NOFOLLOW` among the flags its last component is not followed.
    pub(super) fn open_at(&self, path: &RelPath, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
        self.relieved(|| self.try_open_at(path, flags, mode))
    }

    fn try_open_at(&self, path: &RelPath, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
        let mut flags = flags | OFlags::CLOEXEC;
        // openat2 is strict about what goes with O_PATH.
        if !flags.contains(OFlags::PATH) {
            flags |= OFlags::NOCTTY;
        }
        let mode = Mode::from_raw_mode(mode);
        let mut racing = false;
        if self.has_openat2.load(Ordering::Relaxed) && path.as_bytes().len() <= PATH_BYTES_MAX {
            for _ in 0..RACE_TRIES {
                match openat2(&self.fd, path.as_path(), flags, mode, RESOLVE) {
                    Err(Errno::AGAIN | Errno::INTR) => racing = true,
                    // Old kernels, and sandboxes that refuse calls they do not know.
                    Err(Errno::NOSYS | Errno::PERM) if self.refuses_openat2() => break,
                    result => return result,
                }
            }
        }
        match self.walk(path, flags, mode) {
            // Links would have been followed.
            Err(Errno::LOOP) if racing => Err(Errno::AGAIN),
            result => result,
        }
    }

    /// Opens a folder as a place for names.
    pub(super) fn place(&self, dir: &RelPath) -> rustix::io::Result<Place<'_>> {
        if dir.is_root() {
            return Ok(Place::Root(self.fd.as_fd()));
        }
        self.open_at(dir, PLACE, 0).map(Place::Folder)
    }

    /// The folder that holds `path`, and its name there. The root itself has none.
    pub(super) fn parent(&self, op: Op, path: &RelPath) -> Result<(Place<'_>, Name)> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(op, path, ErrorKind::PermissionDenied));
        };
        let place = self.place(&dir).map_err(|error| open_fault(op, path, error))?;
        Ok((place, name))
    }

    fn refuses_openat2(&self) -> bool {
        let refused = openat2_is_refused(&self.fd, RESOLVE);
        if refused {
            self.has_openat2.store(false, Ordering::Relaxed);
        }
        refused
    }

    fn walk(&self, path: &RelPath, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW;
        let (Some(dir), Some(last)) = (path.parent(), path.file_name()) else {
            return openat(&self.fd, c".", flags, mode);
        };
        let mut place: Option<OwnedFd> = None;
        for name in dir.components() {
            let from = place.as_ref().map_or(self.fd(), AsFd::as_fd);
            let next = openat(from, name.as_bytes(), PLACE | OFlags::NOFOLLOW, Mode::empty());
            place = Some(next.map_err(|error| tell_links(from, &name, error))?);
        }
        let from = place.as_ref().map_or(self.fd(), AsFd::as_fd);
        openat(from, last.as_bytes(), flags, mode).map_err(|error| tell_links(from, &last, error))
    }
}

/// A link in a folder's place is ENOTDIR with `O_PATH`, what ELOOP says better.
fn tell_links(dir: BorrowedFd<'_>, name: &Name, error: Errno) -> Errno {
    let is_link = || {
        statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    if error == Errno::NOTDIR && is_link() {
        Errno::LOOP
    } else {
        error
    }
}

/// An error of opening beneath the root: EXDEV means that a link leads out, ENXIO is the answer of a socket or device.
pub(super) fn open_fault(op: Op, path: &RelPath, error: Errno) -> Error {
    let kind = match error {
        Errno::XDEV => ErrorKind::SymbolicLink,
        Errno::NXIO | Errno::NODEV => ErrorKind::PermissionDenied,
        // O_NONBLOCK against a lease that a local program holds (fcntl(2)), and a program being executed.
        Errno::AGAIN | Errno::TXTBSY => ErrorKind::Busy,
        error => return failed(op, path, error),
    };
    Error {
        op,
        path: path.clone(),
        kind,
        source: Some(error.into()),
    }
}

/// An error of an operation on an open node. EBADF is the answer of a descriptor that was not opened for it.
pub(super) fn failed(op: Op, path: &RelPath, error: Errno) -> Error {
    let error_kind = match error {
        Errno::BADF => ErrorKind::PermissionDenied,
        // What no extended attribute of any volume can hold, and what this volume's cannot.
        Errno::TOOBIG => ErrorKind::NoSpace,
        error => return fault(op, path, error),
    };
    Error {
        op,
        path: path.clone(),
        kind: error_kind,
        source: Some(error.into()),
    }
}
