//! What a server asks of a node's extended attributes, answered from [`winmeta`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Error, ErrorKind, Kind, Op, Owner, Result, Timestamp, Xattr};
use rustix::fs::{Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use super::descriptors::Handle;
use super::root::failed;
use crate::winmeta::dos::Dos;
use crate::{stat, winmeta, xattr};

/// Longest name of a client's attribute: XATTR_NAME_MAX (255, linux/limits.h) without `user.`.
const NAME_MAX: usize = 250;

/// An open node whose extended attributes are meant.
pub(super) struct Target {
    fd: Arc<OwnedFd>,
    /// The descriptor was opened with `O_PATH`: the calls for descriptors refuse it.
    path_only: bool,
}

impl Target {
    pub(super) fn of(handle: &Handle) -> Result<Self> {
        Ok(Self {
            fd: handle.fd(Op::Xattr)?,
            path_only: handle.is_path_only(),
        })
    }

    pub(super) fn node(&self) -> xattr::Node<'_> {
        match self.path_only {
            true => xattr::Node::Path(self.fd.as_fd()),
            false => xattr::Node::File(self.fd.as_fd()),
        }
    }
}

/// Returns a node's attributes as a server reports them.
pub(super) fn node_stat(stat: &Statx, dos: Dos) -> NodeStat {
    let time = |time: &StatxTimestamp| Timestamp::from_unix(time.tv_sec, time.tv_nsec);
    let (accessed, modified, changed) = (
        time(&stat.stx_atime),
        time(&stat.stx_mtime),
        time(&stat.stx_ctime),
    );
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = if has_birth {
        time(&stat.stx_btime)
    } else {
        accessed.min(modified).min(changed)
    };
    let mode = u32::from(stat.stx_mode);
    NodeStat {
        kind: stat::kind(mode),
        size: stat.stx_size,
        // stat(2): units of 512 bytes on every Linux file system.
        allocated: stat.stx_blocks * 512,
        links: u64::from(stat.stx_nlink),
        id: super::descriptors::id_of(stat),
        mode: mode & 0o7777,
        owner: Owner {
            user: stat.stx_uid,
            group: stat.stx_gid,
        },
        created: dos.created.unwrap_or(born),
        accessed,
        modified,
        changed,
        dos_attributes: dos.attributes,
    }
}

/// Reads the security descriptor; one that is malformed has bytes that do not decode.
pub(super) fn security(handle: &Handle) -> Result<Option<Vec<u8>>> {
    winmeta::security::read(&Target::of(handle)?.node())
        .map_err(|error| failed(Op::Xattr, &handle.path(), error))
}

/// Stores a security descriptor.
pub(super) fn set_security(handle: &Handle, kind: Kind, descriptor: &[u8]) -> Result<()> {
    require_attributes(handle, kind)?;
    winmeta::security::write(&Target::of(handle)?.node(), descriptor)
        .map_err(|error| value_fault(handle, error))
}

/// Extended attributes of clients, sorted by name.
pub(super) fn eas(handle: &Handle) -> Result<Vec<Xattr>> {
    let target = Target::of(handle)?;
    let fault = |error| failed(Op::Xattr, &handle.path(), error);
    let mut found = Vec::new();
    for full in xattr::list(&target.node()).map_err(fault)? {
        let Some(name) = winmeta::eas::name_of(&full) else {
            continue;
        };
        // [MS-FSCC] 2.4.16: the length has 16 bits. `None`: removed since it was listed.
        if let Some(value) = xattr::get(&target.node(), &full).map_err(fault)?
            && value.len() <= usize::from(u16::MAX)
        {
            let name = name.to_vec();
            found.push(Xattr { name, value });
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Sets an extended attribute of clients, or removes it if `value` is empty.
pub(super) fn set_ea(handle: &Handle, kind: Kind, name: &[u8], value: &[u8]) -> Result<()> {
    let refused = |kind| Err(Error::new(Op::Xattr, &handle.path(), kind));
    if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
        return refused(ErrorKind::NameRefused);
    }
    if winmeta::eas::is_reserved(name) {
        return refused(ErrorKind::PermissionDenied);
    }
    if value.len() > usize::from(u16::MAX) {
        return refused(ErrorKind::NoSpace);
    }
    require_attributes(handle, kind)?;
    let target = Target::of(handle)?;
    let node = target.node();
    let names = xattr::list(&node).map_err(|error| failed(Op::Xattr, &handle.path(), error))?;
    let known = names
        .into_iter()
        .find(|full| winmeta::eas::name_of(full).is_some_and(|known| winmeta::fold::equal(known, name)));
    let result = match (known, value.is_empty()) {
        (None, true) => Ok(()),
        (Some(full), true) => match xattr::remove(&node, &full) {
            Err(Errno::NODATA) => Ok(()),
            result => result,
        },
        (Some(full), false) => xattr::set(&node, &full, value),
        (None, false) => xattr::set(&node, &[winmeta::USER, name].concat(), value),
    };
    result.map_err(|error| value_fault(handle, error))
}

/// Links have no attributes of users (xattr(7)).
pub(super) fn require_attributes(handle: &Handle, kind: Kind) -> Result<()> {
    if kind == Kind::Symlink {
        return Err(Error::new(Op::Xattr, &handle.path(), ErrorKind::Unsupported));
    }
    Ok(())
}

/// An error of setting a value. ERANGE: the name is too long for the system, or the value for the volume.
pub(super) fn value_fault(handle: &Handle, error: Errno) -> Error {
    let error = match error {
        Errno::RANGE | Errno::TOOBIG => Errno::NOSPC,
        error => error,
    };
    failed(Op::Xattr, &handle.path(), error)
}
