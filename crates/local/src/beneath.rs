//! Paths beneath the root: no link is ever followed, nothing leads out.
//!
//! One openat2(2) with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS` resolves a whole path. Where that call
//! is missing or forbidden, and for paths longer than the kernel takes, the path is walked component by
//! component with `O_NOFOLLOW`; the guarantees are the same.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Longest path given to one openat2 call: PATH_MAX (4096) with its NUL.
const PATH_BYTES_MAX: usize = 4095;

/// Tries when a rename elsewhere made the kernel unsure of a path (EAGAIN of openat2); a guess.
const RACE_TRIES: usize = 16;

/// What must not happen on the way; also implies no magic links.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// The open root folder of a tree.
pub(crate) struct Root {
    fd: Arc<OwnedFd>,
    has_openat2: AtomicBool,
}

impl Root {
    /// Opens the root; it may be reached through links.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty())?;
        Ok(Self {
            fd: Arc::new(fd),
            has_openat2: AtomicBool::new(true),
        })
    }

    /// The root's descriptor, open for reading since the tree was opened (write-back errors are seen by it).
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// From now on walk component by component, as where openat2 is missing.
    #[cfg(test)]
    pub(crate) fn forget_openat2(&self) {
        self.has_openat2.store(false, Ordering::Relaxed);
    }

    /// Opens a node beneath the root. The last component is not followed either.
    pub(crate) fn open_at(&self, path: &RelPath, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        if self.has_openat2.load(Ordering::Relaxed) && path.as_bytes().len() <= PATH_BYTES_MAX {
            for _ in 0..RACE_TRIES {
                match openat2(&self.fd, path.as_path(), flags, mode, RESOLVE) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    // Old kernels, and sandboxes that refuse calls they do not know.
                    Err(Errno::NOSYS | Errno::PERM) if self.refuses_openat2() => break,
                    result => return result,
                }
            }
        }
        self.walk(path, flags, mode)
    }

    /// Opens a node itself (a link, device or FIFO is not touched) for examination and the `*at` calls.
    pub(crate) fn node(&self, op: Op, path: &RelPath) -> Result<OwnedFd> {
        self.open_at(path, OFlags::PATH, 0)
            .map_err(|error| fault(op, path, error))
    }

    /// Opens a folder for listing or flushing.
    pub(crate) fn dir(&self, op: Op, path: &RelPath) -> Result<OwnedFd> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)
            .map_err(|error| fault(op, path, error))
    }

    /// Opens a folder as a place for names.
    pub(crate) fn place(&self, op: Op, dir: &RelPath) -> Result<Arc<OwnedFd>> {
        if dir.is_root() {
            return Ok(Arc::clone(&self.fd));
        }
        self.open_at(dir, OFlags::PATH | OFlags::DIRECTORY, 0)
            .map(Arc::new)
            .map_err(|error| fault(op, dir, error))
    }

    /// The folder that holds `path`, and its name there. The root itself has none.
    pub(crate) fn parent(&self, op: Op, path: &RelPath) -> Result<(Arc<OwnedFd>, Name)> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(op, path, ErrorKind::Misuse));
        };
        let place = self.place(op, &dir).map_err(|error| Error {
            path: path.clone(),
            ..error
        })?;
        Ok((place, name))
    }

    fn refuses_openat2(&self) -> bool {
        let refused = openat2_is_refused(&*self.fd, RESOLVE);
        if refused {
            self.has_openat2.store(false, Ordering::Relaxed);
        }
        refused
    }

    fn walk(&self, path: &RelPath, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let Some(last) = path.file_name() else {
            return openat(&self.fd, c".", flags, mode);
        };
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut place = Arc::clone(&self.fd);
        if let Some(dir) = path.parent() {
            for name in dir.components() {
                place = Arc::new(openat(&place, name.as_bytes(), step, Mode::empty())?);
            }
        }
        openat(&place, last.as_bytes(), flags, mode)
    }
}

/// Whether openat2 is refused for a root itself, which tells a missing call from a forbidden node.
pub(crate) fn openat2_is_refused(root: impl AsFd, resolve: ResolveFlags) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    matches!(
        openat2(root, c".", flags, Mode::empty(), resolve),
        Err(Errno::NOSYS | Errno::PERM)
    )
}

/// An error of an operation on a node, from the system's errno.
pub(crate) fn fault(op: Op, path: &RelPath, error: impl Into<io::Error>) -> Error {
    Error::from_io(op, path, error.into())
}

/// An error of opening a regular file. ENXIO is the answer of a socket or of a device without driver in its place; as an
/// errno it would read as "the volume is gone".
pub(crate) fn open_fault(op: Op, path: &RelPath, error: Errno) -> Error {
    if error == Errno::NXIO {
        not_regular(op, path)
    } else {
        fault(op, path, error)
    }
}

/// Something other than a regular file stands there.
pub(crate) fn not_regular(op: Op, path: &RelPath) -> Error {
    let source = Some(io::Error::other("not a regular file"));
    Error {
        op,
        path: path.clone(),
        kind: ErrorKind::Unsupported,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn links_are_refused_in_every_component_by_both_ways() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("dir")).unwrap();
        std::fs::write(base.path().join("dir/file"), "x").unwrap();
        std::os::unix::fs::symlink("dir", base.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", base.path().join("out")).unwrap();
        let root = Root::open(base.path()).unwrap();
        for walking in [false, true] {
            if walking {
                root.forget_openat2();
            }
            assert!(root.open_at(&path("dir/file"), OFlags::RDONLY, 0).is_ok());
            assert!(root.open_at(&path("link/file"), OFlags::RDONLY, 0).is_err());
            assert!(
                root.open_at(&path("link"), OFlags::RDONLY | OFlags::DIRECTORY, 0)
                    .is_err()
            );
            assert_eq!(
                root.open_at(&path("out"), OFlags::RDONLY, 0).unwrap_err(),
                Errno::LOOP
            );
            assert!(root.node(Op::Stat, &path("out")).is_ok());
            assert!(root.node(Op::Stat, &RelPath::root()).is_ok());
        }
    }

    #[test]
    fn paths_longer_than_the_kernel_takes_are_walked() {
        let base = tempfile::tempdir().unwrap();
        let root = Root::open(base.path()).unwrap();
        let name = Name::new(&[b'd'; 250]).unwrap();
        let mut deep = RelPath::root();
        let mut place = Arc::clone(root.fd());
        for _ in 0..20 {
            rustix::fs::mkdirat(&place, name.as_bytes(), Mode::RWXU).unwrap();
            deep = deep.join(&name);
            place = root.place(Op::Open, &deep).unwrap();
        }
        assert!(deep.as_bytes().len() > 4096);
        assert!(root.dir(Op::List, &deep).is_ok());
    }
}
