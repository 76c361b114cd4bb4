//! Extended attributes of a name in an open folder: getxattrat(2) and listxattrat(2), from Linux 6.13 on.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// Numbers of the calls; equal on every architecture since system call numbers are shared (Linux 6.13).
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;

/// `struct xattr_args` of linux/xattr.h.
#[repr(C, align(8))]
struct Args {
    value: u64,
    size: u32,
    flags: u32,
}

/// The call was refused once: an old kernel, or a sandbox that does not know it.
static MISSING: AtomicBool = AtomicBool::new(false);

/// Value of an attribute of `path` in `dir`, a link's own unless `follow`; bytes of it in `buffer`. `ENOSYS` where the
/// system cannot.
pub(crate) fn getxattrat(
    dir: BorrowedFd<'_>,
    path: &CStr,
    follow: bool,
    name: &CStr,
    buffer: &mut [u8],
) -> rustix::io::Result<usize> {
    if MISSING.load(Ordering::Relaxed) {
        return Err(Errno::NOSYS);
    }
    let args = Args {
        value: buffer.as_mut_ptr() as u64,
        size: u32::try_from(buffer.len()).unwrap_or(u32::MAX),
        flags: 0,
    };
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: the strings end in NUL, `args` has the kernel's layout and names memory that is `buffer`'s for the whole
    // call; the call keeps no pointer.
    let result = unsafe {
        libc::syscall(
            SYS_GETXATTRAT,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            name.as_ptr(),
            &raw const args,
            size_of::<Args>(),
        )
    };
    length_of(result)
}

/// Names of the attributes of `path` in `dir`, of what a link leads to; bytes of them in `buffer`. `ENOSYS` where the
/// system cannot.
pub(crate) fn listxattrat(dir: BorrowedFd<'_>, path: &CStr, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    if MISSING.load(Ordering::Relaxed) {
        return Err(Errno::NOSYS);
    }
    // SAFETY: the path ends in NUL, the kernel writes no more than the length of `buffer`, and keeps no pointer.
    let result = unsafe {
        libc::syscall(
            SYS_LISTXATTRAT,
            dir.as_raw_fd(),
            path.as_ptr(),
            0,
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    length_of(result)
}

/// The length that a call returned, or its error.
fn length_of(result: libc::c_long) -> rustix::io::Result<usize> {
    if let Ok(length) = usize::try_from(result) {
        return Ok(length);
    }
    let code = std::io::Error::last_os_error().raw_os_error();
    let error = Errno::from_raw_os_error(code.unwrap_or(libc::EIO));
    // Neither reading a `user.*` attribute nor listing is answered with EPERM by a kernel that knows the calls
    // (xattr(7)).
    if matches!(error, Errno::NOSYS | Errno::PERM) {
        MISSING.store(true, Ordering::Relaxed);
        return Err(Errno::NOSYS);
    }
    Err(error)
}
