//! Extended attributes of an open node, whichever way it was opened.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Error, ErrorKind, Kind, Op, Owner, Result, Timestamp, Xattr};
use rustix::fs::{
    CWD, Mode, OFlags, Statx, StatxFlags, StatxTimestamp, XattrFlags, fgetxattr, fgetxattr_query, flistxattr,
    fremovexattr, fsetxattr, getxattr, getxattr_query, lgetxattr, listxattr, openat, removexattr, setxattr,
};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::base::{failed, proc_path};
use super::descriptors::Handle;
use super::dos::{self, Dos};
use super::fold;
use crate::attributes::xattr::filled;
use crate::stat;
use crate::sys::getxattrat;

/// The security descriptor, self-relative ([MS-DTYP] 2.4.6).
const SECURITY: &[u8] = b"user.ropeway.ntsd";

/// The name space that a server's users have.
const USER: &[u8] = b"user.";

/// What is kept there for other purposes, in upper case: by this store, and by Samba.
const RESERVED: [&[u8]; 4] = [b"DOSATTRIB", b"DOSSTREAM.", b"ROPEWAY.", b"SAMBA_PAI"];

/// Longest name without its name space (XATTR_NAME_MAX of linux/limits.h is 255).
const NAME_MAX: usize = 250;

/// A node whose extended attributes are meant.
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

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A value; `None` if there is none, or the volume has none.
    pub(super) fn get(&self, name: &[u8]) -> rustix::io::Result<Option<Vec<u8>>> {
        let value = filled(|buffer| {
            if self.path_only {
                getxattr(proc_path(self.fd()), name, buffer)
            } else {
                fgetxattr(self.fd(), name, buffer)
            }
        });
        match value {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_nothing(error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Length of a value.
    pub(super) fn size(&self, name: &[u8]) -> rustix::io::Result<Option<usize>> {
        let size = if self.path_only {
            getxattr_query(proc_path(self.fd()), name)
        } else {
            fgetxattr_query(self.fd(), name)
        };
        match size {
            Ok(size) => Ok(Some(size)),
            Err(error) if is_nothing(error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn set(&self, name: &[u8], value: &[u8], flags: XattrFlags) -> rustix::io::Result<()> {
        if self.path_only {
            setxattr(proc_path(self.fd()), name, value, flags)
        } else {
            fsetxattr(self.fd(), name, value, flags)
        }
    }

    pub(super) fn remove(&self, name: &[u8]) -> rustix::io::Result<()> {
        if self.path_only {
            removexattr(proc_path(self.fd()), name)
        } else {
            fremovexattr(self.fd(), name)
        }
    }

    /// Names in the user's name space, with it.
    pub(super) fn names(&self) -> rustix::io::Result<Vec<Vec<u8>>> {
        let list = filled(|buffer| {
            if self.path_only {
                listxattr(proc_path(self.fd()), buffer)
            } else {
                flistxattr(self.fd(), buffer)
            }
        });
        match list {
            Ok(list) => Ok(list
                .split(|byte| *byte == 0)
                .filter(|name| name.starts_with(USER))
                .map(<[u8]>::to_vec)
                .collect()),
            Err(error) if is_nothing(error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// What is kept of Windows' view.
    pub(super) fn dos(&self) -> rustix::io::Result<Dos> {
        if self.path_only {
            dos_of_path(self.fd())
        } else {
            dos_of(self.fd())
        }
    }
}

/// What is kept of Windows' view of an open node, by one call.
pub(super) fn dos_of(fd: BorrowedFd<'_>) -> rustix::io::Result<Dos> {
    let mut value = [0; dos::BYTES_MAX];
    understood(fgetxattr(fd, dos::NAME, &mut value), &value)
}

/// What is kept of Windows' view of a name in an open folder.
pub(super) fn dos_at(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Dos> {
    let mut value = [0; dos::BYTES_MAX];
    match getxattrat(dir, name, false, dos::NAME, &mut value) {
        Err(Errno::NOSYS) => dos_at_by_path(dir, name),
        length => understood(length, &value),
    }
}

/// The same before Linux 6.13.
pub(super) fn dos_at_by_path(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Dos> {
    let mut value = [0; dos::BYTES_MAX];
    let mut path = proc_path(dir).into_bytes();
    path.push(b'/');
    path.extend_from_slice(name.to_bytes());
    understood(lgetxattr(path, dos::NAME, &mut value), &value)
}

/// What is kept of Windows' view of a node whose descriptor was opened with `O_PATH`.
pub(super) fn dos_of_path(fd: BorrowedFd<'_>) -> rustix::io::Result<Dos> {
    let mut value = [0; dos::BYTES_MAX];
    let length = match own_descriptors() {
        // One step instead of four.
        Some(own) => getxattrat(own, DecInt::from_fd(fd).as_c_str(), true, dos::NAME, &mut value),
        None => Err(Errno::NOSYS),
    };
    match length {
        Err(Errno::NOSYS) => dos_by_path(fd),
        length => understood(length, &value),
    }
}

/// The same before Linux 6.13.
pub(super) fn dos_by_path(fd: BorrowedFd<'_>) -> rustix::io::Result<Dos> {
    let mut value = [0; dos::BYTES_MAX];
    understood(getxattr(proc_path(fd), dos::NAME, &mut value), &value)
}

/// The folder of this process's descriptors as magic links.
fn own_descriptors() -> Option<BorrowedFd<'static>> {
    static OWN: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    OWN.get_or_init(|| openat(CWD, "/proc/self/fd", flags, Mode::empty()).ok())
        .as_ref()
        .map(AsFd::as_fd)
}

fn understood(length: rustix::io::Result<usize>, value: &[u8]) -> rustix::io::Result<Dos> {
    match length {
        Ok(length) => Ok(Dos::decode(&value[..length.min(value.len())]).unwrap_or_default()),
        // Longer than any that means something; unreadable for this user; none.
        Err(Errno::RANGE | Errno::ACCESS) => Ok(Dos::default()),
        Err(error) if is_nothing(error) => Ok(Dos::default()),
        Err(error) => Err(error),
    }
}

/// Attributes as a server tells them.
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

/// The security descriptor as kept.
pub(super) fn security(handle: &Handle) -> Result<Option<Vec<u8>>> {
    Target::of(handle)?
        .get(SECURITY)
        .map_err(|error| failed(Op::Xattr, &handle.path(), error))
}

/// Keeps a security descriptor.
pub(super) fn set_security(handle: &Handle, kind: Kind, descriptor: &[u8]) -> Result<()> {
    require_attributes(handle, kind)?;
    Target::of(handle)?
        .set(SECURITY, descriptor, XattrFlags::empty())
        .map_err(|error| value_fault(handle, error))
}

/// Extended attributes that are nobody else's, sorted by name.
pub(super) fn eas(handle: &Handle) -> Result<Vec<Xattr>> {
    let target = Target::of(handle)?;
    let fault = |error| failed(Op::Xattr, &handle.path(), error);
    let mut found = Vec::new();
    for full in target.names().map_err(fault)? {
        let name = &full[USER.len()..];
        if name.is_empty() || is_reserved(name) {
            continue;
        }
        // [MS-FSCC] 2.4.16: the length is of 16 bits. `None`: removed since it was listed.
        if let Some(value) = target.get(&full).map_err(fault)?
            && value.len() <= usize::from(u16::MAX)
        {
            let name = name.to_vec();
            found.push(Xattr { name, value });
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Sets an extended attribute, or removes it if `value` is empty.
pub(super) fn set_ea(handle: &Handle, kind: Kind, name: &[u8], value: &[u8]) -> Result<()> {
    let refused = |kind| Err(Error::new(Op::Xattr, &handle.path(), kind));
    if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
        return refused(ErrorKind::NameRefused);
    }
    if is_reserved(name) {
        return refused(ErrorKind::PermissionDenied);
    }
    if value.len() > usize::from(u16::MAX) {
        return refused(ErrorKind::NoSpace);
    }
    require_attributes(handle, kind)?;
    let target = Target::of(handle)?;
    let names = target
        .names()
        .map_err(|error| failed(Op::Xattr, &handle.path(), error))?;
    let known = names
        .into_iter()
        .find(|known| fold::equal(&known[USER.len()..], name));
    let result = match (known, value.is_empty()) {
        (None, true) => Ok(()),
        (Some(full), true) => match target.remove(&full) {
            Err(Errno::NODATA) => Ok(()),
            result => result,
        },
        (Some(full), false) => target.set(&full, value, XattrFlags::empty()),
        (None, false) => target.set(&[USER, name].concat(), value, XattrFlags::empty()),
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

fn is_reserved(name: &[u8]) -> bool {
    let upper = name.to_ascii_uppercase();
    RESERVED.iter().any(|reserved| {
        upper.starts_with(reserved) && (reserved.ends_with(b".") || upper.len() == reserved.len())
    })
}

/// There is no such attribute, or there are none at all.
fn is_nothing(error: Errno) -> bool {
    matches!(error, Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS)
}
