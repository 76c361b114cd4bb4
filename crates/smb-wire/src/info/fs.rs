//! Information about a volume ([MS-FSCC] 2.5).

use super::field::{flag_fields, information};
use super::{FsInfoClass, FsInformation, Information};
use crate::{Fault, FileTime, Reader, Result, Text, Writer};
use bitflags::bitflags;

/// `FileFsVolumeInformation` ([MS-FSCC] 2.5.9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFsVolumeInformation {
    /// When the volume was made.
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
        let fault = reader.fault(Fault::Value);
        let volume_label = Text::from_le_bytes(reader.bytes(length)?).ok_or(fault)?;
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
        /// Allocation units that this user could have, all in all.
        total_allocation_units: u64,
        /// Allocation units that this user can still have.
        available_allocation_units: u64,
        /// Sectors in an allocation unit.
        sectors_per_allocation_unit: u32,
        /// Bytes in a sector.
        bytes_per_sector: u32,
    }
}

information! {
    /// `FileFsFullSizeInformation` ([MS-FSCC] 2.5.4).
    pub struct FileFsFullSizeInformation: FsInformation = FsInfoClass::FullSize, reserved 0 {
        /// Allocation units that this user could have, all in all.
        total_allocation_units: u64,
        /// Allocation units that this user can still have (quotas count).
        caller_available_allocation_units: u64,
        /// Allocation units that are free.
        actual_available_allocation_units: u64,
        /// Sectors in an allocation unit.
        sectors_per_allocation_unit: u32,
        /// Bytes in a sector.
        bytes_per_sector: u32,
    }
}

impl FileFsFullSizeInformation {
    /// Bytes in an allocation unit. The peer's numbers may be absurd: `None` rather than more than 64 bits hold, or 0.
    pub fn unit_bytes(&self) -> Option<u64> {
        u64::from(self.sectors_per_allocation_unit)
            .checked_mul(u64::from(self.bytes_per_sector))
            .filter(|bytes| *bytes != 0)
    }
}

/// What kind of device ([MS-FSCC] 2.5.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FsDeviceType(pub u32);

impl FsDeviceType {
    /// `FILE_DEVICE_CD_ROM`.
    pub const CD_ROM: Self = Self(0x2);
    /// `FILE_DEVICE_DISK`.
    pub const DISK: Self = Self(0x7);
    /// `FILE_DEVICE_NAMED_PIPE`, which `IPC$` is.
    pub const NAMED_PIPE: Self = Self(0x11);
}

bitflags! {
    /// Of a volume's device ([MS-FSCC] 2.5.10).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct FsDeviceCharacteristics: u32 {
        /// Media can be taken out.
        const REMOVABLE_MEDIA = 0x0000_0001;
        /// Media cannot be written.
        const READ_ONLY_DEVICE = 0x0000_0002;
        /// A floppy disk.
        const FLOPPY_DISKETTE = 0x0000_0004;
        /// Media can be written once.
        const WRITE_ONCE_MEDIA = 0x0000_0008;
        /// Across a network.
        const REMOTE_DEVICE = 0x0000_0010;
        /// Mounted.
        const DEVICE_IS_MOUNTED = 0x0000_0020;
        /// No media.
        const VIRTUAL_VOLUME = 0x0000_0040;
        /// Plug and play; named so by the specification.
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
    /// What the file system can do ([MS-FSCC] 2.5.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct FsAttributes: u32 {
        /// Names that differ in case only can be looked up apart.
        const CASE_SENSITIVE_SEARCH = 0x0000_0001;
        /// Names keep their case.
        const CASE_PRESERVED_NAMES = 0x0000_0002;
        /// Names are Unicode.
        const UNICODE_ON_DISK = 0x0000_0004;
        /// Access control lists are kept and obeyed.
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
        /// After a clean-up, more than the handle's name is told.
        const RETURNS_CLEANUP_RESULT_INFO = 0x0000_0200;
        /// Deletion and renaming with POSIX semantics.
        const SUPPORTS_POSIX_UNLINK_RENAME = 0x0000_0400;
        /// The volume itself is compressed.
        const VOLUME_IS_COMPRESSED = 0x0000_8000;
        /// Object ids.
        const SUPPORTS_OBJECT_IDS = 0x0001_0000;
        /// Encrypting file system.
        const SUPPORTS_ENCRYPTION = 0x0002_0000;
        /// Named streams.
        const NAMED_STREAMS = 0x0004_0000;
        /// Read-only.
        const READ_ONLY_VOLUME = 0x0008_0000;
        /// Can be written once.
        const SEQUENTIAL_WRITE_ONCE = 0x0010_0000;
        /// Transactions.
        const SUPPORTS_TRANSACTIONS = 0x0020_0000;
        /// Hard links.
        const SUPPORTS_HARD_LINKS = 0x0040_0000;
        /// Extended attributes.
        const SUPPORTS_EXTENDED_ATTRIBUTES = 0x0080_0000;
        /// Files can be opened by number.
        const SUPPORTS_OPEN_BY_FILE_ID = 0x0100_0000;
        /// Update sequence number journals.
        const SUPPORTS_USN_JOURNAL = 0x0200_0000;
        /// Integrity streams (ReFS).
        const SUPPORTS_INTEGRITY_STREAMS = 0x0400_0000;
        /// Ranges can be cloned (`FSCTL_DUPLICATE_EXTENTS_TO_FILE`).
        const SUPPORTS_BLOCK_REFCOUNTING = 0x0800_0000;
        /// Which ranges of a sparse file hold valid data is tracked.
        const SUPPORTS_SPARSE_VDL = 0x1000_0000;
        /// Direct access (persistent memory).
        const DAX_VOLUME = 0x2000_0000;
        /// Ghosting.
        const SUPPORTS_GHOSTING = 0x4000_0000;
        const _ = !0;
    }
}

bitflags! {
    /// Of a volume's sectors ([MS-FSCC] 2.5.7).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SectorFlags: u32 {
        /// The first physical sector begins where a logical one does.
        const ALIGNED_DEVICE = 0x0000_0001;
        /// The partition begins at a physical sector.
        const PARTITION_ALIGNED_ON_DEVICE = 0x0000_0002;
        /// Seeking costs nothing.
        const NO_SEEK_PENALTY = 0x0000_0004;
        /// TRIM.
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
        /// What kind of device.
        device_type: FsDeviceType,
        /// Its characteristics.
        characteristics: FsDeviceCharacteristics,
    }
}

/// `FileFsAttributeInformation` ([MS-FSCC] 2.5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFsAttributeInformation {
    /// What the file system can do.
    pub attributes: FsAttributes,
    /// Longest name of a file, in UTF-16 units (bytes, says the specification; Windows and Samba send 255).
    pub maximum_component_name_length: u32,
    /// Name of the file system: `NTFS`, also from Samba; clients act on it.
    pub file_system_name: Text,
}

impl Information for FileFsAttributeInformation {
    const NAME: &'static str = "FileFsAttributeInformation";

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let attributes = FsAttributes::from_bits_retain(reader.u32()?);
        let maximum_component_name_length = reader.u32()?;
        let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let fault = reader.fault(Fault::Value);
        let file_system_name = Text::from_le_bytes(reader.bytes(length)?).ok_or(fault)?;
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
    /// GUID of the volume, as on the wire.
    pub object_id: [u8; 16],
    /// More about it, in the server's own way.
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
        /// Bytes in a logical sector.
        logical_bytes_per_sector: u32,
        /// Bytes that the device writes at once without breaking.
        physical_bytes_per_sector_for_atomicity: u32,
        /// Bytes that it writes at once without a read.
        physical_bytes_per_sector_for_performance: u32,
        /// The smaller of what device and file system write at once without breaking.
        file_system_effective_physical_bytes_per_sector_for_atomicity: u32,
        /// Of the sectors.
        flags: SectorFlags,
        /// Where logical sector 0 lies in its physical sector, in bytes; `u32::MAX`: not known.
        byte_offset_for_sector_alignment: u32,
        /// Where the partition begins in its physical sector, in bytes; `u32::MAX`: not known.
        byte_offset_for_partition_alignment: u32,
    }
}
