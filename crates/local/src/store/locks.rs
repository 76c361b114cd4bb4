//! Byte-range locks that other programs see.
//!
//! They belong to the node's own open file description (`F_OFD_SETLK`, fcntl(2)): two nodes of one file
//! exclude each other, and closing another descriptor of the file releases nothing. A node keeps its
//! descriptor while it has locks.

use std::io;
use std::os::fd::AsFd;

use ropeway_vfs::store::RangeLock;
use ropeway_vfs::{Error, ErrorKind, Kind, Op, Result};
use rustix::io::Errno;

use super::node::LocalNode;
use crate::sys::{self, LockRange, LockType};

/// Last byte of the range that covers any file.
const LAST: u64 = i64::MAX as u64;

/// Sets the node's lock of a range; returns `false` if a lock of another holder excludes it.
pub(super) fn set(node: &LocalNode, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
    let wanted = match lock_type(lock, node.handle.modes()) {
        Some(wanted) if node.kind == Kind::File => wanted,
        _ => return Ok(true),
    };
    let range = range(node, first, last)?;
    if wanted != LockType::Unlock {
        let was_held = node.handle.is_held();
        let result = node.handle.hold(Op::Lock).and_then(|fd| {
            retried(|| sys::try_lock_range(fd.as_fd(), range, wanted)).map_err(|error| fault(node, &error))
        });
        if !was_held && !matches!(result, Ok(true)) {
            node.handle.let_go();
        }
        return result;
    }
    if !node.handle.is_held() {
        // The node has no locks.
        return Ok(true);
    }
    let fd = node.handle.fd(Op::Lock)?;
    let result = retried(|| sys::try_lock_range(fd.as_fd(), range, wanted));
    if (first, last) == (0, LAST) {
        node.handle.let_go();
    }
    result.map_err(|error| fault(node, &error))
}

/// Whether a lock of another holder excludes reading or writing a range.
pub(super) fn is_locked(node: &LocalNode, first: u64, last: u64, write: bool) -> Result<bool> {
    if node.kind != Kind::File || node.handle.is_path_only() {
        return Ok(false);
    }
    let what = match write {
        true => LockType::Write,
        false => LockType::Read,
    };
    let range = range(node, first, last)?;
    let fd = node.handle.fd(Op::Lock)?;
    retried(|| sys::is_locked(fd.as_fd(), range, what)).map_err(|error| fault(node, &error))
}

/// Returns the lock type that a descriptor with these access modes can take; `None` for one with neither.
fn lock_type(lock: RangeLock, (reads, writes): (bool, bool)) -> Option<LockType> {
    match lock {
        _ if !reads && !writes => None,
        RangeLock::Exclusive if writes => Some(LockType::Write),
        RangeLock::Exclusive | RangeLock::Shared if reads => Some(LockType::Read),
        _ => Some(LockType::Unlock),
    }
}

fn range(node: &LocalNode, first: u64, last: u64) -> Result<LockRange> {
    match (i64::try_from(first), i64::try_from(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok(LockRange { first, last }),
        _ => Err(Error::new(Op::Lock, &node.handle.path(), ErrorKind::Misuse)),
    }
}

fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn fault(node: &LocalNode, error: &io::Error) -> Error {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    match errno {
        // The kernel is older than 3.15, or the volume or its server has no locks (fcntl(2)).
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK => {
            Error::new(Op::Lock, &node.handle.path(), ErrorKind::Unsupported)
        }
        errno => super::root::failed(Op::Lock, &node.handle.path(), errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As smbd does: a file that is open for reading only cannot be locked for writing (fcntl(2), EBADF).
    #[test]
    fn descriptors_lock_what_they_are_open_for() {
        use LockType::{Read, Unlock, Write};
        for (modes, shared, exclusive) in [
            ((true, true), Some(Read), Some(Write)),
            ((true, false), Some(Read), Some(Read)),
            ((false, true), Some(Unlock), Some(Write)),
            ((false, false), None, None),
        ] {
            assert_eq!(lock_type(RangeLock::Shared, modes), shared);
            assert_eq!(lock_type(RangeLock::Exclusive, modes), exclusive);
        }
        assert_eq!(lock_type(RangeLock::None, (true, true)), Some(Unlock));
    }
}
