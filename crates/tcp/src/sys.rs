//! The system calls that rustix lacks: the only unsafe code of this crate, behind a safe interface.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Length of `struct tcp_info` up to `tcpi_rcv_ooopack` and the window after it (Linux 5.4).
const LEN: usize = 232;

/// The bytes of `struct tcp_info`.
pub(crate) type RawInfo = [u8; LEN];

/// Returns TCP_INFO of a socket. A kernel fills in what it knows; the rest is zero.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<RawInfo> {
    let mut raw: RawInfo = [0; LEN];
    let mut length = LEN as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `raw`, which is that long and is borrowed for
    // the call only, as `length` is; the descriptor is open as long as `socket` lives.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match answer {
        0 => Ok(raw),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets how many bytes must have arrived before the socket is readable (`SO_RCVLOWAT`, socket(7)).
pub(crate) fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads one integer of the length
    // that is given.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
