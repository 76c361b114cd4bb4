//! Extended attributes, POSIX ACLs and capabilities among them.
//!
//! Managed are the name spaces that can be restored on any volume that has them: `user.*`, `security.*`,
//! `trusted.*` (as root) and the two POSIX ACLs. Others (`btrfs.*`, `system.nfs4_acl`, …) belong to one kind
//! of volume and are left alone. `security.selinux` is a property of the place, not of the file: it is
//! neither read nor removed, only set when given.

use std::os::fd::AsRawFd;

use ropeway_vfs::{Loss, Xattr};
use rustix::fs::{
    XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, listxattr, removexattr, setxattr,
};
use rustix::io::Errno;

use super::Node;

/// The access ACL.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The ACL that new entries of a folder get.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
const SELINUX: &[u8] = b"security.selinux";

/// Largest list of names and largest value of the kernel (XATTR_LIST_MAX, XATTR_SIZE_MAX of linux/limits.h).
pub(crate) const BYTES_MAX: usize = 65536;

/// A first try on the stack: most nodes have no attributes, most lists and values are short.
const BYTES_FIRST: usize = 512;

/// All managed attributes, sorted by name. Volumes without attributes have none.
pub(crate) fn read(node: &Node<'_>) -> rustix::io::Result<Vec<Xattr>> {
    let mut found = Vec::new();
    for name in names(node)? {
        match value(node, &name) {
            Ok(value) => found.push(Xattr { name, value }),
            // Removed since it was listed.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Makes `wanted` the whole set of managed attributes; adds to `losses` what could not be kept.
pub(crate) fn write(node: &Node<'_>, wanted: &[Xattr], losses: &mut Vec<Loss>) -> rustix::io::Result<()> {
    for name in names(node)? {
        if wanted.iter().any(|xattr| xattr.name == name) {
            continue;
        }
        match remove(node, &name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => lose(&name, error, losses)?,
        }
    }
    for xattr in wanted {
        if let Err(error) = set(node, &xattr.name, &xattr.value) {
            lose(&xattr.name, error, losses)?;
        }
    }
    Ok(())
}

/// Sets one attribute.
pub(crate) fn set(node: &Node<'_>, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    match node {
        Node::File(fd) => fsetxattr(fd, name, value, XattrFlags::empty()),
        Node::Path(fd) => setxattr(proc_path(fd), name, value, XattrFlags::empty()),
    }
}

/// Removes one attribute.
pub(crate) fn remove(node: &Node<'_>, name: &[u8]) -> rustix::io::Result<()> {
    match node {
        Node::File(fd) => fremovexattr(fd, name),
        Node::Path(fd) => removexattr(proc_path(fd), name),
    }
}

/// Whether a node has an attribute of this name.
pub(crate) fn has(node: &Node<'_>, name: &[u8]) -> bool {
    value(node, name).is_ok()
}

/// Names of the managed attributes of a node.
fn names(node: &Node<'_>) -> rustix::io::Result<Vec<Vec<u8>>> {
    let list = filled(|buffer| match node {
        Node::File(fd) => flistxattr(fd, buffer),
        Node::Path(fd) => listxattr(proc_path(fd), buffer),
    });
    match list {
        Ok(list) => Ok(list
            .split(|byte| *byte == 0)
            .filter(|name| is_managed(name))
            .map(<[u8]>::to_vec)
            .collect()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn value(node: &Node<'_>, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    filled(|buffer| match node {
        Node::File(fd) => fgetxattr(fd, name, buffer),
        Node::Path(fd) => getxattr(proc_path(fd), name, buffer),
    })
}

/// Calls with a short buffer, and again with the longest possible where that was too short.
pub(crate) fn filled(
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut short = [0; BYTES_FIRST];
    match call(&mut short) {
        Ok(length) => Ok(short[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut long = vec![0; BYTES_MAX];
            let length = call(&mut long)?;
            long.truncate(length);
            Ok(long)
        }
        Err(error) => Err(error),
    }
}

fn is_managed(name: &[u8]) -> bool {
    if name == SELINUX {
        return false;
    }
    name.starts_with(b"user.")
        || name.starts_with(b"security.")
        || (name.starts_with(b"trusted.") && rustix::process::geteuid().is_root())
        || name == ACL_ACCESS
        || name == ACL_DEFAULT
}

/// What could not be kept is a loss, unless the device or volume failed.
pub(crate) fn lose(name: &[u8], error: Errno, losses: &mut Vec<Loss>) -> rustix::io::Result<()> {
    match error {
        // NOSPC and DQUOT-like answers of ext4 mean that the attributes do not fit the inode's one extra block.
        Errno::PERM
        | Errno::ACCESS
        | Errno::OPNOTSUPP
        | Errno::NOSYS
        | Errno::INVAL
        | Errno::RANGE
        | Errno::TOOBIG
        | Errno::NOSPC
        | Errno::NODATA => {
            super::lose(losses, Loss::of_xattr(name));
            Ok(())
        }
        error => Err(error),
    }
}

/// The magic link of a descriptor: the kernel jumps to the very node, be it a symbolic link itself.
pub(super) fn proc_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
