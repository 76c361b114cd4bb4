//! Locks of open file descriptions (fcntl(2)). Every process of every machine that mounts the volume sees
//! them. They last until the description is closed, also by the end of its process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockType {
    Unlock,
    Read,
    Write,
}

/// From the first byte to the last; `i64::MAX` is the highest offset that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockRange {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl LockRange {
    const ALL: Self = Self {
        first: 0,
        last: i64::MAX,
    };
}

fn flock(range: LockRange, what: LockType) -> libc::flock {
    let kind = match what {
        LockType::Unlock => libc::F_UNLCK,
        LockType::Read => libc::F_RDLCK,
        LockType::Write => libc::F_WRLCK,
    };
    // SAFETY: all fields of the struct are integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = range.first;
    // A length of 0 means up to the end.
    lock.l_len = match range.last {
        i64::MAX => 0,
        last => last - range.first + 1,
    };
    lock
}

/// Locks the whole file for writing; returns `false` while another holder has a lock.
pub(crate) fn try_lock(fd: BorrowedFd<'_>) -> io::Result<bool> {
    try_lock_range(fd, LockRange::ALL, LockType::Write)
}

/// Locks or unlocks a range; returns `false` while a lock of another holder excludes it.
pub(crate) fn try_lock_range(fd: BorrowedFd<'_>, range: LockRange, what: LockType) -> io::Result<bool> {
    let lock = flock(range, what);
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

/// Whether another holder has a lock that excludes this one.
pub(crate) fn is_locked(fd: BorrowedFd<'_>, range: LockRange, what: LockType) -> io::Result<bool> {
    let mut lock = flock(range, what);
    // SAFETY: the descriptor is borrowed, and `lock` lives for the whole call and is this call's alone.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    match result {
        0 => Ok(i32::from(lock.l_type) != libc::F_UNLCK),
        _ => Err(io::Error::last_os_error()),
    }
}
