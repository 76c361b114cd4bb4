//! System calls that rustix lacks or marks as unsafe: the only unsafe code of this crate, behind a safe
//! interface.

mod tun;
mod wait;

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

pub(super) use tun::Tun;
pub(crate) use wait::wait_with_usage;

/// Moves the calling thread into a new network namespace.
pub(super) fn new_network_namespace() -> io::Result<()> {
    // SAFETY: CLONE_NEWNET separates neither memory nor descriptors; only later sockets of this thread are concerned.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into)
}

/// Moves the process, which must have one thread, into a new user namespace.
pub(super) fn new_user_namespace() -> io::Result<()> {
    // SAFETY: CLONE_NEWUSER separates neither memory nor descriptors; the kernel refuses it with several threads.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(Into::into)
}
