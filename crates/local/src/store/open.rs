//! Opens and makes nodes: one openat2, one statx, one call for the DOS attributes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_vfs::store::{Access, NewNode, NodeOpen, Opened};
use ropeway_vfs::{Error, ErrorKind, Kind, Op, RelPath, Result};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::Core;
use super::node::LocalNode;
use super::root::{failed, open_fault};
use super::xattrs::node_stat;
use crate::stat;
use crate::winmeta::dos::{self, Dos};
use crate::xattr::Node;

/// Fields asked of each node.
pub(super) const MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Number of tries when a node appears or disappears between making and opening it (a guess).
const RACE_TRIES: usize = 8;

/// A descriptor, its flags and the access it gives.
pub(super) struct Found {
    pub(super) fd: OwnedFd,
    pub(super) flags: OFlags,
    pub(super) access: Access,
}

/// The kinds of nodes that an open accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    /// Files, folders and links.
    Served,
    /// Special nodes too.
    All,
}

/// Opens or makes a node.
pub(super) fn open(core: &Arc<Core>, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
    // The path must not change until the node is entered.
    let _opening = core.descriptors.opening();
    let Some(new) = how.create.filter(|_| !path.is_root()) else {
        if how.create.is_some() && how.exclusive {
            return Err(Error::new(Op::Create, path, ErrorKind::AlreadyExists));
        }
        return existing(core, path, how, Kinds::Served);
    };
    for _ in 0..RACE_TRIES {
        match make(core, path, how, new) {
            Err(Errno::EXIST) if how.exclusive => {
                return Err(Error::new(Op::Create, path, ErrorKind::AlreadyExists));
            }
            Err(Errno::EXIST) => {}
            Ok(found) => return made(core, path, new, found),
            // The volume cannot have such a name.
            Err(Errno::INVAL) => return Err(Error::new(Op::Create, path, ErrorKind::NameRefused)),
            Err(error) => return Err(open_fault(Op::Create, path, error)),
        }
        match existing(core, path, how, Kinds::Served) {
            // Removed in between.
            Err(error) if error.kind == ErrorKind::NotFound => {}
            result => return result,
        }
    }
    // A link whose target does not exist.
    Err(Error::new(Op::Create, path, ErrorKind::NotFound))
}

/// Opens an existing node; a link is not followed, and for attributes only any kind is accepted.
pub(super) fn open_itself(core: &Arc<Core>, path: &RelPath, access: Access) -> Result<Opened> {
    let _opening = core.descriptors.opening();
    let how = NodeOpen {
        access,
        link_itself: true,
        ..NodeOpen::default()
    };
    let kinds = match access {
        Access::Attributes => Kinds::All,
        Access::Read | Access::Write => Kinds::Served,
    };
    existing(core, path, &how, kinds)
}

fn existing(core: &Arc<Core>, path: &RelPath, how: &NodeOpen, kinds: Kinds) -> Result<Opened> {
    let found = find(core, path, how).map_err(|error| open_fault(Op::Open, path, error))?;
    let stat = stat::raw(&found.fd, MASK).map_err(|error| failed(Op::Open, path, error))?;
    let kind = stat::kind(u32::from(stat.stx_mode));
    let refused = match kind {
        Kind::File | Kind::Directory => None,
        // Without openat2 no link is followed: the link itself was opened.
        Kind::Symlink => (!how.link_itself).then_some(ErrorKind::SymbolicLink),
        _ => (kinds == Kinds::Served).then_some(ErrorKind::PermissionDenied),
    };
    if let Some(refused) = refused {
        return Err(Error::new(Op::Open, path, refused));
    }
    let dos = if !core.features.windows_metadata || !matches!(kind, Kind::File | Kind::Directory) {
        Dos::default()
    } else if found.flags.contains(OFlags::PATH) {
        dos::of_path(found.fd.as_fd()).map_err(|error| failed(Op::Open, path, error))?
    } else {
        dos::of_file(found.fd.as_fd()).map_err(|error| failed(Op::Open, path, error))?
    };
    Ok(opened(core, path, found, &stat, dos, false))
}

/// Opens an existing node with as much of the wanted access as is allowed.
fn find(core: &Core, path: &RelPath, how: &NodeOpen) -> rustix::io::Result<Found> {
    let follow = if how.link_itself {
        OFlags::NOFOLLOW
    } else {
        OFlags::empty()
    };
    let content = OFlags::NONBLOCK | follow;
    let identity = (OFlags::PATH | follow, Access::Attributes);
    let steps: &[(OFlags, Access)] = match how.access {
        Access::Attributes => &[identity],
        Access::Read => &[(OFlags::RDONLY | content, Access::Read), identity],
        Access::Write => &[
            (OFlags::RDWR | content, Access::Write),
            (OFlags::WRONLY | content, Access::Write),
            (OFlags::RDONLY | content, Access::Read),
            identity,
        ],
    };
    let mut refusal = None;
    for (flags, access) in steps {
        // Less than asked for.
        if refusal.is_some() && *access < how.access && !how.allow_less_access {
            break;
        }
        match core.root.open_at(path, *flags, 0) {
            Ok(fd) => {
                return Ok(Found {
                    fd,
                    flags: *flags,
                    access: *access,
                });
            }
            // A folder has no content to write, but its attributes can be changed.
            Err(Errno::ISDIR) => return find_folder(core, path, how, follow),
            Err(Errno::LOOP) if how.link_itself => return find_link(core, path),
            Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY)) => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or(Errno::ACCESS))
}

fn find_folder(core: &Core, path: &RelPath, how: &NodeOpen, follow: OFlags) -> rustix::io::Result<Found> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | follow;
    match core.root.open_at(path, flags, 0) {
        Ok(fd) => Ok(Found {
            fd,
            flags,
            access: how.access,
        }),
        Err(Errno::ACCESS | Errno::PERM) if how.allow_less_access => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | follow;
            Ok(Found {
                fd: core.root.open_at(path, flags, 0)?,
                flags,
                access: Access::Attributes,
            })
        }
        Err(error) => Err(error),
    }
}

/// Opens a link itself, which has nothing but its target text.
fn find_link(core: &Core, path: &RelPath) -> rustix::io::Result<Found> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    Ok(Found {
        fd: core.root.open_at(path, flags, 0)?,
        flags,
        access: Access::Attributes,
    })
}

/// Makes a node; `EEXIST` if the name is taken.
fn make(core: &Core, path: &RelPath, how: &NodeOpen, new: NewNode) -> rustix::io::Result<Found> {
    if new.directory {
        return make_folder(core, path, how.access);
    }
    // A file that this call made may also be read; `access` limits other opens only.
    let access = if how.access == Access::Write {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    let flags = access | OFlags::NONBLOCK;
    let create = flags | OFlags::CREATE | OFlags::EXCL;
    let mode = core.options.file_mode & 0o7777;
    let fd = core.root.open_at(path, create, mode)?;
    Ok(Found {
        fd,
        flags,
        access: how.access,
    })
}

fn make_folder(core: &Core, path: &RelPath, access: Access) -> rustix::io::Result<Found> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EXIST);
    };
    let place = core.root.place(&dir)?;
    mkdirat(
        &place,
        name.as_bytes(),
        Mode::from_raw_mode(core.options.directory_mode & 0o7777),
    )?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    // Another program may have replaced it by now. NOFOLLOW and the open parent make sure that this is a
    // folder at the place where it was made.
    let fd = core
        .root
        .relieved(|| openat(&place, name.as_bytes(), flags | OFlags::CLOEXEC, Mode::empty()))?;
    Ok(Found { fd, flags, access })
}

/// Gives a new node its first attributes.
fn made(core: &Arc<Core>, path: &RelPath, new: NewNode, found: Found) -> Result<Opened> {
    let mut kept = Dos::default();
    if let Some(attributes) = new.dos_attributes.filter(|_| core.features.windows_metadata) {
        let dos = Dos::of_attributes(attributes);
        match dos::write(&Node::File(found.fd.as_fd()), &dos) {
            Ok(()) => kept = dos,
            // A volume without attributes is mounted beneath the root.
            Err(Errno::OPNOTSUPP | Errno::PERM) => {}
            Err(error) => {
                unmake(core, path, new);
                return Err(failed(Op::Create, path, error));
            }
        }
    }
    let stat = stat::raw(&found.fd, MASK).map_err(|error| failed(Op::Create, path, error))?;
    Ok(opened(core, path, found, &stat, kept, true))
}

/// Removes a node whose attributes could not be stored; best effort.
fn unmake(core: &Core, path: &RelPath, new: NewNode) {
    let flags = if new.directory {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    if let Ok((place, name)) = core.root.parent(Op::Create, path) {
        let _ = unlinkat(&place, name.as_bytes(), flags);
    }
}

/// Enters a descriptor into the table of open nodes.
pub(super) fn opened(
    core: &Arc<Core>,
    path: &RelPath,
    found: Found,
    stat: &Statx,
    dos: Dos,
    created: bool,
) -> Opened {
    let stat_now = core.change_times.apply(node_stat(stat, dos));
    let access = match stat_now.kind {
        Kind::File | Kind::Directory => found.access,
        _ => Access::Attributes,
    };
    let handle = core.descriptors.enter(path, found.fd, stat, found.flags);
    Opened {
        node: Arc::new(LocalNode::new(core, handle, stat_now.kind, access)),
        stat: stat_now,
        created,
    }
}
