//! Ranges of files: sparse, zeroed, allocated, shared ([MS-FSCC] 2.3.7, 2.3.51, 2.3.52, 2.3.83, 2.3.85).

use crate::{Fault, FileId, Reader, Result, Writer};

/// FSCTL_SET_SPARSE Request ([MS-FSCC] 2.3.83).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSparse {
    /// Sparse from now on, or not.
    pub set_sparse: bool,
}

impl SetSparse {
    /// Reads the IOCTL's input; none means yes.
    pub fn decode(input: &[u8]) -> Self {
        Self {
            set_sparse: input.first().is_none_or(|byte| *byte != 0),
        }
    }

    /// Appends the IOCTL's input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u8(u8::from(self.set_sparse));
    }
}

/// FSCTL_SET_ZERO_DATA Request ([MS-FSCC] 2.3.85).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetZeroData {
    /// First byte to become 0.
    pub file_offset: u64,
    /// First byte behind that stays.
    pub beyond_final_zero: u64,
}

impl SetZeroData {
    /// Reads the IOCTL's input.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(input: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(input, "FSCTL_SET_ZERO_DATA Request");
        Ok(Self {
            file_offset: reader.u64()?,
            beyond_final_zero: reader.u64()?,
        })
    }

    /// Appends the IOCTL's input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.file_offset);
        w.u64(self.beyond_final_zero);
    }
}

/// FILE_ALLOCATED_RANGE_BUFFER ([MS-FSCC] 2.3.52): FSCTL_QUERY_ALLOCATED_RANGES asks about one and answers with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatedRange {
    /// First byte in the file.
    pub file_offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Bytes of one range.
const RANGE_LEN: usize = 16;

impl AllocatedRange {
    /// Reads the IOCTL's input: the range that is asked about.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(input: &[u8]) -> Result<Self> {
        Self::read(&mut Reader::new(input, "FSCTL_QUERY_ALLOCATED_RANGES Request"))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            file_offset: reader.u64()?,
            length: reader.u64()?,
        })
    }

    /// Appends the IOCTL's input, or one range of its output.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.file_offset);
        w.u64(self.length);
    }

    /// Reads the IOCTL's output: the allocated ranges. Whether they ascend is for the caller to check.
    ///
    /// # Errors
    /// Bytes that are not a whole number of ranges.
    pub fn decode_list(output: &[u8]) -> Result<Vec<Self>> {
        let mut reader = Reader::new(output, "FSCTL_QUERY_ALLOCATED_RANGES Reply");
        if !output.len().is_multiple_of(RANGE_LEN) {
            return Err(reader.fault(Fault::Truncated));
        }
        (0..output.len() / RANGE_LEN)
            .map(|_| Self::read(&mut reader))
            .collect()
    }
}

/// FSCTL_DUPLICATE_EXTENTS_TO_FILE Request ([MS-FSCC] 2.3.7), sent to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateExtents {
    /// The open of the source.
    pub source: FileId,
    /// First byte in the source; a multiple of the cluster size.
    pub source_file_offset: u64,
    /// First byte in the target; a multiple of the cluster size.
    pub target_file_offset: u64,
    /// Bytes.
    pub byte_count: u64,
}

impl DuplicateExtents {
    /// Reads the IOCTL's input.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(input: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(input, "FSCTL_DUPLICATE_EXTENTS_TO_FILE Request");
        Ok(Self {
            source: FileId::decode(&mut reader)?,
            source_file_offset: reader.u64()?,
            target_file_offset: reader.u64()?,
            byte_count: reader.u64()?,
        })
    }

    /// Appends the IOCTL's input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        self.source.encode(w);
        w.u64(self.source_file_offset);
        w.u64(self.target_file_offset);
        w.u64(self.byte_count);
    }
}

/// FSCTL_GET_INTEGRITY_INFORMATION's answer and FSCTL_SET_INTEGRITY_INFORMATION's question ([MS-FSCC] 2.3.24, 2.3.79): how
/// content is checked (ReFS). What the answer has behind is the volume's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integrity {
    /// The algorithm: 0 for none.
    pub checksum_algorithm: u16,
    /// `CHECKSUM_ENFORCEMENT_OFF` (1) lets damaged content be read.
    pub flags: u32,
}

impl Integrity {
    /// Reads the IOCTL's output or input.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "FSCTL_INTEGRITY_INFORMATION_BUFFER");
        let checksum_algorithm = reader.u16()?;
        reader.skip(2)?;
        Ok(Self {
            checksum_algorithm,
            flags: reader.u32()?,
        })
    }

    /// Appends the IOCTL's input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.checksum_algorithm);
        w.u16(0);
        w.u32(self.flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            set_sparse: bool, numbers: [u64; 5], ranges in proptest::collection::vec(any::<(u64, u64)>(), 0..20),
        ) {
            let sparse = SetSparse { set_sparse };
            prop_assert_eq!(SetSparse::decode(&structure(|w| sparse.encode(w))), sparse);
            let zero = SetZeroData { file_offset: numbers[0], beyond_final_zero: numbers[1] };
            prop_assert_eq!(SetZeroData::decode(&structure(|w| zero.encode(w))), Ok(zero));
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(file_offset, length)| AllocatedRange { file_offset, length })
                .collect();
            let bytes = structure(|w| ranges.iter().for_each(|range| range.encode(w)));
            if let Some(first) = ranges.first() {
                prop_assert_eq!(AllocatedRange::decode(&bytes), Ok(*first));
            }
            prop_assert_eq!(AllocatedRange::decode_list(&bytes), Ok(ranges));
            let duplicate = DuplicateExtents {
                source: FileId { persistent: numbers[0], volatile: numbers[1] },
                source_file_offset: numbers[2],
                target_file_offset: numbers[3],
                byte_count: numbers[4],
            };
            let bytes = structure(|w| duplicate.encode(w));
            prop_assert_eq!(bytes.len(), 40);
            prop_assert_eq!(DuplicateExtents::decode(&bytes), Ok(duplicate));
            let integrity = Integrity { checksum_algorithm: numbers[0] as u16, flags: numbers[1] as u32 };
            prop_assert_eq!(Integrity::decode(&structure(|w| integrity.encode(w))), Ok(integrity));
        }
    }

    #[test]
    fn sparse_without_input_means_yes() {
        assert!(SetSparse::decode(&[]).set_sparse);
    }

    #[test]
    fn hostile_bytes_never_panic() {
        attack(&[1; 48], 0, |bytes| {
            (
                SetSparse::decode(bytes),
                SetZeroData::decode(bytes).is_ok(),
                AllocatedRange::decode(bytes).is_ok(),
                AllocatedRange::decode_list(bytes).is_ok(),
                DuplicateExtents::decode(bytes).is_ok(),
                Integrity::decode(bytes).is_ok(),
            )
        });
    }
}
