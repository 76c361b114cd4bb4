//! `/proc/vmstat`: dirty pages of the whole machine, and the kernel's own limits.
//!
//! Source: mm/vmstat.c, `vmstat_text`. All values are pages. `nr_writeback_temp` (copies of pages
//! on their way to FUSE programs) existed until Linux 6.15; the originals of those pages count
//! neither as dirty nor as being written.

use serde::Serialize;

use super::number;

/// Dirty pages of the machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vmstat {
    /// Dirty and not yet being written (`nr_dirty`).
    pub dirty_bytes: u64,
    /// On the way to a device (`nr_writeback`, and `nr_writeback_temp` where it exists).
    pub writeback_bytes: u64,
    /// Limit of both together (`nr_dirty_threshold`); 0 if the kernel does not say.
    pub limit_bytes: u64,
    /// Begin of write-back (`nr_dirty_background_threshold`); 0 if the kernel does not say.
    pub background_bytes: u64,
    /// Bytes made dirty since the machine started (`nr_dirtied`).
    pub dirtied_bytes: u64,
    /// Bytes written back since then (`nr_written`).
    pub written_bytes: u64,
}

impl Vmstat {
    /// Parses the file; missing lines count as 0.
    pub fn parse(text: &str, page_bytes: u64) -> Self {
        let bytes = |name| number(text, name).unwrap_or(0).saturating_mul(page_bytes);
        Self {
            dirty_bytes: bytes("nr_dirty"),
            writeback_bytes: bytes("nr_writeback").saturating_add(bytes("nr_writeback_temp")),
            limit_bytes: bytes("nr_dirty_threshold"),
            background_bytes: bytes("nr_dirty_background_threshold"),
            dirtied_bytes: bytes("nr_dirtied"),
            written_bytes: bytes("nr_written"),
        }
    }

    /// Returns the bytes that some device has not taken yet.
    pub fn backlog_bytes(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.writeback_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_of_four_kernels_are_understood() {
        let samples = [
            (
                include_str!("../../samples/vmstat-5.15.txt"),
                183,
                1_042,
                0,
                1_246_183,
            ),
            (include_str!("../../samples/vmstat-6.1.txt"), 94, 512, 37, 801_442),
            (include_str!("../../samples/vmstat-6.8.txt"), 412, 0, 0, 397_120),
            (
                include_str!("../../samples/vmstat-6.18.txt"),
                131_072,
                2_048,
                0,
                1_110_118,
            ),
        ];
        for (text, dirty, writeback, temporary, limit) in samples {
            let found = Vmstat::parse(text, 4096);
            assert_eq!(found.dirty_bytes, dirty * 4096);
            assert_eq!(found.writeback_bytes, (writeback + temporary) * 4096);
            assert_eq!(found.backlog_bytes(), (dirty + writeback + temporary) * 4096);
            assert_eq!(found.limit_bytes, limit * 4096);
            assert!(found.background_bytes * 2 <= found.limit_bytes + 2 * 4096);
            assert!(found.dirtied_bytes >= found.written_bytes / 2);
        }
    }

    proptest! {
        #[test]
        fn a_damaged_file_gives_a_smaller_or_no_figure(cut in 0_usize..2_000, at in 0_usize..2_000, byte in 0_u8..128) {
            let mut bytes = include_bytes!("../../samples/vmstat-6.1.txt").to_vec();
            bytes.truncate(cut);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let found = Vmstat::parse(&String::from_utf8_lossy(&bytes), u64::MAX);
            prop_assert!(found.backlog_bytes() >= found.dirty_bytes);
        }
    }
}
