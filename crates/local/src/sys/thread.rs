//! A umask of one's own for each worker thread.

use rustix::fs::Mode;

/// Gives the calling thread its own umask of 0, apart from the process's. False where the system forbids it.
///
/// The thread also gets its own current and root folder (`CLONE_FS`); workers use neither.
pub(crate) fn own_umask() -> bool {
    // SAFETY: CLONE_FS only separates the umask, current folder and root of this thread from the other threads';
    // no memory and no descriptor is concerned.
    let done = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
    if done {
        rustix::process::umask(Mode::empty());
    }
    done
}
