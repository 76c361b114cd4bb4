//! Levels of TRANS2_QUERY_FS_INFORMATION that [MS-FSCC] has not ([MS-CIFS] 2.2.8.2).

use ropeway_smb_wire::{Reader, Result, Writer};

use crate::strings::Str;
use crate::words::words;

words! {
    /// SMB_INFO_ALLOCATION.
    pub struct InfoAllocation {
        /// Number of the file system; 0.
        file_system: u32,
        /// Sectors of a unit.
        sectors_per_unit: u32,
        /// Size of the volume in units.
        units: u32,
        /// Free units.
        free_units: u32,
        /// Bytes of a sector.
        bytes_per_sector: u16,
    }
}

impl InfoAllocation {
    /// Returns the figures of a volume. Larger volumes than 32-bit counts can hold appear as the
    /// largest that they can.
    pub fn of(total: u64, available: u64) -> Self {
        const SECTOR: u64 = 512;
        let mut per_unit = 8_u64;
        while total / (SECTOR * per_unit) > u64::from(u32::MAX) && per_unit < 1 << 20 {
            per_unit *= 2;
        }
        let units = |bytes: u64| (bytes / (SECTOR * per_unit)).min(u64::from(u32::MAX)) as u32;
        Self {
            file_system: 0,
            sectors_per_unit: per_unit as u32,
            units: units(total),
            free_units: units(available),
            bytes_per_sector: SECTOR as u16,
        }
    }

    /// Returns the bytes of the volume and those that are free.
    pub fn bytes(&self) -> (u64, u64) {
        let unit = u64::from(self.sectors_per_unit).saturating_mul(u64::from(self.bytes_per_sector));
        (
            u64::from(self.units).saturating_mul(unit),
            u64::from(self.free_units).saturating_mul(unit),
        )
    }
}

/// SMB_INFO_VOLUME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoVolume {
    /// Serial number of the volume.
    pub serial_number: u32,
    /// Label.
    pub label: Str,
}

impl InfoVolume {
    /// Decodes the data.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(data: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB_INFO_VOLUME");
        let serial_number = reader.u32()?;
        reader.skip(1)?;
        Ok(Self {
            serial_number,
            label: Str::read_z(&mut reader, is_unicode)?,
        })
    }

    /// Returns the data.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.u32(self.serial_number);
        w.u8(self.label.as_bytes().len().min(255) as u8);
        self.label.write_z(&mut w);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;

    #[test]
    fn volumes_round_trip() {
        for (total, free) in [(0, 0), (1 << 30, 1 << 29), (1 << 44, 1 << 43)] {
            let (shown, shown_free) = InfoAllocation::of(total, free).bytes();
            assert!(shown <= total && total - shown < 1 << 20, "{total} {shown}");
            assert!(shown_free <= free);
        }
        let volume = InfoVolume {
            serial_number: 7,
            label: Str::oem(b"DATA"),
        };
        let bytes = volume.to_bytes();
        assert_eq!(InfoVolume::decode(&bytes, false), Ok(volume));
        hostile::attack(&bytes, 0, |bytes| InfoVolume::decode(bytes, true).is_ok());
    }
}
