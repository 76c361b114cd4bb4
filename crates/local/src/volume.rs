//! Capabilities of a volume: from a table by type, or found by trying.
//!
//! File systems of the kernel are in the table. FUSE programs differ from one to the next: if the tree
//! may be written, a probe file in the root shows what they can hold.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ropeway_vfs::{Capabilities, Owner, Timestamp};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, StatxFlags, Uid};

use crate::attributes::{Node, set_times, xattr};
use crate::mounts::mount_of;
use crate::{executor, stat};

/// 4 GiB - 1: the largest file of FAT (Microsoft FAT specification, DIR_FileSize).
const FAT_FILE_MAX: u64 = u32::MAX as u64;

/// Jobs in flight on volumes where each call is a round trip to a server or program (a guess).
const REMOTE_THREADS: usize = 8;

/// Properties of the volume under an open root.
pub(crate) struct Volume {
    pub(crate) capabilities: Capabilities,
    /// Whether files of this volume can share blocks (FICLONE), judged by its type.
    pub(crate) may_reflink: bool,
}

/// Batches queued or running for each thread: enough to reach past a folder of 1,000 small files into
/// the next one, so that threads work in different folders (measured: 100,000 files, 1,000 in each
/// folder, 10 % faster than with 1).
const BATCHES_PER_THREAD: usize = 16;

/// Examines the volume under an open root; `threads` work on metadata and small files.
pub(crate) fn examine(root: &OwnedFd, path: &Path, probe: bool, threads: usize) -> Volume {
    let mount = mount_of(path).ok();
    let fstype = match &mount {
        Some(mount) if mount.fstype == "fuseblk" => on_device(&mount.source),
        Some(mount) => mount.fstype.as_str(),
        None => "",
    };
    let mut capabilities = by_type(root, fstype);
    let writable = mount.as_ref().is_none_or(|mount| !mount.read_only);
    if probe && writable && needs_probe(fstype) {
        try_out(root, &mut capabilities);
    }
    capabilities.batches_in_flight = if is_remote(fstype) {
        executor::ensure_short_threads(REMOTE_THREADS);
        threads.max(REMOTE_THREADS)
    } else {
        threads * BATCHES_PER_THREAD
    };
    let may_reflink = matches!(fstype, "btrfs" | "xfs" | "bcachefs" | "ocfs2");
    Volume {
        capabilities,
        may_reflink,
    }
}

/// Returns the type of the file system that a FUSE program has on a block device, by the name in its
/// boot sector (Microsoft exFAT specification, 3.1.2), if that may be read.
fn on_device(device: &str) -> &'static str {
    let mut sector = [0; 16];
    let read = std::fs::File::open(device).and_then(|mut device| device.read_exact(&mut sector));
    match (read, sector.get(3..11)) {
        (Ok(()), Some(b"EXFAT   ")) => "fuse.exfat",
        _ => "fuseblk",
    }
}

/// Whether the table does not describe this type well enough.
fn needs_probe(fstype: &str) -> bool {
    fstype.is_empty() || fstype.starts_with("fuse") || fstype == "9p" || fstype == "virtiofs"
}

fn is_remote(fstype: &str) -> bool {
    fstype.starts_with("nfs")
        || fstype.starts_with("fuse")
        || matches!(fstype, "cifs" | "smb3" | "9p" | "ceph")
}

/// Whether the data lies on another machine. Programs that show a file system through FUSE count, but for
/// those that are known to read a disk of this one.
fn is_on_network(fstype: &str) -> bool {
    let on_disk = ["exfat", "fat", "ntfs", "blk", "ext2"];
    is_remote(fstype) && !on_disk.iter().any(|known| fstype.contains(known))
}

fn by_type(root: &OwnedFd, fstype: &str) -> Capabilities {
    let name_max = rustix::fs::fstatvfs(root).map_or(255, |volume| volume.f_namemax.min(255) as usize);
    let mut volume = Capabilities {
        remote: false,
        on_network: is_on_network(fstype),
        far: false,
        page_cache: true,
        time_granularity_ns: 1,
        time_granularity_known: !needs_probe(fstype) && !is_remote(fstype),
        sizes_known: !stat::is_made_up(root),
        case_sensitive: true,
        name_max: if name_max == 0 { 255 } else { name_max },
        windows_names: false,
        raw_names: true,
        file_size_max: i64::MAX as u64,
        owners: true,
        modes: true,
        xattrs: true,
        short_xattrs: false,
        security: false,
        symlinks: true,
        hard_links: true,
        special_files: true,
        sparse: true,
        stable_ids: true,
        journals_metadata: journals_metadata(root, fstype),
        // fusefat loses the content. A look right after the rename does not show it: the kernel still has
        // the names cached.
        folder_renames: !fstype.starts_with("fuse") && !fstype.is_empty(),
        replaces_open: true,
        creation_times: false,
        batches_in_flight: 2,
        small_in_flight: 1,
        small_puts_in_flight: 0,
        small_gets_in_flight: 0,
        blocks_in_flight: 0,
        named_streams: false,
        links_shown: true,
    };
    match fstype {
        // Inodes of 128 bytes have neither a creation time nor parts of seconds.
        "ext2" | "ext3" | "ext4" if !has_creation_time(root) => volume.time_granularity_ns = 1_000_000_000,
        "vfat" | "msdos" | "fuse.fusefat" | "fusefat" => {
            microsoft(&mut volume, 2_000_000_000);
            volume.file_size_max = FAT_FILE_MAX;
        }
        "exfat" | "fuse.exfat" | "fuse.exfat-fuse" => microsoft(&mut volume, 10_000_000),
        // ntfs-3g and exfat-fuse: as a source they are never probed, and their names count as mapped.
        "fuseblk" => {
            volume.time_granularity_ns = 100;
            volume.windows_names = true;
            volume.raw_names = false;
        }
        "ntfs" | "ntfs3" | "fuse.ntfs-3g" => volume.time_granularity_ns = 100,
        "cifs" | "smb3" => {
            volume.time_granularity_ns = 100;
            volume.case_sensitive = false;
            volume.owners = false;
            volume.modes = false;
        }
        "hfsplus" => {
            volume.time_granularity_ns = 1_000_000_000;
            volume.case_sensitive = false;
            volume.sparse = false;
        }
        "udf" => volume.time_granularity_ns = 1_000,
        "fuse.sshfs" => {
            volume.time_granularity_ns = 1_000_000_000;
            volume.xattrs = false;
            volume.stable_ids = false;
        }
        fuse if fuse.starts_with("fuse") => volume.stable_ids = false,
        _ => {}
    }
    volume
}

/// Whether a failed write leaves the metadata intact. Of other types (FAT, exFAT, ext2, anything behind
/// FUSE) nothing is known.
fn journals_metadata(root: &OwnedFd, fstype: &str) -> bool {
    match fstype {
        "ext4" => has_journal(root),
        _ => matches!(
            fstype,
            "xfs" | "btrfs" | "ext3" | "f2fs" | "jfs" | "nilfs2" | "zfs" | "bcachefs" | "tmpfs"
        ),
    }
}

/// ext4 may have no journal: then `journal_task` in its folder of sysfs(5) is `<none>`.
fn has_journal(root: &OwnedFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(root) else {
        return false;
    };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"))
        .ok()
        .and_then(|device| {
            let name = device.file_name()?.to_str()?.to_owned();
            std::fs::read_to_string(format!("/sys/fs/ext4/{name}/journal_task")).ok()
        })
        .is_some_and(|task| task.trim().parse::<u32>().is_ok())
}

fn microsoft(volume: &mut Capabilities, time_granularity_ns: u64) {
    volume.time_granularity_ns = time_granularity_ns;
    volume.case_sensitive = false;
    volume.windows_names = true;
    volume.raw_names = false;
    volume.owners = false;
    volume.modes = false;
    volume.xattrs = false;
    volume.symlinks = false;
    volume.hard_links = false;
    volume.special_files = false;
    volume.sparse = false;
    volume.stable_ids = false;
}

fn has_creation_time(root: &OwnedFd) -> bool {
    stat::raw(root, StatxFlags::BTIME).is_ok_and(|stat| stat.stx_mask & StatxFlags::BTIME.bits() != 0)
}

/// Examines the volume by a probe file in the root. If the root cannot be written, the table's entry
/// stands.
fn try_out(root: &OwnedFd, volume: &mut Capabilities) {
    let stem = format!(
        ".ropeway-probe-{}-{:x}",
        rustix::process::getpid(),
        nanoseconds_now()
    );
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(root, stem.as_str(), flags, Mode::RUSR | Mode::WUSR) else {
        return;
    };
    if let Some(found) = time_granularity(&file) {
        volume.time_granularity_ns = found;
        volume.time_granularity_known = true;
    }
    volume.modes = keeps_modes(&file);
    volume.owners = keeps_owners(&file);
    volume.xattrs = xattr::set(&Node::File(file.as_fd()), b"user.ropeway", b"1").is_ok();
    volume.sparse = keeps_holes(&file);
    let upper = stem.to_uppercase();
    volume.case_sensitive = stat::name(root, upper.as_bytes()).is_err();
    let tried = |suffix: &str, make: &dyn Fn(&str) -> rustix::io::Result<()>| {
        let name = format!("{stem}{suffix}");
        let made = make(&name).is_ok();
        // Even after an error: fusefat refuses a FIFO and leaves a file in its place.
        let _ = rustix::fs::unlinkat(root, name.as_str(), AtFlags::empty());
        made
    };
    let create = |name: &str| rustix::fs::openat(root, name, flags, Mode::RUSR).map(drop);
    volume.windows_names = !(tried("-a:b", &create) && tried("-a?b", &create) && tried("-a\"b", &create));
    volume.raw_names = !volume.windows_names;
    volume.symlinks = tried("-s", &|name| rustix::fs::symlinkat(stem.as_str(), root, name));
    volume.hard_links = tried("-h", &|name| {
        rustix::fs::linkat(root, stem.as_str(), root, name, AtFlags::empty())
    });
    volume.special_files = tried("-f", &|name| rustix::fs::mkfifoat(root, name, Mode::RUSR));
    drop(file);
    let _ = rustix::fs::unlinkat(root, stem.as_str(), AtFlags::empty());
}

fn nanoseconds_now() -> u128 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos())
}

/// Sets an odd time and reads back what the volume keeps of it.
fn time_granularity(file: &OwnedFd) -> Option<u64> {
    // An odd second with an odd nanosecond, in 2033: later than any clock in use.
    let wanted = Timestamp::from_unix(2_000_000_001, 123_456_789);
    set_times(
        &Node::File(file.as_fd()),
        Some(wanted),
        Some(wanted),
        &mut Vec::new(),
    )
    .ok()?;
    let kept = stat::open(file).ok()?.modified;
    Some(granularity_of(wanted, kept))
}

fn granularity_of(wanted: Timestamp, kept: Timestamp) -> u64 {
    // Nanoseconds, NTFS, microseconds, milliseconds, exFAT, seconds, FAT.
    let known = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];
    known
        .into_iter()
        // If rounding changes the second, the volume counts in steps of two seconds.
        .filter(|_| kept.to_unix().0 == wanted.to_unix().0)
        .find(|step| wanted.equal_within(kept, *step) && kept.0 % i128::from(*step) == 0)
        .unwrap_or(2_000_000_000)
}

fn keeps_modes(file: &OwnedFd) -> bool {
    [0o640u32, 0o604].iter().all(|mode| {
        rustix::fs::fchmod(file, Mode::from_raw_mode(*mode)).is_ok()
            && stat::open(file).is_ok_and(|now| now.mode == Some(*mode))
    })
}

/// Whether the volume stores owners. Without privilege this cannot be tried; then it counts as true.
fn keeps_owners(file: &OwnedFd) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let owner = Owner { user: 1, group: 1 };
    rustix::fs::fchown(file, Some(Uid::from_raw(1)), Some(Gid::from_raw(1))).is_ok()
        && stat::open(file).is_ok_and(|now| now.owner == Some(owner))
}

fn keeps_holes(file: &OwnedFd) -> bool {
    // 1 MiB: larger than any cluster.
    rustix::fs::ftruncate(file, 1 << 20).is_ok()
        && stat::open(file).is_ok_and(|now| now.allocated.is_some_and(|bytes| bytes < 1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granularity_is_told_by_what_remains() {
        let wanted = Timestamp::from_unix(2_000_000_001, 123_456_789);
        let of = |seconds, nanoseconds| granularity_of(wanted, Timestamp::from_unix(seconds, nanoseconds));
        assert_eq!(of(2_000_000_001, 123_456_789), 1);
        assert_eq!(of(2_000_000_001, 123_456_700), 100);
        assert_eq!(of(2_000_000_001, 120_000_000), 10_000_000);
        assert_eq!(of(2_000_000_001, 0), 1_000_000_000);
        assert_eq!(of(2_000_000_000, 0), 2_000_000_000);
        assert_eq!(of(2_000_000_002, 0), 2_000_000_000);
    }

    #[test]
    fn trying_out_agrees_with_what_is_known_and_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let root: OwnedFd = std::fs::File::open(base.path()).unwrap().into();
        let mut tried = by_type(&root, "");
        try_out(&root, &mut tried);
        let known = Capabilities {
            time_granularity_known: true,
            ..by_type(&root, "")
        };
        assert_eq!(tried, known);
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
        let fat = by_type(&root, "fuse.fusefat");
        assert!(fat.windows_names && !fat.modes && fat.time_granularity_ns == 2_000_000_000);
    }
}
