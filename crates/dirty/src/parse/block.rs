//! `/sys/block/DEVICE/stat`: what a block device has done.
//!
//! Source: Documentation/block/stat.rst. The fields count requests that have ended, buffered or
//! not; a sector has 512 bytes on every device.

use serde::Serialize;

/// Bytes of a sector in this file, whatever the device has.
const SECTOR_BYTES: u64 = 512;

/// Counters of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockStat {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests under way, reads included.
    pub in_flight: u64,
}

impl BlockStat {
    /// Parses the file: 11 fields, or more since Linux 4.18.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace();
        let mut field = |skip| fields.nth(skip)?.parse::<u64>().ok();
        let (read, written, in_flight) = (field(2)?, field(3)?, field(1)?);
        Some(Self {
            read_bytes: read.saturating_mul(SECTOR_BYTES),
            written_bytes: written.saturating_mul(SECTOR_BYTES),
            in_flight,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn old_and_new_lines_are_understood() {
        let found = BlockStat {
            read_bytes: 300 * 512,
            written_bytes: 2048 * 512,
            in_flight: 9,
        };
        assert_eq!(BlockStat::parse("1 2 300 4 5 6 2048 8 9 10 11\n"), Some(found));
        let new = "   1 2      300 4 5 6 2048 8        9 10 11 12 13 14 15 16 17\n";
        assert_eq!(BlockStat::parse(new), Some(found));
        for cut in ["", "1 2 300 4 5 6 2048 8", "a b c d e f g h i"] {
            assert_eq!(BlockStat::parse(cut), None);
        }
    }

    proptest! {
        #[test]
        fn no_line_breaks_it(line in "[ 0-9a-z-]{0,80}") {
            _ = BlockStat::parse(&line);
        }
    }
}
