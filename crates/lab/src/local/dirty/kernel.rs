//! Limits of the kernel for dirty pages: its settings, its own figures, and the computation that must
//! agree with both. Files of /proc and /sys are read here; parsing and arithmetic are pure.
//!
//! ```text
//!   dirtyable  = free + file pages - reserves of all zones
//!   limit      = vm.dirty_bytes, or vm.dirty_ratio % of dirtyable
//!   background = vm.dirty_background_bytes, or vm.dirty_background_ratio %: write-back begins
//!   held from  = (limit + background) / 2: writers begin to wait; they never exceed the limit
//! ```
//!
//! A device with a strict limit has its own share of all three (`max_ratio`, `max_bytes`). Without one,
//! its share only determines how long writers wait once the whole machine is above the middle (kernel:
//! mm/page-writeback.c).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ropeway_peers::procfs::number;
use serde::Serialize;

/// Settings of delayed writing, and the limits that the kernel computes from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// `vm.dirty_ratio`, percent.
    pub dirty_ratio: u64,
    /// `vm.dirty_bytes`; 0 if the ratio counts.
    pub dirty_bytes: u64,
    /// `vm.dirty_background_ratio`, percent.
    pub background_ratio: u64,
    /// `vm.dirty_background_bytes`; 0 if the ratio counts.
    pub background_bytes: u64,
    /// Memory that may be dirty: from /proc/meminfo and /proc/zoneinfo.
    pub dirtyable_bytes: u64,
    /// Limit by the kernel's own account (/proc/vmstat).
    pub kernel_limit_bytes: u64,
    /// Start of write-back by the kernel's own account.
    pub kernel_background_bytes: u64,
}

/// Share of a device in the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Number of the device, as in /sys/class/bdi.
    pub name: String,
    /// Largest share of the limit, in percent.
    pub max_ratio: Option<u64>,
    /// The same in bytes, where the kernel shows it (6.2 and newer).
    pub max_bytes: Option<u64>,
    /// Reserved share of the limit, in percent.
    pub min_ratio: Option<u64>,
    /// Whether the share is a limit.
    pub strict: bool,
}

/// Expected limits, in bytes that are dirty or being written back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// Start of write-back.
    pub background_bytes: f64,
    /// Amount from which writers wait.
    pub held_from_bytes: f64,
    /// Largest amount.
    pub limit_bytes: f64,
    /// Whether these are the limits of the device.
    pub strict: bool,
}

impl Memory {
    /// Reads the current values.
    ///
    /// # Errors
    /// A file of /proc cannot be read.
    pub fn read() -> io::Result<Self> {
        let setting = |name: &str| -> io::Result<u64> {
            let text = fs::read_to_string(Path::new("/proc/sys/vm").join(name))?;
            text.trim().parse().map_err(io::Error::other)
        };
        let page = rustix::param::page_size() as u64;
        let dirty = DirtyPages::read()?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let zoneinfo = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
        Ok(Self {
            dirty_ratio: setting("dirty_ratio")?,
            dirty_bytes: setting("dirty_bytes")?,
            background_ratio: setting("dirty_background_ratio")?,
            background_bytes: setting("dirty_background_bytes")?,
            dirtyable_bytes: file_memory(&meminfo).saturating_sub(reserved_pages(&zoneinfo) * page),
            kernel_limit_bytes: dirty.limit_bytes,
            kernel_background_bytes: dirty.background_bytes,
        })
    }

    /// Returns the limit that follows from the settings.
    pub fn limit_bytes(&self) -> u64 {
        match self.dirty_bytes {
            0 => percent(self.dirtyable_bytes, self.dirty_ratio),
            bytes => bytes,
        }
    }

    /// Returns the start of write-back that follows from the settings; half of the limit if it is not below
    /// the limit.
    pub fn background_bytes(&self) -> u64 {
        let limit = self.limit_bytes();
        let background = match self.background_bytes {
            0 => percent(self.dirtyable_bytes, self.background_ratio),
            bytes => bytes,
        };
        if background >= limit {
            limit / 2
        } else {
            background
        }
    }

    /// Returns the deviation of the computed limit from the kernel's own, as a share.
    pub fn deviation(&self) -> Option<f64> {
        let kernel = self.kernel_limit_bytes as f64;
        (kernel > 0.0).then(|| self.limit_bytes() as f64 / kernel - 1.0)
    }

    /// Returns the expected limits for writers to a device.
    pub fn expected(&self, device: Option<&Device>) -> Expected {
        let known = self.kernel_limit_bytes > 0 && self.kernel_background_bytes > 0;
        let (limit, background) = if known {
            (self.kernel_limit_bytes, self.kernel_background_bytes)
        } else {
            (self.limit_bytes(), self.background_bytes())
        };
        let (limit, background) = (limit as f64, background as f64);
        let own = device.filter(|device| device.strict).and_then(|device| {
            let by_ratio = device.max_ratio.map(|ratio| limit * ratio as f64 / 100.0);
            device.max_bytes.map(|bytes| bytes as f64).or(by_ratio)
        });
        let part = own.map_or(1.0, |own| (own / limit.max(1.0)).min(1.0));
        Expected {
            background_bytes: background * part,
            held_from_bytes: f64::midpoint(limit, background) * part,
            limit_bytes: limit * part,
            strict: own.is_some(),
        }
    }
}

impl Expected {
    /// Returns the bytes written until writers wait, with those that the device completes meanwhile.
    /// `others` bytes are dirty already. `None` if the device keeps up, so that no writer waits.
    pub fn written_bytes(&self, memory_bps: f64, device_bps: f64, others: f64) -> Option<f64> {
        // Other files count for the machine, but not against the limit of the device.
        let others = if self.strict { 0.0 } else { others };
        let (from, to) = (self.background_bytes - others, self.held_from_bytes - others);
        if to <= 0.0 {
            return Some(0.0);
        }
        let gain = memory_bps - device_bps;
        (gain > 0.0).then(|| {
            let quiet = from.max(0.0);
            quiet + (to - quiet) * memory_bps / gain
        })
    }
}

impl Device {
    /// Reads the share of a device; `None` if the kernel knows no such device.
    pub fn read(major: u32, minor: u32) -> Option<Self> {
        let number = format!("{major}:{minor}");
        let block = Path::new("/sys/dev/block").join(&number);
        // A partition has the share of its disk; network and FUSE file systems have their own numbers.
        let folder = [
            block.join("bdi"),
            block.join("../bdi"),
            Path::new("/sys/class/bdi").join(&number),
        ]
        .into_iter()
        .find(|folder| folder.is_dir())?;
        let value = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let name = fs::canonicalize(&folder).unwrap_or_else(|_| PathBuf::from(&number));
        Some(Self {
            name: name
                .file_name()
                .map_or(number, |name| name.to_string_lossy().into_owned()),
            max_ratio: value("max_ratio"),
            max_bytes: value("max_bytes"),
            min_ratio: value("min_ratio"),
            strict: value("strict_limit") == Some(1),
        })
    }
}

/// Dirty pages and the limits at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyPages {
    /// Bytes of the machine that are dirty or being written back.
    pub bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
    /// Start of write-back.
    pub background_bytes: u64,
}

impl DirtyPages {
    /// Reads the current values.
    ///
    /// # Errors
    /// /proc/vmstat cannot be read.
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/vmstat")?;
        Ok(Self::parse(&text, rustix::param::page_size() as u64))
    }

    fn parse(vmstat: &str, page: u64) -> Self {
        let bytes = |name| number(vmstat, name).unwrap_or(0).saturating_mul(page);
        Self {
            bytes: bytes("nr_dirty").saturating_add(bytes("nr_writeback")),
            limit_bytes: bytes("nr_dirty_threshold"),
            background_bytes: bytes("nr_dirty_background_threshold"),
        }
    }
}

/// Returns the bytes that a block device has read and written so far; `None` if the kernel does not count
/// them.
pub fn device_moved(major: u32, minor: u32) -> Option<[u64; 2]> {
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    sectors_moved(&text).map(|moved| moved.map(|sectors| sectors * 512))
}

/// Returns the third and the seventh field (kernel: Documentation/block/stat.rst).
fn sectors_moved(stat: &str) -> Option<[u64; 2]> {
    let field = |index| stat.split_whitespace().nth(index)?.parse().ok();
    Some([field(2)?, field(6)?])
}

fn percent(of: u64, ratio: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(ratio) / 100).unwrap_or(u64::MAX)
}

/// Returns free memory and file pages in bytes.
fn file_memory(meminfo: &str) -> u64 {
    ["MemFree", "Active(file)", "Inactive(file)"]
        .into_iter()
        .filter_map(|name| number(meminfo, name))
        .sum::<u64>()
        .saturating_mul(1024)
}

/// Returns the pages that the kernel reserves: in each zone the greatest protection and the high
/// watermark, at most the zone.
fn reserved_pages(zoneinfo: &str) -> u64 {
    let (mut reserved, mut high, mut managed) = (0_u64, 0, 0);
    for line in zoneinfo.lines() {
        let line = line.trim();
        match line.split_once(' ') {
            Some(("high", value)) => high = value.trim().parse().unwrap_or(0),
            Some(("managed", value)) => managed = value.trim().parse().unwrap_or(0),
            Some(("protection:", list)) => {
                let list = list.trim_matches(['(', ')', ' ']).split(',');
                let most = list.filter_map(|word| word.trim().parse::<u64>().ok()).max();
                reserved += (most.unwrap_or(0) + high).min(managed);
                (high, managed) = (0, 0);
            }
            _ => {}
        }
    }
    reserved
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMINFO: &str = "MemTotal: 24684000 kB\nMemFree:         8930752 kB\nActive(file):    2011860 kB\nInactive(file):  \
                           4047464 kB\n";
    const ZONES: &str = "Node 0, zone      DMA\n        high     16\n        managed  3840\n        protection: (0, 3019, \
                         24090, 24090)\nNode 0, zone    DMA32\n        high     3660\n        managed  772915\n        \
                         protection: (0, 0, 21071, 21071)\n              high:     1444\nNode 0, zone   Normal\n        high     \
                         25557\n        managed  5394266\n        protection: (0, 0, 0, 0)\n";

    fn machine() -> Memory {
        Memory {
            dirty_ratio: 20,
            background_ratio: 10,
            dirtyable_bytes: file_memory(MEMINFO) - reserved_pages(ZONES) * 4096,
            // Values of kernel 6.18 at the moment when the files above were read.
            kernel_limit_bytes: 738_690 * 4096,
            kernel_background_bytes: 368_894 * 4096,
            ..Memory::default()
        }
    }

    #[test]
    fn the_sum_of_settings_is_the_kernels_figure() {
        let deviation = machine().deviation().unwrap();
        assert!(deviation.abs() < 0.001, "{deviation}");
        let by_bytes = Memory {
            dirty_bytes: 1 << 30,
            background_bytes: 2 << 30,
            ..machine()
        };
        assert_eq!(
            (by_bytes.limit_bytes(), by_bytes.background_bytes()),
            (1 << 30, 1 << 29)
        );
    }

    #[test]
    fn a_strict_device_has_a_share_of_its_own() {
        let whole = machine().expected(None);
        assert!((whole.held_from_bytes / whole.limit_bytes - 0.75).abs() < 0.001);
        let loose = Device {
            max_ratio: Some(1),
            ..Device::default()
        };
        assert_eq!(machine().expected(Some(&loose)), whole);
        let strict = Device {
            max_bytes: Some(680_000_000),
            strict: true,
            ..loose
        };
        let own = machine().expected(Some(&strict));
        assert!((own.limit_bytes - 680e6).abs() < 1.0 && (own.held_from_bytes - 510e6).abs() < 1e6);
        assert!(own.strict && own.written_bytes(1e9, 0.0, 1e12) == Some(own.held_from_bytes));
    }

    #[test]
    fn bytes_completed_meanwhile_are_added() {
        let expected = Expected {
            background_bytes: 100.0,
            held_from_bytes: 200.0,
            limit_bytes: 300.0,
            strict: false,
        };
        assert_eq!(expected.written_bytes(10.0, 5.0, 0.0), Some(300.0));
        assert_eq!(expected.written_bytes(10.0, 5.0, 150.0), Some(100.0));
        assert_eq!(expected.written_bytes(10.0, 5.0, 250.0), Some(0.0));
        assert_eq!(expected.written_bytes(10.0, 10.0, 0.0), None);
    }

    #[test]
    fn pages_count_while_dirty_or_being_written() {
        let text = "nr_free_pages 5\nnr_dirty 3\nnr_writeback 4\nnr_writeback_temp 100\nnr_dirty_threshold 10\n\
                    nr_dirty_background_threshold 6\n";
        let pages = DirtyPages::parse(text, 2);
        assert_eq!(
            (pages.bytes, pages.limit_bytes, pages.background_bytes),
            (14, 20, 12)
        );
        assert_eq!(
            sectors_moved(" 1 2 3 4 5 6 2048 8 0 10 11 0 0 0 0 0 0\n"),
            Some([3, 2048])
        );
    }

    proptest! {
        #[test]
        fn files_of_proc_never_break_it(text in ".{0,200}") {
            _ = (file_memory(&text), reserved_pages(&text), DirtyPages::parse(&text, 4096), sectors_moved(&text));
        }
    }
}
