//! Limits of the kernel for dirty pages, for the machine, a device and a cgroup. Pure.
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
//! mm/page-writeback.c). A cgroup of version 2 has the same share of its own memory as the machine of
//! all memory.

use serde::Serialize;

use crate::parse::cgroup::GroupMemory;
use crate::parse::number;
use crate::parse::vmstat::Vmstat;

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

/// Limits in bytes that are dirty or being written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Start of write-back.
    pub background_bytes: u64,
    /// Amount from which writers wait.
    pub held_from_bytes: u64,
    /// Largest amount.
    pub limit_bytes: u64,
}

/// Share of a device in the limits (`/sys/class/bdi/NAME`, Documentation/ABI/testing/sysfs-class-bdi).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Name of the device, as in /sys/class/bdi.
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

impl Limits {
    /// Returns the limits between a limit and a start of write-back.
    pub fn between(limit_bytes: u64, background_bytes: u64) -> Self {
        Self {
            background_bytes,
            held_from_bytes: limit_bytes / 2 + background_bytes / 2 + (limit_bytes & background_bytes & 1),
            limit_bytes,
        }
    }

    /// Returns the same limits for a part of the memory, `part / whole`.
    fn scaled(self, part: u64, whole: u64) -> Self {
        let scale = |bytes| share_of(bytes, part, whole.max(1));
        Self {
            background_bytes: scale(self.background_bytes),
            held_from_bytes: scale(self.held_from_bytes),
            limit_bytes: scale(self.limit_bytes),
        }
    }
}

impl Memory {
    /// Makes it from the four settings and the files of /proc.
    pub fn parse(
        settings: [u64; 4],
        meminfo: &str,
        zoneinfo: &str,
        vmstat: &Vmstat,
        page_bytes: u64,
    ) -> Self {
        let reserved = reserved_pages(zoneinfo).saturating_mul(page_bytes);
        let [dirty_ratio, dirty_bytes, background_ratio, background_bytes] = settings;
        Self {
            dirty_ratio,
            dirty_bytes,
            background_ratio,
            background_bytes,
            dirtyable_bytes: file_memory(meminfo).saturating_sub(reserved),
            kernel_limit_bytes: vmstat.limit_bytes,
            kernel_background_bytes: vmstat.background_bytes,
        }
    }

    /// Returns the limit that follows from the settings.
    pub fn limit_bytes(&self) -> u64 {
        match self.dirty_bytes {
            0 => share_of(self.dirtyable_bytes, self.dirty_ratio, 100),
            bytes => bytes,
        }
    }

    /// Returns the start of write-back that follows from the settings; half of the limit if it is not below
    /// the limit.
    pub fn background_bytes(&self) -> u64 {
        let background = match self.background_bytes {
            0 => share_of(self.dirtyable_bytes, self.background_ratio, 100),
            bytes => bytes,
        };
        below(background, self.limit_bytes())
    }

    /// Returns the deviation of the computed limit from the kernel's own, as a share.
    pub fn deviation(&self) -> Option<f64> {
        let kernel = self.kernel_limit_bytes as f64;
        (kernel > 0.0).then(|| self.limit_bytes() as f64 / kernel - 1.0)
    }

    /// Returns the limits of the machine: the kernel's own, or those that follow from the settings.
    pub fn limits(&self) -> Limits {
        if self.kernel_limit_bytes > 0 && self.kernel_background_bytes > 0 {
            Limits::between(self.kernel_limit_bytes, self.kernel_background_bytes)
        } else {
            Limits::between(self.limit_bytes(), self.background_bytes())
        }
    }

    /// Returns the limits of a device, if it has its own.
    pub fn limits_of(&self, share: &Share) -> Option<Limits> {
        let machine = self.limits();
        if !share.strict {
            return None;
        }
        let by_ratio = share
            .max_ratio
            .map(|ratio| share_of(machine.limit_bytes, ratio, 100));
        let own = share.max_bytes.or(by_ratio)?;
        Some(machine.scaled(own.min(machine.limit_bytes), machine.limit_bytes))
    }

    /// Returns the limits of a cgroup of version 2 (kernel: `mdtc_calc_avail`, `domain_dirty_limits`).
    /// `headroom_bytes` is the least room up to `memory.max` or `memory.high` of the group and those
    /// above it.
    pub fn limits_of_group(&self, group: &GroupMemory, headroom_bytes: u64, machine_backlog: u64) -> Limits {
        let dirty = group.dirty_bytes.saturating_add(group.writeback_bytes);
        let clean = group.file_bytes.saturating_sub(dirty);
        let clean_elsewhere = self
            .dirtyable_bytes
            .saturating_sub(machine_backlog)
            .saturating_sub(clean);
        let available = group
            .file_bytes
            .saturating_add(headroom_bytes.min(clean_elsewhere));
        let part = |bytes: u64, ratio: u64| match bytes {
            0 => share_of(available, ratio, 100),
            // Limits in bytes count as the share that they are of the machine's memory.
            bytes => share_of(
                available,
                bytes.min(self.dirtyable_bytes),
                self.dirtyable_bytes.max(1),
            ),
        };
        let limit = part(self.dirty_bytes, self.dirty_ratio);
        Limits::between(
            limit,
            below(part(self.background_bytes, self.background_ratio), limit),
        )
    }
}

/// Returns the start of write-back, which must be below the limit: the kernel takes half otherwise.
fn below(background: u64, limit: u64) -> u64 {
    if background >= limit {
        limit / 2
    } else {
        background
    }
}

fn share_of(bytes: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(part) / u128::from(whole)).unwrap_or(u64::MAX)
}

/// Returns free memory and file pages in bytes.
fn file_memory(meminfo: &str) -> u64 {
    ["MemFree", "Active(file)", "Inactive(file)"]
        .into_iter()
        .filter_map(|name| number(meminfo, name))
        .fold(0_u64, u64::saturating_add)
        .saturating_mul(1024)
}

/// Returns the pages that the kernel reserves: in each zone the greatest protection and the high
/// watermark, at most the zone.
fn reserved_pages(zoneinfo: &str) -> u64 {
    let (mut reserved, mut high, mut managed) = (0_u64, 0_u64, 0_u64);
    for line in zoneinfo.lines() {
        let line = line.trim();
        match line.split_once(' ') {
            Some(("high", value)) => high = value.trim().parse().unwrap_or(0),
            Some(("managed", value)) => managed = value.trim().parse().unwrap_or(0),
            Some(("protection:", list)) => {
                let list = list.trim_matches(['(', ')', ' ']).split(',');
                let most = list.filter_map(|word| word.trim().parse::<u64>().ok()).max();
                let zone = most.unwrap_or(0).saturating_add(high).min(managed);
                reserved = reserved.saturating_add(zone);
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
        // Values of kernel 6.18 at the moment when the files above were read.
        let vmstat = Vmstat {
            limit_bytes: 738_690 * 4096,
            background_bytes: 368_894 * 4096,
            ..Vmstat::default()
        };
        Memory::parse([20, 0, 10, 0], MEMINFO, ZONES, &vmstat, 4096)
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
        let without_vmstat = Memory {
            kernel_limit_bytes: 0,
            ..machine()
        };
        assert_eq!(without_vmstat.limits().limit_bytes, machine().limit_bytes());
    }

    #[test]
    fn a_strict_device_has_a_share_of_its_own() {
        let whole = machine().limits();
        assert!((whole.held_from_bytes as f64 / whole.limit_bytes as f64 - 0.75).abs() < 0.001);
        let loose = Share {
            max_ratio: Some(1),
            ..Share::default()
        };
        assert_eq!(machine().limits_of(&loose), None);
        let strict = Share {
            max_bytes: Some(680_000_000),
            strict: true,
            ..loose.clone()
        };
        let own = machine().limits_of(&strict).unwrap();
        assert!(
            own.limit_bytes.abs_diff(680_000_000) < 2
                && own.held_from_bytes.abs_diff(510_000_000) < 1_000_000
        );
        // Before Linux 6.2 there was only the percentage.
        let old = Share {
            strict: true,
            ..loose
        };
        let own = machine().limits_of(&old).unwrap();
        assert_eq!(own.limit_bytes, whole.limit_bytes / 100);
    }

    #[test]
    fn a_cgroup_has_the_same_share_of_its_own_memory() {
        let memory = Memory {
            dirtyable_bytes: 10 << 30,
            ..machine()
        };
        let group = GroupMemory {
            dirty_bytes: 20 << 20,
            writeback_bytes: 0,
            file_bytes: 100 << 20,
        };
        // 100 MiB of file pages and room for 156 MiB more: 20 % of 256 MiB.
        let limits = memory.limits_of_group(&group, 156 << 20, 20 << 20);
        assert_eq!(limits.limit_bytes, (256 << 20) / 5);
        assert_eq!(limits.background_bytes, (256 << 20) / 10);
        // Without a limit on its memory, what is clean elsewhere counts.
        let free = memory.limits_of_group(&group, u64::MAX, 20 << 20);
        assert_eq!(free.limit_bytes, ((10 << 30) - (20 << 20) + (20 << 20)) / 5);
        let by_bytes = Memory {
            dirty_bytes: 1 << 30,
            ..memory
        };
        let limits = by_bytes.limits_of_group(&group, 156 << 20, 20 << 20);
        assert_eq!(limits.limit_bytes, (256 << 20) / 10);
    }

    proptest! {
        #[test]
        fn files_of_proc_never_break_it(text in "[A-Za-z0-9():, \n]{0,200}", settings in any::<[u64; 4]>(), pages in any::<u64>()) {
            let vmstat = Vmstat { limit_bytes: pages, background_bytes: settings[0], ..Vmstat::default() };
            let memory = Memory::parse(settings, &text, &text, &vmstat, 4096);
            let limits = memory.limits();
            prop_assert!(limits.held_from_bytes <= limits.limit_bytes.max(limits.background_bytes));
            let group = GroupMemory { dirty_bytes: pages, writeback_bytes: settings[1], file_bytes: settings[2] };
            let group = memory.limits_of_group(&group, settings[3], pages);
            prop_assert!(group.background_bytes <= group.limit_bytes);
            let share = Share { strict: true, max_ratio: Some(pages), ..Share::default() };
            prop_assert!(memory.limits_of(&share).unwrap().limit_bytes <= limits.limit_bytes);
        }
    }
}
