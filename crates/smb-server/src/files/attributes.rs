//! Conversion of a store's attributes to SMB: file attributes, times, sizes, file ids ([MS-FSCC]
//! 2.1, 2.6).

use ropeway_smb_proto::server::rules::create::VALID_ATTRIBUTES;
use ropeway_smb_wire::{FileAttributes, FileTime, NtStatus};
use ropeway_vfs::store::{NewNode, NodeStat, StoreFeatures};
use ropeway_vfs::{FileId, Kind, Timestamp};

/// Attributes that clients may set and a store keeps ([MS-FSCC] 2.6). Others follow from the kind
/// of a node or are set by FSCTLs.
pub(crate) const SETTABLE: FileAttributes = FileAttributes::from_bits_retain(
    FileAttributes::READONLY.bits()
        | FileAttributes::HIDDEN.bits()
        | FileAttributes::SYSTEM.bits()
        | FileAttributes::ARCHIVE.bits()
        | FileAttributes::TEMPORARY.bits()
        | FileAttributes::OFFLINE.bits()
        | FileAttributes::NOT_CONTENT_INDEXED.bits(),
);

/// Returns a node's attributes. `dot_name`: its name begins with a dot and such names are hidden,
/// whatever is stored. smbd does the same, so a folder looks alike through both.
///
/// Files without stored attributes have ARCHIVE, a hint for backups that Windows sets on every
/// changed file. Files whose attributes were all cleared have NORMAL.
pub(crate) fn of(stat: &NodeStat, dot_name: bool) -> FileAttributes {
    let mut attributes = match stat.dos_attributes {
        Some(kept) => FileAttributes::from_bits_retain(kept).difference(
            FileAttributes::NORMAL
                .union(FileAttributes::DIRECTORY)
                .union(FileAttributes::REPARSE_POINT),
        ),
        None => match stat.kind {
            Kind::Directory => FileAttributes::default(),
            _ => FileAttributes::ARCHIVE,
        },
    };
    if dot_name {
        attributes |= FileAttributes::HIDDEN;
    }
    match stat.kind {
        Kind::Directory => attributes |= FileAttributes::DIRECTORY,
        Kind::Symlink => attributes |= FileAttributes::REPARSE_POINT,
        _ => {}
    }
    if attributes.is_empty() {
        FileAttributes::NORMAL
    } else {
        attributes
    }
}

/// Returns what to store for a new node with the attributes of a CREATE. ARCHIVE is stored although
/// [`of`] reports it for files without attributes, because smbd with `map archive = no` does not.
pub(crate) fn new_node(directory: bool, attributes: FileAttributes) -> NewNode {
    let asked = attributes & SETTABLE;
    let by_default = match directory {
        true => FileAttributes::default(),
        false => FileAttributes::ARCHIVE,
    };
    // [MS-FSA] 2.1.5.1.1: a new file always has ARCHIVE.
    let first = asked | by_default;
    NewNode {
        directory,
        dos_attributes: (!first.is_empty()).then_some(first.bits()),
    }
}

/// Returns what to store when a client sets `attributes`, which must not be 0. Attributes that
/// clients cannot set stay.
pub(crate) fn changed(stat: &NodeStat, attributes: FileAttributes) -> u32 {
    let kept = FileAttributes::from_bits_retain(stat.dos_attributes.unwrap_or_default());
    (kept.difference(SETTABLE) | (attributes & SETTABLE)).bits()
}

/// Returns what to store when `set` is added to the attributes and `cleared` is removed.
pub(crate) fn adjusted(stat: &NodeStat, set: FileAttributes, cleared: FileAttributes) -> u32 {
    let derived = FileAttributes::NORMAL
        .union(FileAttributes::DIRECTORY)
        .union(FileAttributes::REPARSE_POINT);
    (of(stat, false).difference(derived).difference(cleared) | set).bits()
}

/// Whether a node is sparse.
pub(crate) fn is_sparse(stat: &NodeStat) -> bool {
    stat.dos_attributes
        .is_some_and(|kept| FileAttributes::from_bits_retain(kept).contains(FileAttributes::SPARSE_FILE))
}

/// Returns `EndOfFile` in bytes; 0 for folders and links.
pub(crate) fn end_of_file(stat: &NodeStat) -> u64 {
    match stat.kind {
        Kind::Directory | Kind::Symlink => 0,
        _ => stat.size,
    }
}

/// Returns `AllocationSize` in bytes, a multiple of the allocation unit; 0 for folders and links.
pub(crate) fn allocation_size(stat: &NodeStat, features: &StoreFeatures) -> u64 {
    match stat.kind {
        Kind::Directory | Kind::Symlink => 0,
        _ => round_up(stat.allocated, features.unit),
    }
}

/// Rounds a number of bytes up to whole units.
pub(crate) fn round_up(bytes: u64, unit: u32) -> u64 {
    let unit = u64::from(unit.max(1));
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes)
}

/// Returns `IndexNumber`, which is unique in the share. The upper bits distinguish nodes of other
/// volumes that are mounted in it.
pub(crate) fn index_number(id: FileId, features: &StoreFeatures) -> u64 {
    if id.volume == features.volume {
        id.index
    } else {
        id.index ^ id.volume.rotate_left(48)
    }
}

/// Returns the volume's serial number in 32 bits.
pub(crate) fn serial_32(features: &StoreFeatures) -> u32 {
    let folded = features.volume ^ (features.volume >> 32);
    u32::try_from(folded & u64::from(u32::MAX)).unwrap_or_default()
}

/// Returns a GUID made of two numbers.
pub(crate) fn guid(high: u64, low: u64) -> [u8; 16] {
    let mut guid = [0; 16];
    guid[..8].copy_from_slice(&high.to_le_bytes());
    guid[8..].copy_from_slice(&low.to_le_bytes());
    guid
}

/// Number of FILETIME steps of 100 ns from 1601 to 1970.
const UNIX_EPOCH_STEPS: i64 = 116_444_736_000_000_000;

/// Converts a store's time to FILETIME.
pub(crate) fn file_time(time: Timestamp) -> FileTime {
    // From 1677 to 2262, 64-bit division suffices. Listings convert four times in each record.
    if let Ok(nanoseconds) = i64::try_from(time.0) {
        let steps = UNIX_EPOCH_STEPS + nanoseconds.div_euclid(100);
        return FileTime(steps.unsigned_abs());
    }
    let (seconds, nanoseconds) = time.to_unix();
    FileTime::from_unix(seconds, nanoseconds)
}

/// Converts a FILETIME, which must be a time and not [`FileTime::KEEP`] or the like.
pub(crate) fn timestamp(time: FileTime) -> Timestamp {
    let (seconds, nanoseconds) = time.to_unix();
    Timestamp::from_unix(seconds, nanoseconds)
}

/// Checks that attributes can be set on a node ([MS-FSA] 2.1.5.15.2).
///
/// # Errors
/// STATUS_INVALID_PARAMETER.
pub(crate) fn check_settable(attributes: FileAttributes, directory: bool) -> Result<(), NtStatus> {
    let only_directories = attributes.contains(FileAttributes::DIRECTORY) && !directory;
    let only_files = attributes.contains(FileAttributes::TEMPORARY) && directory;
    if only_directories || only_files || !VALID_ATTRIBUTES.contains(attributes) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn attributes_follow_from_stored_bits_and_kind() {
        let mut stat = testing::stat(Kind::File);
        assert_eq!(of(&stat, false), FileAttributes::ARCHIVE);
        assert_eq!(of(&stat, true), FileAttributes::ARCHIVE | FileAttributes::HIDDEN);
        stat.dos_attributes = Some(0);
        assert_eq!(of(&stat, false), FileAttributes::NORMAL);
        assert_eq!(of(&stat, true), FileAttributes::HIDDEN);
        stat.dos_attributes = Some(0x202);
        assert_eq!(
            of(&stat, false),
            FileAttributes::HIDDEN | FileAttributes::SPARSE_FILE
        );
        assert!(is_sparse(&stat));
        assert_eq!(
            changed(&stat, FileAttributes::NORMAL),
            0x200,
            "sparse is not taken away"
        );
        assert_eq!(
            of(&testing::stat(Kind::Directory), false),
            FileAttributes::DIRECTORY
        );
        let link = of(&testing::stat(Kind::Symlink), false);
        assert_eq!(link, FileAttributes::REPARSE_POINT | FileAttributes::ARCHIVE);
    }

    #[test]
    fn new_files_store_archive_and_new_folders_only_what_is_asked_for() {
        let of_file = |attributes| new_node(false, attributes).dos_attributes;
        assert_eq!(of_file(FileAttributes::NORMAL), Some(0x20));
        assert_eq!(of_file(FileAttributes::ARCHIVE), Some(0x20));
        assert_eq!(of_file(FileAttributes::HIDDEN), Some(0x22));
        assert_eq!(new_node(true, FileAttributes::DIRECTORY).dos_attributes, None);
        assert_eq!(
            new_node(true, FileAttributes::READONLY).dos_attributes,
            Some(0x01)
        );
    }

    #[test]
    fn times_go_there_and_back() {
        let time = Timestamp::from_unix(1_700_000_000, 123_456_700);
        assert_eq!(timestamp(file_time(time)), time);
        for nanoseconds in [i64::MIN, -1, 0, 99, 100, i64::MAX].map(i128::from) {
            for near in -2..=2 {
                let time = Timestamp(nanoseconds + near);
                let (seconds, rest) = time.to_unix();
                assert_eq!(file_time(time), FileTime::from_unix(seconds, rest));
            }
        }
    }

    #[test]
    fn sizes_are_whole_units() {
        let features = testing::features();
        let mut stat = testing::stat(Kind::File);
        stat.allocated = 1;
        assert_eq!(allocation_size(&stat, &features), 4096);
        stat.allocated = u64::MAX;
        assert_eq!(
            allocation_size(&stat, &features),
            u64::MAX,
            "nothing is larger than 64 bits"
        );
    }

    #[test]
    fn invalid_attributes_are_refused() {
        assert!(check_settable(FileAttributes::DIRECTORY, false).is_err());
        assert!(check_settable(FileAttributes::TEMPORARY, true).is_err());
        assert!(check_settable(FileAttributes::from_bits_retain(0x8000_0000), false).is_err());
        assert!(check_settable(FileAttributes::READONLY | FileAttributes::HIDDEN, true).is_ok());
    }
}
