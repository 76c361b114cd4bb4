//! sync_file_range(2): starts and awaits write-back of a part of a file.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Starts write-back of a range (`length` 0: to the end), and awaits it if `wait`. Data only.
pub(crate) fn sync_file_range(fd: BorrowedFd<'_>, offset: u64, length: u64, wait: bool) -> io::Result<()> {
    let offset = offset.min(i64::MAX as u64);
    let flags = if wait {
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
    } else {
        libc::SYNC_FILE_RANGE_WRITE
    };
    let length = if length > i64::MAX as u64 - offset {
        0
    } else {
        length
    };
    loop {
        // SAFETY: a system call on integers; the descriptor is borrowed for the whole call.
        let result = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset as i64, length as i64, flags) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
