//! Raw extended attributes of an open node (xattr(7)).
//!
//! The system calls differ by how the node was opened: descriptors opened with `O_PATH` are refused by the
//! `f*xattr` calls and go through their magic link in `/proc/self/fd` instead. Nothing here knows what an
//! attribute means; see [`winmeta`](crate::winmeta) and [`attributes`](crate::attributes).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{
    CWD, Mode, OFlags, XattrFlags, fgetxattr, fgetxattr_query, flistxattr, fremovexattr, fsetxattr, getxattr,
    getxattr_query, listxattr, openat, removexattr, setxattr,
};
use rustix::io::Errno;
use rustix::path::DecInt;

use crate::sys::listxattrat;

/// Largest list of names and largest value of the kernel (XATTR_LIST_MAX, XATTR_SIZE_MAX of linux/limits.h).
pub(crate) const BYTES_MAX: usize = 65536;

/// Size of the first buffer, on the stack: most nodes have no attributes, most lists and values are short.
const BYTES_FIRST: usize = 512;

/// An open node, by the kind of its descriptor.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    /// An ordinary descriptor.
    File(BorrowedFd<'a>),
    /// A descriptor opened with `O_PATH`: any kind of node.
    Path(BorrowedFd<'a>),
}

impl<'a> Node<'a> {
    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'a> {
        match self {
            Node::File(fd) | Node::Path(fd) => *fd,
        }
    }
}

/// Lists the names of all attributes; none on volumes without attributes.
pub(crate) fn list(node: &Node<'_>) -> rustix::io::Result<Vec<Vec<u8>>> {
    let list = filled(|buffer| match node {
        Node::File(fd) => flistxattr(fd, buffer),
        Node::Path(fd) => list_of_path(*fd, buffer),
    });
    match list {
        Ok(list) => Ok(list
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect()),
        Err(error) if is_absent(error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads a value; `None` if there is no such attribute.
pub(crate) fn get(node: &Node<'_>, name: &[u8]) -> rustix::io::Result<Option<Vec<u8>>> {
    let value = filled(|buffer| match node {
        Node::File(fd) => fgetxattr(fd, name, buffer),
        Node::Path(fd) => getxattr(proc_path(fd), name, buffer),
    });
    optional(value)
}

/// Returns the length of a value; `None` if there is no such attribute.
pub(crate) fn size(node: &Node<'_>, name: &[u8]) -> rustix::io::Result<Option<usize>> {
    optional(match node {
        Node::File(fd) => fgetxattr_query(fd, name),
        Node::Path(fd) => getxattr_query(proc_path(fd), name),
    })
}

/// Sets one attribute, whether it exists or not.
pub(crate) fn set(node: &Node<'_>, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    set_with(node, name, value, XattrFlags::empty())
}

/// Sets one attribute; the flags of setxattr(2) can require that it exists or does not.
pub(crate) fn set_with(
    node: &Node<'_>,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> rustix::io::Result<()> {
    match node {
        Node::File(fd) => fsetxattr(fd, name, value, flags),
        Node::Path(fd) => setxattr(proc_path(fd), name, value, flags),
    }
}

/// Removes one attribute; `ENODATA` if it does not exist.
pub(crate) fn remove(node: &Node<'_>, name: &[u8]) -> rustix::io::Result<()> {
    match node {
        Node::File(fd) => fremovexattr(fd, name),
        Node::Path(fd) => removexattr(proc_path(fd), name),
    }
}

/// Whether an error says that the attribute does not exist, or that the volume has no attributes.
pub(crate) fn is_absent(error: Errno) -> bool {
    matches!(error, Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Path of a descriptor's magic link: the kernel jumps to the node itself, even if that is a symbolic link.
pub(crate) fn proc_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The folder that holds this process's descriptors as magic links.
pub(crate) fn own_descriptors() -> Option<BorrowedFd<'static>> {
    static OWN: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    OWN.get_or_init(|| openat(CWD, "/proc/self/fd", flags, Mode::empty()).ok())
        .as_ref()
        .map(AsFd::as_fd)
}

/// Names of the attributes of a node whose descriptor was opened with `O_PATH`.
fn list_of_path(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let length = match own_descriptors() {
        // One step instead of four.
        Some(own) => listxattrat(own, DecInt::from_fd(fd).as_c_str(), buffer),
        None => Err(Errno::NOSYS),
    };
    match length {
        Err(Errno::NOSYS) => list_by_path(fd, buffer),
        length => length,
    }
}

/// [`list_of_path`] before Linux 6.13.
pub(crate) fn list_by_path(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    listxattr(proc_path(&fd), buffer)
}

fn optional<T>(result: rustix::io::Result<T>) -> rustix::io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_absent(error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Calls with a short buffer, then with the longest possible one if the first was too short.
fn filled(mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
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
