//! What the kernel lets lie in the page cache before it holds writers up: its settings, its own figures, and the sum
//! that both must agree with. Reading is here, parsing and arithmetic are pure.
//!
//! ```text
//!   dirtyable  = free + file pages - reserves of all zones
//!   limit      = vm.dirty_bytes, or vm.dirty_ratio % of dirtyable
//!   background = vm.dirty_background_bytes, or vm.dirty_background_ratio %: write-back begins
//!   held from  = (limit + background) / 2: writers begin to wait; they never get beyond the limit
//! ```
//!
//! A device with a strict limit has its own share of all three (`max_ratio`, `max_bytes`); without, its share only
//! weighs how long writers wait once the whole machine is above the middle (kernel: mm/page-writeback.c).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Settings of delayed writing, and what the kernel makes of them now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// `vm.dirty_ratio`, percent.
    pub dirty_ratio: u64,
    /// `vm.dirty_bytes`; 0: the ratio counts.
    pub dirty_bytes: u64,
    /// `vm.dirty_background_ratio`, percent.
    pub background_ratio: u64,
    /// `vm.dirty_background_bytes`; 0: the ratio counts.
    pub background_bytes: u64,
    /// Memory that may be dirty: from /proc/meminfo and /proc/zoneinfo.
    pub dirtyable_bytes: u64,
    /// What the kernel says of the limit (/proc/vmstat).
    pub kernel_limit_bytes: u64,
    /// What the kernel says of write-back's beginning.
    pub kernel_background_bytes: u64,
}

/// What a device may have of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Numbers of the device, as in /sys/class/bdi.
    pub name: String,
    /// Percent of the limit that it may have.
    pub max_ratio: Option<u64>,
    /// The same in bytes, where the kernel tells (6.2 and newer).
    pub max_bytes: Option<u64>,
    /// Percent of the limit that is kept for it.
    pub min_ratio: Option<u64>,
    /// Whether the share is a limit of its own.
    pub strict: bool,
}

/// When writers are expected to be held up, in bytes that are dirty or being written back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// Write-back begins.
    pub background_bytes: f64,
    /// Writers begin to wait.
    pub held_from_bytes: f64,
    /// No writer gets beyond.
    pub limit_bytes: f64,
    /// Whether it is the device's own share.
    pub strict: bool,
}

impl Memory {
    /// As it is now.
    ///
    /// # Errors
    /// A file of /proc cannot be read.
    pub fn read() -> io::Result<Self> {
        let setting = |name: &str| -> io::Result<u64> {
            let text = fs::read_to_string(Path::new("/proc/sys/vm").join(name))?;
            text.trim().parse().map_err(io::Error::other)
        };
        let page = rustix::param::page_size() as u64;
        let vmstat = fs::read_to_string("/proc/vmstat")?;
        let pages = |name| number(&vmstat, name).unwrap_or(0) * page;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let zoneinfo = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
        Ok(Self {
            dirty_ratio: setting("dirty_ratio")?,
            dirty_bytes: setting("dirty_bytes")?,
            background_ratio: setting("dirty_background_ratio")?,
            background_bytes: setting("dirty_background_bytes")?,
            dirtyable_bytes: file_memory(&meminfo).saturating_sub(reserved_pages(&zoneinfo) * page),
            kernel_limit_bytes: pages("nr_dirty_threshold"),
            kernel_background_bytes: pages("nr_dirty_background_threshold"),
        })
    }

    /// The limit that the settings give.
    pub fn limit_bytes(&self) -> u64 {
        match self.dirty_bytes {
            0 => percent(self.dirtyable_bytes, self.dirty_ratio),
            bytes => bytes,
        }
    }

    /// Where write-back begins by the settings; at most half of the limit where they make no sense.
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

    /// How far the sum from the settings is from the kernel's own figure, as a share of that.
    pub fn deviation(&self) -> Option<f64> {
        let kernel = self.kernel_limit_bytes as f64;
        (kernel > 0.0).then(|| self.limit_bytes() as f64 / kernel - 1.0)
    }

    /// When writers to a device are expected to be held up.
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
    /// How much is written until so much is dirty that writers wait: what the device takes meanwhile is more. `others` is
    /// dirty already. `None` if the device keeps up, so that nobody ever waits.
    pub fn written_bytes(&self, memory_bps: f64, device_bps: f64, others: f64) -> Option<f64> {
        // Others count among the machine's, but not against a device's own share.
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
    /// That of a device number; `None` if the kernel has none by it.
    pub fn read(major: u32, minor: u32) -> Option<Self> {
        let number = format!("{major}:{minor}");
        let block = Path::new("/sys/dev/block").join(&number);
        // A partition's is that of its disk; network and FUSE file systems have one by their own number.
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

/// What is dirty and what the kernel thinks of it, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Dirty and being written back, bytes, the whole machine.
    pub bytes: u64,
    /// The limit at this moment.
    pub limit_bytes: u64,
    /// Write-back's beginning at this moment.
    pub background_bytes: u64,
}

impl Owed {
    /// As it is now.
    ///
    /// # Errors
    /// /proc/vmstat cannot be read.
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/vmstat")?;
        Ok(Self::parse(&text, rustix::param::page_size() as u64))
    }

    fn parse(vmstat: &str, page: u64) -> Self {
        let mut owed = Self::default();
        for line in vmstat.lines() {
            let Some((name, value)) = line.split_once(' ') else {
                continue;
            };
            let bytes = || value.trim().parse::<u64>().unwrap_or(0).saturating_mul(page);
            match name {
                "nr_dirty" | "nr_writeback" => owed.bytes += bytes(),
                "nr_dirty_threshold" => owed.limit_bytes = bytes(),
                "nr_dirty_background_threshold" => owed.background_bytes = bytes(),
                _ => {}
            }
        }
        owed
    }
}

/// Bytes that a block device has read and written since it is there; `None` if the kernel counts none by this number.
pub fn device_moved(major: u32, minor: u32) -> Option<[u64; 2]> {
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    sectors_moved(&text).map(|moved| moved.map(|sectors| sectors * 512))
}

/// The third and the seventh field (kernel: Documentation/block/stat.rst).
fn sectors_moved(stat: &str) -> Option<[u64; 2]> {
    let field = |index| stat.split_whitespace().nth(index)?.parse().ok();
    Some([field(2)?, field(6)?])
}

fn percent(of: u64, ratio: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(ratio) / 100).unwrap_or(u64::MAX)
}

/// The number behind a name at the start of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()?.trim_end_matches(':') == name)
            .then(|| words.next()?.parse().ok())
            .flatten()
    })
}

/// Free memory and file pages, bytes.
fn file_memory(meminfo: &str) -> u64 {
    ["MemFree", "Active(file)", "Inactive(file)"]
        .into_iter()
        .filter_map(|name| number(meminfo, name))
        .sum::<u64>()
        .saturating_mul(1024)
}

/// What the kernel keeps from everyone: of each zone the greatest protection and the high watermark, at most the zone.
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
            // What this kernel (6.18) said at the moment when the other two were read.
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
    fn what_the_device_takes_meanwhile_is_more() {
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
    fn what_is_owed_is_dirty_or_on_its_way() {
        let text = "nr_free_pages 5\nnr_dirty 3\nnr_writeback 4\nnr_writeback_temp 100\nnr_dirty_threshold 10\n\
                    nr_dirty_background_threshold 6\n";
        let owed = Owed::parse(text, 2);
        assert_eq!(
            (owed.bytes, owed.limit_bytes, owed.background_bytes),
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
            _ = (file_memory(&text), reserved_pages(&text), Owed::parse(&text, 4096), sectors_moved(&text));
        }
    }
}
