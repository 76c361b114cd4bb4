//! fanotify(7) watches changes by other processes; file handles name the nodes in its events.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

/// Longest handle (`MAX_HANDLE_SZ` of linux/exportfs.h).
const HANDLE_MAX: usize = 128;

/// A file handle (`struct file_handle`): what it is encoded as, and its bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileHandle {
    pub(crate) kind: i32,
    pub(crate) bytes: Box<[u8]>,
}

/// `struct file_handle` with room for the longest.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    bytes: [u8; HANDLE_MAX],
}

/// Makes a group whose events name folders and entries. Needs no privilege from Linux 5.13 on.
pub(crate) fn group() -> rustix::io::Result<OwnedFd> {
    let flags = libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_CLASS_NOTIF
        | libc::FAN_REPORT_FID
        | libc::FAN_REPORT_DFID_NAME;
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::fanotify_init(flags, 0) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the call has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds events to the mark of an open node, or removes them.
pub(crate) fn mark(
    group: BorrowedFd<'_>,
    add: bool,
    mask: u64,
    node: BorrowedFd<'_>,
) -> rustix::io::Result<()> {
    match mark_at(group, add, mask, node.as_raw_fd(), None) {
        // A descriptor opened with `O_PATH` is marked through its magic link.
        Err(Errno::BADF) => {
            let link = format!("/proc/self/fd/{}", node.as_raw_fd());
            let link = CString::new(link).map_err(|_| Errno::INVAL)?;
            mark_at(group, add, mask, libc::AT_FDCWD, Some(&link))
        }
        result => result,
    }
}

fn mark_at(
    group: BorrowedFd<'_>,
    add: bool,
    mask: u64,
    dir: RawFd,
    path: Option<&CStr>,
) -> rustix::io::Result<()> {
    let flags = if add {
        libc::FAN_MARK_ADD
    } else {
        libc::FAN_MARK_REMOVE
    };
    let path = path.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: there is no string, or it ends in NUL and outlives the call, which keeps no pointer.
    let result = unsafe { libc::fanotify_mark(group.as_raw_fd(), flags, mask, dir, path) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Returns the handle of an open node, as in events.
pub(crate) fn handle_of(node: BorrowedFd<'_>) -> rustix::io::Result<FileHandle> {
    // Volumes that cannot open nodes by handle have handles for this purpose from Linux 6.5 on.
    match name_to_handle(node, libc::AT_EMPTY_PATH | libc::AT_HANDLE_FID) {
        Err(Errno::INVAL) => name_to_handle(node, libc::AT_EMPTY_PATH),
        result => result,
    }
}

fn name_to_handle(node: BorrowedFd<'_>, flags: libc::c_int) -> rustix::io::Result<FileHandle> {
    let mut raw = RawHandle {
        handle_bytes: HANDLE_MAX as u32,
        handle_type: 0,
        bytes: [0; HANDLE_MAX],
    };
    let mut mount: libc::c_int = 0;
    // SAFETY: the path is empty and ends in NUL; `raw` has the kernel's layout and says how much room it has; `mount` is an
    // int; the call keeps no pointer.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            node.as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount,
            flags,
        )
    };
    if result != 0 {
        return Err(last_error());
    }
    let length = (raw.handle_bytes as usize).min(HANDLE_MAX);
    Ok(FileHandle {
        kind: raw.handle_type,
        bytes: raw.bytes[..length].into(),
    })
}

fn last_error() -> Errno {
    let code = io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}
