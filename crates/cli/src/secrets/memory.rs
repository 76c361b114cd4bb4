//! Protects the memory of this process from other processes of the same user.

use std::sync::Once;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Stops other processes (except root's) from attaching to this one and reading its memory, and
/// turns core files off. Call it before a password is read; once is enough.
///
/// From then on the files of `/proc/self` belong to root (`PR_SET_DUMPABLE` in prctl(2)). Reopening
/// files through `/proc/self/fd` still works without privileges, because the kernel always lets a
/// thread inspect its own process.
pub(crate) fn protect_memory() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let nothing = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        // If the system refuses, memory is as open as that of other programs. That must not stop
        // the command.
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::debug!(%error, "memory can be dumped");
        }
        if let Err(error) = setrlimit(Resource::Core, nothing) {
            tracing::debug!(%error, "core files are not turned off");
        }
    });
}
