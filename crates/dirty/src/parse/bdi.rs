//! `bdi/MAJ:MIN/stats` and `wb_stats` of debugfs: what the page cache owes one device.
//!
//! Source: mm/backing-dev.c, `bdi_debug_stats_show` and `cgwb_debug_stats_show`. Until Linux 6.9
//! `stats` has the part of the root cgroup only; since 6.10 it has the sum of all cgroups, and
//! `wb_stats` has one block for each. The counters are per-processor sums that the kernel reads
//! without adding up the processors: each may be wrong by some pages ([`drift_bytes`]).

use serde::Serialize;

use super::{kibibytes, number};

/// Most cgroups of one device that are kept.
const GROUPS_MAX: usize = 256;

/// `stats` of one device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BdiStats {
    /// Dirty and not yet being written (`BdiReclaimable`).
    pub dirty_bytes: u64,
    /// On the way to the device (`BdiWriteback`).
    pub writeback_bytes: u64,
    /// The device's present share of the machine's limit (`BdiDirtyThresh`).
    pub share_bytes: u64,
    /// Bytes made dirty so far (`BdiDirtied`).
    pub dirtied_bytes: u64,
    /// Bytes that the device has completed so far (`BdiWritten`).
    pub written_bytes: u64,
    /// The kernel's own estimate of the device's speed, bytes a second (`BdiWriteBandwidth`). It
    /// begins with 100 MiB/s and is corrected only while writers dirty pages or the kernel's own
    /// flusher runs: during a long `sync` it may be wrong by factors.
    pub kernel_rate: u64,
    /// Files with dirty pages or attributes (`b_dirty`, `b_io`, `b_more_io`).
    pub dirty_files: u64,
}

impl BdiStats {
    /// Parses the file; `None` if it has none of the two amounts.
    pub fn parse(text: &str) -> Option<Self> {
        let dirty = kibibytes(text, "BdiReclaimable");
        let writeback = kibibytes(text, "BdiWriteback");
        if dirty.is_none() && writeback.is_none() {
            return None;
        }
        let bytes = |name| kibibytes(text, name).unwrap_or(0);
        let files = ["b_dirty", "b_io", "b_more_io"].map(|name| number(text, name).unwrap_or(0));
        Some(Self {
            dirty_bytes: dirty.unwrap_or(0),
            writeback_bytes: writeback.unwrap_or(0),
            share_bytes: bytes("BdiDirtyThresh"),
            dirtied_bytes: bytes("BdiDirtied"),
            written_bytes: bytes("BdiWritten"),
            kernel_rate: bytes("BdiWriteBandwidth"),
            dirty_files: files.into_iter().fold(0, u64::saturating_add),
        })
    }

    /// Returns the bytes that the device has not taken yet.
    pub fn backlog_bytes(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.writeback_bytes)
    }
}

/// The part of one cgroup in a device's backlog (`wb_stats`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GroupStats {
    /// Inode number of the cgroup's folder.
    pub inode: u64,
    /// Dirty and not yet being written.
    pub dirty_bytes: u64,
    /// On the way to the device.
    pub writeback_bytes: u64,
}

/// Parses `wb_stats`. Groups that owe nothing are left out.
pub fn groups(text: &str) -> Vec<GroupStats> {
    text.split("WbCgIno:")
        .skip(1)
        .filter_map(|block| {
            let group = GroupStats {
                inode: block.split_whitespace().next()?.parse().ok()?,
                dirty_bytes: kibibytes(block, "WbReclaimable")?,
                writeback_bytes: kibibytes(block, "WbWriteback")?,
            };
            (group.dirty_bytes | group.writeback_bytes != 0).then_some(group)
        })
        .take(GROUPS_MAX)
        .collect()
}

/// Returns the largest error of a device's counter: each processor keeps back a batch of `8 * (1 +
/// log2(processors))` pages (include/linux/backing-dev.h, `WB_STAT_BATCH`).
pub fn drift_bytes(processors: usize, page_bytes: u64) -> u64 {
    let processors = processors.max(1);
    let batch = 8 * (1 + u64::from(processors.ilog2()));
    batch * processors as u64 * page_bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn samples_of_three_kernels_are_understood() {
        let old = BdiStats::parse(include_str!("../../samples/bdi-5.15.txt")).unwrap();
        assert_eq!((old.dirty_bytes, old.writeback_bytes), (200 * MIB, 160 << 10));
        assert_eq!((old.kernel_rate, old.dirty_files), (7008 << 10, 4));
        let fresh = BdiStats::parse(include_str!("../../samples/bdi-6.8.txt")).unwrap();
        assert_eq!((fresh.backlog_bytes(), fresh.kernel_rate), (0, 100 * MIB));
        let new = BdiStats::parse(include_str!("../../samples/bdi-6.18.txt")).unwrap();
        assert_eq!(new.backlog_bytes(), 516_120 << 10);
        assert_eq!(new.dirtied_bytes - new.written_bytes, 516_200 << 10);
        assert_eq!(BdiStats::parse("Cannot allocate memory\n"), None);
    }

    #[test]
    fn only_groups_that_owe_something_are_listed() {
        let found = groups(include_str!("../../samples/wb-6.18.txt"));
        let group = GroupStats {
            inode: 4091,
            dirty_bytes: 820_512 << 10,
            writeback_bytes: 1_792 << 10,
        };
        assert_eq!(found, [group]);
    }

    #[test]
    fn the_drift_grows_with_the_processors() {
        assert_eq!(drift_bytes(0, 4096), 8 * 4096);
        assert_eq!(drift_bytes(2, 4096), 32 * 4096);
        assert_eq!(drift_bytes(64, 4096), 56 * 64 * 4096);
    }

    proptest! {
        #[test]
        fn damaged_files_never_break_it(cut in 0_usize..900, at in 0_usize..900, byte in any::<u8>()) {
            for text in [&include_bytes!("../../samples/bdi-6.18.txt")[..], include_bytes!("../../samples/wb-6.18.txt")] {
                let mut bytes = text.to_vec();
                bytes.truncate(cut);
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
                let text = String::from_utf8_lossy(&bytes);
                _ = BdiStats::parse(&text).map(|stats| stats.backlog_bytes());
                prop_assert!(groups(&text).len() <= GROUPS_MAX);
            }
        }

        #[test]
        fn no_number_of_groups_fills_memory(count in 0_usize..2_000) {
            let block = "WbCgIno: 7\nWbWriteback: 99999999999999999 kB\nWbReclaimable: 18446744073709513951 kB\n";
            prop_assert_eq!(groups(&block.repeat(count)).len(), count.min(GROUPS_MAX));
        }
    }
}
