//! Claims of local folders: a lock on a file, visible to other processes and over NFS, that ends with
//! its holder.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ropeway_vfs::{Claim, ClaimAbove, ClaimKind, Error, ErrorKind, Kind, Name, Op, Pending, RelPath, Result};
use rustix::fs::{Mode, OFlags, StatxFlags, fstat, openat};
use rustix::io::Errno;

use crate::beneath::fault;
use crate::executor::{self, Lane};
use crate::tree::Inner;
use crate::{names, stat, sys};

/// Number of tries to lock the named file when it is removed and made again meanwhile (a guess).
const TRIES: usize = 16;

/// Number of folders examined above a tree's root; no sensible path is deeper.
const ABOVE_MAX: usize = 256;

/// A claim that is held.
pub(crate) struct LocalClaim {
    tree: Arc<Inner>,
    file: Arc<std::fs::File>,
    path: RelPath,
}

/// Opens and locks a claim.
pub(crate) fn take(tree: &Arc<Inner>, path: &RelPath, create: bool) -> Result<LocalClaim> {
    let failed = |error: Errno| fault(Op::Open, path, error);
    let busy = || Error::new(Op::Open, path, ErrorKind::Busy);
    for _ in 0..TRIES {
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let mut is_made = false;
        let fd = match tree.root.open_at(path, flags, 0) {
            Err(Errno::NOENT) if create => {
                is_made = true;
                tree.root
                    .open_at(path, flags | OFlags::CREATE | OFlags::EXCL, 0o600)
            }
            opened => opened,
        };
        let fd = match fd {
            Err(Errno::EXIST) => continue,
            fd => fd.map_err(failed)?,
        };
        if create && !is_made && !is_private(&fd) {
            // Another user made the file and could read what this job writes into it.
            names::remove(&tree.root, path, false)?;
            continue;
        }
        check(&fd, path)?;
        match sys::try_lock(fd.as_fd()) {
            Ok(true) => {}
            Ok(false) => return Err(busy()),
            Err(error) => {
                let mut unsupported = Error::new(Op::Open, path, ErrorKind::Unsupported);
                unsupported.source = Some(error);
                return Err(unsupported);
            }
        }
        // The previous holder may have removed the file: then the lock protects nothing.
        let node = tree.root.open_at(path, OFlags::PATH, 0);
        let (Ok(node), Ok(own)) = (node, fstat(&fd)) else {
            continue;
        };
        if fstat(&node).is_ok_and(|found| (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)) {
            return Ok(LocalClaim {
                tree: Arc::clone(tree),
                file: Arc::new(fd.into()),
                path: path.clone(),
            });
        }
    }
    Err(busy())
}

/// Whether a claim belongs to this user and no other user may open it.
fn is_private(fd: &OwnedFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fstat(fd).is_ok_and(|found| found.st_uid == own && found.st_mode & 0o077 == 0)
}

/// Accepts only a regular file with one name that belongs to this user: another user's file may
/// contain anything.
fn check(fd: &OwnedFd, path: &RelPath) -> Result<()> {
    let found = fstat(fd).map_err(|error| fault(Op::Open, path, error))?;
    let own = rustix::process::geteuid().as_raw();
    let is_plain = stat::kind(found.st_mode) == Kind::File && found.st_nlink == 1;
    if is_plain && (found.st_uid == own || own == 0) {
        return Ok(());
    }
    Err(Error::new(Op::Open, path, ErrorKind::PermissionDenied))
}

/// Looks for a claim in the folders above the root, up to the mount point.
pub(crate) fn above(tree: &Inner, name: &Name) -> ClaimAbove {
    let identity = |fd: &OwnedFd| {
        let found = stat::raw(fd, StatxFlags::INO | StatxFlags::MNT_ID).ok()?;
        Some((found.stx_mnt_id, found.stx_ino))
    };
    let step = |fd: &OwnedFd| {
        openat(
            fd,
            c"..",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
    };
    let Ok(mut at) = step(tree.root.fd()) else {
        return ClaimAbove::Unknown;
    };
    let mut below = identity(tree.root.fd());
    let mut found = ClaimAbove::Absent;
    for _ in 0..ABOVE_MAX {
        let here = identity(&at);
        if here.is_none() || here == below || here.map(|(mount, _)| mount) != below.map(|(mount, _)| mount) {
            return found;
        }
        match held(&at, name) {
            ClaimAbove::Held => return ClaimAbove::Held,
            ClaimAbove::Absent => {}
            other => found = other,
        }
        below = here;
        at = match step(&at) {
            Ok(next) => next,
            Err(_) => return found,
        };
    }
    found
}

fn held(dir: &OwnedFd, name: &Name) -> ClaimAbove {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(dir, name.as_bytes(), flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return ClaimAbove::Absent,
        Err(_) => return ClaimAbove::Unknown,
    };
    match sys::try_lock(file.as_fd()) {
        Ok(true) => ClaimAbove::Abandoned,
        Ok(false) => ClaimAbove::Held,
        Err(_) => ClaimAbove::Unknown,
    }
}

impl Claim for LocalClaim {
    fn kind(&self) -> ClaimKind {
        ClaimKind::Local
    }

    fn read(&self, max: usize) -> Pending<'_, Result<Vec<u8>>> {
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        Box::pin(executor::run(Lane::Short, move || {
            let failed = |error| fault(Op::Read, &path, error);
            let length = file.metadata().map_err(failed)?.len();
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(max).min(max)];
            file.read_exact_at(&mut bytes, 0).map_err(failed)?;
            Ok(bytes)
        }))
    }

    fn append<'a>(&'a self, text: &'a [u8]) -> Pending<'a, Result<()>> {
        let (file, path, text) = (Arc::clone(&self.file), self.path.clone(), text.to_vec());
        Box::pin(executor::run(Lane::Short, move || {
            let failed = |error| fault(Op::Write, &path, error);
            let end = file.metadata().map_err(failed)?.len();
            file.write_all_at(&text, end).map_err(failed)
        }))
    }

    fn remove(self: Box<Self>) -> Pending<'static, Result<()>> {
        Box::pin(executor::run(Lane::Short, move || {
            names::remove(&self.tree.root, &self.path, false)
        }))
    }
}

/// Returns the names in a folder that begin with `prefix`.
pub(crate) fn names_with_prefix(tree: &Inner, dir: &RelPath, prefix: &[u8]) -> Result<Vec<Name>> {
    let failed = |error| fault(Op::List, dir, error);
    let fd = tree.root.dir(Op::List, dir)?;
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut entries = rustix::fs::RawDir::new(fd, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(prefix) {
            found.extend(Name::new(name));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;
    use crate::{LocalOptions, LocalTree};
    use ropeway_vfs::Tree;

    #[test]
    fn a_claim_is_seen_from_below_and_outlives_its_holder() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("sub")).unwrap();
        let tree = |path: &std::path::Path| LocalTree::open(path, LocalOptions::default()).unwrap();
        let (above, below) = (tree(base.path()), tree(&base.path().join("sub")));
        let name = Name::new(b"claim").unwrap();
        let path = RelPath::root().join(&name);
        let state = || block_on(below.claim_above(&name)).unwrap();
        assert_eq!(state(), ClaimAbove::Absent);
        let missing = block_on(above.claim(&path, false)).err().unwrap();
        assert_eq!(missing.kind, ErrorKind::NotFound);
        let claim = block_on(above.claim(&path, true)).unwrap();
        block_on(claim.append(b"told")).unwrap();
        let busy = block_on(tree(base.path()).claim(&path, true)).err().unwrap();
        assert_eq!((busy.kind, state()), (ErrorKind::Busy, ClaimAbove::Held));
        drop(claim);
        assert_eq!(state(), ClaimAbove::Abandoned);
        let again = block_on(above.claim(&path, false)).unwrap();
        assert_eq!(block_on(again.read(100)).unwrap(), b"told");
        block_on(again.remove()).unwrap();
        assert_eq!(state(), ClaimAbove::Absent);
        std::os::unix::fs::symlink("sub", base.path().join("claim")).unwrap();
        assert!(block_on(above.claim(&path, true)).is_err(), "a link is no claim");
    }
}
