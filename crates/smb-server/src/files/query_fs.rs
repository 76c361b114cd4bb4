//! QUERY_INFO for a volume ([MS-SMB2] 3.3.5.20.2, [MS-FSCC] 2.5).

use ropeway_smb_proto::server::rules::info as rules;
use ropeway_smb_wire::info::{
    FileFsAttributeInformation, FileFsDeviceInformation, FileFsFullSizeInformation,
    FileFsObjectIdInformation, FileFsSectorSizeInformation, FileFsSizeInformation, FileFsVolumeInformation,
    FsAttributes, FsDeviceCharacteristics, FsDeviceType, FsInfoClass, Information, SectorFlags,
};
use ropeway_smb_wire::{NtStatus, Text};

use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use crate::files::{attributes, status};
use crate::share::Share;

/// Sector size reported to clients, in bytes. Every disk supports it.
const SECTOR_LEN: u32 = 512;
/// Longest name in UTF-16 units, the limit of Windows, which clients expect.
const NAME_UNITS_MAX: usize = 255;
/// Reported file system, as in Samba. It makes clients use streams, security descriptors and
/// extended attributes.
const FILE_SYSTEM_NAME: &str = "NTFS";

/// Answers a query of an information class.
///
/// # Errors
/// STATUS_INVALID_INFO_CLASS, STATUS_INFO_LENGTH_MISMATCH, and errors of the store.
pub(crate) fn query_fs(share: &Share, class: u8, length_max: usize) -> OutputResult {
    let class = FsInfoClass::from_u8(class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    let fixed = rules::check_query_fs(class, length_max)?;
    output_buffer::truncated(bytes(share, class)?, fixed, length_max)
}

fn bytes(share: &Share, class: FsInfoClass) -> Result<Vec<u8>, NtStatus> {
    let features = share.store.features();
    Ok(match class {
        FsInfoClass::Volume => FileFsVolumeInformation {
            volume_creation_time: attributes::file_time(features.created),
            volume_serial_number: attributes::serial_32(features),
            supports_objects: false,
            volume_label: Text::from(share.name.as_str()),
        }
        .to_bytes(),
        FsInfoClass::Size => {
            let full = full_size(share)?;
            FileFsSizeInformation {
                total_allocation_units: full.total_allocation_units,
                available_allocation_units: full.caller_available_allocation_units,
                sectors_per_allocation_unit: full.sectors_per_allocation_unit,
                bytes_per_sector: full.bytes_per_sector,
            }
            .to_bytes()
        }
        FsInfoClass::FullSize => full_size(share)?.to_bytes(),
        FsInfoClass::Device => device(share).to_bytes(),
        FsInfoClass::Attribute => attribute(share).to_bytes(),
        FsInfoClass::Control => control(),
        FsInfoClass::ObjectId => FileFsObjectIdInformation {
            object_id: attributes::guid(features.volume, 0),
            extended_info: [0; 48],
        }
        .to_bytes(),
        FsInfoClass::SectorSize => FileFsSectorSizeInformation {
            logical_bytes_per_sector: SECTOR_LEN,
            physical_bytes_per_sector_for_atomicity: SECTOR_LEN,
            physical_bytes_per_sector_for_performance: features.unit.max(SECTOR_LEN),
            file_system_effective_physical_bytes_per_sector_for_atomicity: SECTOR_LEN,
            flags: SectorFlags::ALIGNED_DEVICE | SectorFlags::PARTITION_ALIGNED_ON_DEVICE,
            byte_offset_for_sector_alignment: 0,
            byte_offset_for_partition_alignment: 0,
        }
        .to_bytes(),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    })
}

fn full_size(share: &Share) -> Result<FileFsFullSizeInformation, NtStatus> {
    let space = share.store.space().map_err(|error| status::of(&error))?;
    let sectors = (share.store.features().unit / SECTOR_LEN).max(1);
    let unit = u64::from(sectors) * u64::from(SECTOR_LEN);
    Ok(FileFsFullSizeInformation {
        total_allocation_units: space.total / unit,
        caller_available_allocation_units: space.available / unit,
        actual_available_allocation_units: space.available / unit,
        sectors_per_allocation_unit: sectors,
        bytes_per_sector: SECTOR_LEN,
    })
}

fn device(share: &Share) -> FileFsDeviceInformation {
    let mut characteristics = FsDeviceCharacteristics::DEVICE_IS_MOUNTED;
    if is_read_only(share) {
        characteristics |= FsDeviceCharacteristics::READ_ONLY_DEVICE;
    }
    FileFsDeviceInformation {
        device_type: FsDeviceType::DISK,
        characteristics,
    }
}

fn attribute(share: &Share) -> FileFsAttributeInformation {
    let features = share.store.features();
    let mut attributes = FsAttributes::CASE_SENSITIVE_SEARCH
        | FsAttributes::CASE_PRESERVED_NAMES
        | FsAttributes::UNICODE_ON_DISK
        | FsAttributes::SUPPORTS_REPARSE_POINTS
        | FsAttributes::SUPPORTS_HARD_LINKS
        | FsAttributes::SUPPORTS_OBJECT_IDS;
    if features.windows_metadata {
        attributes |= FsAttributes::PERSISTENT_ACLS
            | FsAttributes::NAMED_STREAMS
            | FsAttributes::SUPPORTS_EXTENDED_ATTRIBUTES;
    }
    if features.sparse {
        attributes |= FsAttributes::SUPPORTS_SPARSE_FILES;
    }
    if is_read_only(share) {
        attributes |= FsAttributes::READ_ONLY_VOLUME;
    }
    let name_max = features.name_max.min(NAME_UNITS_MAX);
    FileFsAttributeInformation {
        attributes,
        maximum_component_name_length: u32::try_from(name_max).unwrap_or(u32::MAX),
        file_system_name: FILE_SYSTEM_NAME.into(),
    }
}

/// Returns `FileFsControlInformation` ([MS-FSCC] 2.5.2) without quotas, filters and limits.
fn control() -> Vec<u8> {
    output_buffer::encoded(|w| {
        for filtering in [0_u64; 3] {
            w.u64(filtering);
        }
        // Default threshold and limit of users: none.
        w.u64(u64::MAX);
        w.u64(u64::MAX);
        w.u32(0);
        w.u32(0);
    })
}

fn is_read_only(share: &Share) -> bool {
    share.read_only || share.store.features().read_only
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn lengths_are_checked_as_windows_does() {
        let share = testing::share();
        for (class, fixed) in [
            (1, 24),
            (3, 24),
            (4, 8),
            (5, 16),
            (6, 48),
            (7, 32),
            (8, 64),
            (11, 28),
        ] {
            let (status, full) = query_fs(&share, class, 65_535).unwrap();
            assert_eq!(status, NtStatus::SUCCESS, "{class}");
            for length in 0..=full.len() {
                let expected = match length {
                    _ if length < fixed => Err(NtStatus::INFO_LENGTH_MISMATCH),
                    _ if length < full.len() => Ok(NtStatus::BUFFER_OVERFLOW),
                    _ => Ok(NtStatus::SUCCESS),
                };
                let answer = query_fs(&share, class, length).map(|(status, _)| status);
                assert_eq!(answer, expected, "{class} {length}");
            }
        }
        for class in [0, 2, 9, 10, 12, 255] {
            assert_eq!(query_fs(&share, class, 65_535), Err(NtStatus::INVALID_INFO_CLASS));
        }
    }

    #[test]
    fn space_is_reported_in_units() {
        let (_, bytes) = query_fs(&testing::share(), 7, 100).unwrap();
        let size = FileFsFullSizeInformation::decode(&bytes).unwrap();
        assert_eq!(size.unit_bytes(), Some(4096));
        assert_eq!(size.total_allocation_units, testing::TOTAL / 4096);
    }
}
