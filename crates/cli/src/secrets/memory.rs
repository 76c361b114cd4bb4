//! What is in this process's memory, kept from other processes of the same user.

use std::sync::Once;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// From now on nobody but root attaches to this process or reads its memory, and it leaves no core file. Called before a
/// password is read; once is enough.
///
/// The files of `/proc/self` belong to root then (`PR_SET_DUMPABLE` in prctl(2)). Opening files anew by `/proc/self/fd` goes
/// on working without privileges, as the kernel always lets threads look at their own process.
pub(crate) fn keep_private() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let nothing = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        // A system that refuses one of them leaves things as they are elsewhere: no reason not to work.
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::debug!(%error, "memory can be dumped");
        }
        if let Err(error) = setrlimit(Resource::Core, nothing) {
            tracing::debug!(%error, "core files are not turned off");
        }
    });
}
