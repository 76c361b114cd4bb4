//! Information about a volume ([MS-FSCC] 2.5).

use super::field::{flag_fields, information};
use super::{FsInfoClass, FsInformation, Information};
use crate::{DecodeErrorKind, FileTime, Reader, Result, Text, Writer};
use bitflags::bitflags;

/// `FileFsVolumeInformation` ([MS-FSCC] 2.5.9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFsVolumeInformation {
    /// Creation time of the volume.
    pub volume_creation_time: FileTime,
    /// Serial number.
    pub volume_serial_number: u32,
    /// Whether its directories can hold object ids (`SupportsObjects`).
    pub supports_objects: bool,
    /// Label.
    pub volume_label: Text,
}

impl Information for FileFsVolumeInformation {
    const NAME: &'static str = "FileFsVolumeInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let volume_creation_time = FileTime::read(reader)?;
        let volume_serial_number = reader.u32()?;
        let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let supports_objects = reader.u8()? != 0;
        reader.skip(1)?;
        let error = reader.error(DecodeErrorKind::Value);
        let volume_label = Text::from_le_bytes(reader.bytes(length)?).ok_or(error)?;
        Ok(Self {
            volume_creation_time,
            volume_serial_number,
            supports_objects,
            volume_label,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.volume_creation_time.write(writer);
        writer.u32(self.volume_serial_number);
        writer.u32(u32::try_from(self.volume_label.wire_len()).expect("labels are short"));
        writer.u8(u8::from(self.supports_objects));
        writer.u8(0);
        self.volume_label.write(writer);
    }
}

impl FsInformation for FileFsVolumeInformation {
    const CLASS: FsInfoClass = FsInfoClass::Volume;
}

information! {
    /// `FileFsSizeInformation` ([MS-FSCC] 2.5.8).
    pub struct FileFsSizeInformation: FsInformation = FsInfoClass::Size, reserved 0 {
        /// Total allocation units available to this user.
        total_allocation_units: u64,
        /// Free allocation units available to this user.
        available_allocation_units: u64,
        /// Sectors per allocation unit.
        sectors_per_allocation_unit: u32,
        /// Bytes per sector.
        bytes_per_sector: u32,
    }
}

information! {
    /// `FileFsFullSizeInformation` ([MS-FSCC] 2.5.4).
    pub struct FileFsFullSizeInformation: FsInformation = FsInfoClass::FullSize, reserved 0 {
        /// Total allocation units available to this user.
        total_allocation_units: u64,
        /// Free allocation units available to this user, with quotas.
        caller_available_allocation_units: u64,
        /// Free allocation units of the volume.
        actual_available_allocation_units: u64,
        /// Sectors per allocation unit.
        sectors_per_allocation_unit: u32,
        /// Bytes per sector.
        bytes_per_sector: u32,
    }
}

impl FileFsFullSizeInformation {
    /// Returns the size of an allocation unit in bytes, or `None` if it is 0 or the peer's numbers
    /// overflow 64 bits.
    pub fn unit_bytes(&self) -> Option<u64> {
        u64::from(self.sectors_per_allocation_unit)
            .checked_mul(u64::from(self.bytes_per_sector))
            .filter(|bytes| *bytes != 0)
    }
}

/// Type of the device ([MS-FSCC] 2.5.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FsDeviceType(pub u32);

impl FsDeviceType {
    /// `FILE_DEVICE_CD_ROM`.
    pub const CD_ROM: Self = Self(0x2);
    /// `FILE_DEVICE_DISK`.
    pub const DISK: Self = Self(0x7);
    /// `FILE_DEVICE_NAMED_PIPE`, the type of `IPC$`.
    pub const NAMED_PIPE: Self = Self(0x11);
}

bitflags! {
    /// Characteristics of a volume's device ([MS-FSCC] 2.5.10).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct FsDeviceCharacteristics: u32 {
        /// The medium is removable.
        const REMOVABLE_MEDIA = 0x0000_0001;
        /// The medium is read-only.
        const READ_ONLY_DEVICE = 0x0000_0002;
        /// A floppy disk.
        const FLOPPY_DISKETTE = 0x0000_0004;
        /// The medium can be written once.
        const WRITE_ONCE_MEDIA = 0x0000_0008;
        /// The device is remote.
        const REMOTE_DEVICE = 0x0000_0010;
        /// Mounted.
        const DEVICE_IS_MOUNTED = 0x0000_0020;
        /// The volume has no medium.
        const VIRTUAL_VOLUME = 0x0000_0040;
        /// The device is plug and play (the specification's name for it).
        const SECURE_OPEN = 0x0000_0100;
        /// A terminal-services device.
        const TS_DEVICE = 0x0000_1000;
        /// WebDAV.
        const WEBDAV_DEVICE = 0x0000_2000;
        /// Portable.
        const PORTABLE_DEVICE = 0x0000_4000;
        const _ = !0;
    }
}

bitflags! {
    /// Features of a file system ([MS-FSCC] 2.5.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct FsAttributes: u32 {
        /// Lookups can distinguish names that differ in case only.
        const CASE_SENSITIVE_SEARCH = 0x0000_0001;
        /// Names keep their case.
        const CASE_PRESERVED_NAMES = 0x0000_0002;
        /// Names are Unicode.
        const UNICODE_ON_DISK = 0x0000_0004;
        /// Access control lists are stored and enforced.
        const PERSISTENT_ACLS = 0x0000_0008;
        /// Files can be compressed.
        const FILE_COMPRESSION = 0x0000_0010;
        /// Quotas.
        const VOLUME_QUOTAS = 0x0000_0020;
        /// Sparse files.
        const SUPPORTS_SPARSE_FILES = 0x0000_0040;
        /// Reparse points.
        const SUPPORTS_REPARSE_POINTS = 0x0000_0080;
        /// Remote storage.
        const SUPPORTS_REMOTE_STORAGE = 0x0000_0100;
        /// Cleanup operations return information about additional actions.
        const RETURNS_CLEANUP_RESULT_INFO = 0x0000_0200;
        /// Deletion and renaming can have POSIX semantics.
        const SUPPORTS_POSIX_UNLINK_RENAME = 0x0000_0400;
        /// The volume itself is compressed.
        const VOLUME_IS_COMPRESSED = 0x0000_8000;
        /// Object ids.
        const SUPPORTS_OBJECT_IDS = 0x0001_0000;
        /// Encryption of files (EFS).
        const SUPPORTS_ENCRYPTION = 0x0002_0000;
        /// Named streams.
        const NAMED_STREAMS = 0x0004_0000;
        /// Read-only.
        const READ_ONLY_VOLUME = 0x0008_0000;
        /// Write once.
        const SEQUENTIAL_WRITE_ONCE = 0x0010_0000;
        /// Transactions.
        const SUPPORTS_TRANSACTIONS = 0x0020_0000;
        /// Hard links.
        const SUPPORTS_HARD_LINKS = 0x0040_0000;
        /// Extended attributes.
        const SUPPORTS_EXTENDED_ATTRIBUTES = 0x0080_0000;
        /// Files can be opened by id.
        const SUPPORTS_OPEN_BY_FILE_ID = 0x0100_0000;
        /// Update sequence number journals.
        const SUPPORTS_USN_JOURNAL = 0x0200_0000;
        /// Integrity streams (ReFS).
        const SUPPORTS_INTEGRITY_STREAMS = 0x0400_0000;
        /// Ranges can be cloned (`FSCTL_DUPLICATE_EXTENTS_TO_FILE`).
        const SUPPORTS_BLOCK_REFCOUNTING = 0x0800_0000;
        /// The valid data ranges of sparse files are tracked.
        const SUPPORTS_SPARSE_VDL = 0x1000_0000;
        /// Direct access (persistent memory).
        const DAX_VOLUME = 0x2000_0000;
        /// Ghosting.
        const SUPPORTS_GHOSTING = 0x4000_0000;
        const _ = !0;
    }
}

bitflags! {
    /// Properties of a volume's sectors ([MS-FSCC] 2.5.7).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SectorFlags: u32 {
        /// The first physical sector is aligned with a logical one.
        const ALIGNED_DEVICE = 0x0000_0001;
        /// The partition is aligned with a physical sector.
        const PARTITION_ALIGNED_ON_DEVICE = 0x0000_0002;
        /// Seeks have no cost.
        const NO_SEEK_PENALTY = 0x0000_0004;
        /// TRIM is enabled.
        const TRIM_ENABLED = 0x0000_0008;
        const _ = !0;
    }
}

flag_fields!(FsDeviceCharacteristics, SectorFlags);

impl super::field::Field for FsDeviceType {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u32().map(Self)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.0);
    }
}

information! {
    /// `FileFsDeviceInformation` ([MS-FSCC] 2.5.10).
    pub struct FileFsDeviceInformation: FsInformation = FsInfoClass::Device, reserved 0 {
        /// Type of the device.
        device_type: FsDeviceType,
        /// Characteristics of the device.
        characteristics: FsDeviceCharacteristics,
    }
}

/// `FileFsAttributeInformation` ([MS-FSCC] 2.5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFsAttributeInformation {
    /// Features of the file system.
    pub attributes: FsAttributes,
    /// Longest file name in UTF-16 units (bytes by the specification, but Windows and Samba send
    /// 255).
    pub maximum_component_name_length: u32,
    /// Name of the file system. Samba, too, sends `NTFS`, because clients depend on it.
    pub file_system_name: Text,
}

impl Information for FileFsAttributeInformation {
    const NAME: &'static str = "FileFsAttributeInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let attributes = FsAttributes::from_bits_retain(reader.u32()?);
        let maximum_component_name_length = reader.u32()?;
        let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let error = reader.error(DecodeErrorKind::Value);
        let file_system_name = Text::from_le_bytes(reader.bytes(length)?).ok_or(error)?;
        Ok(Self {
            attributes,
            maximum_component_name_length,
            file_system_name,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.attributes.bits());
        writer.u32(self.maximum_component_name_length);
        writer.u32(u32::try_from(self.file_system_name.wire_len()).expect("names are short"));
        self.file_system_name.write(writer);
    }
}

impl FsInformation for FileFsAttributeInformation {
    const CLASS: FsInfoClass = FsInfoClass::Attribute;
}

/// `FileFsObjectIdInformation` ([MS-FSCC] 2.5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFsObjectIdInformation {
    /// GUID of the volume in wire order.
    pub object_id: [u8; 16],
    /// Additional data in the server's own format.
    pub extended_info: [u8; 48],
}

impl Information for FileFsObjectIdInformation {
    const NAME: &'static str = "FileFsObjectIdInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            object_id: reader.array()?,
            extended_info: reader.array()?,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.object_id);
        writer.bytes(&self.extended_info);
    }
}

impl FsInformation for FileFsObjectIdInformation {
    const CLASS: FsInfoClass = FsInfoClass::ObjectId;
}

information! {
    /// `FileFsSectorSizeInformation` ([MS-FSCC] 2.5.7).
    pub struct FileFsSectorSizeInformation: FsInformation = FsInfoClass::SectorSize, reserved 0 {
        /// Bytes per logical sector.
        logical_bytes_per_sector: u32,
        /// Bytes that the device writes atomically.
        physical_bytes_per_sector_for_atomicity: u32,
        /// Bytes that the device writes without reading first.
        physical_bytes_per_sector_for_performance: u32,
        /// Bytes that device and file system both write atomically: the smaller of the two.
        file_system_effective_physical_bytes_per_sector_for_atomicity: u32,
        /// Properties of the sectors.
        flags: SectorFlags,
        /// Offset of logical sector 0 in its physical sector, in bytes; `u32::MAX` if unknown.
        byte_offset_for_sector_alignment: u32,
        /// Offset of the partition in its physical sector, in bytes; `u32::MAX` if unknown.
        byte_offset_for_partition_alignment: u32,
    }
}
