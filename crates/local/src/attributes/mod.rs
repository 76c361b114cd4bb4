//! Sets the attributes of a node: owner, mode, extended attributes, Windows metadata, times.
//!
//! The order matters: a change of owner clears set-id bits and capabilities; other changes touch no
//! time but `ctime`. What the volume or the user's rights do not allow is a [`Loss`], not an error.

pub(crate) mod xattr;

use std::os::fd::AsFd;

use ropeway_vfs::{Capabilities, Error, Kind, Loss, Metadata, MetadataChange, Op, Owner, RelPath, Timestamp};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chmodat, chownat, fchmod,
    fchown, futimens, utimensat,
};
use rustix::io::Errno;

use self::xattr::View;
use crate::beneath::fault;
use crate::stat;
use crate::winmeta::dos::{self, Dos};
pub(crate) use crate::xattr::Node;
use crate::xattr::proc_path;

/// DOS attributes whose loss is reported: read-only, hidden, system ([MS-FSCC] 2.6).
const DOS_MEANINGFUL: u32 = 0x1 | 0x2 | 0x4;

/// Times that every volume can store, 1970 to 2038. Others are read back after they were set.
const SAFE_SECONDS: std::ops::Range<i64> = 0..1 << 31;

/// Applies `change`; returns what could not be kept.
pub(crate) fn set(
    node: &Node<'_>,
    change: &MetadataChange,
    volume: &Capabilities,
    view: View,
    path: &RelPath,
) -> Result<Vec<Loss>, Error> {
    let failed = |error| fault(Op::SetAttributes, path, error);
    let mut losses = Vec::new();
    let mut mode_lost_bits = false;
    if change.owner.is_some() || change.mode.is_some() {
        let now = stat::raw(node.fd(), StatxFlags::BASIC_STATS).map_err(failed)?;
        let mode_now = u32::from(now.stx_mode);
        let is_link = stat::kind(mode_now) == Kind::Symlink;
        let owner_now = Owner {
            user: now.stx_uid,
            group: now.stx_gid,
        };
        if let Some(owner) = change.owner.filter(|owner| *owner != owner_now) {
            if volume.owners {
                set_owner(node, owner, owner_now, &mut losses).map_err(failed)?;
                mode_lost_bits = mode_now & 0o6000 != 0;
            } else {
                lose(&mut losses, Loss::Owner);
            }
        }
        let differs = |mode: &u32| mode_lost_bits || mode & 0o7777 != mode_now & 0o7777;
        if let Some(mode) = change.mode.filter(differs).filter(|_| !is_link) {
            if volume.modes {
                set_mode(node, mode, &mut losses).map_err(failed)?;
            } else {
                lose(&mut losses, Loss::Mode);
            }
        }
    }
    if let Some(wanted) = &change.xattrs {
        if volume.xattrs {
            xattr::write(node, wanted, view, &mut losses).map_err(|error| fault(Op::Xattr, path, error))?;
        } else {
            wanted
                .iter()
                .for_each(|xattr| lose(&mut losses, Loss::of_xattr(&xattr.name)));
        }
    }
    set_dos(node, change, volume, view, &mut losses).map_err(|error| fault(Op::Xattr, path, error))?;
    if change.accessed.is_some() || change.modified.is_some() {
        set_times(node, change.accessed, change.modified, &mut losses).map_err(failed)?;
    }
    Ok(losses)
}

/// Stores DOS attributes and creation time. Only files and folders can have them (xattr(7)): for other
/// nodes the change is ignored without a loss.
fn set_dos(
    node: &Node<'_>,
    change: &MetadataChange,
    volume: &Capabilities,
    view: View,
    losses: &mut Vec<Loss>,
) -> rustix::io::Result<()> {
    if change.dos_attributes.is_none() && change.created.is_none() {
        return Ok(());
    }
    let result = if view == View::Raw || !volume.xattrs {
        Err(Errno::OPNOTSUPP)
    } else {
        let mode = u32::from(stat::raw(node.fd(), StatxFlags::TYPE)?.stx_mode);
        if !matches!(stat::kind(mode), Kind::File | Kind::Directory) {
            return Ok(());
        }
        let before = dos::read(node)?;
        let attributes = change
            .dos_attributes
            .and_then(|bits| Dos::of_attributes(bits).attributes);
        let dos = Dos {
            attributes: attributes.or(before.attributes),
            created: change.created.or(before.created),
        };
        if dos == before {
            Ok(())
        } else {
            dos::write(node, &dos)
        }
    };
    match result {
        Ok(()) => Ok(()),
        Err(error) => {
            xattr::lose(dos::NAME.to_bytes(), error, &mut Vec::new())?;
            if change.created.is_some() {
                lose(losses, Loss::CreatedTime);
            }
            if change
                .dos_attributes
                .is_some_and(|bits| bits & DOS_MEANINGFUL != 0)
            {
                lose(losses, Loss::DosAttributes);
            }
            Ok(())
        }
    }
}

/// Adds a loss once.
pub(crate) fn lose(losses: &mut Vec<Loss>, loss: Loss) {
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

/// Sets owner and group, or the group alone if the owner may not be set.
pub(crate) fn set_owner(
    node: &Node<'_>,
    owner: Owner,
    now: Owner,
    losses: &mut Vec<Loss>,
) -> rustix::io::Result<()> {
    let user = (owner.user != now.user).then(|| Uid::from_raw(owner.user));
    let group = (owner.group != now.group).then(|| Gid::from_raw(owner.group));
    let refused = |error: Errno| {
        matches!(
            error,
            Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS
        )
    };
    match chown(node, user, group) {
        Err(error) if refused(error) => lose(losses, Loss::Owner),
        result => return result,
    }
    if user.is_some() && group.is_some() {
        match chown(node, None, group) {
            Err(error) if refused(error) => {}
            result => return result,
        }
    }
    Ok(())
}

/// Sets the permission bits.
pub(crate) fn set_mode(node: &Node<'_>, mode: u32, losses: &mut Vec<Loss>) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let result = match node {
        Node::File(fd) => fchmod(fd, mode),
        Node::Path(fd) => chmodat(CWD, proc_path(fd), mode, AtFlags::empty()),
    };
    match result {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
            lose(losses, Loss::Mode);
            Ok(())
        }
        result => result,
    }
}

/// Sets the given ones of access and modification time.
pub(crate) fn set_times(
    node: &Node<'_>,
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
    losses: &mut Vec<Loss>,
) -> rustix::io::Result<()> {
    let times = Timestamps {
        last_access: timespec(accessed),
        last_modification: timespec(modified),
    };
    let result = match node {
        Node::File(fd) => futimens(fd, &times),
        Node::Path(fd) => utimensat(fd, c"", &times, AtFlags::EMPTY_PATH),
    };
    match result {
        Ok(()) => {}
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => lose(losses, Loss::Times),
        Err(error) => return Err(error),
    }
    let unsafe_time = |time: &Timestamp| !SAFE_SECONDS.contains(&time.to_unix().0);
    if let Some(modified) = modified.and_then(Timestamp::known).filter(unsafe_time) {
        // The kernel silently clamps to the range of the volume.
        let kept = stat::raw(node.fd(), StatxFlags::MTIME)?.stx_mtime.tv_sec;
        // A difference of up to 2 seconds is rounding by a coarse volume.
        if kept.abs_diff(modified.to_unix().0) > 2 {
            lose(losses, Loss::Times);
        }
    }
    Ok(())
}

/// Restores the times of a node after a rename: fusefat sets them to now.
pub(crate) fn restore_times(dir: impl AsFd, name: &[u8], before: &Metadata) -> rustix::io::Result<()> {
    if stat::name(&dir, name)?.modified == before.modified {
        return Ok(());
    }
    let times = Timestamps {
        last_access: timespec(before.accessed),
        last_modification: timespec(Some(before.modified)),
    };
    utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn timespec(time: Option<Timestamp>) -> Timespec {
    match time.and_then(Timestamp::known) {
        Some(time) => {
            let (seconds, nanoseconds) = time.to_unix();
            Timespec {
                tv_sec: seconds,
                tv_nsec: nanoseconds.into(),
            }
        }
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
    }
}

/// Calls fchown(2), or its twin for descriptors opened with `O_PATH`.
fn chown(node: &Node<'_>, user: Option<Uid>, group: Option<Gid>) -> rustix::io::Result<()> {
    match node {
        Node::File(fd) => fchown(fd, user, group),
        Node::Path(fd) => chownat(fd, c"", user, group, AtFlags::EMPTY_PATH),
    }
}
