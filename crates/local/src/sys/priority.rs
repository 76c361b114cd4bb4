//! The priority of a thread's requests to disks.

use std::io;

/// `IOPRIO_WHO_PROCESS`, with 0: the calling thread (ioprio_set(2)).
const THIS_THREAD: (libc::c_long, libc::c_long) = (1, 0);
/// `IOPRIO_CLASS_IDLE` in the upper bits, as `IOPRIO_PRIO_VALUE` puts it there.
const IDLE: libc::c_long = 3 << 13;

/// Lets the calling thread's requests to disks wait until nobody else has any. The I/O schedulers BFQ
/// and mq-deadline obey; with none, as is usual for NVMe, nothing changes. Network traffic is not
/// affected.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn be_idle() -> io::Result<()> {
    let (who, which) = THIS_THREAD;
    // SAFETY: ioprio_set(2) takes three numbers and touches no memory of ours.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, who, which, IDLE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_idle_class_and_others_do_not() {
        let class = || {
            let (who, which) = THIS_THREAD;
            // SAFETY: ioprio_get(2) takes two numbers and touches no memory of ours.
            unsafe { libc::syscall(libc::SYS_ioprio_get, who, which) }
        };
        let before = class();
        let idle = std::thread::spawn(move || be_idle().map(|()| class()))
            .join()
            .unwrap();
        assert_eq!(idle.unwrap() >> 13, 3);
        assert_eq!(class(), before);
    }
}
