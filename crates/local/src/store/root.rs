//! The store's root: opening beneath it as [`Root`] does, following links that stay there. When the process has no
//! more descriptors, idle ones of the store are closed and the call is repeated.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::descriptors::Descriptors;
use crate::beneath::{Links, Root, fault};

/// Flags of a folder that only holds names.
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The open root folder of a store.
pub(super) struct StoreRoot {
    root: Root,
    /// Closes idle descriptors.
    relief: OnceLock<Weak<Descriptors>>,
}

/// A folder that holds names: the root's own descriptor or another one.
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

impl StoreRoot {
    /// Opens the root; it may itself be reached through links.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            root: Root::open(path, Links::Followed)?,
            relief: OnceLock::new(),
        })
    }

    /// Takes a root that is open.
    pub(super) fn of(root: Root) -> Self {
        Self {
            root,
            relief: OnceLock::new(),
        }
    }

    /// Names the descriptors to close when the process has no more.
    pub(super) fn relieve_by(&self, descriptors: &Arc<Descriptors>) {
        // Set once, right after opening.
        let _ = self.relief.set(Arc::downgrade(descriptors));
    }

    /// Makes a call that needs a descriptor; repeats it if idle ones had to be closed first.
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
        self.root.fd().as_fd()
    }

    /// Walks paths component by component from now on, as where openat2 is missing.
    #[cfg(test)]
    pub(super) fn forget_openat2(&self) {
        self.root.forget_openat2();
    }

    /// Opens a node. With `NOFOLLOW` among the flags its last component is not followed.
    pub(super) fn open_at(&self, path: &RelPath, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
        self.relieved(|| self.root.open_at(path, flags, mode))
    }

    /// Opens a folder as a place for names.
    pub(super) fn place(&self, dir: &RelPath) -> rustix::io::Result<Place<'_>> {
        if dir.is_root() {
            return Ok(Place::Root(self.fd()));
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
