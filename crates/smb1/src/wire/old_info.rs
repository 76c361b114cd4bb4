//! Attributes in the commands of core and LAN Manager: QUERY_INFORMATION ([MS-CIFS] 2.2.4.9),
//! SET_INFORMATION (2.2.4.10), QUERY_INFORMATION2 (2.2.4.31), SET_INFORMATION2 (2.2.4.30),
//! QUERY_INFORMATION_DISK (2.2.4.57).

use ropeway_smb_wire::{Reader, Result, Writer};

use crate::dos_time::DosTime;
use crate::message::{Block, write_block};
use crate::strings::Str;
use crate::words::{Field, Reserved, words};

/// A date and then a time.
impl Field for DosTime {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            date: reader.u16()?,
            time: reader.u16()?,
        })
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.date);
        writer.u16(self.time);
    }
}

words! {
    /// QUERY_INFORMATION response.
    pub struct QueryInformationResponse {
        /// Attributes.
        file_attributes: u16,
        /// Time of the last write, in seconds since 1970.
        last_write_time: u32,
        /// Length of the content; of longer files the lower 32 bits.
        file_size: u32,
        /// Reserved.
        reserved: Reserved<10>,
    }
}

words! {
    /// Words of the SET_INFORMATION request.
    pub struct SetInformationWords {
        /// Attributes to set.
        file_attributes: u16,
        /// Time of the last write to set, in seconds since 1970; 0 to keep it.
        last_write_time: u32,
        /// Reserved.
        reserved: Reserved<10>,
    }
}

/// SET_INFORMATION request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetInformationRequest {
    /// The words.
    pub words: SetInformationWords,
    /// The path in the share.
    pub path: Str,
}

impl SetInformationRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 8.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        Ok(Self {
            words: SetInformationWords::read(&mut block.words_exactly(8)?)?,
            path: Str::read_formatted(&mut block.bytes(), is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.words.write(w), |w| self.path.write_formatted(w));
    }
}

words! {
    /// QUERY_INFORMATION2 response.
    pub struct QueryInformation2Response {
        /// Time of creation.
        creation: DosTime,
        /// Time of the last access.
        last_access: DosTime,
        /// Time of the last write.
        last_write: DosTime,
        /// Length of the content; of longer files the lower 32 bits.
        file_size: u32,
        /// Allocated bytes.
        allocation_size: u32,
        /// Attributes.
        file_attributes: u16,
    }
}

words! {
    /// SET_INFORMATION2 request.
    pub struct SetInformation2Request {
        /// The open file.
        fid: u16,
        /// Time of creation.
        creation: DosTime,
        /// Time of the last access.
        last_access: DosTime,
        /// Time of the last write.
        last_write: DosTime,
    }
}

words! {
    /// QUERY_INFORMATION_DISK response.
    pub struct DiskResponse {
        /// Size of the volume in units.
        total_units: u16,
        /// Blocks of a unit.
        blocks_per_unit: u16,
        /// Bytes of a block.
        block_size: u16,
        /// Free units.
        free_units: u16,
        /// Reserved.
        reserved: Reserved<2>,
    }
}

impl DiskResponse {
    /// Returns the figures of a volume. Larger volumes than the words can hold appear as the
    /// largest that they can.
    pub fn of(total: u64, available: u64) -> Self {
        /// Bytes of a block, as servers report it.
        const BLOCK: u64 = 512;
        let mut per_unit = 1_u64;
        while total / (BLOCK * per_unit) > 0xFFFF && per_unit < 0x8000 {
            per_unit *= 2;
        }
        let units = |bytes: u64| (bytes / (BLOCK * per_unit)).min(0xFFFF) as u16;
        Self {
            total_units: units(total),
            blocks_per_unit: per_unit as u16,
            block_size: BLOCK as u16,
            free_units: units(available),
            reserved: Reserved,
        }
    }

    /// Returns the bytes of the volume and those that are free.
    pub fn bytes(&self) -> (u64, u64) {
        let unit = u64::from(self.blocks_per_unit) * u64::from(self.block_size);
        (
            u64::from(self.total_units) * unit,
            u64::from(self.free_units) * unit,
        )
    }
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    #[test]
    fn requests_and_responses_round_trip() {
        let set = SetInformationRequest {
            words: SetInformationWords {
                file_attributes: 1,
                last_write_time: 9,
                reserved: Reserved,
            },
            path: Str::unicode(&Text::from("\\a")),
        };
        hostile::check(
            &[set],
            |block| SetInformationRequest::decode(block, true).ok(),
            |request, w| request.encode(w),
        );
        let time = DosTime { date: 1, time: 2 };
        let response = QueryInformation2Response {
            creation: time,
            file_size: 3,
            ..QueryInformation2Response::default()
        };
        let block =
            |words: &mut dyn FnMut(&mut Writer<'_>), w: &mut Writer<'_>| write_block(w, |w| words(w), |_| {});
        hostile::check(
            &[response],
            |block| QueryInformation2Response::read(&mut block.words()).ok(),
            |response, w| block(&mut |w| response.write(w), w),
        );
    }

    #[test]
    fn disks_of_any_size_fit() {
        for (total, free) in [(0, 0), (1 << 20, 1 << 19), (1 << 30, 1), (1 << 50, 1 << 49)] {
            let (shown, shown_free) = DiskResponse::of(total, free).bytes();
            assert!(shown <= total && shown_free <= free.max(shown_free.min(shown)));
            assert!(total > 1 << 40 || total - shown < 1 << 20, "{total} {shown}");
        }
    }
}
