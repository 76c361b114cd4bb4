//! The mount table and the identity of this boot.

use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, openat, statx};

/// `STATX_MNT_ID` appeared in Linux 5.8, below what this program needs.
const MASK: StatxFlags = StatxFlags::MNT_ID.union(StatxFlags::BASIC_STATS);

/// One mounted file system (a line of proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountInfo {
    /// Its number in the table.
    pub id: u64,
    /// Major and minor device number, as of the files on it.
    pub device: (u32, u32),
    /// Mount point.
    pub mount_point: PathBuf,
    /// Type of file system, e.g. `ext4`, `fuse.sshfs`, `fuseblk`.
    pub fstype: String,
    /// Source: a device, a server's path, a program's name.
    pub source: String,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Folder of the file system that is mounted here: `/`, or another one for a bind mount.
    pub root: PathBuf,
    /// Options of the file system itself, e.g. `rw,lowerdir=/a,upperdir=/b` of an overlay.
    pub super_options: String,
}

/// Returns the mount that holds `path`; follows a link.
///
/// # Errors
/// When `path` cannot be examined, the table cannot be read, or the mount is not in it (other mount name space).
pub fn mount_of(path: &Path) -> io::Result<MountInfo> {
    let node = openat(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let id = statx(&node, c"", AtFlags::EMPTY_PATH, MASK)?.stx_mnt_id;
    mounts()?
        .into_iter()
        .find(|mount| mount.id == id)
        .ok_or_else(|| io::Error::other("the mount is not in this process's mount table"))
}

/// Returns all mounts that this process sees.
///
/// # Errors
/// When the table cannot be read.
pub fn mounts() -> io::Result<Vec<MountInfo>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Returns the kernel's random identity of this boot (random(4)); it changes when the machine restarts.
///
/// # Errors
/// When /proc is not there.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Returns the identity of the mount that holds `path`. Every mount has another one, so a volume that
/// was unplugged and plugged in again is not mistaken for the previous one (statx(2),
/// STATX_MNT_ID_UNIQUE, Linux 6.8; older kernels return a number that may be used again).
///
/// # Errors
/// When `path` cannot be examined.
pub fn mount_identity(path: &Path) -> io::Result<u64> {
    /// STATX_MNT_ID_UNIQUE of linux/stat.h; rustix does not name it yet.
    const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = MNT_ID_UNIQUE | StatxFlags::MNT_ID;
    Ok(statx(CWD, path, AtFlags::empty(), flags)?.stx_mnt_id)
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &[u8]) -> Option<MountInfo> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let text = |index: usize| {
        fields
            .get(index)
            .map(|field| String::from_utf8_lossy(&unescape(field)).into_owned())
    };
    let device = text(2)?;
    let (major, minor) = device.split_once(':')?;
    let read_only = |options: &str| options.split(',').any(|option| option == "ro");
    let path = |index: usize| {
        let field = fields.get(index)?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(unescape(field))))
    };
    Some(MountInfo {
        id: text(0)?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: path(3)?,
        mount_point: path(4)?,
        fstype: text(separator + 1)?,
        source: text(separator + 2)?,
        read_only: read_only(&text(5)?) || read_only(&text(separator + 3)?),
        super_options: text(separator + 3)?,
    })
}

/// Decodes blanks, tabs, newlines and backslashes, which the table writes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field
            .get(at + 1..at + 4)
            .filter(|_| field[at] == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(field[at]);
                at += 1;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_escapes_and_options_is_understood() {
        let line = br"36 35 98:7 /a /mnt/my\040disk ro,noatime shared:2 master:1 - fuse.fusefat /dev/sdb1 rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.device), (36, (98, 7)));
        assert_eq!(mount.mount_point, Path::new("/mnt/my disk"));
        assert_eq!(
            (mount.fstype.as_str(), mount.source.as_str()),
            ("fuse.fusefat", "/dev/sdb1")
        );
        assert!(mount.read_only);
        assert_eq!(
            (mount.root.as_path(), mount.super_options.as_str()),
            (Path::new("/a"), "rw,user_id=0")
        );
        for bad in [&b""[..], b"1 2 3", b"1 2 x:y / / rw - ext4 /dev/x rw", b"- - -"] {
            assert!(parse(bad).is_none());
        }
    }

    #[test]
    fn proc_is_found_and_the_boot_has_an_identity() {
        let mount = mount_of(Path::new("/proc/self/status")).unwrap();
        assert_eq!(mount.fstype, "proc");
        assert_eq!(boot_id().unwrap().len(), 36);
        assert!(mount_of(Path::new("/does/not/exist")).is_err());
    }
}
