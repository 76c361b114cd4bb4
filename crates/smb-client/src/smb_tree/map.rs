//! Converts between SMB's metadata and that of a tree. Pure.

use ropeway_smb_wire::fsctl::reparse::ReparseTag;
use ropeway_smb_wire::info::{DirectoryRecord, FileAllInformation, FileBasicInformation, FsAttributes};
use ropeway_smb_wire::{FileAttributes, FileTime};
use ropeway_vfs::{Capabilities, FileId, Kind, Loss, Metadata, MetadataChange, Timestamp};

use crate::open::{Created, KEPT};
use crate::share::Volume;
use crate::times::{file_time, known};

/// Small files in flight on a short line: what one of 622 Mbit/s and 75 ms holds of files of 32 KiB
/// (180), and some for the server's own time.
const SMALL_IN_FLIGHT: usize = 256;
/// The same on a long line, where empty files cost as many round trips as others: 15,000 a second at 75 ms.
/// Each takes five of the 8,192 credits that servers grant, and memory.
pub(crate) const SMALL_IN_FLIGHT_FAR: usize = 1280;
/// Those on a long line to a server that makes or reads many with one request: 36,000 a second at 75 ms,
/// more than two cores make. They take few credits and less memory.
pub(crate) const SMALL_TOGETHER_IN_FLIGHT: usize = 3072;
/// Blocks in flight on a short line. A guess: enough to keep a server's disk busy.
pub(crate) const BLOCKS_NEAR: usize = 12;
/// Blocks in flight on a long line: 622 Mbit/s and 75 ms hold 5.8 MB and as much in the queue, and
/// TCP reaches its speed sooner with more requests (measured there, 100 MB: 2.6 s with 12, 2.5 s
/// with 28).
pub(crate) const BLOCKS_FAR: usize = 28;
/// Folders processed at the same time.
const BATCHES_IN_FLIGHT: usize = 16;

/// Returns the kind of a node by its attributes and reparse tag. `None`: only its reparse data
/// decide.
pub fn kind(attributes: FileAttributes, tag: Option<ReparseTag>) -> Option<Kind> {
    let plain = match attributes.contains(FileAttributes::DIRECTORY) {
        true => Kind::Directory,
        false => Kind::File,
    };
    if !attributes.contains(FileAttributes::REPARSE_POINT) {
        return Some(plain);
    }
    match tag? {
        ReparseTag::NFS => None,
        // Deduplicated, in a cloud, …: the server shows the content.
        tag => Some(kind_of_tag(tag).unwrap_or(plain)),
    }
}

/// Returns the kind of a reparse point whose content the server does not show.
pub(crate) fn kind_of_tag(tag: ReparseTag) -> Option<Kind> {
    Some(match tag {
        ReparseTag::SYMLINK | ReparseTag::MOUNT_POINT | ReparseTag::LX_SYMLINK => Kind::Symlink,
        ReparseTag::LX_FIFO => Kind::Fifo,
        ReparseTag::AF_UNIX => Kind::Socket,
        ReparseTag::LX_CHR => Kind::CharDevice,
        ReparseTag::LX_BLK => Kind::BlockDevice,
        _ => return None,
    })
}

/// Returns the metadata of a node that is no reparse point, or whose kind is filled in later.
pub fn basic(basic: &FileBasicInformation, size: u64, allocated: u64) -> Metadata {
    let is_directory = basic.attributes.contains(FileAttributes::DIRECTORY);
    let kind = kind(basic.attributes, None).unwrap_or(Kind::File);
    Metadata {
        size: if is_directory { 0 } else { size },
        allocated: (!is_directory).then_some(allocated),
        accessed: known(basic.last_access_time),
        changed: known(basic.change_time),
        created: known(basic.creation_time),
        dos_attributes: Some((basic.attributes.bits()) & KEPT.bits()),
        ..Metadata::bare(
            kind,
            size,
            known(basic.last_write_time).unwrap_or(Timestamp::UNKNOWN),
        )
    }
}

/// Returns the id of a file number; 0 and -1 are none ([MS-FSCC] 2.1.9).
pub fn id(volume: u64, index: u64) -> Option<FileId> {
    (index != 0 && index != u64::MAX).then_some(FileId { volume, index })
}

/// Converts the reply to a query.
pub(crate) fn all(all: &FileAllInformation, volume: u64) -> Metadata {
    let standard = &all.standard;
    Metadata {
        id: id(volume, all.internal.index_number),
        links: u64::from(standard.number_of_links.max(1)),
        ..basic(&all.basic, standard.end_of_file, standard.allocation_size)
    }
}

/// Converts the reply to CREATE.
pub(crate) fn created(created: &Created, volume: u64) -> Metadata {
    Metadata {
        id: created
            .on_disk_id
            .and_then(|on_disk| id(volume, on_disk.disk_file_id)),
        ..basic(&created.basic, created.end_of_file, created.allocation_size)
    }
}

/// Converts a record of a directory, which lacks the number of links.
pub(crate) fn record(record: &DirectoryRecord, volume: u64) -> Metadata {
    let times = FileBasicInformation {
        creation_time: record.creation_time,
        last_access_time: record.last_access_time,
        last_write_time: record.last_write_time,
        change_time: record.change_time,
        attributes: record.attributes,
    };
    Metadata {
        id: u64::try_from(record.file_id)
            .ok()
            .and_then(|index| id(volume, index)),
        ..basic(&times, record.end_of_file, record.allocation_size)
    }
}

/// Returns the times and attributes to set; `None` if the change holds none.
pub fn change(change: &MetadataChange, is_directory: bool) -> Option<FileBasicInformation> {
    let time = |time: Option<Timestamp>| time.and_then(Timestamp::known).map_or(FileTime::KEEP, file_time);
    let attributes = change.dos_attributes.map_or(FileAttributes::default(), |bits| {
        match FileAttributes::from_bits_retain(bits & KEPT.bits()) {
            // 0 would leave the attributes unchanged.
            kept if kept.is_empty() && is_directory => FileAttributes::DIRECTORY,
            kept if kept.is_empty() => FileAttributes::NORMAL,
            kept => kept,
        }
    });
    let information = FileBasicInformation {
        creation_time: time(change.created),
        last_access_time: time(change.accessed),
        last_write_time: time(change.modified),
        change_time: FileTime::KEEP,
        attributes,
    };
    (information != FileBasicInformation::default()).then_some(information)
}

/// Returns the parts of a change that no share can store.
pub fn losses(change: &MetadataChange) -> Vec<Loss> {
    let mut losses = Vec::new();
    losses.extend(change.owner.map(|_| Loss::Owner));
    losses.extend(change.mode.map(|_| Loss::Mode));
    losses
}

/// Returns the capabilities of a share. Its claim of case-sensitive names is ignored: NTFS and
/// Samba claim that for shares that are not.
pub(crate) fn capabilities(volume: &Volume, acls: bool) -> Capabilities {
    let can = |flag| volume.attributes.attributes.contains(flag);
    let says_ntfs = volume.attributes.file_system_name.to_string_lossy() == "NTFS";
    let name_max = volume.attributes.maximum_component_name_length;
    Capabilities {
        remote: true,
        on_network: true,
        far: false,
        page_cache: false,
        time_granularity_ns: 100,
        time_granularity_known: false,
        sizes_known: true,
        case_sensitive: false,
        name_max: if name_max == 0 {
            255
        } else {
            name_max.min(255) as usize
        },
        windows_names: true,
        // `names::to_wire` encodes them.
        raw_names: true,
        file_size_max: i64::MAX as u64,
        owners: false,
        modes: false,
        xattrs: false,
        // Samba supports them without announcing it, and refuses them if so configured.
        short_xattrs: can(FsAttributes::SUPPORTS_EXTENDED_ATTRIBUTES) || says_ntfs,
        security: acls,
        folder_renames: true,
        replaces_open: false,
        creation_times: true,
        links_shown: can(FsAttributes::SUPPORTS_REPARSE_POINTS),
        symlinks: can(FsAttributes::SUPPORTS_REPARSE_POINTS),
        // Samba supports them without announcing it.
        hard_links: can(FsAttributes::SUPPORTS_HARD_LINKS) || says_ntfs,
        special_files: false,
        sparse: can(FsAttributes::SUPPORTS_SPARSE_FILES),
        stable_ids: true,
        journals_metadata: true,
        batches_in_flight: BATCHES_IN_FLIGHT,
        small_in_flight: SMALL_IN_FLIGHT,
        small_puts_in_flight: 0,
        small_gets_in_flight: 0,
        blocks_in_flight: BLOCKS_NEAR,
        named_streams: can(FsAttributes::NAMED_STREAMS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_survive_to_100_ns(seconds in -11_000_000_000_i64..200_000_000_000, nanoseconds in 0_u32..1_000_000_000) {
            let time = Timestamp::from_unix(seconds, nanoseconds);
            let back = crate::times::timestamp(file_time(time));
            prop_assert!(back.equal_within(time, 100));
            prop_assert_eq!(file_time(back), file_time(time), "a second pass changes nothing");
        }
    }

    /// A server without a time used to produce files of 1601.
    #[test]
    fn a_missing_time_is_unknown() {
        for none in [0, u64::MAX, u64::MAX - 1, 1 << 63] {
            let entry = DirectoryRecord {
                creation_time: FileTime(none),
                last_access_time: FileTime(none),
                last_write_time: FileTime(none),
                change_time: FileTime(none),
                ..DirectoryRecord::default()
            };
            let metadata = record(&entry, 9);
            assert!(!metadata.modified.is_known(), "{none}");
            assert_eq!(
                (metadata.accessed, metadata.changed, metadata.created),
                (None, None, None)
            );
        }
        let unknown = MetadataChange {
            modified: Some(Timestamp::UNKNOWN),
            ..MetadataChange::default()
        };
        assert_eq!(change(&unknown, false), None, "an unknown time is not set");
    }

    #[test]
    fn attributes_determine_kinds() {
        let reparse = FileAttributes::REPARSE_POINT;
        assert_eq!(kind(FileAttributes::ARCHIVE, None), Some(Kind::File));
        assert_eq!(kind(FileAttributes::DIRECTORY, None), Some(Kind::Directory));
        assert_eq!(kind(reparse, Some(ReparseTag::SYMLINK)), Some(Kind::Symlink));
        let junction = reparse | FileAttributes::DIRECTORY;
        assert_eq!(kind(junction, Some(ReparseTag::MOUNT_POINT)), Some(Kind::Symlink));
        assert_eq!(kind(reparse, Some(ReparseTag::CLOUD)), Some(Kind::File));
        assert_eq!(kind(junction, Some(ReparseTag::CLOUD)), Some(Kind::Directory));
        assert_eq!(kind(reparse, None), None);
    }

    #[test]
    fn a_change_sets_only_what_it_names() {
        assert_eq!(change(&MetadataChange::default(), false), None);
        let only_mode = MetadataChange {
            mode: Some(0o644),
            ..MetadataChange::default()
        };
        assert_eq!(change(&only_mode, false), None);
        assert_eq!(losses(&only_mode), [Loss::Mode]);
        let cleared = MetadataChange {
            dos_attributes: Some(0),
            ..MetadataChange::default()
        };
        assert_eq!(
            change(&cleared, false).unwrap().attributes,
            FileAttributes::NORMAL
        );
        assert_eq!(
            change(&cleared, true).unwrap().attributes,
            FileAttributes::DIRECTORY
        );
        let epoch = MetadataChange {
            modified: Some(Timestamp::default()),
            ..MetadataChange::default()
        };
        let set = change(&epoch, false).unwrap();
        assert_eq!(set.last_write_time, FileTime(116_444_736_000_000_000));
        assert_eq!(
            (set.creation_time, set.attributes),
            (FileTime::KEEP, FileAttributes::default())
        );
    }

    #[test]
    fn records_and_queries_agree() {
        let entry = DirectoryRecord {
            creation_time: FileTime(116_444_736_000_000_001),
            last_write_time: FileTime(116_444_736_000_000_002),
            end_of_file: 5,
            allocation_size: 8,
            attributes: FileAttributes::ARCHIVE | FileAttributes::SPARSE_FILE,
            file_id: 77,
            ..DirectoryRecord::default()
        };
        let mut query = FileAllInformation::default();
        query.basic.creation_time = entry.creation_time;
        query.basic.last_write_time = entry.last_write_time;
        query.basic.attributes = entry.attributes;
        query.standard.end_of_file = 5;
        query.standard.allocation_size = 8;
        query.internal.index_number = 77;
        let metadata = record(&entry, 9);
        assert_eq!(metadata, all(&query, 9));
        assert_eq!(
            metadata.dos_attributes,
            Some(0x20),
            "attributes that report what the file system did are left out"
        );
        assert_eq!(metadata.id, Some(FileId { volume: 9, index: 77 }));
        assert_eq!((metadata.created.unwrap().0, metadata.accessed), (100, None));
    }
}
