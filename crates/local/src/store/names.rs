//! Removes, renames and links names, each by the descriptor of its folder, opened beneath the root.

use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, accessat, linkat, renameat,
    statat, statx, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::Core;
use super::root::{Place, failed};
use crate::names::rename_new;
use crate::winmeta::fold;

/// Number of tries when a name appears or disappears meanwhile (a guess).
const RACE_TRIES: usize = 8;

/// Serial number of temporary names.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// A name in an open folder.
pub(super) struct Spot<'a> {
    pub(super) place: Place<'a>,
    pub(super) name: Name,
}

impl<'a> Spot<'a> {
    pub(super) fn find(core: &'a Core, op: Op, path: &RelPath) -> Result<Self> {
        let (place, name) = core.root.parent(op, path)?;
        Ok(Self { place, name })
    }

    pub(super) fn stat(&self) -> rustix::io::Result<Stat> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statat(&self.place, self.name.as_bytes(), flags)
    }
}

/// Removes a name; open nodes stay usable.
pub(super) fn remove(core: &Core, path: &RelPath, directory: bool) -> Result<()> {
    let spot = Spot::find(core, Op::Remove, path)?;
    let flags = if directory {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    let pinned = core.descriptors.pin(path);
    match unlinkat(&spot.place, spot.name.as_bytes(), flags) {
        Ok(()) => {
            core.descriptors.forget_path(path, pinned);
            Ok(())
        }
        Err(error) => {
            pinned.release();
            Err(match error {
                // POSIX allows it for a folder that is not empty.
                Errno::EXIST if directory => Error::new(Op::Remove, path, ErrorKind::NotEmpty),
                error => failed(Op::Remove, path, error),
            })
        }
    }
}

/// Checks whether this process may remove a name: permissions of the folder (path_resolution(7)), sticky bit
/// (inode(7)), attributes of folder and node (ioctl_iflags(2)).
pub(super) fn check_remove(core: &Core, path: &RelPath) -> Result<()> {
    let refused = |error| failed(Op::Remove, path, error);
    let spot = Spot::find(core, Op::Remove, path)?;
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(&spot.place, c".", access, AtFlags::EACCESS).map_err(refused)?;
    let mask = StatxFlags::MODE | StatxFlags::UID;
    let folder = statx(&spot.place, c"", AtFlags::EMPTY_PATH, mask).map_err(refused)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let node = match statx(&spot.place, spot.name.as_bytes(), flags, mask) {
        // Removed by another program: there is nothing to refuse.
        Err(Errno::NOENT) => return Ok(()),
        node => node.map_err(refused)?,
    };
    let user = rustix::process::geteuid().as_raw();
    let is_sticky = u32::from(folder.stx_mode) & Mode::SVTX.bits() != 0;
    let is_others = user != 0 && user != folder.stx_uid && user != node.stx_uid;
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    let is_fixed = (folder.stx_attributes | node.stx_attributes).intersects(fixed);
    match (is_sticky && is_others) || is_fixed {
        true => Err(refused(Errno::PERM)),
        false => Ok(()),
    }
}

/// Renames; replaces an existing file if `replace`.
pub(super) fn rename(core: &Core, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
    let source = Spot::find(core, Op::Rename, from)?;
    let target = Spot::find(core, Op::Rename, to)?;
    if from == to {
        return match source.stat() {
            Ok(_) => Ok(()),
            Err(error) => Err(failed(Op::Rename, from, error)),
        };
    }
    for _ in 0..RACE_TRIES {
        // Opens by path wait until the recorded paths are right again.
        let renaming = core.descriptors.renaming();
        match rename_spot(&source, &target) {
            Ok(()) => {
                core.descriptors.renamed(from, to);
                core.watcher.renamed(from, to);
                return Ok(());
            }
            Err(Errno::EXIST) => {}
            // EINVAL: a folder moved into itself; otherwise the volume cannot have such names.
            Err(Errno::INVAL) if to.strip_prefix(from).is_some() => {
                return Err(Error::new(Op::Rename, to, ErrorKind::PermissionDenied));
            }
            Err(Errno::INVAL) => return Err(Error::new(Op::Rename, to, ErrorKind::NameRefused)),
            Err(error) => return Err(failed(Op::Rename, blamed(from, to, error), error)),
        }
        drop(renaming);
        match rename_taken(core, (from, &source), (to, &target), replace)? {
            Outcome::Done => return Ok(()),
            Outcome::Again => {}
        }
    }
    Err(Error::new(Op::Rename, to, ErrorKind::Busy))
}

/// Makes another name for a file; replaces an existing file if `replace`.
pub(super) fn link(core: &Core, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
    let source = Spot::find(core, Op::Link, from)?;
    let target = Spot::find(core, Op::Link, to)?;
    let fault = |error| {
        let is_folder = || source.stat().is_ok_and(|stat| is_folder(&stat));
        match error {
            Errno::PERM if is_folder() => Error::new(Op::Link, from, ErrorKind::IsADirectory),
            error => failed(Op::Link, blamed(from, to, error), error),
        }
    };
    // Without AT_SYMLINK_FOLLOW a link is linked itself and not followed.
    let (folder, old) = (&source.place, source.name.as_bytes());
    let make = |name: &[u8]| linkat(folder, old, &target.place, name, AtFlags::empty());
    put_link(core, &target, to, replace, make, fault)
}

/// Makes a name by calling `make` with the name to make in the target's folder.
pub(super) fn put_link(
    core: &Core,
    target: &Spot<'_>,
    to: &RelPath,
    replace: bool,
    make: impl Fn(&[u8]) -> rustix::io::Result<()>,
    fault: impl Fn(Errno) -> Error,
) -> Result<()> {
    match make(target.name.as_bytes()) {
        Err(Errno::EXIST) if replace => {}
        result => return result.map_err(&fault),
    }
    if target.stat().is_ok_and(|stat| is_folder(&stat)) {
        return Err(Error::new(Op::Link, to, ErrorKind::IsADirectory));
    }
    // Under a temporary name first, so that the name means one of the two files at every moment.
    let temporary = temporary_name();
    make(temporary.as_bytes()).map_err(&fault)?;
    let pinned = core.descriptors.pin(to);
    let result = renameat(
        &target.place,
        temporary.as_bytes(),
        &target.place,
        target.name.as_bytes(),
    );
    // Still there if both names were the same file already: then a rename does nothing (rename(2)).
    let left = unlinkat(&target.place, temporary.as_bytes(), AtFlags::empty()).is_ok();
    match result {
        Ok(()) if !left => {
            core.descriptors.forget_path(to, pinned);
            Ok(())
        }
        result => {
            pinned.release();
            result.map_err(fault)
        }
    }
}

/// Returns a new temporary name.
pub(super) fn temporary_name() -> String {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    format!(".ropeway-{}-{serial}", std::process::id())
}

/// Makes a symbolic link.
pub(super) fn symlink(core: &Core, path: &RelPath, target: &[u8]) -> Result<()> {
    let spot = Spot::find(core, Op::Link, path)?;
    symlinkat(target, &spot.place, spot.name.as_bytes()).map_err(|error| failed(Op::Link, path, error))
}

enum Outcome {
    Done,
    Again,
}

/// Renames if the name is free.
fn rename_spot(source: &Spot<'_>, target: &Spot<'_>) -> rustix::io::Result<()> {
    let (old, new) = (source.name.as_bytes(), target.name.as_bytes());
    rename_new(&source.place, old, &target.place, new)
}

/// Renames to a name that is taken.
fn rename_taken(
    core: &Core,
    (from, source): (&RelPath, &Spot<'_>),
    (to, target): (&RelPath, &Spot<'_>),
    replace: bool,
) -> Result<Outcome> {
    let before = source.stat().map_err(|error| failed(Op::Rename, from, error))?;
    let taken = match target.stat() {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Outcome::Again),
        Err(error) => return Err(failed(Op::Rename, to, error)),
    };
    let same = (before.st_dev, before.st_ino) == (taken.st_dev, taken.st_ino);
    let case_only =
        from.parent() == to.parent() && fold::equal(source.name.as_bytes(), target.name.as_bytes());
    // A case-insensitive volume finds the node itself under its new name.
    let itself = same && case_only && (is_folder(&before) || before.st_nlink == 1);
    if !itself {
        let refused = |kind| Err(Error::new(Op::Rename, to, kind));
        if !replace {
            return refused(ErrorKind::AlreadyExists);
        }
        if is_folder(&taken) {
            return refused(ErrorKind::IsADirectory);
        }
        if is_folder(&before) {
            return refused(ErrorKind::AlreadyExists);
        }
    }
    let pinned = if itself {
        None
    } else {
        Some(core.descriptors.pin(to))
    };
    // The rename may remove the last name of the replaced file. Holding it open makes the volume free its
    // blocks at the close below, not while opens wait.
    let last = core.root.open_at(to, OFlags::PATH | OFlags::NOFOLLOW, 0);
    let renaming = core.descriptors.renaming();
    let (old, new) = (source.name.as_bytes(), target.name.as_bytes());
    // The source is a file, so this never replaces a folder.
    let mut result = renameat(&source.place, old, &target.place, new);
    if result.is_ok() && same && !case_only {
        // Two names of one file: a rename does nothing (rename(2)).
        result = unlinkat(&source.place, old, AtFlags::empty());
    }
    match result {
        Ok(()) => {
            if let Some(pinned) = pinned {
                core.descriptors.forget_path(to, pinned);
            }
            core.descriptors.renamed(from, to);
            core.watcher.renamed(from, to);
            drop(renaming);
            drop(last);
            Ok(Outcome::Done)
        }
        Err(error) => {
            if let Some(pinned) = pinned {
                pinned.release();
            }
            Err(failed(Op::Rename, blamed(from, to, error), error))
        }
    }
}

/// Returns the name that an error is about: the old one if it is missing, else the new one.
fn blamed<'a>(from: &'a RelPath, to: &'a RelPath, error: Errno) -> &'a RelPath {
    if error == Errno::NOENT { from } else { to }
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}
