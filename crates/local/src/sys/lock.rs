//! Locks of open file descriptions (fcntl(2)): seen by every process of every machine that mounts the volume, kept until
//! the description is closed, also by the death of its process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Locks the whole file for writing; `false` while somebody else holds a lock.
pub(crate) fn try_lock(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: all fields of the struct are integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is borrowed and `lock` lives for the whole call.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
