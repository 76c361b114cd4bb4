//! User namespaces, which give an ordinary user root's rights over new network namespaces.

use std::fs;

use super::error::LinkError;
use super::namespace::Namespace;
use super::sys;

/// Whether this process may create network namespaces.
pub fn can_make_namespaces() -> bool {
    Namespace::create().is_ok()
}

/// Moves this process into a user namespace in which it is root, as `unshare -Ur` does. The process must
/// have only one thread.
///
/// Files keep their owners, and the process gains no rights over them.
///
/// # Errors
/// User namespaces are not permitted, or there are several threads.
pub fn enter_user_namespace() -> Result<(), LinkError> {
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    sys::new_user_namespace().map_err(|error| LinkError::of("make a user namespace", error))?;
    // user_namespaces(7): setgroups must be denied before an ordinary user may write gid_map.
    let write = |path: &str, text: &str| {
        fs::write(path, text).map_err(|error| LinkError::of("write the map of a user namespace", error))
    };
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {user} 1"))?;
    write("/proc/self/gid_map", &format!("0 {group} 1"))
}
