//! Attributes as the mount shows them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Kind, Timestamp};

/// Size that stat(2) advises for reads and writes, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// Bytes of a unit of `st_blocks` (stat(2)).
const UNIT_BYTES: u64 = 512;

/// Owner and mode to show instead of the store's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// User id of every node.
    pub user: Option<u32>,
    /// Group id of every node.
    pub group: Option<u32>,
    /// Permission bits that no node shows.
    pub umask: u32,
}

impl View {
    /// Returns the attributes of a node as FUSE has them; `device` is that of a device node.
    pub(crate) fn attributes(&self, ino: u64, stat: &NodeStat, device: Option<(u32, u32)>) -> FileAttr {
        let modified = system_time(stat.modified);
        FileAttr {
            ino: INodeNo(ino),
            size: stat.size,
            blocks: stat.allocated.div_ceil(UNIT_BYTES),
            atime: stat.accessed.known().map_or(modified, system_time),
            mtime: modified,
            ctime: stat.changed.known().map_or(modified, system_time),
            crtime: stat.created.known().map_or(modified, system_time),
            kind: file_type(stat.kind),
            perm: (stat.mode & 0o7777 & !self.umask) as u16,
            nlink: u32::try_from(stat.links).unwrap_or(u32::MAX),
            uid: self.user.unwrap_or(stat.owner.user),
            gid: self.group.unwrap_or(stat.owner.group),
            rdev: device.map_or(0, |(major, minor)| encode_device(major, minor)),
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }
}

/// Returns the kind as FUSE has it.
pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// Encodes a device number as the kernel's `new_encode_dev` (linux/kdev_t.h) does.
fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Decodes a device number of a request (`new_decode_dev`).
pub(crate) fn decode_device(device: u32) -> (u32, u32) {
    (
        (device & 0xf_ff00) >> 8,
        (device & 0xff) | ((device >> 12) & 0xf_ff00),
    )
}

/// Converts a time; an unknown one is 1970.
fn system_time(time: Timestamp) -> SystemTime {
    let (seconds, nanoseconds) = time.known().unwrap_or_default().to_unix();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    base.map_or(UNIX_EPOCH, |base| base + Duration::from_nanos(nanoseconds.into()))
}

/// Converts a time of a request.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let nanoseconds = |span: Duration| i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp(nanoseconds(after)),
        Err(before) => Timestamp(-nanoseconds(before.duration())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(1, 3), (8, 0), (259, 1), (4095, 0xf_ffff)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
    }

    proptest! {
        #[test]
        fn times_survive(seconds in -(1_i64 << 33)..1 << 34, nanoseconds in 0_u32..1_000_000_000) {
            let time = Timestamp::from_unix(seconds, nanoseconds);
            prop_assert_eq!(timestamp(system_time(time)), time);
        }
    }
}
