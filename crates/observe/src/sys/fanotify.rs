//! fanotify(7) of a whole file system, and opening nodes by handle.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `FAN_RENAME` (Linux 5.17, linux/fanotify.h), which libc lacks for some systems.
pub(crate) const RENAME: u64 = 0x1000_0000;
/// What is watched.
pub(crate) const EVENTS: u64 = libc::FAN_OPEN
    | libc::FAN_OPEN_EXEC
    | libc::FAN_ACCESS
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_CLOSE_NOWRITE
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | RENAME;

/// Largest handle (`MAX_HANDLE_SZ` of linux/exportfs.h).
pub(crate) const HANDLE_MAX: usize = 128;

/// `struct file_handle` with room for the largest.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    bytes: [u8; HANDLE_MAX],
}

/// Makes a group whose events name folders and entries.
///
/// # Errors
/// No permission, or an older kernel than 5.9.
pub(crate) fn group() -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_DFID_NAME;
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::fanotify_init(flags, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Marks the file system of a folder.
///
/// # Errors
/// No permission, or the file system has no handles.
pub(crate) fn mark(group: &impl AsFd, folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mark = |mask: u64| -> io::Result<()> {
        // SAFETY: the path ends in NUL and outlives the call, which keeps no pointer.
        let result = unsafe {
            libc::fanotify_mark(
                group.as_fd().as_raw_fd(),
                libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM,
                mask | libc::FAN_ONDIR,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    match mark(EVENTS) {
        // Before Linux 5.17 a rename is two events.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            mark(EVENTS & !RENAME | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO)
        }
        result => result,
    }
}

/// Opens a node by its handle, to learn its path.
///
/// # Errors
/// It is gone, or no permission.
pub(crate) fn open_by_handle(volume: &impl AsFd, kind: i32, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        handle_type: kind,
        bytes: [0; HANDLE_MAX],
    };
    raw.bytes
        .get_mut(..bytes.len())
        .ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(bytes);
    // SAFETY: `raw` has the kernel's layout and says how long its handle is.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            volume.as_fd().as_raw_fd(),
            &raw mut raw,
            libc::O_PATH | libc::O_CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the call has just made it, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
