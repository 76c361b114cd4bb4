//! BLKFLSBUF: forgets what is cached of a block device.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IO(0x12, 97)` of linux/fs.h.
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// Writes back and drops what is cached of a block device. Needs CAP_SYS_ADMIN; without it nothing is dropped.
pub(crate) fn flush_block_device(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a system call on integers; the descriptor is borrowed for the whole call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKFLSBUF as _, 0) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // An owner of the device who is not root: posix_fadvise(2) drops what is clean.
        Some(libc::EACCES | libc::EPERM) => {
            rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed)?;
            Ok(())
        }
        _ => Err(error),
    }
}
