//! statx(2) as metadata.

use std::os::fd::AsFd;

use ropeway_vfs::{FileId, Kind, Metadata, Owner, Timestamp};
use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp, statx};

use crate::winmeta::dos::Dos;

/// Bytes of one unit of `st_blocks`, on every Linux file system (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Fields asked of each node.
const MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Returns the metadata of a name in an open folder; follows no link and mounts nothing.
pub(crate) fn name(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Metadata> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(metadata(&statx(dir, name, flags, MASK)?))
}

/// Returns the metadata of an open node.
pub(crate) fn open(fd: impl AsFd) -> rustix::io::Result<Metadata> {
    Ok(metadata(&raw(fd, MASK)?))
}

/// Adds DOS attributes and creation time as [`winmeta`](crate::winmeta) has them.
pub(crate) fn with_dos(
    mut metadata: Metadata,
    read: impl FnOnce() -> rustix::io::Result<Dos>,
) -> rustix::io::Result<Metadata> {
    // Other nodes cannot have attributes of users (xattr(7)).
    if matches!(metadata.kind, Kind::File | Kind::Directory) {
        let dos = read()?;
        metadata.dos_attributes = dos.attributes;
        metadata.created = dos.created.or(metadata.created);
    }
    Ok(metadata)
}

/// Returns the raw statx(2) answer for an open node.
pub(crate) fn raw(fd: impl AsFd, mask: StatxFlags) -> rustix::io::Result<Statx> {
    statx(fd, c"", AtFlags::EMPTY_PATH, mask)
}

/// Whether the kernel generates a file as it is read, so that its size does not describe its content.
pub(crate) fn is_made_up(fd: impl AsFd) -> bool {
    // linux/magic.h: proc, sysfs, debugfs, tracefs, securityfs, configfs, cgroup, cgroup2, efivarfs.
    const MAGIC: [u32; 9] = [
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x6265_6570,
        0x0027_e0eb,
        0x6367_7270,
        0xde5e_81e4,
    ];
    // Types have 32 bits; the width and sign of the field depend on the architecture.
    rustix::fs::fstatfs(fd).is_ok_and(|volume| MAGIC.contains(&(volume.f_type as u32)))
}

/// Returns the kind of node that a mode stands for.
pub(crate) fn kind(mode: u32) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::File,
    }
}

/// Returns the volume's number in [`FileId`], as in `st_dev`.
pub(crate) fn volume(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

fn metadata(stat: &Statx) -> Metadata {
    let mode = u32::from(stat.stx_mode);
    let kind = kind(mode);
    let has = |flag: StatxFlags| stat.stx_mask & flag.bits() != 0;
    Metadata {
        kind,
        size: stat.stx_size,
        allocated: has(StatxFlags::BLOCKS).then_some(stat.stx_blocks * BLOCK_BYTES),
        mode: Some(mode & 0o7777),
        owner: Some(Owner {
            user: stat.stx_uid,
            group: stat.stx_gid,
        }),
        modified: time(&stat.stx_mtime),
        accessed: has(StatxFlags::ATIME).then(|| time(&stat.stx_atime)),
        changed: has(StatxFlags::CTIME).then(|| time(&stat.stx_ctime)),
        created: has(StatxFlags::BTIME).then(|| time(&stat.stx_btime)),
        id: Some(FileId {
            volume: volume(stat),
            index: stat.stx_ino,
        }),
        links: u64::from(stat.stx_nlink),
        device: matches!(kind, Kind::CharDevice | Kind::BlockDevice)
            .then_some((stat.stx_rdev_major, stat.stx_rdev_minor)),
        dos_attributes: None,
        has_xattrs: None,
        is_mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    }
}

fn time(time: &StatxTimestamp) -> Timestamp {
    Timestamp::from_unix(time.tv_sec, time.tv_nsec)
}
