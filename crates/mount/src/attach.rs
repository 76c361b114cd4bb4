//! mount(2) for root.
//!
//! fuser mounts too, but as type `fuse`; `mount`, `findmnt -t` and systemd should see `fuse.ropeway`,
//! as fusermount3 makes it for ordinary users.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{getgid, getuid};

use crate::session::MountOptions;

/// Type of the file system.
const TYPE: &str = "fuse.ropeway";

/// Mounts on a folder and returns the connection to the kernel; `None` if this user may not mount
/// and needs fusermount3.
pub(crate) fn attach(path: &Path, options: &MountOptions, is_read_only: bool) -> io::Result<Option<OwnedFd>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mut data = format!(
        // The kernel checks modes, owners and ACLs: the store does not know who asks.
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data)?;
    match mount(
        options.source.as_str(),
        path,
        TYPE,
        flags(options, is_read_only),
        Some(data.as_c_str()),
    ) {
        Ok(()) => Ok(Some(device.into())),
        // Root of a container without CAP_SYS_ADMIN.
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// As with libfuse, set-id programs and devices count only if asked for.
fn flags(options: &MountOptions, is_read_only: bool) -> MountFlags {
    let has = |name: &str| options.kernel.iter().any(|known| known == name);
    let mut flags = MountFlags::empty();
    for (flag, is_set) in [
        (MountFlags::RDONLY, is_read_only),
        (MountFlags::NODEV, !has("dev")),
        (MountFlags::NOSUID, !has("suid")),
        (MountFlags::NOEXEC, has("noexec")),
        (MountFlags::NOATIME, has("noatime")),
        (MountFlags::SYNCHRONOUS, has("sync")),
        (MountFlags::DIRSYNC, has("dirsync")),
    ] {
        flags.set(flag, is_set);
    }
    flags
}
