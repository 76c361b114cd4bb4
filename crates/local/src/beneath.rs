//! Opening beneath a root folder: nothing leads out of it.
//!
//! One openat2(2) with `RESOLVE_BENEATH` resolves a whole path. [`Links`] says whether symbolic links on the way are
//! refused (`RESOLVE_NO_SYMLINKS`) or followed as far as they stay beneath the root; the kernel refuses the others with
//! `EXDEV`, whatever is renamed or replaced meanwhile. Where openat2 is missing or forbidden, and for paths longer than
//! it takes, the path is walked component by component with `O_NOFOLLOW`: then no link is followed at all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use rustix::io::Errno;

/// Longest path given to one openat2 call: PATH_MAX (4096) with its NUL.
const PATH_BYTES_MAX: usize = 4095;

/// Tries when a rename elsewhere made the kernel unsure of a path (EAGAIN of openat2); a guess.
const RACE_TRIES: usize = 16;

/// Flags of a folder that only holds names.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What happens to symbolic links on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// They are refused, in every component.
    Refused,
    /// They are followed as far as they stay beneath the root. The last one is not with `O_NOFOLLOW`.
    Followed,
}

impl Links {
    fn resolve(self) -> ResolveFlags {
        match self {
            // Implies no magic links.
            Self::Refused => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Self::Followed => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        }
    }
}

/// An open root folder.
pub(crate) struct Root {
    fd: Arc<OwnedFd>,
    links: Links,
    has_openat2: AtomicBool,
}

impl Root {
    /// Opens the root; it may itself be reached through links.
    pub(crate) fn open(path: &Path, links: Links) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty())?;
        Ok(Self {
            fd: Arc::new(fd),
            links,
            has_openat2: AtomicBool::new(true),
        })
    }

    /// Opens a folder beneath this root as a root of its own.
    pub(crate) fn below(&self, path: &RelPath, links: Links) -> Result<Self> {
        Ok(Self {
            fd: Arc::new(self.dir(Op::Open, path)?),
            links,
            has_openat2: AtomicBool::new(self.has_openat2.load(Ordering::Relaxed)),
        })
    }

    /// The root's descriptor. It is open for reading from the start, so that it reports write-back errors.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Walks paths component by component from now on, as where openat2 is missing.
    #[cfg(test)]
    pub(crate) fn forget_openat2(&self) {
        self.has_openat2.store(false, Ordering::Relaxed);
    }

    /// Opens a node beneath the root; `mode` is that of a new one.
    pub(crate) fn open_at(&self, path: &RelPath, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
        let mut flags = flags | OFlags::CLOEXEC;
        if self.links == Links::Refused {
            flags |= OFlags::NOFOLLOW;
        }
        // openat2 is strict about what goes with O_PATH.
        if !flags.contains(OFlags::PATH) {
            flags |= OFlags::NOCTTY;
        }
        let mode = Mode::from_raw_mode(mode);
        let resolve = self.links.resolve();
        let mut is_racing = false;
        if self.has_openat2.load(Ordering::Relaxed) && path.as_bytes().len() <= PATH_BYTES_MAX {
            for _ in 0..RACE_TRIES {
                match openat2(&self.fd, path.as_path(), flags, mode, resolve) {
                    Err(Errno::AGAIN | Errno::INTR) => is_racing = true,
                    // Old kernels, and sandboxes that refuse calls they do not know.
                    Err(Errno::NOSYS | Errno::PERM) if self.refuses_openat2() => break,
                    result => return result,
                }
            }
        }
        match self.walk(path, flags, mode) {
            // openat2 would have followed links.
            Err(Errno::LOOP) if is_racing && self.links == Links::Followed => Err(Errno::AGAIN),
            result => result,
        }
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

    /// Whether openat2 is refused for the root itself, which tells a missing call from a forbidden node.
    fn refuses_openat2(&self) -> bool {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let refused = matches!(
            openat2(&self.fd, c".", flags, Mode::empty(), self.links.resolve()),
            Err(Errno::NOSYS | Errno::PERM)
        );
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
        let mut folder: Option<OwnedFd> = None;
        for name in dir.components() {
            let from = folder.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            let next = openat(from, name.as_bytes(), FOLDER | OFlags::NOFOLLOW, Mode::empty());
            folder = Some(next.map_err(|error| loop_of_link(from, &name, error))?);
        }
        let from = folder.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
        openat(from, last.as_bytes(), flags, mode).map_err(|error| loop_of_link(from, &last, error))
    }
}

/// With `O_PATH`, a link where a folder is wanted gives ENOTDIR; openat2 says ELOOP.
fn loop_of_link(dir: BorrowedFd<'_>, name: &Name, error: Errno) -> Errno {
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
        let root = Root::open(base.path(), Links::Refused).unwrap();
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
        let root = Root::open(base.path(), Links::Refused).unwrap();
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
