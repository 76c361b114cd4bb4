//! What a mounted file system asks of a local folder besides: nodes of every kind with mode and owner,
//! rename(2) with its flags, extended attributes by full name.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_vfs::posix::{NewKind, NewPosix, Permissions, RenameMode, XattrSet};
use ropeway_vfs::store::{Access, NodeStat, Opened};
use ropeway_vfs::{Error, ErrorKind, Kind, Op, Owner, RelPath, Result, STREAM_XATTR_PREFIX};
use rustix::fs::{
    AtFlags, CWD, Dev, FileType, Gid, Mode, OFlags, RenameFlags, Statx, StatxFlags, Uid, XattrFlags, chmodat,
    chownat, fchmod, makedev, mkdirat, mknodat, openat, renameat, renameat_with, statx, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::Core;
use super::names::Spot;
use super::node::LocalNode;
use super::open::{Found, MASK, opened};
use super::root::{failed, open_fault};
use super::xattrs::{Target, node_stat, value_fault};
use crate::winmeta::dos::{self, Dos};
use crate::xattr::{self, proc_path};
use crate::{stat, winmeta};

/// Permission bits that mean the same for every owner; the others follow once the owner is set.
const PLAIN: u32 = 0o777;

/// Set-group-id bit of a folder's mode: new nodes get its group (inode(7)).
const SET_GROUP: u32 = 0o2000;

/// Where new nodes inherit permissions from (acl(5)).
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Path that no node has, for an exchange of recorded paths.
const BETWEEN: &[u8] = b"\xff/ropeway-exchange\xff";

/// Returns the attributes of a node of any kind.
pub(super) fn look(core: &Core, path: &RelPath) -> Result<NodeStat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let fd = core
        .root
        .open_at(path, flags, 0)
        .map_err(|error| open_fault(Op::Stat, path, error))?;
    let stat = stat::raw(&fd, MASK).map_err(|error| failed(Op::Stat, path, error))?;
    let kind = stat::kind(u32::from(stat.stx_mode));
    let dos = match kind {
        Kind::File | Kind::Directory if core.features.windows_metadata => {
            dos::of_path(fd.as_fd()).map_err(|error| failed(Op::Stat, path, error))?
        }
        _ => Dos::default(),
    };
    Ok(core.change_times.apply(node_stat(&stat, dos)))
}

/// Makes a node.
pub(super) fn make(core: &Arc<Core>, path: &RelPath, new: &NewPosix<'_>) -> Result<Opened> {
    // The path must not change until the node is entered.
    let _opening = core.descriptors.opening();
    let spot = Spot::find(core, Op::Create, path)?;
    let fault = |error| match error {
        // The volume cannot have such a name.
        Errno::INVAL => Error::new(Op::Create, path, ErrorKind::NameRefused),
        error => failed(Op::Create, path, error),
    };
    let masked = match new.mode & new.umask != 0 && has_default_acl(&spot) {
        true => new.mode,
        false => new.mode & !new.umask,
    };
    let found = make_at(core, &spot, new, masked).map_err(fault)?;
    let finished = finish(&spot, &found.fd, new, masked).and_then(|()| stat::raw(&found.fd, MASK));
    match finished {
        Ok(stat) => Ok(opened(core, path, found, &stat, Dos::default(), true)),
        Err(error) => {
            let flags = match new.kind {
                NewKind::Directory => AtFlags::REMOVEDIR,
                _ => AtFlags::empty(),
            };
            // Best effort: nobody knows of the node yet.
            let _ = unlinkat(&spot.place, spot.name.as_bytes(), flags);
            Err(failed(Op::Create, path, error))
        }
    }
}

fn make_at(core: &Core, spot: &Spot<'_>, new: &NewPosix<'_>, masked: u32) -> rustix::io::Result<Found> {
    let (place, name) = (&spot.place, spot.name.as_bytes());
    // Set-id bits follow once the owner is right.
    let mode = Mode::from_raw_mode(masked & PLAIN);
    let special = |kind, device| mknodat(place, name, kind, mode, device);
    let itself = OFlags::PATH | OFlags::NOFOLLOW;
    let mut flags = itself;
    match new.kind {
        NewKind::File => {
            // A file that this call made may also be read.
            let access = match new.access {
                Access::Write => OFlags::RDWR,
                Access::Attributes | Access::Read => OFlags::RDONLY,
            };
            let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW;
            let create = flags | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let fd = core.root.relieved(|| openat(place, name, create, mode))?;
            let access = new.access;
            return Ok(Found { fd, flags, access });
        }
        NewKind::Directory => {
            mkdirat(place, name, mode)?;
            flags = match new.access {
                Access::Attributes => itself | OFlags::DIRECTORY,
                Access::Read | Access::Write => OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW,
            };
        }
        NewKind::Symlink(target) => symlinkat(target, place, name)?,
        NewKind::Fifo => special(FileType::Fifo, 0)?,
        NewKind::Socket => special(FileType::Socket, 0)?,
        NewKind::CharDevice(major, minor) => special(FileType::CharacterDevice, device_of(major, minor))?,
        NewKind::BlockDevice(major, minor) => special(FileType::BlockDevice, device_of(major, minor))?,
    }
    // Another program may have replaced it by now: NOFOLLOW and the open folder keep this beneath the root.
    let fd = core
        .root
        .relieved(|| openat(place, name, flags | OFlags::CLOEXEC, Mode::empty()))?;
    let access = new.access;
    Ok(Found { fd, flags, access })
}

fn device_of(major: u32, minor: u32) -> Dev {
    makedev(major, minor)
}

/// Gives a new node its owner and the mode that is still missing: the process's umask and a change of owner
/// clear bits.
fn finish(spot: &Spot<'_>, fd: &OwnedFd, new: &NewPosix<'_>, masked: u32) -> rustix::io::Result<()> {
    let made = stat::raw(fd, MASK)?;
    if let Some(owner) = new.owner {
        let owner = wanted_owner(spot, &made, owner)?;
        if owner != (None, None) {
            chownat(fd, c"", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
        }
    }
    if matches!(new.kind, NewKind::Symlink(_)) {
        return Ok(());
    }
    let now = u32::from(stat::raw(fd, StatxFlags::MODE)?.stx_mode) & 0o7777;
    let inherited = match new.kind {
        NewKind::Directory => now & SET_GROUP,
        _ => 0,
    };
    // An ACL of the folder may have cleared permission bits, which stay so.
    let plain = match has_default_acl(spot) {
        true => now & PLAIN,
        false => masked & PLAIN,
    };
    let wanted = plain | (masked & 0o7000) | inherited;
    if wanted == now {
        return Ok(());
    }
    set_mode(fd, true, wanted)
}

/// The ids to set on a new node; `None` where they are right already.
fn wanted_owner(
    spot: &Spot<'_>,
    made: &Statx,
    owner: Owner,
) -> rustix::io::Result<(Option<Uid>, Option<Gid>)> {
    let user = (owner.user != made.stx_uid).then(|| Uid::from_raw(owner.user));
    if owner.group == made.stx_gid {
        return Ok((user, None));
    }
    let folder = statx(&spot.place, c"", AtFlags::EMPTY_PATH, StatxFlags::MODE)?;
    let inherits = u32::from(folder.stx_mode) & SET_GROUP != 0;
    Ok((user, (!inherits).then(|| Gid::from_raw(owner.group))))
}

fn has_default_acl(spot: &Spot<'_>) -> bool {
    let folder = xattr::Node::Path(spot.place.as_fd());
    matches!(xattr::size(&folder, DEFAULT_ACL), Ok(Some(_)))
}

/// Sets a mode; fchmod(2) refuses descriptors opened with `O_PATH`.
fn set_mode(fd: &OwnedFd, path_only: bool, mode: u32) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    match path_only {
        true => chmodat(CWD, proc_path(fd), mode, AtFlags::empty()),
        false => fchmod(fd, mode),
    }
}

/// Renames as renameat2(2) does.
pub(super) fn rename(core: &Core, from: &RelPath, to: &RelPath, mode: RenameMode) -> Result<()> {
    if mode == RenameMode::Keep {
        return super::names::rename(core, from, to, false);
    }
    let source = Spot::find(core, Op::Rename, from)?;
    let target = Spot::find(core, Op::Rename, to)?;
    let before = source.stat().map_err(|error| failed(Op::Rename, from, error))?;
    let taken = target.stat().ok();
    if taken.is_some_and(|taken| (taken.st_dev, taken.st_ino) == (before.st_dev, before.st_ino)) {
        // Two names of one file: a rename does nothing (rename(2)).
        return Ok(());
    }
    let (old, new) = (source.name.as_bytes(), target.name.as_bytes());
    if mode == RenameMode::Exchange {
        // Opens by path wait until the recorded paths are right again.
        let _renaming = core.descriptors.renaming();
        renameat_with(&source.place, old, &target.place, new, RenameFlags::EXCHANGE)
            .map_err(|error| failed(Op::Rename, from, error))?;
        record_exchange(core, from, to);
        return Ok(());
    }
    let pinned = core.descriptors.pin(to);
    // The rename may remove the last name of the replaced file. Holding it open makes the volume free its
    // blocks at the close below, not while opens wait.
    let last = core.root.open_at(to, OFlags::PATH | OFlags::NOFOLLOW, 0);
    let renaming = core.descriptors.renaming();
    match renameat(&source.place, old, &target.place, new) {
        Ok(()) => {
            core.descriptors.forget_path(to, pinned);
            core.descriptors.renamed(from, to);
            core.watcher.renamed(from, to);
            drop(renaming);
            drop(last);
            Ok(())
        }
        Err(error) => {
            pinned.release();
            Err(match error {
                // POSIX allows it for a folder that is not empty.
                Errno::EXIST => Error::new(Op::Rename, to, ErrorKind::NotEmpty),
                error => failed(Op::Rename, to, error),
            })
        }
    }
}

/// Exchanges the recorded paths of two nodes and of what is beneath them.
fn record_exchange(core: &Core, from: &RelPath, to: &RelPath) {
    let Some(between) = RelPath::parse(BETWEEN) else {
        return;
    };
    for (old, new) in [(from, &between), (to, from), (&between, to)] {
        core.descriptors.renamed(old, new);
        core.watcher.renamed(old, new);
    }
}

/// Sets permission bits and owner of an open node.
pub(super) fn set_permissions(node: &LocalNode, permissions: &Permissions) -> Result<()> {
    let fault = node.failed(Op::SetAttributes);
    let fd = node.handle.fd(Op::SetAttributes)?;
    let user = permissions.user.map(Uid::from_raw);
    let group = permissions.group.map(Gid::from_raw);
    if user.is_some() || group.is_some() {
        chownat(&fd, c"", user, group, AtFlags::EMPTY_PATH).map_err(&fault)?;
    }
    match permissions.mode {
        Some(_) if node.kind == Kind::Symlink => node.refuse(Op::SetAttributes, ErrorKind::Unsupported),
        Some(mode) => set_mode(&fd, node.handle.is_path_only(), mode).map_err(fault),
        None => Ok(()),
    }
}

/// Returns the numbers of a device node.
pub(super) fn device(node: &LocalNode) -> Result<Option<(u32, u32)>> {
    if !node.kind.is_device() {
        return Ok(None);
    }
    let fd = node.handle.fd(Op::Stat)?;
    let stat = stat::raw(&fd, MASK).map_err(node.failed(Op::Stat))?;
    Ok(Some((stat.stx_rdev_major, stat.stx_rdev_minor)))
}

/// Whether an attribute holds metadata in a form of its own, and is never shown.
fn is_hidden(name: &[u8]) -> bool {
    winmeta::is_bookkeeping(name) || name.starts_with(STREAM_XATTR_PREFIX)
}

/// Returns the names of a node's extended attributes.
pub(super) fn xattr_names(node: &LocalNode) -> Result<Vec<Vec<u8>>> {
    let target = Target::of(&node.handle)?;
    let mut names = xattr::list(&target.node()).map_err(node.failed(Op::Xattr))?;
    names.retain(|name| !is_hidden(name));
    Ok(names)
}

/// Returns the value of an extended attribute.
pub(super) fn xattr(node: &LocalNode, name: &[u8]) -> Result<Option<Vec<u8>>> {
    if is_hidden(name) {
        return Ok(None);
    }
    let target = Target::of(&node.handle)?;
    xattr::get(&target.node(), name).map_err(node.failed(Op::Xattr))
}

/// Sets an extended attribute.
pub(super) fn set_xattr(node: &LocalNode, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
    if is_hidden(name) {
        return node.refuse(Op::Xattr, ErrorKind::PermissionDenied);
    }
    let flags = match how {
        XattrSet::Any => XattrFlags::empty(),
        XattrSet::Create => XattrFlags::CREATE,
        XattrSet::Replace => XattrFlags::REPLACE,
    };
    let target = Target::of(&node.handle)?;
    match xattr::set_with(&target.node(), name, value, flags) {
        Err(Errno::NODATA) => node.refuse(Op::Xattr, ErrorKind::NotFound),
        result => result.map_err(|error| value_fault(&node.handle, error)),
    }
}

/// Removes an extended attribute.
pub(super) fn remove_xattr(node: &LocalNode, name: &[u8]) -> Result<()> {
    if is_hidden(name) {
        return node.refuse(Op::Xattr, ErrorKind::NotFound);
    }
    let target = Target::of(&node.handle)?;
    match xattr::remove(&target.node(), name) {
        Err(Errno::NODATA) => node.refuse(Op::Xattr, ErrorKind::NotFound),
        result => result.map_err(node.failed(Op::Xattr)),
    }
}
