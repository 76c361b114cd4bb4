//! wait4(2): the end of a process and its processor time.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Reaps a child if it has ended; `None` if it runs. Returns the user and system time of it and of the
/// children that it waited for. (The peak memory in rusage is useless: it includes that of this process
/// before exec.)
pub(crate) fn wait_with_usage(pid: u32) -> io::Result<Option<(ExitStatus, Duration)>> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut status = 0;
    // SAFETY: rusage is plain data (integers), for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both live on this stack for the whole call, and the kernel writes one of each.
    let ended = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match ended {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some((
            ExitStatus::from_raw(status),
            time(usage.ru_utime) + time(usage.ru_stime),
        ))),
    }
}

fn time(value: libc::timeval) -> Duration {
    let seconds = u64::try_from(value.tv_sec).unwrap_or(0);
    let micros = u64::try_from(value.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    #[allow(clippy::zombie_processes, reason = "it is waited for by what is tested")]
    fn the_end_and_what_was_used_are_known() {
        let child = Command::new("sh")
            .args(["-c", "sleep 0.05; exit 3"])
            .spawn()
            .unwrap();
        assert!(wait_with_usage(child.id()).unwrap().is_none());
        let (status, usage) = loop {
            match wait_with_usage(child.id()).unwrap() {
                Some(ended) => break ended,
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        assert_eq!(status.code(), Some(3));
        assert!(usage < Duration::from_secs(5));
        assert!(wait_with_usage(child.id()).is_err());
    }
}
