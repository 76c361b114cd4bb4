//! Mount points: what may be mounted on, what is mounted, and how it is unmounted.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::MountError;

/// A line of mountinfo (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// Major and minor number of the mounted volume, as text: `0:57`.
    pub device: String,
    /// Where it is mounted.
    pub path: PathBuf,
    /// Type of the file system.
    pub kind: String,
}

/// Checks that a folder can be mounted on, and returns its path without links.
///
/// # Errors
/// It is missing, no folder, a dead mount, a mount point already or (unless `may_hold_files`) not
/// empty.
pub fn check(path: &Path, may_hold_files: bool) -> Result<PathBuf, MountError> {
    let failed = |error: io::Error| match error.raw_os_error() {
        // ENOENT, ENOTDIR of a component, ENOTCONN of a mount whose process is dead.
        Some(2) => MountError::Missing(path.into()),
        Some(20) => MountError::NoFolder(path.into()),
        Some(107) => MountError::Stale(path.into()),
        _ => MountError::Failed(path.into(), error),
    };
    let whole = path.canonicalize().map_err(failed)?;
    if !whole.metadata().map_err(failed)?.is_dir() {
        return Err(MountError::NoFolder(path.into()));
    }
    if may_hold_files {
        return Ok(whole);
    }
    if mounted_on(&whole).is_some() {
        return Err(MountError::Busy(path.into()));
    }
    match whole.read_dir().map_err(failed)?.next() {
        None => Ok(whole),
        Some(_) => Err(MountError::NotEmpty(path.into())),
    }
}

/// Returns the mount that is on top at a path without links.
pub fn mounted_on(path: &Path) -> Option<MountLine> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    let mut lines = text.split(|byte| *byte == b'\n').filter_map(parse);
    lines.rfind(|line| line.path == path)
}

/// Unmounts; `lazily` even while files are open, for whom the mount ends with the last of them.
///
/// # Errors
/// EBUSY while files are open, EINVAL if nothing is mounted there.
pub fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
    let flags = match lazily {
        true => UnmountFlags::DETACH,
        false => UnmountFlags::empty(),
    } | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(path, flags) {
        // Only root may; fusermount3 is set-user-id root for the others.
        Err(Errno::PERM) => unmount_by_helper(path, lazily),
        result => Ok(result?),
    }
}

/// Detaches the mount on a path if it is the one of this device.
pub(crate) fn detach(path: &Path, device: &str) {
    if mounted_on(path).is_some_and(|line| line.device == device) {
        // Nobody is left to hear of a failure; `umount` by hand still works.
        let _ = unmount(path, true);
    }
}

/// Detaches the mount on a path if it is the one of this device and its process is gone. The kernel
/// gives device numbers again, so the number alone may be that of a later mount.
pub fn detach_dead(path: &Path, device: &str) {
    // Asks the process that serves, whatever the kernel has in its cache.
    let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let asked = statx(CWD, path, flags, StatxFlags::BASIC_STATS);
    if matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED)) {
        detach(path, device);
    }
}

fn unmount_by_helper(path: &Path, lazily: bool) -> io::Result<()> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u").arg("-q");
    if lazily {
        helper.arg("-z");
    }
    helper
        .arg("--")
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match helper.status()?.success() {
        true => Ok(()),
        false => Err(Errno::BUSY.into()),
    }
}

fn parse(line: &[u8]) -> Option<MountLine> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mut fields = line.split(|byte| *byte == b' ');
    let device = text(fields.nth(2)?);
    let path = PathBuf::from(unescape(fields.nth(1)?));
    // Optional fields end with a dash.
    let kind = text(fields.skip_while(|field| *field != b"-").nth(1)?);
    Some(MountLine { device, path, kind })
}

/// Decodes `\040` and the like.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Lets the kernel read ahead further than its default of 128 KiB; only root may set it.
pub(crate) fn set_read_ahead(path: &Path, bytes: u32) {
    let Some(line) = mounted_on(path) else {
        return;
    };
    let setting = format!("/sys/class/bdi/{}/read_ahead_kb", line.device);
    let _ = std::fs::write(setting, (bytes / 1024).to_string());
}

/// Whether a path lies beneath another, or is the same.
pub fn is_beneath(path: &Path, folder: &Path) -> bool {
    path.as_os_str()
        .as_bytes()
        .starts_with(folder.as_os_str().as_bytes())
        && path.starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read() {
        let line = b"36 35 0:57 / /mnt/a\\040b rw,noatime shared:1 - fuse.ropeway /srv/x rw,user_id=0";
        let parsed = parse(line).unwrap();
        assert_eq!(parsed.device, "0:57");
        assert_eq!(parsed.path, Path::new("/mnt/a b"));
        assert_eq!(parsed.kind, "fuse.ropeway");
        assert_eq!(parse(b""), None);
        assert_eq!(unescape(b"a\\13"), "a\\13");
    }

    #[test]
    fn mount_points_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        std::fs::write(folder.path().join("file"), b"").unwrap();
        assert_eq!(check(&empty, false).unwrap(), empty.canonicalize().unwrap());
        let refused = |path: &Path| check(path, false).unwrap_err();
        assert!(matches!(refused(folder.path()), MountError::NotEmpty(_)));
        assert!(matches!(
            refused(&folder.path().join("file")),
            MountError::NoFolder(_)
        ));
        assert!(matches!(
            refused(&folder.path().join("none")),
            MountError::Missing(_)
        ));
        assert!(matches!(refused(Path::new("/proc")), MountError::Busy(_)));
        check(folder.path(), true).unwrap();
        assert!(is_beneath(Path::new("/a/b"), Path::new("/a")));
        assert!(!is_beneath(Path::new("/ab"), Path::new("/a")));
    }
}
