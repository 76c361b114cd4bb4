//! Features of the root's volume, by the magic numbers of statfs(2) (linux/magic.h).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ropeway_vfs::store::{StoreFeatures, Versioning};
use ropeway_vfs::{Space, Timestamp};
use rustix::fs::{StatVfsMountFlags, StatxFlags, fgetxattr, fstatfs, fstatvfs};
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::stat;
use crate::winmeta::dos;

/// Volumes whose pages are always in memory: tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Volumes that other machines change unseen by this kernel: nfs, fuse, smb2, cifs, 9p, ceph, afs, ocfs2,
/// gfs2, coda.
const SHARED: [u64; 10] = [
    0x6969,
    0x6573_5546,
    0xfe53_4d42,
    0xff53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x7461_636f,
    0x0116_1970,
    0x7375_7245,
];

/// Case-insensitive volumes: msdos (vfat), exfat, smb2, cifs.
const CASELESS: [u64; 4] = [0x4d44, 0x2011_bab0, 0xfe53_4d42, 0xff53_4d42];

/// Volumes without holes: msdos (vfat), exfat, hfs+.
const SOLID: [u64; 3] = [0x4d44, 0x2011_bab0, 0x482b];

/// Volumes of this machine with change times of their own, that only the kernel's clock sets: ext2 to 4, xfs,
/// btrfs, zfs, f2fs, bcachefs, jfs, tmpfs, overlay.
const STAMPED: [u64; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
    0x3153_464a,
    0x0102_1994,
    0x794c_7630,
];

/// A page written through a memory mapping gets a change time when it is written first, and again only after
/// the kernel has written it back, 35 s later by default (vm.dirty_expire_centisecs).
const SETTLE: Duration = Duration::from_secs(60);

/// Ways to keep the index of a folder current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indexing {
    /// inotify reports all changes.
    Watched,
    /// Only reading the folder shows changes.
    Rescanned,
    /// No index: the volume finds other spellings itself.
    Needless,
}

/// Returns how folders of a descriptor's volume are indexed.
pub(super) fn indexing(fd: BorrowedFd<'_>) -> Indexing {
    let magic = magic(fd);
    if CASELESS.contains(&magic) {
        Indexing::Needless
    } else if magic == 0 || SHARED.contains(&magic) {
        Indexing::Rescanned
    } else {
        Indexing::Watched
    }
}

/// Whether all reads of the volume are from memory.
pub(super) fn in_memory(fd: BorrowedFd<'_>) -> bool {
    IN_MEMORY.contains(&magic(fd))
}

/// Returns the features of a store on the volume.
pub(super) fn features(root: BorrowedFd<'_>) -> rustix::io::Result<StoreFeatures> {
    let volume = fstatvfs(root)?;
    let stat = stat::raw(root, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let created = if has_birth { stat.stx_btime } else { stat.stx_mtime };
    let own = match volume.f_fsid {
        0 => stat::volume(&stat),
        id => id,
    };
    let name_max = volume.f_namemax.min(255) as usize;
    Ok(StoreFeatures {
        volume: own,
        name_max: if name_max == 0 { 255 } else { name_max },
        unit: u32::try_from(volume.f_frsize)
            .ok()
            .filter(|unit| *unit > 0)
            .unwrap_or(4096),
        read_only: volume.f_flag.contains(StatVfsMountFlags::RDONLY),
        sparse: !SOLID.contains(&magic(root)),
        windows_metadata: has_xattrs(root),
        created: Timestamp::from_unix(created.tv_sec, created.tv_nsec),
    })
}

/// Returns the space of the volume.
pub(super) fn space(root: BorrowedFd<'_>) -> rustix::io::Result<Space> {
    let volume = fstatvfs(root)?;
    Ok(Space {
        total: volume.f_blocks.saturating_mul(volume.f_frsize),
        available: volume.f_bavail.saturating_mul(volume.f_frsize),
        nodes_available: (volume.f_files > 0).then_some(volume.f_favail),
    })
}

/// Returns how versions of files are told apart, on volumes where they are.
pub(super) fn versioning(root: BorrowedFd<'_>) -> Option<Versioning> {
    if !STAMPED.contains(&magic(root)) {
        return None;
    }
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    Some(Versioning {
        now: Timestamp::from_unix(now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0)),
        settle: SETTLE,
        memory: Duration::ZERO,
        writes_at_once: true,
    })
}

fn has_xattrs(root: BorrowedFd<'_>) -> bool {
    let mut value = [0; dos::BYTES_MAX];
    !matches!(
        fgetxattr(root, dos::NAME, &mut value),
        Err(Errno::OPNOTSUPP | Errno::NOSYS)
    )
}

/// Returns the magic number of the type; 0 if unknown. Only 32 bits count: some have the highest bit set.
fn magic(fd: BorrowedFd<'_>) -> u64 {
    fstatfs(fd).map_or(0, |volume| u64::from(volume.f_type as u32))
}
